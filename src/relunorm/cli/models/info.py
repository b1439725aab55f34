"""``relunorm info``: what a model file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relunorm.cli.output import Example, Json, ModelFile, emit, examples, markup, parse_example

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "relunorm info model.onnx",
    "relunorm info model.pt2 --example 1,28,28 --json",
)
def info(
    model: ModelFile,
    example: Example = None,
    json: Json = False,
) -> None:
    """Show layers, units, parameters and activations of MODEL, and where each came from."""
    from relunorm.io import load

    document = load(model, parse_example(example)).to_dict()
    emit(document, json, lambda console: _render(console, document))


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    from relunorm.network.network import units_in_words

    def size(shape: list[int]) -> str:
        return "x".join(map(str, shape))

    console.print(f"[bold]{markup(document['origin'])}[/bold]")
    table = Table("layer", "shape", "activation", "reads", "entries", "from")
    for index, row in enumerate([*document["layers"], document["output"]]):
        last = index == len(document["layers"])
        table.add_row(
            "output" if last else str(index + 1),
            size(row["shape"]),
            row["activation"],
            ", ".join("input" if s == 0 else f"layer {s}" for s in row["reads"]) or "nothing",
            f"{row['parameters']:,}" + (" sparse" if row["sparse"] else ""),
            markup(row["name"]),
        )
    console.print(table)
    console.print(
        f"input {size(document['input_shape'])}, "
        f"{units_in_words(document['units'], document['channels'])}, "
        f"{document['parameters']:,} parameters"
        + (f" in {document['precision']}" if document["precision"] else "")
    )
    head = document["head"]
    if head["label"]:
        console.print(f"then {head['label']}; answers speak of the {head['of']}", markup=False)
    if head["classes"]:
        shown = ", ".join(map(str, head["classes"][:20]))
        more = ", ..." if len(head["classes"]) > 20 else ""
        console.print(f"classes in the order of the outputs: {shown}{more}", markup=False)

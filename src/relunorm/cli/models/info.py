"""``relunorm info``, ``convert``, ``fingerprint``: what a file holds, as another one, its name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.output import (
    Console,
    check_folder,
    emit,
    examples,
    markup,
    print_table,
    showing,
)


@examples(
    "relunorm info model.onnx",
    "relunorm info model.pt2 --example 1,28,28 --json",
)
def info(
    model: options.ModelFile,
    example: options.Example = None,
    json: options.Json = False,
) -> None:
    """Show layers, units, parameters and activations of MODEL, and where each came from."""
    document = opened(model, example=example)[0].to_dict()
    emit(document, json, lambda console: _render(console, document))


@examples(
    "relunorm convert model.onnx model.npz",
    "relunorm convert model.safetensors model.onnx --dtype float64",
)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="The model file to read.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; its ending says the format.")
    ],
    dtype: Annotated[
        str | None,
        typer.Option(help="float32 or float64; by default float32 for ONNX, float64 elsewhere."),
    ] = None,
    example: options.Example = None,
    json: options.Json = False,
) -> None:
    """Read a model and write it in the format that OUT's ending names."""
    from relunorm.io import save

    check_folder(target)
    network, _ = opened(source, example=example)
    save(network, target, dtype=dtype)  # type: ignore[arg-type]  # checked there
    document = {
        "schema": "relunorm.convert/1",
        "source": source,
        "target": target,
        "dtype": dtype or ("float32" if target.lower().endswith(".onnx") else "float64"),
        "parameters": network.parameters,
    }
    emit(document, json, lambda console: console.print(markup(f"{source} -> {target}")))


@examples(
    "relunorm fingerprint model.onnx --domain box:-1,1",
    "relunorm fingerprint model.onnx --digits 6",
)
def fingerprint(
    model: options.ModelFile,
    domain: Annotated[str | None, options.DOMAIN] = None,
    digits: Annotated[
        int | None,
        typer.Option(help="Round parameters to this many digits first; exact if omitted."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for the stability analysis.")
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Print the hash of MODEL's canonical form over the domain."""
    from relunorm.forms.fingerprint import fingerprint as run

    network, place = opened(model, domain)
    with showing("canonical form", json or quiet):
        value = run(network, place, digits, time_limit=time_limit)
    document = {
        "schema": "relunorm.fingerprint/1",
        "model": model,
        "domain": domain,
        "digits": digits,
        "fingerprint": value,
    }
    emit(document, json, lambda console: console.print(value, markup=False, highlight=False))


def _render(console: Console, document: dict[str, Any]) -> None:
    from relunorm.network.network import units_in_words

    def size(shape: list[int]) -> str:
        return "x".join(map(str, shape))

    console.print(f"[bold]{markup(document['origin'])}[/bold]")
    layers = [*enumerate(document["layers"], start=1), ("output", document["output"])]
    rows = [
        [
            str(number),
            size(row["shape"]),
            row["activation"],
            ", ".join("input" if s == 0 else f"layer {s}" for s in row["reads"]) or "nothing",
            f"{row['parameters']:,}" + (" sparse" if row["sparse"] else ""),
            markup(row["name"]),
        ]
        for number, row in layers
    ]
    heads = ("layer", "shape", "activation", "reads", "entries", "from")
    print_table(console, heads, rows)
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

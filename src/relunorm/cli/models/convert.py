"""``relunorm convert``: the same network in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from relunorm.cli.output import Example, Json, emit, examples, markup, parse_example


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
    example: Example = None,
    json: Json = False,
) -> None:
    """Read a model and write it in the format that OUT's ending names."""
    from relunorm.io import load, save

    network = load(source, parse_example(example))
    save(network, target, dtype=dtype)  # type: ignore[arg-type]  # checked there
    document = {
        "schema": "relunorm.convert/1",
        "source": source,
        "target": target,
        "dtype": dtype or ("float32" if target.lower().endswith(".onnx") else "float64"),
        "parameters": network.parameters,
    }
    emit(document, json, lambda console: console.print(markup(f"{source} -> {target}")))

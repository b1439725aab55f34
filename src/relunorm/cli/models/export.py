"""``relunorm export``: a C program with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import numbers, opened
from relunorm.cli.output import Console, check_folder, emit, examples, showing
from relunorm.errors import InvalidDomainError, InvalidInputError


@examples(
    "relunorm export model.onnx -o net.c --domain box:-1,1 --bits 16",
    "relunorm export model.onnx -o net.c --domain data:train.csv --epsilon 0.01 --target avr",
)
def export(
    model: options.ModelFile,
    out: Annotated[
        str, typer.Option("-o", "--out", help="The C file; with .onnx a quantized model instead.")
    ],
    domain: Annotated[str | None, options.DOMAIN] = None,
    bits: Annotated[
        int | None,
        typer.Option(help="WIDTHS; 16, or what --epsilon needs, if omitted."),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="How far outputs may move, rounding the inputs included."),
    ] = None,
    target: Annotated[str, typer.Option(help="TARGETS.")] = "c99",
    style: Annotated[
        str, typer.Option(help="layers, or pieces for a network with one or two inputs.")
    ] = "layers",
    floats: Annotated[
        bool, typer.Option("--float", help="Single precision instead of integers.")
    ] = False,
    classes: Annotated[
        bool, typer.Option("--classes", help="Add a function that gives the class, and its claim.")
    ] = False,
    name: Annotated[str, typer.Option(help="Prefix of everything the file defines.")] = "net",
    input_shift: Annotated[
        str | None,
        typer.Option(help="Inputs are real * 2^N, N or N,N,... for each; chosen if omitted."),
    ] = None,
    integer_inputs: Annotated[
        bool,
        typer.Option(
            "--integer-inputs",
            help="Inputs are integers to begin with: --epsilon leaves their rounding out.",
        ),
    ] = False,
    certificate: Annotated[
        str | None, typer.Option(help="Write the proofs as JSON, for relunorm verify.")
    ] = None,
    header: Annotated[str | None, typer.Option(help="Write the declarations too.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep what does nothing over the domain.")
    ] = False,
    flash: Annotated[int | None, typer.Option(help="Bytes of flash there are.")] = None,
    ram: Annotated[int | None, typer.Option(help="Bytes of RAM there are.")] = None,
    parts: Annotated[int, typer.Option(help="Boxes the domain is cut into, at most.")] = 256,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Write MODEL as a C program of integers and prove that it cannot overflow, and its error.

    Exit code 0: written; 2: bad input, or an epsilon that no width meets: nothing is written.
    """
    from relunorm.embedded import to_c

    if domain is None:
        raise InvalidDomainError(
            "export needs --domain: every range and the error are proved over it; such as "
            "--domain box:-1,1 or --domain data:train.csv"
        )
    _check_paths(model, {"-o": out, "--certificate": certificate, "--header": header})
    network, place = opened(model, domain)
    onnx = Path(out).suffix == ".onnx"
    if onnx and (floats or style != "layers" or certificate or header):
        raise InvalidInputError(
            "a quantized .onnx holds integer layers and has no certificate, which speaks of the C "
            "file; leave --float, --style, --certificate and --header out"
        )
    with showing("export", json or quiet) as show:
        made = to_c(
            network, place, bits=bits, epsilon=epsilon, target=target,
            style=style,  # type: ignore[arg-type]
            floats=floats, classes=classes, name=name, input_shift=_shifts(input_shift),
            integer_inputs=integer_inputs, shrink=not keep, flash=flash, ram=ram, parts=parts,
            progress=show,
        )  # fmt: skip
    if onnx:
        made.save_onnx(out)
    else:
        made.save(out, certificate, header)
    document = {**made.to_dict(), "source": model, "target": out, "certificate": certificate}
    emit(document, json, lambda console: _render(console, document))


def _check_paths(model: str, outputs: dict[str, str | None]) -> None:
    """Raise where one file would be written twice, over the model or into no folder."""
    check_folder(*outputs.values())
    seen = {Path(model).resolve(): "the model"}
    for option, path in outputs.items():
        if path is None:
            continue
        place = Path(path).resolve()
        if place in seen:
            raise InvalidInputError(
                f"{option} {path} is {seen[place]} too; give every file a path of its own"
            )
        seen[place] = f"the file of {option}"


def _shifts(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    expected = "expected a whole number, or one for each input with commas"
    shifts = numbers(text, int, f"--input-shift {text}: {expected}")
    return shifts[0] if len(shifts) == 1 else shifts


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.markup import escape

    from relunorm.arithmetic.floats import at_least, at_most

    sizes, found = document["sizes"], document["found"]
    integer = "float" not in document["weights"]

    def both(value: float, grid: float) -> str:
        return at_most(value, 3) + (f" ({at_most(grid, 3)} for integer inputs)" if integer else "")

    console.print(f"[bold]{escape(document['source'])} -> {escape(document['target'])}[/bold]")
    kinds = ", ".join(dict.fromkeys(document["weights"]))
    sums = ", ".join(dict.fromkeys(document["accumulators"]))
    console.print(
        f"tables {sizes['flash']:,} bytes, buffers {sizes['ram']:,} bytes, "
        f"{sizes['multiplications']:,} multiplications"
    )
    console.print(f"weights {kinds}, accumulators {sums}: none can overflow on the domain")
    if document["epsilon"] is None:
        console.print("no bound on the error could be proved")
    else:
        console.print(
            f"outputs move by at most {at_most(document['epsilon'], 3)} (proved); "
            f"{at_least(found['of_floats'], 3)} was found by search"
        )
    if integer and document["epsilon_on_grid"] is not None:
        console.print(
            f"for integer inputs: {at_most(document['epsilon_on_grid'], 3)} proved, "
            f"{at_least(found['on_grid'], 3)} found"
        )
    head = document["head"]
    if head is not None:
        console.print(f"outputs are the {head['of']}")
        if head["bound"] is not None:
            moved = both(head["bound"], head["bound_on_grid"])
            console.print(f"{head['label']} of them moves by at most {moved}, proved")
    classes = document["classes"]
    if classes is not None and classes["everywhere"] is not None:
        console.print(f"the class is {classes['everywhere']} everywhere, as in the model")
    elif classes is not None:
        one = len(document["bounds"]["of_floats"]) == 1
        where = "output is farther from 0 than" if one else "best output leads by more than"
        margin = both(classes["margin"], classes["margin_on_grid"])
        console.print(f"the class is the model's wherever its {where} {margin}")

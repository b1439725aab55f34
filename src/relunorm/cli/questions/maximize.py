"""``relunorm maximize``: the largest value of a combination of outputs over a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relunorm.cli import options
from relunorm.cli.inputs import numbers, opened
from relunorm.cli.output import Console, check_folder, emit, examples, showing, write_proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relunorm.extrema.result import Maximum
    from relunorm.matrix import Vector
    from relunorm.network.columns import Column


@examples(
    "relunorm maximize model.onnx --domain box:-1,1 --direction 1,-1",
    "relunorm maximize model.onnx --domain box:-1,1 --direction 0 --proof proof.json",
)
def maximize(
    model: options.ModelFile,
    domain: Annotated[str, options.DOMAIN],
    direction: Annotated[
        str | None,
        typer.Option(
            help="One weight per output: 1,0,-1; or the number of one output: 2. A model's only "
            "output needs none."
        ),
    ] = None,
    time_limit: options.TimeLimit = 60,
    proof: options.Proof = None,
    rational: Annotated[
        bool, typer.Option("--rational", help="Without any rounding: small networks only.")
    ] = False,
    jobs: options.Jobs = None,
    backend: options.Backend = None,
    scheduler: options.Scheduler = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Find the maximum of a linear combination of MODEL's outputs, with the input that attains it.

    Negate the weights for a minimum. Ctrl-C keeps the interval reached so far. Exit code 3:
    the interval is not closed.
    """
    from relunorm.extrema.maximize import maximize as compute

    check_folder(proof)
    network, where = opened(model, domain)
    weights = _weights(direction, network.output_size)
    with showing("searching", json or quiet) as show:
        result = compute(
            network, where, weights, time_limit, progress=show,
            workers=jobs, backend=backend, scheduler=scheduler, rational=rational,
        )  # fmt: skip
    what = f"output {weights or 0}"
    if isinstance(weights, list):
        what = " + ".join(f"{w:g} * output {k}" for k, w in enumerate(weights) if w) or "0"
    written = write_proof(result.certificate, proof)
    note = _no_row(network.columns, result.point)
    document = {
        "model": model,
        "direction": what,
        **result.to_dict(),
        "proof": written,
        "note": note,
    }
    emit(document, json, lambda console: _render(console, result, what, note))
    raise typer.Exit(0 if result.exact and proof == written else 3)


def _weights(text: str | None, outputs: int) -> int | list[float] | None:
    if text is None:
        return None
    expected = f"write {outputs} numbers with commas, or the number of one output"
    weights = numbers(text, float, f"--direction {text!r} is not understood; {expected}")
    if len(weights) == 1 and outputs > 1 and weights[0].is_integer():
        return int(weights[0])
    return int(weights[0]) if weights == [0.0] else weights


def _no_row(columns: Sequence[Column], point: Vector) -> str:
    """In what the point is unlike a row of the model's table, if it is."""
    at, broken = 0, []
    for column in columns:
        values = sorted(float(v) for v in point[at : at + len(column.inputs)])
        at += len(values)
        possible = values[:-1] == [0.0] * (len(values) - 1) and values[-1] in (
            (0.0, 1.0) if column.fill is not None else (1.0,)
        )
        if column.words and not possible:
            broken.append(repr(column.name))
    if not broken:
        return ""
    return (
        f"of the words of {', '.join(broken)} this input has none, several or parts, where a row "
        "of a table has one; the domain holds such inputs, too"
    )


def _render(console: Console, result: Maximum, what: str, note: str) -> None:
    from relunorm.arithmetic.floats import at_least, at_most

    if result.exact:
        console.print(f"maximum of {what}: {result.lower:.12g} (exact)", markup=False)
        if result.value is not None:
            console.print(f"without rounding: {result.value}", markup=False)
    else:
        ends = f"[{at_least(result.lower, 9)}, {at_most(result.upper, 9)}]"
        why = f" ({result.stopped})" if result.stopped else ""
        console.print(f"maximum of {what} in {ends}{why}", markup=False)
    shown = ", ".join(f"{v:.9g}" for v in result.point[:12])
    more = f", ... {len(result.point)} entries" if len(result.point) > 12 else ""
    console.print(f"at [{shown}{more}]", markup=False)
    if note:
        console.print(f"note: {note}", markup=False)
    console.print(f"{result.nodes:,} nodes in {result.seconds:.2f} s")

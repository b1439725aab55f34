"""``relunorm maximize``: the largest value of a combination of outputs over a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relunorm.cli.output import (
    DOMAIN,
    Backend,
    Jobs,
    Json,
    ModelFile,
    Quiet,
    Scheduler,
    check_folder,
    emit,
    examples,
    showing,
    write_proof,
)
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.extrema.result import Maximum


@examples(
    "relunorm maximize model.onnx --domain box:-1,1 --direction 1,-1",
    "relunorm maximize model.onnx --domain box:-1,1 --direction 0 --proof proof.json",
)
def maximize(
    model: ModelFile,
    domain: Annotated[str, DOMAIN],
    direction: Annotated[
        str, typer.Option(help="One weight per output: 1,0,-1; or the number of one output: 2.")
    ] = "0",
    time_limit: Annotated[float, typer.Option(help="Seconds before an interval is returned.")] = 60,
    proof: Annotated[
        str | None, typer.Option(help="Write a proof of the upper end to this file, JSON.")
    ] = None,
    rational: Annotated[
        bool, typer.Option("--rational", help="Without any rounding: small networks only.")
    ] = False,
    jobs: Jobs = None,
    backend: Backend = None,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the maximum of a linear combination of MODEL's outputs, with the input that attains it.

    Negate the weights for a minimum. Ctrl-C keeps the interval reached so far. Exit code 3:
    the interval is not closed.
    """
    from relunorm.extrema.maximize import maximize as compute
    from relunorm.io import load
    from relunorm.io.domains import parse_domain

    check_folder(proof)
    network = load(model)
    where = parse_domain(domain, network)
    weights = _weights(direction, network.output_size)
    with showing("searching", json or quiet) as show:
        result = compute(
            network, where, weights, time_limit, progress=show,
            workers=jobs, backend=backend, scheduler=scheduler, rational=rational,
        )  # fmt: skip
    what = f"output {weights}" if isinstance(weights, int) else _combination(weights)
    written = write_proof(result.certificate, proof)
    document = {"model": model, "of": what, **result.to_dict(), "proof": written}
    emit(document, json, lambda console: _render(console, result, what))
    raise typer.Exit(0 if result.exact and proof == written else 3)


def _weights(text: str, outputs: int) -> int | list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"--direction {text!r} is not understood; write {outputs} numbers with commas, or the "
            "number of one output"
        ) from None
    if len(numbers) == 1 and outputs > 1 and numbers[0] == int(numbers[0]):
        return int(numbers[0])
    return int(numbers[0]) if numbers == [0.0] else numbers


def _combination(weights: list[float]) -> str:
    return " + ".join(f"{w:g} * output {k}" for k, w in enumerate(weights) if w) or "0"


def _render(console: Console, result: Maximum, what: str) -> None:
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
    console.print(f"{result.nodes:,} nodes in {result.seconds:.2f} s")

"""``relunorm lipschitz``: an interval around a Lipschitz constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.output import (
    Console,
    check_folder,
    emit,
    examples,
    print_table,
    showing,
    write_proof,
)

if TYPE_CHECKING:
    from relunorm.lipschitz.result import LipschitzResult


@examples(
    "relunorm lipschitz model.onnx --domain data:train.csv",
    "relunorm lipschitz model.onnx --domain box:0,1 --norm inf --time-limit 60",
)
def lipschitz(
    model: options.ModelFile,
    domain: Annotated[str | None, typer.Option(help=f"{options.DOMAINS}; else all inputs.")] = None,
    norm: Annotated[str, typer.Option(help="NORMS, on inputs and outputs alike.")] = "2",
    method: Annotated[str, typer.Option(help="auto, METHODS.")] = "auto",
    time_limit: options.TimeLimit = 10.0,
    proof: options.Proof = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search for the lower end.")] = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Bound the Lipschitz constant of MODEL from both sides; exact where the two meet.

    Ctrl-C keeps what was found so far. Exit code 3: a long method was cut short by the time limit.
    """
    from relunorm.lipschitz.front import lipschitz as compute

    check_folder(proof)
    network, where = opened(model, domain)
    with showing("bounding", json or quiet) as show:
        result = compute(network, where, norm, time_limit, method, seed, progress=show)
    written = write_proof(result.certificate, proof)
    document = {"model": model, **result.to_dict(), "proof": written}
    emit(document, json, lambda console: _render(console, result))
    ended = result.exact or result.complete
    raise typer.Exit(0 if ended and proof == written else 3)


def _render(console: Console, result: LipschitzResult) -> None:
    from relunorm.arithmetic.floats import at_least, at_most

    rows = []
    for bound in result.bounds:
        outward = at_most if bound.side == "upper" else at_least
        shown = outward(bound.value, 9) if bound.value == bound.value else "-"
        rows.append([bound.method, bound.side, shown, f"{bound.seconds:.3f}", bound.note])
    print_table(console, ("method", "side", "bound", "seconds", "note"), rows)
    if result.exact:
        text = f"{result.lower:.12g}, exact by {result.method}"
    else:
        ends = f"[{at_least(result.lower, 9)}, {at_most(result.upper, 9)}]"
        text = f"in {ends}, upper end by {result.method}"
    norm = result.to_dict()["norm"]
    console.print(f"l{norm} Lipschitz constant over {result.domain}: {text}", markup=False)

"""``relunorm check``: decide a property file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relunorm.atomic import atomic_path
from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.output import Console, check_folder, emit, examples, showing

EXIT = {"unsat": 0, "sat": 1, "unknown": 3, "timeout": 3}

_MEANING = {
    "unsat": "no input satisfies the assertions: the property holds",
    "sat": "an input satisfies the assertions: the property is violated",
    "unknown": "undecided: the answer is too close for floats to tell",
    "timeout": "undecided within the time given",
}


@examples(
    "relunorm check model.onnx property.vnnlib",
    "relunorm check model.onnx property.vnnlib --time-limit 300 --proof proof.json",
)
def check(
    model: options.ModelFile,
    prop: Annotated[str, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, 1.0 or 2.0.")],
    time_limit: options.TimeLimit = 60.0,
    proof: Annotated[str | None, typer.Option(help="Write the proof of unsat, as JSON.")] = None,
    replay: Annotated[
        str | None, typer.Option(help="Replay a proof written by --proof; searches nothing.")
    ] = None,
    result: Annotated[
        str | None, typer.Option(help="Write the answer here, in the format of VNN-COMP.")
    ] = None,
    jobs: options.Jobs = None,
    backend: options.Backend = None,
    scheduler: options.Scheduler = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Decide whether some input of MODEL satisfies the assertions of PROPERTY.

    Prints sat with the assignment, unsat, unknown or timeout. A property file says what must not
    happen, so unsat means that the property holds.

    Exit code 0: unsat; 1: sat, or a proof that does not hold; 2: bad input; 3: unknown or timeout.
    """
    from relunorm.questions.check import CheckProof
    from relunorm.questions.check import check as run

    check_folder(proof, result)
    network, _ = opened(model)
    if replay is not None:
        found = CheckProof.load(replay).verify(network, prop)
        document: dict[str, Any] = {
            "schema": "relunorm.check-replay/1",
            "model": model,
            "property": prop,
            "proof": replay,
            "holds": found.holds,
            "nodes": found.nodes,
            "reason": found.reason,
        }
        emit(document, json, lambda console: _render_replay(console, document))
        raise typer.Exit(0 if found.holds else 1)
    with showing("checking", json or quiet) as show:
        answer = run(
            network, prop, time_limit,
            progress=show, workers=jobs, backend=backend, scheduler=scheduler,
        )  # fmt: skip
    written = None
    if proof is not None and answer.proof is not None:
        answer.proof.save(proof)
        written = proof
    if result is not None:
        with atomic_path(result) as temporary:
            Path(temporary).write_text(answer.result(), encoding="utf-8")
    document = {"model": model, "property": prop, **answer.to_dict(), "proof": written}
    emit(document, json, lambda console: _render(console, document, answer.result(), proof))
    raise typer.Exit(EXIT[answer.verdict])


def _render(console: Console, document: dict[str, Any], text: str, proof: str | None) -> None:
    verdict, _, assignment = text.partition("\n")
    console.print(f"[bold]{verdict}[/bold]: {_MEANING[verdict]}")
    lines = assignment.splitlines()
    for line in lines[:24]:
        console.print(line, markup=False, highlight=False)
    if len(lines) > 24:
        console.print(f" ... {len(lines)} values in all; --result or --json gives them")
    console.print(
        f"{document['settled']} of {document['parts']} parts settled, {document['nodes']:,} nodes, "
        f"{document['seconds']:.2f} s"
    )
    if proof is not None and document["proof"] is None:
        console.print("no proof was written: there is one for unsat only")


def _render_replay(console: Console, document: dict[str, Any]) -> None:
    if document["holds"]:
        console.print(f"[bold]holds[/bold]: unsat, {document['nodes']:,} nodes replayed")
    else:
        console.print(f"[bold]does not hold[/bold]: {document['reason']}")

"""``relunorm sensitivity``: the range of every partial derivative over a domain."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened, table_of
from relunorm.cli.output import (
    Console,
    check_folder,
    check_writable,
    emit,
    examples,
    markup,
    print_table,
    showing,
    write_proof,
)

#: Rows of the table, at most.
SHOWN = 60


@examples(
    "relunorm sensitivity model.onnx --domain data:train.csv?target=y",
    "relunorm sensitivity model.onnx --domain box:-1,1 -o slopes.png",
)
def sensitivity(
    model: options.ModelFile,
    domain: Annotated[str, options.DOMAIN],
    time_limit: options.TimeLimit = 60.0,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Write a heat map: .png, .svg or .pdf.")
    ] = None,
    proof: options.Proof = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the points tried.")] = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Bound the derivative of every output of MODEL in every input, over the whole domain.

    Says which inputs certainly push an output up or down, and which are not used. A domain
    data:f.csv also gives the inputs their names. Exit code 3: not every interval is exact.
    """
    from relunorm.questions.sensitivity import sensitivity as compute

    check_folder(proof)
    check_writable(out)
    network, where = opened(model, domain)
    table = table_of(domain, network)
    names = None if table is None else table.names
    with showing("searching", json or quiet) as show:
        found = compute(network, where, time_limit, seed, show, names)
    if out is not None:
        found.plot().savefig(out, bbox_inches="tight")
    written = write_proof(found.certificate, proof)
    document = {
        "model": model,
        "domain": domain,
        "figure": out,
        **found.to_dict(),
        "proof": written,
    }
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(0 if found.exact.all() and proof == written else 3)


def _render(console: Console, document: dict[str, Any]) -> None:
    every = [(i, j) for i, row in enumerate(document["lower"]) for j in range(len(row))]
    rows = []
    for i, j in every[:SHOWN]:
        ends = (_shown(document[name][i][j]) for name in ("lower", "upper"))
        exact = "yes" if document["exact"][i][j] else ""
        name = markup(document["names"][j])
        rows.append([str(i), name, *ends, exact, document["direction"][i][j]])
    heads = ("output", "input", "derivative between", "and", "exact", "certain")
    print_table(console, heads, rows)
    if len(every) > SHOWN:
        console.print(f"{len(every)} intervals in all; --json gives them")
    for entry in document["steepest"][:3]:
        kind = "exact" if entry["exact"] else "the largest seen"
        console.print(
            f"slope {entry['slope']:.6g} of output {entry['output']} in {markup(entry['name'])} "
            f"({kind})"
        )
    console.print(f"{document['seconds']:.2f} s")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"

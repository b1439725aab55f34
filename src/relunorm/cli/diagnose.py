"""``relunorm diagnose``: which units of a model do nothing, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import Json, emit, markup

if TYPE_CHECKING:
    from rich.console import Console


def diagnose(
    model: Annotated[str, typer.Argument(help="A model file.")],
    data: Annotated[
        str, typer.Option(help="A table: csv, npz with x, npy, parquet; or example:moons.")
    ],
    target: Annotated[
        str | None,
        typer.Option(help="The column to predict; names of classes are left out: no scale."),
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Prove on this domain, for example box:-1,1 or data:FILE.")
    ] = None,
    tau: Annotated[float, typer.Option(help="Dormancy threshold.")] = 0.025,
    optimizer: Annotated[
        str | None, typer.Option(help="adam, sgd, ...: how it is trained.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for proofs on the domain.")] = 30.0,
    json: Json = False,
) -> None:
    """Dead, dormant, linear and duplicate units of MODEL, the target's scale, and advice."""
    from relunorm.cli.domains import parse_domain
    from relunorm.cli.tables import parse_table
    from relunorm.dying.diagnosis import diagnose as run
    from relunorm.io import load

    network = load(model)
    table = parse_table(data, target, network.input_size, labels=True)
    where = parse_domain(domain, network.input_size) if domain is not None else None
    found = run(
        network, table.x, None if table.classes else table.y, where, tau=tau, optimizer=optimizer,
        lr=lr, momentum=momentum, time_limit=time_limit,
    )  # fmt: skip
    named = {"model": model, "data": data, "classes": list(table.classes)}
    document = {**named, **found.to_dict()}
    emit(document, json, lambda console: _render(console, document))


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    names = ("units", "dead", "provably_dead", "always_on", "provably_on", "dormant", "duplicate")
    titles = (n.replace("_", "\n").replace("provably", "proved") for n in names[:-1])
    table = Table("layer", *titles, "dupli-\ncate", "lowest\ncone")  # 80 columns hold it
    for row in document["layers"]:
        counts = row["counts"]
        cells = ["-" if counts[n] is None else str(counts[n]) for n in names]
        cone = min((v for v in row["cone"] if v is not None), default=float("nan"))
        table.add_row(markup(row["name"] or str(row["layer"])), *cells, f"{cone:.2f}")
    console.print(table)
    if document["undecided"]:
        console.print(f"{document['undecided']} units undecided on the domain; raise --time-limit")
    if document["classes"]:
        count = len(document["classes"])
        console.print(f"the target holds {count} classes, which have no scale to advise about")
    for line in document["advice"]:
        console.print(f"- {line}", markup=False)

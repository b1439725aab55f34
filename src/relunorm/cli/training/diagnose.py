"""``relunorm diagnose`` and ``geometry``: what units and layers do to the rows of a table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened, parse_table
from relunorm.cli.output import (
    Console,
    check_writable,
    emit,
    examples,
    markup,
    print_table,
    printable,
    showing,
)
from relunorm.display.shown import counted


@examples(
    "relunorm diagnose model.onnx --data train.csv --target y",
    "relunorm diagnose model.onnx --data train.csv --domain data:train.csv --optimizer adam",
)
def diagnose(
    model: options.ModelFile,
    data: Annotated[str, options.DATA],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The column to predict, repeat it for several; names of classes are left out: no "
            "scale."
        ),
    ] = None,
    drop: options.Drop = None,
    domain: Annotated[
        str | None, typer.Option(help=f"Prove on this domain: {options.DOMAINS}.")
    ] = None,
    tau: Annotated[float, typer.Option(help="Dormancy threshold.")] = 0.025,
    optimizer: Annotated[
        str | None, typer.Option(help="adam, sgd, ...: how it is trained.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for proofs on the domain.")] = 30.0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Dead, dormant, linear and duplicate units of MODEL, the target's scale, and advice."""
    from relunorm.dying.diagnosis import diagnose as run

    network, where = opened(model, domain)
    table = parse_table(data, target, drop, network)
    with showing("looking at units", json or quiet):
        found = run(
            network, table.x, None if table.classes else table.y, where, tau=tau,
            optimizer=optimizer, lr=lr, momentum=momentum, time_limit=time_limit,
        )  # fmt: skip
    named = {"model": model, "data": data, "classes": list(table.classes)}
    document = {**named, **found.to_dict()}
    emit(document, json, lambda console: _render(console, document))


#: Counts of a layer -> how the table heads them; 80 columns hold them beside a name.
_HEADS = {
    "units": "units",
    "dead": "dead",
    "provably_dead": "proved\ndead",
    "always_on": "always\non",
    "provably_on": "proved\non",
    "dormant": "dor-\nmant",
    "duplicate": "dupli-\ncate",
}


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    names = [n for n in _HEADS if any(row["counts"][n] is not None for row in document["layers"])]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True)
    table.add_column("layer", overflow="fold")  # whole names, on several lines if need be
    for head in (*(_HEADS[n] for n in names), "lowest\ncone"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in document["layers"]:
        cells = [str(row["counts"][n]) for n in names]
        cone = min((v for v in row["cone"] if v is not None), default=float("nan"))
        table.add_row(markup(_name(row)), *cells, f"{cone:.2f}")
    console.print(table)
    for row in document["layers"]:
        if sum(row["positions"]) > len(row["positions"]):
            console.print(
                f"{_name(row)}: a unit has several positions; silent at "
                f"{sum(row['dead_positions'])} of {sum(row['positions'])} in all",
                markup=False,
            )
    if document["undecided"]:
        open_ = counted(document["undecided"], "unit")
        console.print(f"{open_} undecided on the domain; raise --time-limit")
    if document["classes"]:
        count = len(document["classes"])
        console.print(f"the target holds {count} classes, which have no scale to advise about")
    for line in document["advice"]:
        console.print(f"- {line}", markup=False)


def _name(row: dict[str, Any]) -> str:
    return printable(row["name"] or str(row["layer"]))


@examples(
    "relunorm geometry model.onnx --data train.csv --target y",
    "relunorm geometry model.onnx --data batch.npy -o depth.png",
)
def geometry(
    model: options.ModelFile,
    data: Annotated[str, typer.Option(help="The batch: a table (csv, npz with x, npy, parquet).")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="A column of the table that is not an input; repeat it for several."),
    ] = None,
    drop: options.Drop = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write a page of plots (png, pdf, svg).")
    ] = None,
    max_points: Annotated[int, typer.Option(help="Points used for pairwise measures.")] = 512,
    rank_tolerance: Annotated[
        float | None, typer.Option(help="Singular values below this share of the largest are 0.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random state for the choice of points.")] = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Ranks, angles, norms, clusters, odd points and activity of a batch through MODEL."""
    from relunorm.batchnorm.probes import geometry as probe

    check_writable(out)
    network, _ = opened(model)
    table = parse_table(data, target, drop, network)
    with showing("measuring", json or quiet):
        found = probe(
            network, table.x, max_points=max_points, rank_tolerance=rank_tolerance,
            random_state=seed,
        )  # fmt: skip
    if out is not None:
        found.figure().savefig(out, dpi=120)
    document = {"model": model, "data": data, **found.to_dict()}
    emit(document, json, lambda console: _render_geometry(console, document, out))


def _render_geometry(console: Console, document: dict[str, Any], out: Path | None) -> None:
    columns = ("layer", "width", "rank", "soft rank", "angle", "clusters", "odd", "broad", "dead")
    rows = []
    for row in document["layers"]:
        angle = row["mean_angle"]
        odd = row["odd"]
        gap = f" (gap {odd['norm_gap']:.1f})" if odd["points"] and odd["norm_gap"] else ""
        cells = (
            markup(row["name"]),
            str(row["width"]),
            str(row["rank"]),
            f"{row['soft_rank']:.2f}",
            "" if angle is None else f"{math.degrees(angle):.1f}",
            str(row["cluster_count"]),
            (", ".join(map(str, odd["points"])) or "none") + gap,
            f"{100 * row['broad_share']:.1f} %",
            str(row["dead"]),
        )
        rows.append(cells)
    print_table(console, columns, rows, title=f"{document['points']} points, angles in degrees")
    if out is not None:
        console.print(f"wrote {out}", markup=False)

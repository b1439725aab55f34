"""``relunorm geometry``: what each layer does to the geometry of a batch."""

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
    showing,
)


@examples(
    "relunorm geometry model.onnx --data train.csv --target y",
    "relunorm geometry model.onnx --data batch.npy -o depth.png",
)
def geometry(
    model: options.ModelFile,
    data: Annotated[str, typer.Option(help="The batch: a table (csv, npz with x, npy, parquet).")],
    target: Annotated[
        str | None, typer.Option(help="A column of the table that is not an input.")
    ] = None,
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
    table = parse_table(data, target, network, labels=True)
    with showing("measuring", json or quiet):
        found = probe(
            network, table.x, max_points=max_points, rank_tolerance=rank_tolerance,
            random_state=seed,
        )  # fmt: skip
    if out is not None:
        found.figure().savefig(out, dpi=120)
    document = {"model": model, "data": data, **found.to_dict()}
    emit(document, json, lambda console: _render(console, document, out))


def _render(console: Console, document: dict[str, Any], out: Path | None) -> None:
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

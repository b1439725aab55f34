"""What each layer does to the geometry of the data."""

from __future__ import annotations

from typing import Any

from relunorm.display.shown import plain
from relunorm.report.case import Case
from relunorm.report.registry import NotAsked

#: Layers that are listed, at most.
MAX_LAYERS = 200
KEPT = ("name", "width", "rank", "soft_rank", "mean_angle", "angle_quantiles", "cluster_count",
        "cluster_angle", "broad_share", "dead", "zero_points", "points")  # fmt: skip


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`geometry` of the rows of data, layer by layer."""
    if case.x is None:
        raise NotAsked("no data was given: the geometry is that of a batch of inputs")
    from relunorm.batchnorm.probes import QUANTILES, geometry  # half a second, for data alone

    found = geometry(case.network, case.x)
    rows = []
    for layer in found.layers[:MAX_LAYERS]:
        document = layer.to_dict()
        row = {key: document[key] for key in KEPT}
        rows.append(plain({**row, "odd": document["odd"]["points"]}))
    used = found.layers[0].points
    return {
        "on": case.inputs_in_words,
        "pairs_on": f"{used:,} points for the angles and ranks",
        "quantiles": {"kind": "exact", "values": list(QUANTILES)},
        "layers": {"kind": "exact" if used == case.rows else "estimate", "rows": rows},
    }

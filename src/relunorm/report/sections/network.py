"""What the network is: layers, units, parameters, and its output where it is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.display.shown import plain
from relunorm.report.case import MAX_OUTPUTS, Case
from relunorm.report.numbers import quantity

#: Layers that are listed, at most; of a deeper network the first ones.
MAX_LAYERS = 200


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """Structure from `Network.to_dict`, and the range of the first outputs on the inputs."""
    document = case.network.to_dict()
    rows = [*document["layers"][:MAX_LAYERS], document["output"]]
    return {
        "words": repr(case.network),
        "digest": document["digest"],
        "input_shape": {"kind": "exact", "values": document["input_shape"]},
        "inputs": quantity(case.network.input_size, "exact"),
        "outputs": quantity(case.network.output_size, "exact"),
        "depth": quantity(len(case.network.hidden), "exact"),
        **{name: quantity(document[name], "exact") for name in ("units", "channels", "parameters")},
        "skips": not case.network.is_chain,
        "layers": {"kind": "exact", "rows": rows, "of": len(document["layers"])},
        "output_range": _output_range(case),
    }


def _output_range(case: Case) -> dict[str, Any]:
    values = case.few_outputs(case.inputs)
    rows = [
        {"output": k, "min": plain(column.min()), "mean": plain(column.mean()),
         "max": plain(column.max())}
        for k, column in enumerate(values.T[:MAX_OUTPUTS])
    ]  # fmt: skip
    bad = int((~np.isfinite(values)).any(axis=1).sum())
    note = f"{bad} of {len(values)} inputs have outputs beyond float64" if bad else ""
    kind = "exact" if case.all_rows else "estimate"
    return {"kind": kind, "on": case.inputs_in_words, "rows": rows, "note": note}

"""Which inputs matter: the range of every slope over the domain, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.display.shown import plain
from relunorm.errors import InvalidInputError
from relunorm.questions.sensitivity import Sensitivity, sensitivity
from relunorm.report.case import MAX_OUTPUTS, Case, first_outputs

#: Inputs that are listed of every output, at most: those with the largest effect on it.
LISTED = 40
#: Entries of all Jacobians that are looked at, at most.
MOST_ENTRIES = 4_000_000
#: What can be certain of an input over the whole domain.
CERTAIN = ("increasing", "decreasing", "unused")


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`sensitivity` of the first outputs, ordered by what an input can do over its range."""
    network = first_outputs(case.network, MAX_OUTPUTS)
    if network.input_size * max(network.widths) > MOST_ENTRIES:
        raise InvalidInputError(
            f"{network.input_size:,} inputs times {max(network.widths):,} units are too many here"
        )
    found = sensitivity(network, case.domain, time_limit=seconds, names=case.names)
    slope = np.maximum(np.abs(found.lower), np.abs(found.upper))
    width = 2 * case.domain.bounding_box.halfwidth
    with np.errstate(invalid="ignore"):
        effect = np.where(np.isnan(found.least) | (width == 0), 0.0, slope * width)
    effect = np.nan_to_num(effect, posinf=np.inf)
    first = np.argsort(-effect, axis=1, kind="stable")[:, :LISTED]
    listed = np.unique(first)  # each output has its own, and may have another scale
    order = listed[np.argsort(-effect.max(axis=0)[listed], kind="stable")]
    words = found.direction
    return {
        "domain": repr(case.domain),
        "inputs": {"kind": "exact", "value": network.input_size},
        "outputs": {"kind": "exact", "shown": network.output_size, "of": case.network.output_size},
        "monotone": {
            "kind": "bound",
            "rows": [{word: int((of == word).sum()) for word in CERTAIN} for of in words],
            "unused": int((words == "unused").all(axis=0).sum()),
        },
        "slopes": {"kind": "bound", "rows": [_input(found, int(j), width) for j in order]},
        "partial": "" if found.complete else "not every range of slopes is exact",
    }


def _input(found: Sensitivity, j: int, width: np.ndarray) -> dict[str, Any]:
    return {
        "input": j,
        "name": found.names[j],
        "width": plain(width[j]),
        "lower": plain(found.lower[:, j]),
        "upper": plain(found.upper[:, j]),
        "exact": found.exact[:, j].tolist(),
        "direction": found.direction[:, j].tolist(),
    }

"""Which inputs matter: the range of every slope over the domain, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.errors import InvalidInputError
from relunorm.questions.sensitivity import Sensitivity, sensitivity
from relunorm.report.case import MAX_OUTPUTS, Case, first_outputs
from relunorm.report.numbers import finite

#: Inputs that are listed, at most: those with the largest effect.
LISTED = 40
#: Entries of all Jacobians that are looked at, at most.
MOST_ENTRIES = 4_000_000


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
    order = np.argsort(-np.nan_to_num(effect, posinf=np.inf).max(axis=0), kind="stable")
    words = found.direction
    return {
        "domain": repr(case.domain),
        "inputs": {"kind": "exact", "value": network.input_size},
        "outputs": {"kind": "exact", "shown": network.output_size, "of": case.network.output_size},
        "monotone": {
            "kind": "bound",
            "increasing": int((words == "increasing").all(axis=0).sum()),
            "decreasing": int((words == "decreasing").all(axis=0).sum()),
            "unused": int((words == "unused").all(axis=0).sum()),
        },
        "slopes": {"kind": "bound", "rows": [_input(found, int(j), width) for j in order[:LISTED]]},
        "partial": "" if found.complete else "not every range of slopes is exact",
    }


def _input(found: Sensitivity, j: int, width: np.ndarray) -> dict[str, Any]:
    return {
        "input": j,
        "name": found.names[j],
        "width": finite(width[j]),
        "lower": [finite(v) for v in found.lower[:, j]],
        "upper": [finite(v) for v in found.upper[:, j]],
        "exact": found.exact[:, j].tolist(),
        "direction": found.direction[:, j].tolist(),
    }

"""An interval around the Lipschitz constant, with every bound that was tried."""

from __future__ import annotations

from typing import Any

from relunorm.lipschitz.front import lipschitz
from relunorm.report.case import Case
from relunorm.report.numbers import quantity
from relunorm.report.plane import printed


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`lipschitz` in the l2 norm over the domain."""
    found = lipschitz(case.network, case.domain, time_limit=seconds)
    document = found.to_dict()
    lower = quantity(found.lower, "bound", "the norm of the Jacobian at the witness", "lower")
    upper = quantity(found.upper, "bound", f"by {found.method}", "upper")
    if found.exact:  # they meet to 1e-9: one number, whose two ends stand among the bounds
        lower = upper = quantity(found.upper, "exact", f"by {found.method}, to 1e-9 of it")
    return {
        "norm": str(document["norm"]),
        "domain": document["domain"],
        "lower": lower,
        "upper": upper,
        "exact": found.exact,
        "method": found.method,
        "witness": {"kind": "exact", "values": printed(found.witness)},
        "bounds": {"kind": "bound", "rows": document["bounds"]},
        "partial": "" if found.complete or found.exact else "the long methods were cut short",
    }

"""An interval around the Lipschitz constant, with every bound that was tried."""

from __future__ import annotations

from typing import Any

from relunorm.lipschitz.front import lipschitz
from relunorm.report.case import Case
from relunorm.report.numbers import finite, quantity
from relunorm.report.plane import PRINTED


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`lipschitz` in the l2 norm over the domain."""
    found = lipschitz(case.network, case.domain, time_limit=seconds)
    document = found.to_dict()
    kind = "exact" if found.exact else "bound"
    short = case.network.input_size <= PRINTED
    return {
        "norm": str(document["norm"]),
        "domain": document["domain"],
        "lower": quantity(found.lower, kind, "the norm of the Jacobian at the witness", "lower"),
        "upper": quantity(found.upper, kind, f"by {found.method}", "upper"),
        "exact": found.exact,
        "method": found.method,
        "witness": {
            "kind": "exact",
            "values": [finite(v) for v in found.witness] if short else None,
        },
        "bounds": {"kind": "bound", "rows": document["bounds"]},
        "partial": "" if found.complete or found.exact else "the long methods were cut short",
    }

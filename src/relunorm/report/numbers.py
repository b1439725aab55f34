"""Numbers of the document: each says whether it is exact, a sound bound or an estimate.

The rule of the document: the nearest enclosing object that has a ``kind`` speaks for a number.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from relunorm.display.shown import plain

Kind = Literal["exact", "bound", "estimate"]
Side = Literal["lower", "upper"]


def quantity(value: Any, kind: Kind, note: str = "", side: Side | None = None) -> dict[str, Any]:
    """One number with its kind; of a bound, on which side of the truth it lies.

    >>> quantity(3, "bound", side="lower")
    {'value': 3, 'kind': 'bound', 'side': 'lower'}
    """
    found: dict[str, Any] = {"value": plain(value), "kind": kind}
    if kind == "bound" and side is not None:
        found["side"] = side
    return {**found, "note": note} if note else found


def rounded(values: Any, span: float) -> list[float | None]:
    """Coordinates for drawing: flat, to 1e-7 of the span they are seen in."""
    digits = 7 - math.floor(math.log10(span)) if span > 0 and math.isfinite(span) else 12
    flat = np.round(np.asarray(values, dtype=np.float64).ravel(), min(max(digits, 0), 300))
    return plain(flat + 0.0)

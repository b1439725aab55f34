"""Numbers of the document: each says whether it is exact, a sound bound or an estimate.

The rule of the document: the nearest enclosing object that has a ``kind`` speaks for a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

Kind = Literal["exact", "bound", "estimate"]
Side = Literal["lower", "upper"]


def finite(value: Any) -> float | int | None:
    """A number JSON can hold; None for NaN and infinities."""
    if value is None or isinstance(value, bool | int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def quantity(value: Any, kind: Kind, note: str = "", side: Side | None = None) -> dict[str, Any]:
    """One number with its kind; of a bound, on which side of the truth it lies.

    >>> quantity(3, "bound", side="lower")
    {'value': 3, 'kind': 'bound', 'side': 'lower'}
    """
    found: dict[str, Any] = {"value": finite(value), "kind": kind}
    if kind == "bound" and side is not None:
        found["side"] = side
    return {**found, "note": note} if note else found


def series(values: Iterable[Any], kind: Kind, **more: Any) -> dict[str, Any]:
    """A list of numbers of one kind."""
    return {"kind": kind, "values": [finite(v) for v in values], **more}


def rounded(values: Any, span: float) -> list[float | None]:
    """Coordinates for drawing: flat, to 1e-7 of the span they are seen in."""
    digits = 7 - math.floor(math.log10(span)) if span > 0 and math.isfinite(span) else 12
    flat = np.round(np.asarray(values, dtype=np.float64).ravel(), min(max(digits, 0), 300))
    return [finite(v) for v in flat + 0.0]

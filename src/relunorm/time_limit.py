"""The one reading of a ``time_limit`` argument."""

from __future__ import annotations

import numbers
from typing import Any

from relunorm.errors import InvalidInputError


def as_time_limit(value: Any) -> float | None:
    """Seconds, or None for no limit.

    >>> as_time_limit(3), as_time_limit(None)
    (3.0, None)
    """
    if value is None:
        return None
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and float(value) > 0):
        raise InvalidInputError(
            f"time_limit is {value!r}, expected a positive number of seconds or None"
        )
    return float(value)

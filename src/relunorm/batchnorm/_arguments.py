"""Arguments that count something or seed something, checked with the package's own errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.errors import InvalidInputError


def whole_number(name: str, value: Any, least: int) -> int:
    """An argument that counts something, as an int, or a clear error."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"{name} is {value!r}, expected a whole number of at least {least}")
    return int(value)


def generator(random_state: Any) -> np.random.Generator:
    """The generator behind a random state, or a clear error."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"random_state is {random_state!r}, expected a whole number of at least 0, a NumPy "
            f"generator or None ({error})"
        ) from None

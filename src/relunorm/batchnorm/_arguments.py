"""Arguments that count something or seed something, checked with the package's own errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def points(X: Any) -> NDArray[np.float64]:
    """A batch of points: finite numbers of shape (n, d), from an array or a tensor."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().double().numpy()
    try:
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the batch is not an array of numbers: {error}") from None
    if X.ndim != 2 or not X.size:
        raise InvalidInputError(f"the batch has shape {X.shape}, expected (n, d) with n, d >= 1")
    if not np.isfinite(X).all():
        raise InvalidInputError("the batch holds NaN or infinite entries")
    return X

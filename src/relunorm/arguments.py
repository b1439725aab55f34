"""Arguments that count something or seed something, checked with the package's own errors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError


def _told(value: Any) -> str:
    """A value in an error: what is long, such as an array, by its kind and shape."""
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")


def whole_number(name: str, value: Any, least: int) -> int:
    """An argument that counts something, as an int, or a clear error."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise InvalidInputError(
            f"{name} is {_told(value)}, expected a whole number of at least {least}"
        )
    return int(value)


def real_number(name: str, value: Any) -> float:
    """A finite number, or a clear error."""
    if isinstance(value, (int, float, np.integer, np.floating)) and np.isfinite(value):
        return float(value)
    raise InvalidInputError(f"{name} is {_told(value)}, expected a finite number")


def switch(name: str, value: Any) -> bool:
    """True or False, or a clear error: any text would count as True."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidInputError(f"{name} is {_told(value)}, expected True or False")


def generator(random_state: Any) -> np.random.Generator:
    """The generator behind a random state, or a clear error."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"random_state is {_told(random_state)}, expected a whole number of at least 0, a "
            f"NumPy generator or None ({error})"
        ) from None


def points(X: Any) -> NDArray[np.float64]:
    """A batch of points: finite numbers of shape (n, d), from an array or a tensor."""
    return _finite("the batch", X, "(n, d) with n, d >= 1", 2)


def vector(x: Any) -> NDArray[np.float64]:
    """Finite numbers of shape (n,)."""
    return _finite("the vector", x, "(n,) with n >= 1", 1)


def _finite(name: str, given: Any, expected: str, axes: int) -> NDArray[np.float64]:
    """Finite numbers with this many axes, at least one of them."""
    array = real_numbers(name, given).astype(np.float64, copy=False)
    if array.ndim != axes or not array.size:
        raise InvalidInputError(f"{name} has shape {array.shape}, expected {expected}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinite entries")
    return array


def real_numbers(name: str, value: Any) -> NDArray[np.floating[Any]]:
    """Real numbers from anything array-like or a tensor: a float type as it is, others in float64.

    What NumPy would turn into numbers quietly is refused: complex numbers lose their imaginary
    part, masked entries their mask, text and dates their meaning.
    """
    if hasattr(value, "detach"):
        value = from_tensor(name, value)
    if np.ma.is_masked(value):
        raise InvalidInputError(f"{name} has masked entries; fill or drop them first")
    try:
        array = np.asarray(value)
        words = array.dtype == object and any(isinstance(each, str | bytes) for each in array.flat)
        if words or array.dtype.kind not in "biufO":
            kind = "complex numbers" if array.dtype.kind == "c" else "text or dates"
            raise InvalidInputError(
                f"{name} is not an array of numbers: it holds {kind} ({array.dtype})"
            )
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    except InvalidInputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers: {error}") from None


def from_tensor(name: str, tensor: Any) -> NDArray[Any]:
    """A tensor that holds plain numbers as an array (NumPy has no bfloat16, so in float64)."""
    layout = str(tensor.layout).removeprefix("torch.")
    if layout != "strided" or tensor.device.type == "meta" or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else f"{layout}, on {tensor.device.type}"
        raise InvalidInputError(f"{name} is a tensor without plain entries ({kind})")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def resolve_statistic(statistic: str, recenter: bool) -> Literal["rms", "std"]:
    """auto: the second moment without recentering, the standard deviation with it.

    (2)'s deviation about the mean, used without subtracting the mean, collapses the batch instead
    of giving the paper's 60 degrees (docs/errata.md).
    """
    if statistic not in ("auto", "rms", "std"):
        raise InvalidInputError(f"statistic {statistic!r} is not known; use 'auto', 'rms' or 'std'")
    # of recentered values the root mean square is the standard deviation
    return "std" if recenter or statistic == "std" else "rms"

"""When a unit fires, and the two cones in (w, b) where it never or always does.

For x ~ N(0, I) the unit relu(w.x + b) fires with probability Phi(b / |w|) (seed 002, eq. 23), so
both cones are bounds on b / |w|. The signs printed after (23) are wrong: docs/errata.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from relunorm.errors import InvalidInputError

#: How far a covariance may be from symmetric and semidefinite, as a share of its largest entry.
ROUNDING = 1e-6


def cone_position(
    w: ArrayLike, b: ArrayLike, mean: ArrayLike | None = None, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """How many standard deviations the mean pre-activation lies above 0.

    h = (w.mean + b) / sqrt(w' C w); b / |w| for standard normal inputs. +-inf where w = 0.

    Args:
        w: shape (..., d). b: shape (...).
        mean: of the inputs, 0 by default. covariance: of the inputs, the identity by default;
            symmetric with no negative eigenvalue, up to 1e-6 of its largest entry.

    >>> cone_position([[3.0, 4.0]], [-10.0]).tolist()
    [-2.0]
    """
    w = np.asarray(w, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    if w.ndim < 1 or w.shape[:-1] != b.shape:
        raise InvalidInputError(
            f"w has shape {w.shape} and b {b.shape}; expected (..., d) and (...)"
        )
    if mean is not None:
        b = b + w @ _fits(mean, (w.shape[-1],), "mean")
    if covariance is None:
        spread = np.linalg.norm(w, axis=-1)
    else:
        c = _covariance(covariance, w.shape[-1])
        spread = np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", w, c, w), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        position = b / spread
    return np.where(np.isnan(position), -np.inf, position)  # w = 0, b = 0: relu(0) never fires


def firing_probability(
    w: ArrayLike, b: ArrayLike, mean: ArrayLike | None = None, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """P(w.x + b > 0) for Gaussian x: Phi(b / |w|), seed 002 eq. (23). Exact for Gaussian inputs.

    >>> round(float(firing_probability([1.0, 0.0], 0.0)), 3)
    0.5
    """
    return ndtr(cone_position(w, b, mean, covariance))


def dead_below(epsilon: float) -> float:
    """Phi^-1(eps): a unit fires with probability below eps iff b/|w| is below this (not above
    minus it, as printed after eq. 23).

    >>> round(dead_below(1e-4), 3)
    -3.719
    """
    return float(ndtri(_probability(epsilon)))


def linear_above(epsilon: float) -> float:
    """-Phi^-1(eps): a unit is off with probability below eps iff b/|w| is above this."""
    return -float(ndtri(_probability(epsilon)))


def in_dead_cone(
    w: ArrayLike, b: ArrayLike, epsilon: float = 1e-4, **inputs: ArrayLike
) -> NDArray[np.bool_]:
    """Whether the firing probability is below eps. ``inputs``: mean and covariance."""
    return cone_position(w, b, **inputs) < dead_below(epsilon)


def in_linear_cone(
    w: ArrayLike, b: ArrayLike, epsilon: float = 1e-4, **inputs: ArrayLike
) -> NDArray[np.bool_]:
    """Whether the probability of being off is below eps. ``inputs``: mean and covariance."""
    return cone_position(w, b, **inputs) > linear_above(epsilon)


def _probability(epsilon: float) -> float:
    if not 0 < epsilon < 0.5:
        raise InvalidInputError(f"epsilon is {epsilon}, expected a number between 0 and 0.5")
    return float(epsilon)


def _fits(value: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInputError(f"{name} has shape {array.shape}, expected {shape}, all finite")
    return array


def _covariance(value: ArrayLike, size: int) -> NDArray[np.float64]:
    """A covariance, up to what rounding in float32 leaves of one."""
    c = _fits(value, (size, size), "covariance")
    largest = np.abs(c).max(initial=0.0)
    if largest == 0:
        return c
    scaled = c / largest
    apart = float(np.abs(scaled - scaled.T).max())
    if apart > ROUNDING:
        raise InvalidInputError(
            f"covariance is not symmetric: entries across the diagonal differ by {apart:.1g} of "
            "the largest one"
        )
    lowest = float(np.linalg.eigvalsh((scaled + scaled.T) / 2)[0])
    if lowest < -ROUNDING:
        raise InvalidInputError(
            f"covariance has the negative eigenvalue {lowest * largest:.3g}, so it is none: some "
            "combination of inputs would have a negative variance"
        )
    return c

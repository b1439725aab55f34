"""Paths of single units under gradient descent, with and without momentum (seed 002, (6)-(7))."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.dying.unit_loss import Target, gradient
from relunorm.errors import InvalidInputError


@dataclass(frozen=True)
class Trajectory:
    """Where units were, recorded every ``every`` updates.

    Attributes:
        w: shape (records, ..., d). b: shape (records, ...).
        steps: the update counts of the records.
    """

    w: NDArray[np.float64]
    b: NDArray[np.float64]
    steps: NDArray[np.int64]

    def __repr__(self) -> str:
        units = self.b[0].size
        return f"Trajectory({units} unit{'s' if units != 1 else ''}, {self.steps[-1]} updates)"


def trajectory(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike = 1.0,
    delta: float = 0.0,
    *,
    eta: float = 0.1,
    beta: float = 0.0,
    steps: int = 1000,
    every: int = 1,
    target: Target = "surrogate",
) -> Trajectory:
    """Follow units under m <- beta m + (1 - beta) grad L, theta <- theta - eta m, from m = 0.

    The expected gradient is exact, so nothing here is random. Cost: one `gradient` per update.

    Args:
        w: shape (..., d), or (...) with a scalar ``gamma`` for units of one input.
        b: shape (...).

    >>> path = trajectory([[0.2, 0.3]], [0.5], [1.0, 0.0], steps=2000)
    >>> path.w[-1].round(3).tolist(), path.b[-1].round(3).tolist()
    ([[1.0, 0.0]], [0.0])
    """
    if steps < 0 or every < 1:
        raise InvalidInputError(f"steps={steps} and every={every}: expected >= 0 and >= 1")
    if not (math.isfinite(eta) and eta > 0 and 0 <= beta < 1):
        raise InvalidInputError(
            f"eta={eta} and beta={beta}: expected a step size above 0 and a momentum in [0, 1)"
        )
    w, b = _pair(w, b, gamma)
    mw, mb = np.zeros_like(w), np.zeros_like(b)
    ws, bs, at = [w.copy()], [b.copy()], [0]
    for step in range(1, steps + 1):
        gw, gb = gradient(w, b, gamma, delta, target)
        mw = beta * mw + (1 - beta) * gw
        mb = beta * mb + (1 - beta) * gb
        w, b = w - eta * mw, b - eta * mb
        if step % every == 0 or step == steps:
            ws.append(w)
            bs.append(b)
            at.append(step)
    return Trajectory(np.array(ws), np.array(bs), np.array(at, dtype=np.int64))


def vector_field(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike = 1.0,
    delta: float = 0.0,
    target: Target = "surrogate",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The direction of steepest descent, -grad L, at units of one input (figure 3) or more.

    The field is homogeneous: field(k theta, k gamma, k delta) = k field(theta, gamma, delta).
    """
    scalar = np.ndim(w) == np.ndim(b)
    w, b = _pair(w, b, gamma)
    gw, gb = gradient(w, b, gamma, delta, target)
    return (-gw[..., 0] if scalar else -gw), -gb


def _pair(
    w: ArrayLike, b: ArrayLike, gamma: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    w, b = np.array(w, dtype=np.float64), np.array(b, dtype=np.float64)
    if w.shape == b.shape and np.ndim(gamma) == 0:
        w = w[..., None]
    if w.shape[:-1] != b.shape:
        raise InvalidInputError(
            f"w has shape {w.shape} and b {b.shape}; expected (..., d) and (...)"
        )
    return w, b

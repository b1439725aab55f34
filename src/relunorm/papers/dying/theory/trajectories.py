"""Paths of single units under gradient descent (seed 002, (6)-(7)), and where they can stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.errors import InvalidInputError
from relunorm.papers.dying.theory.unit_loss import Target, gradient, loss


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

    The field is homogeneous: for k > 0, field(k theta, k gamma, k delta) = k field(theta, gamma,
    delta).
    """
    scalar = np.ndim(w) == np.ndim(b)
    w, b = _pair(w, b, gamma)
    gw, gb = gradient(w, b, gamma, delta, target)
    return (-gw[..., 0] if scalar else -gw), -gb


@dataclass(frozen=True)
class CriticalPoints:
    """All points where the surrogate gradient vanishes.

    For finite h = b/|w| the gradient is zero only at the optimum: across w it is
    (w - Gamma) Phi(h), along w and b it is a Gram matrix [[Phi - h phi, phi], [phi, Phi]], whose
    determinant E[1]E[1 t^2] - E[1 t]^2 is positive by Cauchy-Schwarz. What is left is w = 0, b < 0.

    Attributes:
        optimum: (Gamma, Delta).
        saddle_direction: unit vector (0, ..., 0, -1); every positive multiple is a saddle.
        saddle_loss: the loss on the ray, that of predicting 0.
    """

    optimum: NDArray[np.float64]
    saddle_direction: NDArray[np.float64]
    saddle_loss: float

    def descends(self, direction: ArrayLike) -> bool:
        """Whether leaving the ray along w = t * direction lowers the loss, for small t > 0.

        To leading order the change is -t E[1{z>0} (d.x) y], whose sign is that of d.Gamma: the ray
        is a saddle, flat to every order in t (all derivatives of phi(b/t) vanish at t = 0).
        """
        d = np.asarray(direction, dtype=np.float64)
        if d.shape != self.optimum[:-1].shape:
            raise InvalidInputError(f"direction has shape {d.shape}, expected one entry per input")
        return bool(d @ self.optimum[:-1] > 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "schema": "relunorm.dying.critical_points/1",
            "optimum": self.optimum.tolist(),
            "saddle_direction": self.saddle_direction.tolist(),
            "saddle_loss": self.saddle_loss,
        }


def critical_points(gamma: ArrayLike, delta: float = 0.0) -> CriticalPoints:
    """The optimum and the ray of saddles of the surrogate loss. Exact.

    >>> points = critical_points([1.0, 0.0])
    >>> points.optimum.tolist(), points.saddle_direction.tolist(), points.saddle_loss
    ([1.0, 0.0, 0.0], [0.0, 0.0, -1.0], 0.5)
    """
    goal = np.atleast_1d(np.asarray(gamma, dtype=np.float64))
    if goal.ndim != 1 or not np.isfinite(goal).all() or not np.any(goal):
        raise InvalidInputError(f"gamma has shape {goal.shape}; expected a finite non-zero vector")
    direction = np.append(np.zeros(len(goal)), -1.0)
    return CriticalPoints(
        np.append(goal, delta), direction, float(loss(np.zeros_like(goal), -1.0, goal, delta))
    )


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

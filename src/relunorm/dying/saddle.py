"""Where gradient descent on one unit can stop: the optimum and the dead ray (seed 002, sec. 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.dying.unit_loss import loss
from relunorm.errors import InvalidInputError


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
        np.append(goal, delta),
        direction,
        float(loss(np.zeros_like(goal), -1.0, goal, delta)),
    )

"""Gradient descent with momentum on an affine model as a linear system, seed 002 (19)-(20).

Each parameter error a and its momentum m obey (m, a) <- A (m, a) with
A = [[beta, 1 - beta], [-eta beta, 1 - eta (1 - beta)]].
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError


def beta_star(eta: float) -> float:
    """The momentum above which the system oscillates: ((1 - eta) / (1 + eta))^2.

    >>> round(beta_star(0.1), 5)
    0.66942
    """
    _check(eta, 0.0)
    return ((1 - eta) / (1 + eta)) ** 2


@dataclass(frozen=True)
class MomentumSystem:
    """The system (20) for one step size and momentum. Exact.

    Attributes:
        eta, beta: step size and momentum.
        eigenvalues: of A, the one of larger modulus (or positive argument) first.
        beta_star: complex eigenvalues iff beta > beta_star, i.e. sqrt(beta) > |1-eta| / (1+eta).
        stability_limit: the system converges iff eta is below 2 (1 + beta) / (1 - beta).
        overshoot: the largest error on the far side of the optimum, as a share of the first one
            (started at rest, m = 0); infinite when unstable.
        period: updates per oscillation; 2 when an eigenvalue is negative, inf when none oscillates.
    """

    eta: float
    beta: float
    eigenvalues: tuple[complex, complex]
    beta_star: float
    stability_limit: float
    overshoot: float
    period: float

    @property
    def matrix(self) -> NDArray[np.float64]:
        """A of eq. (20)."""
        return _matrix(self.eta, self.beta)

    @property
    def stable(self) -> bool:
        """Whether the spectral radius is below 1."""
        return self.eta < self.stability_limit

    @property
    def oscillates(self) -> bool:
        """Whether the eigenvalues are complex."""
        return self.eigenvalues[0].imag != 0

    @property
    def rate(self) -> float:
        """The spectral radius: the factor by which the error falls per update in the long run."""
        return max(map(abs, self.eigenvalues))

    def errors(self, steps: int, start: float = 1.0) -> NDArray[np.float64]:
        """The error after 0, 1, ..., ``steps`` updates from rest."""
        state, found = np.array([0.0, start]), np.empty(steps + 1)
        matrix = self.matrix
        for t in range(steps + 1):
            found[t] = state[1]
            state = matrix @ state
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; infinite values become None."""
        return {
            "schema": "relunorm.dying.momentum/1",
            "eta": self.eta,
            "beta": self.beta,
            "eigenvalues": [[v.real, v.imag] for v in self.eigenvalues],
            "beta_star": self.beta_star,
            "stability_limit": self.stability_limit,
            "stable": self.stable,
            "oscillates": self.oscillates,
            "rate": self.rate,
            "overshoot": self.overshoot if math.isfinite(self.overshoot) else None,
            "period": self.period if math.isfinite(self.period) else None,
        }


def momentum(eta: float, beta: float) -> MomentumSystem:
    """The momentum system of seed 002 (19)-(20): eigenvalues, threshold, stability, overshoot.

    >>> system = momentum(eta=0.1, beta=0.9)
    >>> system.oscillates, round(system.overshoot, 3), round(system.period, 1)
    (True, 0.153, 71.3)
    >>> momentum(0.1, 0.6).oscillates
    False
    """
    _check(eta, beta)
    trace = beta + 1 - eta * (1 - beta)
    # The determinant is beta; whether the roots are real is decided without cancellation.
    gap = math.sqrt(beta) - abs(1 - eta) / (1 + eta)
    root = cmath.sqrt(trace * trace - 4 * beta)
    if gap <= 0:
        root = complex(math.sqrt(max(trace * trace - 4 * beta, 0.0)))
    large = (trace + (root if trace >= 0 or gap > 0 else -root)) / 2
    small = beta / large if gap <= 0 and large != 0 else (trace - root) / 2
    values = (complex(large), complex(small))
    limit = 2 * (1 + beta) / (1 - beta)
    if values[0].imag != 0:
        period = 2 * math.pi / abs(cmath.phase(values[0]))
    else:
        period = 2.0 if min(values[0].real, values[1].real) < 0 else math.inf
    return MomentumSystem(
        eta, beta, values, beta_star(eta), limit, _overshoot(eta, beta, period, limit), period
    )


def _overshoot(eta: float, beta: float, period: float, limit: float) -> float:
    if eta >= limit:
        return math.inf
    if math.isinf(period):
        return 0.0
    # A damped oscillation is furthest beyond the optimum within its first turn.
    lowest, state, matrix = 0.0, np.array([0.0, 1.0]), _matrix(eta, beta)
    for _ in range(math.ceil(period) + 1):
        state = matrix @ state
        lowest = min(lowest, float(state[1]))
    return -lowest


def _matrix(eta: float, beta: float) -> NDArray[np.float64]:
    return np.array([[beta, 1 - beta], [-eta * beta, 1 - eta * (1 - beta)]])


def _check(eta: float, beta: float) -> None:
    if not (math.isfinite(eta) and eta > 0):
        raise InvalidInputError(f"eta is {eta}, expected a finite step size above 0")
    if not 0 <= beta < 1:
        raise InvalidInputError(f"beta is {beta}, expected a momentum in [0, 1)")

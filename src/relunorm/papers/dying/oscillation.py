"""Gradient descent with momentum on an affine model as a linear system, seed 002 (19)-(20).

Each parameter error a and its momentum m obey (m, a) <- A (m, a) with
A = [[beta, 1 - beta], [-eta beta, 1 - eta (1 - beta)]].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

#: Step sizes above it are refused: the squares of the eigenvalues would overflow.
LARGEST = 1e150

#: Turns of an oscillation whose overshoots are compared, at most.
TURNS = 1 << 20


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
            (started at rest, m = 0); infinite when unstable. Exact; for beta above about 1 - 1e-6
            the largest of the first million turns.
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
            **entries(self, "beta_star stability_limit stable oscillates rate overshoot period"),
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
    # The determinant is beta. In rationals, since near a double root all digits would cancel.
    middle = (1 + Fraction(beta) - Fraction(eta) * (1 - Fraction(beta))) / 2
    center, square = float(middle), float(middle * middle - Fraction(beta))
    half = math.sqrt(abs(square))
    if square < 0:
        values = complex(center, half), complex(center, -half)
        period = 2 * math.pi / math.atan2(half, center)
    else:
        large = center + math.copysign(half, center)
        small = beta / large if large else 0.0
        values = complex(large), complex(small)
        period = 2.0 if min(large, small) < 0 else math.inf
    limit = 2 * (1 + beta) / (1 - beta)
    if eta >= limit:
        overshoot = math.inf
    elif square < 0:
        overshoot = _deepest_turn(eta, beta, center, half)
    else:
        overshoot = _deepest_odd_step(eta, beta, center, half) if large < 0 else 0.0
    return MomentumSystem(eta, beta, values, beta_star(eta), limit, overshoot, period)


def _deepest_turn(eta: float, beta: float, center: float, half: float) -> float:
    """The overshoot for complex eigenvalues r e^(+-i theta), r = sqrt(beta).

    a_t = r^t (cos(theta t) + c sin(theta t)) = C r^t cos(theta t - phi), where
    c = (1 - beta) (1 - eta) / (2 half). Between two zeros it has one minimum, where
    tan(theta t - phi) = ln(r) / theta; the lowest integer is one of the two beside it. A later turn
    can be lower only where an integer meets its minimum better, and only while the minimum itself,
    which shrinks by r^period a turn, is below what was found; `TURNS` are looked at.
    """
    theta, decay = math.atan2(half, center), 0.5 * math.log(beta)
    c = (1 - beta) * (1 - eta) / (2 * half)
    phi, top, turn = math.atan(c), math.hypot(1.0, c), 2 * math.pi / theta
    first = (phi + math.pi + math.atan(decay / theta)) / theta
    floor = top * theta / math.hypot(theta, decay)  # |cos| at the minima
    side, angle = math.copysign(1.0, center), math.atan2(half, abs(center))  # theta or pi - theta
    found, begin, count = 0.0, 0, 4
    while begin < TURNS and floor * math.exp(decay * (first + turn * begin)) > found:
        beside = np.floor(first + turn * np.arange(begin, begin + count))
        t = np.concatenate([beside, beside + 1])
        with np.errstate(under="ignore"):
            a = np.exp(decay * t) * (np.cos(angle * t) + side * c * np.sin(angle * t))
        a *= np.where(t % 2 == 1, side, 1.0)
        found = max(found, -float(a.min()))
        begin, count = begin + count, 2 * count
    return found


def _deepest_odd_step(eta: float, beta: float, center: float, half: float) -> float:
    """The overshoot for two negative eigenvalues -s + h and -s - h, s = -center, h = half.

    a_t = (-1)^t g(t), g(t) = (s + h)^t (1 + share (1 - ((s - h) / (s + h))^t)) with
    share = beta eta (1 - beta) / (2 h (lead + h)), lead = (1 - beta) (eta - 1) / 2: the damping
    against the momentum that still builds up. g rises to one peak, which bisection finds among the
    odd t.
    """
    size, lead = -center, (1 - beta) * (eta - 1) / 2
    if beta == 0:
        return size + half
    damping = math.log(size + half)

    def error(k: int) -> float:
        t = 2 * k + 1
        if half == 0:
            return math.exp(damping * t) * (1 + lead / size * t)
        share = beta * eta * (1 - beta) / (2 * half * (lead + half))
        gap = 2 * math.atanh(min(half / size, 1 - 2.0**-53))
        return math.exp(damping * t) * (1 - share * math.expm1(-gap * t))

    low, high = 0, 1
    while error(high) > error(high - 1):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if error(middle) > error(middle - 1) else (low, middle)
    return error(low)


def _matrix(eta: float, beta: float) -> NDArray[np.float64]:
    return np.array([[beta, 1 - beta], [-eta * beta, 1 - eta * (1 - beta)]])


def _check(eta: float, beta: float) -> None:
    if not 0 < eta <= LARGEST:
        raise InvalidInputError(f"eta is {eta}, expected a step size above 0, at most {LARGEST}")
    if not 0 <= beta < 1:
        raise InvalidInputError(f"beta is {beta}, expected a momentum in [0, 1)")

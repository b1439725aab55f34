"""Gradient descent with momentum on an affine model as a linear system, seed 002 (19)-(20).

Each parameter error a and its momentum m obey (m, a) <- A (m, a) with
A = [[beta, 1 - beta], [-eta beta, 1 - eta (1 - beta)]]. The system comes first, then Section 4 and
figure 2 re-run.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.papers import words_of
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.dying import Dying

claim, exhibit = words_of("dying")

Array = NDArray[np.float64]

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
    def matrix(self) -> Array:
        """A of eq. (20)."""
        eta, beta = self.eta, self.beta
        return np.array([[beta, 1 - beta], [-eta * beta, 1 - eta * (1 - beta)]])

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

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; infinite values become None."""
        return {
            "schema": "relunorm.dying.momentum/1",
            **entries(self, "eta beta"),
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
    large = center + math.copysign(half, center)  # of two real roots the one further from 0
    if square < 0:
        values = complex(center, half), complex(center, -half)
        period = 2 * math.pi / math.atan2(half, center)
    else:
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


def _check(eta: float, beta: float) -> None:
    if not 0 < eta <= LARGEST:
        raise InvalidInputError(f"eta is {eta}, expected a step size above 0, at most {LARGEST}")
    if not 0 <= beta < 1:
        raise InvalidInputError(f"beta is {beta}, expected a momentum in [0, 1)")


#: Step sizes and momenta of the paths of Section 4.
MOMENTA = ((0.1, 0.0), (0.1, 0.9), (0.5, 0.99), (1.5, 0.3))


def figure2(world: Dying) -> Exhibit:
    """Eigenvalues of (20) as beta grows to 1 at eta = 0.1, and 200 updates (6)-(7) of one parameter
    of an affine unit, from rest, at six momenta."""
    eta = 0.1
    rows = []
    for beta in (0.0, 0.65, 0.7, 0.9, 0.95, 0.99):
        signs = np.sign(_path(eta, beta, 200))
        rows.append((beta, _complex(world, eta, beta), int((np.diff(signs) != 0).sum())))
    high = _first_complex(world, eta)
    short_of_one = 1e-9
    last = np.linalg.eigvals(world.momentum(eta, 1 - short_of_one).matrix)
    gaps = [_first_complex(world, e) - ((1 - e) / (1 + e)) ** 2 for e in (0.01, 0.1, 0.5, 0.9)]
    return exhibit(
        world.settings(eta=eta),
        "figure2",
        claim("Figure 2", high),
        claim("ours: where the eigenvalues become complex", max(map(abs, gaps))),
        claim(
            "Figure 2: ends at 1",
            np.abs(last - 1).max(),
            limit=1.01 * math.sqrt(eta * short_of_one),
        ),
        claim(
            "Figure 2: oscillation",
            min(count - 1 if pair else 1 - count for _, pair, count in rows),
        ),
        rows=rows,
        figure=None if world.tiny else _draw_momentum(world, eta, high),
    )


def _path(eta: float, beta: float, updates: int) -> Array:
    """Updates (6)-(7) of one parameter of an affine model, from rest: error / first error."""
    m, errors = 0.0, [1.0]
    for _ in range(updates):
        m = beta * m + (1 - beta) * errors[-1]
        errors.append(errors[-1] - eta * m)
    return np.array(errors)


def _first_complex(world: Dying, eta: float) -> float:
    """The momentum from which on the eigenvalues are a complex pair, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(30):
        beta = (low + high) / 2
        low, high = (low, beta) if _complex(world, eta, beta) else (beta, high)
    return high


def _complex(world: Dying, eta: float, beta: float) -> bool:
    return bool(np.abs(np.linalg.eigvals(world.momentum(eta, beta).matrix).imag).max() > 0)


def _draw_momentum(world: Dying, eta: float, first_complex: float) -> Any:
    figure, (left, right) = empty_figure((9, 4), 1, 2)
    betas = np.linspace(0, 0.9999, 400)
    values: Any = np.array([world.momentum(eta, b).eigenvalues for b in betas])
    for k in range(2):
        left.plot(values[:, k].real, values[:, k].imag, lw=1)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    left.plot(np.real(circle), np.imag(circle), color="0.8", lw=0.8)
    left.plot(values[0].real, values[0].imag, "x", color="black")
    left.set(xlabel="real", ylabel="imaginary", aspect="equal")
    title = f"eigenvalues of A from beta = 0 (x); complex above {first_complex:.4f}"
    left.set_title(title, fontsize=9)
    for beta in (0.0, 0.9, 0.99):
        right.plot(_path(eta, beta, 120), label=f"beta = {beta:g}", lw=1.2)
    right.axhline(0, color="0.7", lw=0.8)
    right.set(xlabel="updates", ylabel="error / first error")
    right.set_title("one parameter of an affine model, from rest", fontsize=9)
    right.legend()
    return figure


def affine(world: Dying) -> Exhibit:
    """The gradients at 20 random units by quadrature and as slopes of (16); three parameters and
    their momenta, at rest and not, through 200 updates (6)-(7) against powers of (20), with four
    pairs of step size and momentum; the eigenvalues of (20) on a grid of 50 step sizes and 50
    momenta; and the same paths at gamma 1 and 0.001 from one start."""
    count = world.size(50, 50, 12)
    etas, betas = np.linspace(0.01, 0.99, count), np.linspace(0, 0.99, count)
    values = _eigenvalues(world, etas, betas)
    at_rest, moving = values[:, 0].real.min(axis=1), values[:, 1:].real.min()
    large_etas = np.linspace(1.01, 1.99, count)
    large = _eigenvalues(world, large_etas, betas)
    paths = [_path(eta, 0.0, 50) for eta in large_etas]
    ripples = all((path[1:] * path[:-1] < 0).all() for path in paths)
    negative = large[large.imag == 0].real.min() < 0
    return exhibit(
        world.settings(),
        "affine",
        claim("(17)-(18) affine gradients", _affine_error(world)),
        claim("(19)-(20) momentum system", _by_updates(world)),
        claim(
            "Section 4: right half",
            values.real.min(),
            (moving if np.abs(values).max() < 1 and np.abs(at_rest).max() < 1e-12 else math.nan),
        ),
        claim(
            "Section 4: step sizes up to 2", np.abs(large).max() if negative and ripples else np.inf
        ),
        claim("Section 4: independent of gamma", _apart(world)),
    )


def _affine_error(world: Dying) -> float:
    """(17)-(18) at random units: quadrature, and central differences of (16), which is a square."""
    x, weight = world.inputs()
    x = np.column_stack([x, np.ones(len(x))])

    def loss(error: Array) -> float:
        return float(weight @ (x @ error) ** 2) / 2

    worst = 0.0
    for error in world.rng.normal(size=(20, 3)):  # a and c
        slopes = [(loss(error + e) - loss(error - e)) / 2 for e in np.eye(3)]
        for found in ((weight * (x @ error)) @ x, np.array(slopes)):
            worst = max(worst, float(np.abs(found - error).max()))
    return worst


def _descent(world: Dying, eta: float, beta: float, gamma: float, start: Array) -> Array:
    """200 updates (6)-(7) of Section 4's model on the inputs themselves, targets gamma x_1, from
    ``start`` = (m, theta): momenta and errors theta - (gamma, 0, 0), shape (201, 2, 3)."""
    points, weight = world.inputs()
    x = np.column_stack([points, np.ones(len(points))])
    (m, theta), found = start, []
    for _ in range(201):
        found.append([m, theta - [gamma, 0.0, 0.0]])
        output, slope = world.model(x @ theta)
        m = beta * m + (1 - beta) * (weight * slope * (output - gamma * x[:, 0])) @ x
        theta = theta - eta * m
    return np.array(found)


def _apart(world: Dying) -> float:
    """How far apart the paths of error / first error at two scales are, at most."""
    worst = 0.0
    start = np.array([[0.0, 0.0, 0.0], [0.7, -1.3, 0.4]])
    for eta, beta in MOMENTA:
        errors = [_descent(world, eta, beta, gamma, start)[:, 1] for gamma in (1.0, 1e-3)]
        worst = max(worst, float(np.abs(errors[0] / errors[0][0] - errors[1] / errors[1][0]).max()))
    return worst


def _by_updates(world: Dying) -> float:
    """(6)-(7), update by update, against the powers of (20) on every pair, for one start from rest
    and one that moves."""
    worst = 0.0
    for (eta, beta), moves in itertools.product(MOMENTA, (0.0, 1.0)):
        start = world.rng.normal(size=(2, 3)) * [[moves], [1.0]]
        path = _descent(world, eta, beta, 1.0, start)
        matrix, state = np.asarray(world.momentum(eta, beta).matrix), path[0]
        for found in path:
            worst = max(worst, float(np.abs(found - state).max()))
            state = matrix @ state
    return worst


def _eigenvalues(world: Dying, etas: Array, betas: Array) -> NDArray[np.complex128]:
    """Both eigenvalues at every step size and momentum, (etas, betas, 2)."""
    found = [[np.linalg.eigvals(world.momentum(e, b).matrix) for b in betas] for e in etas]
    return np.array(found, dtype=complex)

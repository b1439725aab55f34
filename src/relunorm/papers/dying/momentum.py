"""Section 4 and figure 2 of seed 002: the momentum system."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers.checklist import words_of
from relunorm.papers.dying.laws import Dying
from relunorm.papers.exhibit import Exhibit, empty_figure

claim, exhibit = words_of("dying")

Array = NDArray[np.float64]
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

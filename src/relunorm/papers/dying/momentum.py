"""Figure 2 of seed 002: the momentum system."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relunorm.papers.claim import Check, Claim
from relunorm.papers.dying.laws import Dying
from relunorm.papers.exhibit import Exhibit, costs, empty_figure


@costs(0.5)
def figure2(world: Dying) -> Exhibit:
    """Eigenvalues of (20) as beta grows to 1 at eta = 0.1, and 200 updates (6)-(7) of one parameter
    of an affine unit, from rest, at six momenta."""
    eta = 0.1
    rows = []
    for beta in (0.0, 0.65, 0.7, 0.9, 0.95, 0.99):
        m, a, signs = 0.0, 1.0, [1.0]
        for _ in range(200):
            m = beta * m + (1 - beta) * a
            a = a - eta * m
            signs.append(np.sign(a))
        rows.append((beta, _complex(world, eta, beta), int((np.diff(signs) != 0).sum())))
    low, high = 0.0, 1.0
    for _ in range(30):  # bisection on whether the eigenvalues are a complex pair
        beta = (low + high) / 2
        low, high = (low, beta) if _complex(world, eta, beta) else (beta, high)
    short_of_one = 1e-9
    last = np.linalg.eigvals(world.momentum(eta, 1 - short_of_one).matrix)
    formula = ((1 - eta) / (1 + eta)) ** 2
    return Exhibit(
        "figure2",
        "Figure 2: the momentum system",
        ("beta", "complex eigenvalues", "sign changes of a path"),
        tuple(rows),
        "At beta = 0 one eigenvalue is 0, on the edge of the right half. The right panel shows one "
        "parameter, not b/|w|.",
        None if world.tiny else _draw_momentum(world, eta, high),
        world.settings(eta=eta),
        (
            Claim(
                "Figure 2",
                "the eigenvalues become complex at beta about 0.7 (eta = 0.1)",
                Check("beta where they do", high, "=", 0.7, 0.05),
                basis="0.7 to the one digit printed",
            ),
            Claim(
                "ours: where the eigenvalues become complex",
                "(in no paper) above beta = ((1 - eta)/(1 + eta))^2, which is 0.66942 at eta = 0.1",
                Check("beta where they do", high, "=", formula, 1e-6),
                basis="the formula; thirty halvings of the interval of beta",
            ),
            Claim(
                "Figure 2: ends at 1",
                "for beta = 1 both take the value 1",
                Check(
                    "farthest from 1 at beta = 1 - 1e-9",
                    np.abs(last - 1).max(),
                    "<=",
                    1.01 * math.sqrt(eta * short_of_one),
                ),
                basis="both are sqrt(eta (1 - beta)) from 1; one percent for rounding",
            ),
            Claim(
                "Figure 2: oscillation",
                "gradient descent oscillates as soon as the eigenvalues are complex (and not before)",
                Check(
                    "least of: sign changes less 1 if complex, 1 less sign changes if real",
                    min(count - 1 if pair else 1 - count for _, pair, count in rows),
                    ">",
                    0,
                ),
                basis="an oscillation changes sign more than once, beta from 0 to 0.99; a path "
                "without one never does from rest",
            ),
        ),
    )


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
        right.plot(world.momentum(eta, beta).errors(120), label=f"beta = {beta:g}", lw=1.2)
    right.axhline(0, color="0.7", lw=0.8)
    right.set(xlabel="updates", ylabel="error / first error")
    right.set_title("one parameter of an affine model, from rest", fontsize=9)
    right.legend()
    return figure

"""Sections 3, 4 and 6 and Appendix D of seed 002: the setting, the momentum system, scales."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.dying.laws import ROUNDING, Dying
from relunorm.papers.dying.unit import along_last, random_units
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.random_networks import he_network

Array = NDArray[np.float64]
#: Step sizes and momenta of the paths of Section 4.
MOMENTA = ((0.1, 0.0), (0.1, 0.9), (0.5, 0.99), (1.5, 0.3))


def setting(world: Dying) -> Exhibit:
    """1,000 scaled targets; 200 random units and a rotation; 100,000 pairs of output and target,
    and 4,000 units whose expected gradients are known in closed form."""
    rng = world.rng
    scaled = world.scaled_targets(rng.normal(3, 7, 1000), 0.1)
    w, b, goal, delta = random_units(rng, 200)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turned = np.abs(
        world.loss(w @ turn.T, b, goal @ turn.T, delta) - world.loss(w, b, goal, delta)
    ).max()
    z, y = rng.normal(size=(2, 100_000))
    f = world.relu
    exact, surrogate = f(z) - f(y), f(z) - y
    above = f(y) >= f(z)
    on = z > 0
    larger = ~above
    opposite = _opposite_gradients(world)
    turns = max(
        np.abs(world.rotation(v) @ v - along_last(float(np.linalg.norm(v)))).max() for v in w
    )
    return from_claims(
        "setting",
        "Section 3: targets, surrogate and rotations",
        (
            Claim(
                "Figure 1: gamma is a variance",
                "gamma = 0.1 is the variance of the targets",
                Check("variance of the targets", scaled.var(), "=", 0.1, 1e-6),
                "it is their standard deviation",
                Check("standard deviation", scaled.std(), "=", 0.1, 1e-6),
            ),
            Claim(
                "(3)-(4) rotated target",
                "rotating the target changes nothing but the coordinates",
                Check("largest change of the loss", turned, "<=", ROUNDING),
            ),
            Claim(
                "(11) equal errors",
                "where the rectified target is at least the output, both errors are equal",
                Check("largest difference", np.abs(exact - surrogate)[above].max(), "<=", ROUNDING),
                "times the unit's activity, that is in the gradients, they are",
                Check(
                    "largest difference of the products",
                    np.abs((exact - surrogate) * on)[above].max(),
                    "<=",
                    ROUNDING,
                ),
            ),
            Claim(
                "(12) larger errors",
                "elsewhere the exact error is at least the surrogate's, which is >= 0",
                Check("share of points", (exact >= surrogate)[larger].mean(), "=", 1),
                "reversed: 0 < exact <= surrogate",
                Check(
                    "share of points",
                    ((exact > 0) & (exact <= surrogate))[larger].mean(),
                    "=",
                    1,
                ),
            ),
            Claim(
                "Section 3: same sign",
                "at every point x the exact and the surrogate's error are identical or of one "
                "sign, and so are the gradients",
                Check(
                    "share of points at which both are",
                    (_alike(exact, surrogate) & _alike(exact * on, surrogate * on)).mean(),
                    "=",
                    1,
                ),
                "the gradients are; of the errors the exact one is 0 and the surrogate's -y > 0 "
                "where y < 0 and the unit is off",
                Check(
                    "share of points at which the gradients are",
                    _alike(exact * on, surrogate * on).mean(),
                    "=",
                    1,
                ),
            ),
            Claim(
                "ours: signs in expectation",
                "(in no paper) the expected gradients can have opposite signs",
                Check("share of units whose expected gradients oppose", opposite, ">", 0),
            ),
            Claim(
                "(13)-(14) rotation",
                "a unitary U maps w to (0, ..., 0, |w|)",
                Check("largest difference", turns, "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


def affine(world: Dying) -> Exhibit:
    """The gradients by quadrature; the matrix (20) against 200 updates (6)-(7), and its eigenvalues
    on a grid of 50 step sizes and 50 momenta; the affine model trained for 200 updates at gamma 1
    and at 0.001 from one start, with four pairs of step size and momentum."""
    a, c = np.array([0.7, -1.3]), 0.4
    x, weight = world.inputs()
    errors = x @ a + c
    quadrature = np.append((weight * errors) @ x - a, weight @ errors - c)
    etas, betas = np.linspace(0.01, 0.99, 50), np.linspace(0, 0.99, 50)
    values = _eigenvalues(world, etas, betas)
    large = _eigenvalues(world, np.linspace(1.01, 1.99, 50), betas)
    return from_claims(
        "affine",
        "Section 4: the momentum system",
        (
            Claim(
                "(17)-(18) affine gradients",
                "dL/dw = w - Gamma and dL/db = b - Delta",
                Check(
                    "largest difference from quadrature", np.abs(quadrature).max(), "<=", ROUNDING
                ),
            ),
            Claim(
                "(19)-(20) momentum system",
                "updates (6)-(7) are powers of the matrix (20)",
                Check("largest difference over 200 updates", _by_updates(world), "<=", ROUNDING),
            ),
            Claim(
                "Section 4: right half",
                "all eigenvalues lie strictly inside the right half of the unit circle",
                Check("smallest real part over eta, beta", values.real.min(), ">", 1e-12),
                "inside the circle, in the closed right half: one is 0 at beta = 0",
                Check(
                    "smallest real part",
                    values.real.min() if np.abs(values).max() < 1 else -1.0,
                    ">=",
                    -1e-12,
                ),
            ),
            Claim(
                "Section 4: step sizes up to 2",
                "for 1 < eta < 2 they stay inside the unit circle and can be real and negative",
                Check(
                    "largest modulus",
                    np.abs(large).max() if large[large.imag == 0].real.min() < 0 else np.inf,
                    "<",
                    1,
                ),
            ),
            Claim(
                "Section 4: independent of gamma",
                "the behaviour depends on eta and beta only",
                Check(
                    "largest difference of error / first error, gamma 1 against 0.001",
                    _apart(world),
                    "<=",
                    ROUNDING,
                ),
            ),
        ),
    )


def scaling(world: Dying) -> Exhibit:
    """A network with a dead second layer through torch's autograd; 50 units followed at two scales;
    20 random networks, half of them without biases, with all parameters rescaled."""
    rng = world.rng
    moving, still = _dead_layer(world)
    start = rng.normal(size=(2, 50))
    paths = [
        world.trajectory(g * start[0], g * start[1], g, steps=300, beta=0.9) for g in (1.0, 1e-3)
    ]
    proportional = np.abs(paths[1].w[-1] / 1e-3 - paths[0].w[-1]).max()
    biased, plain = (
        [he_network(rng, (3, 7, 5, 2), bias) for _ in range(10)] for bias in (1.0, 0.0)
    )
    x = rng.normal(size=(100, 3))
    works = sum(_scales(net, world.single_factor(net, 0.5), 0.5, x) for net in plain)
    left = min(_best_factor(net, 0.5, x) for net in biased)
    layerwise = max(
        np.abs(world.rescale(net, 0.5)(x) - 0.5 * net(x)).max() for net in (*biased, *plain)
    )
    return from_claims(
        "scaling",
        "Section 6 and Theorem D.1: dead layers and scales",
        (
            Claim(
                "Figure 6, caption: gradients",
                "with one dead layer all gradients vanish but that of the last bias",
                Check("other tensors that still move (second of three dead)", moving, "=", 0),
                "they vanish up to the next layer's weights; its bias and later layers move",
                Check("largest gradient up to there", still if moving == 2 else np.inf, "=", 0),
            ),
            Claim(
                "Section 6: one unit rescales",
                "scaling the start of one unit by gamma makes its path proportional",
                Check("largest difference after 300 updates", proportional, "<=", 1e-8),
            ),
            Claim(
                "Theorem D.1",
                "no single factor on all parameters scales a network's output by gamma",
                Check("of 10 networks without biases, those for which one does", works, "=", 0),
                "no factor does so for all parameters; without biases gamma^(1/(N+1)) does",
                Check("least that any factor leaves, with biases", left, ">", ROUNDING),
            ),
            Claim(
                "ours: layer-wise rescaling",
                "(in no paper) the scale moves into the parameters exactly: W_n a and b_n a^n with "
                "a = gamma^(1/(N+1))",
                Check("largest difference", layerwise, "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


def _alike(first: Array, second: Array) -> NDArray[np.bool_]:
    """Where two numbers are identical or of one sign: 0 is like 0 only."""
    return np.sign(first) == np.sign(second)


def _opposite_gradients(world: Dying) -> float:
    rng = world.rng
    w, b = rng.normal(size=(4000, 1)), rng.normal(size=4000)
    exact, surrogate = (world.gradient(w, b, 1.0, target=t)[1] for t in ("rectified", "surrogate"))
    return float((exact * surrogate < -1e-6).mean())


def _apart(world: Dying) -> float:
    """Updates (6)-(7) of the model of Section 4 on the inputs themselves, targets gamma x_1 of two
    scales from one start: how far apart the two paths of error / first error are, at most."""
    points, weight = world.inputs()
    x = np.column_stack([points, np.ones(len(points))])
    worst = 0.0
    for eta, beta in MOMENTA:
        paths = []
        for gamma in (1.0, 1e-3):
            theta, m, found = np.array([0.7, -1.3, 0.4]), np.zeros(3), []
            for _ in range(201):
                found.append(theta - [gamma, 0.0, 0.0])
                output, slope = world.model(x @ theta)
                m = beta * m + (1 - beta) * (weight * slope * (output - gamma * x[:, 0])) @ x
                theta = theta - eta * m
            paths.append(np.array(found) / found[0])
        worst = max(worst, float(np.abs(paths[0] - paths[1]).max()))
    return worst


def _eigenvalues(world: Dying, etas: Array, betas: Array) -> NDArray[np.complex128]:
    pairs = itertools.product(etas, betas)
    return np.array(
        [np.linalg.eigvals(world.momentum(e, b).matrix) for e, b in pairs], dtype=complex
    )


def _by_updates(world: Dying) -> float:
    """(6)-(7) on an affine parameter, update by update, against the powers of (20)."""
    worst = 0.0
    for eta, beta in MOMENTA:
        m, a, found = 0.0, 1.0, []
        for _ in range(201):
            found.append(a)
            m = beta * m + (1 - beta) * a
            a = a - eta * m
        worst = max(worst, float(np.abs(world.momentum(eta, beta).errors(200) - found).max()))
    return worst


def _multiplied(net: Network, factor: float) -> Network:
    weights, biases = net.weights()
    return Network.from_weights(
        [factor * np.asarray(w) for w in weights], [factor * np.asarray(b) for b in biases]
    )


def _scales(net: Network, factor: float | None, gamma: float, x: Array) -> bool:
    if factor is None:
        return False
    return bool(np.abs(_multiplied(net, factor)(x) - gamma * net(x)).max() < ROUNDING)


def _best_factor(net: Network, gamma: float, x: Array) -> float:
    """The least relative difference any factor on all parameters leaves: a grid, then a local
    minimum to full accuracy, so that an exact factor would leave rounding."""
    from scipy.optimize import minimize_scalar

    wanted = gamma * net(x)

    def gap(factor: float) -> float:
        return float(np.abs(_multiplied(net, factor)(x) - wanted).max() / np.abs(wanted).max())

    grid = np.linspace(0.01, 1.5, 150)
    best = grid[int(np.argmin([gap(nu) for nu in grid]))]
    options = {"xatol": 1e-12}
    found: Any = minimize_scalar(
        gap, bounds=(best - 0.02, best + 0.02), method="bounded", options=options
    )
    return min(gap(best), float(found.fun))


def _dead_layer(world: Dying) -> tuple[int, float]:
    """Tensors but the last bias that move with layer 2 of 3 dead, and the largest gradient of
    those up to W_3."""
    import torch

    gen = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (5, 5), (5, 5), (1, 5)]
    weights = [torch.rand(s, generator=gen, dtype=torch.float64) + 0.1 for s in shapes]
    biases = [torch.rand(s[0], generator=gen, dtype=torch.float64) + 0.1 for s in shapes]
    biases[1].fill_(-1e3)
    value = torch.rand(20, 3, generator=gen, dtype=torch.float64)
    for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
        value = value @ w.requires_grad_().T + b.requires_grad_()
        value = world.activation(value) if k < 3 else value
    (value - 1e4).square().mean().backward()
    sizes = [[float(p.grad.abs().max()) for p in part] for part in (weights, biases)]  # type: ignore[union-attr]
    moving = sum(size > 0 for size in sizes[0] + sizes[1][:-1])
    return moving, max(sizes[0][:3] + sizes[1][:2])

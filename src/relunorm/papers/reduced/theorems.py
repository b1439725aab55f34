"""Section 2 of seed 001: unit rows and bounded thresholds, (2.4) to (2.12) and (5.3)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Ball, Box, Domain
from relunorm.errors import InvalidDomainError
from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.random_networks import shallow_network
from relunorm.papers.reduced.depth import row_error
from relunorm.papers.reduced.laws import RELU, ROUNDING, STEP, Reduced

Array = NDArray[np.float64]


def identities(world: Reduced) -> Exhibit:
    """(2.4) to (2.6) at 10,000 random numbers, 100 of them 0, with random factors and constants."""
    rng = world.rng
    y, alpha = rng.normal(size=10_000), rng.exponential(size=10_000)
    y[:100] = 0.0
    scaling = max(
        np.abs(world.relu(alpha * y) - alpha * world.relu(y)).max(),
        np.abs(world.step(alpha * y) - world.step(y)).max(),
    )
    # sigma(0 y) = gamma(0) sigma(y) for all y: the best gamma(0), and what it leaves
    at_zero, values = world.step(0.0 * y), world.step(y)
    left = min(np.abs(at_zero - g * values).max() for g in np.linspace(0, 1, 201))
    relu_left = np.abs(world.relu(0.0 * y) - 0.0 * world.relu(y)).max()
    steps = np.abs(world.step(y) + world.step(-y) - 1).max()
    any_alpha = alpha * rng.choice([-1.0, 1.0], size=len(alpha))
    half = any_alpha / 2
    relus = (
        world.relu(y + half) - world.relu(y - half)
        + world.relu(-y + half) - world.relu(-y - half)
    )  # fmt: skip
    return from_claims(
        "identities",
        "(2.4)-(2.6): scaling and constants",
        (
            Claim(
                "(2.4) scaling",
                "sigma(a y) = g(a) sigma(y) for a > 0: g(a) = a for ReLU, 1 for the step",
                Check("largest difference", scaling, "<=", ROUNDING),
            ),
            Claim(
                "(2.4) at alpha = 0",
                "the same at a = 0, ReLU and step",
                Check("what the best g(0) leaves for the step", left, "<=", ROUNDING),
                "true for ReLU; for the step no g(0) works, as sigma(0) = 1/2 whatever y is",
                Check("what is left for ReLU", relu_left, "<=", ROUNDING),
            ),
            Claim(
                "(2.5) constant by steps",
                "sigma(x) + sigma(-x) = 1 for the step with sigma(0) = 1/2",
                Check("largest difference", steps, "<=", ROUNDING),
            ),
            Claim(
                "(2.6) constant by ReLUs",
                "four ReLU units add up to the constant a, whatever its sign",
                Check("largest difference", np.abs(relus - any_alpha).max(), "<=", ROUNDING),
            ),
        ),
    )


def unit_rows(world: Reduced) -> Exhibit:
    """Random networks of 12 units, ReLU and step, one row zero, in the unit form without and with
    an output bias, at 300 points each."""
    rng = world.rng
    pure, bias = [], []
    for activation in (RELU, STEP):
        for _ in range(world.size(8, 40, 3)):
            net = shallow_network(rng, 12, 3, activation)
            x = rng.normal(size=(300, 3))
            pure.append(_form(world, net, x, pure=True))
            bias.append(_form(world, net, x))
    zero = Network.from_weights([np.zeros((1, 2)), [[6.0]]], [[0.0], [0.0]], STEP)
    value = float(world.normalize(zero, "unit").network([1.0, 1.0])[0])
    return from_claims(
        "unit_rows",
        "Proposition 2.1 and Corollary 2.2: unit rows",
        (
            Claim(
                "Proposition 2.1, (2.7)",
                "every network has an equal one with unit rows and no output bias",
                Check("largest difference, or row norm off 1", max(pure), "<=", ROUNDING),
            ),
            Claim(
                "Proposition 2.1, proof: w = 0 and b = 0",
                "a step unit with w = 0, b = 0 and outgoing weight c = 6 contributes c",
                Check("contribution", value, "=", 6, ROUNDING),
                "it contributes c sigma(0) = c/2; the value at 0 is stored with the network",
                Check("contribution", value, "=", 3, ROUNDING),
            ),
            Claim(
                "Corollary 2.2, (2.8)",
                "the same with one constant and no further units",
                Check("largest difference, or row norm off 1", max(bias), "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


def thresholds(world: Reduced) -> Exhibit:
    """Random networks on a ball with thresholds brought into [-X_B, X_B], ReLU and step, what that
    costs in units, and which thresholds are tight."""
    rng = world.rng
    ball = Ball(np.zeros(3), 1.0)
    gaps, outside, extra, added = [], [], [], []
    for activation in (RELU, STEP):
        for _ in range(world.size(8, 40, 3)):
            net = shallow_network(rng, 10, 3, activation, spread=2.0)
            x = ball.sample(300, 0)
            found = world.normalize(net, "bounded", ball, pure=True).network
            gaps.append(np.abs(found(x) - net(x)).max())
            outside.append(np.abs(found.layers[0].affine.bias).max() - ball.radius)
            if activation is STEP:
                continue
            live = world.normalize(net, "minimal", ball).network.units
            extra.append(found.units - live)
            kept = world.normalize(net, "bounded", ball, architecture="keep").network
            added.append(kept.units - net.units)
            gaps.append(np.abs(kept(x) - net(x)).max())
    return from_claims(
        "thresholds",
        "Proposition 2.3: bounded thresholds",
        (
            Claim(
                "Proposition 2.3, (2.10)",
                "on a bounded domain thresholds in [-X_B, X_B] lose nothing, ReLU and step",
                Check(
                    "largest difference, or excess over X_B", max(*gaps, *outside), "<=", ROUNDING
                ),
            ),
            _point_domain(world),
            Claim(
                "(2.11) range of a unit row",
                "|w.x| <= X_B for a unit row",
                Check("largest |w.x| / X_B", _largest_ratio(world, ball), "<=", 1 + ROUNDING),
            ),
            Claim(
                "(2.12) always active units",
                "always active units add up to sigma(v.x) - sigma(-v.x) + c, and with (2.6) for c "
                "to six units of the reduced space",
                Check("largest difference", _always_active(world, ball), "<=", ROUNDING),
            ),
            Claim(
                "ours: two extra units suffice",
                "(in no paper; the proof adds six) a relu(t + R) + b relu(-t + R) is affine",
                Check("most units beyond the live ones", max(extra), "<=", 2),
            ),
            Claim(
                "ours: clipping needs no extra unit",
                "(in no paper) beside an output bias: clip b > R to R, add V (b - R) to that bias",
                Check("units added", max(added), "<=", 0),
            ),
            *_tight(world),
        ),
        settings=world.settings(),
    )


def _form(world: Reduced, net: Network, x: Array, **options: bool) -> float:
    """The larger of the change of the function and of the row norms' distance to 1."""
    found = world.normalize(net, "unit", **options).network
    pure = options.get("pure", False)
    if (pure and found.output.bias.any()) or (not pure and found.units > net.units):
        return math.inf
    gap = float(np.abs(found(x) - net(x)).max())
    return max(gap, row_error(found.layers[0].affine))


def _point_domain(world: Reduced) -> Claim:
    constant = Network.from_weights([[[0.0]], [[1.0]]], [[1.0], [0.0]])
    point: Domain = Box.cube(1, 0, 0)
    try:
        value = float(world.normalize(constant, "bounded", point, pure=True).network([0.0])[0])
    except InvalidDomainError:
        value = math.nan  # refused: with X_B = 0 every unit of the form is 0 at 0
    biased = float(world.normalize(constant, "bounded", point).network([0.0])[0])
    return Claim(
        "Proposition 2.3 on D = {0}",
        "the form exists on every bounded domain",
        Check("value of the form of the constant 1", value, "=", 1, ROUNDING),
        "not on D = {0} without an output bias (refused in words); with one it does",
        Check("value with an output bias", biased, "=", 1, ROUNDING),
    )


def _largest_ratio(world: Reduced, ball: Ball) -> float:
    """|w.x| of the rows of the unit form, over the ball."""
    net = shallow_network(world.rng, 200, 3)
    rows = np.asarray(world.normalize(net, "unit").network.layers[0].affine.terms[0])
    return float(np.abs(ball.sample(2000, 0) @ rows.T).max() / ball.radius)


def _always_active(world: Reduced, ball: Ball) -> float:
    """The construction of the proof, unit rows and |b| <= X_B, against the units themselves."""
    rng, sigma = world.rng, world.relu
    w, c = rng.normal(size=(5, 3)), rng.normal(size=5)
    b = np.linalg.norm(w, axis=1) + rng.exponential(size=5)
    x = ball.sample(1000, 0)
    total = sigma(x @ w.T + b) @ c
    size = np.linalg.norm(c @ w)
    t, half = x @ (c @ w) / size, ball.radius / 4  # a unit row; alpha = X_B / 2
    constant = sigma(t + half) - sigma(t - half) + sigma(-t + half) - sigma(-t - half)
    six = size * (sigma(t) - sigma(-t)) + c @ b / (2 * half) * constant
    return float(np.abs(six - total).max())


def _tight(world: Reduced) -> list[Claim]:
    """The support interval against [-X_B, X_B], in two dimensions and in one."""
    rng = world.rng
    square = Box.cube(2, 0, 1)
    row = np.array([[1.0, -1.0]]) / np.sqrt(2)
    inside = Network.from_weights([row, [[1.0]]], [[-1.0], [0.0]])  # |b| < X_B = sqrt 2, yet dead
    left = world.normalize(inside, "bounded", square).network.units
    off = max(_on_the_line(world, shallow_network(rng, 8, 1, RELU, spread=2.0)) for _ in range(20))
    return [
        Claim(
            "ours: tight thresholds",
            "(in no paper for more than one input) a unit matters only if -b lies strictly between "
            "the extremes of w.x over the domain; |b| <= X_B does not suffice",
            Check("units left of one with |b| = 1 < X_B on [0, 1]^2", left, "=", 0),
        ),
        Claim(
            "(5.2), (5.3) one dimension",
            "on [0, 1], w = 1 with b in [-1, 0] and w = -1 with b in [0, 1] lose nothing",
            Check("largest difference, or excess over these intervals", off, "<=", ROUNDING),
        ),
    ]


def _on_the_line(world: Reduced, net: Network) -> float:
    """How far ``net`` is on [0, 1] from units with thresholds in (5.3), or these are outside.

    What the bounded form leaves affine, s x + c, is (s + c) relu(x) + c relu(1 - x) there.
    """
    line = Box.cube(1, 0, 1)
    form = world.normalize(net, "bounded", line).network
    out = {k: np.asarray(m)[0] for k, m in form.output.terms.items()}
    s, c = float(out.get(0, np.zeros(1))[0]), float(form.output.bias[0])
    w, b, v = [1.0, -1.0], [0.0, 1.0], [s + c, c]
    if form.layers:
        first = form.layers[0].affine
        w, b = np.r_[w, np.asarray(first.terms[0])[:, 0]], np.r_[b, first.bias]
        v = np.r_[v, out[1]]
    w, b = np.asarray(w), np.asarray(b)
    x = np.linspace(0, 1, 201)[:, None]
    gap = np.abs(world.relu(x * w + b) @ np.asarray(v) - net(x)[:, 0]).max()
    excess = np.maximum(-b * w - 1, b * w).max()
    return float(max(gap, excess, np.abs(np.abs(w) - 1).max()))

"""Section 2 of seed 001: unit rows and bounded thresholds, (2.4) to (2.12) and (5.3)."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Ball, Box, Domain
from relunorm.errors import InvalidDomainError
from relunorm.network import Network
from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import ROUNDING, Claim
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.reduced.depth import row_error
from relunorm.papers.reduced.laws import RELU, STEP, Reduced
from relunorm.papers.world import shallow_network

claim = claims_of("reduced")

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
            claim("(2.4) scaling", scaling),
            claim("(2.4) at alpha = 0", left, relu_left),
            claim("(2.5) constant by steps", steps),
            claim("(2.6) constant by ReLUs", np.abs(relus - any_alpha).max()),
        ),
    )


def unit_rows(world: Reduced) -> Exhibit:
    """Random networks of 12 units, ReLU and step, one row zero, in the unit form without and with
    an output bias, at 300 points each; and one step unit with w = 0 and b = 0."""
    rng = world.rng
    pure, bias = [], []
    for activation in (RELU, STEP):
        for _ in range(world.size(8, 40, 3)):
            net = shallow_network(rng, 12, 3, activation)
            x = rng.normal(size=(300, 3))
            pure.append(_form(world, net, x, pure=True))
            bias.append(_form(world, net, x))
    zero = Network.from_weights([np.zeros((1, 2)), [[6.0]]], [[0.0], [0.0]], STEP)
    stored = float(world.normalize(zero, "unit").network([1.0, 1.0])[0])
    value = 6 * float(world.step(np.zeros(1))[0])
    return from_claims(
        "unit_rows",
        "Proposition 2.1 and Corollary 2.2: unit rows",
        (
            claim("Proposition 2.1, (2.7)", max(pure)),
            claim(
                "Proposition 2.1, proof: w = 0 and b = 0",
                value,
                value if stored == value else math.nan,
            ),
            claim("Corollary 2.2, (2.8)", max(bias)),
        ),
        settings=world.settings(),
    )


def thresholds(world: Reduced) -> Exhibit:
    """Random networks on a ball about 0 and on a box that is not about 0, ReLU and step, with
    thresholds brought into [-X_B, X_B], and what that costs in units; rows of norm 1 at points of
    two balls; always active units written with six others; which thresholds matter on a square and
    on a line."""
    rng = world.rng
    bounded, extra, clipped = [], [], []
    for activation, domain in product((RELU, STEP), (Ball(np.zeros(3), 1.0), Box.cube(3, -0.5, 1))):
        for _ in range(world.size(6, 30, 1)):
            net = shallow_network(rng, 10, 3, activation, spread=2.0)
            x = domain.sample(300, 0)
            found = world.normalize(net, "bounded", domain, pure=True).network
            bounded.append(_bounded_error(found, net, x, domain))
            if activation is STEP:
                continue
            live = world.normalize(net, "minimal", domain).network.units
            extra.append(found.units - live if bounded[-1] <= ROUNDING else math.inf)
            kept = world.normalize(net, "bounded", domain, architecture="keep").network
            fits = (
                kept.units <= net.units and _bounded_error(kept, net, x, domain, True) <= ROUNDING
            )
            clipped.append(_clipped(world, net, x, domain) if fits else math.inf)
    return from_claims(
        "thresholds",
        "Proposition 2.3: bounded thresholds",
        (
            claim("Proposition 2.3, (2.10)", max(bounded)),
            _point_domain(world),
            claim("(2.11) range of a unit row", _largest_ratio(world)),
            claim("(2.12) always active units", max(_always_active(world, rng) for _ in range(20))),
            claim("ours: two extra units suffice", max(extra)),
            claim("ours: clipping needs no extra unit", max(clipped)),
            *_tight(world),
        ),
        settings=world.settings(),
    )


def _bounded_error(
    found: Network, net: Network, x: Array, domain: Domain, constant: bool = False
) -> float:
    """The change of the function, of row norms from 1 or of thresholds beyond X_B, largest;
    infinite in another form than the paper's, or with a constant beside, unless one is allowed."""
    if not _one_hidden_layer(found) or (found.output.bias.any() and not constant):
        return math.inf
    first = found.layers[0].affine
    excess = float(np.abs(first.bias).max()) - float(domain.radius)
    return max(float(np.abs(found(x) - net(x)).max()), row_error(first), excess)


def _one_hidden_layer(found: Network) -> bool:
    """Whether the output reads one hidden layer, and nothing of the input directly."""
    return len(found.layers) == 1 and set(found.output.terms) == {1}


def _clipped(world: Reduced, net: Network, x: Array, domain: Domain) -> float:
    """How far unit rows with thresholds clipped to [-R, R], and what that changes added up in a
    constant, are from ``net``."""
    (w, v), (b, _) = (list(map(np.asarray, part)) for part in net.weights())
    size = np.linalg.norm(w, axis=1)
    constant = float(v[0][size == 0] @ world.relu(b[size == 0]))
    w, b, v, size = w[size > 0], b[size > 0], v[0][size > 0], size[size > 0]
    w, b, v = w / size[:, None], b / size, v * size
    radius = float(domain.radius)
    constant += float(v @ np.maximum(b - radius, 0.0))
    values = world.relu(x @ w.T + np.clip(b, -radius, radius)) @ v + constant
    return float(np.abs(values - net(x)[:, 0]).max())


def _form(world: Reduced, net: Network, x: Array, **options: bool) -> float:
    """The larger of the change of the function and of the row norms' distance to 1; infinite in
    another form than (2.7) or (2.8)."""
    found = world.normalize(net, "unit", **options).network
    pure = options.get("pure", False)
    beside = found.output.bias.any() if pure else found.units > net.units
    if beside or not _one_hidden_layer(found):
        return math.inf
    gap = float(np.abs(found(x) - net(x)).max())
    return max(gap, row_error(found.layers[0].affine))


def _point_domain(world: Reduced) -> Claim:
    constant = Network.from_weights([[[0.0]], [[1.0]]], [[1.0], [0.0]])
    point: Domain = Box.cube(1, 0, 0)
    biased = float(world.normalize(constant, "bounded", point).network([0.0])[0])
    try:
        world.normalize(constant, "bounded", point, pure=True)
        biased = math.nan
    except InvalidDomainError:
        pass  # refused, as it has to be
    return claim("Proposition 2.3 on D = {0}", float(world.relu(np.zeros(1))[0]), biased)


def _largest_ratio(world: Reduced) -> float:
    """|w.x| over |x| for the rows of the unit form, and |x| over X_B, on two balls."""
    net = shallow_network(world.rng, 200, 3)
    rows = np.asarray(world.normalize(net, "unit").network.layers[0].affine.terms[0])
    ratios = []
    for ball in (Ball(np.zeros(3), 1.0), Ball(np.array([2.0, 0.0, -1.0]), 0.5)):
        x = ball.sample(2000, 0)
        size = np.linalg.norm(x, axis=1)
        ratios += [np.abs(x @ rows.T / size[:, None]).max(), size.max() / ball.radius]
    return float(max(ratios))


def _always_active(world: Reduced, rng: np.random.Generator) -> float:
    """(2.12) and the proof's six units, unit rows and |b| <= X_B = 1, against the units."""
    sigma = world.relu
    w, c = rng.normal(size=(5, 3)), rng.normal(size=5)
    b = np.linalg.norm(w, axis=1) + rng.exponential(size=5)
    x = Ball(np.zeros(3), 1.0).sample(200, 0)
    total = sigma(x @ w.T + b) @ c
    v, u = c @ w, rng.normal(size=3)
    direct = sigma(x @ v) - sigma(-x @ v) + c @ b
    size, half = np.linalg.norm(v), rng.uniform(0.05, 0.5)  # alpha = 2 half, between 0 and X_B
    t, s = x @ v / size, x @ u / np.linalg.norm(u)
    constant = sigma(s + half) - sigma(s - half) + sigma(-s + half) - sigma(-s - half)
    six = size * (sigma(t) - sigma(-t)) + c @ b / (2 * half) * constant
    return float(max(np.abs(part - total).max() for part in (direct, six)))


def _tight(world: Reduced) -> list[Claim]:
    """The support interval against [-X_B, X_B], in two dimensions and in one."""
    rng = world.rng
    square = Box.cube(2, 0, 1)
    corners = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    wrong = inside = 0
    for _ in range(world.size(10, 40, 3)):
        w = rng.normal(size=(20, 2))
        w /= np.linalg.norm(w, axis=1)[:, None]
        b, v = rng.uniform(-math.sqrt(2), math.sqrt(2), 20), rng.normal(size=(1, 20))
        z = corners @ w.T + b
        switches = (z.min(axis=0) < 0) & (z.max(axis=0) > 0)
        left = world.normalize(Network.from_weights([w, v], [b, [0.0]]), "bounded", square)
        wrong += left.network.units != switches.sum()
        inside += int((~switches).sum())  # |b| < X_B all the same
    lines = (shallow_network(rng, 8, 1, RELU, spread=2.0) for _ in range(world.size(20, 50, 4)))
    off = max(_on_the_line(world, net) for net in lines)
    return [
        claim("ours: tight thresholds", wrong if inside else math.nan, inside=inside),
        claim("(5.2), (5.3) one dimension", off),
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

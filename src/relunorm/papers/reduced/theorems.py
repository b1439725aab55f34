"""Sections 2 and 3 of seed 001: unit rows and bounded thresholds, (2.4) to (2.12) and (5.3), and
which families of networks are dense in the sup norm, Theorems 3.1 to 3.3.

Density cannot be computed, but a family with an explicit error bound that falls to 0 is dense for
the function at hand. The function is sin(2 pi x) sin(2 pi y), half the difference of two waves
along the diagonals, and a wave is approximated along its direction by an interpolating spline (ReLU
units) or a staircase (step units) with k pieces. The classical bounds of these are
h^2/8 max |g''| and h/2 max |g'| with h the length of a piece; both fall to 0 with k.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Ball, Box, Domain
from relunorm.errors import InvalidDomainError
from relunorm.network import Activation, Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING, Claim
from relunorm.papers.exhibit import Exhibit, empty_figure, shallow_network
from relunorm.papers.reduced.depth import RELU, STEP, row_error

if TYPE_CHECKING:
    from relunorm.papers.reduced import Reduced

claim, exhibit = words_of("reduced")

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
    return exhibit(
        world.settings(),
        "identities",
        claim("(2.4) scaling", scaling),
        claim("(2.4) at alpha = 0", left, relu_left),
        claim("(2.5) constant by steps", steps),
        claim("(2.6) constant by ReLUs", np.abs(relus - any_alpha).max()),
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
    return exhibit(
        world.settings(),
        "unit_rows",
        claim("Proposition 2.1, (2.7)", max(pure)),
        claim(
            "Proposition 2.1, proof: w = 0 and b = 0", value, value if stored == value else math.nan
        ),
        claim("Corollary 2.2, (2.8)", max(bias)),
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
    return exhibit(
        world.settings(),
        "thresholds",
        claim("Proposition 2.3, (2.10)", max(bounded)),
        _point_domain(world),
        claim("(2.11) range of a unit row", _largest_ratio(world)),
        claim("(2.12) always active units", max(_always_active(world, rng) for _ in range(20))),
        claim("ours: two extra units suffice", max(extra)),
        claim("ours: clipping needs no extra unit", max(clipped)),
        *_tight(world),
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


#: Two unit directions and the wave number along them: sin sin = (cos - cos) / 2.
DIRECTIONS = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
WAVE = 2 * math.pi * math.sqrt(2)
SIGNS = (0.5, -0.5)
#: Outputs of networks whose weights go up to 1e4, added up: relative to the largest outgoing sum.
CLOSE = 1e-9


def approximant(
    activation: Activation, pieces: int, reach: float, rng: np.random.Generator
) -> tuple[Network, float]:
    """A network (2.1) with rows of any length, good on the square [-reach, reach]^2, and its
    classical bound on the sup error there."""
    far = reach * math.sqrt(2)
    knots = np.linspace(-far, far, pieces + 1)
    h = knots[1] - knots[0]
    spline = activation.kind == "relu"
    rows, biases, out = [], [], []
    for u, sign in zip(DIRECTIONS, SIGNS, strict=True):
        if spline:  # g(k_0) + s_0 (t - k_0) on both sides, then the jumps of the slope
            slopes = np.diff(np.cos(WAVE * knots)) / h
            rows += [np.tile(u, (pieces, 1)), -u[None], np.zeros((1, 2))]
            biases += [-knots[:-1], knots[:1], [1.0]]
            values = [slopes[:1], np.diff(slopes), -slopes[:1], [math.cos(WAVE * knots[0])]]
        else:  # the value at the middle of the first piece, then the jumps
            middles = np.cos(WAVE * (knots[:-1] + h / 2))
            rows += [np.tile(u, (pieces - 1, 1)), np.zeros((1, 2))]
            biases += [-knots[1:-1], [1.0]]
            values = [np.diff(middles), middles[:1]]
        out.append(sign * np.concatenate(values))
    w, b, c = np.vstack(rows), np.concatenate(biases), np.concatenate(out)
    scale = 10.0 ** rng.uniform(-2, 2, len(b))
    net = Network.from_weights(
        [w * scale[:, None], (c / scale if spline else c)[None]], [b * scale, [0.0]], activation
    )
    return net, (h * WAVE) ** 2 / 8 if spline else h * WAVE / 2


def polynomial_error(world: Reduced, units: int, degree: int) -> float:
    """Sup error of a fit of sin(8 pi x) on [0, 1] by ``units`` units with the activation
    t^degree, rows and thresholds random."""
    rng = world.rng
    x = np.linspace(0, 1, 801)
    w, b = rng.normal(size=units), rng.normal(size=units)
    features = world.polynomial(np.outer(x, w) + b, degree)
    y = np.sin(8 * math.pi * x)
    return float(np.abs(features @ np.linalg.lstsq(features, y, rcond=None)[0] - y).max())


def density(world: Reduced) -> Exhibit:
    """Explicit networks against sin(2 pi x) sin(2 pi y): as they are, with unit rows, and with unit
    rows and thresholds in [-X_B, X_B], ReLU and step, on two squares, in the sup norm; and fits by
    units with polynomial activations."""
    rng, rows = world.rng, []
    for activation in (RELU, STEP):
        for reach in (0.5, 1.0):
            box = Box.cube(2, -reach, reach)
            x = box.sample(world.size(4000, 20_000, 1000), world.random_state)
            for pieces in world.size((8, 32, 128), (8, 32, 128, 512), (8, 32)):
                net, bound = approximant(activation, pieces, reach, rng)
                rows.append((activation.kind, reach, pieces, bound, *_errors(world, net, box, x)))
    columns = (
        "activation", "reach", "pieces", "bound", "error (2.1)", "error (2.7)", "error (2.10)",
        "(2.7) differs by", "(2.10) differs by", "row norms off 1 by", "|b| / X_B",
    )  # fmt: skip
    table = {name: np.array([row[k] for row in rows]) for k, name in enumerate(columns)}
    units = world.size((5, 20, 80), (5, 20, 80, 320), (5, 80))
    flat = min(polynomial_error(world, u, degree) for u in units for degree in (1, 2, 3, 6))
    unit = np.maximum(table["(2.7) differs by"], table["row norms off 1 by"]).max()
    inside = table["|b| / X_B"].max() <= 1 + CLOSE

    def worst(name: str) -> float:
        return float((table[name] / table["bound"]).max())

    return exhibit(
        world.settings(),
        "density",
        claim("Theorem 3.1, if", worst("error (2.1)")),
        claim("Theorem 3.1, only if", flat),
        claim("Theorem 3.2, (3.3)", unit),
        claim("Theorem 3.2, dense", worst("error (2.7)")),
        claim(
            "Theorem 3.3, (3.4)", float(table["(2.10) differs by"].max()) if inside else math.inf
        ),
        claim("Theorem 3.3, dense", worst("error (2.10)")),
        columns=columns,
        rows=rows,
        figure=None
        if world.tiny
        else _draw(rows, [(u, polynomial_error(world, u, 2)) for u in units]),
    )


def _errors(world: Reduced, net: Network, box: Box, x: Array) -> tuple[float, ...]:
    """Sup errors of the three forms, how far the second and third are from the first, row norms
    and thresholds of the third."""
    unit = world.normalize(net, "unit", pure=True).network
    bounded = world.normalize(net, "bounded", box, pure=True).network
    y = world.target(x)
    values = [part(x)[:, 0] for part in (net, unit, bounded)]
    scale = max(1.0, float(np.abs(values[0]).max()))
    first = [part.layers[0].affine for part in (unit, bounded)]
    norms = [np.linalg.norm(np.asarray(a.terms[0]), axis=1) for a in first]
    radius = math.sqrt(2) * float(np.abs(box.hi).max())
    return (
        *(float(np.abs(v - y).max()) for v in values),
        *(float(np.abs(v - values[0]).max()) / scale for v in values[1:]),
        float(max(np.abs(n - 1).max() for n in norms)),
        float(np.abs(first[1].bias).max() / radius),
    )


def _draw(rows: list[tuple[Any, ...]], flat: list[tuple[int, float]]) -> Any:
    figure, (ax,) = empty_figure((6.4, 4.4))
    for color, kind in (("C0", "relu"), ("C1", "step")):
        own = [row for row in rows if row[0] == kind and row[1] == 1.0]
        pieces = [row[2] for row in own]
        ax.loglog(pieces, [row[6] for row in own], "o-", color=color, label=f"{kind}, (2.10)")
        ax.loglog(pieces, [row[3] for row in own], ":", color=color, label=f"{kind}, bound")
    ax.loglog(*zip(*flat, strict=True), "s-", color="C2", label="t^2 on sin(8 pi x)")
    ax.set(xlabel="pieces, or units", ylabel="sup error", title="Dense, and not dense")
    ax.legend()
    return figure

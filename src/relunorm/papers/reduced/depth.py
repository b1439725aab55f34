"""Section 4 of seed 001, several hidden layers, and what docs/errata.md derives beyond it."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from relunorm.domain import Ball, Box, Domain
from relunorm.network import Activation, Affine, Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, he_network

if TYPE_CHECKING:
    from relunorm.papers.reduced import Reduced

claim, exhibit = words_of("reduced")

RELU, STEP = Activation("relu"), Activation("step", at_zero=0.5)


def depth(world: Reduced) -> Exhibit:
    """Random networks (4.1) of three hidden layers, ReLU and step, some rows zero: in the unit
    form, and with large thresholds in the bounded form, at 300 points of a ball; for (4.5) and
    (4.7) one network each whose unit switches beyond the printed bound."""
    rng = world.rng
    x = BALL.sample(300, 0)
    gaps, excess, at_output = [], [], []
    for _ in range(world.size(5, 20, 2)):
        net = deep_network(rng, RELU, 0.5)
        found = world.normalize(net, "unit", pure=True).network
        gaps.append(np.abs(found(x) - net(x)).max() / np.abs(net(x)).max())
        gaps += [row_error(layer.affine) for layer in found.layers]
        gaps.append(math.inf if found.output.bias.any() else 0.0)
        excess.append(_excess(found, x))
        last = np.linalg.norm(found.values(x)[-1], axis=1)
        at_output.append(float((np.abs(found(x)[:, 0]) - last).max()))
    needed, switches = _beyond(world), _steps_beyond(world)
    relus = max(_over_bound(world, deep_network(rng, RELU, s), x) for s in (0.5, 3.0, 8.0))
    steps = [deep_network(rng, STEP, s) for s in (0.5, 1.0, 2.0)]
    outputs = [_largest_output(world, net, x) for net in steps]
    padded, minimal = _padding(world)
    return exhibit(
        world.settings(),
        "depth",
        claim("(4.3) unit rows at depth", max(gaps)),
        claim("(4.4) bound on a unit's output", max(*excess, *at_output), max(excess)),
        claim("(4.5) thresholds at depth", needed, max(needed / (2 * math.sqrt(6)), relus)),
        claim("(4.6) bound on step outputs", max(outputs)),
        claim(
            "(4.7) thresholds of step networks",
            switches,
            max(switches / 2, *(_over_bound(world, net, x) for net in steps)),
        ),
        claim("ours: padding", minimal if padded < 1e-6 else math.nan, padded=padded),
    )


def derived(world: Reduced) -> Exhibit:
    """Random networks with l1 rows over [0, 2]^3, to four hidden layers, thresholds small and
    large; and pairs of shallow networks on a square, equal (permuted and rescaled; a unit negated,
    split, dead ones and always active ones added) and different (one bias moved), in canonical
    form."""
    rng = world.rng
    box = Box.cube(3, 0, 2)
    largest, gaps = [], []
    for widths, bias in product(((3, 8, 1), (3, 8, 8, 1), (3, 6, 6, 6, 6, 1)), (0.5, 4.0)):
        net = he_network(rng, widths, bias)
        found = world.normalize(net, "l1", box).network
        x = box.sample(1000, 0)
        gaps.append(np.abs(found(x) - net(x)).max() / np.abs(net(x)).max())
        gaps += [row_error(layer.affine, 1) for layer in found.layers]
        largest += [np.abs(layer.affine.bias).max(initial=0) / 2 for layer in found.layers]
        largest += [values.max(initial=0) / 2 for values in found.values(x)[1:]]
    same, different = _canonical_pairs(world, world.size(6, 20, 2))
    return exhibit(
        world.settings(),
        "derived",
        claim(
            "ours: l1 rows bound every activation",
            max(*largest) if max(gaps) <= ROUNDING else math.inf,
        ),
        claim("ours: shallow canonical form", same + different),
    )


def row_error(affine: Affine, order: int = 2) -> float:
    """How far the rows of a layer are from norm 1."""
    table = np.hstack([np.asarray(m) for m in affine.terms.values()])
    return float(np.abs(np.linalg.norm(table, order, axis=1) - 1).max(initial=0.0))


def _excess(net: Network, x: np.ndarray) -> float:
    """By how much an output exceeds (4.4), at worst."""
    values = net.values(x)
    worst = -math.inf
    for before, after, layer in zip(values, values[1:], net.layers, strict=False):
        size = np.linalg.norm(before, axis=1, keepdims=True)
        worst = max(worst, float((np.abs(after) - size - np.abs(layer.affine.bias)).max()))
    return worst


BALL = Ball(np.zeros(4), 1.0)


def deep_network(rng: np.random.Generator, activation: Activation, spread: float) -> Network:
    """(4.1) with three hidden layers: no output bias, thresholds of deviation ``spread``, a row of
    the second hidden layer zero."""
    net = he_network(rng, (4, 8, 6, 5, 1), spread)
    weights, biases = (list(map(np.array, part)) for part in net.weights())
    weights[1][0], biases[-1][:] = 0.0, 0.0
    return Network.from_weights(weights, biases, activation)


def _largest_output(world: Reduced, net: Network, x: np.ndarray) -> float:
    """Of the hidden units of a step network, by the world's own step."""
    weights, biases = net.weights()
    largest = 0.0
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = world.step(x @ np.asarray(w).T + b)
        largest = max(largest, float(np.abs(x).max()))
    return largest


def _over_bound(world: Reduced, net: Network, x: np.ndarray) -> float:
    """The largest |b| over the corrected bound of its layer, and for ReLU the largest |y| over
    Y_m, in the bounded form; NaN if that is another function or has more units."""
    found = world.normalize(net, "bounded", BALL, architecture="keep").network
    off = np.abs(found(x) - net(x)).max() / np.abs(net(x)).max()
    shapes = zip(found.layers, net.layers, strict=False)
    if off > ROUNDING or any(len(a.affine.bias) > len(b.affine.bias) for a, b in shapes):
        return math.nan
    step = net.layers[0].activation.kind == "step"
    bound, worst = float(BALL.radius), 0.0
    for m, (layer, values) in enumerate(zip(found.layers, found.values(x)[1:], strict=True)):
        width = len(layer.affine.bias)
        worst = max(worst, float(np.abs(layer.affine.bias).max()) / bound)
        wider = 2 * math.sqrt(width) if m == 0 else math.sqrt(2 * width)
        bound = math.sqrt(width) if step else wider * bound
        worst = max(worst, float(np.linalg.norm(values, axis=1).max()) / bound)
    return worst


def _beyond(world: Reduced) -> float:
    """|b| of the network of the errata in bounded form; NaN if that is another function or width,
    or never switches."""
    d = 6
    net = Network.from_weights(
        [np.eye(d), np.full((1, d), 1 / np.sqrt(d)), [[1.0]]], [np.full(d, 0.9), [-2.1], [0.0]]
    )
    ball = Ball(np.zeros(d), 1.0)
    ends = np.vstack([ball.sample(500, 0), np.ones((1, d)) / math.sqrt(d)])
    return _switching(world, net, ball, ends)


def _steps_beyond(world: Reduced) -> float:
    """The same of a step network: three of four steps have to be up."""
    net = Network.from_weights(
        [np.ones((4, 1)), np.full((1, 4), 0.5), [[1.0]]],
        [np.array([0.0, 0.1, 0.2, 0.3]), [-1.4], [0.0]],
        STEP,
    )
    line = Box.cube(1, -1, 1)
    return _switching(world, net, line, line.sample(500, 0))


def _switching(world: Reduced, net: Network, domain: Domain, x: np.ndarray) -> float:
    found = world.normalize(net, "bounded", domain).network
    if found.widths != net.widths or np.abs(found(x) - net(x)).max() > ROUNDING:
        return math.nan
    switches = np.ptp(found.values(x)[2][:, 0]) > 0
    return float(abs(found.layers[1].affine.bias[0])) if switches else math.nan


def _padding(world: Reduced) -> tuple[float, float]:
    net = Network.from_weights(
        [[[1.0], [1.0]], [[1.0, 1e6]], [[1.0]]], [[0.0, -5.0], [-0.5], [0.0]]
    )
    line = Box.cube(1, -1, 1)
    forms = (
        world.normalize(net, "bounded", line, remove=remove).network for remove in (False, True)
    )
    padded, minimal = (float(abs(form.layers[-1].affine.bias[0])) for form in forms)
    return padded, minimal


def _canonical_pairs(world: Reduced, count: int) -> tuple[int, int]:
    """Pairs of equal networks told apart, and of different ones not. Small integers: the equal ones
    are equal without rounding."""
    rng, box = world.rng, Box.cube(2, -1, 1)
    same = different = 0
    for _ in range(count):
        w, b = rng.integers(-3, 4, (4, 2)).astype(float), rng.integers(-1, 2, 4) / 2.0
        w[:, 0] += 4.0 * (np.abs(w).sum(axis=1) == 0)
        v = rng.choice([-2.0, -1.0, 1.0, 2.0], 4)
        net = Network.from_weights([w, v[None]], [b, [0.0]])
        order, scale = rng.permutation(4), 2.0 ** rng.integers(-3, 4, 4)
        scaled = Network.from_weights(
            [(w * scale[:, None])[order], (v / scale)[order][None]], [(b * scale)[order], [0.0]]
        )
        form, *twins = (
            world.normalize(n, "canonical", box, exact=True).network
            for n in (net, scaled, _disguised(w, b, v))
        )
        same += sum(form != twin for twin in twins)
        moved = Network.from_weights([w, v[None]], [b + np.eye(4)[3] / 8, [0.0]])
        x = box.sample(1000, 0)
        truly_different = bool(np.abs(net(x) - moved(x)).max() > 1e-9)
        moved_form = world.normalize(moved, "canonical", box, exact=True).network
        different += truly_different and form == moved_form
    return same, different


def _disguised(w: np.ndarray, b: np.ndarray, v: np.ndarray) -> Network:
    """The same function with the first unit negated (relu(z) = z + relu(-z)), the second split in
    two, a dead unit, and z of the first as a difference of two always active ones on [-1, 1]^2."""
    high = 1.0 + np.abs(w[0]).sum() + abs(b[0])
    rows = np.vstack([-w[0], w[1] / 2, w[1] / 2, w[2:], [1.0, 1.0], w[0], np.zeros(2)])
    biases = np.r_[-b[0], b[1] / 2, b[1] / 2, b[2:], -5.0, b[0] + high, high]
    out = np.r_[v[0], v[1], v[1], v[2:], 3.0, v[0], -v[0]]
    return Network.from_weights([rows, out[None]], [biases, [0.0]])

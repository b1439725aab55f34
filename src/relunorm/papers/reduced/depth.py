"""Section 4 of seed 001, several hidden layers, and what docs/errata.md derives beyond it."""

from __future__ import annotations

import math

import numpy as np

from relunorm.domain import Ball, Box
from relunorm.network import Activation, Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.random_networks import he_network, shallow_network
from relunorm.papers.reduced.laws import ROUNDING, Reduced


def depth(world: Reduced) -> Exhibit:
    """Random networks of three hidden layers in the unit form at 300 points of a ball; for (4.5)
    and (4.7) one network each whose unit switches beyond the printed bound."""
    rng = world.rng
    ball = Ball(np.zeros(4), 1.0)
    gaps, norms, excess, at_output = [], [], [], []
    for _ in range(world.size(5, 20, 2)):
        net = he_network(rng, (4, 8, 6, 5, 1))
        x = ball.sample(300, 0)
        found = world.normalize(net, "unit").network
        gaps.append(np.abs(found(x) - net(x)).max() / np.abs(net(x)).max())
        norms += [row_error(layer.affine) for layer in found.layers]
        excess.append(_excess(found, x))
        last = np.linalg.norm(found.values(x)[-1], axis=1) + abs(found.output.bias[0])
        at_output.append(float((np.abs(found(x)[:, 0]) - last).max()))
    needed, corrected = _counterexample(world)
    step_bias, step_values = _step_depth(world)
    padded, minimal = _padding(world)
    return from_claims(
        "depth",
        "Section 4: several hidden layers",
        (
            Claim(
                "(4.3) unit rows at depth",
                "unit rows in every hidden layer lose nothing",
                Check(
                    "largest relative difference, or row norm off 1",
                    max(*gaps, *norms),
                    "<=",
                    ROUNDING,
                ),
            ),
            Claim(
                "(4.4) bound on a unit's output",
                "|y_j| of layer m is at most |y| of layer m-1 plus |b_j|, m = 2, ..., M",
                Check(
                    "largest excess, the output M included",
                    max(*excess, *at_output),
                    "<=",
                    ROUNDING,
                ),
                "up to m = M - 1: (4.3) leaves the weights of the output free",
                Check("largest excess in the hidden layers", max(excess), "<=", ROUNDING),
            ),
            Claim(
                "(4.5) thresholds at depth",
                "|b| <= 2^(m-2) X_B at layer m, beyond which a unit is constant: 2 for m = 3 of "
                "{6, 6, 1, 1} on the unit ball",
                Check("|b| of a unit that switches there", needed, "<=", 2),
                "|b| <= Y, Y_1 = X_B, Y_2 <= 2 sqrt(J_2) X_B, Y_m <= sqrt(2 J_m) Y_(m-1)",
                Check("|b| over the corrected bound", needed / corrected, "<=", 1),
            ),
            Claim(
                "(4.6) bound on step outputs",
                "a step unit's output is at most 1",
                Check("largest output", step_values, "<=", 1),
            ),
            Claim(
                "(4.7) thresholds of step networks",
                "|b| <= 1 behind a layer of step units, beyond which a unit is constant",
                Check("|b| of a unit behind four that switches", step_bias, "<=", 1),
                "|b| <= sqrt(J), here 2",
                Check("|b| of a unit behind four that switches", step_bias, "<=", 2),
            ),
            Claim(
                "ours: padding",
                "(in no paper) a unit row fixes the scale of a deep unit (|b| of relu(y - 0.5))",
                Check("|b| with a dead unit of weight 1e6 beside it", padded, "=", 0.5, ROUNDING),
                "only if the form is minimal first and scaled second",
                Check("|b| with the dead unit removed first", minimal, "=", 0.5, ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


def derived(world: Reduced) -> Exhibit:
    """Random networks with l1 rows over a box, to four hidden layers; and pairs of shallow
    networks, equal (permuted, rescaled) and different (one bias moved), in canonical form."""
    rng = world.rng
    box = Box.cube(3, 0, 2)
    largest, gaps = [], []
    for widths in ((3, 8, 1), (3, 8, 8, 1), (3, 6, 6, 6, 6, 1)):
        net = he_network(rng, widths)
        found = world.normalize(net, "l1", box).network
        x = box.sample(2000, 0)
        gaps.append(np.abs(found(x) - net(x)).max() / np.abs(net(x)).max())
        largest += [np.abs(layer.affine.bias).max(initial=0) / 2 for layer in found.layers]
        largest += [values.max(initial=0) / 2 for values in found.values(x)[1:]]
    same, different = _canonical_pairs(world, world.size(6, 20, 2))
    return from_claims(
        "derived",
        "Derived: l1 rows, and the canonical form of a shallow network",
        (
            Claim(
                "ours: l1 rows bound every activation",
                "(in no paper) on [0, X]^d, l1 rows and clipping keep every value and |b| below X",
                Check(
                    "largest value or |b| over X; relative difference",
                    max(*largest) if max(gaps) <= ROUNDING else math.inf,
                    "<=",
                    1 + ROUNDING,
                ),
            ),
            Claim(
                "ours: shallow canonical form",
                "(in no paper) two shallow networks are equal on D iff their canonical forms are",
                Check("pairs decided wrongly", same + different, "=", 0),
            ),
        ),
        settings=world.settings(),
    )


def row_error(affine: object) -> float:
    """How far the rows of a layer are from norm 1; rows of zeros (constants) are not counted."""
    table = np.hstack([np.asarray(m) for m in affine.terms.values()])  # type: ignore[attr-defined]
    norms = np.linalg.norm(table, axis=1)
    return float(np.abs(norms[norms > 0] - 1).max(initial=0.0))


def _excess(net: Network, x: np.ndarray) -> float:
    """By how much an output exceeds (4.4), at worst."""
    values = net.values(x)
    worst = -math.inf
    for before, after, layer in zip(values, values[1:], net.layers, strict=False):
        size = np.linalg.norm(before, axis=1, keepdims=True)
        worst = max(worst, float((np.abs(after) - size - np.abs(layer.affine.bias)).max()))
    return worst


def _counterexample(world: Reduced) -> tuple[float, float]:
    """|b| of the network of the errata in bounded form, and the corrected bound."""
    d = 6
    net = Network.from_weights(
        [np.eye(d), np.full((1, d), 1 / np.sqrt(d)), [[1.0]]],
        [np.full(d, 0.9), [-2.1], [0.0]],
    )
    ball = Ball(np.zeros(d), 1.0)
    found = world.normalize(net, "bounded", ball).network
    ends = np.vstack([ball.sample(500, 0), np.ones((1, d)) / math.sqrt(d)])
    switches = np.ptp(found.values(ends)[2][:, 0]) > 0
    return float(abs(found.layers[1].affine.bias[0])) if switches else math.nan, 2 * math.sqrt(d)


def _step_depth(world: Reduced) -> tuple[float, float]:
    net = Network.from_weights(
        [np.ones((4, 1)), np.full((1, 4), 0.5), [[1.0]]],
        [np.array([0.0, 0.1, 0.2, 0.3]), [-1.5], [0.0]],
        Activation("step"),
    )
    line = Box.cube(1, -1, 1)
    found = world.normalize(net, "bounded", line).network
    outputs = found.values(line.sample(500, 0))[1:]
    switches = np.ptp(outputs[1][:, 0]) > 0
    needed = float(abs(found.layers[1].affine.bias[0])) if switches else math.nan
    return needed, max(float(v.max()) for v in outputs)


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
    """Pairs of equal networks told apart, and of different ones not."""
    rng, box = world.rng, Box.cube(2, -1, 1)
    same = different = 0
    for _ in range(count):
        net = shallow_network(rng, 6, 2)
        (w, v), (b, c) = (list(map(np.asarray, part)) for part in net.weights())
        order, scale = rng.permutation(6), 2.0 ** rng.integers(-3, 4, 6)
        twin = Network.from_weights(
            [(w * scale[:, None])[order], (v / scale)[:, order]], [(b * scale)[order], c]
        )
        moved = Network.from_weights([w, v], [b + np.eye(6)[3] * 0.01, c])
        form, twin_form, moved_form = (
            world.normalize(n, "canonical", box, exact=True).network for n in (net, twin, moved)
        )
        same += form != twin_form
        x = box.sample(2000, 0)
        truly_different = bool(np.abs(net(x) - moved(x)).max() > 1e-9)
        different += truly_different and form == moved_form
    return same, different

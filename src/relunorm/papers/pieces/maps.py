"""Seed 003, the maps on the pieces: (5) to (12), Theorems 5 and 6."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, costs, empty_figure, from_claims
from relunorm.papers.pieces.laws import Pieces

claim = claims_of("pieces")

Array = NDArray[np.float64]
#: How sharp the bounds of Theorem 6 are.
REACHED = "the statement; a network of ones (part (i)) and a chain of twos (part (ii)) reach it"
#: Networks of 2 to 6 layers.
SHAPES = ((3, 6, 2), (3, 6, 5, 2), (3, 5, 4, 4, 2), (3, 4, 4, 3, 4, 2), (3, 4, 3, 3, 3, 4, 2))


def atoms(world: Pieces) -> Exhibit:
    """Random networks of one to five hidden layers, each in the region of a random point: the map
    as a product of matrices against the network at up to 301 points of the region, and against
    sums of atoms with listed paths; the package's maps and atoms against both."""
    rng = world.rng
    trials = world.size(10, 50, 3)
    diagonal, affine, twelve = ([] for _ in range(3))
    theorem5: dict[int, list[float]] = {}
    for _ in range(trials):
        for widths in SHAPES:
            net = world.network(rng, widths)
            x = rng.normal(size=3)
            region = world.region_at(net, x)
            diagonal.append(_diagonal(world, net, rng.normal(size=(50, 3))))
            diagonal.append(
                _diagonal(world, Network.from_weights(net.weights()[0]), np.zeros((1, 3)))
            )
            affine.append(_affine_error(world, net, region, rng))
            twelve.append(_equation12(net, region, region.atoms(), x))
            own = theorem5.setdefault(min(len(widths) - 1, 4), [])
            own.append(_theorem5_error(world, net, region))
    ranges = [_range_error(world, rng) for _ in range(trials)]
    return from_claims(
        "atoms",
        "(5)-(12) and Theorem 5: affine maps and their atoms",
        (
            claim("(5)-(9) rectifier as a diagonal matrix", max(diagonal)),
            claim("(10) affine map of a configuration", max(affine)),
            claim("Theorem 5 (i)", max(theorem5[2])),
            claim("Theorem 5 (ii)", max(theorem5[3])),
            claim("Theorem 5 (iii), (11)", max(theorem5[4])),
            claim("(12) coefficients and bias", max(twelve)),
            claim("after (12): range of a piece", max(ranges)),
        ),
        settings=world.settings(),
    )


@costs(2)
def theorem6_table(world: Pieces) -> Exhibit:
    """Every region in [-2, 2]^2 of random networks of four layers with normalized outer layers: its
    slope against the bounds; a network of ones and a chain of twos, which reach them; bounds at 4
    to 12 layers; networks of matrices with Frobenius norm 1."""
    rng = world.rng
    local, everywhere, spectral, paths, product, order = ([] for _ in range(6))
    for _ in range(world.size(4, 10, 1)):
        net = _normalized(world, rng, (2, 6, 5, 4, 2))
        found = world.regions(net, Box.cube(2, -2, 2))
        norms = np.linalg.norm(found.affine()[0], 2, axis=(1, 2))
        whole = world.theorem6(net)
        for x, bits, norm in zip(found.points, found.patterns, norms, strict=True):
            here = world.theorem6(net, at=x)
            local.append(_share(norm, _local_bound(world, net, bits)))
            paths.append(_share(norm, here.paths))
            order.append(_share(here.paths, here.count))
        everywhere.append(norms.max() / _global_bound(world, net))
        spectral.append(norms.max() / _spectral_bound(world, net))
        product.append(max(norms.max() / whole.gradients[0], whole.gradients[0] / whole.spectral))
    ones = Network.from_weights([np.ones((3, 1)), *[np.ones((3, 3))] * 2, np.ones((1, 3))])
    twos = Network.from_weights([[[2.0]]] * 4)
    slope = float(np.linalg.norm(ones.jacobian([1.0]), 2))
    local.append(_share(slope, _local_bound(world, ones, np.ones(9, dtype=bool))))
    everywhere.append(slope / _global_bound(world, ones))
    steep = float(np.abs(twos.jacobian([1.0])).max())
    spectral.append(steep / _spectral_bound(world, twos))
    product.append(steep / world.theorem6(twos).gradients[0])
    here = world.theorem6(ones, at=[1.0])
    paths.append(slope / here.paths)
    reached = slope / here.count
    depths = list(range(4, 13))
    bounds = {factor: _by_depth(world, depths, factor) for factor in (0.5, 1.0, 1.1, 1.5)}
    steps = {factor: [b / a for a, b in itertools.pairwise(v)] for factor, v in bounds.items()}
    return from_claims(
        "theorem6",
        "Theorem 6: Lipschitz bounds",
        (
            claim("Theorem 6 (i)", max(local)),
            claim("Theorem 6 (i), global", max(everywhere)),
            claim("ours: Theorem 6 (i) is tight", reached),
            claim("Theorem 6 (ii)", max(spectral)),
            claim("ours: path sums", max(*paths, *order)),
            claim("ours: product of spectral norms", max(product)),
            claim(
                "Section 3.2: C <= 1/N",
                (max(*steps[0.5], *steps[1.0]) if min(*steps[1.1], *steps[1.5]) > 1 else math.inf),
            ),
            claim("Section 3.2: Frobenius norms", _frobenius(world)),
        ),
        figure=None
        if world.tiny
        else _draw(depths, {f"C = {k:g}/N": v for k, v in bounds.items()}, local, paths),
        settings=world.settings(),
    )


def _normalized(world: Pieces, rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    """Unit rows of W_1 and unit columns of W_L, as Theorem 6 (i) asks."""
    weights, biases = world.network(rng, widths).weights()
    weights = [np.asarray(w) for w in weights]
    weights[0] = weights[0] / np.linalg.norm(weights[0], axis=1, keepdims=True)
    weights[-1] = weights[-1] / np.linalg.norm(weights[-1], axis=0)
    return Network.from_weights(weights, biases)


def _diagonal(world: Pieces, net: Network, x: Array) -> float:
    """How far a = D y is violated, D read off the pattern, and how many entries of D differ from
    the one 0/1 number that (7), (8) and (9) allow."""
    worst = 0.0
    start = 0
    pattern = world.pattern(net, x)
    for y, a in zip(net.preactivations(x), net.values(x)[1:], strict=False):
        d = pattern[:, start : start + y.shape[1]].astype(float)
        start += y.shape[1]
        allowed = [(e * y >= 0) & ((1 - e) * y <= 0) & ((y != 0) | (e == 0)) for e in (0.0, 1.0)]
        wrong = (allowed[0] == allowed[1]) | (d != allowed[1]) | (d != (a > 0))
        worst = max(worst, np.abs(d * y - a).max(), float(wrong.sum()))
    return float(worst)


def _equation12(net: Network, region: Any, found: Any, x: Array) -> float:
    """(12) word by word, alpha and b from products of matrices, against f and the atoms."""
    weights, biases = (list(map(np.asarray, part)) for part in net.weights())
    on = [np.asarray(theta, dtype=float) for theta in region.configuration]
    alpha, b = weights[0] @ x, biases[-1]
    for w, theta in zip(weights[1:-1], on, strict=False):
        alpha = w @ (theta * alpha)
    for j in range(len(on)):
        part = biases[j]
        for w, theta in zip(weights[j + 1 :], on[j:], strict=True):
            part = w @ (theta * part)
        b = b + part
    f = weights[-1] @ (on[-1] * alpha) + b
    own = found.outer @ found.alpha(x) + found.bias
    gaps = (f - net(x), own - net(x), b - found.bias, alpha[found.last] - found.alpha(x))
    return float(max(np.abs(gap).max(initial=0.0) for gap in gaps))


def _points(region: Any, rng: np.random.Generator, count: int) -> Array:
    """Points of the region, its interior point the first."""
    center = region.interior_point
    x = center + np.geomspace(1e-3, 3, count)[:, None] * rng.normal(size=(count, len(center)))
    return np.vstack([center, x[region.polytope.contains(x)]])


def _range_error(world: Pieces, rng: np.random.Generator) -> float:
    """How far f - b is from the span of the last matrix's active columns, at points of a region,
    for a network with more outputs than units before them."""
    net = world.network(rng, (3, 5, 4, 8))
    region = world.region_at(net, rng.normal(size=3))
    x = _points(region, rng, 100)
    last = np.asarray(net.weights()[0][-1])[:, region.supports[-1]]
    values = (net(x) - world.product(net, region.configuration)[1]).T
    if not last.size:
        return float(np.abs(values).max())
    return float(np.abs(values - last @ np.linalg.lstsq(last, values, rcond=None)[0]).max())


def _affine_error(world: Pieces, net: Network, region: Any, rng: np.random.Generator) -> float:
    """How far the product (10) is from f at points of the polytope, and from the package's map."""
    A, c = world.product(net, region.configuration)
    x = _points(region, rng, 300)
    gaps = x @ A.T + c - net(x), A - region.affine[0], c - region.affine[1]
    return float(max(np.abs(gap).max() for gap in gaps))


def _theorem5_error(world: Pieces, net: Network, region: Any) -> float:
    """How far the sum of all atoms, each with its coefficient, is from the linear part of (10), and
    the package's coefficients and counts from the listed ones."""
    weights = [np.asarray(w) for w in net.weights()[0]]
    supports = [np.flatnonzero(theta) for theta in region.configuration]
    listed, paths = world.path_sums(weights, supports)
    total = np.zeros((net.output_size, net.input_size))
    for (k, i), (m, j) in itertools.product(enumerate(supports[-1]), enumerate(supports[0])):
        total += listed[k, m] * np.outer(weights[-1][:, i], weights[0][j])
    found = region.atoms()
    gaps = [total - world.product(net, region.configuration)[0], listed - found.coefficients]
    if len(weights) > 2:
        gaps.append(found.paths - paths)
    return float(max(np.abs(gap).max(initial=0.0) for gap in gaps))


def _share(slope: float, bound: float) -> float:
    """slope / bound; a bound of 0 allows a slope of 0 only."""
    if bound:
        return float(slope / bound)
    return 0.0 if slope <= ROUNDING else math.inf


def _inner_weight(net: Network) -> float:
    """C: the largest weight between the first and the last matrix."""
    return max(float(np.abs(np.asarray(w)).max()) for w in net.weights()[0][1:-1])


def _local_bound(world: Pieces, net: Network, bits: Any) -> float:
    parts = np.split(np.asarray(bits), np.cumsum(net.widths[1:-2]))
    return world.count_bound(_inner_weight(net), [int(part.sum()) for part in parts])


def _spectral_bound(world: Pieces, net: Network) -> float:
    norms = [float(np.linalg.norm(np.asarray(w), 2)) for w in net.weights()[0]]
    return world.spectral_bound(max(norms), len(norms))


def _global_bound(world: Pieces, net: Network) -> float:
    width = max(net.widths[1:-1])
    return world.global_bound(_inner_weight(net), width, len(net.weights()[0]))


def _frobenius(world: Pieces) -> float:
    """Spectral norms and slopes of networks whose matrices have Frobenius norm 1, random ones and
    such of rank one, whose spectral norm is 1, too."""
    rng, worst = world.rng, 0.0
    for layers, flat in itertools.product((2, 4, 8), (False, True)):
        weights, biases = world.network(rng, (3, *([6] * layers), 2)).weights()
        weights = [np.asarray(w) for w in weights]
        if flat:
            weights = [np.outer(w[:, 0], w[0]) for w in weights]
        unit = [w / world.frobenius(w) for w in weights]
        net = Network.from_weights(unit, biases)
        slopes = np.linalg.norm(net.jacobian(rng.normal(size=(200, 3))), 2, axis=(1, 2))
        worst = max(worst, float(slopes.max()), *(float(np.linalg.norm(w, 2)) for w in unit))
    return worst


def _by_depth(world: Pieces, depths: list[int], factor: float) -> list[float]:
    """The global bound (i) with C = factor/N at growing depth, width 5."""
    bounds = []
    for layers in depths:
        net = _normalized(world, world.rng, (2, *([5] * (layers - 1)), 2))
        weights, biases = net.weights()
        weights = [np.asarray(w) for w in weights]
        inner = [w * factor / (5 * _inner_weight(net)) for w in weights[1:-1]]
        scaled = Network.from_weights([weights[0], *inner, weights[-1]], biases)
        bounds.append(_global_bound(world, scaled))
    return bounds


def _draw(
    depths: list[int], bounds: dict[str, list[float]], local: list[float], paths: list[float]
) -> Any:
    figure, (left, right) = empty_figure((9, 3.6), 1, 2)
    bins = np.geomspace(1e-3, 1, 40)
    for name, shares in (("Theorem 6 (i)", local), ("path sums (derived)", paths)):
        left.hist([s for s in shares if s > 0], bins=bins.tolist(), alpha=0.6, label=name)
    left.set(
        xscale="log", xlabel="slope / bound", ylabel="regions", title="How sharp the bounds are"
    )
    left.legend(fontsize=8)
    for name, values in bounds.items():
        right.semilogy(depths, values, "o-", ms=4, label=name)
    right.set(
        xlabel="layers", ylabel="bound of Theorem 6 (i)", title="Growth with the depth, N = 5"
    )
    right.legend(fontsize=8)
    return figure

"""Seed 003, the maps on the pieces: (5) to (12), Theorems 5 and 6."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, costs, empty_figure, from_claims
from relunorm.papers.pieces.laws import ROUNDING, Pieces

Array = NDArray[np.float64]
#: Networks of 2 to 6 layers.
SHAPES = ((3, 6, 2), (3, 6, 5, 2), (3, 5, 4, 4, 2), (3, 4, 4, 3, 4, 2), (3, 4, 3, 3, 3, 4, 2))


def atoms(world: Pieces) -> Exhibit:
    """Random networks of one to five hidden layers, each in the region of a random point: maps and
    atoms against products of matrices and against listed paths."""
    rng = world.rng
    trials = world.size(10, 50, 3)
    diagonal, affine, one, two, three, twelve = ([] for _ in range(6))
    for _ in range(trials):
        for widths in SHAPES:
            net = world.network(rng, widths)
            x = rng.normal(size=3)
            region = world.region_at(net, x)
            diagonal.append(_diagonal(world, net, rng.normal(size=(50, 3))))
            diagonal.append(
                _diagonal(world, Network.from_weights(net.weights()[0]), np.zeros((1, 3)))
            )
            affine.append(_affine_error(net, region, rng))
            found = region.atoms()
            weights = [np.asarray(w) for w in net.weights()[0]]
            twelve.append(_equation12(net, region, found, x))
            if len(widths) == 3:
                one.append(max(found.error, abs(len(found) - len(region.supports[0]))))
            elif len(widths) == 4:
                inner = weights[1][np.ix_(found.last, found.first)]
                two.append(max(found.error, np.abs(inner - found.coefficients).max(initial=0)))
            else:
                listed, paths = _listed_paths(weights, region.supports)
                gap = np.abs(listed - found.coefficients).max(initial=0.0)
                three.append(max(found.error, gap, np.abs(found.paths - paths).max(initial=0)))
    ranges = [_range_error(world, rng) for _ in range(trials)]
    return from_claims(
        "atoms",
        "(5)-(12) and Theorem 5: affine maps and their atoms",
        (
            Claim(
                "(5)-(9) rectifier as a diagonal matrix",
                "a = D y with the 0/1 matrix D of (6), the only one with (7)-(9)",
                Check("largest violation, or number of other matrices", max(diagonal), "<=", 0),
            ),
            Claim(
                "(10) affine map of a configuration",
                "on its polytope the network is M_L diag(theta) ... M_1",
                Check("largest difference", max(affine), "<=", ROUNDING),
            ),
            Claim(
                "Theorem 5 (i)",
                "two layers: the linear part is the sum of |spt theta_1| atoms",
                Check("largest relative difference", max(one), "<=", ROUNDING),
            ),
            Claim(
                "Theorem 5 (ii)",
                "three layers: the coefficients are the entries of W_2",
                Check("largest difference", max(two), "<=", ROUNDING),
            ),
            Claim(
                "Theorem 5 (iii), (11)",
                "more: sums of products of weights over all active paths, prod |spt theta_j| many",
                Check(
                    "largest difference from listing the paths, L = 4, 5, 6",
                    max(three),
                    "<=",
                    ROUNDING,
                ),
            ),
            Claim(
                "(12) coefficients and bias",
                "f(x) = sum of alpha(x) w_L,i plus the bias b",
                Check("largest difference", max(twelve), "<=", ROUNDING),
            ),
            Claim(
                "after (12): range of a piece",
                "a region is mapped into span{w_L,i : i in spt theta_(L-1)} + b",
                Check("largest distance from it", max(ranges), "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


@costs(2)
def theorem6_table(world: Pieces) -> Exhibit:
    """Every region of random networks with normalized outer layers: its slope against the bounds;
    networks of ones; bounds at 3 to 12 layers."""
    rng = world.rng
    local, everywhere, spectral, paths, product, order = ([] for _ in range(6))
    for _ in range(world.size(4, 10, 1)):
        net = _normalized(world, rng, (2, 6, 5, 4, 2))
        found = world.regions(net, Box.cube(2, -2, 2))
        norms = np.linalg.norm(found.affine()[0], 2, axis=(1, 2))
        whole = world.theorem6(net)
        for x, norm in zip(found.points, norms, strict=True):
            here = world.theorem6(net, at=x)
            local.append(norm / here.count if here.count else 0.0)
            paths.append(norm / here.paths if here.paths else 0.0)
            order.append(here.paths / here.count if here.count else 0.0)
        everywhere.append(norms.max() / _global_bound(world, net))
        spectral.append(norms.max() / whole.spectral)
        product.append(max(norms.max() / whole.gradients[0], whole.gradients[0] / whole.spectral))
    ones = Network.from_weights([np.ones((3, 1)), np.ones((3, 3)), np.ones((1, 3))])
    reached = np.linalg.norm(ones.jacobian([1.0]), 2) / world.theorem6(ones, at=[1.0]).count
    depths = list(range(3, 13))
    bounds, growing = (_by_depth(world, depths, factor) for factor in (1.0, 1.5))
    return from_claims(
        "theorem6",
        "Theorem 6: Lipschitz bounds",
        (
            Claim(
                "Theorem 6 (i)",
                "|f(x) - f(x')| <= C^(L-2) prod |spt theta_k| |x - x'| on a region",
                Check("largest slope over the bound", max(local), "<=", 1 + ROUNDING),
            ),
            Claim(
                "Theorem 6 (i), global",
                "(C N)^(L-2) N is a Lipschitz constant everywhere",
                Check("largest slope over the bound", max(everywhere), "<=", 1 + ROUNDING),
            ),
            Claim(
                "ours: Theorem 6 (i) is tight",
                "(in no paper) a network of ones reaches the bound of part (i)",
                Check("slope over the bound", reached, "=", 1, 1e-9),
            ),
            Claim(
                "Theorem 6 (ii)",
                "sigma^L is a Lipschitz constant",
                Check("largest slope over the bound", max(spectral), "<=", 1 + ROUNDING),
            ),
            Claim(
                "ours: path sums",
                "(in no paper) |W| in place of C: sums over paths, a bound and never looser",
                Check(
                    "largest of slope / path sum and path sum / (i)",
                    max(*paths, *order),
                    "<=",
                    1 + 1e-9,
                ),
            ),
            Claim(
                "ours: product of spectral norms",
                "(in no paper) the product of the spectral norms is never worse than (ii)",
                Check(
                    "largest of slope / product and product / sigma^L",
                    max(product),
                    "<=",
                    1 + 1e-9,
                ),
            ),
            Claim(
                "Section 3.2: C <= 1/N",
                "the bound (i) does not grow with the depth if and only if C <= 1/N",
                Check(
                    "bound at 12 layers over the one at 3, C = 1/N (it grows at C = 1.5/N)",
                    bounds[-1] / bounds[0] if growing[-1] > growing[0] else math.inf,
                    "<=",
                    1 + 1e-9,
                ),
            ),
            Claim(
                "Section 3.2: Frobenius norms",
                "Frobenius norms of at most 1 keep the spectral norms, and so the slope, at most 1",
                Check("largest spectral norm or slope", _frobenius(world), "<=", 1 + ROUNDING),
            ),
        ),
        figure=None
        if world.tiny
        else _draw(depths, {"C = 1/N": bounds, "C = 1.5/N": growing}, local, paths),
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
        wrong = (allowed[0] == allowed[1]) | (d != allowed[1])
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


def _range_error(world: Pieces, rng: np.random.Generator) -> float:
    """How far f - b is from the span of the last matrix's active columns, at points of a region,
    for a network with more outputs than units before them."""
    net = world.network(rng, (3, 5, 4, 8))
    region = world.region_at(net, rng.normal(size=3))
    center = region.interior_point
    x = center + np.geomspace(1e-3, 3, 100)[:, None] * rng.normal(size=(100, 3))
    x = np.vstack([center, x[region.polytope.contains(x)]])
    last = np.asarray(net.weights()[0][-1])[:, region.supports[-1]]
    values = (net(x) - region.atoms().bias).T
    if not last.size:
        return float(np.abs(values).max())
    return float(np.abs(values - last @ np.linalg.lstsq(last, values, rcond=None)[0]).max())


def _affine_error(net: Network, region: Any, rng: np.random.Generator) -> float:
    """|A x + c - f(x)| at points of the polytope, its interior point among them."""
    center = region.interior_point
    x = center + np.geomspace(1e-3, 3, 300)[:, None] * rng.normal(size=(300, len(center)))
    x = np.vstack([center, x[region.polytope.contains(x)]])
    A, c = region.affine
    return float(np.abs(x @ A.T + c - net(x)).max())


def _listed_paths(weights: list[Array], supports: Any) -> tuple[Array, int]:
    """Theorem 5 (iii) word by word: every active path listed; and how many a coefficient has."""
    first, *middle, last = supports
    paths = list(itertools.product(*middle))
    total = np.zeros((len(last), len(first)))
    for (i, end), (j, start) in itertools.product(enumerate(last), enumerate(first)):
        for path in paths:
            stops = (start, *path, end)
            steps = zip(weights[1:-1], itertools.pairwise(stops), strict=True)
            total[i, j] += math.prod(float(w[b, a]) for w, (a, b) in steps)
    return total, len(paths)


def _global_bound(world: Pieces, net: Network) -> float:
    weights = [np.asarray(w) for w in net.weights()[0]]
    largest, width = max(np.abs(w).max() for w in weights[1:-1]), max(net.widths[1:-1])
    return world.global_bound(float(largest), width, len(weights))


def _frobenius(world: Pieces) -> float:
    """Spectral norms and slopes of networks whose matrices have Frobenius norm 1."""
    rng, worst = world.rng, 0.0
    for layers in (2, 4, 8):
        weights, biases = world.network(rng, (3, *([6] * layers), 2)).weights()
        unit = [np.asarray(w) / np.linalg.norm(np.asarray(w)) for w in weights]
        net = Network.from_weights(unit, biases)
        slopes = np.linalg.norm(net.jacobian(rng.normal(size=(200, 3))), 2, axis=(1, 2))
        norms = world.theorem6(net).spectral ** (1 / len(unit))
        worst = max(worst, float(slopes.max()), norms)
    return worst


def _by_depth(world: Pieces, depths: list[int], factor: float) -> list[float]:
    """Theorem 6 (i) with C = factor/N at growing depth, width 5."""
    bounds = []
    for layers in depths:
        net = _normalized(world, world.rng, (2, *([5] * (layers - 1)), 2))
        weights, biases = net.weights()
        weights = [np.asarray(w) for w in weights]
        largest = max(np.abs(w).max() for w in weights[1:-1])
        inner = [w * factor / (5 * largest) for w in weights[1:-1]]
        scaled = Network.from_weights([weights[0], *inner, weights[-1]], biases)
        bounds.append(world.theorem6(scaled).count)
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

"""Seed 003, the maps on the pieces: (5) to (12), Theorems 5 and 6; and gradients of a loss through
the layers, (13) to (15)."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.pieces import Pieces

claim, exhibit = words_of("pieces")

Array = NDArray[np.float64]
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
    return exhibit(
        world.settings(),
        "atoms",
        claim("(5)-(9) rectifier as a diagonal matrix", max(diagonal)),
        claim("(10) affine map of a configuration", max(affine)),
        claim("Theorem 5 (i)", max(theorem5[2])),
        claim("Theorem 5 (ii)", max(theorem5[3])),
        claim("Theorem 5 (iii), (11)", max(theorem5[4])),
        claim("(12) coefficients and bias", max(twelve)),
        claim("after (12): range of a piece", max(ranges)),
    )


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
    return exhibit(
        world.settings(),
        "theorem6",
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
        figure=None
        if world.tiny
        else _draw(depths, {f"C = {k:g}/N": v for k, v in bounds.items()}, local, paths),
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


def gradients(world: Pieces) -> Exhibit:
    """Gradients of the loss |y_L|^2 / 2 (beta = 1) through random networks of three and four layers
    against torch's autograd; of it and of its changes within a region, every layer, for a chain of
    units whose last weight is 50, for a network of ones and for ten random networks; ten affine
    maps with biases; norms of random matrices and of matrices of ones, 1 x 1 to 20 x 20."""
    rng = world.rng
    shapes = ((3, 6, 5, 2), (3, 5, 6, 4, 2)) * 5
    backward = [_backward_error(world, world.network(rng, shape), rng) for shape in shapes]
    moved, differences = zip(*(_differences(world, rng) for _ in range(10)), strict=True)
    chain = Network.from_weights([[[1.0]], [[1.0]], [[world.last_weight], [0.0]]])
    ones = Network.from_weights([np.ones((3, 3))] * 4)
    others = [(ones, np.ones(3))]
    others += [(world.network(rng, shape), rng.normal(size=3)) for shape in shapes]
    printed = _over_bounds(world, chain, np.ones(1), inner=True)
    found = [_over_bounds(world, net, x) for net, x in ((chain, np.ones(1)), *others)]
    size, change, change_in_x = np.max(found, axis=0)
    theta = float(world.pattern(Network.from_weights([[[1.0]], [[1.0]]]), np.zeros((1, 1)))[0, 0])
    return exhibit(
        world.settings(),
        "gradients",
        claim("(13) backward pass", max(backward)),
        claim("(13) derivative at 0", theta, _torch_derivative(world) - theta),
        claim("before (14): norm of a matrix", _norm_ratio(world, rng)),
        claim("(14) largest gradient", printed[0], size),
        claim("(15) smoothness", printed[1], change),
        claim("after (15): a difference of inputs", max(moved), max(differences)),
        claim("Section 3.2: smoothness in x", printed[2], change_in_x),
    )


def _over_bounds(
    world: Pieces, net: Network, x: Array, inner: bool = False
) -> tuple[float, float, float]:
    """For Loss = |y_L|^2 / 2 (beta = 1), at x and at a longer one of its region, over all k: the
    larger of |dLoss/dy_k| over the product of norms in (14) and of that over the power; the change
    of dLoss/dy_k over (15); that of dLoss/dx over the bound in x. C and N without the outer
    matrices and widths if ``inner``, else with those that the bound needs."""
    weights = [np.asarray(w) for w in net.weights()[0]]
    layers = len(weights)
    region = world.region_at(net, x)
    step = x
    while (net.pattern(np.array([x + step])) != region.pattern).any():
        step = step / 2
    points = [x, x + step]
    y = [net(point) for point in points]
    stop = layers - 1 if inner else layers
    C = max(float(np.abs(w).max()) for w in weights[1:stop])
    N = max(net.widths[1 : stop + 1])
    size, change = [], []
    gradients, norms, power = y, 1.0, 0
    for w, on in zip(weights[:0:-1], region.configuration[::-1], strict=True):
        gradients = [on * (w.T @ g) for g in gradients]
        norms, power = norms * float(np.linalg.norm(w, 2)), power + 1
        bound = world.power_bound(N, C, power)
        size += [_over(norm(gradients[0]), norms * norm(y[0])), norms / bound]
        change.append(_over(norm(gradients[1] - gradients[0]), bound * norm(y[1] - y[0])))
    if not inner:
        C, N = max(float(np.abs(w).max()) for w in weights), max(net.widths)
    in_x = norm(weights[0].T @ (gradients[1] - gradients[0])) / norm(points[1] - points[0])
    return max(size), max(change), in_x / world.power_bound(N, C, 2 * layers)


def norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))


def _over(size: float, bound: float) -> float:
    """size / bound; 0 is within a bound of 0."""
    return size / bound if size else 0.0


def _differences(world: Pieces, rng: np.random.Generator) -> tuple[float, float]:
    """|M(x - x')| and |Mx - Mx'| over the product of the spectral norms and |x - x'|, for a small
    step inside a region."""
    net = world.network(rng, (3, 6, 5, 2))
    A, c = world.product(net, world.region_at(net, rng.normal(size=3)).configuration)
    step = 1e-3 * rng.normal(size=3)
    product = math.prod(float(np.linalg.norm(np.asarray(w), 2)) for w in net.weights()[0])
    bound = product * norm(step)
    return norm(A @ step + c) / bound, norm(A @ step) / bound


def _norm_ratio(world: Pieces, rng: np.random.Generator) -> float:
    """The largest |B| over its estimate by |B|_max, random matrices and matrices of ones."""
    ratios = []
    for shape in ((1, 1), (1, 7), (3, 5), (8, 2), (4, 9), (20, 20)):
        for B in (*rng.normal(size=(10, *shape)), np.ones(shape)):
            ratios.append(np.linalg.norm(B, 2) / (world.norm_factor(*shape) * np.abs(B).max()))
    return float(max(ratios))


def _backward_error(world: Pieces, net: Network, rng: np.random.Generator) -> float:
    """(13) for Loss = |y_L|^2 / 2 against torch's autograd, every hidden layer."""
    import torch

    weights, biases = (list(map(np.asarray, part)) for part in net.weights())
    x = rng.normal(size=net.input_size)
    kept, value = [], torch.tensor(x)
    for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
        value = torch.tensor(w) @ value + torch.tensor(b)
        if k < len(weights) - 1:
            value.requires_grad_(True) if value.is_leaf else value.retain_grad()
            kept.append(value)
            value = world.relu(value)
    (value.square().sum() / 2).backward()
    gradient = net(x)
    worst = 0.0
    for k in range(len(kept) - 1, -1, -1):
        on = net.preactivations(x[None])[k][0] > 0
        gradient = on * (weights[k + 1].T @ gradient)
        worst = max(worst, float(np.abs(kept[k].grad.numpy() - gradient).max()))  # type: ignore[union-attr]
    return worst


def _torch_derivative(world: Pieces) -> float:
    import torch

    zero = torch.zeros(1, requires_grad=True)
    world.relu(zero).sum().backward()
    return float(zero.grad)  # type: ignore[arg-type]

"""Seed 003, the maps on the pieces: (5) to (15), Theorems 5 and 6."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.lipschitz.theorem6 import theorem6
from relunorm.network import Activation, Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, Make, Sample, from_claims, shows
from relunorm.papers.random_networks import he_network
from relunorm.regions.enumerate import regions
from relunorm.regions.region import region_at

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10


@shows(
    "(5)-(9) rectifier as a diagonal matrix",
    "(10) affine map of a configuration",
    "Theorem 5 (i)",
    "Theorem 5 (ii)",
    "Theorem 5 (iii), (11)",
    "(12) coefficients and bias",
)
def atoms(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Theorem 5: the linear part as a sum of rank-one atoms, weights summed over paths."""
    rng = np.random.default_rng(random_state)
    trials = 50 if full else 10
    diagonal, affine, one, two, three, twelve = ([] for _ in range(6))
    for _ in range(trials):
        for widths in ((3, 6, 2), (3, 6, 5, 2), (3, 5, 4, 4, 2)):
            net = he_network(rng, widths)
            x = rng.normal(size=3)
            region = region_at(net, x)
            diagonal.append(_diagonal(net, rng.normal(size=(50, 3))))
            affine.append(_affine_error(net, region, rng))
            found = region.atoms()
            weights = [np.asarray(w) for w in net.weights()[0]]
            twelve.append(np.abs(found.outer @ found.alpha(x) + found.bias - net(x)).max())
            if len(widths) == 3:
                one.append(max(found.error, abs(len(found) - len(region.supports[0]))))
            elif len(widths) == 4:
                inner = weights[1][np.ix_(found.last, found.first)]
                two.append(max(found.error, np.abs(inner - found.coefficients).max(initial=0)))
            else:
                listed = _listed_paths(weights, region.supports)
                three.append(max(found.error, np.abs(listed - found.coefficients).max(initial=0.0)))
    return from_claims(
        "atoms",
        "(5)-(12) and Theorem 5: affine maps and their atoms",
        (
            Claim(
                "(5)-(9) rectifier as a diagonal matrix",
                "a = D y with the 0/1 matrix D of (6), which (7)-(9) characterize",
                Check("largest violation", max(diagonal), "<=", 0),
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
                "more: sums of products of weights over all active paths",
                Check("largest difference from listing the paths", max(three), "<=", ROUNDING),
            ),
            Claim(
                "(12) coefficients and bias",
                "f(x) = sum of alpha(x) w_L,i plus the bias b",
                Check("largest difference", max(twelve), "<=", ROUNDING),
            ),
        ),
        settings={"random_state": random_state},
    )


@shows(
    "Theorem 6 (i)",
    "Theorem 6 (i), global",
    "Theorem 6 (i), tight",
    "Theorem 6 (ii)",
    "derived: path sums",
    "derived: product of spectral norms",
    "Section 3.2: C <= 1/N",
    cost=2,
)
def theorem6_table(
    data: Sample | None = None, full: bool = False, random_state: int = 0
) -> Exhibit:
    """Theorem 6: bounds on the Lipschitz constant of every region, beside sharper ones."""
    rng = np.random.default_rng(random_state)
    local, everywhere, spectral, paths, product, order = ([] for _ in range(6))
    for _ in range(10 if full else 4):
        net = _normalized(rng, (2, 6, 5, 4, 2))
        found = regions(net, Box.cube(2, -2, 2))
        norms = np.linalg.norm(found.affine()[0], 2, axis=(1, 2))
        whole = theorem6(net)
        for x, norm in zip(found.points, norms, strict=True):
            here = theorem6(net, at=x)
            local.append(norm / here.count if here.count else 0.0)
            paths.append(norm / here.paths if here.paths else 0.0)
            order.append(here.paths / here.count if here.count else 0.0)
        everywhere.append(norms.max() / _global_bound(net))
        spectral.append(norms.max() / whole.spectral)
        product.append(max(norms.max() / whole.gradients[0], whole.gradients[0] / whole.spectral))
    ones = Network.from_weights([np.ones((3, 1)), np.ones((3, 3)), np.ones((1, 3))])
    reached = np.linalg.norm(ones.jacobian([1.0]), 2) / theorem6(ones, at=[1.0]).count
    depths = list(range(3, 13))
    bounds, growing = (_by_depth(rng, depths, factor) for factor in (1.0, 1.5))
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
                "Theorem 6 (i), tight",
                "(derived) a network of ones reaches the bound of part (i)",
                Check("slope over the bound", reached, "=", 1, 1e-9),
            ),
            Claim(
                "Theorem 6 (ii)",
                "sigma^L is a Lipschitz constant",
                Check("largest slope over the bound", max(spectral), "<=", 1 + ROUNDING),
            ),
            Claim(
                "derived: path sums",
                "(in no paper) |W| in place of C: sums over paths, a bound and never looser",
                Check(
                    "largest of slope / path sum and path sum / (i)",
                    max(*paths, *order),
                    "<=",
                    1 + 1e-9,
                ),
            ),
            Claim(
                "derived: product of spectral norms",
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
                "with C = 1/N the bound (i) does not grow with the depth",
                Check("bound at 12 layers over the one at 3", bounds[-1] / bounds[0], "<=", 1.001),
            ),
        ),
        figure=_draw(depths, {"C = 1/N": bounds, "C = 1.5/N": growing}, local, paths),
        settings={"random_state": random_state},
    )


@shows(
    "(13) backward pass",
    "(13) derivative at 0",
    "(14) largest gradient",
    "(15) smoothness",
    "Section 3.2: smoothness in x",
)
def gradients(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """(13)-(15): gradients of a loss through the layers, on a network with a large last layer."""
    rng = np.random.default_rng(random_state)
    backward = [_backward_error(he_network(rng, (3, 6, 5, 2)), rng) for _ in range(10)]
    net = Network.from_weights([[[1.0]], [[1.0]], [[50.0], [0.0]]])
    bounds = theorem6(net)
    # (14) and (15) print C over W_2 .. W_(L-1) and N over N_1 .. N_(L-1): both are 1 here.
    inner = [np.asarray(w) for w in net.weights()[0]][1:-1]
    weight, width = max(np.abs(w).max() for w in inner), max(net.widths[1:-1])
    layers = len(net.weights()[0])
    slope = np.linalg.norm(_chain(net, 1), 2)  # |dLoss/dy_1| / |dLoss/dy_L|, in every direction
    whole = np.linalg.norm(net.jacobian([1.0]), 2)
    printed = (width * weight) ** (layers - 1)
    fixed = bounds.printed_gradients[1]
    in_x = (width * weight) ** (2 * layers)
    in_x_fixed = bounds.printed_gradients[0] ** 2
    return from_claims(
        "gradients",
        "(13)-(15): gradients and their smoothness",
        (
            Claim(
                "(13) backward pass",
                "dLoss/dy_k is a product of transposed weights and 0/1 matrices",
                Check("largest difference from torch's autograd", max(backward), "<=", ROUNDING),
            ),
            Claim(
                "(13) derivative at 0",
                "the rectifier's derivative at 0 is 1, while (6) takes 0",
                Check("torch's derivative at 0", _torch_derivative(), "=", 1),
                "0 in both, as in torch",
                Check(
                    "this package's derivative at 0",
                    float(Activation("relu").derivative(np.zeros(1))[0]),
                    "=",
                    _torch_derivative(),
                ),
            ),
            Claim(
                "(14) largest gradient",
                "|dLoss/dy_k| <= (N C)^(L-k) |dLoss/dy_L|, C and N over the inner layers",
                Check("|dLoss/dy_1| over the bound, last layer 50", slope / printed, "<=", 1),
                "C and N must include W_1, W_L, N_0 and N_L",
                Check("|dLoss/dy_1| over the bound", slope / fixed, "<=", 1),
            ),
            Claim(
                "(15) smoothness",
                "dLoss/dy_k is beta (N C)^(L-k)-Lipschitz in y_L, same C and N",
                Check("change of dLoss/dy_1 over the bound (beta = 1)", slope / printed, "<=", 1),
                "with C and N over everything",
                Check("change over the bound", slope / fixed, "<=", 1),
            ),
            Claim(
                "Section 3.2: smoothness in x",
                "dLoss/dx is beta (N C)^(2L)-Lipschitz in x, same C and N",
                Check("change of dLoss/dx over the bound (beta = 1)", whole**2 / in_x, "<=", 1),
                "with C and N over everything",
                Check("change over the bound", whole**2 / in_x_fixed, "<=", 1),
            ),
        ),
        settings={"random_state": random_state},
    )


def _normalized(rng: np.random.Generator, widths: tuple[int, ...]) -> Network:
    """Unit rows of W_1 and unit columns of W_L, as Theorem 6 (i) asks."""
    weights, biases = he_network(rng, widths).weights()
    weights = [np.asarray(w) for w in weights]
    weights[0] = weights[0] / np.linalg.norm(weights[0], axis=1, keepdims=True)
    weights[-1] = weights[-1] / np.linalg.norm(weights[-1], axis=0)
    return Network.from_weights(weights, biases)


def _diagonal(net: Network, x: Array) -> float:
    """How far a = D y, (7), (8) and (9) are violated, D read off the pattern."""
    worst = 0.0
    start = 0
    pattern = net.pattern(x)
    for y, a in zip(net.preactivations(x), net.values(x)[1:], strict=False):
        d = pattern[:, start : start + y.shape[1]].astype(float)
        start += y.shape[1]
        worst = max(worst, np.abs(d * y - a).max(), (-d * y).max(), ((1 - d) * y).max())
    return float(worst)


def _affine_error(net: Network, region: Any, rng: np.random.Generator) -> float:
    """|A x + c - f(x)| at points of the polytope, its interior point among them."""
    center = region.interior_point
    x = center + np.geomspace(1e-3, 3, 300)[:, None] * rng.normal(size=(300, len(center)))
    x = np.vstack([center, x[region.polytope.contains(x)]])
    A, c = region.affine
    return float(np.abs(x @ A.T + c - net(x)).max())


def _listed_paths(weights: list[Array], supports: Any) -> Array:
    """Theorem 5 (iii) word by word: every active path listed."""
    first, *middle, last = supports
    total = np.zeros((len(last), len(first)))
    for (i, end), (j, start) in itertools.product(enumerate(last), enumerate(first)):
        for path in itertools.product(*middle):
            stops = (start, *path, end)
            steps = zip(weights[1:-1], itertools.pairwise(stops), strict=True)
            total[i, j] += math.prod(float(w[b, a]) for w, (a, b) in steps)
    return total


def _global_bound(net: Network) -> float:
    weights = [np.asarray(w) for w in net.weights()[0]]
    largest, width = max(np.abs(w).max() for w in weights[1:-1]), max(net.widths[1:-1])
    return float((largest * width) ** (len(weights) - 2) * width)


def _by_depth(rng: np.random.Generator, depths: list[int], factor: float) -> list[float]:
    """Theorem 6 (i) with C = factor/N at growing depth, width 5."""
    bounds = []
    for layers in depths:
        net = _normalized(rng, (2, *([5] * (layers - 1)), 2))
        weights, biases = net.weights()
        weights = [np.asarray(w) for w in weights]
        largest = max(np.abs(w).max() for w in weights[1:-1])
        inner = [w * factor / (5 * largest) for w in weights[1:-1]]
        scaled = Network.from_weights([weights[0], *inner, weights[-1]], biases)
        bounds.append(theorem6(scaled).count)
    return bounds


def _chain(net: Network, k: int) -> Array:
    """dy_L / dy_k of a chain whose units are all on."""
    weights = [np.asarray(w) for w in net.weights()[0]]
    total = np.eye(weights[k].shape[1])
    for w in weights[k:]:
        total = w @ total
    return total


def _backward_error(net: Network, rng: np.random.Generator) -> float:
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
            value = torch.relu(value)
    (value.square().sum() / 2).backward()
    gradient = net(x)
    worst = 0.0
    for k in range(len(kept) - 1, -1, -1):
        on = net.preactivations(x[None])[k][0] > 0
        gradient = on * (weights[k + 1].T @ gradient)
        worst = max(worst, float(np.abs(kept[k].grad.numpy() - gradient).max()))  # type: ignore[union-attr]
    return worst


def _torch_derivative() -> float:
    import torch

    zero = torch.zeros(1, requires_grad=True)
    torch.relu(zero).sum().backward()
    return float(zero.grad)  # type: ignore[arg-type]


def _draw(
    depths: list[int], bounds: dict[str, list[float]], local: list[float], paths: list[float]
) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
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


EXHIBITS: dict[str, Make] = {"atoms": atoms, "theorem6": theorem6_table, "gradients": gradients}

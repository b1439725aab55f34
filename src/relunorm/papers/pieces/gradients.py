"""Seed 003, (13) to (15): gradients of a loss through the layers, and how smooth they are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relunorm.network import Network
from relunorm.papers.checklist import claims_of
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.pieces.laws import Pieces

claim = claims_of("pieces")

Array = NDArray[np.float64]


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
    return from_claims(
        "gradients",
        "(13)-(15): gradients and their smoothness",
        (
            claim("(13) backward pass", max(backward)),
            claim("(13) derivative at 0", theta, _torch_derivative(world) - theta),
            claim("before (14): norm of a matrix", _norm_ratio(world, rng)),
            claim("(14) largest gradient", printed[0], size),
            claim("(15) smoothness", printed[1], change),
            claim("after (15): a difference of inputs", max(moved), max(differences)),
            claim("Section 3.2: smoothness in x", printed[2], change_in_x),
        ),
        settings=world.settings(),
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

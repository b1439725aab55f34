"""Seed 003, (13) to (15): gradients of a loss through the layers, and how smooth they are."""

from __future__ import annotations

import math

import numpy as np

from relunorm.network import Activation, Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.pieces.laws import ROUNDING, Pieces


def gradients(world: Pieces) -> Exhibit:
    """Gradients of a squared loss through random networks against torch's autograd; a chain of
    units whose last weight is 50; ten affine maps with biases; norms of random matrices and of
    matrices of ones, 1 x 1 to 20 x 20."""
    rng = world.rng
    backward = [_backward_error(world, world.network(rng, (3, 6, 5, 2)), rng) for _ in range(10)]
    moved, differences = zip(*(_differences(world, rng) for _ in range(10)), strict=True)
    net = Network.from_weights([[[1.0]], [[1.0]], [[world.last_weight], [0.0]]])
    bounds = world.theorem6(net)
    # (14) and (15) print C over W_2 .. W_(L-1) and N over N_1 .. N_(L-1): both are 1 here.
    inner = [np.asarray(w) for w in net.weights()[0]][1:-1]
    weight, width = max(np.abs(w).max() for w in inner), max(net.widths[1:-1])
    layers = len(net.weights()[0])
    slope, change, in_x_change = _changes(net)
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
                Check("torch's derivative at 0", _torch_derivative(world), "=", 1),
                "0 in both, as in torch",
                Check(
                    "this package's derivative at 0",
                    float(Activation("relu").derivative(np.zeros(1))[0]),
                    "=",
                    _torch_derivative(world),
                ),
            ),
            Claim(
                "before (14): norm of a matrix",
                "|B| <= sqrt(mn) |B|_max for an m x n matrix B",
                Check(
                    "largest norm over the estimate, random matrices and matrices of ones",
                    _norm_ratio(world, rng),
                    "<=",
                    1 + ROUNDING,
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
                Check("change of dLoss/dy_1 over the bound (beta = 1)", change / printed, "<=", 1),
                "with C and N over everything",
                Check("change over the bound", change / fixed, "<=", 1),
            ),
            Claim(
                "after (15): a difference of inputs",
                "|M(x - x')| <= |W_L| ... |W_1| |x - x'| for the affine map M of a region",
                Check("largest ratio, networks with biases", max(moved), "<=", 1),
                "|Mx - Mx'|, in which the constant of M cancels",
                Check("largest ratio", max(differences), "<=", 1),
            ),
            Claim(
                "Section 3.2: smoothness in x",
                "dLoss/dx is beta (N C)^(2L)-Lipschitz in x, same C and N",
                Check("change of dLoss/dx over the bound (beta = 1)", in_x_change / in_x, "<=", 1),
                "with C and N over everything",
                Check("change over the bound", in_x_change / in_x_fixed, "<=", 1),
            ),
        ),
        settings=world.settings(),
    )


def _changes(net: Network) -> tuple[float, float, float]:
    """For Loss = |y_L|^2 / 2 (beta = 1) of a chain whose units are on at x = 1 and x = 2:
    |dLoss/dy_1| / |dLoss/dy_L|, and the change of dLoss/dy_1 over that of y_L, of dLoss/dx over
    that of x."""
    first, *rest = (np.asarray(w) for w in net.weights()[0])
    tail = np.linalg.multi_dot([*rest[::-1], np.eye(rest[0].shape[1])])
    y = [net([float(t)]) for t in (1, 2)]
    at_y = [tail.T @ v for v in y]
    at_x = [first.T @ g for g in at_y]
    size = np.linalg.norm
    return (
        float(size(at_y[0]) / size(y[0])),
        float(size(at_y[1] - at_y[0]) / size(y[1] - y[0])),
        float(size(at_x[1] - at_x[0])),
    )


def _differences(world: Pieces, rng: np.random.Generator) -> tuple[float, float]:
    """|M(x - x')| and |Mx - Mx'| over the product of the spectral norms and |x - x'|, for a small
    step inside a region."""
    net = world.network(rng, (3, 6, 5, 2))
    A, c = world.region_at(net, rng.normal(size=3)).affine
    step = 1e-3 * rng.normal(size=3)
    product = math.prod(float(np.linalg.norm(np.asarray(w), 2)) for w in net.weights()[0])
    bound = product * float(np.linalg.norm(step))
    return float(np.linalg.norm(A @ step + c)) / bound, float(np.linalg.norm(A @ step)) / bound


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

"""Theorem 6 and equations (13)-(15) of seed 003, with the constants corrected (docs/errata.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm import matrix as mx
from relunorm.arithmetic.floats import scaled_up
from relunorm.display.shown import entries
from relunorm.domain.base import lengths
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.io.border import Model, accepts
from relunorm.lipschitz.norms import Deadline, operator_norm, round_up
from relunorm.matrix import Matrix
from relunorm.network import Network

METHODS = ("Theorem 6(i)", "Theorem 6(i), path sums", "Theorem 6(ii)")


@dataclass(frozen=True)
class Theorem6:
    """Bounds on the l2 Lipschitz constant of one region or of the whole network, and on gradients.

    Args:
        supports: |spt theta_k| per hidden layer: the active units of the region, or all of them.
        count: part (i), a_1 a_L C^(L-2) prod |spt theta_k|, with a_1 the largest row norm of W_1,
            a_L the largest column norm of W_L (both 1 under the theorem's normalisation) and C the
            largest |weight| of W_2 .. W_{L-1}.
        paths: part (i) with C replaced by |W|: sum over i, j of
            |w_L,i| (|W_{L-1}| ... |W_2|)_ij |w_1,j| over the supports. Never above ``count``.
        spectral: part (ii), sigma^L with sigma the largest spectral norm.
        weight: C of (14) and (15): the largest |weight| of ALL matrices, W_1 and W_L included.
        width: N of (14) and (15): the largest of N_0 .. N_L, input and output included.
        gradients: per k = 0 .. L, a bound on |dLoss/dy_k| / |dLoss/dy_L| (k = 0 is the input):
            the product of the spectral norms of W_{k+1} .. W_L, the middle term of (14).
        printed_gradients: the right-hand side of (14), (N C)^(L-k). Never below ``gradients``.
    """

    supports: tuple[int, ...]
    count: float
    paths: float
    spectral: float
    weight: float
    width: int
    gradients: tuple[float, ...]
    printed_gradients: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; bounds above float64 become None."""
        return {
            "schema": "relunorm.theorem6/1",
            **entries(
                self, "supports count paths spectral weight width gradients printed_gradients"
            ),
        }


@accepts("network")
def theorem6(
    network: Model, at: ArrayLike | None = None, within: Deadline | None = None
) -> Theorem6:
    """Theorem 6(i), (ii) and (13)-(15) of seed 003: sound bounds in l2, per region or global.

    Args:
        network: a plain ReLU perceptron with at least one hidden layer.
        at: a point; the bounds are then those of its region (fewer active units, smaller bounds).
            Without it they are global.
        within: spectral norms that cannot be had before it are bounded roughly.

    Weights may have any size; a bound above float64 is infinite, one below it 5e-324.

    >>> from relunorm.network import Network
    >>> bounds = theorem6(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]))
    >>> round(bounds.count, 9), round(bounds.spectral, 9)
    (2.0, 2.0)
    """
    network = network.folded()
    kinds = {layer.activation.kind for layer in network.layers}
    if not (network.is_chain and kinds == {"relu"}):
        raise InvalidNetworkError(
            f"Theorem 6 is about plain ReLU perceptrons with a hidden layer, not {network!r}; "
            "use lipschitz(), whose norm product and absolute paths take any network"
        )
    active = _supports(network, at)
    return _bounds(network, active, within)


def _bounds(network: Network, active: list[Any], within: Deadline | None) -> Theorem6:
    weights, exponents = zip(*map(_to_size, network.weights()[0]), strict=True)
    norms = [operator_norm(matrix, 2.0, within) for matrix in weights]
    largest = [float(np.abs(mx.entries(w)).max(initial=0.0)) for w in weights]
    depth, width = len(weights), max(network.widths)
    terms, total = 4 * sum(network.widths), sum(exponents)
    weight = max(map(math.ldexp, largest, exponents))
    sigma = max(map(scaled_up, norms, exponents))
    return Theorem6(
        supports=tuple(int(keep.sum()) for keep in active),
        count=_count(weights, exponents, active, terms),
        paths=scaled_up(_paths(weights, active, terms), total),
        spectral=_product([sigma] * depth, 0, terms),
        weight=weight,
        width=width,
        gradients=tuple(_product(norms[k:], sum(exponents[k:]), depth) for k in range(depth + 1)),
        printed_gradients=tuple(
            _product([float(width), weight] * (depth - k), 0, depth) for k in range(depth + 1)
        ),
    )


def _to_size(matrix: Matrix) -> tuple[Matrix, int]:
    """A matrix with largest entry below 1 and the power of two that was taken out of it."""
    top = float(np.abs(mx.entries(matrix)).max(initial=0.0))
    exponent = math.frexp(top)[1]
    if abs(exponent) < 64:
        return matrix, 0
    with np.errstate(under="ignore"):
        rows = np.full(matrix.shape[0], math.ldexp(1.0, -(exponent // 2)))
        rest = np.full(matrix.shape[0], math.ldexp(1.0, exponent // 2 - exponent))
        return mx.scale_rows(mx.scale_rows(matrix, rows), rest), exponent


def _product(factors: list[float], exponent: int, terms: int) -> float:
    """The product of non-negative factors times 2^exponent, rounded up, whatever their size.

    Infinite where a factor is; 0 only where one is 0.
    """
    value = 1.0
    for factor in factors:
        if math.isinf(factor):
            return math.inf
        mantissa, own = math.frexp(factor)
        value, carry = math.frexp(value * mantissa)
        exponent += own + carry
    return scaled_up(round_up(value, terms + len(factors)), exponent)


def _supports(network: Network, at: ArrayLike | None) -> list[np.ndarray[Any, Any]]:
    if at is None:
        return [np.ones(layer.width, dtype=bool) for layer in network.layers]
    point = np.asarray(at, dtype=np.float64)
    if point.size != network.input_size or not np.isfinite(point).all():
        raise InvalidInputError(
            f"'at' has shape {point.shape}, expected one finite point of {network.input_size} "
            "entries"
        )
    pattern = network.pattern(point.ravel())
    cuts = np.cumsum([layer.width for layer in network.layers])[:-1]
    return list(np.split(pattern, cuts))


def _ends(weights: Sequence[Matrix], active: list[Any]) -> tuple[Any, Any]:
    """Norms of W_1's rows and of W_L's columns over the supports."""
    first, last = mx.dense(weights[0]), mx.dense(weights[-1])
    return lengths(first)[active[0]], lengths(last.T)[active[-1]]


def _count(
    weights: Sequence[Matrix], exponents: Sequence[int], active: list[Any], terms: int
) -> float:
    rows, columns = _ends(weights, active)
    inner = zip(weights[1:-1], exponents[1:-1], strict=True)
    middle = [
        math.ldexp(float(np.abs(mx.entries(w)).max(initial=0.0)), exponent) for w, exponent in inner
    ]
    factors = [float(rows.max(initial=0.0)), float(columns.max(initial=0.0))]
    factors += [max(middle, default=1.0)] * len(middle) + [float(keep.sum()) for keep in active]
    return _product(factors, exponents[0] + exponents[-1], terms)


def _paths(weights: Sequence[Matrix], active: list[Any], terms: int) -> float:
    """Of matrices with entries of at most about 1."""
    rows, columns = _ends(weights, active)
    flow = np.zeros(len(active[0]))
    flow[active[0]] = rows
    for matrix, keep in zip(weights[1:-1], active[1:], strict=True):
        flow = (abs(matrix) @ flow) * keep
    value = round_up(float(columns @ flow[active[-1]]), terms)
    # Path products may have fallen below float64 in between; 2^-900 is more than they all were.
    return value if value > 2.0**-800 or not (rows.any() and columns.any()) else value + 2.0**-900

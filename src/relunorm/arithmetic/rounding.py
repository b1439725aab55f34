"""How far float64 can be from real arithmetic along a network, given bounds on its units.

A sum of n products is off by at most n u times the sum of their absolute values, u = 2^-53, in
any order of summation (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
So every row of every map adds an error of its own,

    d_k = share (|W_k| s + |b_k|),

s being the sizes of what the row reads. What that does to the outputs is |J_k| d_k, where J_k is
the derivative of the outputs by the pre-activations of layer k, every unit with a slope it can
have on the domain. J_k is enclosed by a midpoint and a radius from the output down, so that what
cancels in a product of weights cancels in the bound, and a unit of one sign has one slope. Nothing
is summed along paths of the network that the domain does not use. The rounding of the midpoints
themselves is in the radius.

The sizes say what was computed: `magnitudes` of values for evaluations, and the sums of absolute
terms of the expressions that stable units were replaced by (`relunorm.extrema.localize`). With
matrices for sizes the same sums bound the error of Jacobians.

Bounds per layer are pairs (low, high) of vectors; layers without units need none.

`path_sums` and `roundings` are coarser and need no bounds: sums over all paths of a network, in
absolute values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic.floats import SMALLEST, TINY, UNIT, gamma, grain, up
from relunorm.matrix import Array, Vector
from relunorm.network import Activation, Affine, Network

if TYPE_CHECKING:
    from relunorm.domain import Domain

Bounds = Sequence[tuple[Vector, Vector]]

#: Roundings counted for every row besides those of its sum: slopes, shifts, window coordinates.
EXTRA = 8.0

#: For Jacobians also what the kernels take for rounding: a unit whose gradient is no more than that
#: has any of its slopes (`regions.kernels.pack.ROUNDING` is 64 units).
FLAT = 72.0

#: Gradients of a layer's units may take this many numbers; beyond, absolute paths bound them.
GRADIENT_ENTRIES = 1 << 22


def unknown_bounds(network: Network) -> list[tuple[Vector, Vector]]:
    """Bounds that say nothing, for a network on the whole space."""
    widths = [layer.width for layer in network.layers]
    return [(np.full(n, -np.inf), np.full(n, np.inf)) for n in widths]


def magnitudes(network: Network, bounds: Bounds, inputs: Vector) -> list[Vector]:
    """The largest |value| of every value, value 0 being the input with these sizes."""
    sizes = [inputs]
    for layer, (low, high) in zip(network.layers, bounds, strict=True):
        if layer.has_units:
            below, above = map(abs, layer.activation.slopes)
            top = np.where(high > 0, above * high, 0.0)
            size = np.maximum(top, np.where(low < 0, -below * low if below else 0.0, 0.0))
            if layer.activation.kind == "step":
                size = np.full(layer.width, max(1.0, abs(layer.activation.at_zero)))
        else:
            size = absolute(layer.affine, sizes)
        sizes.append(size * (1 + 2.0**-20))  # bounds may be those of a network equal up to rounding
    return sizes


def absolute(affine: Affine, sizes: Sequence[Any], constant: bool = True) -> Any:
    """|b| + |W| sizes, the sum of the absolute values of what a row adds up."""
    shape = (affine.size, *np.shape(sizes[0])[1:])
    total = np.array(np.abs(affine.bias)) if constant else np.zeros(shape)
    for source, matrix in affine.terms.items():
        total = total + abs(matrix) @ sizes[source]
    return total


def gradients(network: Network, bounds: Bounds) -> list[Array]:
    """Bounds on |d value / d input|, (width, inputs), for every value.

    Where that takes too much room: one column, bounds on the sums over the inputs.
    """
    d = network.input_size
    if d * max(network.widths) > GRADIENT_ENTRIES:
        return _absolute_gradients(network, bounds)
    middles, radii = [np.eye(d)], [np.zeros((d, d))]
    for layer, (low, high) in zip(network.layers, bounds, strict=True):
        middle, radius = np.zeros((layer.width, d)), np.zeros((layer.width, d))
        for source, matrix in layer.affine.terms.items():
            lost = gamma(matrix.shape[1] + 4 + 2 * len(layer.affine.terms))
            spread = radii[source] + lost * np.abs(middles[source])
            middle = middle + matrix @ middles[source]
            radius = radius + abs(matrix) @ spread
        least, most = slopes_on(layer.activation, low, high)
        middle, radius = scaled((middle, radius), least[:, None], most[:, None])
        middles.append(middle)
        radii.append(radius)
    return [_up(np.abs(m) + r) for m, r in zip(middles, radii, strict=True)]


def _absolute_gradients(network: Network, bounds: Bounds) -> list[Array]:
    sums = [np.ones((network.input_size, 1))]
    for layer, (low, high) in zip(network.layers, bounds, strict=True):
        least, most = slopes_on(layer.activation, low, high)
        size = np.maximum(np.abs(least), np.abs(most))
        sums.append(_up(size[:, None] * absolute(layer.affine, sums, constant=False)))
    return sums


def jacobians_are_exact(network: Network, half: Vector) -> bool:
    """Whether Jacobians in units of these half-widths are computed without any rounding.

    Weights that are multiples of a power of two, integers above all, make every product and sum a
    multiple of another; below 2^53 times that each of them is a float. So what cancels is 0. A
    power below those of float64 promises nothing: its multiples underflow.
    """
    grains, sums = [grain(half)], [np.abs(half)]
    for index, affine in enumerate(network.maps):
        total = absolute(affine, sums, constant=False)
        products = [grain(mx.entries(m)) * grains[k] for k, m in affine.terms.items()]
        least = min(products, default=np.inf)
        slopes = (1.0,)
        if index < len(network.layers):
            slopes = tuple(s for s in network.layers[index].activation.slopes if s)
        finest = least * grain(np.array(slopes))
        if min(finest, least) < SMALLEST:
            return False
        if not (total * max(map(abs, slopes), default=1.0) <= 2.0**52 * min(finest, least)).all():
            return False
        grains.append(finest)
        sums.append(total * max(map(abs, slopes), default=1.0))
    return True


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Bounds on |d outputs / d pre-activation| of every layer, (outputs, width)."""

    network: Network
    before: tuple[Array, ...]

    def total(self, sizes: Sequence[Any], constant: bool = True) -> Any:
        """How far the outputs can be off when every row adds up terms of these sizes.

        Args:
            sizes: of every value, as vectors or, for Jacobians, as matrices (width, columns).
            constant: whether biases are added up, too; Jacobians have none.
        """
        extra = EXTRA if constant else FLAT
        found = _local(self.network.output, sizes, constant, extra)
        for layer, sensitive in zip(self.network.layers, self.before, strict=True):
            found = found + sensitive @ _local(layer.affine, sizes, constant, extra)
        return _up(found)


def sensitivity(network: Network, bounds: Bounds) -> Sensitivity:
    """What a change of a unit does to the outputs, anywhere the bounds hold."""
    pending: dict[int, Enclosure] = {}
    pull(network.output, None, pending)
    before = []
    for index in range(len(network.layers) - 1, -1, -1):
        layer, (low, high) = network.layers[index], bounds[index]
        none = np.zeros((network.output_size, layer.width))
        upstream = pending.pop(index + 1, None)
        if upstream is None:
            before.append(none)
            continue
        here = scaled(upstream, *slopes_on(layer.activation, low, high))
        before.append(_up(np.abs(here[0]) + here[1]))
        pull(layer.affine, here, pending)
    return Sensitivity(network, tuple(before[::-1]))


def slopes_on(activation: Activation, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """The smallest and the largest slope a unit has between these pre-activations."""
    below, above = activation.slopes
    least = np.where(high <= 0, below, np.where(low >= 0, above, min(below, above)))
    most = np.where(high <= 0, below, np.where(low >= 0, above, max(below, above)))
    return least, most


def _local(affine: Affine, sizes: Sequence[Any], constant: bool, extra: float) -> Any:
    """What the roundings of a map's own rows add."""
    count = np.full(affine.size, len(affine.terms) + extra)
    for matrix in affine.terms.values():
        count = count + mx.row_counts(matrix)
    share = count * UNIT
    bulk = absolute(affine, sizes, constant)
    return (share if bulk.ndim == 1 else share[:, None]) * bulk + TINY


def _up(sums: Array) -> Array:
    """Non-negative sums of many terms, rounded up; NaN (0 times infinity) says nothing."""
    return np.where(np.isnan(sums), np.inf, sums * (1 + 2.0**-20))


#: A matrix and how far, entry by entry, the true one can be from it.
Enclosure: TypeAlias = "tuple[Array, Array]"


def scaled(enclosure: Enclosure, least: Array, most: Array) -> Enclosure:
    """An enclosure times slopes between ``least`` and ``most``, which are broadcast to it."""
    middle, radius = enclosure
    center, half = (least + most) / 2, (most - least) / 2 * (1 + 4 * gamma(1))
    size = np.abs(center) + half
    spread = np.abs(middle) * (half + 4 * gamma(1) * size) + radius * size
    return middle * center, up(spread, 4)


def pull(affine: Affine, upstream: Enclosure | None, pending: dict[int, Enclosure]) -> None:
    """Add the derivatives by the values a map reads, given those by its result."""
    for source, matrix in affine.terms.items():
        if upstream is None:
            middle = np.array(mx.dense(matrix))
            radius = np.zeros_like(middle)
        else:
            middle = np.asarray(upstream[0] @ matrix)
            spread = upstream[1] + gamma(matrix.shape[0] + 4) * np.abs(upstream[0])
            radius = up(np.asarray(spread @ abs(matrix)), matrix.shape[0])
        if source in pending:
            before = pending[source]
            middle = middle + before[0]
            radius = up(radius + before[1] + 2 * gamma(1) * np.abs(middle), 4)
        pending[source] = middle, radius


def path_sums(network: Network, slopes: Sequence[Vector] | None = None) -> list[Array]:
    """Bounds on |d output / d value k|, entry by entry, for every value (0 is the input).

    Sums over paths of products of |weight| and |slope|: for a perceptron of relu units and k = 0,
    |W_L| |W_{L-1}| ... |W_1|. Computed from the output back, one product per matrix, whatever the
    skips.

    Args:
        slopes: of every layer's units; the largest that they can have if omitted.
    """
    sizes = network.widths
    sums = [np.zeros((network.output_size, size)) for size in sizes[:-1]]

    def add(affine: Affine, upstream: Array | None) -> None:
        for source, matrix in affine.terms.items():
            positive = abs(matrix)
            sums[source] += mx.dense(positive) if upstream is None else upstream @ positive

    add(network.output, None)
    for index in range(len(network.layers) - 1, -1, -1):
        layer = network.layers[index]
        steep = max(map(abs, layer.activation.slopes)) if slopes is None else abs(slopes[index])
        add(layer.affine, sums[index + 1] * steep)
    return sums


def roundings(network: Network, domain: Domain) -> Array:
    """Bounds on the rounding errors of all outputs, anywhere on the domain."""
    box = domain.bounding_box
    sizes: list[Array] = [np.maximum(np.abs(box.lo), np.abs(box.hi))]
    for affine in network.maps:
        index = len(sizes) - 1
        slopes = network.layers[index].activation.slopes if index < len(network.layers) else (1.0,)
        sizes.append(absolute(affine, sizes) * max(map(abs, slopes)))
    n = 2.0 * sum(network.widths) * np.finfo(np.float64).eps
    return sizes[-1] * (n / (1 - n)) if n < 0.5 else np.full(network.output_size, np.inf)

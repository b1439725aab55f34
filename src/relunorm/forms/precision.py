"""How precise the numbers of a model are, the tolerance that follows, rounding to float32, and how
far a float32 or float64 evaluation of a network can be from its exact value.

A model file in single precision holds weights of 24 significant bits. Writing a network to such a
file rounds every weight by a share of up to u = 2^-24, and its outputs move by about that share of
their size, more where layers add up. Two models count as the same if they agree to `SHARE` u times
the largest output, u being that of the coarser of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.floats import up
from relunorm.arithmetic.rounding import Enclosure, pull, scaled, slopes_on
from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range, inner_size
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.structure import Structure

#: What models in double precision may differ by.
DOUBLE = 1e-9

#: Roundings of a weight that the outputs may differ by, relative to the largest output.
SHARE = 64.0

#: Significant bits of each precision. Up to 8, numbers are small integers or written by hand.
BITS = (("float64", 8), ("float16", 11), ("float32", 24))


#: Rounding of one operation in each precision below double.
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}

#: Numbers of more than 8 bits that a map must have to tell its precision.
ENOUGH = 4


def precision(network: Network) -> str:
    """What the file or object it was read from holds, or else what its numbers look like.

    Where nobody said (``Network.precision``), it is the least precise of float16, float32 and
    float64 that holds the numbers of some affine map. One map is enough: where a scaler was folded
    into the first one, or a scale into the last, only the others show what a file held. Numbers of
    at most 8 significant bits, such as small integers, say nothing; a map with few others counts
    where it is all there is.

    >>> precision(Network.from_weights([[[0.1]], [[1.0]]]))
    'float64'
    >>> precision(Network.from_weights([[[float(np.float32(0.1))]], [[1.0]]]))
    'float32'
    """
    if network.precision:
        return network.precision
    maps = [_bits(affine) for affine in network.maps]
    telling = [int(bits.max()) for bits in maps if np.count_nonzero(bits > 8) >= ENOUGH]
    needed = min(telling, default=max((int(bits.max(initial=0)) for bits in maps), default=0))
    return next((name for name, bits in BITS if needed <= bits), "float64")


def _bits(affine: Affine) -> NDArray[np.int64]:
    """Significant bits of every number of an affine map."""
    parts = [affine.bias, *(mx.entries(m) for m in affine.terms.values())]
    numbers = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
    mantissa, _ = np.frexp(numbers[numbers != 0])
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    return 53 - np.log2((whole & -whole).astype(np.float64)).astype(np.int64)


def default_tolerance(networks: Sequence[Network], points: np.ndarray) -> tuple[float, str]:
    """The tolerance for two networks, and the precision it follows."""
    found = [precision(network) for network in networks]
    for name, unit in UNITS.items():
        if name in found:
            size = max(float(np.abs(network(points)).max()) for network in networks)
            return max(DOUBLE, SHARE * unit * size), name
    return DOUBLE, "float64"


def to_single(network: Network) -> Network:
    """The network with every number rounded to float32, as a float32 file will hold it.

    Convolutions stay convolutions: their kernels are what is rounded.
    """
    if is_single(network):
        return network
    if network.structure is not None and network.structure.convolves:
        from relunorm.io.graph.structured import lower

        return lower(_rounded_structure(network.structure), network)

    def rounded(affine: Affine, place: str) -> Affine:
        terms = {}
        for k, matrix in affine.terms.items():
            new = matrix.copy()
            mx.entries(new)[...] = mx.narrowed(mx.entries(matrix), np.float32, place)
            terms[k] = new
        return Affine(terms, mx.narrowed(affine.bias, np.float32, place).astype(np.float64))

    layers = [
        Layer(rounded(x.affine, f"layer {k}"), x.activation, x.name, x.shape)
        for k, x in enumerate(network.layers)
    ]
    return network.replace(layers=layers, output=rounded(network.output, "the output"))


def _rounded_structure(structure: Structure) -> Structure:
    def rounded(array: Array | None, place: str) -> Array | None:
        return None if array is None else mx.narrowed(array, np.float32, place).astype(np.float64)

    return Structure(
        tuple(
            replace(step, weight=rounded(step.weight, place), bias=rounded(step.bias, place))
            for step in structure.steps
            for place in (step.name or step.kind,)
        )
    )


def is_single(network: Network) -> bool:
    """Whether every number of the network is a float32."""
    numbers = (x for a in network.maps for x in (a.bias, *map(mx.entries, a.terms.values())))
    with np.errstate(over="ignore", under="ignore"):
        return all(bool((x.astype(np.float32) == x).all()) for x in numbers)


#: Unit roundoff and the smallest normal number.
PRECISION = {"float32": (2.0**-24, 2.0**-126), "float64": (2.0**-53, 2.0**-1022)}


def evaluation_error(
    network: Network, ranges: Sequence[Range], reach: Reach, dtype: Literal["float32", "float64"]
) -> Vector:
    """A bound on |computed - exact| for every output, over the whole domain.

    Sums may be taken in any order. For float32 weights and inputs are rounded first, and that
    counts too. Layer k computes its pre-activation from what it reads with an error of at most

        d_k = g (|W| (y + e) + |b|) + |W - W'| (y + e) + |b - b'|,    g = gamma(n + 2),

    n the non-zero weights of the row, W' and b' the parameters as they are stored in float32,
    y the size of the exact values and e how far the computed ones can be off. What that does to the
    output is J_k d_k, where J_k is the derivative of the output by the pre-activation, every unit
    with a slope between those it can have: a unit whose sign is certain has one slope only. J_k is
    enclosed by a midpoint and a radius, from the output down, so that what cancels in a product of
    weights cancels in the bound. The sum over all layers is compared with the textbook recursion
    e' = |W| e + d, and the smaller one is returned. A sound bound; real errors cancel and are some
    hundred times smaller.
    """
    rounding = _Rounding(network, reach, dtype)
    for layer, span in zip(network.layers, ranges, strict=True):
        rounding.layer(layer.affine, layer.activation, span)
    return rounding.output()


class _Rounding:
    """Forward: errors of all values by the textbook recursion; backward: what reaches the output.

    Attributes:
        sizes, errors: per value its largest size, and how far the computed one can be off.
        local: per layer the error its own roundings add to the pre-activations.
        after: per layer the error that the activation itself adds to the values.
        slopes: per layer the smallest and the largest slope a difference can meet.
    """

    def __init__(self, network: Network, reach: Reach, dtype: Literal["float32", "float64"]):
        self.network = network
        self.unit, self.least = PRECISION[dtype]
        self.is_single = dtype == "float32"
        size = reach.span
        self.sizes = [size]
        self.errors = [self.unit * size + self.least if self.is_single else np.zeros(len(size))]
        self.local: list[Vector] = []
        self.after: list[Vector] = []
        self.slopes: list[tuple[Vector, Vector]] = []

    def layer(self, affine: Affine, activation: Activation, span: Range) -> None:
        """Take one more layer."""
        local, error = self._map(affine)
        value = span.after(activation).largest
        # of (act(z + d) - act(z)) / d for |d| <= error; jumps are counted apart
        smallest, largest = slopes_on(activation, span.lo - 2 * error, span.hi + 2 * error)
        after = np.zeros(affine.size)
        if activation.kind == "step":
            crosses = (span.lo <= error) & (span.hi >= -error)
            after = np.where(crosses, max(1.0, abs(activation.at_zero)), 0.0)
        moved = np.maximum(np.abs(smallest), np.abs(largest)) * error
        if activation.kind == "leaky":
            after = 2 * self.unit * (value + moved) + self.least
        self.local.append(local)
        self.after.append(after)
        self.slopes.append((smallest, largest))
        self.sizes.append(value)
        self.errors.append(up(moved + after, 8))

    def output(self) -> Vector:
        """The smaller of both bounds."""
        local, forward = self._map(self.network.output)
        total = local.copy()
        pending: dict[int, Enclosure] = {}
        pull(self.network.output, None, pending)
        for k in range(len(self.network.layers) - 1, -1, -1):
            upstream = pending.pop(k + 1, None)
            if upstream is None:
                continue
            middle, radius = upstream
            total = total + (np.abs(middle) + radius) @ self.after[k]
            here = scaled(upstream, *self.slopes[k])
            total = total + (np.abs(here[0]) + here[1]) @ self.local[k]
            pull(self.network.layers[k].affine, here, pending)
        if 0 in pending:
            middle, radius = pending[0]
            total = total + (np.abs(middle) + radius) @ self.errors[0]
        terms = sum(self.network.widths) + 8 * len(self.local) + 8
        total = np.where(np.isnan(total), np.inf, up(total, terms))
        return np.minimum(forward, total)

    def _map(self, affine: Affine) -> tuple[Vector, Vector]:
        """What a map's own roundings add, and that together with the errors of what it reads."""
        # products with 0 are 0 and adding them rounds nothing
        count = 2.0 + sum(map(mx.row_counts, affine.terms.values()), np.zeros(affine.size))
        fits = count * self.unit < 0.5
        lost = np.where(fits, count * self.unit, 0.0)
        share = lost / (1 - lost) * (1 + 4 * self.unit)  # of the rounded weights
        carried, volume = np.zeros(affine.size), np.abs(affine.bias)
        rounded = self._stored(affine.bias)
        for source, matrix in affine.terms.items():
            weight, reached = abs(matrix), self.sizes[source] + self.errors[source]
            carried = carried + weight @ self.errors[source]
            volume = volume + weight @ reached
            if self.is_single:
                rounded = rounded + self._stored(matrix) @ reached
        local = up(share * volume + rounded + 2 * count * self.least, inner_size(affine))
        local = np.where(fits, local, np.inf)
        return local, up(carried + local, inner_size(affine))

    def _stored(self, numbers: Matrix) -> Matrix:
        """How far each number is from the one that is stored; the difference is exact."""
        if not self.is_single:
            return 0.0 * numbers
        with np.errstate(over="ignore"):  # too large for float32: the bound is infinite
            return abs(numbers - numbers.astype(np.float32).astype(np.float64))

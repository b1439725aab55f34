"""From a network to integers: powers of two and widths, chosen layer by layer from proved ranges.

A row's exponent is the largest for which its weights fit their type and no partial sum can leave
the accumulator; a value's exponent the largest for which its proved range fits its type, less what
the weights that multiply it need more: in a long sum fine values leave few bits to the weights,
and the two roundings are balanced. Rows of a convolution share the exponent of their channel, so
that one kernel serves all positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Box
from relunorm.embedded.arithmetic.integers import (
    ACCUMULATORS,
    RANGES,
    IntegerInputs,
    IntegerLayer,
    IntegerMap,
    IntegerNetwork,
    narrowest,
)
from relunorm.embedded.arithmetic.terms import Integers, Term, geometry_of, rounded, term_of
from relunorm.embedded.proof.layerwise import Sums, Walk, after_activation, overflow
from relunorm.errors import InvalidInputError
from relunorm.io.graph.windows import Convolution
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Network

#: No exponent goes beyond this, so that 2^s and 2^-s are floats with room to spare.
STEEPEST = 200


def build(
    network: Network,
    box: Box,
    *,
    weight_bits: Sequence[int],
    value_bits: int,
    input_exponent: Integers | None = None,
) -> tuple[IntegerNetwork, Walk]:
    """The integer network with these widths, and the proofs made on the way.

    Args:
        weight_bits: 8, 16 or 32 for every map, the output's last.
        value_bits: 8, 16 or 32, for inputs and values.
        input_exponent: s with x = q 2^-s, where the sensor fixes it; the finest otherwise.
    """
    arguments = (network, box, weight_bits, value_bits, input_exponent)
    balanced = _Builder(*arguments, balance=True)
    found = balanced.run()
    if not balanced.coarsened:
        return found
    plain = _Builder(*arguments, balance=False).run()
    return min(found, plain, key=lambda made: float(np.max(np.abs(made[1].errors[-1]))))


def start_of(
    network: Network,
    box: Box,
    value_bits: int,
    given: Integers | None = None,
    group: NDArray[np.intp] | None = None,
) -> IntegerInputs:
    """The inputs of a program.

    Args:
        given: the exponents of the inputs; the finest that fit otherwise.
        group: inputs that share an exponent; all of their own if omitted.
    """
    size = np.maximum(np.abs(box.lo), np.abs(box.hi))
    group = np.arange(len(size)) if group is None else group
    kind = f"{'' if (box.lo < 0).any() else 'u'}int{value_bits}_t"
    least, most = RANGES[kind]
    if given is None:
        exponent = _per_group(group, _room(size, most))
    else:
        exponent = np.broadcast_to(np.asarray(given, dtype=np.int64), size.shape).copy()
        if (_per_group(group, exponent) != exponent).any():
            raise InvalidInputError(
                "a convolution reads the inputs, so all of a channel need the same input shift"
            )
    low, high = rounded_half_up(box.lo, exponent), rounded_half_up(box.hi, exponent)
    if low.min() < least or high.max() > most:
        raise InvalidInputError(
            f"inputs reach {int(low.min())} to {int(high.max())} at the input shift given, more "
            f"than {kind} holds"
        )
    return IntegerInputs(exponent, low, high, kind, network.input_shape, network.output_shape)


class _Builder:
    def __init__(
        self,
        network: Network,
        box: Box,
        weight_bits: Sequence[int],
        value_bits: int,
        input_exponent: Integers | None,
        *,
        balance: bool,
    ):
        self.balance, self.coarsened = balance, False
        self.network, self.value_bits, self.weight_bits = network, value_bits, weight_bits
        self.shapes = [network.input_shape, *(layer.shape for layer in network.layers)]
        self.outs = [*self.shapes[1:], network.output_shape]
        self.convs = [
            {s: geometry_of(m, self.shapes[s], self.outs[i]) for s, m in affine.terms.items()}
            for i, affine in enumerate(network.maps)
        ]
        self.groups = [self._group(k) for k in range(len(self.shapes))]
        self.samples = [(v.min(axis=0), v.max(axis=0)) for v in network.values(_spread(box))]
        start = start_of(network, box, value_bits, input_exponent, self.groups[0])
        if input_exponent is None:
            size = np.maximum(np.abs(box.lo), np.abs(box.hi))
            balanced = start.input_exponent - self._coarser(0, start.input_exponent, size)
            start = start_of(network, box, value_bits, balanced, self.groups[0])
        self.walk = Walk(network, start)

    def _coarser(self, value: int, exponent: Integers, size: Vector) -> int:
        """How many bits value k had better not use, because the weights on it need them.

        A row of sums up to 2^31 shares its bits between values and weights. With steps 2^-s of the
        values and weights rounded by D, whose steps follow from the sums', it can be off by

            sum_j |W_ij| 2^-s_j / 2 + |sum_j D_ij c_j| + sum_j |D_ij| r_j,      |v_j - c_j| <= r_j;

        the coarsening that makes the total over all rows smallest is returned. Every choice is
        sound, so c and r are what samples show: deep in a network proved ranges are far wider.
        """
        if not self.balance:
            return 0
        readers = [
            (self.weight_bits[index], affine.terms[value], affine.bias)
            for index, affine in enumerate(self.network.maps)
            if value in affine.terms
        ]
        low, high = self.samples[value]
        totals = []
        for fewer in range(self.value_bits - 4):
            total = 0.0
            for bits, matrix, bias in readers:
                room = min(RANGES[self._cap(bits)][1] * 0.9, 2.0**60)
                ends, columns, weights = mx.csr_parts(matrix)
                steps = np.ldexp(np.abs(weights), fewer - _int(exponent[columns]))
                rows = sp.csr_array((steps, columns, ends), shape=matrix.shape)
                power = np.minimum(
                    _room(abs(matrix) @ size + np.abs(bias), room),
                    _room(mx.dense(rows.max(axis=1)).ravel(), 2 ** (bits - 1) - 1),
                )
                places = np.repeat(power, np.diff(ends)) - exponent[columns] + fewer
                moved = np.ldexp(np.rint(np.ldexp(weights, _int(places))), -_int(places)) - weights
                parts = sp.csr_array((moved, columns, ends), shape=matrix.shape)
                lost = np.abs(parts @ ((low + high) / 2)) + abs(parts) @ ((high - low) / 2)
                total += 0.5 * float(steps.sum()) + float(lost.sum())
            totals.append(total)
        best = int(np.argmin(totals)) if np.isfinite(totals).all() else 0
        self.coarsened = self.coarsened or best > 0
        return best

    def _cap(self, bits: int) -> str:
        """The widest accumulator for weights of so many bits."""
        return "int64_t" if max(bits, self.value_bits) > 16 else "int32_t"

    def _group(self, value: int) -> NDArray[np.intp]:
        """Which entries of value k share an exponent: a channel where a convolution is near."""
        made = value > 0 and any(self.convs[value - 1].values())
        read = any(maps.get(value) is not None for maps in self.convs)
        shape = self.shapes[value]
        size = int(np.prod(shape))
        if not (made or read):
            return np.arange(size)
        return np.repeat(np.arange(shape[0]), size // shape[0])

    def run(self) -> tuple[IntegerNetwork, Walk]:
        layers: list[IntegerLayer] = []
        for index, layer in enumerate(self.network.layers):
            affine, sums = self._map(index, layer.affine)
            made = self._layer(index, affine, sums)
            self.walk.add_layer(made)
            layers.append(made)
        output, sums = self._map(len(layers), self.network.output, common=True)
        kind = narrowest(int(sums.least.min()), int(sums.most.max()), ACCUMULATORS)
        output = replace(output, accumulator=str(kind))
        start = vars(self.walk.start)
        return IntegerNetwork(**start, layers=tuple(layers), output=output), self.walk

    def _map(self, index: int, affine: Affine, *, common: bool = False) -> tuple[IntegerMap, Sums]:
        """The finest integers for one map whose partial sums fit the widest accumulator wanted."""
        bits = self.weight_bits[index]
        cap = self._cap(bits)
        rows = self._rows(index, affine, common)
        exponent = _per_group(rows, self._finest(index, affine, bits, cap))
        for _ in range(80):
            made = self._integers(index, affine, exponent, bits, cap)
            try:
                sums = self.walk.add_map(made)
            except InvalidInputError:
                exponent = exponent - 1
                continue
            worst = RANGES[cap][1] - (RANGES[cap][1] >> 6)  # room for the half before a shift
            wide = (sums.most > worst) | (sums.least < -worst)
            if not wide.any():
                return made, sums
            self.walk.drop_map()
            exponent = _per_group(rows, exponent - wide)
        raise InvalidInputError(f"layer {index + 1}: no power of two fits its numbers")

    def _rows(self, index: int, affine: Affine, common: bool) -> NDArray[np.intp]:
        if common:
            return np.zeros(affine.size, dtype=np.intp)
        return self.groups[index + 1] if any(self.convs[index].values()) else np.arange(affine.size)

    def _finest(self, index: int, affine: Affine, bits: int, cap: str) -> Integers:
        """Per row the largest exponent at which weights, bias and a rough sum fit."""
        most = 2 ** (bits - 1) - 1
        room = min(RANGES[cap][1] * 0.9, 2.0**60)
        finest = _room(np.abs(affine.bias), room)
        reach = np.abs(affine.bias)
        spans = self.walk.difference.spans()
        for source, matrix in affine.terms.items():
            inner = self.walk.program.exponents(source)
            dense = mx.triples(matrix)
            limit = _room(np.abs(dense[2]), most) + inner[dense[1]]
            np.minimum.at(finest, dense[0], limit)
            # integers are as fine as the value's own step, whatever its range
            reach = reach + abs(matrix) @ spans[source]
        return np.minimum(finest, _room(reach, min(room * 64, 2.0**60)))

    def _integers(
        self, index: int, affine: Affine, exponent: Integers, bits: int, cap: str
    ) -> IntegerMap:
        terms: dict[int, Term] = {}
        for source, matrix in affine.terms.items():
            inner, conv = self.walk.program.exponents(source), self.convs[index][source]
            power = self._powers(index, source, conv, exponent, inner)
            terms[source] = term_of(
                matrix,
                conv,
                self.shapes[source],
                self.outs[index],
                lambda values, *at, power=power: rounded(values, power[at]),
            )
        bias = rounded(affine.bias, exponent)
        return IntegerMap(terms, bias, exponent, f"int{bits}_t", cap)

    def _powers(
        self, index: int, source: int, conv: Convolution | None, exponent: Integers, inner: Integers
    ) -> Integers:
        if conv is None:
            return exponent[:, None] - inner[None, :]
        outs, ins = self.outs[index][0], self.shapes[source][0]
        return exponent.reshape(outs, -1)[:, :1] - inner.reshape(ins, -1)[:, 0][None, :]

    def _layer(self, index: int, affine: IntegerMap, sums: Sums) -> IntegerLayer:
        layer = self.network.layers[index]
        kind = layer.activation.kind
        group = self.groups[index + 1]
        base: dict[str, Any] = {"shape": layer.shape, "name": layer.name}
        if kind == "step":
            value = layer.activation.at_zero
            signed = value < 0
            power = self.value_bits - (2 if signed else 1)
            while max(1.0, abs(value)) * 2**power > 2 ** (self.value_bits - signed) - 1:
                power -= 1
            exponent = np.full(affine.size, power)
            base["levels"] = (2**power, int(np.rint(np.ldexp(value, power))))
            made = IntegerLayer(affine, kind, exponent, self._type(signed), **base)
            return self._narrow(made, sums)
        if kind == "leaky":
            base["slope"] = _slope(layer.activation.slope, self.value_bits)
        bounds, error = self.walk.difference.bounds, self.walk.errors[index]
        least = np.maximum(
            bounds.lower[index] + error[0],
            np.ldexp(1.0, -_int(affine.exponent)) * (sums.low.astype(np.float64)),
        )
        most = np.minimum(
            bounds.upper[index] + error[1],
            np.ldexp(1.0, -_int(affine.exponent)) * (sums.high.astype(np.float64)),
        )
        below, above = layer.activation.slopes
        ends = [np.where(z > 0, above * z, below * z) for z in (least, most)]
        signed = bool((np.minimum(*ends) < 0).any())
        size = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        value_type = self._type(signed)
        top = RANGES[value_type][1]
        longest = 14 if affine.accumulator == "int16_t" else 30
        exponent = _room(size, top)
        exponent = exponent - self._coarser(index + 1, _per_group(group, exponent), size)
        exponent = np.minimum(exponent, affine.exponent)
        exponent = np.maximum(_per_group(group, exponent), affine.exponent - longest)
        exponent = _per_group(group, exponent)
        for _ in range(80):
            made = IntegerLayer(affine, kind, exponent, value_type, **base)
            low, high = after_activation(made, sums)
            wide = (low < RANGES[value_type][0]) | (high > top)
            if not wide.any():
                return self._narrow(made, sums)
            exponent = _per_group(group, exponent - wide)
        raise InvalidInputError(f"layer {index + 1}: no power of two fits its values")

    def _type(self, signed: bool) -> str:
        return f"{'' if signed else 'u'}int{self.value_bits}_t"

    def _narrow(self, layer: IntegerLayer, sums: Sums) -> IntegerLayer:
        """The same layer in the narrowest accumulator that cannot overflow."""
        for kind in ACCUMULATORS:
            made = replace(layer, affine=replace(layer.affine, accumulator=kind))
            if overflow(made, made.affine, sums) is None:
                return made
        raise InvalidInputError("a sum fits no accumulator")


def _spread(box: Box, count: int = 128) -> Array:
    """Random points and corners of a box."""
    rng = np.random.default_rng(0)
    corners = np.where(rng.random((count, box.dimension)) < 0.5, box.lo, box.hi)
    return np.vstack([box.sample(count, rng), corners])


def rounded_half_up(values: Vector, exponent: Integers) -> Integers:
    """``floor(values * 2^exponent + 1/2)``, exactly."""
    scaled = np.ldexp(values, _int(exponent))
    if not np.abs(scaled).max(initial=0.0) < 2.0**62:
        raise InvalidInputError("an input does not fit 63 bits at its shift")
    whole = np.floor(scaled)
    return (whole + (scaled - whole >= 0.5)).astype(np.int64)


def _room(size: Vector, most: float) -> Integers:
    """The largest e with round(size * 2^e) <= most, entry by entry."""
    with np.errstate(divide="ignore"):
        e = np.floor(np.log2(float(most)) - np.log2(size))
    e = np.clip(np.where(size > 0, e, STEEPEST), -STEEPEST, STEEPEST).astype(np.int64) + 1
    for _ in range(3):
        e = e - ((np.rint(np.ldexp(size, _int(e))) > most) & (e > -STEEPEST))
    return np.minimum(e, STEEPEST)


def _slope(slope: float, bits: int) -> tuple[int, int]:
    """(m, k) with m * 2^-k nearest to the slope, m in the values' width and as short as can be."""
    k = int(min(_room(np.array([abs(slope)]), 2 ** (min(bits, 25) - 1) - 1)[0], 28))
    if k < 0:
        raise InvalidInputError(f"a leaky slope of {slope:g} is too steep for {bits} bits")
    m = int(np.rint(np.ldexp(slope, k)))
    while m and m % 2 == 0 and k > 0:
        m, k = m // 2, k - 1
    return (m, k) if m else (0, 0)


def _per_group(group: NDArray[np.intp], exponent: Integers) -> Integers:
    """The smallest exponent of every group."""
    least = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, exponent)
    return least[group]


def _int(exponent: Integers) -> NDArray[np.int32]:
    return exponent.astype(np.int32)

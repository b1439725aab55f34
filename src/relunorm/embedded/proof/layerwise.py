"""Both proofs, layer by layer: what each integer can reach, and how far it is from the network.

The two help each other: the difference to the network turns its proved bounds into bounds of the
integers, and the range of the integers bounds the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from relunorm.bounds.pairs.linear import Ends
from relunorm.bounds.problem import Problem
from relunorm.domain import Box
from relunorm.domain.reach import reach_of
from relunorm.embedded.arithmetic.integers import (
    RANGES,
    IntegerInputs,
    IntegerLayer,
    IntegerMap,
    IntegerNetwork,
    real_map,
)
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.embedded.proof.distance import Change, Difference, Rounding
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector
from relunorm.network import Network


class IntegerRounding(Rounding):
    """An integer network as the difference sees it; layers may be added while it is built."""

    def __init__(self, network: Network, start: IntegerInputs):
        self.network = network
        self.start = start
        self.layers: list[IntegerLayer] = []
        self.low: list[Integers] = [start.input_low]
        self.high: list[Integers] = [start.input_high]

    @property
    def input_error(self) -> Vector:
        """Half a step of the input's grid."""
        return np.ldexp(0.5, -self.start.input_exponent.astype(np.int32))

    def exponents(self, value: int) -> Integers:
        """The exponents of value k (0 is the input)."""
        return self.layers[value - 1].exponent if value else self.start.input_exponent

    def before(self, index: int, spans: list[Vector]) -> Vector:
        """Sums of integers are exact."""
        del spans
        affines = [*(layer.affine for layer in self.network.layers), self.network.output]
        return np.zeros(affines[index].size)

    def after(self, index: int, lower: Vector, upper: Vector) -> Vector:
        """Half a step where bits are dropped; for leaky units the slope's rounding too."""
        del upper
        layer = self.layers[index]
        half = np.ldexp(0.5, -layer.exponent.astype(np.int32))
        half = np.where(layer.shift > 0, half, 0.0)
        if layer.kind == "leaky":
            m, k = layer.slope
            slope, ours = self.network.layers[index].activation.slope, m * 2.0**-k
            moved = abs(slope - ours) * np.maximum(-lower, 0.0)
            step = np.ldexp(0.5, -layer.exponent.astype(np.int32))
            size = max(abs(slope), abs(ours))
            return np.nextafter((half * (1 + size) + step + moved) * (1 + 2.0**-50), np.inf)
        if layer.kind == "step":
            on, at_zero = layer.levels
            exact = np.ldexp(float(on), -layer.exponent.astype(np.int32)) == 1.0
            level = np.ldexp(float(at_zero), -layer.exponent.astype(np.int32))
            wanted = self.network.layers[index].activation.at_zero
            return np.where(exact, np.nextafter(np.abs(level - wanted), np.inf), np.inf)
        return half

    def hull(self, value: int) -> Ends | None:
        """The proved range of the integers, as real numbers."""
        if value >= len(self.low):
            return None
        power = -self.exponents(value).astype(np.int32)
        return (
            np.ldexp(self.low[value].astype(np.float64), power),
            np.ldexp(self.high[value].astype(np.float64), power),
        )


class Walk:
    """The state of both proofs after some layers; inputs are the integers themselves."""

    def __init__(self, network: Network, start: IntegerInputs):
        self.network, self.start = network, start
        self.program = IntegerRounding(network, start)
        self.change = Change(self.program)
        problem = Problem(network, reach_of(grid_box(start)))
        self.difference = Difference(problem, self.change, exact_input=True)
        self.sums: list[Sums] = []
        self.errors: list[Ends] = []

    def add_map(self, affine: IntegerMap) -> Sums:
        """Bound the sums of the next map; its error is bounded on the way."""
        index = len(self.sums)
        network = [*(x.affine for x in self.network.layers), self.network.output][index]
        self.change.truncate(index)
        self.change.add(network, real_map(self.program, affine))  # type: ignore[arg-type]
        sums = partial_sums(affine, self.program.low, self.program.high)
        error = self.difference.error(index)
        if index < len(self.network.layers):
            bounds = self.difference.bounds
            self.difference.own(index)
            sums = narrowed(
                sums,
                affine.exponent,
                np.nextafter(bounds.lower[index] + error[0], -np.inf),
                np.nextafter(bounds.upper[index] + error[1], np.inf),
            )
        self.sums.append(sums)
        self.errors.append(error)
        return sums

    def drop_map(self) -> None:
        """Forget the last map, to try another one in its place."""
        self.sums.pop()
        self.errors.pop()

    def add_layer(self, layer: IntegerLayer) -> None:
        """Take the layer whose map came last."""
        index = len(self.program.layers)
        place = f"layer {index + 1}"
        why = overflow(layer, layer.affine, self.sums[index])
        if why is not None:
            raise InvalidInputError(f"{place}: {why}")
        low, high = after_activation(layer, self.sums[index])
        least, most = RANGES[layer.value_type]
        if low.min() < least or high.max() > most:
            raise InvalidInputError(
                f"{place}: a value can reach {int(low.min())} to {int(high.max())}, more than "
                f"{layer.value_type} holds"
            )
        self.program.layers.append(layer)
        self.program.low.append(low)
        self.program.high.append(high)
        self.difference.advance(index, self.errors[index])


def grid_box(start: IntegerInputs) -> Box:
    """The box of real numbers that the clamped inputs stand for."""
    power = -start.input_exponent.astype(np.int32)
    return Box(
        np.ldexp(start.input_low.astype(np.float64), power),
        np.ldexp(start.input_high.astype(np.float64), power),
    )


def walk_through(network: Network, integer: IntegerNetwork) -> Walk:
    """Both proofs for a finished program."""
    walk = Walk(network, integer)
    for layer in integer.layers:
        walk.add_map(layer.affine)
        walk.add_layer(layer)
    sums = walk.add_map(integer.output)
    why = overflow(None, integer.output, sums)
    if why is not None:
        raise InvalidInputError(f"the output: {why}")
    return walk


#: Numbers beyond this are refused, so that nothing here can wrap around itself.
MOST = 2**62


@dataclass(frozen=True, eq=False)
class Sums:
    """Of every row: the least and largest partial sum, and the least and largest whole one."""

    least: Integers
    most: Integers
    low: Integers
    high: Integers


def partial_sums(affine: IntegerMap, lows: list[Integers], highs: list[Integers]) -> Sums:
    """The range of every prefix of every row."""
    low, high = affine.bias.copy(), affine.bias.copy()
    least, most = low.copy(), high.copy()
    for source, term in affine.terms.items():
        q_low, q_high = lows[source], highs[source]
        matrix = term.matrix
        size = np.maximum(np.abs(q_low), np.abs(q_high)).astype(np.float64)
        reach = abs(matrix).astype(np.float64) @ size
        if not (reach + np.abs(low) + np.abs(high) < MOST).all():
            raise InvalidInputError("a sum could leave 63 bits")
        if sp.issparse(matrix):
            column, data, ends = matrix.indices, matrix.data, matrix.indptr
            first, second = data * q_low[column], data * q_high[column]
            lower = _prefixes(np.minimum(first, second), ends, np.minimum)
            upper = _prefixes(np.maximum(first, second), ends, np.maximum)
        else:
            first, second = matrix * q_low, matrix * q_high
            steps = np.cumsum(np.minimum(first, second), axis=1)
            lower = steps.min(axis=1), steps[:, -1]
            steps = np.cumsum(np.maximum(first, second), axis=1)
            upper = steps.max(axis=1), steps[:, -1]
        least = np.minimum(least, low + lower[0])
        most = np.maximum(most, high + upper[0])
        low, high = low + lower[1], high + upper[1]
    return Sums(least, most, low, high)


def _prefixes(parts: Integers, ends: Integers, pick: np.ufunc) -> tuple[Integers, Integers]:
    """Per row of a sparse matrix the extreme prefix sum (the empty one counts) and the whole."""
    total = np.concatenate([[0], np.cumsum(parts)])
    start, stop = ends[:-1], ends[1:]
    whole = total[stop] - total[start]
    extreme = np.zeros(len(start), dtype=np.int64)
    filled = stop > start
    if filled.any():
        # reduceat over the prefixes of the filled rows, whose starts are strictly rising
        found = pick.reduceat(total[1:], start[filled])
        extreme[filled] = found - total[start[filled]]
    return extreme, whole


def narrowed(sums: Sums, exponent: Integers, lower: Vector, upper: Vector) -> Sums:
    """Whole sums cut down to real bounds ``lower <= sum * 2^-exponent <= upper``."""
    power = exponent.astype(np.int32)
    with np.errstate(over="ignore"):
        floor = np.ceil(np.clip(np.ldexp(lower, power), -float(MOST), float(MOST)))
        ceiling = np.floor(np.clip(np.ldexp(upper, power), -float(MOST), float(MOST)))
    low = np.maximum(sums.low, floor.astype(np.int64))
    high = np.minimum(sums.high, ceiling.astype(np.int64))
    if (low > high).any():
        raise InvalidInputError("the proved ranges of a sum contradict each other")
    return Sums(sums.least, sums.most, low, high)


def after_activation(layer: IntegerLayer, sums: Sums) -> tuple[Integers, Integers]:
    """The range of a layer's integers."""
    ends = [sums.low, sums.high]
    if layer.kind in ("leaky", "step"):  # not monotone for every slope and level: 0 counts too
        ends += [np.clip(v, sums.low, sums.high) for v in (-1, 0, 1)]
    values = [layer.activate(np.atleast_2d(end))[0] for end in ends]
    if layer.kind == "leaky":  # a negative slope turns around where the rounded value is -1
        first = np.clip(-(1 << layer.shift), sums.low, sums.high)
        values += [layer.activate(np.atleast_2d(first + k))[0] for k in (-1, 0, 1)]
    return np.minimum.reduce(values), np.maximum.reduce(values)


def overflow(layer: IntegerLayer | None, affine: IntegerMap, sums: Sums) -> str | None:
    """Why a map's arithmetic could leave its accumulator; None where it cannot.

    Checks every partial sum, the half that is added before a shift, and the product with a leaky
    unit's slope.
    """
    least, most = RANGES[affine.accumulator]
    reach_low, reach_high = sums.least.copy(), sums.most.copy()
    if layer is not None and layer.kind != "step":
        if not ((layer.shift >= 0) & (layer.shift < 63)).all():
            return "a shift is negative or longer than a number"
        half = (np.int64(1) << layer.shift) >> 1
        if ((np.int64(1) << layer.shift) > most).any():
            return f"a shift of {int(layer.shift.max())} bits is too long for {affine.accumulator}"
        reach_high = np.maximum(reach_high, sums.high + half)
        if layer.kind == "leaky":
            m, k = layer.slope
            if not 0 <= k < 31:
                return "the slope's shift is negative or too long"
            value = (np.minimum(sums.low, 0) + half) >> layer.shift
            product = [value.astype(np.float64) * m, np.zeros(len(value))]
            if np.abs(product[0]).max(initial=0.0) >= MOST:
                return "a product with the slope could leave 63 bits"
            product = [value * m, np.zeros_like(value)]
            reach_low = np.minimum(reach_low, np.minimum(*product))
            reach_high = np.maximum(reach_high, np.maximum(*product) + ((1 << k) >> 1))
    if reach_low.min() < least or reach_high.max() > most:
        return (
            f"a sum can reach {int(reach_low.min())} to {int(reach_high.max())}, more than "
            f"{affine.accumulator} holds"
        )
    return None

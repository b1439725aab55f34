"""What every sum and value of an integer network can reach, in exact integer arithmetic.

A sum starts at its bias and adds one product after another, in the order of the program. With
every value in its proved range, each partial sum lies between the sums of the smallest and of the
largest products so far; those are computed here, in integers, for every prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from relunorm.embedded.arithmetic.integers import RANGES, IntegerLayer, IntegerMap
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector

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
    """The range of every prefix of every row.

    Args:
        lows, highs: of every value the map reads, by number.

    Raises:
        InvalidInputError: a sum could leave 63 bits.
    """
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

"""One segment through a network, layer by layer, by matrix products alone.

Pre-activations at the breakpoints known so far (one product), sign changes between neighbours,
crossings by interpolation, insert, go on. Between breakpoints every value is affine, so inserted
rows are interpolated, not computed. Where rounding may have decided (`filter`), whole numbers
decide instead (`exact_segments`).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Network
from relunorm.regions.exact_segments import WORK, ExactSegment
from relunorm.regions.filter import Filter, Lengths, lengths_of
from relunorm.regions.kernels.pack import ROUNDING, TOLERANCE

#: Crossings nearer than this on a segment are one breakpoint, as far as floats are asked.
RESOLUTION = 2.0**-46

#: Pieces too short to be listed are one listed piece where outputs beside them would otherwise be
#: off by more than this share of the largest one.
CLIFF = 1e-9


class Followed(NamedTuple):
    """The pieces of a segment.

    Attributes:
        t: breakpoints from 0 to 1, ascending; two are equal where floats cannot tell them apart.
        packed: patterns between them.
        values: outputs at them.
        merged: how many pieces are too short to be listed.
        certain: whether rounding decided nothing.
    """

    t: Array
    packed: NDArray[np.uint8]
    values: Array
    merged: int
    certain: bool


class _Pieces(NamedTuple):
    """Breakpoints, patterns between them and outputs at them, however short the pieces."""

    t: Array
    positive: NDArray[np.bool_]
    values: Array


class Leg(NamedTuple):
    """A network and the ends of a segment."""

    network: Network
    a: Vector
    b: Vector


def follow(leg: Leg, given: Leg, room: float, span: tuple[float, float]) -> Followed | None:
    """The pieces of the part of a segment in a span of [0, 1].

    Args:
        leg: brought to size, for floats: numbers below all others of a unit may be lost.
        given: the same as it was given, for whole numbers.

    Returns:
        None where the values at the breakpoints would take more than ``room`` numbers.
    """
    # What overflows is in doubt, and an output beyond float64 is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.stack([(1 - share) * leg.a + share * leg.b for share in span])
        found = _in_floats(leg.network, ends, room, span != (0.0, 1.0))
        if found is None:
            return None
        pieces, doubtful = found
        certain = doubtful is not None
        if doubtful is not None and doubtful.any():
            decided = _decided(given, span, pieces, doubtful)
            pieces, certain = decided or pieces, decided is not None
        return _listed(pieces, certain)


def _in_floats(
    network: Network, ends: Array, room: float, moved: bool
) -> tuple[_Pieces, NDArray[np.bool_] | None] | None:
    """All pieces and which breakpoints rounding leaves in doubt, None if that is not looked at."""
    maps, small = lengths_of(network)
    t = np.array([0.0, 1.0])
    values: list[Any] = [ends]
    kept: list[tuple[Array, NDArray[np.bool_]]] = []
    wrong: list[Array] = []
    watch = Filter(network, maps, ends, moved) if small else None
    direct = max((k for k, affine in enumerate(network.maps) if 0 in affine.terms), default=-1)
    for index, layer in enumerate(network.layers):
        z = layer.affine(values)
        noise = _Noise.of(layer.affine, maps[index], values, ends, t)
        if watch is not None:
            watch.enter(index, noise.reaches)
        for source in network._last_read[index]:
            values[source] = None
        if index >= direct:
            values[0] = None
        if layer.has_units:
            left, unit, share, dropped = _find_crossings(z, t, noise)
            live = z.shape[1] + sum(v.shape[1] for v in values if v is not None)
            if (len(t) + len(left)) * live > room:
                return None
            changing: tuple[Any, Any] | None = None
            if len(left):
                put = _Insertion.of(left, share, len(t))
                changing = put.new, unit
                if watch is not None:
                    slope = np.abs(z[left + 1, unit] - z[left, unit]) / (t[left + 1] - t[left])
                    watch.insert(put, unit, slope, values)
                t, z = put.into(t), put.into(z)
                values = [None if v is None else put.into(v) for v in values]
                reaches = {source: put.into(reach) for source, reach in noise.reaches.items()}
                noise = noise._replace(reaches=reaches, put=put, t=t)
            if watch is not None and watch.clear(z, t, noise) and not dropped:
                positive = z[1:] + z[:-1] > 0.0
                if changing is not None:
                    z[changing] = 0.0
            else:
                positive = noise.positive(z)
                large = _settle(z, positive, noise)
                if len(large):
                    wrong.append(t[large])
                    if watch is not None:
                        watch.doubt(t, large, whole=True)
            kept.append((t, positive))
        if watch is not None and watch.lost:
            watch = None
        if watch is not None:
            watch.leave(layer.activation)
        values.append(layer.activation.apply_(z))
    out = network.output(values)
    if any(map(len, wrong)):
        again = np.isin(t, np.concatenate(wrong))
        share = t[again, None]
        out[again] = network((1 - share) * ends[0] + share * ends[1])
    doubtful = None
    if watch is not None:
        reaches = {source: _lengths(values[source]) for source in network.output.terms}
        doubtful = watch.doubts(t, out, reaches)
    return _Pieces(t, _patterns(kept, t), out), doubtful


def _decided(
    given: Leg, span: tuple[float, float], pieces: _Pieces, doubtful: NDArray[np.bool_]
) -> _Pieces | None:
    """The pieces with those beside doubtful breakpoints decided in whole numbers.

    None where that would be more work than `WORK`.
    """
    t, positive, values = pieces
    beside = np.count_nonzero(doubtful[1:] | doubtful[:-1])
    if beside * sum(affine.nnz for affine in given.network.maps) > WORK:
        return None
    exact = ExactSegment(*given)
    low, length = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
    parts: list[_Pieces] = []
    done = 0  # breakpoints before this are in the parts, and so are the pieces behind them
    edges = np.flatnonzero(np.diff(np.concatenate([[False], doubtful, [False]])))
    for first, stop in edges.reshape(-1, 2).tolist():
        start, end = 0.0, 1.0
        if first:
            start = (t[first - 1] + t[first]) / 2
            parts.append(_Pieces(t[done:first], positive[done : first - 1], values[done:first]))
        if stop < len(t):
            end = (t[stop - 1] + t[stop]) / 2
        places = [low + length * Fraction(float(place)) for place in (start, end)]
        found = exact.follow(*places)
        if found is None:
            return None
        inner = slice(1 if first else 0, len(found.t) - (1 if stop < len(t) else 0))
        local = np.array([float((place - low) / length) for place in found.t])
        parts.append(_Pieces(local[inner], found.positive, found.values[inner]))
        done = stop
    parts.append(_Pieces(t[done:], positive[done:], values[done:]))
    return _Pieces(*map(np.concatenate, zip(*parts, strict=True)))


def _listed(pieces: _Pieces, certain: bool) -> Followed:
    """Pieces longer than `TOLERANCE`; shorter ones join a neighbour, or are one piece on a cliff.

    Until then they stay: a layer behind may tell values apart that lie as near to each other.
    """
    t, positive, values = pieces
    if (t[1:] - t[:-1] > TOLERANCE).all():
        return Followed(t, np.packbits(positive, axis=1), values, 0, certain)
    kept = [0]
    for i in range(1, len(t)):
        if t[i] - t[kept[-1]] > TOLERANCE:
            kept.append(i)
    if kept[-1] != len(t) - 1:  # the end stays, and takes the place of the breakpoint before it
        kept[max(len(kept) - 1, 1) :] = [len(t) - 1]
    off = CLIFF * np.abs(values).max(axis=0)
    places, rows = [0], []
    for p, r in pairwise(kept):
        beside = [p + int(np.searchsorted(t[p + 1 : r], t[p] + TOLERANCE, side="right"))]
        beside.append(p + 1 + int(np.searchsorted(t[p + 1 : r], t[r] - TOLERANCE)))
        for m in sorted({m for m in beside if p < m < r}):
            way = (t[m] - t[p]) / (t[r] - t[p])
            if (np.abs(values[m] - ((1 - way) * values[p] + way * values[r])) > off).any():
                places.append(m)
        places.append(r)
    for p, r in pairwise(places):
        rise = np.abs(np.diff(values[p : r + 1], axis=0)).sum(axis=1)
        rows.append(p + int(np.argmax(np.diff(t[p : r + 1]) if t[r] - t[p] > TOLERANCE else rise)))
    packed = np.packbits(positive[rows], axis=1)
    # Two neighbours of one pattern become one piece of a line.
    listed = 1 + np.count_nonzero((packed[1:] != packed[:-1]).any(axis=1))
    return Followed(t[places], packed, values[places], len(positive) - listed, certain)


def _settle(z: Array, positive: NDArray[np.bool_], noise: _Noise) -> NDArray[np.intp]:
    """Make a unit exactly 0 at breakpoints where its sign is not that of the pieces beside them.

    There the unit has its kink: interpolation misses its 0 by rounding, which the layers behind
    would take for a value, and crossings that share a breakpoint lie beside it by at most
    `RESOLUTION`.

    Returns:
        the breakpoints where more than rounding was taken away, so that outputs are not those there
        any more.
    """
    above = z > 0.0
    wrong = np.zeros_like(above)
    np.not_equal(above[:-1], positive, out=wrong[:-1])
    wrong[1:] |= above[1:] != positive
    at, unit = _places(wrong)
    large = noise.exceeded(z[at, unit], at, unit)
    z[at, unit] = 0.0
    return at[large]


class _Noise(NamedTuple):
    """What rounding can make of pre-activations: at breakpoint n that of unit i is at most

        ROUNDING * (|b_i| + sum over sources of |w_i| |v_n|),

    by the lengths of the values there. Between breakpoints lengths are convex, so interpolation
    bounds them.
    """

    affine: Affine
    map: Lengths
    reaches: dict[int, Array]  # |v_n| for every source
    read: dict[int, Array]  # what hidden sources hold, before breakpoints of this layer are put in
    ends: Array  # of the segment
    t: Array
    put: _Insertion | None = None

    @classmethod
    def of(cls, affine: Affine, own: Lengths, values: list[Any], ends: Array, t: Array) -> _Noise:
        reaches = {source: _lengths(values[source]) for source in affine.terms}
        if 0 in reaches:  # a small input between large ones is off by their rounding
            reach = reaches[0]
            reaches[0] = np.maximum(reach, reach.max() * (2.0**-52 / ROUNDING))
        read = {source: values[source] for source in affine.terms if source}
        return cls(affine, own, reaches, read, ends, t)

    def at(self, breakpoint_: Any, unit: Any) -> Array:
        """The bound, entry by entry."""
        total = self.map.bias[unit]
        for source, reach in self.reaches.items():
            total = total + self.map.rows[source][unit] * reach[breakpoint_]
        return ROUNDING * total

    def exact(self, breakpoint_: Any, unit: Any) -> Array:
        """As `at`, with the sums of |w_ij| |v_nj|: a large value that a unit does not read is not
        in its rounding. One row a pair, so for few of them."""
        total = self.map.bias[unit]
        if 0 in self.affine.terms:
            share = self.t[breakpoint_][:, None]
            place = np.abs((1 - share) * self.ends[0] + share * self.ends[1])
            # between its ends an input is off by the rounding of the larger one
            place = np.maximum(place, np.abs(self.ends).max(axis=0) * (2.0**-52 / ROUNDING))
            total = total + _weighted(self.affine.terms[0][unit], place)
        for source, value in self.read.items():
            held = value[breakpoint_] if self.put is None else self.put.rows(value, breakpoint_)
            total = total + _weighted(self.affine.terms[source][unit], np.abs(held))
        return ROUNDING * total

    def exceeded(self, heights: Array, breakpoint_: Any, unit: Any) -> NDArray[np.bool_]:
        """Which heights of units at breakpoints are more than rounding."""
        clear = np.abs(heights) > self.at(breakpoint_, unit)
        rest = np.flatnonzero(~clear & (heights != 0.0))
        clear[rest] = np.abs(heights[rest]) > self.exact(breakpoint_[rest], unit[rest])
        return clear

    def positive(self, z: Array) -> NDArray[np.bool_]:
        """Which units are positive on each piece by more than rounding, at its middle."""
        double = z[1:] + z[:-1]
        positive = double > 0.0
        most = self.map.bias
        for source, reach in self.reaches.items():
            most = most + self.map.rows[source] * reach.max()
        piece, unit = _places(positive & (double <= 2 * ROUNDING * most))
        unsure = double[piece, unit] <= self.at(piece, unit) + self.at(piece + 1, unit)
        piece, unit = piece[unsure], unit[unsure]
        if len(piece):
            noise = self.exact(piece, unit) + self.exact(piece + 1, unit)
            positive[piece, unit] = double[piece, unit] > noise
        return positive


def _weighted(weights: Any, sizes: Array) -> Array:
    """Row by row the sum of |weight| times size."""
    if sp.issparse(weights):
        return np.asarray(sp.csr_array(abs(weights)).multiply(sizes).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", np.abs(weights), sizes)


def _lengths(rows: Array) -> Vector:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def _find_crossings(
    z: Array, t: Array, noise: _Noise
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, bool]:
    """Where units change sign inside a piece: the piece, the unit, the place as a share of it.

    The last entry says whether any were dropped because they lie too near to another breakpoint.
    """
    positive = z > 0
    left, unit = _places(positive[1:] != positive[:-1])
    start, end = z[left, unit], z[left + 1, unit]
    inside = noise.exceeded(start, left, unit) & noise.exceeded(end, left + 1, unit)
    left, unit, start, end = left[inside], unit[inside], start[inside], end[inside]
    count = len(left)
    if not count:
        return left, unit, start, False
    share = start / (start - end)
    length = t[left + 1] - t[left]
    far = np.minimum(share, 1 - share) * length > RESOLUTION
    place = t[left] + share * length
    order = np.lexsort((share[far], left[far]))
    left, unit = left[far][order], unit[far][order]
    share, place = share[far][order], place[far][order]
    fresh = np.append(True, np.diff(place) > RESOLUTION)[: len(left)]
    left, unit, share = left[fresh], unit[fresh], share[fresh]
    return left, unit, share, len(left) < count


class _Insertion(NamedTuple):
    """Crossings put between breakpoints: each is a share of the way from the one on its left."""

    old: NDArray[np.intp]  # where the breakpoints go
    new: NDArray[np.intp]  # where the crossings go
    left: NDArray[np.intp]
    share: Array

    @classmethod
    def of(cls, left: NDArray[np.intp], share: Array, count: int) -> _Insertion:
        before = np.cumsum(np.bincount(left, minlength=count))[: count - 1]
        old = np.arange(count) + np.concatenate([[0], before])
        return cls(old, left + 1 + np.arange(len(left)), left, share)

    def into(self, rows: Array) -> Array:
        """Rows at breakpoints and, interpolated, at crossings."""
        out = np.empty((len(self.old) + len(self.new), *rows.shape[1:]))
        out[self.old] = rows
        out[self.new] = _between(rows, self.left, self.share)
        return out

    def most(self, rows: Vector) -> Vector:
        """Numbers at breakpoints and, at crossings, the larger one of both sides."""
        out = np.empty(len(self.old) + len(self.new))
        out[self.old] = rows
        out[self.new] = np.maximum(rows[self.left], rows[self.left + 1])
        return out

    def either(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What is so at breakpoints and, at crossings, on either side."""
        out = np.empty((len(self.old) + len(self.new), rows.shape[1]), dtype=bool)
        out[self.old] = rows
        out[self.new] = rows[self.left] | rows[self.left + 1]
        return out

    def rows(self, rows: Array, wanted: NDArray[np.intp]) -> Array:
        """Some rows of what `into` returns, without the others."""
        left = np.empty(len(self.old) + len(self.new), np.intp)
        left[self.old], left[self.new] = np.arange(len(self.old)), self.left
        share = np.zeros(len(left))
        share[self.new] = self.share
        left, share = left[wanted], share[wanted]
        return np.where((share > 0)[:, None], _between(rows, left, share), rows[left])


def _between(rows: Array, left: NDArray[np.intp], share: Array) -> Array:
    """Rows at shares of the way to the next one."""
    low = rows[left]
    step = rows[np.minimum(left + 1, len(rows) - 1)]
    step -= low
    step *= share.reshape(-1, *([1] * (rows.ndim - 1)))
    step += low
    return step


def _places(mask: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of what is true; NumPy's `nonzero` of one axis is many times faster."""
    row, column = np.divmod(np.flatnonzero(mask), max(mask.shape[1], 1))
    return row, column


def _patterns(kept: list[tuple[Array, NDArray[np.bool_]]], t: Array) -> NDArray[np.bool_]:
    """Patterns on the final pieces: each lies in one piece of every earlier list."""
    middle = (t[1:] + t[:-1]) / 2
    bits = [rows[np.searchsorted(ends, middle) - 1] for ends, rows in kept]
    return np.concatenate(bits, axis=1) if bits else np.zeros((len(middle), 0), bool)

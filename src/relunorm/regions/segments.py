"""One segment through a network, layer by layer, by matrix products alone.

Pre-activations at the breakpoints known so far (one product), sign changes between neighbours,
crossings by interpolation, insert, go on. Between breakpoints every value is affine, so inserted
rows are interpolated, not computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.matrix import Array
from relunorm.network import Affine, Network
from relunorm.regions.kernels.pack import ROUNDING, TOLERANCE

#: Crossings nearer than this on a segment are one breakpoint.
RESOLUTION = 2.0**-46


def follow(
    network: Network, a: Array, b: Array, room: float
) -> tuple[Array, NDArray[np.uint8], Array] | None:
    """Breakpoints in [0, 1], packed patterns between them and outputs at them, for one segment.

    None where the values at the breakpoints would take more than ``room`` numbers.
    """
    t = np.array([0.0, 1.0])
    ends = np.stack([a, b])
    values: list[Any] = [ends]
    kept: list[tuple[Array, NDArray[np.bool_]]] = []
    moved: list[Array] = []
    for index, layer in enumerate(network.layers):
        z = layer.affine(values)
        noise = _Noise.of(layer.affine, values, ends, t) if layer.has_units else None
        for source in network._last_read[index]:
            values[source] = None
        if not any(0 in affine.terms for affine in [*network.maps][index + 1 :]):
            values[0] = None
        if noise is not None:
            left, share = _find_crossings(z, t, noise)
            live = z.shape[1] + sum(v.shape[1] for v in values if v is not None)
            if (len(t) + len(left)) * live > room:
                return None
            if len(left):
                put = _Insertion.of(left, share, len(t))
                t, z = put.into(t), put.into(z)
                values = [None if v is None else put.into(v) for v in values]
                reaches = [put.into(reach) for reach in noise.reaches]
                noise = noise._replace(reaches=reaches, put=put, t=t)
            positive = noise.positive(z)
            kept.append((t, positive))
            moved.append(t[_settle(z, positive, noise)])
        values.append(layer.activation.apply_(z))
    out = network.output(values)
    if any(map(len, moved)):
        again = np.isin(t, np.concatenate(moved))
        share = t[again, None]
        out[again] = network((1 - share) * a + share * b)
    wide = _wide(t)
    t, out = t[wide], out[wide]
    return t, _patterns(kept, t), out


def _wide(t: Array) -> NDArray[np.bool_]:
    """The breakpoints that are left when pieces below `TOLERANCE` join a neighbour.

    Until then they stay: a layer behind may tell values apart that lie as near to each other.
    """
    kept = np.append(True, np.diff(t) > TOLERANCE)
    if kept.all():
        return kept
    last = t[0]
    for i in range(1, len(t)):
        kept[i] = t[i] - last > TOLERANCE
        last = t[i] if kept[i] else last
    if not kept[-1]:  # the end stays, and takes the place of the breakpoint before it
        kept[np.flatnonzero(kept)[1:][-1:]] = False
        kept[-1] = True
    return kept


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

    bias: Array
    rows: list[Array]  # |w_i| for every source
    reaches: list[Array]  # |v_n| for every source
    matrices: list[Any]  # of the hidden sources, which come last
    read: list[Array]  # what they hold, before breakpoints of this layer were put in
    direct: Any  # the matrix of the input, if it is read
    ends: Array  # of the segment
    t: Array
    put: _Insertion | None = None

    @classmethod
    def of(cls, affine: Affine, values: list[Any], ends: Array, t: Array) -> _Noise:
        rows, reaches = [], []
        hidden = [source for source in affine.terms if source]
        for source, matrix in affine.terms.items():
            rows.append(np.sqrt(_squares(matrix)))
            reach = np.sqrt(np.einsum("ij,ij->i", values[source], values[source]))
            if source == 0:  # a small input between large ones is off by their rounding
                reach = np.maximum(reach, reach.max() * (2.0**-52 / ROUNDING))
            reaches.append(reach)
        matrices = [affine.terms[source] for source in hidden]
        read = [values[k] for k in hidden]
        direct = affine.terms.get(0)
        return cls(np.abs(affine.bias), rows, reaches, matrices, read, direct, ends, t)

    def at(self, breakpoint_: Any, unit: Any) -> Array:
        """The bound, entry by entry."""
        total = self.bias[unit]
        for row, reach in zip(self.rows, self.reaches, strict=True):
            total = total + row[unit] * reach[breakpoint_]
        return ROUNDING * total

    def exact(self, breakpoint_: Any, unit: Any) -> Array:
        """As `at`, with the sums of |w_ij| |v_nj|: a large value that a unit does not read is not
        in its rounding. One row a pair, so for few of them."""
        total = self.bias[unit]
        if self.direct is not None:
            share = self.t[breakpoint_][:, None]
            place = np.abs((1 - share) * self.ends[0] + share * self.ends[1])
            # between its ends an input is off by the rounding of the larger one
            place = np.maximum(place, np.abs(self.ends).max(axis=0) * (2.0**-52 / ROUNDING))
            total = total + _weighted(self.direct[unit], place)
        for matrix, value in zip(self.matrices, self.read, strict=True):
            held = value[breakpoint_] if self.put is None else self.put.rows(value, breakpoint_)
            total = total + _weighted(matrix[unit], np.abs(held))
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
        most = self.bias + sum(
            (row * reach.max() for row, reach in zip(self.rows, self.reaches, strict=True)),
            start=np.zeros(len(self.bias)),
        )
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


def _squares(matrix: Any) -> Array:
    if sp.issparse(matrix):
        return np.asarray(matrix.power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", matrix, matrix)


def _find_crossings(z: Array, t: Array, noise: _Noise) -> tuple[NDArray[np.intp], Array]:
    """Where units change sign inside a piece: the piece, and the place as a share of it."""
    positive = z > 0
    left, unit = _places(positive[1:] != positive[:-1])
    start, end = z[left, unit], z[left + 1, unit]
    inside = noise.exceeded(start, left, unit) & noise.exceeded(end, left + 1, unit)
    left, start, end = left[inside], start[inside], end[inside]
    share = start / (start - end)
    far = np.minimum(share, 1 - share) * (t[left + 1] - t[left]) > RESOLUTION
    left, share = left[far], share[far]
    order = np.lexsort((share, left))
    left, share = left[order], share[order]
    if len(left):
        place = t[left] + share * (t[left + 1] - t[left])
        fresh = np.concatenate([[True], np.diff(place) > RESOLUTION])
        left, share = left[fresh], share[fresh]
    return left, share


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


def _patterns(kept: list[tuple[Array, NDArray[np.bool_]]], t: Array) -> NDArray[np.uint8]:
    """Patterns on the final pieces: each lies in one piece of every earlier list."""
    middle = (t[1:] + t[:-1]) / 2
    bits = [rows[np.searchsorted(ends, middle) - 1] for ends, rows in kept]
    if not bits:
        return np.zeros((len(middle), 0), np.uint8)
    return np.packbits(np.concatenate(bits, axis=1), axis=1)

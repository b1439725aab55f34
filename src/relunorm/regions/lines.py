"""The regions along a line or a polyline, by matrix products alone.

Layer by layer: pre-activations at the breakpoints known so far (one product), sign changes between
neighbours, crossings by interpolation, insert, go on. Between breakpoints every value is affine, so
inserted rows are interpolated, not computed. Works for convolutional and residual networks of any
size: nothing but forward products of the stored matrices is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.clock import INTERRUPTED, Clock
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError
from relunorm.io.border import Model, accepts
from relunorm.network import Affine, Network
from relunorm.regions.balance import balanced, balanced_for, exponents_of
from relunorm.regions.kernels.tolerance import ROUNDING, TOLERANCE
from relunorm.regions.search.work import Budget

Array = NDArray[np.float64]

#: A leg through a network of so many entries or units is followed in so many parts where a clock
#: waits.
MANY_ENTRIES, MANY_UNITS, STRETCHES = 200_000, 5000, 16

#: Values at the breakpoints of a leg may take so many numbers (256 MB) before it is halved.
ROOM = 1 << 25
#: Crossings nearer than this on a leg are one breakpoint.
RESOLUTION = 2.0**-46
#: Shares of a leg below this are not halved any more.
SHORTEST = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Line(Shown):
    """The straight pieces of a polyline on which the hidden pattern is constant.

    Args:
        network: the network.
        vertices: the polyline, shape (k, d); parameter t runs from 0 to k - 1 along it.
        breakpoints: t of all ends of pieces, ascending, from 0 to k - 1: one more than pieces. The
            vertices are among them, also where the line turns inside a region.
        packed: the pattern of each piece, as ``np.packbits`` writes it.
        values: the network at the breakpoints, shape (pieces + 1, outputs).
        complete: False where a time limit or Ctrl-C ended the work; ``vertices`` then end where
            the line was followed to, and everything else is about that part of it.
        reason: why it is not complete.
    """

    network: Network
    vertices: Array
    breakpoints: Array
    packed: NDArray[np.uint8]
    values: Array
    complete: bool = True
    reason: str = ""

    def __len__(self) -> int:
        """How many pieces; a turn inside a region makes two of one visit."""
        return len(self.packed)

    @cached_property
    def patterns(self) -> NDArray[np.bool_]:
        """Which units are active on each piece, shape (pieces, units)."""
        return np.unpackbits(self.packed, axis=1, count=self.network.units).view(bool)

    @property
    def distinct(self) -> int:
        """How many different patterns are met (a polyline may come back to a region)."""
        return len(np.unique(self.packed, axis=0))

    def points(self, t: ArrayLike | None = None) -> Array:
        """Inputs at parameters t, or at the breakpoints."""
        t = self.breakpoints if t is None else np.atleast_1d(np.asarray(t, dtype=np.float64))
        leg = np.clip(np.floor(t).astype(int), 0, len(self.vertices) - 2)
        share = (t - leg)[:, None]
        return self.vertices[leg] * (1 - share) + self.vertices[leg + 1] * share

    def __call__(self, t: ArrayLike) -> Array:
        """The network along the line, by interpolation between breakpoints, shape (n, outputs)."""
        t = np.atleast_1d(np.asarray(t, dtype=np.float64))
        columns = [np.interp(t, self.breakpoints, column) for column in self.values.T]
        return np.column_stack(columns)

    def crossings(self) -> list[NDArray[np.intp]]:
        """For every inner breakpoint the units (numbered through all layers) that change there.

        None where the line only turns.
        """
        changed = self.patterns[1:] != self.patterns[:-1]
        return [np.flatnonzero(row) for row in changed]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.line/1",
            "network": self.network.digest,
            "of": self.network.head.of,
            "pieces": len(self),
            "distinct_patterns": self.distinct,
            **entries(self, "breakpoints values complete reason"),
        }

    def __repr__(self) -> str:
        partial = "" if self.complete else f", partial: {self.reason}"
        return f"Line({len(self):,} pieces, {len(self.vertices)} vertices{partial})"


@accepts("network")
def along(network: Model, *points: ArrayLike, time_limit: float | Clock | None = None) -> Line:
    """The regions a line or polyline passes through, exactly.

    Args:
        network: relu, leaky or linear stages, any skips, dense or sparse.
        points: two or more inputs, or one array of them, shape (k, d).
        time_limit: seconds after which to stop; the result then says that it is partial, and so it
            does after Ctrl-C.

    Exactness: crossings are exact up to rounding; pieces below 1e-10 of their leg are merged.
    Cost: one product per matrix with as many rows as breakpoints known at that layer. A leg with so
    many that they would take more than `ROOM` numbers is followed half by half.

    >>> from relunorm import Network
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[-1.0, -1.0], [0.0]])
    >>> line = along(net, [-2.0], [2.0])
    >>> line.breakpoints.tolist(), line.values.ravel().tolist()
    ([0.0, 0.25, 0.75, 1.0], [1.0, 0.0, 0.0, 1.0])
    """
    budget = Budget(Clock(time_limit))
    vertices = _vertices(network, points)
    for index, layer in enumerate(network.layers):
        if layer.activation.kind == "step":
            raise InvalidInputError(
                f"layer {index} has step units; regions are defined here for relu and leaky units"
            )
    parts: list[_Part] = []
    try:
        for part in _followed(network, vertices, _stretches(network, budget.clock)):
            parts.append(part)
            budget.book(len(part.packed), lambda: 0.0)
            if budget.spent and part.end < len(vertices) - 1:
                budget.stop(budget.spent)
                break
    except KeyboardInterrupt:
        if not parts:
            raise
        budget.stop(INTERRUPTED)
    return _joined(network, vertices, parts, budget.reason)


class _Part(NamedTuple):
    """A stretch of a polyline: its breakpoints, patterns between them and outputs at them."""

    t: Array
    packed: NDArray[np.uint8]
    values: Array

    @property
    def end(self) -> float:
        return float(self.t[-1])


def _stretches(network: Network, clock: Clock) -> int:
    """In how many parts to follow a leg: nobody looks at the clock within one."""
    entries = sum(mx.nnz(m) for affine in network.maps for m in affine.terms.values())
    large = entries > MANY_ENTRIES or network.units > MANY_UNITS
    return STRETCHES if clock.limited and large else 1


def _followed(network: Network, vertices: Array, stretches: int) -> Iterator[_Part]:
    """The polyline leg by leg, each as a whole or, where that takes too much room, in halves."""
    far = np.abs(vertices).max(axis=0)
    units = exponents_of(far, far)
    if units is None:
        network = balanced(network)
    else:
        network, vertices = balanced_for(network, units), np.ldexp(vertices, -units)
    for index, (a, b) in enumerate(itertools.pairwise(vertices)):
        open_ = [(k / stretches, (k + 1) / stretches) for k in reversed(range(stretches))]
        while open_:
            start, end = open_.pop()
            ends = ((1 - share) * a + share * b for share in (start, end))
            found = _leg(network, *ends, room=ROOM if end - start > SHORTEST else np.inf)
            if found is None:
                middle = (start + end) / 2
                open_ += [(middle, end), (start, middle)]
            else:
                yield _Part(index + start + (end - start) * found[0], *found[1:])


def _joined(network: Network, vertices: Array, parts: list[_Part], reason: str) -> Line:
    """One line of its parts; where it ends early, so do its vertices."""
    packed = np.concatenate([part.packed for part in parts])
    starts = np.concatenate([part.t[:-1] for part in parts])
    values = np.concatenate([part.values[:-1] for part in parts])
    # The line turns at its vertices, so a vertex inside a region is a breakpoint, too.
    new = np.concatenate([[True], (packed[1:] != packed[:-1]).any(axis=1)]) | (starts % 1.0 == 0.0)
    breakpoints = np.append(starts[new], parts[-1].end)
    whole, share = divmod(parts[-1].end, 1.0)
    if share:  # in the middle of a leg: that leg is shorter now, and its parameter runs to 1
        legs = int(whole)
        last = (1 - share) * vertices[legs] + share * vertices[legs + 1]
        vertices = np.concatenate([vertices[: legs + 1], last[None]])
        late = breakpoints > legs
        breakpoints[late] = legs + (breakpoints[late] - legs) / share
        breakpoints[-1] = legs + 1
    else:
        vertices = vertices[: int(whole) + 1]
    ends = np.concatenate([values[new], parts[-1].values[-1:]])
    return Line(network, vertices, breakpoints, packed[new], ends, not reason, reason)


def _vertices(network: Network, points: tuple[ArrayLike, ...]) -> Array:
    size = network.input_size
    try:
        arrays = [np.asarray(p, dtype=np.float64) for p in points]
        rows = [a.reshape(-1, size) for a in arrays if a.size]
        vertices = np.concatenate(rows)
    except ValueError:
        shapes = [np.shape(p) for p in points]
        raise InvalidInputError(
            f"points have shapes {shapes}; expected inputs of {size} numbers each"
        ) from None
    if len(vertices) < 2:
        raise InvalidInputError("a line needs two points")
    if not np.isfinite(vertices).all():
        raise InvalidInputError("the points hold NaN or infinite entries")
    return vertices


def _leg(
    network: Network, a: Array, b: Array, room: float
) -> tuple[Array, NDArray[np.uint8], Array] | None:
    """Breakpoints in [0, 1], packed patterns between them and outputs at them, for one segment.

    None where the values at the breakpoints would take more than ``room`` numbers.
    """
    t = np.array([0.0, 1.0])
    values: list[Any] = [np.stack([a, b])]
    kept: list[tuple[Array, NDArray[np.bool_]]] = []
    moved: list[Array] = []
    for index, layer in enumerate(network.layers):
        z = layer.affine(values)
        noise = _Noise.of(layer.affine, values) if layer.has_units else None
        for source in network._last_read[index]:
            values[source] = None
        if not _reads_input_later(network, index):
            values[0] = None
        if noise is not None:
            left, share = _find_crossings(z, t, noise)
            live = z.shape[1] + sum(v.shape[1] for v in values if v is not None)
            if (len(t) + len(left)) * live > room:
                return None
            if len(left):
                read = [z, *noise.reaches, *noise.read]
                t, (z, *read), values = _insert(left, share, t, read, values)
                terms = len(noise.rows)
                noise = noise._replace(reaches=read[:terms], read=read[terms:])
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
    return t, _patterns(network, kept, t), out


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
    at, unit = np.nonzero(wrong)
    large = np.abs(z[at, unit]) > noise.at(at, unit)
    z[at, unit] = 0.0
    return at[large]


def _reads_input_later(network: Network, index: int) -> bool:
    later = [layer.affine for layer in network.layers[index + 1 :]] + [network.output]
    return any(0 in affine.terms for affine in later)


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
    read: list[Array]  # what they hold

    @classmethod
    def of(cls, affine: Affine, values: list[Any]) -> _Noise:
        rows, reaches = [], []
        hidden = [source for source in affine.terms if source]
        for source, matrix in affine.terms.items():
            rows.append(np.sqrt(_squares(matrix)))
            reach = np.sqrt(np.einsum("ij,ij->i", values[source], values[source]))
            if source == 0:  # a small input between large ones is off by their rounding
                reach = np.maximum(reach, reach.max() * (2.0**-52 / ROUNDING))
            reaches.append(reach)
        matrices = [affine.terms[source] for source in hidden]
        return cls(np.abs(affine.bias), rows, reaches, matrices, [values[k] for k in hidden])

    def at(self, breakpoint_: Any, unit: Any) -> Array:
        """The bound, entry by entry."""
        total = self.bias[unit]
        for row, reach in zip(self.rows, self.reaches, strict=True):
            total = total + row[unit] * reach[breakpoint_]
        return ROUNDING * total

    def exact(self, breakpoint_: Any, unit: Any) -> Array:
        """As `at`, with the sums of |w_ij| |v_nj| for hidden sources: a large value that a unit
        does not read is not in its rounding. One row a pair, so for few of them."""
        total = self.bias[unit]
        if len(self.rows) > len(self.matrices):  # the input, first of the sorted sources
            total = total + self.rows[0][unit] * self.reaches[0][breakpoint_]
        for matrix, value in zip(self.matrices, self.read, strict=True):
            weights, sizes = abs(matrix[unit]), np.abs(value[breakpoint_])
            if sp.issparse(matrix):
                total = (
                    total + np.asarray(sp.csr_array(weights).multiply(sizes).sum(axis=1)).ravel()
                )
            else:
                total = total + np.einsum("ij,ij->i", weights, sizes)
        return ROUNDING * total

    def positive(self, z: Array) -> NDArray[np.bool_]:
        """Which units are positive on each piece by more than rounding, at its middle."""
        double = z[1:] + z[:-1]
        positive = double > 0.0
        most = self.bias + sum(
            (row * reach.max() for row, reach in zip(self.rows, self.reaches, strict=True)),
            start=np.zeros(len(self.bias)),
        )
        piece, unit = np.nonzero(positive & (double <= 2 * ROUNDING * most))
        unsure = double[piece, unit] <= self.at(piece, unit) + self.at(piece + 1, unit)
        piece, unit = piece[unsure], unit[unsure]
        if len(piece):
            noise = self.exact(piece, unit) + self.exact(piece + 1, unit)
            positive[piece, unit] = double[piece, unit] > noise
        return positive


def _squares(matrix: Any) -> Array:
    if sp.issparse(matrix):
        return np.asarray(matrix.power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", matrix, matrix)


def _find_crossings(z: Array, t: Array, noise: _Noise) -> tuple[NDArray[np.intp], Array]:
    """Where units change sign inside a piece: the piece, and the place as a share of it."""
    positive = z > 0
    left, unit = np.nonzero(positive[1:] != positive[:-1])
    start, end = z[left, unit], z[left + 1, unit]
    inside = np.abs(start) > noise.at(left, unit)
    inside &= np.abs(end) > noise.at(left + 1, unit)
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


def _insert(
    left: NDArray[np.intp], share: Array, t: Array, rows: list[Array], values: list[Any]
) -> tuple[Array, list[Array], list[Any]]:
    """Breakpoints, rows at them and live values with the crossings put in, interpolated."""
    old = (
        np.arange(len(t))
        + np.concatenate([[0], np.cumsum(np.bincount(left, minlength=len(t)))])[: len(t)]
    )
    new = left + 1 + np.arange(len(left))
    total = len(t) + len(left)

    def spread(rows: Array) -> Array:
        out = np.empty((total, *rows.shape[1:]))
        out[old] = rows
        weight = share.reshape(-1, *([1] * (rows.ndim - 1)))
        low = rows[left]
        out[new] = low + weight * (rows[left + 1] - low)
        return out

    live = [None if v is None else spread(v) for v in values]
    return spread(t), [spread(row) for row in rows], live


def _patterns(
    network: Network, kept: list[tuple[Array, NDArray[np.bool_]]], t: Array
) -> NDArray[np.uint8]:
    """Patterns on the final pieces: each lies in one piece of every earlier list."""
    middle = (t[1:] + t[:-1]) / 2
    bits = [rows[np.searchsorted(ends, middle) - 1] for ends, rows in kept]
    if not bits:
        return np.zeros((len(middle), 0), np.uint8)
    return np.packbits(np.concatenate(bits, axis=1), axis=1)

"""The regions along a line or a polyline, leg by leg (`segments`).

Works for convolutional and residual networks of any size: nothing but forward products of the
stored matrices is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.clock import INTERRUPTED, Clock
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError
from relunorm.io.border import Model, accepts
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.balance import balanced, balanced_for, exponents_of
from relunorm.regions.search.work import Budget
from relunorm.regions.segments import Followed, Leg, follow

#: A leg through a network of so many entries or units is followed in so many parts where a clock
#: waits.
MANY_ENTRIES, MANY_UNITS, STRETCHES = 200_000, 5000, 16

#: Values at the breakpoints of a leg may take so many numbers (256 MB) before it is halved.
ROOM = 1 << 25
#: Shares of a leg below this are not halved any more.
SHORTEST = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Line(Shown):
    """The straight pieces of a polyline on which the hidden pattern is constant.

    Args:
        network: the network.
        vertices: the polyline, shape (k, d); parameter t runs from 0 to k - 1 along it.
        breakpoints: t of all ends of pieces, ascending, from 0 to k - 1: one more than pieces. The
            vertices are among them, also where the line turns inside a region. Two that no float
            lies between are two floats in a row.
        packed: the pattern of each piece, as ``np.packbits`` writes it.
        values: the network at the breakpoints, shape (pieces + 1, outputs).
        complete: False where a time limit or Ctrl-C ended the work; ``vertices`` then end where
            the line was followed to, and everything else is about that part of it.
        reason: why it is not complete.
        merged: how many pieces are not listed, each below 1e-10 of its leg.
        certain: whether every sign was decided by more than rounding; False for large networks.
    """

    network: Network
    vertices: Array
    breakpoints: Array
    packed: NDArray[np.uint8]
    values: Array
    complete: bool = True
    reason: str = ""
    merged: int = 0
    certain: bool = True

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
            **entries(self, "breakpoints values complete reason merged certain"),
        }

    def __repr__(self) -> str:
        partial = "" if self.complete else f", partial: {self.reason}"
        merged = f", {self.merged:,} shorter ones merged" if self.merged else ""
        return f"Line({len(self):,} pieces{merged}, {len(self.vertices)} vertices{partial})"


@accepts("network")
def along(network: Model, *points: ArrayLike, time_limit: float | Clock | None = None) -> Line:
    """The regions a line or polyline passes through, exactly.

    Args:
        network: relu, leaky or linear stages, any skips, dense or sparse.
        points: two or more inputs, or one array of them, shape (k, d).
        time_limit: seconds after which to stop; the result then says that it is partial, and so it
            does after Ctrl-C.

    Exactness: the pieces, their order and their patterns are those of the network in real
    arithmetic, whatever the size of its weights; a unit that is 0 on a whole piece is inactive
    there. Floats do the work, bounds on their rounding say where they cannot be trusted, and there
    whole numbers decide. Pieces below 1e-10 of their leg join a neighbour (``merged`` counts them),
    but where the outputs at their ends could not both be right then, they are one piece of the
    list: so the function between breakpoints is right on every other piece, to 1e-6 of its largest
    value on the leg at the worst and mostly to some roundings, and so are breakpoints, to 1e-6 of
    the leg. Where networks are too large for that (262,144 weights), or too many signs are open,
    units that rounding hides count as inactive, crossings are exact up to rounding, and
    ``certain`` is False.

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
    network.check_continuous("regions are defined here for relu and leaky units")
    parts: list[Followed] = []
    try:
        for part in _followed(network, vertices, _stretches(network, budget.clock)):
            parts.append(part)
            budget.book(len(part.packed), lambda: 0.0)
            if budget.spent and part.t[-1] < len(vertices) - 1:
                budget.stop(budget.spent)
                break
    except KeyboardInterrupt:
        if not parts:
            raise
        budget.stop(INTERRUPTED)
    return _joined(network, vertices, parts, budget.reason)


def _stretches(network: Network, clock: Clock) -> int:
    """In how many parts to follow a leg: nobody looks at the clock within one."""
    entries = sum(affine.nnz for affine in network.maps)
    large = entries > MANY_ENTRIES or network.units > MANY_UNITS
    return STRETCHES if clock.limited and large else 1


def _followed(network: Network, vertices: Array, stretches: int) -> Iterator[Followed]:
    """The polyline leg by leg, each as a whole or, where that takes too much room, in halves."""
    given, corners = network, vertices
    far = np.abs(vertices).max(axis=0)
    units = exponents_of(far, far)
    if units is None:
        network = balanced(network)
    else:
        network, vertices = balanced_for(network, units), np.ldexp(vertices, -units)
    for index, (a, b) in enumerate(itertools.pairwise(vertices)):
        legs = Leg(network, a, b), Leg(given, corners[index], corners[index + 1])
        open_ = [(k / stretches, (k + 1) / stretches) for k in reversed(range(stretches))]
        while open_:
            start, end = open_.pop()
            room = ROOM if end - start > SHORTEST else np.inf
            found = follow(*legs, room, (start, end))
            if found is None:
                middle = (start + end) / 2
                open_ += [(middle, end), (start, middle)]
            else:
                yield found._replace(t=index + start + (end - start) * found.t)


def _joined(network: Network, vertices: Array, parts: list[Followed], reason: str) -> Line:
    """One line of its parts; where it ends early, so do its vertices."""
    packed = np.concatenate([part.packed for part in parts])
    starts = np.concatenate([part.t[:-1] for part in parts])
    values = np.concatenate([part.values[:-1] for part in parts])
    # The line turns at its vertices, so a vertex inside a region is a breakpoint, too.
    first = np.cumsum([0, *(len(part.packed) for part in parts[:-1])])
    turns = np.zeros(len(starts), dtype=bool)
    turns[first] = starts[first] % 1.0 == 0.0
    new = np.concatenate([[True], (packed[1:] != packed[:-1]).any(axis=1)]) | turns
    breakpoints = np.append(starts[new], parts[-1].t[-1])
    whole, share = divmod(float(parts[-1].t[-1]), 1.0)
    if share:  # in the middle of a leg: that leg is shorter now, and its parameter runs to 1
        legs = int(whole)
        last = (1 - share) * vertices[legs] + share * vertices[legs + 1]
        vertices = np.concatenate([vertices[: legs + 1], last[None]])
        late = breakpoints > legs
        breakpoints[late] = legs + (breakpoints[late] - legs) / share
        breakpoints[-1] = legs + 1
    else:
        vertices = vertices[: int(whole) + 1]
    _set_apart(breakpoints, np.append(turns[new], True))
    ends = np.concatenate([values[new], parts[-1].values[-1:]])
    merged, certain = sum(part.merged for part in parts), all(part.certain for part in parts)
    done = not reason
    return Line(network, vertices, breakpoints, packed[new], ends, done, reason, merged, certain)


def _set_apart(breakpoints: Array, fixed: NDArray[np.bool_]) -> None:
    """Breakpoints that are one float become floats in a row, vertices staying where they are."""
    if (breakpoints[1:] > breakpoints[:-1]).all():
        return
    for i in (np.flatnonzero(np.diff(breakpoints) <= 0.0) + 1).tolist():
        for k in range(i, len(breakpoints)):
            if fixed[k] or breakpoints[k] > breakpoints[k - 1]:
                break
            breakpoints[k] = np.nextafter(breakpoints[k - 1], np.inf)
    for i in np.flatnonzero(np.diff(breakpoints) <= 0.0)[::-1].tolist():
        for k in range(i, -1, -1):
            if breakpoints[k] < breakpoints[k + 1]:
                break
            breakpoints[k] = np.nextafter(breakpoints[k + 1], -np.inf)


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

"""Searching the difference of two networks by cutting boxes of inputs in two.

Best first: the boxes with the largest upper bounds are cut across the input along which the first
network varies most, and bounded together. Their middles and the corners that their linear bounds
point to are tried as inputs where the networks differ.

A unit that keeps its sign in both networks over a box keeps it over every part of the box, so only
those that are open are bounded again. With few of them a box costs a small share of the first one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference.linear import Bounded, Ends, linear_bounds, open_units
from relunorm.difference.pair import Pair
from relunorm.errors import InvalidInputError, TimeLimitError
from relunorm.matrix import Vector
from relunorm.network import Network

Array = NDArray[np.float64]

#: Boxes cut at a time, and kept at most.
BATCH, POOL = 64, 50_000

#: Every so many boxes one is cut across its relatively longest side, whatever the slopes say.
LONGEST = 4


#: Parts cut in two, by their numbers, and across which input. The whole is number 0, and the k-th
#: cut makes parts 2k + 1, below the middle, and 2k + 2.
Cuts = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class _Part:
    """A box of inputs, the bounds of g - f and f - g on it, and the signs of units there."""

    lo: Vector
    hi: Vector
    upper: Vector
    signs: _Signs


def cut(
    pair: Pair,
    first: Network,
    box: tuple[Vector, Vector],
    root: Bounded,
    offer: Callable[[Array], None],
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
) -> tuple[Vector, Cuts]:
    """Lower the bounds of g - f, then of f - g, over a box, until they are enough.

    Args:
        root: what is known of the whole box.
        offer: takes inputs at which the networks may differ.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.

    Returns:
        the bounds, and the cuts from which `repeat` finds them again.
    """
    whole = np.where(box[1] > box[0], box[1] - box[0], 1.0)
    kept = _Kept([layer.ends for layer in root.layers])
    heap = [(-float(root.upper.max()), 0, kept.whole(root, box))]
    cuts: Cuts = []
    while -heap[0][0] > enough() and not clock.expired() and len(heap) <= POOL:
        taken = []
        while heap and len(taken) < BATCH and -heap[0][0] > enough():
            taken.append(heapq.heappop(heap))
        parts = [part for _, _, part in taken]
        low, high = (np.stack(ends) for ends in zip(*((p.lo, p.hi) for p in parts), strict=True))
        across = _across(first, low / 2 + high / 2, high - low, whole)
        try:
            halves, corners = _halved(pair, kept, parts, across, clock)
        except TimeLimitError:
            halves = None
        if halves is None:  # no time, or as small as floats allow
            heap += taken
            break
        offer(corners)
        for k, (below, above) in enumerate(halves):
            cuts.append((taken[k][1], int(across[k])))
            for number, part in ((2 * len(cuts) - 1, below), (2 * len(cuts), above)):
                heapq.heappush(heap, (-float(part.upper.max()), number, part))
        tell(-heap[0][0])
    return np.max([part.upper for _, _, part in heap], axis=0), cuts


def repeat(pair: Pair, box: tuple[Vector, Vector], root: Bounded, cuts: Cuts) -> Vector:
    """The bounds that cuts lead to.

    Raises:
        InvalidInputError: something is cut that is not there.
    """
    kept = _Kept([layer.ends for layer in root.layers])
    open_ = {0: kept.whole(root, box)}
    done = 0
    while done < len(cuts):
        batch = cuts[done : done + BATCH]
        fresh = (k for k, (number, _) in enumerate(batch) if number > 2 * done)
        some = batch[: next(fresh, len(batch))]  # what is there before any of them is cut
        numbers, across = [n for n, _ in some], np.array([k for _, k in some], dtype=np.intp)
        there = len(set(numbers) & open_.keys()) == len(numbers) > 0
        if not there or not ((across >= 0) & (across < len(box[0]))).all():
            raise InvalidInputError("a proof cuts a box that is not there")
        halves, _ = _halved(pair, kept, [open_.pop(n) for n in numbers], across, NO_LIMIT)
        if halves is None:
            raise InvalidInputError("a proof cuts a box that has no middle")
        for below, above in halves:
            done += 1
            open_[2 * done - 1], open_[2 * done] = below, above
    return np.max([part.upper for part in open_.values()], axis=0)


def _halved(
    pair: Pair, kept: _Kept, parts: list[_Part], across: NDArray[np.intp], clock: Clock
) -> tuple[list[tuple[_Part, _Part]] | None, Array]:
    """Both halves of every part, and inputs worth a look; None where a side has no middle."""
    low, high = np.stack([p.lo for p in parts]), np.stack([p.hi for p in parts])
    at, middle = np.arange(len(parts)), low / 2 + high / 2
    left, right = high.copy(), low.copy()
    left[at, across] = right[at, across] = middle[at, across]
    if not ((left > low)[at, across] & (high > right)[at, across]).all():
        return None, middle
    lo, hi = np.concatenate([low, right]), np.concatenate([left, high])
    found = linear_bounds(pair, lo, hi, clock, kept.unpack([p.signs for p in parts] * 2))
    worst = found.slope[np.arange(len(lo)), found.upper.argmax(axis=1)]
    upper = np.minimum(found.upper, np.tile([p.upper for p in parts], (2, 1)))
    ends = [layer.ends for layer in found.layers]
    halves = [
        _Part(lo[k], hi[k], upper[k], kept.pack([layer[k] for layer in ends]))
        for k in range(len(lo))
    ]
    corners = np.concatenate([lo / 2 + hi / 2, np.where(worst > 0, hi, lo)])
    return list(zip(halves[: len(parts)], halves[len(parts) :], strict=True)), corners


@dataclass(frozen=True, eq=False)
class _Signs:
    """What is kept of a box: units that are on and off in both networks, ends of the others."""

    on: NDArray[np.bool_]
    open: NDArray[np.intp]
    ends: Array


class _Kept:
    """Bounds of all layers of a box in little memory, given those of the box around it."""

    def __init__(self, root: list[Ends]):
        self.root = np.concatenate(root, axis=2)[0]
        self.cuts = np.cumsum([layer.shape[2] for layer in root])[:-1]

    def whole(self, root: Bounded, box: tuple[Vector, Vector]) -> _Part:
        return _Part(*box, root.upper[0], self.pack([layer.ends[0] for layer in root.layers]))

    def pack(self, layers: list[Ends]) -> _Signs:
        ends = np.concatenate(layers, axis=1)
        units = np.flatnonzero(open_units(ends[None])[0])
        return _Signs((ends[0] >= 0) & (ends[4] >= 0), units, ends[:, units])

    def unpack(self, signs: list[_Signs]) -> list[Ends]:
        ends = np.repeat(self.root[None], len(signs), axis=0)
        on = np.stack([part.on for part in signs])
        for low in (0, 4):
            ends[:, low] = np.where(on, np.maximum(ends[:, low], 0.0), ends[:, low])
            ends[:, low + 1] = np.where(on, ends[:, low + 1], np.minimum(ends[:, low + 1], 0.0))
        for row, part in zip(ends, signs, strict=True):
            row[:, part.open] = part.ends
        return np.split(ends, self.cuts, axis=2)


def _across(first: Network, middle: Array, width: Array, whole: Vector) -> NDArray[np.intp]:
    """For every box the input that is cut."""
    varies = np.abs(first.jacobian(middle)).sum(axis=1) * width
    longest = (width / whole).argmax(axis=1)
    flat = varies.max(axis=1) == 0
    use = (np.arange(len(middle)) % LONGEST == LONGEST - 1) | flat
    return np.where(use, longest, varies.argmax(axis=1))

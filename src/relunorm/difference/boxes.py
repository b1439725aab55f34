"""Searching the difference of two networks by cutting boxes of inputs in two.

Best first: the boxes with the largest upper bounds are cut across the input that has most to do
with what their bounds lose and with units being open (`condensed`), and bounded together. Inputs
inside them are tried, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.best_first import Parts
from relunorm.bounds.pairs.linear import Bounded
from relunorm.bounds.pairs.pair import Pair
from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.errors import InvalidInputError, TimeLimitError
from relunorm.matrix import Array, Vector

#: Boxes cut at a time, and kept at most.
BATCH, POOL = 256, 200_000

#: Products between two looks at the clock.
PRODUCTS = 1 << 28

#: Where more than this share of all units is open, so many cuts go by without bounds.
CROWDED, SKIPPED = 0.7, 2

#: Of `Parts`, and across which input; the part below the middle comes first.
Cuts = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class _Parts:
    """Boxes of inputs: bounds of g - f and f - g there, and the rest of `bound_boxes`.

    Attributes:
        skipped: how many cuts ago they were bounded.
    """

    lo: Array
    hi: Array
    upper: Array
    signs: NDArray[np.int8]
    score: Array
    corner: Array
    skipped: NDArray[np.int8]

    def __getitem__(self, k: int) -> _Parts:
        """One of them, and no memory of the others."""
        return _Parts(*(v[k : k + 1].copy() for v in vars(self).values()))

    @staticmethod
    def join(parts: Iterable[_Parts]) -> _Parts:
        return _Parts(*map(np.concatenate, zip(*(vars(p).values() for p in parts), strict=True)))


class _Bounding:
    """How boxes of one pair are bounded; imported late, for it is compiled."""

    def __init__(self, pair: Pair, clock: Clock, workers: int = 1):
        from relunorm.bounds.pairs.condensed.kernel import bound_boxes, compile_kernels
        from relunorm.bounds.pairs.condensed.memory import flatten

        Teller(None, clock).compile("differences of copies", compile_kernels)
        self.flat, self.bound, self.workers = flatten(pair), bound_boxes, workers
        units = sum(affine.size for affine in pair.maps)
        self.step = max(1, PRODUCTS // (64 * units * units))

    def whole(self, box: tuple[Vector, Vector], root: Bounded) -> _Parts:
        """The box with the better one of its bounds."""
        from relunorm.bounds.pairs.condensed.units import OFF, ON, OPEN

        closed = [np.where(layer.z[1] <= 0, OFF, ON) for layer in root.layers]
        signs = [np.where(x.open, OPEN, s) for x, s in zip(root.layers, closed, strict=True)]
        known = np.concatenate(signs).astype(np.int8)[None]
        return self.parts(box[0][None], box[1][None], root.upper[None], known, NO_LIMIT)

    def parts(
        self, lo: Array, hi: Array, upper: Array, signs: NDArray[np.int8], clock: Clock
    ) -> _Parts:
        """Boxes, given what is known of boxes around them.

        Raises:
            TimeLimitError: the clock ended first.
        """
        signs, found = signs.copy(), np.empty_like(upper)
        score, corner = np.empty_like(lo), np.empty_like(lo)

        def bound(start: int) -> None:
            clock.check()
            some = slice(start, start + self.step)
            about = signs[some], found[some], score[some], corner[some]
            self.bound(self.flat, lo[some], hi[some], *about)

        starts = range(0, len(lo), self.step)
        if self.workers == 1:
            list(map(bound, starts))
        else:
            with ThreadPoolExecutor(self.workers) as pool:
                list(pool.map(bound, starts))
        skipped = np.zeros(len(lo), dtype=np.int8)
        return _Parts(lo, hi, np.minimum(found, upper), signs, score, corner, skipped)

    def halves(self, parts: _Parts, across: NDArray[np.intp], clock: Clock) -> _Parts | None:
        """The lower halves of all, then the upper ones; None where a side has no middle."""
        at, middle = np.arange(len(parts.lo)), parts.lo / 2 + parts.hi / 2
        left, right = parts.hi.copy(), parts.lo.copy()
        left[at, across] = right[at, across] = middle[at, across]
        if not ((left > parts.lo)[at, across] & (parts.hi > right)[at, across]).all():
            return None
        lo, hi = np.concatenate([parts.lo, right]), np.concatenate([left, parts.hi])
        upper, score = (np.tile(v, (2, 1)) for v in (parts.upper, parts.score))
        signs = np.tile(parts.signs, (2, 1))
        # where nearly all units are open a half has hardly a better bound than the whole
        late = np.tile(parts.skipped >= SKIPPED, 2) | ((signs == 1).mean(axis=1) <= CROWDED)
        score[np.arange(len(lo)), np.tile(across, 2)] /= 4
        skipped = np.tile(parts.skipped + 1, 2).astype(np.int8)
        halves = _Parts(lo, hi, upper, signs, score, lo / 2 + hi / 2, skipped)
        found = self.parts(lo[late], hi[late], upper[late], signs[late], clock)
        for ours, theirs in zip(vars(halves).values(), vars(found).values(), strict=True):
            ours[late] = theirs
        return halves


def cut(
    pair: Pair,
    box: tuple[Vector, Vector],
    root: Bounded,
    offer: Callable[[Array], None],
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
    workers: int = 1,
) -> tuple[Vector, Cuts]:
    """Lower the bounds of g - f, then of f - g, over a box, until they are enough.

    Args:
        root: what is known of the whole box.
        offer: takes inputs at which the networks may differ.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.
        workers: threads that bound boxes side by side.

    Returns:
        the bounds, and the cuts from which `repeat` finds them again.
    """
    bounding = _Bounding(pair, clock, workers)
    whole = bounding.whole(box, root)
    open_ = Parts(_largest(whole), whole)
    tell(open_.bound)

    def halves(boxes: list[_Parts]) -> list[tuple[int, _Parts, _Parts]] | None:
        parts = _Parts.join(boxes)
        across = _across(parts)
        try:
            found = bounding.halves(parts, across, clock)
        except TimeLimitError:
            return None
        if found is None:  # as small as floats allow
            return None
        offer(found.corner)
        count = len(boxes)
        return [(int(across[k]), found[k], found[k + count]) for k in range(count)]

    limits = {"batch": BATCH, "most": POOL + 1, "clock": clock}
    open_.halve(halves, _largest, enough, **limits, then=lambda: tell(open_.bound))
    return np.max([part.what.upper[0] for part in open_], axis=0), open_.cuts


def repeat(pair: Pair, box: tuple[Vector, Vector], root: Bounded, cuts: Cuts) -> Vector:
    """The bounds that cuts lead to.

    Raises:
        InvalidInputError: something is cut that is not there.
    """
    bounding = _Bounding(pair, NO_LIMIT)
    open_ = {0: bounding.whole(box, root)}
    done = 0
    while done < len(cuts):
        batch = cuts[done : done + BATCH]
        fresh = (k for k, (number, _) in enumerate(batch) if number > 2 * done)
        some = batch[: next(fresh, len(batch))]  # what is there before any of them is cut
        numbers, across = [n for n, _ in some], np.array([k for _, k in some], dtype=np.intp)
        there = len(set(numbers) & open_.keys()) == len(numbers) > 0
        if not there or not ((across >= 0) & (across < len(box[0]))).all():
            raise InvalidInputError("a proof cuts a box that is not there")
        halves = bounding.halves(_Parts.join(open_.pop(n) for n in numbers), across, NO_LIMIT)
        if halves is None:
            raise InvalidInputError("a proof cuts a box that has no middle")
        for k in range(len(some)):
            done += 1
            open_[2 * done - 1], open_[2 * done] = halves[k], halves[k + len(some)]
    return np.max([part.upper[0] for part in open_.values()], axis=0)


def _largest(parts: _Parts) -> float:
    return float(parts.upper.max())


def _across(parts: _Parts) -> NDArray[np.intp]:
    """For every box the input that is cut: where nothing is lost, that of the longest side."""
    width = parts.hi - parts.lo
    flat = ~(parts.score.max(axis=1) > 0) | ~np.isfinite(parts.score).all(axis=1)
    return np.where(flat, width.argmax(axis=1), parts.score.argmax(axis=1))

"""Searching the difference of two networks by cutting boxes of inputs in two.

Best first: the boxes with the largest upper bounds are cut across the input that has most to do
with what their bounds lose (`condensed`), and bounded together. Inputs inside them are tried, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from struct import unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.best_first import Cut, Parts
from relunorm.bounds.pairs.linear import Bounded
from relunorm.bounds.pairs.pair import Pair
from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.errors import InvalidInputError, TimeLimitError
from relunorm.matrix import Array, Vector

#: Boxes cut at a time, and the bytes that all may take.
BATCH, ROOM = 512, 1 << 30

#: What one takes beside its record.
BESIDE = 400

#: Batches from one whose points are offered to the next.
OFFERED = 8

#: Products between two looks at the clock, and boxes at most, so that threads end together.
PRODUCTS, SOME = 1 << 30, 128

#: Where more than this share of all units is open, so many cuts go by without bounds.
CROWDED, SKIPPED = 0.7, 2

#: Of `Parts`, and across which input; the part below the middle comes first.
Cuts = list[tuple[int, int]]

#: Takes inputs at which networks may differ, and how far around them is worth a look, both (points,
#: inputs).
Offer = Callable[[Array, Array], None]

#: Boxes of inputs, an array of records; `_Bounding.record` says what is in them.
_Boxes = NDArray[Any]


class _Bounding:
    """How boxes of one pair are bounded; imported late, for it is compiled.

    Attributes:
        record: what is kept of a box. ``upper`` are bounds of g - f and f - g, ``largest`` the
            largest one, ``skipped`` says how many cuts ago that was bounded; the rest is that of
            `Bounder.bound`.
        beside: what is done while the next boxes are bounded.
    """

    def __init__(self, pair: Pair, box: tuple[Vector, Vector], clock: Clock, workers: int = 1):
        from relunorm.bounds.pairs.condensed.kernel import Bounder, compile_kernels

        Teller(None, clock).compile("differences of copies", compile_kernels)
        self.workers = workers
        self.pool: ThreadPoolExecutor | None = None
        self.beside: Callable[[], None] = _nothing
        self.free = [Bounder(pair, *box) for _ in range(workers)]
        inputs = len(box[0])
        units, outputs = self.free[0].units, pair.maps[-1].size
        self.step = min(SOME, max(1, PRODUCTS // (64 * units * units)))
        by_input = [(name, "f8", (inputs,)) for name in ("lo", "hi", "score")]
        by_unit = ("signs", "i1", (units,)), ("skipped", "i1")
        upper = ("largest", "f8"), ("upper", "f8", (2 * outputs,))
        self.record = np.dtype([*upper, *by_input, *by_unit])

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Bound boxes on several threads meanwhile."""
        if self.workers == 1:
            yield
            return
        self.pool = ThreadPoolExecutor(self.workers)
        try:
            yield
        finally:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None

    def whole(self, box: tuple[Vector, Vector], root: Bounded) -> _Boxes:
        """The box with the better one of its bounds."""
        from relunorm.bounds.pairs.condensed.units import OFF, ON, OPEN

        closed = [np.where(layer.z[1] <= 0, OFF, ON) for layer in root.layers]
        signs = [np.where(x.open, OPEN, s) for x, s in zip(root.layers, closed, strict=True)]
        whole = np.zeros(1, dtype=self.record)
        whole["lo"], whole["hi"], whole["upper"] = *box, root.upper
        whole["signs"] = np.concatenate(signs)
        self.bound(whole, NO_LIMIT)()
        return whole

    def bound(self, boxes: _Boxes, clock: Clock) -> Callable[[], Array]:
        """Begin to bound boxes, given what is known of those around them.

        Returns:
            what waits for the end, writes down what was found, and returns points inside.

        Raises:
            TimeLimitError: waiting, where the clock ended first.
        """
        lo, hi, score, signs = (
            np.ascontiguousarray(boxes[name]) for name in ("lo", "hi", "score", "signs")
        )
        upper, corner = np.empty_like(boxes["upper"]), np.empty_like(lo)

        def bound(start: int) -> None:
            clock.check()
            some, bounder = slice(start, start + self.step), self.free.pop()
            about = lo[some], hi[some], signs[some], upper[some], score[some], corner[some]
            bounder.bound(*about)
            self.free.append(bounder)

        starts = range(0, len(boxes), self.step)
        begun = map(bound, starts) if self.pool is None else self.pool.map(bound, starts)

        def finish() -> Array:
            for _ in begun:
                pass
            boxes["upper"] = np.minimum(upper, boxes["upper"])
            boxes["largest"] = boxes["upper"].max(axis=1)
            boxes["score"], boxes["signs"], boxes["skipped"] = score, signs, 0
            return corner

        return finish

    def halves(
        self, boxes: _Boxes, across: NDArray[np.intp], clock: Clock
    ) -> Callable[[], tuple[_Boxes, Array, Array]] | None:
        """Begin to bound the lower halves of all, then the upper ones.

        Returns:
            what waits for them, points in those that were bounded, and their sides; None where a
            side has no middle.
        """
        count, at = len(boxes), np.arange(len(boxes))
        lo, hi = boxes["lo"][at, across], boxes["hi"][at, across]
        middle = lo / 2 + hi / 2
        if not ((middle > lo) & (hi > middle)).all():
            return None
        # where nearly all units are open a half has hardly a better bound than the whole
        late = (boxes["skipped"] >= SKIPPED) | ((boxes["signs"] == 1).mean(axis=1) <= CROWDED)
        halves = np.concatenate([boxes, boxes])
        halves["hi"][at, across] = halves["lo"][count + at, across] = middle
        halves["score"][np.arange(2 * count), np.tile(across, 2)] /= 2
        halves["skipped"] += 1
        some = np.tile(late, 2)
        found = halves[some]
        bounded = self.bound(found, clock)

        def finish() -> tuple[_Boxes, Array, Array]:
            points = bounded()
            halves[some] = found
            return halves, points, found["hi"] - found["lo"]

        return finish

    def offer(self) -> None:
        """Begin what is to be done beside the boxes that are being bounded."""
        if self.pool is not None:
            self.beside = self.pool.submit(self.beside).result

    def wait(self) -> None:
        """Wait for that, or do it."""
        beside, self.beside = self.beside, _nothing
        beside()


def cut(
    pair: Pair,
    box: tuple[Vector, Vector],
    root: Bounded,
    offer: Offer,
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
    workers: int = 1,
) -> tuple[Vector, Cuts, bool]:
    """Lower the bounds of g - f, then of f - g, over a box, until they are enough.

    Args:
        root: what is known of the whole box.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.
        workers: threads that bound boxes side by side.

    Returns:
        the bounds, the cuts from which `repeat` finds them again, and whether Ctrl-C ended it.
    """
    bounding = _Bounding(pair, box, clock, workers)
    record = bounding.record
    whole = bounding.whole(box, root).tobytes()
    open_ = Parts(_largest(whole), whole)
    tell(open_.bound)

    def begin(boxes: list[bytes]) -> Callable[[], Cut[bytes]]:
        parts = _joined(boxes, record)
        across = _across(parts)
        made = bounding.halves(parts, across, clock)

        def finish() -> Cut[bytes]:
            bounding.wait()
            if made is None:  # as small as floats allow
                return None
            try:
                found, *points = made()
            except TimeLimitError:
                return None
            if len(points[0]) and len(open_.cuts) // BATCH % OFFERED == 0:
                bounding.beside = partial(offer, *points)
            every = found.tobytes()
            rows = [every[k : k + record.itemsize] for k in range(0, len(every), record.itemsize)]
            return list(zip(across.tolist(), rows[: len(boxes)], rows[len(boxes) :], strict=True))

        return finish

    def then() -> None:
        bounding.offer()
        tell(open_.bound)

    most = ROOM // (record.itemsize + BESIDE) + 1
    limits = {"batch": BATCH, "most": most, "clock": clock}
    stopped = False
    try:
        with bounding.threads():
            open_.halve_ahead(begin, _largest, enough, **limits, then=then)
            bounding.wait()
    except KeyboardInterrupt:
        stopped = True
    rest = _joined((part.what for part in open_), record)
    return rest["upper"].max(axis=0), open_.cuts, stopped


def repeat(pair: Pair, box: tuple[Vector, Vector], root: Bounded, cuts: Cuts) -> Vector:
    """The bounds that cuts lead to.

    Raises:
        InvalidInputError: something is cut that is not there.
    """
    bounding = _Bounding(pair, box, NO_LIMIT)
    open_ = {0: bounding.whole(box, root).tobytes()}
    done = 0
    while done < len(cuts):
        batch = cuts[done : done + BATCH]
        fresh = (k for k, (number, _) in enumerate(batch) if number > 2 * done)
        some = batch[: next(fresh, len(batch))]  # what is there before any of them is cut
        numbers, across = [n for n, _ in some], np.array([k for _, k in some], dtype=np.intp)
        there = len(set(numbers) & open_.keys()) == len(numbers) > 0
        if not there or not ((across >= 0) & (across < len(box[0]))).all():
            raise InvalidInputError("a proof cuts a box that is not there")
        parts = _joined((open_.pop(n) for n in numbers), bounding.record)
        begun = bounding.halves(parts, across, NO_LIMIT)
        if begun is None:
            raise InvalidInputError("a proof cuts a box that has no middle")
        made = begun()
        for k in range(len(some)):
            done += 1
            open_[2 * done - 1], open_[2 * done] = (
                made[0][j].tobytes() for j in (k, k + len(some))
            )
    return _joined(open_.values(), bounding.record)["upper"].max(axis=0)


def _nothing() -> None:
    """Nothing is done."""


def _largest(box: bytes) -> float:
    """The largest bound of a record."""
    return unpack_from("d", box)[0]


def _joined(boxes: Iterable[bytes], record: np.dtype[Any]) -> _Boxes:
    return np.frombuffer(b"".join(boxes), dtype=record)


def _across(boxes: _Boxes) -> NDArray[np.intp]:
    """For every box the input that is cut: where nothing is lost, that of the longest side."""
    width, score = boxes["hi"] - boxes["lo"], boxes["score"]
    flat = ~(score.max(axis=1) > 0) | ~np.isfinite(score).all(axis=1)
    return np.where(flat, width.argmax(axis=1), score.argmax(axis=1))

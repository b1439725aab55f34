"""Depth-first searches on several threads: whoever has nothing to do gets a part of another's.

A search parts with what it would come to last, which is a large part of what is left of it. The
parts are kept in the order of one search, so the list of regions does not depend on who found
them. Nothing is divided before it is asked for: a search that ends with its first batch costs no
thread, and no share is too large at the end. A `Budget` says what a search may spend, regions and
seconds, and why it ended before its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import whole_number
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.errors import RelunormError
from relunorm.matrix import Array
from relunorm.regions.kernels.pack import Packed


class CellLimitError(RelunormError, ValueError):
    """A cell has more walls than a word has bits (64); the sign tree has no such limit."""


#: A search first looks for so many regions, and then for up to `GROWTH` times more each time.
FIRST_BATCH, GROWTH = 512, 4
#: In a network of many weights fewer at first: so many regions times weights.
FIRST_WORK = 2**26
#: Seconds a batch may take before the next one is no larger.
SLOW_BATCH = 0.25
#: The most at a time, and the most where a clock or other workers wait in between.
LARGEST_BATCH, WATCHED_BATCH = 16384, 2048


class Budget:
    """What may be spent, what was found, and why the search ended before its end."""

    def __init__(
        self, clock: Clock, max_regions: int | None = None, progress: Listener | None = None
    ):
        if max_regions is not None:
            whole_number("max_regions", max_regions, 1)
        self.clock, self.tell = clock, Teller(progress, clock)
        self.max_regions = max_regions
        self.found, self.reason, self.spent = 0, "", ""
        self.failures = self.hidden = 0
        self._lock = threading.Lock()
        self.weights = 1  # of the network, in dense matrices: what a region may cost

    def book(self, count: int, done: Callable[[], float]) -> None:
        """Book regions found; sets ``spent`` when nothing more should be begun."""
        with self._lock:
            self.found += count
            if self.max_regions is not None and self.found > self.max_regions:
                self.stop(f"max_regions = {self.max_regions}")  # one more than may be kept
            if not self.is_watched:
                return
            if self.clock.expired():
                self.spent = self.spent or TIME_LIMIT
            if self.tell.due:
                self.tell(f"{self.found:,} regions", done(), 1.0, found=self.found)

    def stop(self, reason: str) -> None:
        """Something is left undone, for this reason."""
        self.reason = self.reason or reason
        self.spent = self.reason

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for reports or for a time limit to act."""
        return self.clock.limited or self.tell.listener is not None

    def sizes(self, shared: bool) -> Iterator[int]:
        """How many regions to look for at a time; fewer where other workers may want a share."""
        most = WATCHED_BATCH if shared or self.is_watched else LARGEST_BATCH
        if self.max_regions is not None:
            most = min(most, self.max_regions + 1)
        size = max(1, min(most, FIRST_BATCH, FIRST_WORK // self.weights))
        while True:
            began = self.clock.elapsed()
            yield size
            spent = self.clock.elapsed() - began
            if spent < SLOW_BATCH:
                size = min(most, GROWTH * size)
            elif spent > 2 * SLOW_BATCH:  # a clock or Ctrl-C waits for the end of a batch
                size = max(1, int(size * SLOW_BATCH / spent))


class Batch(NamedTuple):
    """Some regions, in window coordinates."""

    packed: NDArray[np.uint8]
    points: Array
    corners: Array | None = None
    ptr: NDArray[np.int64] | None = None  # the corners of region i: ptr[i] to ptr[i + 1]


class Work:
    """A search by one of the engines, which stops now and then, and what it has found so far."""

    def __init__(self, engine: Any, net: Packed, search: Any, stop: NDArray[np.uint8]):
        self._engine, self._net, self._search, self._stop = engine, net, search, stop
        self.found: list[Batch] = []

    def advance(self, size: int) -> int:
        """Go on until at most ``size`` regions are found or the time is up; how many were."""
        batch = self._next(size)
        if batch is None:
            return 0
        self.found.append(batch)
        return len(batch.points)

    def _next(self, size: int) -> Batch | None:
        """At most so many regions more; None if none was found."""
        raise NotImplementedError

    def _waiting(self) -> NDArray[np.int64]:
        """What is left to search: for each piece how many cuts lead to it."""
        raise NotImplementedError

    def more(self) -> bool:
        """Whether there is anything left to search."""
        return len(self._waiting()) > 0

    def split_off(self) -> Work | None:
        """Part with what would come last; None if there is too little to share."""
        other = self._engine.split_off(self._search)
        return None if other is None else type(self)(self._engine, self._net, other, self._stop)

    def remaining(self) -> float:
        """The share of all the work that is left here, every cut counted as halves."""
        return float((0.5 ** self._waiting()).sum())

    def hidden(self) -> int:
        """How often a side was left out that a cell reaches by less than the tolerance."""
        raise NotImplementedError

    def failures(self) -> int:
        """Decisions that could not be made."""
        return 0


def run(work: Work, workers: int, budget: Budget) -> list[Batch]:
    """Every batch of a search, in its order, unless the budget ends before.

    Ctrl-C ends the search and keeps what was found. The kernels release the interpreter lock.
    """
    parts = [work]
    try:
        if workers > 1 and _advance(work, parts, budget, next(budget.sizes(shared=True))):
            _together(parts, workers, budget)
        else:
            _finish(work, parts, budget)
    except KeyboardInterrupt:
        budget.stop(INTERRUPTED)
    budget.failures += sum(part.failures() for part in parts)
    budget.hidden += sum(part.hidden() for part in parts)
    return [batch for part in parts for batch in part.found]


def _together(parts: list[Work], workers: int, budget: Budget) -> None:
    """Finish a search on several threads; what one of them gives away is put behind its own."""
    lock, busy = threading.Lock(), 0
    tasks: list[Future[None]] = []

    def begin(part: Work) -> None:
        nonlocal busy
        busy += 1
        tasks.append(pool.submit(serve, part))

    def share(part: Work) -> None:
        with lock:
            while busy < workers and (other := part.split_off()) is not None:
                parts.insert(parts.index(part) + 1, other)
                begin(other)

    def serve(part: Work) -> None:
        nonlocal busy
        try:
            _finish(part, parts, budget, share)
        except BaseException:
            budget.stop(INTERRUPTED)  # the others end with their batch
            raise
        finally:
            with lock:
                busy -= 1

    with ThreadPoolExecutor(workers) as pool:
        with lock:
            begin(parts[0])
        try:
            while tasks:
                tasks.pop().result()
        except BaseException:
            budget.stop(INTERRUPTED)
            raise


#: Regions looked for between two attempts to divide a search that is too small to share as yet.
_STRIDE = 16
#: Attempts after which what is left is taken to be too small to share at all.
_ATTEMPTS = 64


def divided(whole: Work, count: int) -> list[Work]:
    """A search in at most ``count`` independent parts, in its order: the largest gives first.

    Deterministic, so that whoever divides the same search gets the same parts.
    """
    parts, attempts = [whole], 0
    while len(parts) < count and attempts < _ATTEMPTS:
        open_ = [part for part in parts if part.more()]
        if not open_:
            break
        largest = max(open_, key=Work.remaining)
        other = largest.split_off()
        if other is None:
            attempts += 1
            largest.advance(_STRIDE)
        else:
            parts.insert(parts.index(largest) + 1, other)
    return parts


def _finish(
    part: Work, parts: list[Work], budget: Budget, share: Callable[[Work], None] | None = None
) -> None:
    """All that is left of a part but what it shares, unless the budget ends before."""
    more = part.more()
    for size in budget.sizes(shared=share is not None):
        if not more:
            return
        if budget.spent:
            budget.stop(budget.spent)
            return
        more = _advance(part, parts, budget, size)
        if more and share is not None:
            share(part)
            more = part.more()


def _advance(part: Work, parts: list[Work], budget: Budget, size: int) -> bool:
    """One batch more of a part; whether anything is left of it."""

    def done() -> float:  # others go on meanwhile, so it is an estimate
        return min(1.0, max(0.0, 1.0 - sum(each.remaining() for each in parts)))

    budget.book(part.advance(size), done)
    return part.more()

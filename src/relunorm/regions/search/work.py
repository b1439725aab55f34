"""Depth-first searches on several threads: whoever has nothing to do gets a part of another's.

A search parts with what it would come to last, which is a large part of what is left of it. The
parts are kept in the order of one search, so the list of regions does not depend on who found
them. Nothing is divided before it is asked for: a search that ends with its first batch costs no
thread, and no share is too large at the end. A `Budget` says what a search may spend, regions and
seconds, and why it ended before its end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import whole_number
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.errors import RelunormError


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
        """Book regions found; sets ``spent`` when nothing more should be begun.

        Args:
            done: the share of the work done, asked for only when it is reported.
        """
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
            batch = Clock()
            yield size
            spent = batch.elapsed()
            if spent < SLOW_BATCH:
                size = min(most, GROWTH * size)
            elif spent > 2 * SLOW_BATCH:  # a clock or Ctrl-C waits for the end of a batch
                size = max(1, int(size * SLOW_BATCH / spent))


class Batch(NamedTuple):
    """Some regions, in window coordinates."""

    packed: NDArray[np.uint8]
    points: NDArray[np.float64]
    corners: NDArray[np.float64] | None = None
    ptr: NDArray[np.int64] | None = None  # the corners of region i: ptr[i] to ptr[i + 1]


class Work(ABC):
    """A search that stops now and then."""

    @abstractmethod
    def more(self) -> bool:
        """Whether there is anything left to search."""

    @abstractmethod
    def advance(self, size: int) -> Batch | None:
        """Go on until at most ``size`` regions are found or the time is up; None if none was."""

    @abstractmethod
    def give(self) -> Work | None:
        """Part with what would come last; None if there is too little to share."""

    @abstractmethod
    def remaining(self) -> float:
        """An estimate of the share of all the work that is left here."""

    @abstractmethod
    def hidden(self) -> int:
        """How often a side thinner than the tolerance was left out."""

    def failures(self) -> int:
        """Decisions that could not be made."""
        return 0


class _Task:
    """One search, what it found, and the task whose regions come after its own."""

    __slots__ = ("after", "batches", "work")

    def __init__(self, work: Work, after: _Task | None):
        self.work, self.after = work, after
        self.batches: list[Batch] = []


def run(work: Work, workers: int, budget: Budget) -> list[Batch]:
    """Every batch of a search, in its order, unless the budget ends before.

    Ctrl-C ends the search and keeps what was found. The kernels release the interpreter lock.
    """
    first = _Task(work, None)
    try:
        if workers == 1:
            _alone(first, budget)
        else:
            _Crew(first, workers, budget).finish()
    except KeyboardInterrupt:
        budget.stop(INTERRUPTED)
    found = []
    for task in _in_order(first):
        found += task.batches
        budget.failures += task.work.failures()
        budget.hidden += task.work.hidden()
    return found


class Part(NamedTuple):
    """What was found of a part of a search while it was divided, and the rest of it."""

    found: list[Batch]
    work: Work | None


#: Regions looked for between two attempts to divide a search that is too small to share as yet.
_STRIDE = 16
#: Attempts after which what is left is taken to be too small to share at all.
_ATTEMPTS = 64


def divided(work: Work, count: int) -> list[Part]:
    """A search in at most ``count`` independent parts, in its order: the largest gives first.

    Deterministic, so that whoever divides the same search gets the same parts.
    """
    tasks, attempts = [_Task(work, None)], 0
    while len(tasks) < count and attempts < _ATTEMPTS:
        open_ = [task for task in tasks if task.work.more()]
        if not open_:
            break
        largest = max(open_, key=lambda task: task.work.remaining())
        other = largest.work.give()
        if other is None:
            attempts += 1
            batch = largest.work.advance(_STRIDE)
            if batch is not None:
                largest.batches.append(batch)
        else:
            tasks.insert(tasks.index(largest) + 1, _Task(other, None))
    return [Part(task.batches, task.work) for task in tasks]


def _in_order(task: _Task | None) -> Iterator[_Task]:
    while task is not None:
        yield task
        task = task.after


def _alone(task: _Task, budget: Budget) -> None:
    work = task.work
    for size in budget.sizes(shared=False):
        batch = work.advance(size)
        if batch is not None:
            task.batches.append(batch)
        budget.book(0 if batch is None else len(batch.points), lambda: 1.0 - work.remaining())
        if not work.more():
            return
        if budget.spent:
            budget.stop(budget.spent)
            return


class _Crew:
    """Threads that share a search; the calling thread is one of them."""

    def __init__(self, first: _Task, workers: int, budget: Budget):
        self._first, self._budget = first, budget
        self._waiting = [first]  # tasks nobody has taken
        self._hungry, self._busy = workers, 0  # workers without a task and with one
        self._unborn = workers - 1  # threads not started: they are when there is a task for them
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []

    def finish(self) -> None:
        """Work until nothing is left, or the budget ends."""
        self._serve()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        while (task := self._take()) is not None:
            try:
                self._go_on(task)
            except BaseException as error:
                self._budget.stop(INTERRUPTED)
                self._errors.append(error)
            with self._changed:
                self._hungry += 1
                self._busy -= 1
                self._changed.notify_all()

    def _take(self) -> _Task | None:
        """A task; None once all are done."""
        with self._changed:
            while not self._waiting and self._busy:
                self._changed.wait()
            if not self._waiting:
                return None
            self._hungry -= 1
            self._busy += 1
            return self._waiting.pop()

    def _go_on(self, task: _Task) -> None:
        work, budget = task.work, self._budget
        for size in budget.sizes(shared=True):
            if budget.spent:
                budget.stop(budget.spent)
                return
            batch = work.advance(size)
            if batch is not None:
                task.batches.append(batch)
            budget.book(0 if batch is None else len(batch.points), self._done)
            if not work.more():
                return
            with self._changed:
                self._share(task)

    def _done(self) -> float:
        """The share of the work done; others go on meanwhile, so it is an estimate."""
        left = sum(task.work.remaining() for task in _in_order(self._first))
        return min(1.0, max(0.0, 1.0 - left))

    def _share(self, task: _Task) -> None:
        """Give a part of the task to each worker that waits for one."""
        while self._hungry > len(self._waiting):
            other = task.work.give()
            if other is None:
                return
            task.after = _Task(other, task.after)
            self._waiting.append(task.after)
            if self._unborn:
                self._unborn -= 1
                thread = threading.Thread(target=self._serve)
                self._threads.append(thread)
                thread.start()
            else:
                self._changed.notify()

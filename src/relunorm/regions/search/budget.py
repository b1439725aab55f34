"""What a search may spend: a number of regions, seconds; and why it ended before its end."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator

import numpy as np

from relunorm.clock import TIME_LIMIT, Clock, Listener, Teller
from relunorm.errors import InvalidInputError, RelunormError


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


def whole_number(value: object, name: str) -> int:
    """A whole number given by the caller; bool, fractions and text are refused."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(f"{name} is {value!r}; expected a whole number") from None


class Budget:
    """What may be spent, what was found, and why the search ended before its end."""

    def __init__(
        self, clock: Clock, max_regions: int | None = None, progress: Listener | None = None
    ):
        if max_regions is not None and not whole_number(max_regions, "max_regions") > 0:
            raise InvalidInputError(
                f"max_regions is {max_regions}; expected a positive number or None"
            )
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

"""The one clock: how long a call may take, what is left of it, and what it tells of its progress.

Every function with a ``time_limit`` makes one `Clock` of it at the start and hands that clock, or
parts of it, to whatever may take long. A limit is wall time on a monotonic clock. ``None`` and
infinity mean no limit; 0 asks for what can be had at once. Negative numbers, NaN and everything
that is not a number are refused.

Compiled loops cannot call Python: they look at an array of one byte that `Clock.watch` lends them
and that a timer sets when the time is up.
"""

from __future__ import annotations

import math
import numbers
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError, TimeLimitError

#: Why a result is not complete, in the words every room uses.
TIME_LIMIT, INTERRUPTED = "time limit", "interrupted"

#: Seconds for what is left to do after Ctrl-C, so that what was found until then can be kept.
LAST_MOMENT = 2.0
#: Seconds between two reports of one call, unless it asks for one.
PACE = 0.1

#: Seconds after which a `Log` is first told how far a call has come.
FIRST_LINE = 5.0

#: Seconds a timer sleeps at most: systems refuse to wait for ages.
LONGEST_WAIT = 3600.0


def as_seconds(value: Any) -> float:
    """Seconds of a limit given by the caller; infinity for none.

    >>> as_seconds(3), as_seconds(0), as_seconds(None)
    (3.0, 0.0, inf)
    """
    if value is None:
        return math.inf
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not (number and float(value) >= 0):
        raise InvalidInputError(
            f"time_limit is {value!r}, expected a number of seconds of at least 0, or None"
        )
    return float(value)


class _Source:
    """Where the clocks of one call read the time: seconds without those spent in pauses."""

    def __init__(self, read: Callable[[], float]):
        self.read = read
        self.skipped, self.depth, self.since = 0.0, 0, 0.0
        self.lock = threading.Lock()
        self._timer = _Timer()

    @property
    def timer(self) -> _Timer:
        if self._timer.process != os.getpid():  # threads do not come along to a fork
            self._timer = _Timer()
        return self._timer

    def now(self) -> float:
        with self.lock:
            return (self.since if self.depth else self.read()) - self.skipped

    def halt(self) -> None:
        with self.lock:
            if not self.depth:
                self.since = self.read()
            self.depth += 1

    def skip(self, seconds: float) -> None:
        with self.lock:
            self.skipped += seconds

    def go_on(self) -> None:
        with self.lock:
            self.depth -= 1
            if not self.depth:
                self.skipped += self.read() - self.since


class _Timer:
    """A thread that sets bytes when the time of their clocks is up; there while any is waiting."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.changed = threading.Condition()
        self.waiting: dict[int, tuple[NDArray[np.uint8], Clock]] = {}
        self.runs = False
        self.wakes = -math.inf  # when it looks next, by the clock that is due first

    @contextmanager
    def setting(self, byte: NDArray[np.uint8], clock: Clock) -> Iterator[None]:
        """Set the byte when the time is up, if that is before the end of the block."""
        try:
            self._add(byte, clock)
            yield
        finally:
            with self.changed:
                self.waiting.pop(id(byte), None)
                if not self.waiting:
                    self.changed.notify()

    def _add(self, byte: NDArray[np.uint8], clock: Clock) -> None:
        with self.changed:
            self.waiting[id(byte)] = byte, clock
            if not self.runs:
                self.wakes = -math.inf
                threading.Thread(target=self._run, daemon=True, name="relunorm-clock").start()
                self.runs = True
            elif clock.ends < self.wakes:
                self.changed.notify()

    def _run(self) -> None:
        with self.changed:
            while self.waiting:
                wait, self.wakes = min((c.left(), c.ends) for _, c in self.waiting.values())
                self.changed.wait(min(wait, LONGEST_WAIT))
                for byte, clock in list(self.waiting.values()):
                    if clock.expired():
                        byte[0] = 1
                        del self.waiting[id(byte)]
            self.runs = False


class Clock:
    """The time one call may take, begun when it is made.

    Args:
        time_limit: seconds, None for no limit, or a clock: then a part of it that ends with it.
        read: the monotonic clock; tests give their own.

    >>> clock = Clock(60)
    >>> clock.expired(), 59 < clock.left() <= 60, clock.part(share=0.25).left() <= 15
    (False, True, True)
    """

    def __init__(self, time_limit: Any = None, read: Callable[[], float] = time.monotonic):
        if isinstance(time_limit, Clock):
            self._source, self.ends = time_limit._source, time_limit.ends
            self.began = self._source.now()
        else:
            seconds = as_seconds(time_limit)
            self._source = _Source(read)
            self.began = self._source.now()
            self.ends = self.began + seconds

    @property
    def limit(self) -> float:
        """Seconds from the beginning to the end; infinity without a limit."""
        return max(self.ends - self.began, 0.0)

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.ends)

    def elapsed(self) -> float:
        """Seconds since the beginning, without pauses."""
        return self._source.now() - self.began

    def left(self) -> float:
        """Seconds until the end, never below 0; infinity without a limit."""
        return max(self.ends - self._source.now(), 0.0) if self.limited else math.inf

    def left_or_none(self) -> float | None:
        """Seconds until the end as solvers want them: None without a limit."""
        return self.left() if self.limited else None

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.limited and self._source.now() >= self.ends

    def check(self) -> None:
        """Raise once the time is up; for work that is of no use before it is done."""
        if self.expired():
            raise TimeLimitError(
                f"the time limit of {self.limit:.3g} s ended the work, and there is no part of the "
                "answer to return; allow more time"
            )

    def part(self, seconds: float = math.inf, *, share: float = 1.0) -> Clock:
        """A clock that ends after so many seconds or that share of what is left, the sooner."""
        inner = Clock(self)
        inner.ends = min(self.ends, inner.began + min(seconds, share * self.left()))
        return inner

    def until(self, share: float) -> Clock:
        """A clock that ends when this share of the whole limit has passed."""
        inner = Clock(self)
        inner.ends = min(self.ends, self.began + share * self.limit)
        return inner

    @contextmanager
    def pause(self) -> Iterator[None]:
        """A stretch that does not count, such as compiling; for all parts of the clock alike."""
        self._source.halt()
        try:
            yield
        finally:
            self._source.go_on()

    def grant(self, seconds: float) -> None:
        """Do not count so many seconds that have passed, such as another process's compiling."""
        self._source.skip(seconds)

    @contextmanager
    def watch(self) -> Iterator[NDArray[np.uint8]]:
        """Lend compiled loops one byte that becomes 1 when the time is up.

        The loops have to release the interpreter (``nogil``), or the timer cannot run. Inside of
        another watch of the same call, or of a part of it, this costs no thread of its own.
        """
        stop = np.zeros(1, np.uint8)
        if self.expired():
            stop[0] = 1
        if not self.limited or stop[0]:
            yield stop
            return
        with self._source.timer.setting(stop, self):
            yield stop

    def __reduce__(self) -> tuple[Any, ...]:
        # Monotonic clocks mean nothing elsewhere: the end travels as time of day.
        return _arrived, (time.time() + self.left(), self.elapsed())

    def __repr__(self) -> str:
        return f"Clock({self.left():.3g} s left)" if self.limited else "Clock(no limit)"


#: The clock of work without a limit.
NO_LIMIT = Clock()


def _arrived(end: float, elapsed: float) -> Clock:
    clock = Clock(max(end - time.time(), 0.0))
    clock.began -= elapsed
    return clock


@dataclass(frozen=True)
class Progress:
    """What every ``progress`` callback is called with.

    Attributes:
        message: what is being done.
        done: how much of it is done.
        total: how much there is, None where nobody knows.
        elapsed: seconds since the call began, compiling not counted.
        left: seconds it may still take, at the pace so far and no longer than the time limit
            allows; None where nobody knows.
        at_most: whether ``left`` is only what the time limit allows, and it may take far less.
        facts: what the function knows so far, by name, such as lower and upper bounds.
    """

    message: str
    done: float = 0.0
    total: float | None = None
    elapsed: float = 0.0
    left: float | None = None
    at_most: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left_in_words(self) -> str:
        """How much longer it may take, in words; empty where nobody knows.

        >>> Progress("searching", left=8.2).left_in_words
        'about 8 s left'
        """
        if self.left is None:
            return ""
        return f"{'at most' if self.at_most else 'about'} {self.left:,.0f} s left"

    @property
    def share(self) -> float | None:
        """The share that is done, None where nobody knows."""
        return None if self.total is None else self.done / self.total if self.total else 1.0


#: A ``progress`` argument. What it raises ends the call.
Listener = Callable[[Progress], None]


class Log:
    """A listener that writes a line now and then: the first after some seconds, then ever fewer."""

    def __init__(self, what: str, write: Callable[[str], object]):
        self.what, self.write = what, write
        self.began, self.wait = time.monotonic(), FIRST_LINE

    def __call__(self, said: Progress) -> None:
        """Hear, and perhaps write."""
        elapsed = time.monotonic() - self.began
        if elapsed < self.wait:
            return
        self.wait = 2 * max(self.wait, elapsed)
        share = "" if not said.share else f", {said.share:.0%} done"
        left = f", {said.left_in_words}" if said.left_in_words else ""
        self.write(f"relunorm: {self.what}: {said.message}{share}{left}")


#: What this process has compiled or loaded.
_compiled: set[str] = set()
#: Who is told of it where a call has no listener of its own, and whether of loading, too.
_bystanders: list[tuple[Listener, bool]] = []
#: What to do when a kernel begins to be compiled; one entry at most.
_if_compiled: list[Callable[[], None]] = []


@contextmanager
def overhearing(listener: Listener, *, loading: bool = True) -> Iterator[None]:
    """Have ``listener`` told of compiling, also in calls that take no ``progress``.

    Args:
        loading: whether it is told of loading what was compiled before, too.
    """
    heard = listener, loading
    _bystanders.append(heard)
    try:
        yield
    finally:
        _bystanders.remove(heard)


def compiling(what: str) -> None:
    """Tell who overhears that the next call loads kernels, or compiles them: once a process.

    >>> heard = []
    >>> with overhearing(heard.append):
    ...     compiling("an example")
    >>> heard[0].message
    'loading an example'
    """
    if what not in _compiled:
        Teller(None, NO_LIMIT).announce(what)
        _compiled.add(what)


def _begun() -> None:
    """A kernel is compiled: tell of the first one."""
    if _if_compiled:
        _if_compiled.pop()()


class Teller:
    """Tells a listener, if there is one, how far a call has come; not too often.

    >>> heard = []
    >>> Teller(heard.append, Clock())("counting", 1, 4, found=17)
    >>> heard[0].share, heard[0].facts["found"]
    (0.25, 17)
    """

    def __init__(self, listener: Listener | None, clock: Clock):
        if listener is not None and not callable(listener):
            raise InvalidInputError(
                f"progress is {listener!r}, expected a function of one argument, a Progress"
            )
        self.listener, self.clock = listener, clock
        self._last = -math.inf

    @property
    def due(self) -> bool:
        """Whether somebody listens and has not been told for a while."""
        return self.listener is not None and self.clock.elapsed() - self._last >= PACE

    def __call__(
        self,
        message: str,
        done: float = 0.0,
        total: float | None = None,
        *,
        begun: float = 0.0,
        even: bool = True,
        at_once: bool = True,
        **facts: Any,
    ) -> None:
        """Report; with ``at_once=False`` only if the last report is some time ago.

        Args:
            begun: how much was done before the call began, so that the pace is right.
            even: whether what is left goes at the pace of what is done.
        """
        if self.listener is None or not (at_once or self.due):
            return
        elapsed = self._last = self.clock.elapsed()
        left = self.clock.left_or_none()
        at_most = left is not None
        if even and total is not None and (done > begun or done >= total):
            rest = max(total - done, 0.0)
            pace = rest * elapsed / (done - begun) if rest else 0.0
            at_most = left is not None and left < pace
            left = pace if left is None else min(pace, left)
        self.listener(Progress(message, done, total, elapsed, left, at_most, facts))

    def announce(self, what: str) -> None:
        """Say that kernels are loaded and, should they have to be compiled, that as well."""

        def tell(message: str, loading: bool) -> None:
            if self.listener is not None:
                self(message)
            if _bystanders:
                listener, always = _bystanders[-1]
                wanted = not loading or (always and self.listener is None)
                if wanted and listener is not self.listener:
                    listener(Progress(message))

        tell(f"loading {what}", True)
        told = f"compiling {what} (once per installation, not counted as time)"
        _if_compiled[:] = [lambda: tell(told, False)]
        from relunorm.compiled.jit import when_compiling

        when_compiling[:] = [_begun]

    def compile(self, what: str, run: Callable[[], object]) -> None:
        """Have ``run`` load kernels, or compile them, once a process: announced, not counted."""
        if what in _compiled:
            return
        with self.clock.pause():
            self.announce(what)
            try:
                run()
            finally:
                _if_compiled.clear()
        _compiled.add(what)


class Interrupts:
    """Whether Ctrl-C was pressed, also where a function caught it to keep what it had found.

    While entered, notes every interrupt and passes it on to whoever handled it before.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # others never get signals
            self._before = signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        self._before(number, frame)

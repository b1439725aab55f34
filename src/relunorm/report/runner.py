"""Runs the sections one after the other, each within its share of the time.

What a section does not use, the later ones get. Small networks are looked at in this process,
where every part ends near its time limit; larger ones in a process that is killed when a section
overruns, so that no model can make the report take much longer than it was given. Starting that
process takes a second, so with a short limit only very large networks get one.

A killed process has to be replaced, and starting one costs a second or more. So a section that is
over its time is waited for while its replacement starts beside it, and is killed only when that
one is ready: at worst a section that ends too late costs as long again as the start.

The process (`serve`) reads one pickled `Case`, says that it is ready, reads one request (section
name, seconds) at a time from standard input, and writes one JSON document a line. The empty name
asks it to compile.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from relunorm.clock import INTERRUPTED, Clock, Interrupts, Listener, Teller
from relunorm.report.case import Case
from relunorm.report.registry import NEEDS_TIME, NO_TIME, SECTIONS, Section, attempt, entry, warm_up

#: Above so many parameters or inputs sections run in a process of their own, ...
SMALL = 200_000
#: ... above so many units, ...
SMALL_UNITS = 2000
#: ... and above so many values of units on the rows of data.
SMALL_VALUES = 1 << 20
#: With fewer seconds than this in all, starting a process costs more than it saves, ...
SHORT = 4.0
#: ... unless single steps are long: so many times as large as a small network.
HUGE = 20
#: What is told before the kernels are loaded, or compiled the first time on a machine.
COMPILING = "loading kernels (compiled once per installation, not counted as time)"
#: Of the time that is left a section is given at most this share: rooms end a little late.
MOST = 0.9
#: How much longer than its time a section may take before it is replaced: a share, and seconds.
GRACE = 1.25, 0.1
#: Seconds after the end of all time in which what is finished can still be handed over.
HANDING_OVER = 0.5
#: Seconds for compiling.
START = 120.0
#: Seconds an interrupted section has to hand over what it found.
LAST_WORDS = 3.0
#: Seconds between two looks at a section that is over its time and at its replacement.
LOOK = 0.02


def is_small(case: Case, times: int = 1) -> bool:
    """Whether every part ends soon after its time limit: none has a long step on so little."""
    network = case.network
    rows = 0 if case.x is None else len(case.x)
    return (
        max(network.parameters, network.input_size) <= times * SMALL
        and network.units <= times * SMALL_UNITS
        and rows * network.units <= times * SMALL_VALUES
    )


def run_sections(
    case: Case, clock: Clock, progress: Listener | None = None
) -> tuple[dict[str, Any], bool]:
    """Every section's entry by name, and whether the user interrupted."""
    here = is_small(case, HUGE if clock.limit < SHORT else 1)
    engine = Here(case) if here else Apart(case)
    found: dict[str, Any] = {}
    compiled, tell = False, Teller(progress, clock)
    with Interrupts() as interrupts:
        try:
            for index, section in enumerate(SECTIONS):
                if interrupts.seen or clock.expired():
                    break
                if section.compiled and not compiled:  # a matter of the machine, and not counted
                    tell(COMPILING, index, len(SECTIONS), even=False)
                    compiled, seconds = True, engine.compile()
                    clock.grant(seconds)
                    if clock.expired():  # loading the code is counted, may have taken all of it
                        break
                tell(section.title, index, len(SECTIONS), even=False)
                left = clock.left()
                share = section.weight / sum(later.weight for later in SECTIONS[index:])
                found[section.name] = engine.run(section, min(share, MOST) * left, left)
        except KeyboardInterrupt:  # between two sections
            interrupts.seen = True
        finally:
            engine.close()
    why = INTERRUPTED if interrupts.seen else f"{NO_TIME} of {clock.limit:.3g} s"
    for section in SECTIONS:
        found.setdefault(section.name, entry(section, None, why, 0.0))
    return found, interrupts.seen


class Here:
    """Sections in this process."""

    def __init__(self, case: Case):
        self.case = case

    def compile(self) -> float:
        """Load or compile the kernels."""
        return warm_up(self.case)

    def run(self, section: Section, seconds: float, left: float) -> dict[str, Any]:
        """Compute it; every room ends near its time by itself."""
        del left
        return attempt(section, self.case, seconds)

    def close(self) -> None:
        """Nothing to do."""


class Apart:
    """Sections in a process that is replaced when one of them overruns or ends it."""

    def __init__(self, case: Case):
        self.case = case
        self.worker: Worker | None = None
        self.spare: Worker | None = None
        self.compiled = False
        self.start_seconds = 0.0

    def compile(self) -> float:
        """Let the process load or compile the kernels."""
        self.compiled = True  # a process that is still to start does it, too
        return 0.0 if self.worker is None else self.worker.compile(START)

    def run(self, section: Section, seconds: float, left: float) -> dict[str, Any]:
        """Ask for it, and wait as long as it may take."""
        clock, why = Clock(left), ""
        if self.worker is None and not self._replace(left):
            return entry(section, None, f"{NO_TIME} to start a process", left)
        assert self.worker is not None
        self.worker.ask(section.name, seconds)
        try:
            found = self._wait(self.worker, seconds, clock)
            if found is not None:
                return found
            why = "its process ended by itself, most likely for want of memory"
        except queue.Empty:
            why = f"{NEEDS_TIME} than the {clock.elapsed():.2g} s it was given"
        except KeyboardInterrupt:
            why = INTERRUPTED
            with suppress(queue.Empty):
                found = self.worker.answer(LAST_WORDS)
                if found is not None:
                    return found
        self.worker.kill()
        self.worker = None
        return entry(section, None, why, clock.elapsed())

    def close(self) -> None:
        """End the processes."""
        for worker in (self.worker, self.spare):
            if worker is not None:
                worker.kill()
        self.worker = self.spare = None

    def _replace(self, left: float) -> bool:
        """A process in the place of the one that ended; False if it is not ready in time."""
        clock = Clock()
        self.worker, self.spare = self.spare or Worker(self.case, self.compiled), None
        ready = self.worker.ready(left + HANDING_OVER)
        self.start_seconds = max(self.start_seconds, clock.elapsed())
        return ready

    def _wait(self, worker: Worker, seconds: float, clock: Clock) -> dict[str, Any] | None:
        """The answer, until the section is over its time and another process could go on.

        Raises:
            queue.Empty: when it is not there by then.
        """
        with suppress(queue.Empty):
            return worker.answer(min(GRACE[0] * seconds + GRACE[1], clock.left()))
        if self.spare is None and clock.left() > self.start_seconds:
            self.spare = Worker(self.case, self.compiled)
        while clock.elapsed() < clock.limit + HANDING_OVER:
            with suppress(queue.Empty):
                return worker.answer(LOOK)
            if self.spare is not None and self.spare.is_ready:
                break
        raise queue.Empty


class Worker:
    """The parent's end: ask for a section, wait for a while, kill."""

    def __init__(self, case: Case, compiled: bool = False):
        code = f"from relunorm.report.runner import serve; serve({compiled})"
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._started = threading.Event()
        threading.Thread(target=self._follow, args=(case,), daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether it has started (or ended: the next answer tells)."""
        return self._started.is_set()

    def ready(self, timeout: float) -> bool:
        """Wait until it has started; False if that takes longer."""
        return self._started.wait(timeout)

    def compile(self, timeout: float) -> float:
        """Wait until it has compiled; the seconds that took. A later answer tells if it has not."""
        self.ask("", timeout)
        with suppress(queue.Empty):
            found = self.answer(timeout)
            return 0.0 if found is None else found["compiling"]
        return timeout

    def ask(self, name: str, seconds: float) -> None:
        """Start a section."""
        self._send(pickle.dumps((name, seconds)))

    def answer(self, timeout: float) -> dict[str, Any] | None:
        """Its entry of the document; None if the process ended without one.

        Raises:
            queue.Empty: when it takes longer.
        """
        line = self._lines.get(timeout=max(timeout, 0.0))
        return json.loads(line) if line else None

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was still to be written has no reader any more
                    continue
        self._process.wait()

    def _send(self, content: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(content)
            pipe.flush()
        except (BrokenPipeError, ValueError):  # it died or was killed; `answer` says so
            return

    def _follow(self, case: Case) -> None:
        """Hand over the case, which may be large, and then listen."""
        self._send(pickle.dumps(case))
        pipe = self._process.stdout
        assert pipe is not None
        try:
            for line in iter(pipe.readline, b""):
                if self._started.is_set():
                    self._lines.put(line)
                self._started.set()
        except ValueError:  # closed by `kill`
            return
        self._lines.put(b"")
        self._started.set()


def serve(compiled: bool) -> None:
    """The process's end: compute what is asked for until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a solver prints must not mix with the answers
    requests: IO[bytes] = sys.stdin.buffer
    known = {section.name: section for section in SECTIONS}
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):  # the parent has all it wants
        case: Case = pickle.load(requests)
        if compiled:
            warm_up(case)
        answers.write(b"{}\n")
        answers.flush()
        while True:
            name, seconds = pickle.load(requests)
            if name:
                found = attempt(known[name], case, seconds)
            else:
                found = {"compiling": warm_up(case)}
            answers.write(json.dumps(found, allow_nan=False).encode() + b"\n")
            answers.flush()

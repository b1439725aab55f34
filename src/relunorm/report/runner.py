"""Runs the sections one after the other, each within its share of the time.

What a section does not use, the later ones get. Small networks are looked at in this process,
where every room ends near its time limit; larger ones in a process that is killed when a section
overruns (`worker`), so that no model can make the report take much longer than it was given.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from relunorm.report.case import Case
from relunorm.report.interrupts import Interrupts
from relunorm.report.section import SECTIONS, Section, attempt, entry, warm_up
from relunorm.report.worker import Worker

Progress = Callable[[str, int, int, float], None]

#: Above so many parameters or inputs sections run in a process of their own, ...
SMALL = 20_000
#: ... above so many units, ...
SMALL_UNITS = 1000
#: ... and above so many values of units on the rows of data.
SMALL_VALUES = 1 << 20
#: How much longer than its time a section may take before it is killed: a share, and seconds.
GRACE = 1.25, 1.0
#: Seconds for starting a process and compiling, which no section's time includes.
START = 120.0
#: Seconds an interrupted section has to hand over what it found.
LAST_WORDS = 3.0


class Engine(Protocol):
    """Something that computes sections."""

    def start(self) -> None:
        """What has to be done once, before the time runs."""
        ...

    def run(self, section: Section, seconds: float) -> dict[str, Any]:
        """A section's entry of the document."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class Here:
    """Sections in this process."""

    def __init__(self, case: Case):
        self.case = case

    def start(self) -> None:
        """Compile."""
        warm_up(self.case)

    def run(self, section: Section, seconds: float) -> dict[str, Any]:
        """Compute it."""
        return attempt(section, self.case, seconds)

    def close(self) -> None:
        """Nothing to do."""


class Apart:
    """Sections in a process that is replaced when one of them overruns or ends it."""

    def __init__(self, case: Case):
        self.case = case
        self.worker: Worker | None = None

    def start(self) -> None:
        """Start the process, or one in the place of a killed one, and let it compile."""
        if self.worker is None:
            self.worker = Worker(self.case)
            self.worker.ready(START)

    def run(self, section: Section, seconds: float) -> dict[str, Any]:
        """Ask for it, and wait as long as it may take."""
        self.start()
        assert self.worker is not None
        began = time.perf_counter()
        self.worker.ask(section.name, seconds)
        why = f"it took longer than its {seconds:.3g} s"
        try:
            found = self.worker.answer(GRACE[0] * seconds + GRACE[1])
            if found is not None:
                return found
            why = "its process ended by itself, most likely for want of memory"
        except queue.Empty:  # `why` stands
            pass
        except KeyboardInterrupt:
            why = "interrupted"
            with suppress(queue.Empty):
                found = self.worker.answer(LAST_WORDS)
                if found is not None:
                    return found
        self.close()
        return entry(section, None, why, time.perf_counter() - began)

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None


def is_small(case: Case) -> bool:
    """Whether every room ends soon after its time limit: none has a long step on so little."""
    network = case.network
    rows = 0 if case.x is None else len(case.x)
    return (
        max(network.parameters, network.input_size) <= SMALL
        and network.units <= SMALL_UNITS
        and rows * network.units <= SMALL_VALUES
    )


def run_sections(
    case: Case, time_limit: float, progress: Progress | None = None
) -> tuple[dict[str, Any], bool]:
    """Every section's entry by name, and whether the user interrupted."""
    engine: Engine = Here(case) if is_small(case) else Apart(case)
    found: dict[str, Any] = {}
    with Interrupts() as interrupts:
        try:
            engine.start()
            deadline = time.perf_counter() + time_limit
            for index, section in enumerate(SECTIONS):
                left = deadline - time.perf_counter()
                if interrupts.seen or left <= 0:
                    break
                if progress is not None:
                    progress(section.title, index, len(SECTIONS), left)
                share = section.weight / sum(later.weight for later in SECTIONS[index:])
                found[section.name] = engine.run(section, share * left)
        except KeyboardInterrupt:  # between two sections
            interrupts.seen = True
        finally:
            engine.close()
    why = "interrupted" if interrupts.seen else f"no time was left of {time_limit:g} s"
    for section in SECTIONS:
        found.setdefault(section.name, entry(section, None, why, 0.0))
    return found, interrupts.seen

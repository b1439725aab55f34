"""Runs the sections one after the other, each within its share of the time.

What a section does not use, the later ones get. Small networks are looked at in this process,
where every part ends near its time limit; larger ones in a process that is killed when a section
overruns (`engine`), so that no model can make the report take much longer than it was given.
Starting that process takes a second, so with a short limit only very large networks get one.
"""

from __future__ import annotations

from typing import Any

from relunorm.clock import INTERRUPTED, Clock, Listener, Teller
from relunorm.interrupts import Interrupts
from relunorm.report.case import Case
from relunorm.report.engine import Apart, Engine, Here
from relunorm.report.section import SECTIONS, entry

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
    engine: Engine = Here(case) if here else Apart(case)
    found: dict[str, Any] = {}
    compiled, tell = False, Teller(progress, clock)
    with Interrupts() as interrupts:
        try:
            for index, section in enumerate(SECTIONS):
                if interrupts.seen or clock.expired():
                    break
                if section.compiled and not compiled:  # a matter of the machine, and not counted
                    tell(COMPILING, index, len(SECTIONS))
                    compiled, seconds = True, engine.compile()
                    clock.grant(seconds)
                    if clock.expired():  # loading the code is counted, may have taken all of it
                        break
                tell(section.title, index, len(SECTIONS))
                left = clock.left()
                share = section.weight / sum(later.weight for later in SECTIONS[index:])
                found[section.name] = engine.run(section, min(share, MOST) * left, left)
        except KeyboardInterrupt:  # between two sections
            interrupts.seen = True
        finally:
            engine.close()
    why = INTERRUPTED if interrupts.seen else f"no time was left of {clock.limit:.3g} s"
    for section in SECTIONS:
        found.setdefault(section.name, entry(section, None, why, 0.0))
    return found, interrupts.seen

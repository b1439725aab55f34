"""One part of the report: what it is called, what share of the time it gets, what computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from relunorm.clock import INTERRUPTED, Clock, Teller
from relunorm.errors import RelunormError
from relunorm.report.case import Case

#: Inputs up to which the regions of the whole domain are counted.
COUNTED_INPUTS = 8


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
        name: its key in the document, and the module under ``relunorm.report.sections``.
        title: its heading.
        weight: its share of the time.
        call: what a reader can run to get more of it.
        compiled: whether it, or one after it, runs the kernels that `warm_up` compiles.
    """

    name: str
    title: str
    weight: float
    call: str
    compiled: bool = False

    def compute(self, case: Case, seconds: float) -> dict[str, Any]:
        """Its body: numbers with their kinds, JSON-safe."""
        return self.function()(case, seconds)

    def function(self) -> Callable[[Case, float], dict[str, Any]]:
        """What computes it; imported here, for the rooms behind it are not light."""
        return import_module(f"relunorm.report.sections.{self.name}").compute


#: In the order they run: what needs a few products first, what can use any time last.
SECTIONS = (
    Section("network", "What it is", 1.0, "rn.load(model).to_dict()"),
    Section("line", "Profile along a line", 0.5, "rn.along(network, start, end)"),
    Section("geometry", "Geometry through depth", 1.0, "rn.geometry(network, X)"),
    Section("regions", "Linear regions", 2.5, "rn.regions(network, domain, time_limit=600)", True),
    Section(
        "units", "Unit health", 1.5, "rn.diagnose(network, X, y, domain, time_limit=600)", True
    ),
    Section(
        "removal",
        "What can be removed",
        3.0,
        'rn.normalize(network, "minimal", domain, time_limit=600)',
        True,
    ),
    Section(
        "lipschitz",
        "Lipschitz constant",
        2.5,
        "rn.lipschitz(network, domain, time_limit=600)",
        True,
    ),
    Section("program", "On a board", 1.0, 'rn.to_c(network, domain, bits=16).save("net.c")'),
)


def warm_up(case: Case) -> float:
    """Load the code of the sections and compile (or load) its kernels: a matter of the machine.

    Returns the seconds the kernels took: the first time on a machine up to a minute, later a
    fraction of a second.
    """
    from relunorm.domain import Box
    from relunorm.lipschitz import branch, front
    from relunorm.network import Network
    from relunorm.regions.enumerate import regions

    for section in SECTIONS:
        section.function()
    clock = Clock()
    inputs, units = case.network.input_size, case.network.units
    for dimension in {2, inputs if inputs <= COUNTED_INPUTS else 2}:
        tiny = Network.from_weights([np.eye(1, dimension), np.ones((1, 1))])
        regions(tiny, Box.cube(dimension))
    if 2 < inputs <= front.TREE_INPUTS and units <= front.TREE_UNITS:
        branch.compile_kernels(Teller(None, Clock()))
    return clock.elapsed()


def attempt(section: Section, case: Case, seconds: float) -> dict[str, Any]:
    """The section's entry of the document: its body, or why there is none.

    An error of one section must not take the others with it, so every exception ends here and is
    told in the section's place.
    """
    clock = Clock()
    body: dict[str, Any] | None = None
    why = ""
    try:
        with np.errstate(all="ignore"):
            body = section.compute(case, seconds)
    except RelunormError as error:
        why = str(error)
    except OverflowError:
        why = "its numbers are beyond float64"
    except MemoryError:
        why = "it needs more memory than there is"
    except KeyboardInterrupt:
        why = INTERRUPTED
    except Exception as error:
        why = f"{type(error).__name__}: {error} (a defect of relunorm: please report it)"
    return entry(section, body, why, clock.elapsed())


def entry(
    section: Section, body: dict[str, Any] | None, why: str, seconds: float
) -> dict[str, Any]:
    """A section of the document."""
    if body is not None:
        why = body.pop("partial", "")
    status = "not computed" if body is None else ("partial" if why else "done")
    return {
        "title": section.title,
        "status": status,
        "why": why,
        "call": section.call,
        "seconds": round(seconds, 3),
        "body": body,
    }

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

#: How the reason begins where a section was not reached.
NO_TIME = "no time was left"
NEEDS_TIME = "it needs more time"
#: Inputs up to which the regions of the whole domain are counted.
COUNTED_INPUTS = 8


#: Why much cannot be asked of a single row.
ONE_POINT = (
    "the domain is a single input, the box around one row; give more rows, or say with a domain "
    "where inputs lie"
)


class NotAsked(RelunormError):
    """A section has nothing to answer: there is no data, say."""


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
        name: its key in the document, and the module under ``relunorm.report.sections``.
        compiled: whether it, or one after it, runs the kernels that `warm_up` compiles.
        spread: whether it has nothing to say about a domain of one input.
        more: what more time would bring, behind "would"; empty where time is never short.
    """

    name: str
    title: str
    weight: float
    call: str
    compiled: bool = False
    spread: bool = False
    more: str = ""

    def compute(self, case: Case, seconds: float) -> dict[str, Any]:
        """Its body: numbers with their kinds, JSON-safe."""
        if self.spread and case.is_point:
            raise NotAsked(ONE_POINT)
        return self.function()(case, seconds)

    def function(self) -> Callable[[Case, float], dict[str, Any]]:
        """What computes it; imported here, for the rooms behind it are not light."""
        return import_module(f"relunorm.report.sections.{self.name}").compute


#: In the order they run: what a reader wants first, and last what can use any time.
SECTIONS = (
    Section("network", "What it is", 1.0, "rn.load(model).to_dict()"),
    Section("quality", "How well it does", 1.0, "rn.report(model, X, y)"),
    Section("units", "Unit health", 1.5, "rn.diagnose(model, X, y, domain, time_limit=600)",
            compiled=True, more="prove the last units dead or alive"),
    Section("robustness", "Robustness", 3.0, "rn.certify(model, X, label=y, time_limit=600)",
            compiled=True, more="certify more rows, and more closely"),
    Section("removal", "What can be removed", 2.0,
            'rn.normalize(model, "minimal", domain, time_limit=600)',
            compiled=True, spread=True, more="prove more units removable"),
    Section("sensitivity", "Sensitivity", 1.5, "rn.sensitivity(model, domain)",
            compiled=True, spread=True, more="make the ranges of slopes exact"),
    Section("line", "Profile along a line", 0.5, "rn.along(model, start, end)",
            spread=True, more="follow the outputs along a line"),
    Section("regions", "Linear regions", 2.0, "rn.regions(model, domain, time_limit=600)",
            compiled=True, spread=True, more="count all linear regions"),
    Section("geometry", "Geometry through depth", 1.0, "rn.geometry(model, X)",
            more="follow the data through the layers"),
    Section("lipschitz", "Lipschitz constant", 2.0, "rn.lipschitz(model, domain, time_limit=600)",
            compiled=True, spread=True, more="narrow the Lipschitz constant"),
    Section("program", "On a board", 1.0, 'rn.to_c(network, domain, bits=16).save("net.c")',
            spread=True, more="work out the program for a board"),
)  # fmt: skip


def warm_up(case: Case) -> float:
    """Compile (or load) the kernels of the sections: a matter of the machine.

    Returns the seconds the kernels took: the first time on a machine up to a minute, later a
    fraction of a second.
    """
    from relunorm.domain import Box
    from relunorm.lipschitz import front
    from relunorm.lipschitz.methods import branch
    from relunorm.network import Network
    from relunorm.regions.enumerate import regions

    clock = Clock()
    inputs, units = case.network.input_size, case.network.units
    for dimension in {2, inputs if inputs <= COUNTED_INPUTS else 2}:
        tiny = Network.from_weights([np.eye(1, dimension), np.ones((1, 1))])
        regions(tiny, Box.cube(dimension))
    if 2 < inputs <= front.TREE_INPUTS and units <= front.TREE_UNITS:
        branch.compile_kernels(Teller(None, Clock()))
    if case.classes is not None:
        from relunorm.search import engine

        engine.warm_up()
    return clock.elapsed()


def attempt(section: Section, case: Case, seconds: float) -> dict[str, Any]:
    """The section's entry of the document: its body, or why there is none.

    An error of one section must not take the others with it, so every exception ends here and is
    told in the section's place.
    """
    clock = Clock()
    body: dict[str, Any] | None = None
    why, asked = "", True
    try:
        with np.errstate(all="ignore"):
            body = section.compute(case, seconds)
    except RelunormError as error:
        why, asked = str(error), not isinstance(error, NotAsked)
    except OverflowError:
        why = "its numbers are beyond float64"
    except MemoryError:
        why = "it needs more memory than there is"
    except KeyboardInterrupt:
        why = INTERRUPTED
    except Exception as error:
        why = f"{type(error).__name__}: {error} (a defect of relunorm: please report it)"
    return entry(section, body, why, clock.elapsed(), asked)


def entry(
    section: Section, body: dict[str, Any] | None, why: str, seconds: float, asked: bool = True
) -> dict[str, Any]:
    """A section of the document.

    A body may say by ``partial`` why it is not whole, and by ``again`` which call and which command
    get more of it.
    """
    call, command = section.call, ""
    if body is not None:
        again = body.pop("again", {})
        call, command = again.get("call", call), again.get("command", command)
        why = body.pop("partial", "")
        status = "partial" if why else "done"
    else:
        status = "not computed" if asked else "not asked"
    return {
        "title": section.title,
        "status": status,
        "why": why,
        "call": call,
        "command": command,
        "seconds": round(seconds, 3),
        "body": body,
    }

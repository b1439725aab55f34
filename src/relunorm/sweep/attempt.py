"""One attempt of one run, in whatever process it lands."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.sweep.record import Status
from relunorm.sweep.values import dumps, loads

#: A failure's message is cut after this many characters.
LONGEST = 2_000


@dataclass(frozen=True)
class Attempt:
    """How a run went: canonical JSON of its result, or why it failed."""

    status: Status
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Attempts:
    """A function with the arguments all runs share, to be called with a run's parameters.

    Every call gets fresh copies of both where it came in a parcel.
    """

    function: Callable[..., Any]
    shared: Mapping[str, Any]

    def __call__(self, parameters: str) -> Attempt:
        """Call the function; an exception, ``sys.exit`` included, is an outcome like any other."""
        clock = Clock()
        try:
            result = self.function(**loads(parameters), **self.shared)
            if not isinstance(result, dict):
                raise InvalidInputError(
                    f"the function returned a {type(result).__name__}, expected a dict of results"
                )
            return Attempt("done", dumps(result, "result"), clock.elapsed())
        except (Exception, SystemExit) as error:
            return Attempt("failed", explained(error), clock.elapsed())


def explained(error: BaseException) -> str:
    """The error and where it was raised, in one line: ``ValueError: no (script.py:12)``."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{text[:LONGEST]}{where}".encode(errors="backslashreplace").decode()

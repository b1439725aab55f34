"""One run: the attempt, in whatever process it lands, and the record of how it went."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.sweep.values import dumps, loads

#: A failure's message is cut after this many characters.
LONGEST = 2_000

Status = Literal["done", "failed"]


@dataclass(frozen=True)
class Run:
    """A run with its outcome. Two runs are equal if all but the seconds they took is equal.

    Attributes:
        key: sha256 of function, parameters, shared arguments and code version.
        function: ``module:name``. version: the code version.
        text: canonical JSON of the parameters.
        status: ``done`` or ``failed``.
        outcome: canonical JSON of the result, or the message of the failure.
        seconds: wall time of the call.
    """

    key: str
    function: str
    version: str
    text: str
    status: Status
    outcome: str
    seconds: float = field(default=0.0, compare=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the call, ``random_state`` included where it was drawn."""
        return loads(self.text)

    @property
    def result(self) -> dict[str, Any] | None:
        """What the function returned; None for a failure."""
        return loads(self.outcome) if self.status == "done" else None

    @property
    def message(self) -> str | None:
        """Why the run failed; None if it did not."""
        return self.outcome if self.status == "failed" else None

    def __repr__(self) -> str:
        outcome = self.outcome if len(self.outcome) < 60 else f"{self.outcome[:57]}..."
        return f"Run({self.text} -> {self.status}: {outcome})"


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

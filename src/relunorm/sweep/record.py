"""One finished run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from relunorm.sweep.values import loads

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

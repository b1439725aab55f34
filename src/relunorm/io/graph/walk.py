"""What every reader does around an operation of a graph: heads, and refusals of what is unknown.

An operation that cannot be lowered does not end the walk: what reads its result is passed over, so
that one error names everything in the graph that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.refusals import refused


@dataclass(frozen=True)
class Unknown:
    """The value of an operation that could not be lowered.

    Attributes:
        head: place and name of the operation that opened a head on it, if one did.
    """

    head: tuple[str, str] | None = None


@dataclass(frozen=True)
class Call:
    """One operation: where it stands, what messages call it, and what is known of its kind.

    Attributes:
        known: whether it can be lowered at all.
        opens: whether it can only be a step of a head.
        follows: whether it may stand after such a step.
    """

    place: str
    operation: str
    known: bool
    opens: bool
    follows: bool


class Walk:
    """Lowers one operation after the other and collects those that cannot be."""

    def __init__(self, lowering: Lowering, origin: str):
        self.lowering, self.origin = lowering, origin
        self._places: dict[str, int] = {}
        self._unsupported: dict[tuple[str, str], None] = {}

    def lower(self, call: Call, inputs: Iterable[Any], run: Callable[[], Any]) -> Any:
        """What ``run`` computes from the inputs; `Unknown` where that cannot be lowered."""
        self._places.setdefault(call.place, len(self._places))
        values = [v for v in inputs if isinstance(v, Tensor | Headed | Unknown)]
        if any(isinstance(value, Unknown) for value in values):
            return self._passed_over(call, values)
        headed = next((value for value in values if isinstance(value, Headed)), None)
        try:
            if not call.known and headed is None:
                raise CannotLower
            if headed is not None and not call.follows:
                raise Stuck(headed)
            with np.errstate(all="ignore"):  # what is not finite the network's own check refuses
                found = run()
        except CannotLower as reason:
            self._refuse(call.place, call.operation, str(reason))
            return Unknown()
        except Stuck as stuck:
            value = stuck.value
            self._refuse_head(value.place or call.place, value.operation or call.operation)
            return Unknown()
        for value in found if isinstance(found, list) else [found]:
            if isinstance(value, Headed) and not value.place:
                value.place, value.operation = call.place, call.operation
        return found

    def check(self) -> None:
        """Raise `UnsupportedOperationError` if there was anything that cannot be lowered."""
        if self._unsupported:
            found = sorted(self._unsupported, key=lambda each: self._places[each[0]])
            raise refused(self.origin, found)

    def _passed_over(self, call: Call, values: list[Any]) -> Unknown:
        opened = [(v.place, v.operation) if isinstance(v, Headed) else v.head for v in values
                  if not isinstance(v, Tensor)]  # fmt: skip
        heads = [head for head in opened if head is not None]
        if call.opens or (heads and call.follows and len(values) == 1):
            return Unknown((heads or [(call.place, call.operation)])[0])
        for head in heads:
            self._refuse_head(*head)
        if not call.known:
            self._refuse(call.place, call.operation)
        return Unknown()

    def _refuse_head(self, place: str, operation: str) -> None:
        self._refuse(place, operation, "only known at the end of a model")

    def _refuse(self, place: str, operation: str, reason: str = "") -> None:
        self._unsupported[place, f"{operation}: {reason}" if reason else operation] = None

"""One run: the attempt, in whatever process it lands, and the record of how it went.

Parameters and results are kept as canonical JSON: equal values have equal text, and floats come
back. They are written with the fewest digits that read back as the same number; NaN and the
infinities, which JSON lacks, as ``{"$float": "nan"}``, ``"inf"`` and ``"-inf"``. Numpy scalars
become Python's, tuples become lists, keys are sorted.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError

#: A failure's message is cut after this many characters.
LONGEST = 2_000

#: The key that marks a float JSON cannot spell.
FLOAT = "$float"

#: Values nested deeper than this are refused: no table holds them, and a cycle looks like that.
DEEPEST = 32

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


def dumps(value: Any, what: str) -> str:
    """The canonical text of a value.

    Args:
        value: None, bool, int, float, str, numpy scalars, and lists, tuples and dicts of these.
        what: how to call it in an error, such as ``parameters``.

    >>> dumps({"b": (1, np.float32(0.5)), "a": float("nan")}, "parameters")
    '{"a":{"$float":"nan"},"b":[1,0.5]}'
    """
    try:
        plain = _plain(value, what, 0)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an int of more digits than Python spells out
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{what}: {error}") from None


def loads(text: str) -> Any:
    """What `dumps` wrote.

    >>> loads('{"a":{"$float":"-inf"},"b":[1,0.5]}')
    {'a': -inf, 'b': [1, 0.5]}
    """
    return json.loads(text, object_hook=_revive)


def _revive(found: dict[str, Any]) -> Any:
    return float(found[FLOAT]) if found.keys() == {FLOAT} else found


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidInputError(f"{where} is nested more than {DEEPEST} deep, or contains itself")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, float):
        value = float(value)
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, dict):
        return {_name(k, where): _plain(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    hint = "; use its tolist()" if isinstance(value, np.ndarray) else ""
    raise InvalidInputError(
        f"{where} is a {type(value).__name__}, which JSON does not hold; expected numbers, text, "
        f"None, or lists and dicts of them{hint}"
    )


def _name(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"{where} has the key {key!r}; keys must be text")
    if key == FLOAT:
        raise InvalidInputError(f"{where} has the key {FLOAT!r}, which marks NaN and infinities")
    return _text(key, where)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{where} holds {value!r}, which is not Unicode text (half of a surrogate pair)"
        ) from None
    return str(value)

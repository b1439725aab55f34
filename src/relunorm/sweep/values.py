"""Parameters and results as canonical JSON: equal values have equal text, and floats come back.

Floats are written with the fewest digits that read back as the same number; NaN and the infinities,
which JSON lacks, as ``{"$float": "nan"}``, ``"inf"`` and ``"-inf"``. Numpy scalars become Python's,
tuples become lists, keys are sorted.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from relunorm.errors import InvalidInputError

#: The key that marks a float JSON cannot spell.
FLOAT = "$float"

#: Values nested deeper than this are refused: no table holds them, and a cycle looks like that.
DEEPEST = 32


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

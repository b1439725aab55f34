"""Grids of parameters written as text: ``a=1,2,3`` and ``seed=0:10``, every combination a run."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from relunorm.errors import InvalidInputError

#: More combinations than this are taken for a slip of the pen.
MOST_RUNS = 1_000_000

_RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+))?")
_WORDS = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf}
_WORDS |= {"-inf": -math.inf}


def grid(axes: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of the axes' values; the last axis varies fastest.

    Args:
        axes: ``name=value,value,...`` or ``name=start:stop`` or ``name=start:stop:step`` (whole
            numbers, stop excluded). A value is a number, true, false, none, nan, inf, or else text
            without commas, in double quotes if it would be taken for one of the others.

    >>> grid(["a=1,2.5,x", "seed=0:2"])[:3]
    [{'a': 1, 'seed': 0}, {'a': 1, 'seed': 1}, {'a': 2.5, 'seed': 0}]
    """
    values: dict[str, Sequence[Any]] = {}
    for axis in axes:
        name, equals, text = axis.partition("=")
        if not equals or not name.isidentifier() or not text:
            raise InvalidInputError(
                f"--grid {axis!r}: expected name=value,value,... or name=start:stop"
            )
        if name in values:
            raise InvalidInputError(f"--grid {axis!r}: {name} has been given before")
        values[name] = _values(axis, text)
    count = math.prod(map(len, values.values()))
    if count > MOST_RUNS:
        raise InvalidInputError(f"the grid has {count:,} runs; at most {MOST_RUNS:,} are allowed")
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def _values(axis: str, text: str) -> Sequence[Any]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return [_value(part) for part in text.split(",")]
    if len(text) > 60 or (match[3] is not None and int(match[3]) == 0):
        raise InvalidInputError(f"--grid {axis!r}: not a range; expected start:stop or with a step")
    found = range(int(match[1]), int(match[2]), int(match[3] or 1))
    # len() of a range beyond the machine's integers fails; compare the ends instead.
    if not found or abs(found.stop - found.start) // abs(found.step) > MOST_RUNS:
        raise InvalidInputError(
            f"--grid {axis!r}: the range is empty or has more than {MOST_RUNS:,} values"
        )
    return found


def _value(text: str) -> Any:
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if word[:1] == '"' or re.fullmatch(r"-?[\d.][\d.eE+-]*", word):
        for read in (json.loads, float):
            try:
                return read(word)
            except ValueError:
                continue
    return word

"""A function in a Python file that is not on the import path: ``SCRIPT.py:function``.

The file's text travels with the function, so that workers on other machines need no copy, and is
executed once in every process under a name of its own. Nothing else is executed: the file's folder
is not put on the import path, and a name the file merely imports is refused.

Grids of parameters written as text: ``a=1,2,3`` and ``seed=0:10``, every combination a run.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from relunorm.errors import InvalidInputError

_LOCK = threading.Lock()


@dataclass(frozen=True)
class ScriptFunction:
    """A function by file and name; call it with keywords.

    Attributes:
        path: the file. name: the function. source: the file's text.
    """

    path: str
    name: str
    source: str = field(repr=False)

    def __call__(self, **parameters: Any) -> Any:
        return self.load()(**parameters)

    @property
    def sweep_name(self) -> str:
        """How a store knows it: as if the file had been run or imported itself."""
        return f"{Path(self.path).stem}:{self.name}"

    @property
    def sweep_source(self) -> str:
        """What a store hashes."""
        return self.source

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.load())

    def load(self) -> Callable[..., Any]:
        """The function itself; executes the file the first time."""
        title = f"_relunorm_script_{hashlib.sha256(self.source.encode()).hexdigest()[:16]}"
        with _LOCK:
            module = sys.modules.get(title) or _execute(title, self.path, self.source)
        found = getattr(module, self.name, None)
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isroutine(value) and getattr(value, "__module__", None) == title
        ]
        if self.name not in own or found is None:
            listing = ", ".join(own) or "none"
            raise InvalidInputError(
                f"{self.path} defines no function {self.name!r}; its functions are: {listing}"
            )
        return found


def _execute(title: str, path: str, source: str) -> ModuleType:
    module = ModuleType(title)
    module.__file__ = path
    sys.modules[title] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
    except BaseException as error:
        del sys.modules[title]
        if not isinstance(error, Exception | SystemExit):
            raise
        reason = "".join(str(error).splitlines()[:1])
        raise InvalidInputError(
            f"{path} cannot be executed: {type(error).__name__}: {reason}"
        ) from error
    return module


def script_function(target: str) -> ScriptFunction:
    """Read ``SCRIPT.py:function``.

    Raises:
        InvalidInputError: the text is not of that form, or the file lacks the function.
    """
    path, _, name = target.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InvalidInputError(f"{target!r} is not of the form SCRIPT.py:function")
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{path}: there is no such file")
    try:
        source = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8 text") from None
    found = ScriptFunction(path, name, source)
    found.load()
    return found


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

"""The function of a sweep: what makes two runs the same, and a function in a Python file that is
not on the import path, ``SCRIPT.py:function``.

key = sha256(canonical JSON of [function, parameters, shared, version]), where version is the
package's version and a hash of the source text of the module that defines the function. So a run
is done again after any edit of that module, and after an upgrade; an edit of a module it imports
does not show (pass ``version`` to say so yourself).

The text of a script travels with the function, so that workers on other machines need no copy, and
is executed once in every process under a name of its own. Nothing else is executed: the file's
folder is not put on the import path, and a name the file merely imports is refused.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import relunorm
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.sweep.record import dumps


@dataclass(frozen=True)
class Identity:
    """A function as the store knows it.

    Attributes:
        function: ``module:name``; a script is called by its file's name without the ending.
        shared: name -> digest of the arguments all runs share.
        seeded: whether a run that names no ``random_state`` is given one.
    """

    function: str
    version: str
    shared: dict[str, str]
    seeded: bool

    def complete(self, parameters: Mapping[str, Any]) -> str:
        """The canonical text of the parameters, with a ``random_state`` drawn from their hash.

        The seed does not depend on the code version: an edit elsewhere in the file does not change
        the random numbers.
        """
        if not isinstance(parameters, Mapping):
            raise InvalidInputError(
                f"a run is a {type(parameters).__name__}, expected a dict of parameters"
            )
        parameters = dict(parameters)
        text = dumps(parameters, "parameters")
        clash = sorted(parameters.keys() & self.shared.keys())
        if clash:
            raise InvalidInputError(f"{clash[0]!r} is both a parameter of a run and shared by all")
        if not self.seeded or "random_state" in parameters:
            return text
        seed = int.from_bytes(_sha([self.function, text]).digest()[:4], "big") >> 1
        return dumps({**parameters, "random_state": seed}, "parameters")

    def key(self, parameters: str) -> str:
        """The run's key; ``parameters`` as `complete` gives them."""
        return _sha([self.function, parameters, self.shared, self.version]).hexdigest()


def identify(
    function: Callable[..., Any], shared: Mapping[str, Any], version: str | None, stored: bool
) -> Identity:
    """The identity of a function; with ``stored`` it must be one that a name stands for."""
    if not callable(function):
        raise InvalidInputError(f"{function!r} cannot be called")
    name = _name(function)
    if stored and ("<" in name or not name):
        raise InvalidInputError(
            f"{name or function!r} cannot be kept in a store: its name does not say which code and "
            "values it holds. Define it at the top of a module with def, and pass fixed arguments "
            "through shared"
        )
    own = version if version is not None else _source_hash(function, name, stored)
    try:
        arguments = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have none
        arguments = {}
    return Identity(
        function=name,
        version=f"{relunorm.__version__}+{own}",
        shared={key: digest(value, f"shared[{key!r}]") for key, value in shared.items()},
        seeded="random_state" in arguments and "random_state" not in shared,
    )


def source_version(*modules: ModuleType) -> str:
    """A hash of the source text of some modules, to be passed as ``version``: for a function whose
    answer rests on more than the module that defines it. A package stands for every file in it.

    >>> import json, string
    >>> len(source_version(json)), source_version(json) != source_version(json, string)
    (16, True)
    """
    return _short([text for module in modules for text in _texts(module)])


def digest(value: Any, what: str) -> str:
    """A hash of a shared argument: by content, and the same in every process.

    Networks, torch modules, arrays and JSON values are known; other objects need a ``digest``
    attribute.
    """
    known = getattr(value, "digest", None)
    if isinstance(value, Network) or isinstance(known, str):
        return f"{type(value).__qualname__}:{known}"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise InvalidInputError(f"{what} is an array of Python objects, expected numbers")
        text = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array:{value.dtype.str}{value.shape}:{text}"
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return digest(value.detach().cpu().numpy(), what)
    if torch is not None and isinstance(value, torch.nn.Module):
        parts = {k: digest(v, f"{what}.{k}") for k, v in value.state_dict().items()}
        return f"module:{_sha([repr(value), parts]).hexdigest()}"
    fitted = getattr(value, "network_", None)
    if isinstance(fitted, Network):
        return f"{type(value).__qualname__}:{fitted.digest}"
    try:
        return f"json:{_sha([dumps(value, what)]).hexdigest()}"
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error}. Shared arguments are networks, torch modules, arrays, JSON values, or "
            "objects with a text attribute 'digest' that changes with their content"
        ) from None


def _sha(parts: list[Any]) -> Any:
    return hashlib.sha256(dumps(parts, "key").encode())


def _name(function: Any) -> str:
    given = getattr(function, "sweep_name", None)
    if given is not None:
        return given
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or not name or inspect.ismethod(function):
        return ""
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}:{name}"


def _source_hash(function: Any, name: str, stored: bool) -> str:
    text = getattr(function, "sweep_source", None)
    if text is None:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        try:
            in_file = getattr(module, "__file__", None) is not None
            text = inspect.getsource(module if in_file and module is not None else function)
        except (OSError, TypeError):
            if not stored:
                return "unknown"
            raise InvalidInputError(
                f"{name}: its source cannot be read, so there is no telling when it changes; pass "
                "version='...'"
            ) from None
    return _short([text])


def _texts(module: ModuleType) -> list[str]:
    """The source of a module; of a package, the path and the source of each of its files."""
    found: list[str] = []
    for home in map(Path, getattr(module, "__path__", ())):
        for file in sorted(p for p in home.rglob("*") if p.suffix in (".py", ".json")):
            found += [file.relative_to(home).as_posix(), file.read_text(encoding="utf-8")]
    return found or [inspect.getsource(module)]


def _short(texts: list[str]) -> str:
    return _sha(texts).hexdigest()[:16]


_LOCK = threading.Lock()


@dataclass(frozen=True)
class ScriptFunction:
    """A function by file and name; call it with keywords."""

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
    """Read ``SCRIPT.py:function``."""
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

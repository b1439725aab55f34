"""What makes two runs the same: the function, its parameters and the code behind it.

key = sha256(canonical JSON of [function, parameters, shared, version]), where version is the
package's version and a hash of the source text of the module that defines the function. So a run
is done again after any edit of that module, and after an upgrade; an edit of a module it imports
does not show (pass ``version`` to say so yourself).
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        version: the code version.
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

"""A function in a Python file that is not on the import path: ``SCRIPT.py:function``.

The file's text travels with the function, so that workers on other machines need no copy, and is
executed once in every process under a name of its own. Nothing else is executed: the file's folder
is not put on the import path, and a name the file merely imports is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
from collections.abc import Callable
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

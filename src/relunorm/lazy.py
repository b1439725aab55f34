"""Packages whose names are imported on first use (PEP 562), listed once, in their stubs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from relunorm.errors import optional_packages

_IMPORT = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


def on_first_use(
    package: str,
) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """Where a package's public names are defined, and its ``__getattr__`` and ``__dir__``.

    The names and their modules are the imports of its ``__init__.pyi``, which type checkers read as
    well.

    Args:
        package: its ``__name__``.
    """
    scope = vars(sys.modules[package])
    stub = Path(scope["__file__"]).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {name: module for module, name in _IMPORT.findall(stub)}

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with optional_packages():
            if home == package:  # a part of the package, itself
                scope[name] = import_module(f"{package}.{name}")
            else:
                scope[name] = getattr(import_module(home), name)
        return scope[name]

    return homes, __getattr__, lambda: sorted({*scope, *homes})

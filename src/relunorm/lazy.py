"""Packages whose names are imported on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from relunorm.errors import optional_packages


def on_first_use(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: public name -> module that defines it, below the package or in full.
    """
    scope = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home if home.startswith("relunorm.") else f"{package}.{home}"
        with optional_packages():
            scope[name] = getattr(import_module(module), name)
        return scope[name]

    return __getattr__, lambda: sorted({*scope, *homes})

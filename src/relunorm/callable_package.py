"""Packages that can be called, for names that are both a room and its main function.

``relunorm.regions`` is a package, and users call it. Importing any module inside a package makes
Python bind the package to that name on the parent, so the package itself must be callable.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    _home: str

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the package's main function."""
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(self._home), name)(*args, **options)


def make_callable(package: str, home: str) -> None:
    """Let ``package`` be called as the function of the same name in the module ``home``."""
    module = sys.modules[package]
    module.__class__ = _CallablePackage
    module._home = home  # type: ignore[attr-defined]

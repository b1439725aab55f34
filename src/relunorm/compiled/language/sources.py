"""Functions as kernels are written: the syntax tree, and what names outside of it mean."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from relunorm.compiled.language.kinds import KernelError


@cache
def _functions(path: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """All functions of a file by name and first line, decorators included."""
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found[node.name, first] = node
    return found


class Source:
    """A function that kernels may call.

    Attributes:
        fast: what LLVM may do to its floating point arithmetic, in LLVM's words.
        inline: whether it is always put in where it is called.
    """

    def __init__(self, function: Callable[..., Any], fast: str = "", inline: bool = False):
        self.py_func, self.fast, self.inline = function, fast, inline
        self.name = f"{function.__module__.removeprefix('relunorm.')}.{function.__qualname__}"
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *given: Any) -> Any:
        """Run it as Python, not compiled."""
        return self.py_func(*given)

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The syntax tree."""
        code = self.py_func.__code__
        return _functions(code.co_filename)[code.co_name, code.co_firstlineno]

    def meaning(self, name: str) -> Any:
        """What a name means that is no variable of the function."""
        known = self.py_func.__globals__
        if name in known:
            return known[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise KernelError(f"{name} is not known")

    @cached_property
    def reads(self) -> tuple[list[Source], list[str]]:
        """The parts that it calls, and numbers and fields it takes from outside, spelled."""
        parts, numbers = [], []
        names = self.py_func.__code__.co_names
        known = self.py_func.__globals__
        modules = [one for one in map(known.get, names) if isinstance(one, ModuleType)]
        for name in names:
            for value in (known.get(name), *(getattr(one, name, None) for one in modules)):
                if isinstance(value, Source):
                    parts.append(value)
                elif isinstance(value, (bool, int, float, tuple)):
                    numbers.append(f"{name}={value!r}")
                elif fields := getattr(value, "_fields", None):
                    numbers.append(f"{name}={fields!r}")
        return parts, numbers

    def written(self) -> str:
        """All that decides what it compiles to, but for what Python hands over."""
        seen: dict[int, str] = {}
        todo: list[Source] = [self]
        while todo:
            one = todo.pop()
            if id(one) in seen:
                continue
            parts, numbers = one.reads
            code = one.py_func.__code__
            text = (code.co_code, _plain(code.co_consts), code.co_varnames, code.co_names)
            seen[id(one)] = f"{one.name} {one.fast} {one.inline} {text} {numbers}"
            todo += parts
        return "\n".join(sorted(seen.values()))


def _plain(constants: tuple[Any, ...]) -> list[str]:
    """Constants without the documentation, which comes first."""
    return [repr(one) for one in constants if not isinstance(one, str)]

"""Named tuples of arrays that compiled code takes by address.

Kernels have dozens of work arrays, and handing each of them to every part would make functions of
hundreds of arguments. A class with `@group` is handed on as one address instead. Behind it lie,
word by word, for every array where it begins and how long its axes are; reading a field makes the
array out of that.

    @group
    class Work(NamedTuple):
        x: Array
        basis: NDArray[np.int64]

Kernels use it as they would any named tuple. One that is made inside a kernel is a plain named
tuple there, or lies in an arena (`placed`). Fields are contiguous arrays, floats, integers and
other groups; a kernel refuses others.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

import numpy as np

Class = TypeVar("Class", bound=type)


class Grouped:
    """What `group` adds to a class of named tuples."""

    def __getstate__(self) -> None:  # of a copy the arrays lie elsewhere
        return None


def group(cls: Class) -> Class:
    """Let compiled code take a class of named tuples by address."""
    names = {"__doc__": cls.__doc__, "__module__": cls.__module__}
    return type(cls.__name__, (Grouped, cls), names)  # type: ignore[return-value]


def copied(group: Any) -> Any:
    """A group with arrays of its own."""
    return group._make(copied(x) if isinstance(x, tuple) else x.copy() for x in group)


def longer(array: Any, axis: int = 0) -> Any:
    """The array with as much room again behind what it holds."""
    return np.concatenate([array, np.empty_like(array)], axis)


def views(cls: Any, memory: Any, shapes: Any) -> Any:
    """A group of arrays of given shapes that lie one after another in ``memory``."""
    fields, at = [], 0
    for shape in shapes:
        fields.append(memory[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    return cls(*fields)

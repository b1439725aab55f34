"""A flat graph of aten operations as plain data: what live modules and .pt2 files become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.operations import axes_over


@dataclass(frozen=True)
class Ref:
    """The value of that name, as an argument."""

    name: str


@dataclass(frozen=True)
class Operation:
    """One node: ``target(**arguments)``, for example ``aten.linear.default``."""

    target: str
    arguments: Mapping[str, Any]
    outputs: str | Sequence[str]
    place: str
    owner: str = ""


@dataclass
class Program:
    """A graph of one input and one output.

    Attributes:
        sizes: of the input, the batch first; None where the graph leaves a size open.
        constants: parameters, buffers and other known values by name.
        shapes: recorded shapes of values, where known; None for an open size.
        trusted: False for files: only operations known to be harmless are run on constants.
    """

    origin: str
    input: str
    sizes: tuple[int | None, ...]
    output: str
    constants: dict[str, Any]
    operations: list[Operation] = field(default_factory=list)
    shapes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    trusted: bool = True

    def __post_init__(self) -> None:
        """Number calls of one function at one place, from the second on: ``act``, ``act#1``."""
        seen: Counter[tuple[str, str]] = Counter()
        for k, call in enumerate(self.operations):
            again = seen[key := (call.place, _function(call.target))]
            seen[key] += 1
            if again:
                self.operations[k] = replace(call, place=f"{call.place}#{again}")


def place_of(stack: list[tuple[str, str, Any]], target: str) -> tuple[str, str]:
    """Where a call stands in the tree of modules, and the class of the module that made it.

    Args:
        stack: (key, path, class) of the modules around the call, the outermost first.
        target: the operation; its name is added where a function was called rather than a module.

    >>> place_of([("net.act@1", "act", "torch.nn.modules.activation.ReLU")], "aten.relu.default")
    ('act', 'ReLU')
    >>> place_of([("net.block", "block", "Block")], "aten.relu_.default")
    ('block.relu', 'Block')
    """
    name = _function(target)
    if not stack:
        return name, ""
    _, path, kind = stack[-1]
    owner = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    if owner.startswith("torch.nn.modules.") and path:
        return path, owner.rpartition(".")[2]
    return (f"{path}.{name}" if path else name), owner.rpartition(".")[2]


def _function(target: str) -> str:
    """What was called, in place or not."""
    return split(target)[1].rstrip("_")


def is_in_place(name: str) -> bool:
    """Whether an operation overwrites its first argument: aten marks it by an underscore."""
    return name.endswith("_") and not name.endswith("__") and name != "detach_"


def split(target: str) -> tuple[str, str, str]:
    """Namespace, name and overload: ``aten.add.Tensor`` -> ``("aten", "add", "Tensor")``."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    return namespace, name, overload


def listed_as(target: str) -> str:
    """The name of an operation in the tables; one that is not aten's has its namespace in front.

    >>> listed_as("aten.add_.Tensor"), listed_as("example.dead.default")
    ('add', 'example::dead')
    """
    namespace, name, _ = split(target)
    name = name[:-1] if is_in_place(name) else name
    return name if namespace == "aten" else f"{namespace}::{name}"


def leaves(value: Any) -> Iterator[Any]:
    """What nested lists and the values of a mapping hold."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def names(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The values that arguments refer to."""
    return (value.name for value in leaves(arguments) if isinstance(value, Ref))


@dataclass(frozen=True)
class Site:
    """Where an operation is being lowered.

    Attributes:
        batched: whether the first axis of the input is the batch.
        batch: the batch that shapes written into the graph were exported for.
    """

    low: Lowering
    name: str
    owner: str
    batched: bool
    batch: int

    def axes(self, x: Tensor, dim: Any) -> list[int]:
        """The axes that an operation runs over; the batch must not be among them."""
        dims = [dim] if isinstance(dim, int) else list(dim or range(len(x.shape)))
        return axes_over(x, dims, self.batched and x.shape[:1] == (1,))


def as_array(value: Any) -> NDArray[np.float64]:
    """A constant as float64."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.is_quantized:
            raise CannotLower(f"a constant of type {value.dtype}")
        value = value.detach().to(torch.float64).numpy()
    return np.asarray(value, dtype=np.float64)


def value_of(value: Any) -> Any:
    """What depends on the input as it is, anything else as a constant."""
    return value if isinstance(value, Tensor | Headed) else as_array(value)


def constant(value: Any, what: str) -> NDArray[np.float64]:
    """An argument that must not depend on the input."""
    if isinstance(value, Tensor | Headed):
        raise CannotLower(f"the {what} depends on the input")
    return as_array(value)


def check_floating(dtype: Any) -> None:
    """Conversions to integers round; those between floating types are taken as exact."""
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
        raise CannotLower(f"to {dtype}")


def spread(value: Any, axes: int) -> list[int]:
    """One number for each axis: torch accepts a number, one in a list, or all of them."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * axes if len(numbers) == 1 else numbers

"""What the functions that give aten operations their meaning share: the registry and its frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.operations import Value

#: Operation without its overload (or with it, where overloads differ) -> what it does on tensors
#: that depend on the input. The functions take the arguments of aten's schema by name.
OPERATIONS: dict[str, Callable[..., Any]] = {}

#: Those of them that leave the length of a vector as it is.
ENTRYWISE: set[str] = set()


@dataclass(frozen=True)
class Site:
    """Where an operation is being lowered.

    Attributes:
        name: the module path, for the layers it makes.
        owner: the class of the module that calls it.
        batched: whether the first axis of the input is the batch.
        batch: the batch that shapes written into the graph were exported for.
    """

    lowering: Lowering
    name: str
    owner: str
    batched: bool
    batch: int

    def reduced(self, x: Tensor, dim: Any, dtype: Any) -> tuple[int, ...]:
        """The axes a reduction runs over; the batch must not be among them."""
        check_floating(dtype)
        rank = len(x.shape)
        dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
        axes = tuple(d % rank for d in dims)
        if any(not -rank <= d < rank for d in dims):
            raise InvalidNetworkError(f"axis {dims} of a tensor of shape {x.shape}")
        if self.batched and 0 in axes and x.shape[0] == 1:
            raise CannotLower("runs over the batch axis")
        return axes


def operation(*names: str, entrywise: bool = False) -> Callable[[Any], Any]:
    """Register a function under the names of operations, on each entry alone or not."""

    def register(function: Any) -> Any:
        OPERATIONS.update((name, function) for name in names)
        ENTRYWISE.update(names if entrywise else ())
        return function

    return register


def as_array(value: Any) -> NDArray[np.float64]:
    """A constant as float64."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.is_quantized:
            raise CannotLower(f"a constant of type {value.dtype}")
        value = value.detach().to(torch.float64).numpy()
    return np.asarray(value, dtype=np.float64)


def value_of(value: Any) -> Value:
    """A tensor as it is, anything else as a constant."""
    return value if isinstance(value, Tensor) else as_array(value)


def constant(value: Any, what: str) -> NDArray[np.float64]:
    """An argument that must not depend on the input."""
    if isinstance(value, Tensor):
        raise CannotLower(f"the {what} depends on the input")
    return as_array(value)


def reshaped(site: Site, x: Tensor, shape: Sequence[int]) -> Tensor:
    """x with its entries read in another shape."""
    return site.lowering.rearrange(x, x.index.reshape(tuple(shape)))


def check_floating(dtype: Any) -> None:
    """Conversions to integers round; those between floating types are taken as exact."""
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
        raise CannotLower(f"to {dtype}")


def spread(value: Any, axes: int) -> list[int]:
    """One number for each axis: torch accepts a number, one in a list, or all of them."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * axes if len(numbers) == 1 else numbers

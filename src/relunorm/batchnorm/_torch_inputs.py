"""What a probed torch module is called with: one tensor, several, or several by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from relunorm.arguments import real_numbers
from relunorm.errors import InvalidInputError, RelunormError


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch for a module: positional and named tensors with the points on their first axis."""

    positional: tuple[Tensor, ...]
    named: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter((*self.positional, *self.named.values()))))

    def part(self, index: slice | Tensor) -> Inputs:
        """Some of the points."""
        return Inputs(
            tuple(self._at(x, index) for x in self.positional),
            {name: self._at(x, index) for name, x in self.named.items()},
        )

    @staticmethod
    def _at(x: Tensor, index: slice | Tensor) -> Tensor:
        return x[index.to(x.device) if isinstance(index, Tensor) else index]

    def send(self, model: nn.Module) -> None:
        """Call the module; what it raises on this batch becomes a package error."""
        try:
            model(*self.positional, **self.named)
        except RelunormError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            tensors = (*self.positional, *self.named.values())
            given = ", ".join(f"{tuple(x.shape)} {x.dtype}".replace("torch.", "") for x in tensors)
            raise InvalidInputError(
                f"{type(model).__name__} does not take this batch ({given}): {error}"
            ) from error


def inputs_of(model: nn.Module, batch: Any) -> Inputs:
    """The batch on the model's device, in its float type.

    A mapping is called by name. A tuple that holds tensors or arrays is several inputs; any other
    sequence is one array.
    """
    tensors = (*model.parameters(), *model.buffers())
    if any(is_lazy(x) for x in tensors):
        raise InvalidInputError("the model has lazy layers without weights; run a batch first")
    if any(x.device.type == "meta" for x in tensors):
        raise InvalidInputError("the model is on the meta device: it has no weights to probe")
    if isinstance(batch, Mapping):
        found = Inputs((), {str(k): _tensor(model, v, f"input {k!r}") for k, v in batch.items()})
    elif isinstance(batch, tuple) and any(isinstance(x, (Tensor, np.ndarray)) for x in batch):
        given = enumerate(batch, start=1)
        found = Inputs(tuple(_tensor(model, x, f"input {k}") for k, x in given), {})
    else:
        found = Inputs((_tensor(model, batch, "the batch"),), {})
    lengths = [len(x) for x in (*found.positional, *found.named.values())]
    if not lengths:
        raise InvalidInputError("the batch is empty: it names no input")
    if len(set(lengths)) > 1:
        raise InvalidInputError(
            f"the inputs hold different numbers of points ({lengths}); the first axis is the batch"
        )
    return found


def _tensor(model: nn.Module, batch: Any, name: str) -> Tensor:
    example = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(batch, Tensor):
        batch = torch.from_numpy(np.array(real_numbers(name, batch), dtype=np.float64))
    elif batch.layout != torch.strided or batch.device.type == "meta" or batch.is_complex():
        what = batch.dtype if batch.is_complex() else f"{batch.layout}, {batch.device.type}"
        raise InvalidInputError(f"{name} is a tensor of {what}; expected plain real numbers")
    batch = batch.detach()
    if batch.dim() < 1 or not batch.numel():
        raise InvalidInputError(f"{name} is empty: shape {tuple(batch.shape)}")
    if batch.is_floating_point():
        if not torch.isfinite(batch).all():
            raise InvalidInputError(f"{name} holds NaN or infinite entries")
        batch = batch.to(torch.float32 if example is None else example.dtype)
    return batch if example is None else batch.to(example.device)

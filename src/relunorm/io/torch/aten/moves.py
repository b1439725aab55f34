"""Operations that only move entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Tensor
from relunorm.io.torch.aten.site import (
    OPERATIONS,
    Site,
    as_array,
    check_floating,
    constant,
    operation,
    reshaped,
)
from relunorm.network import Affine

Index = NDArray[np.intp]

#: A tensor is cut into at most this many parts: a file could ask for millions.
MAX_PARTS = 1 << 12


@operation("contiguous", "detach", "detach_", "alias", "lift_fresh", "lift_fresh_copy")
def _same(site: Site, self: Tensor, memory_format: Any = None) -> Tensor:
    return self


@operation("clone")
def _clone(site: Site, self: Tensor, memory_format: Any = None) -> Tensor:
    """The same, as a linear stage where `to_torch` wrote it for one."""
    return site.lowering.keep(self) if site.owner == "LinearStage" else self


@operation("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(site: Site, input: Tensor, p: float, train: bool) -> Tensor:
    if train and p != 0:
        raise CannotLower("is random: it is switched on even in eval mode")
    return input


@operation("to", "_to_copy", "type_as")
def _convert(
    site: Site,
    self: Tensor,
    dtype: Any = None,
    other: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: Any = None,
    non_blocking: Any = None,
    copy: Any = None,
    memory_format: Any = None,
) -> Tensor:
    check_floating(other.dtype if isinstance(other, torch.Tensor) else dtype)
    return self


@operation("zeros_like")
def _zeros_like(site: Site, self: Tensor, **_: Any) -> torch.Tensor:
    return _full_like(site, self, 0.0)


@operation("ones_like")
def _ones_like(site: Site, self: Tensor, **_: Any) -> torch.Tensor:
    return _full_like(site, self, 1.0)


@operation("full_like")
def _full_like(site: Site, self: Tensor, fill_value: float, **_: Any) -> torch.Tensor:
    return torch.full(self.shape, float(fill_value), dtype=torch.float64)


@operation("view", "_unsafe_view", "reshape")
def _view(site: Site, self: Tensor, size: Any = None, shape: Any = None) -> Tensor:
    wanted = list(size if size is not None else shape)
    if site.batch != 1 and wanted and wanted[0] == site.batch and self.shape[:1] == (1,):
        wanted[0] = 1
    return reshaped(site, self, wanted)


@operation("flatten")
def _flatten(site: Site, self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if not self.shape:
        return reshaped(site, self, (1,))
    start, end = start_dim % len(self.shape), end_dim % len(self.shape)
    return reshaped(site, self, (*self.shape[:start], -1, *self.shape[end + 1 :]))


@operation("unflatten")
def _unflatten(site: Site, self: Tensor, dim: int, sizes: Any) -> Tensor:
    axis = dim % len(self.shape)
    return reshaped(site, self, (*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))


@operation("squeeze")
def _squeeze(site: Site, self: Tensor, dim: Any = None) -> Tensor:
    dims = range(len(self.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {d % len(self.shape) for d in dims}
    kept = [n for a, n in enumerate(self.shape) if a not in axes or n != 1]
    return reshaped(site, self, kept)


@operation("unsqueeze")
def _unsqueeze(site: Site, self: Tensor, dim: int) -> Tensor:
    return _moved(site, self, lambda index: np.expand_dims(index, dim))


@operation("permute")
def _permute(site: Site, self: Tensor, dims: Any) -> Tensor:
    return _moved(site, self, lambda index: index.transpose(tuple(dims)))


@operation("transpose")
def _transpose(site: Site, self: Tensor, dim0: int, dim1: int) -> Tensor:
    return _moved(site, self, lambda index: np.swapaxes(index, dim0, dim1))


@operation("t", "numpy_T")
def _reversed(site: Site, self: Tensor) -> Tensor:
    return _moved(site, self, np.transpose)


@operation("mT", "adjoint")
def _matrix_transposed(site: Site, self: Tensor) -> Tensor:
    return _transpose(site, self, -2, -1)


@operation("expand")
def _expand(site: Site, self: Tensor, size: Any, implicit: bool = False) -> Tensor:
    lead = len(size) - len(self.shape)
    shape = [self.shape[a - lead] if n == -1 else n for a, n in enumerate(size)]
    if site.batch != 1 and shape[0] == site.batch and lead == 0 and self.shape[0] == 1:
        shape[0] = 1
    return site.lowering.broadcast(self, shape)


@operation("repeat")
def _repeat(site: Site, self: Tensor, repeats: Any) -> Tensor:
    _check_size(math.prod(repeats) * self.size)
    return _moved(site, self, lambda index: np.tile(index, tuple(repeats)))


@operation("flip")
def _flip(site: Site, self: Tensor, dims: Any) -> Tensor:
    return _moved(site, self, lambda index: np.flip(index, tuple(dims)))


@operation("pixel_shuffle")
def _pixel_shuffle(site: Site, self: Tensor, upscale_factor: int) -> Tensor:
    *lead, channels, height, width = self.shape
    r, n = upscale_factor, len(lead)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    shape = (*lead, channels // (r * r), height * r, width * r)
    split = (*lead, channels // (r * r), r, r, height, width)
    return _moved(site, self, lambda index: index.reshape(split).transpose(order).reshape(shape))


@operation("slice")
def _slice(
    site: Site,
    self: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    return _moved(site, self, lambda index: _along(index, dim, slice(start, end, step)))


@operation("narrow")
def _narrow(site: Site, self: Tensor, dim: int, start: int, length: int) -> Tensor:
    return _slice(site, self, dim, start, start + length)


@operation("select")
def _select(site: Site, self: Tensor, dim: int, index: int) -> Tensor:
    return _moved(site, self, lambda entries: _along(entries, dim, index))


@operation("index_select")
def _index_select(site: Site, self: Tensor, dim: int, index: Any) -> Tensor:
    chosen = constant(index, "index").astype(np.intp)
    return _moved(site, self, lambda entries: np.take(entries, chosen, axis=dim))


@operation("index")
def _index(site: Site, self: Tensor, indices: Any) -> Tensor:
    for index in indices:
        if isinstance(index, Tensor):
            raise CannotLower("the index depends on the input")
    chosen = tuple(slice(None) if i is None else i.numpy() for i in indices)
    return _moved(site, self, lambda entries: entries[chosen])


@operation("chunk")
def _chunk(site: Site, self: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    return _split(site, self, -(-self.shape[dim] // chunks), dim)


@operation("split")
def _split(site: Site, self: Tensor, split_size: Any, dim: int = 0) -> list[Tensor]:
    if isinstance(split_size, list | tuple):
        return _split_with_sizes(site, self, split_size, dim)
    starts = range(0, self.shape[dim], split_size)
    _check_parts(len(starts))
    return [_slice(site, self, dim, start, start + split_size) for start in starts]


@operation("split_with_sizes")
def _split_with_sizes(site: Site, self: Tensor, split_sizes: Any, dim: int = 0) -> list[Tensor]:
    if sum(split_sizes) != self.shape[dim]:
        raise InvalidNetworkError(f"parts of {split_sizes} of a tensor of shape {self.shape}")
    ends = np.cumsum(split_sizes).tolist()
    return [
        _slice(site, self, dim, end - size, end)
        for size, end in zip(split_sizes, ends, strict=True)
    ]


@operation("unbind")
def _unbind(site: Site, self: Tensor, dim: int = 0) -> list[Tensor]:
    _check_parts(self.shape[dim])
    return [_select(site, self, dim, index) for index in range(self.shape[dim])]


@operation("cat", "concat", "concatenate")
def _cat(site: Site, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [_lifted(tensor) for tensor in tensors]
    _check_size(sum(part.size for part in parts))
    return site.lowering.concatenate(parts, dim)


@operation("stack")
def _stack(site: Site, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    return _cat(site, [_unsqueeze(site, _lifted(t), dim) for t in tensors], dim)


@operation("pad", "constant_pad_nd")
def _pad(
    site: Site, self: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Tensor:
    """Padding is written from the last axis on, as (before, after) pairs."""
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in kinds:
        raise CannotLower(f"in mode {mode!r}")
    pairs = [(0, 0)] * (len(self.shape) - len(pad) // 2)
    pairs += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    if any(n + before + after < 1 for n, (before, after) in zip(self.shape, pairs, strict=True)):
        raise InvalidNetworkError(f"padding {pairs} leaves nothing of shape {self.shape}")
    _check_size(math.prod(n + b + a for n, (b, a) in zip(self.shape, pairs, strict=True)))
    cropped = tuple(
        slice(max(-before, 0), n - max(-after, 0))
        for n, (before, after) in zip(self.shape, pairs, strict=True)
    )
    grown = [(max(before, 0), max(after, 0)) for before, after in pairs]
    fill: dict[str, Any] = {"mode": kinds[mode]}
    if mode == "constant":
        fill["constant_values"] = -1
    index = np.pad(self.index[cropped], grown, **fill)
    result = site.lowering.rearrange(self, index)
    if value:
        result = site.lowering.shift(result, np.where(index < 0, float(value), 0.0))
    return result


@operation("reflection_pad1d", "reflection_pad2d")
def _reflection_pad(site: Site, self: Tensor, padding: Sequence[int]) -> Tensor:
    return _pad(site, self, padding, "reflect")


@operation("replication_pad1d", "replication_pad2d")
def _replication_pad(site: Site, self: Tensor, padding: Sequence[int]) -> Tensor:
    return _pad(site, self, padding, "replicate")


def _moved(site: Site, x: Tensor, move: Callable[[Index], Index]) -> Tensor:
    return site.lowering.rearrange(x, np.asarray(move(x.index)))


def _along(index: Index, dim: int, part: slice | int) -> Index:
    where: list[slice | int] = [slice(None)] * index.ndim
    where[dim] = part
    return index[tuple(where)]


def _lifted(value: Any) -> Tensor:
    """A constant as a tensor that reads nothing."""
    if isinstance(value, Tensor):
        return value
    array = as_array(value)
    return Tensor(array.shape, Affine({}, array.ravel()))


def _check_parts(count: int) -> None:
    if count > MAX_PARTS:
        raise InvalidNetworkError(f"{count:,} parts of one tensor; at most {MAX_PARTS:,} work")


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise InvalidNetworkError(f"a value with {size:,} entries; at most {MAX_SIZE:,} work")


#: Operations whose result may share memory with their first argument.
ALIASES = frozenset(
    name for name, function in OPERATIONS.items() if getattr(function, "__module__", "") == __name__
) - {"clone", "cat", "concat", "concatenate", "stack", "pad", "constant_pad_nd", "repeat"}

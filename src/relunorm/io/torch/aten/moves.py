"""Operations that only move entries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Tensor
from relunorm.io.graph.transposed import woven
from relunorm.io.torch.aten.program import leaves
from relunorm.io.torch.aten.site import (
    OPERATIONS,
    Site,
    as_array,
    check_floating,
    operation,
    reshaped,
    value_of,
)

#: A tensor is cut into at most this many parts.
MAX_PARTS = 1 << 12


@operation("contiguous", "detach", "detach_", "alias", "lift_fresh", "lift_fresh_copy", "positive")
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


@operation("expand")
def _expand(site: Site, self: Tensor, size: Any, implicit: bool = False) -> Tensor:
    lead = len(size) - len(self.shape)
    shape = [self.shape[a - lead] if n == -1 else n for a, n in enumerate(size)]
    if site.batch != 1 and shape[0] == site.batch and lead == 0 and self.shape[0] == 1:
        shape[0] = 1
    return site.lowering.broadcast(self, shape)


#: What else only moves, drops or repeats entries or puts zeros; torch says where each comes from.
MOVES = frozenset({
    "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "numpy_T", "mT",
    "adjoint", "movedim", "moveaxis", "swapaxes", "swapdims", "repeat", "repeat_interleave", "tile",
    "flip", "fliplr", "flipud", "roll", "rot90", "diagonal", "diag_embed", "tril", "triu", "unfold",
    "im2col", "pixel_unshuffle", "channel_shuffle", "slice", "narrow", "select",
    "index_select", "index", "gather", "take", "take_along_dim", "chunk", "split",
    "split_with_sizes", "tensor_split", "hsplit", "vsplit", "unbind", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d",
})  # fmt: skip

#: The same with entries of several values, and the arguments that hold them.
JOINS = {
    "where": ("self", "other"),
    "masked_fill": ("self", "value"),
    "scatter": ("self", "src", "value"),
    "slice_scatter": ("self", "src"),
    "select_scatter": ("self", "src"),
    "diagonal_scatter": ("self", "src"),
    "index_copy": ("self", "source"),
    "index_fill": ("self", "value"),
}


def _move(name: str, site: Site, **arguments: Any) -> Any:
    """Run an operation on the places of the entries: each of the result comes from one of them."""
    data = [key for key in JOINS.get(name, list(arguments)[:1]) if key in arguments]
    values = {key: value_of(arguments.pop(key)) for key in data}
    if any(isinstance(value, Tensor) for value in leaves(arguments)):
        raise CannotLower("the index or condition depends on the input")
    if name in ("split", "chunk", "unbind", "split_with_sizes"):
        _check_parts(values[data[0]].shape[arguments.get("dim", 0)], arguments)
    function = getattr(torch.ops.aten, name)

    def run(*places: Any) -> Any:
        given = dict(zip(data, map(torch.from_numpy, places), strict=True))
        if "value" in given and name == "scatter":
            given["src"] = given.pop("value").expand(arguments["index"].shape)
        check_result(function, given, arguments)
        found = function(**given, **arguments)
        return found.numpy() if isinstance(found, torch.Tensor) else [f.numpy() for f in found]

    return operations.moved(site.lowering, list(values.values()), run)


def check_result(function: Any, given: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Look at the size of a result first, where no index says it."""
    if not any(isinstance(value, torch.Tensor) for value in leaves(arguments)):
        empty = {k: torch.empty(v.shape, device="meta") for k, v in given.items()}
        for part in leaves(function(**empty, **arguments)):
            _check_size(part.numel())


OPERATIONS.update((name, partial(_move, name)) for name in sorted(MOVES.union(JOINS)))


@operation("pixel_shuffle")
def _pixel_shuffle(site: Site, self: Tensor, upscale_factor: int) -> Tensor:
    return woven(site.lowering, self, [upscale_factor] * 2)


@operation("view_as", "reshape_as")
def _view_as(site: Site, self: Tensor, other: Tensor) -> Tensor:
    return reshaped(site, self, other.shape)


@operation("expand_as")
def _expand_as(site: Site, self: Tensor, other: Tensor) -> Tensor:
    return site.lowering.broadcast(self, other.shape)


@operation("nan_to_num")
def _finite(
    site: Site, self: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """A network's values are numbers."""
    return self


@operation("cat", "concat", "concatenate")
def _cat(site: Site, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [_lifted(tensor) for tensor in tensors]
    _check_size(sum(part.size for part in parts))
    return site.lowering.concatenate(parts, dim)


@operation("stack")
def _stack(site: Site, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    return _cat(site, [_move("unsqueeze", site, self=_lifted(t), dim=dim) for t in tensors], dim)


@operation("pad", "constant_pad_nd")
def _pad(
    site: Site, self: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Tensor:
    padded = _move("pad", site, self=self, pad=pad, mode=mode)
    if not value:
        return padded
    inside = torch.ops.aten.pad(torch.ones(self.shape), pad)
    return site.lowering.shift(padded, np.where(inside.numpy() == 0, float(value), 0.0))


def _lifted(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else operations.constant_tensor(as_array(value))


def _check_parts(size: int, arguments: dict[str, Any]) -> None:
    """A file could ask for millions of parts."""
    each = next((arguments[key] for key in ("split_size", "split_sizes") if key in arguments), 1)
    count = arguments.get("chunks") or (-(-size // each) if isinstance(each, int) else len(each))
    if count > MAX_PARTS:
        raise InvalidNetworkError(f"{count:,} parts of one tensor; at most {MAX_PARTS:,} work")


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise InvalidNetworkError(f"a value with {size:,} entries; at most {MAX_SIZE:,} work")


#: Operations whose result may share memory with their first argument.
ALIASES = (
    MOVES.union(name for name, made in OPERATIONS.items() if made.__module__ == __name__)
) - {"clone", "cat", "concat", "concatenate", "stack", "pad", "constant_pad_nd", "repeat", "tile"}

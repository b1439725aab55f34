"""Aten operations that move entries, slide windows or make constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Tensor
from relunorm.io.graph.products import convolve_transposed, outputs_first
from relunorm.io.graph.windows import adaptive_windows, sliding_windows
from relunorm.io.torch.program import (
    Site,
    as_array,
    check_floating,
    constant,
    leaves,
    spread,
    value_of,
)
from relunorm.network.structure import Geometry

#: A tensor is cut into at most this many parts.
MAX_PARTS = 1 << 12


def _same(site: Site, self: Any) -> Any:
    return self


def _clone(site: Site, self: Any) -> Any:
    """The same, as a linear stage where `to_torch` wrote it for one."""
    return site.low.keep(self) if site.owner == "LinearStage" else self


def _dropout(site: Site, input: Any, p: float, train: bool) -> Any:
    if train and p != 0:
        raise CannotLower("is random: it is switched on even in eval mode")
    return input


def _convert(site: Site, self: Any, dtype: Any = None, other: Any = None) -> Any:
    if not (isinstance(self, Headed) and self.jumps):
        check_floating(other.dtype if isinstance(other, torch.Tensor) else dtype)
    return self


def _full_like(site: Site, self: Tensor, fill_value: Any, dtype: Any = None) -> torch.Tensor:
    return torch.full(self.shape, fill_value, dtype=dtype or torch.float64)


def _view(site: Site, self: Any, size: Any = None, shape: Any = None) -> Any:
    wanted = list(size if size is not None else shape)
    if site.batch != 1 and wanted and wanted[0] == site.batch and self.shape[:1] == (1,):
        wanted[0] = 1
    return meaning.reshaped(site.low, self, wanted)


def _expand(site: Site, self: Tensor, size: Any) -> Tensor:
    lead = len(size) - len(self.shape)
    shape = [self.shape[a - lead] if n == -1 else n for a, n in enumerate(size)]
    if site.batch != 1 and shape[0] == site.batch and lead == 0 and self.shape[0] == 1:
        shape[0] = 1
    return site.low.broadcast(self, shape)


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

    return meaning.moved(site.low, list(values.values()), run)


def check_result(function: Any, given: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Look at the size of a result first, where no index says it."""
    if not any(isinstance(value, torch.Tensor) for value in leaves(arguments)):
        empty = {k: torch.empty(v.shape, device="meta") for k, v in given.items()}
        for part in leaves(function(**empty, **arguments)):
            _check_size(part.numel())


def _cat(site: Site, tensors: Sequence[Any], dim: int = 0) -> Any:
    values = [value_of(tensor) for tensor in tensors]
    _check_size(sum(math.prod(value.shape) for value in values))
    return meaning.concatenate(site.low, values, dim)


def _stack(site: Site, tensors: Sequence[Any], dim: int = 0) -> Any:
    values = [t if isinstance(t, Tensor) else meaning.constant_tensor(as_array(t)) for t in tensors]
    return _cat(site, [_move("unsqueeze", site, self=t, dim=dim) for t in values], dim)


def _pad(
    site: Site, self: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Tensor:
    padded = _move("pad", site, self=self, pad=pad, mode=mode)
    if not value:
        return padded
    inside = torch.ops.aten.pad(torch.ones(self.shape), pad)
    return site.low.shift(padded, np.where(inside.numpy() == 0, float(value), 0.0))


def _check_parts(size: int, arguments: dict[str, Any]) -> None:
    """A file could ask for millions of parts."""
    each = next((arguments[key] for key in ("split_size", "split_sizes") if key in arguments), 1)
    count = arguments.get("chunks") or (-(-size // each) if isinstance(each, int) else len(each))
    if count > MAX_PARTS:
        raise InvalidNetworkError(f"{count:,} parts of one tensor; at most {MAX_PARTS:,} work")


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise InvalidNetworkError(f"a value with {size:,} entries; at most {MAX_SIZE:,} work")


def _conv(
    site: Site,
    input: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    matrix = constant(weight, "weight")
    axes = matrix.ndim - 2
    kernel, even = matrix.shape[2:], 0 if padding in ("same", "valid") else padding
    geometry = _geometry(kernel, stride, even, dilation)
    if padding == "same":  # with steps of 1 any sizes of the input will do
        geometry = geometry.padded(meaning.same_padding(kernel, geometry))
    offset, low = None if bias is None else constant(bias, "bias"), site.low
    return _with_batch(
        site, input, axes, lambda x: low.convolve(x, matrix, offset, geometry, groups)
    )


def _conv_transpose(
    site: Site,
    input: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    matrix = constant(weight, "weight")
    axes = matrix.ndim - 2
    geometry, extra = _geometry(matrix.shape[2:], stride, padding, dilation), output_padding
    pads = [(p, p - more) for (p, _), more in zip(geometry.pads, spread(extra, axes), strict=True)]
    geometry = geometry.padded(pads)
    offset, low = None if bias is None else constant(bias, "bias"), site.low
    outward = outputs_first(matrix, groups)
    return _with_batch(
        site, input, axes, lambda x: convolve_transposed(low, x, outward, offset, geometry, groups)
    )


def _resample(name: str, site: Site, **arguments: Any) -> Tensor:
    """Finer or coarser along each axis, by the weights that torch itself gives."""
    key, *_ = arguments
    x = arguments.pop(key)
    function = getattr(torch.ops.aten, name)
    spatial = range(2, len(x.shape))
    for axis in spatial:
        ones = [1] * len(x.shape)

        def run(rows: Any, axis: int = axis, ones: list[int] = ones) -> Any:
            shape = [*ones]
            shape[0], shape[axis] = rows.shape
            wide = [n if a in (0, axis) else 2 for a, n in enumerate(shape)]
            given = {key: torch.from_numpy(rows).reshape(shape).expand(wide).contiguous()}
            others = _along_one(arguments, axis - 2, len(spatial))
            check_result(function, given, others)
            found = function(**given, **others)
            first = [slice(None) if a in (0, axis) else 0 for a in range(len(ones))]
            return found[tuple(first)].numpy()

        x = meaning.along(site.low, x, axis, run)
    return x


def _along_one(arguments: dict[str, Any], axis: int, axes: int) -> dict[str, Any]:
    """Arguments that leave a length of 2 along all spatial axes but one.

    Of a length of 1 torch can be wrong: it takes the strides of (n, 1, h, 1) for channels last.
    """
    scales = ("scales_d", "scales_h", "scales_w")[-axes:]
    changed: dict[str, Any] = {
        name: None for name in scales if name in arguments and name != scales[axis]
    }
    for name, kept in (("output_size", 2), ("scale_factors", 1.0)):
        if arguments.get(name) is not None:
            changed[name] = [x if k == axis else kept for k, x in enumerate(arguments[name])]
    return {**arguments, **changed}


def _convolution(
    site: Site,
    input: Tensor,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    if transposed:
        extra = output_padding
        return _conv_transpose(site, input, weight, bias, stride, padding, extra, groups, dilation)
    return _conv(site, input, weight, bias, stride, padding, dilation, groups)


def _avg_pool(
    axes: int,
    site: Site,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    geometry = _pooling(axes, kernel_size, stride, padding, 1, ceil_mode)

    def pool(x: Tensor) -> Tensor:
        windows = sliding_windows(x.shape[2:], geometry)
        if divisor_override is None:
            return site.low.average(x, windows, count_include_pad)
        average = site.low.average(x, windows, False)
        share = windows.valid.sum(axis=1) / divisor_override
        return site.low.scale(average, share.reshape(windows.shape))

    return _with_batch(site, self, axes, pool)


def _max_pool(
    axes: int,
    site: Site,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    geometry = _pooling(axes, kernel_size, stride, padding, dilation, ceil_mode)

    def pool(x: Tensor) -> Tensor:
        return site.low.max_pool(x, sliding_windows(x.shape[2:], geometry), site.name)

    return _with_batch(site, self, axes, pool)


def _max_pool_with_indices(axes: int, site: Site, **arguments: Any) -> list[Any]:
    return [_max_pool(axes, site, **arguments), None]


def _adaptive_avg_pool(site: Site, self: Tensor, output_size: Sequence[int]) -> Tensor:
    def pool(x: Tensor) -> Tensor:
        return site.low.average(x, adaptive_windows(x.shape[2:], output_size), False)

    return _with_batch(site, self, len(output_size), pool)


def _adaptive_max_pool(site: Site, self: Tensor, output_size: Sequence[int]) -> list[Any]:
    def pool(x: Tensor) -> Tensor:
        return site.low.max_pool(x, adaptive_windows(x.shape[2:], output_size), site.name)

    return [_with_batch(site, self, len(output_size), pool), None]


def _pooling(
    axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Geometry:
    sizes = spread(kernel, axes)
    steps = sizes if isinstance(stride, list | tuple) and not stride else stride
    return _geometry(sizes, steps, padding, dilation, ceil)


def _geometry(
    kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, ceil: bool = False
) -> Geometry:
    steps, even, apart = (spread(value, len(kernel)) for value in (stride, padding, dilation))
    return Geometry(kernel, steps, [(p, p) for p in even], apart, ceil)


def _with_batch(site: Site, x: Tensor, axes: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a spatial operation, which torch also accepts without the batch axis."""
    if len(x.shape) == axes + 2:
        return function(x)
    result = function(meaning.reshaped(site.low, x, (1, *x.shape)))
    return meaning.reshaped(site.low, result, result.shape[1:])


_RESAMPLED = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)  # fmt: skip

#: Those whose result may share memory with their first argument, but for two.
_VIEWS: dict[str, Callable[..., Any]] = {
    **{name: partial(_move, name) for name in sorted(MOVES)},
    **dict.fromkeys(("contiguous", "detach", "detach_", "alias", "lift_fresh"), _same),
    **dict.fromkeys(("lift_fresh_copy", "positive"), _same),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
    **dict.fromkeys(("to", "_to_copy", "type_as"), _convert),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    **dict.fromkeys(
        ("view_as", "reshape_as"),
        lambda site, self, other: meaning.reshaped(site.low, self, other.shape),
    ),
    "feature_alpha_dropout": _dropout,
    "expand": _expand,
    "expand_as": lambda site, self, other: (
        site.low.broadcast(self, other.shape)
        if isinstance(self, Tensor)
        else self.expand(other.shape)
    ),
    # a network's values are numbers
    "nan_to_num": lambda site, self, nan=None, posinf=None, neginf=None: self,
}
ALIASES = frozenset(_VIEWS) - {"repeat", "tile"}

SHAPES: dict[str, Callable[..., Any]] = {
    **_VIEWS,
    **{name: partial(_move, name) for name in JOINS},
    **{name: partial(_resample, name) for name in _RESAMPLED},
    **{f"avg_pool{axes}d": partial(_avg_pool, axes) for axes in (1, 2, 3)},
    **{f"max_pool{axes}d": partial(_max_pool, axes) for axes in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": partial(_max_pool_with_indices, n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{axes}d": _adaptive_avg_pool for axes in (1, 2, 3)},
    **{f"_adaptive_avg_pool{axes}d": _adaptive_avg_pool for axes in (2, 3)},
    **{f"adaptive_max_pool{axes}d": _adaptive_max_pool for axes in (1, 2, 3)},
    **{f"conv{axes}d": _conv for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": _conv_transpose for axes in (1, 2, 3)},
    **dict.fromkeys(("convolution", "_convolution"), _convolution),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    "clone": _clone,
    "stack": _stack,
    "pixel_shuffle": lambda site, self, upscale_factor: meaning.woven(
        site.low, self, [upscale_factor] * 2
    ),
    "full_like": _full_like,
    "zeros_like": lambda site, self, dtype=None: _full_like(site, self, 0, dtype),
    "ones_like": lambda site, self, dtype=None: _full_like(site, self, 1, dtype),
}

"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from relunorm.io.graph import operations
from relunorm.io.graph.lower import Tensor
from relunorm.io.graph.operations import same_padding
from relunorm.io.graph.transposed import convolve_transposed, outputs_first
from relunorm.io.graph.windows import Windows, adaptive_windows, sliding_windows
from relunorm.io.torch.aten.moves import check_result
from relunorm.io.torch.aten.site import Site, constant, operation, reshaped, spread


@operation("conv1d", "conv2d", "conv3d")
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
    dilation = spread(dilation, axes)
    if padding == "same":
        kernel = matrix.shape[2:]
        pads = same_padding(kernel, kernel, [1] * axes, dilation)  # the same for inputs of any size
    else:
        pads = [(p, p) for p in spread(0 if padding == "valid" else padding, axes)]
    offset = None if bias is None else constant(bias, "bias")

    def convolve(x: Tensor) -> Tensor:
        return site.lowering.convolve(
            x, matrix, offset, spread(stride, axes), pads, dilation, groups
        )

    return _with_batch(site, input, axes, convolve)


@operation("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
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
    extra = spread(output_padding, axes)
    pads = [(p, p - more) for p, more in zip(spread(padding, axes), extra, strict=True)]
    offset = None if bias is None else constant(bias, "bias")
    steps, apart, low = spread(stride, axes), spread(dilation, axes), site.lowering
    outward = outputs_first(matrix, groups)

    def convolve(x: Tensor) -> Tensor:
        return convolve_transposed(low, x, outward, offset, steps, pads, apart, groups)

    return _with_batch(site, input, axes, convolve)


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

        x = operations.along(site.lowering, x, axis, run)
    return x


def _along_one(arguments: dict[str, Any], axis: int, axes: int) -> dict[str, Any]:
    """Arguments that leave a length of 2 along all spatial axes but one.

    Of a length of 1 torch can be wrong: it takes the strides of (n, 1, h, 1) for channels last.
    """
    scales = ("scales_d", "scales_h", "scales_w")[-axes:]
    changed = {name: None for name in scales if name in arguments and name != scales[axis]}
    for name, kept in (("output_size", 2), ("scale_factors", 1.0)):
        if arguments.get(name) is not None:
            changed[name] = [x if k == axis else kept for k, x in enumerate(arguments[name])]
    return {**arguments, **changed}


for _name in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d"):
    operation(f"upsample_{_name}")(partial(_resample, f"upsample_{_name}"))
for _axes in (1, 2, 3):
    for _name in ("upsample_nearest", "_upsample_nearest_exact"):
        operation(f"{_name}{_axes}d")(partial(_resample, f"{_name}{_axes}d"))
for _name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
    operation(_name)(partial(_resample, _name))


@operation("convolution", "_convolution")
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
    benchmark: Any = None,
    deterministic: Any = None,
    cudnn_enabled: Any = None,
    allow_tf32: Any = None,
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
    def pool(x: Tensor) -> Tensor:
        windows = _windows(x, kernel_size, stride, padding, 1, ceil_mode, axes)
        if divisor_override is None:
            return site.lowering.average(x, windows, count_include_pad)
        average = site.lowering.average(x, windows, False)
        share = windows.valid.sum(axis=1) / divisor_override
        return site.lowering.scale(average, share.reshape(windows.shape))

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
    def pool(x: Tensor) -> Tensor:
        windows = _windows(x, kernel_size, stride, padding, dilation, ceil_mode, axes)
        return site.lowering.max_pool(x, windows, site.name)

    return _with_batch(site, self, axes, pool)


def _max_pool_with_indices(axes: int, site: Site, **arguments: Any) -> list[Any]:
    return [_max_pool(axes, site, **arguments), None]


for _axes in (1, 2, 3):
    operation(f"avg_pool{_axes}d")(partial(_avg_pool, _axes))
    operation(f"max_pool{_axes}d")(partial(_max_pool, _axes))
    operation(f"max_pool{_axes}d_with_indices")(partial(_max_pool_with_indices, _axes))


@operation(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)
def _adaptive_avg_pool(site: Site, self: Tensor, output_size: Sequence[int]) -> Tensor:
    def pool(x: Tensor) -> Tensor:
        return site.lowering.average(x, adaptive_windows(x.shape[2:], output_size), False)

    return _with_batch(site, self, len(output_size), pool)


@operation("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(site: Site, self: Tensor, output_size: Sequence[int]) -> list[Any]:
    def pool(x: Tensor) -> Tensor:
        return site.lowering.max_pool(x, adaptive_windows(x.shape[2:], output_size), site.name)

    return [_with_batch(site, self, len(output_size), pool), None]


def _windows(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, axes: int
) -> Windows:
    sizes = spread(kernel, axes)
    steps = sizes if isinstance(stride, list | tuple) and not stride else spread(stride, axes)
    pads = [(p, p) for p in spread(padding, axes)]
    return sliding_windows(x.shape[2:], sizes, steps, pads, spread(dilation, axes), ceil)


def _with_batch(site: Site, x: Tensor, axes: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a spatial operation, which torch also accepts without the batch axis."""
    if len(x.shape) == axes + 2:
        return function(x)
    result = function(reshaped(site, x, (1, *x.shape)))
    return reshaped(site, result, result.shape[1:])

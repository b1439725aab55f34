"""ONNX convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.transposed import convolve_transposed, outputs_first
from relunorm.io.graph.windows import Windows, sliding_windows
from relunorm.io.onnx.site import Array, Node, Value, check_count, operation, resized


@operation("Conv")
def _conv(node: Node) -> Value:
    x, weight = node.tensor(0), node.constant(1)
    bias = None if node.input(2) is None else node.constant(2)
    spatial = x.shape[2:]
    if weight.ndim != len(x.shape) or not spatial:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    if bias is not None and bias.shape != (len(weight),):
        raise InvalidNetworkError(f"the bias has shape {bias.shape}, expected ({len(weight)},)")
    kernel = weight.shape[2:]
    stride = _per_axis(node, "strides", spatial)
    dilation = _per_axis(node, "dilations", spatial)
    pads = _pads(node, spatial, kernel, stride, dilation)
    return node.lowering.convolve(
        x, weight, bias, stride, pads, dilation, node.attribute("group", 1)
    )


@operation("ConvTranspose")
def _conv_transpose(node: Node) -> Value:
    x, weight = node.tensor(0), node.constant(1)
    bias = None if node.input(2) is None else node.constant(2)
    spatial, kernel = x.shape[2:], weight.shape[2:]
    if weight.ndim != len(x.shape) or not spatial:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    stride, dilation = _per_axis(node, "strides", spatial), _per_axis(node, "dilations", spatial)
    extra = [int(n) for n in node.attribute("output_padding", [0] * len(spatial))]
    mode = node.attribute("auto_pad", b"NOTSET").decode()
    wanted = node.attribute("output_shape")
    if mode in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = [n * s for n, s in zip(spatial, stride, strict=True)]
    if wanted is None:
        pads = _pads(node, spatial, kernel, stride, dilation)
    else:
        pads = []
        for n, k, s, d, more, size in zip(
            spatial, kernel, stride, dilation, extra, wanted[-len(spatial) :], strict=True
        ):
            total = (n - 1) * s + d * (k - 1) + 1 + more - int(size)
            ends = (total // 2, total - total // 2)
            pads.append(ends if mode == "SAME_UPPER" else ends[::-1])
    pads = [(a, b - more) for (a, b), more in zip(pads, extra, strict=True)]
    groups = int(node.attribute("group", 1))
    check_count([groups * weight.shape[1], *(n * s + k * d for n, s, k, d in
                 zip(spatial, stride, kernel, dilation, strict=True))])  # fmt: skip
    return convolve_transposed(
        node.lowering, x, outputs_first(weight, groups), bias, stride, pads, dilation, groups
    )


@operation("Resize", "Upsample")
def _resize(node: Node) -> Value:
    """Finer or coarser along each axis, by the weights that ONNX's own reference gives."""
    x, rank = node.tensor(), len(node.tensor().shape)
    if node.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise CannotLower("crops as it resizes")
    if node.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise CannotLower("keeps the aspect ratio")
    axes = [int(a) % rank for a in node.attribute("axes", range(rank))]
    places = (1,) if node.kind == "Upsample" or node.opset < 11 else (2, 3)
    scales, sizes = (*(_numbers(node, k) for k in places), None)[:2]
    if scales is None and node.attribute("scales") is not None:
        scales = [float(n) for n in node.attribute("scales")]
    if scales is None and sizes is None:
        raise InvalidNetworkError("neither scales nor sizes are given")
    for k, axis in enumerate(axes):
        n = x.shape[axis]
        size = int(sizes[k]) if sizes else int(np.floor(n * scales[k]))  # type: ignore[index]
        check_count([size, n])
        if (size == n and sizes) or (scales and scales[k] == 1):
            continue
        if axis == 0:
            raise CannotLower("resizes the first axis, the batch")
        scale = None if scales is None else scales[k]

        def run(rows: Array, scale: float | None = scale, size: int = size) -> Array:
            return resized(node, rows, scale, size)

        x = meaning.along(node.lowering, x, axis, run)
    return x


def _numbers(node: Node, position: int) -> list[float] | None:
    found = None if node.input(position) is None else node.constant(position)
    return None if found is None or not found.size else [float(n) for n in found.ravel()]


def _per_axis(node: Node, name: str, spatial: Sequence[int]) -> list[int]:
    return [int(n) for n in node.attribute(name, [1] * len(spatial))]


def _pads(
    node: Node,
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int]]:
    mode = node.attribute("auto_pad", b"NOTSET").decode()
    axes = len(spatial)
    if mode == "VALID":
        return [(0, 0)] * axes
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = meaning.same_padding(spatial, kernel, stride, dilation)
        return pads if mode == "SAME_UPPER" else [(large, small) for small, large in pads]
    pads = [int(n) for n in node.attribute("pads", [0] * (2 * axes))]
    if mode != "NOTSET" or len(pads) != 2 * axes:
        raise InvalidNetworkError(f"auto_pad {mode!r} with pads {pads} over {axes} axes")
    return list(zip(pads[:axes], pads[axes:], strict=True))


def _windows(node: Node, x: Tensor) -> Windows:
    spatial = x.shape[2:]
    if not spatial:
        raise InvalidNetworkError(f"pooling of shape {x.shape} has no axis to pool")
    kernel = [int(n) for n in node.attribute("kernel_shape", [])]
    stride, dilation = _per_axis(node, "strides", spatial), _per_axis(node, "dilations", spatial)
    pads = _pads(node, spatial, kernel, stride, dilation)
    ceil = bool(node.attribute("ceil_mode", 0))
    return sliding_windows(spatial, kernel, stride, pads, dilation, ceil)


@operation("AveragePool")
def _average_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.average(
        x, _windows(node, x), count_padding=bool(node.attribute("count_include_pad", 0))
    )


@operation("GlobalAveragePool")
def _global_average_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.average(x, meaning.one_window(x), count_padding=False)


@operation("MaxPool")
def _max_pool(node: Node) -> Value:
    x = node.tensor()
    if node.extra_output_used():
        raise CannotLower("its indices are used")
    return node.lowering.max_pool(x, _windows(node, x), node.label)


@operation("GlobalMaxPool")
def _global_max_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.max_pool(x, meaning.one_window(x), node.label)

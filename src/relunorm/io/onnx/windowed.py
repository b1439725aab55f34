"""ONNX convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.windows import Windows, sliding_windows
from relunorm.io.onnx.site import Node, Value, operation


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

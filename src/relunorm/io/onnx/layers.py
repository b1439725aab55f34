"""ONNX operations that are layers: matrix products, convolutions, pooling, activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.windows import Windows, sliding_windows
from relunorm.io.onnx.ops import OPERATIONS, Array, Node, Value, operation
from relunorm.network import RELU, Activation

__all__ = ["OPERATIONS"]  # complete once this module is imported


@operation("MatMul")
def _matmul(node: Node) -> Value:
    a, b = node.inputs
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        raise CannotLower("a product of two computed values is not piecewise affine")
    if isinstance(a, Tensor):
        weight = _two_axes(b)
        y = node.lowering.linear(a, weight.T, None)
        return node.lowering.rearrange(y, y.index[..., 0]) if b.ndim == 1 else y
    if isinstance(b, Tensor):
        return node.lowering.left_multiply(_two_axes(a), b)
    return a @ b


def _two_axes(weight: Array) -> Array:
    while weight.ndim > 2 and weight.shape[0] == 1:
        weight = weight[0]
    if weight.ndim == 1:
        return weight[:, None]
    if weight.ndim != 2:
        raise CannotLower("a stack of constant matrices")
    return weight


@operation("Gemm")
def _gemm(node: Node) -> Value:
    a, weight = node.tensor(0), node.constant(1)
    low = node.lowering
    if len(a.shape) != 2:
        raise InvalidNetworkError(f"Gemm on an input of shape {a.shape}, expected two axes")
    if node.attribute("transA", 0):
        a = low.rearrange(a, a.index.T)
    if not node.attribute("transB", 0):
        weight = weight.T
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if alpha != 1.0:
        weight = weight * np.float64(alpha)
    y = low.linear(a, weight, None)
    offset = node.input(2)
    if offset is None:
        return y
    if isinstance(offset, Tensor):
        return low.add(y, low.scale(offset, np.array(beta)))
    shifted = low.shift(y, np.asarray(offset, dtype=np.float64) * beta)
    if shifted.shape != y.shape:
        raise InvalidNetworkError(f"the bias of shape {offset.shape} does not fit {y.shape}")
    return shifted


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


@operation("BatchNormalization")
def _batch_norm(node: Node) -> Value:
    x = node.tensor(0)
    if node.attribute("training_mode", 0) or node.extra_output_used():
        raise CannotLower("in training mode")
    if len(x.shape) < 2:
        raise InvalidNetworkError(f"batch normalization of shape {x.shape} has no channel axis")
    scale, shift, mean, variance = (
        np.asarray(node.constant(k), dtype=np.float64).reshape(-1) for k in range(1, 5)
    )
    epsilon = node.attribute("epsilon", 1e-5)
    if not len(scale) == len(shift) == len(mean) == len(variance) == x.shape[1]:
        raise InvalidNetworkError(f"statistics do not fit {x.shape[1]} channels")
    return meaning.normalize(node.lowering, x, 1, (mean, variance), epsilon, scale, shift)


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


@operation("Relu")
def _relu(node: Node) -> Value:
    return node.lowering.activate(node.tensor(), RELU, node.label)


@operation("LeakyRelu")
def _leaky_relu(node: Node) -> Value:
    slope = float(node.attribute("alpha", 0.01))
    return node.lowering.activate(node.tensor(), Activation("leaky", slope), node.label)


@operation("PRelu")
def _prelu(node: Node) -> Value:
    return meaning.prelu(node.lowering, node.tensor(), node.constant(1), node.label)


@operation("HardSigmoid")
def _hard_sigmoid(node: Node) -> Value:
    if node.attribute("beta", 0.5) != 0.5:
        raise CannotLower("with another value than 1/2 at 0")
    slope = float(node.attribute("alpha", 0.2))
    return meaning.hard_sigmoid(node.lowering, node.tensor(), node.label, slope)


@operation("Clip")
def _clip(node: Node) -> Value:
    low, high = (
        node.attribute(name) if node.input(k) is None else float(node.constant(k).reshape(()))
        for k, name in ((1, "min"), (2, "max"))
    )
    return node.lowering.clip(node.tensor(), low, high, node.label)


@operation("Abs")
def _abs(node: Node) -> Value:
    return meaning.absolute(node.lowering, node.tensor(), node.label)


@operation("Sign")
def _sign(node: Node) -> Value:
    return node.lowering.sign(node.tensor(), node.label)


@operation("Scaler")
def _scaler(node: Node) -> Value:
    """(x - offset) * scale, as scikit-learn's converters write a StandardScaler."""
    x = node.tensor()
    offset, scale = (
        np.asarray(node.attribute(n, [d])) for n, d in (("offset", 0.0), ("scale", 1.0))
    )
    return node.lowering.scale(node.lowering.shift(x, -offset), scale)


@operation("ArrayFeatureExtractor")
def _columns(node: Node) -> Value:
    """Some columns of the last axis."""
    x, chosen = node.tensor(), np.ravel(node.constant(1)).astype(np.intp)
    return node.lowering.rearrange(x, x.index[..., chosen])


@operation("LinearRegressor")
def _linear_regressor(node: Node) -> Value:
    if node.attribute("post_transform", b"NONE") != b"NONE":
        raise CannotLower("with a transform of its result")
    return linear_model(node, int(node.attribute("targets", 1)))


def linear_model(node: Node, outputs: int) -> Tensor:
    """The affine map of a linear model, a row of coefficients for each output."""
    x = node.tensor()
    weight = np.asarray(node.attribute("coefficients"), dtype=np.float64).reshape(outputs, -1)
    bias = np.asarray(node.attribute("intercepts", [0.0] * outputs), dtype=np.float64)
    return node.lowering.linear(x, weight, bias.reshape(outputs))


#: Operations of the ai.onnx.ml domain, which converters of scikit-learn models use.
MACHINE_LEARNING = ("Scaler", "ArrayFeatureExtractor", "LinearRegressor", "LinearClassifier")

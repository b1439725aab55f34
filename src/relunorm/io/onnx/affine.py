"""ONNX arithmetic, products with constants, reductions, and normalization by stored statistics."""

from __future__ import annotations

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.einsum import einsum, matmul
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.onnx.site import Array, Node, Value, operation, pairwise, reference


@operation("Add", "Sum")
def _add(node: Node) -> Value:
    return pairwise(node, lambda a, b: meaning.add(node.lowering, a, b))


@operation("Sub")
def _sub(node: Node) -> Value:
    return meaning.subtract(node.lowering, *node.inputs)


@operation("Mul")
def _mul(node: Node) -> Value:
    return meaning.multiply(node.lowering, *node.inputs)


@operation("Div")
def _div(node: Node) -> Value:
    return meaning.divide(node.lowering, *node.inputs)


@operation("Neg")
def _neg(node: Node) -> Value:
    return meaning.negative(node.lowering, node.tensor())


@operation("Mean")
def _mean(node: Node) -> Value:
    return node.lowering.scale(_add(node), np.array(1 / len(node.inputs)))


@operation("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1")
def _reduce(node: Node) -> Value:
    x, low = node.tensor(), node.lowering
    axes = node.integers(1, "axes")
    if axes is None and node.attribute("noop_with_empty_axes", 0):
        return x
    axes = list(range(len(x.shape))) if axes is None else [a % len(x.shape) for a in axes]
    if 0 in axes and len(x.shape) > 1:
        raise CannotLower("reduces over the first axis, the batch")
    keep = bool(node.attribute("keepdims", 1))
    if node.kind == "ReduceSum":
        return low.sum(x, axes, keep)
    if node.kind == "ReduceMean":
        return meaning.mean(low, x, axes, keep)
    if node.kind == "ReduceL1":
        return meaning.sizes(low, x, axes, keep, node.label)
    extreme = meaning.largest if node.kind == "ReduceMax" else meaning.smallest
    return extreme(low, x, axes, keep, node.label)


@operation("MatMul")
def _matmul(node: Node) -> Value:
    if not any(isinstance(value, Tensor) for value in node.inputs):
        return node.constant(0) @ node.constant(1)
    return matmul(node.lowering, *node.inputs)


@operation("Einsum")
def _einsum(node: Node) -> Value:
    return einsum(node.lowering, node.attribute("equation").decode(), node.inputs)


@operation("CumSum")
def _cumsum(node: Node) -> Value:
    x, axis = node.tensor(), int(node.constant(1).item())
    if axis % len(x.shape) == 0 and len(x.shape) > 1:
        raise CannotLower("runs over the first axis, the batch")

    def run(rows: Array) -> Array:
        return reference(node, [rows, np.array(1)])[0]

    return meaning.along(node.lowering, x, axis, run)


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


@operation("Scaler")
def _scaler(node: Node) -> Value:
    """(x - offset) * scale, as scikit-learn's converters write a StandardScaler."""
    x = node.tensor()
    offset, scale = (
        np.asarray(node.attribute(n, [d])) for n, d in (("offset", 0.0), ("scale", 1.0))
    )
    return node.lowering.scale(node.lowering.shift(x, -offset), scale)


@operation("Imputer")
def _imputer(node: Node) -> Value:
    """Complete rows, the only ones a network reads, pass as they are."""
    if not np.isnan(node.attribute("replaced_value_float", 0.0)):
        raise CannotLower("replaces a number, not what is missing")
    return node.tensor()


@operation("FeatureVectorizer")
def _vectorizer(node: Node) -> Value:
    return node.lowering.concatenate([node.tensor(k) for k in range(len(node.inputs))], 1)


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

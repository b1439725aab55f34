"""ONNX operations that only move entries, and those that make constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.onnx.site import STAGE, Array, Node, Value, check_count, operation, reference


@operation("Identity")
def _identity(node: Node) -> Value:
    """What it reads, as a linear stage where the node is noted to be one."""
    x = node.inputs[0]
    if isinstance(x, Tensor) and node.proto.doc_string == STAGE:
        return node.lowering.keep(x)
    return x


@operation("Dropout")
def _dropout(node: Node) -> Value:
    training = node.input(2)
    if node.extra_output_used() or (training is not None and np.any(training)):
        raise CannotLower("in training mode")
    return node.inputs[0]


@operation("Cast")
def _cast(node: Node) -> Value:
    target = node.attribute("to")
    value = node.input(0)
    if isinstance(value, np.ndarray):
        return value.astype(onnx.helper.tensor_dtype_to_np_dtype(target))
    if target not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise CannotLower("to a type other than float32 or float64")
    return node.tensor()


@operation("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice")
@operation("Expand", "Gather", "Tile", "DepthToSpace", "SpaceToDepth")
def _moved(node: Node) -> Value:
    """What ONNX's own reference makes of the places of the entries: each comes from one of them."""
    value = node.inputs[0]
    others = [None if each is None else node.constant(k) for k, each in enumerate(node.inputs) if k]
    places = value.index if isinstance(value, Tensor) else node.constant(0)
    check_count(_grown(node, places.shape))
    (found,) = reference(node, [places, *others])
    return node.lowering.rearrange(value, found) if isinstance(value, Tensor) else found


def _grown(node: Node, shape: tuple[int, ...]) -> Sequence[int]:
    """The shape, or one with as many entries, that repeated entries make; the file names it."""
    if node.kind == "Expand":
        return np.broadcast_shapes(shape, tuple(int(n) for n in node.constant(1)))
    if node.kind == "Tile":
        return [n * int(k) for n, k in zip(shape, node.constant(1), strict=True)]
    if node.kind == "Gather":
        return (math.prod(shape) // max(shape[node.attribute("axis", 0)], 1), node.constant(1).size)
    return ()


@operation("ArrayFeatureExtractor")
def _columns(node: Node) -> Value:
    """Some columns of the last axis."""
    x, chosen = node.tensor(), np.ravel(node.constant(1)).astype(np.intp)
    return node.lowering.rearrange(x, x.index[..., chosen])


@operation("Split")
def _split(node: Node) -> list[Value]:
    axis = node.attribute("axis", 0)
    sizes = node.integers(1, "split")
    parts = len(node.proto.output)
    value = node.input(0)
    array = value.index if isinstance(value, Tensor) else node.constant(0)
    if sizes is None:
        chunk = -(-array.shape[axis] // parts)
        sizes = [min(chunk, array.shape[axis] - k * chunk) for k in range(parts)]
    if sum(sizes) != array.shape[axis] or len(sizes) != parts or min(sizes) < 0:
        raise InvalidNetworkError(f"splits an axis of {array.shape[axis]} into {sizes}")
    pieces = np.split(array, np.cumsum(sizes)[:-1], axis=axis)
    if isinstance(value, Tensor):
        return [node.lowering.rearrange(value, piece) for piece in pieces]
    return list(pieces)


@operation("Pad")
def _pad(node: Node) -> Value:
    pads = node.integers(1, "pads")
    if pads is None:
        raise InvalidNetworkError("pads are missing")
    mode = node.attribute("mode", b"constant")
    fill = float(node.constant(2)) if node.input(2) is not None else node.attribute("value", 0.0)
    if mode != b"constant" or fill != 0 or min(pads, default=0) < 0:
        raise CannotLower("only zero padding is known")
    x = node.tensor()
    axes = node.integers(3, "axes") or list(range(len(x.shape)))
    width = [(0, 0)] * len(x.shape)
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    check_count([n + before + after for n, (before, after) in zip(x.shape, width, strict=True)])
    return node.lowering.rearrange(x, np.pad(x.index, width, constant_values=-1))


@operation("Concat")
def _concat(node: Node) -> Value:
    axis = node.attribute("axis")
    if all(isinstance(value, np.ndarray) for value in node.inputs):
        return np.concatenate(node.inputs, axis=axis)
    tensors = [
        value if isinstance(value, Tensor) else _constant_tensor(node.lowering, value)
        for value in node.inputs
    ]
    return node.lowering.concatenate(tensors, axis)


def _constant_tensor(lowering: Lowering, value: Array) -> Tensor:
    nothing = lowering.rearrange(lowering.input, np.full(value.shape, -1))
    return lowering.shift(nothing, value)


@operation("Constant")
def _constant(node: Node) -> Value:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = node.attribute(name)
        if value is not None:
            return np.asarray(value)
    raise CannotLower("only numbers are known")


@operation("ConstantOfShape")
def _constant_of_shape(node: Node) -> Value:
    shape = [int(n) for n in node.constant(0)]
    check_count(shape)
    fill = node.attribute("value", np.zeros(1, dtype=np.float32))
    return np.full(shape, fill.ravel()[0])


@operation("Shape")
def _shape(node: Node) -> Value:
    value = node.inputs[0]
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return np.array(value.shape, dtype=np.int64)[start:end]

"""ONNX operations that only move entries, and those that make constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.transposed import woven
from relunorm.io.onnx.site import STAGE, Array, Node, Value, check_count, operation, reference

#: Conversions between these are taken as exact, as they are in torch.
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
_FLOATS += (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


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
    if target not in _FLOATS:
        raise CannotLower("to whole numbers, which rounds")
    return node.tensor()


@operation("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split")
@operation("Expand", "Gather", "GatherND", "Tile", "Compress", "Trilu")
@operation("SpaceToDepth", "Where", "ScatterElements", "Scatter", "ScatterND", "ReverseSequence")
def _moved(node: Node) -> Value | list[Value]:
    """What ONNX's own reference makes of the places of the entries: each comes from one of them."""
    data = _DATA.get(node.kind, (0,))
    others = {k: node.constant(k) for k, each in enumerate(node.inputs)
              if k not in data and each is not None}  # fmt: skip
    values = [node.inputs[k] for k in data]
    if node.attribute("reduction", b"none") not in (b"none", "none"):
        raise CannotLower("adds up or compares what it scatters")

    def run(*places: Array) -> Any:
        given = {**others, **dict(zip(data, places, strict=True))}
        check_count(_grown(node, places[0].shape))
        found = reference(node, [given.get(k) for k in range(len(node.inputs))])
        return found if len(found) > 1 else found[0]

    if any(isinstance(value, Tensor) for value in values):
        return meaning.moved(node.lowering, values, run)
    return run(*(node.constant(k) for k in data))


#: The inputs whose entries come out again, where it is not the first alone.
_DATA = {"Where": (1, 2), "ScatterElements": (0, 2), "Scatter": (0, 2), "ScatterND": (0, 2)}


@operation("DepthToSpace")
def _depth_to_space(node: Node) -> Value:
    x, size = node.tensor(), int(node.attribute("blocksize"))
    if node.attribute("mode", b"DCR") == b"DCR" and len(x.shape) == 4:
        grid = x.shape[2:]
        x = node.lowering.rearrange(x, x.index.reshape(1, size * size, -1, *grid))
        x = node.lowering.rearrange(x, x.index.transpose(0, 2, 1, 3, 4))
        x = node.lowering.rearrange(x, x.index.reshape(1, -1, *grid))
    return woven(node.lowering, x, [size, size])


def _grown(node: Node, shape: tuple[int, ...]) -> Sequence[int]:
    """The shape, or one with as many entries, that repeated entries make; the file names it."""
    if node.kind == "Expand":
        return np.broadcast_shapes(shape, tuple(int(n) for n in node.constant(1)))
    if node.kind == "Tile":
        return [n * int(k) for n, k in zip(shape, node.constant(1), strict=True)]
    if node.kind in ("Gather", "GatherND"):
        return (math.prod(shape) // max(shape[node.attribute("axis", 0)], 1), node.constant(1).size)
    if node.kind == "Where":
        return np.broadcast_shapes(*(value.shape for value in node.inputs))
    return ()


@operation("GatherElements")
def _gather_elements(node: Node) -> Value:
    """Entries by their place along one axis. (The reference wraps a wild place by adding up.)"""
    value, chosen = node.inputs[0], node.constant(1)
    if value is None or len(value.shape) != chosen.ndim or not chosen.ndim:
        raise InvalidNetworkError(f"indices of {chosen.ndim} axes do not fit its input")
    axis = int(node.attribute("axis", 0)) % chosen.ndim
    length = value.shape[axis]
    if ((chosen < -length) | (chosen >= length)).any():
        raise InvalidNetworkError(f"an index is outside of the {length} entries along axis {axis}")
    met = tuple(slice(None if a == axis else n) for a, n in enumerate(chosen.shape))

    def run(places: Array) -> Array:
        return np.take_along_axis(places[met], chosen.astype(np.intp), axis)

    if isinstance(value, Tensor):
        return meaning.moved(node.lowering, [value], run)
    return run(node.constant(0))


@operation("ArrayFeatureExtractor")
def _columns(node: Node) -> Value:
    """Some columns of the last axis."""
    x, chosen = node.tensor(), np.ravel(node.constant(1)).astype(np.intp)
    return node.lowering.rearrange(x, x.index[..., chosen])


@operation("Pad")
def _pad(node: Node) -> Value:
    """Zeros where nothing is, then what it is filled with."""
    pads = node.integers(1, "pads")
    if pads is None:
        raise InvalidNetworkError("pads are missing")
    x = node.tensor()
    rank = len(x.shape)
    axes = [a % rank for a in node.integers(3, "axes") or range(rank)]
    if len(pads) != 2 * len(axes):
        raise InvalidNetworkError(f"{len(pads)} pads for {len(axes)} axes")
    width = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    check_count([n + max(a, 0) + max(b, 0) for n, (a, b) in zip(x.shape, width, strict=True)])
    mode = node.attribute("mode", b"constant").decode()

    def run(places: Array) -> Array:
        cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in
                    zip(x.shape, width, strict=True))  # fmt: skip
        return np.pad(places[cut], [(max(a, 0), max(b, 0)) for a, b in width], mode)  # type: ignore[call-overload]

    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise InvalidNetworkError(f"the mode {mode!r} is not known")
    padded = meaning.moved(node.lowering, [x], run)
    fill = node.attribute("value", 0.0) if node.input(2) is None else node.constant(2).item()
    if mode != "constant" or fill == 0:
        return padded
    return node.lowering.shift(padded, np.where(run(np.ones(x.shape)) == 0, float(fill), 0.0))


@operation("Concat")
def _concat(node: Node) -> Value:
    axis = node.attribute("axis")
    if all(isinstance(value, np.ndarray) for value in node.inputs):
        return np.concatenate(node.inputs, axis=axis)
    tensors = [
        value if isinstance(value, Tensor) else meaning.constant_tensor(value)
        for value in node.inputs
    ]
    return node.lowering.concatenate(tensors, axis)


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

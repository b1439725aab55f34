"""What each ONNX operation means, on constants and on lowered tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relunorm.errors import InvalidNetworkError
from relunorm.io.lower import MAX_SIZE, CannotLower, Lowering, Tensor
from relunorm.io.onnx_file import tensor_array
from relunorm.io.windows import Windows, sliding_windows
from relunorm.network import RELU, Activation

Array = NDArray[Any]
Value = Tensor | Array


@dataclass(frozen=True)
class Node:
    """One node with its inputs already lowered: arrays are constants, None is left out."""

    proto: onnx.NodeProto
    label: str
    inputs: list[Any]
    lowering: Lowering
    opset: int
    used: set[str]
    origin: str
    folder: Path | None

    @property
    def kind(self) -> str:
        return self.proto.op_type

    @property
    def place(self) -> str:
        return f"{self.origin}: node {self.label!r} ({self.kind})"

    def attribute(self, name: str, default: Any = None) -> Any:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    return tensor_array(attribute.t, self.place, self.folder)
                return onnx.helper.get_attribute_value(attribute)
        return default

    def input(self, position: int) -> Any:
        return self.inputs[position] if position < len(self.inputs) else None

    def tensor(self, position: int = 0) -> Tensor:
        """An input that must depend on the network's input."""
        value = self.input(position)
        if not isinstance(value, Tensor):
            raise CannotLower(f"input {position} is a constant")
        return value

    def constant(self, position: int) -> Array:
        """An input that must be known in advance."""
        value = self.input(position)
        if not isinstance(value, np.ndarray):
            raise CannotLower(f"input {position} is not a constant")
        return value

    def integers(self, position: int, name: str) -> list[int] | None:
        """A list of ints: an attribute in old opsets, an input in new ones."""
        if self.input(position) is not None:
            return [int(n) for n in np.atleast_1d(self.constant(position))]
        values = self.attribute(name)
        return None if values is None else [int(n) for n in values]

    def extra_output_used(self) -> bool:
        return any(name in self.used for name in self.proto.output[1:] if name)


OPERATIONS: dict[str, Callable[[Node], Value | list[Value]]] = {}


def operation(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


# ---------------------------------------------------------------------- moving entries


def move(node: Node, function: Callable[[Array], Array]) -> Value:
    """Apply a movement of entries to a constant, or to a tensor through its index array."""
    value = node.input(0)
    if isinstance(value, Tensor):
        return node.lowering.rearrange(value, function(value.index))
    return function(node.constant(0))


@operation("Identity")
def _identity(node: Node) -> Value:
    return node.inputs[0]


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


@operation("Reshape")
def _reshape(node: Node) -> Value:
    shape = node.integers(1, "shape") or []
    old = np.shape(node.input(0)) if isinstance(node.input(0), np.ndarray) else node.tensor().shape
    if not node.attribute("allowzero", 0):
        shape = [old[i] if n == 0 else n for i, n in enumerate(shape)]
    return move(node, lambda a: a.reshape(shape))


@operation("Flatten")
def _flatten(node: Node) -> Value:
    axis = node.attribute("axis", 1)

    def flatten(a: Array) -> Array:
        split = axis + a.ndim if axis < 0 else axis
        return a.reshape(int(np.prod(a.shape[:split], dtype=np.int64)), -1)

    return move(node, flatten)


@operation("Transpose")
def _transpose(node: Node) -> Value:
    return move(node, lambda a: a.transpose(node.attribute("perm")))


@operation("Squeeze")
def _squeeze(node: Node) -> Value:
    axes = node.integers(1, "axes")
    return move(node, lambda a: a.squeeze(None if axes is None else tuple(axes)))


@operation("Unsqueeze")
def _unsqueeze(node: Node) -> Value:
    axes = node.integers(1, "axes") or []
    return move(node, lambda a: np.expand_dims(a, tuple(axes)))


@operation("Expand")
def _expand(node: Node) -> Value:
    shape = [int(n) for n in node.constant(1)]

    def expand(a: Array) -> Array:
        full = np.broadcast_shapes(a.shape, tuple(shape))
        _check_count(full)
        return np.broadcast_to(a, full)

    return move(node, expand)


@operation("Slice")
def _slice(node: Node) -> Value:
    starts, ends = node.integers(1, "starts"), node.integers(2, "ends")
    if starts is None or ends is None:
        raise InvalidNetworkError("starts and ends are missing")
    axes = node.integers(3, "axes") or list(range(len(starts)))
    steps = node.integers(4, "steps") or [1] * len(starts)

    def cut(a: Array) -> Array:
        slices = [slice(None)] * a.ndim
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            # "up to and including the first entry" with a negative step is spelled -huge in ONNX
            stop = None if step < 0 and end < -a.shape[axis] else end
            slices[axis] = slice(start, stop, step)
        return a[tuple(slices)]

    return move(node, cut)


@operation("Gather")
def _gather(node: Node) -> Value:
    index, axis = node.constant(1), node.attribute("axis", 0)

    def take(a: Array) -> Array:
        _check_count((a.size // max(a.shape[axis], 1), index.size))
        return np.take(a, index.astype(np.int64), axis=axis)

    return move(node, take)


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
    _check_count([n + before + after for n, (before, after) in zip(x.shape, width, strict=True)])
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


# ---------------------------------------------------------------------- constants


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
    _check_count(shape)
    fill = node.attribute("value", np.zeros(1, dtype=np.float32))
    return np.full(shape, fill.ravel()[0])


@operation("Shape")
def _shape(node: Node) -> Value:
    value = node.inputs[0]
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return np.array(value.shape, dtype=np.int64)[start:end]


# ---------------------------------------------------------------------- arithmetic


@operation("Add", "Sum")
def _add(node: Node) -> Value:
    total = node.inputs[0]
    for value in node.inputs[1:]:
        if isinstance(total, Tensor) and isinstance(value, Tensor):
            total = node.lowering.add(total, value)
        elif isinstance(total, Tensor):
            total = node.lowering.shift(total, value)
        elif isinstance(value, Tensor):
            total = node.lowering.shift(value, total)
        else:
            total = total + value
    return total


@operation("Sub")
def _sub(node: Node) -> Value:
    a, b = node.inputs
    if isinstance(a, Tensor):
        if isinstance(b, Tensor):
            return node.lowering.subtract(a, b)
        return node.lowering.shift(a, -np.asarray(b, dtype=np.float64))
    if isinstance(b, Tensor):
        return node.lowering.shift(_negative(node, b), a)
    return a - b


@operation("Mul")
def _mul(node: Node) -> Value:
    a, b = node.inputs
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        raise CannotLower("a product of two computed values is not piecewise affine")
    if isinstance(a, Tensor):
        return node.lowering.scale(a, b)
    return node.lowering.scale(b, a) if isinstance(b, Tensor) else a * b


@operation("Div")
def _div(node: Node) -> Value:
    a, b = node.inputs
    if isinstance(b, Tensor):
        raise CannotLower("division by a computed value is not piecewise affine")
    if isinstance(a, Tensor):
        return node.lowering.scale(a, 1.0 / np.asarray(b, dtype=np.float64))
    # ONNX divides integers towards zero.
    whole = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    return np.trunc(a / b).astype(a.dtype) if whole else a / b


@operation("Neg")
def _neg(node: Node) -> Value:
    x = node.inputs[0]
    return _negative(node, x) if isinstance(x, Tensor) else -x


def _negative(node: Node, x: Tensor) -> Tensor:
    return node.lowering.scale(x, np.array(-1.0))


@operation("ReduceSum", "ReduceMean")
def _reduce(node: Node) -> Value:
    x = node.tensor()
    axes = node.integers(1, "axes")
    if axes is None and node.attribute("noop_with_empty_axes", 0):
        return x
    axes = list(range(len(x.shape))) if axes is None else [a % len(x.shape) for a in axes]
    if 0 in axes and len(x.shape) > 1:
        raise CannotLower("reduces over the first axis, the batch")
    total = node.lowering.sum(x, axes, keep=bool(node.attribute("keepdims", 1)))
    if node.kind == "ReduceSum":
        return total
    return node.lowering.scale(total, np.array(total.size / x.size))


# ---------------------------------------------------------------------- affine layers


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
    if not len(scale) == len(shift) == len(mean) == len(variance) == x.shape[1]:
        raise InvalidNetworkError(f"statistics do not fit {x.shape[1]} channels")
    factor = scale / np.sqrt(variance + node.attribute("epsilon", 1e-5))
    channel = (1, -1, *(1,) * (len(x.shape) - 2))
    low = node.lowering
    scaled = low.scale(x, factor.reshape(channel))
    return low.shift(scaled, (shift - factor * mean).reshape(channel))


# ---------------------------------------------------------------------- pooling


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
        result = []
        for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            small, large = total // 2, total - total // 2
            result.append((small, large) if mode == "SAME_UPPER" else (large, small))
        return result
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


def _all_positions(x: Tensor) -> Windows:
    spatial = x.shape[2:]
    ones = [1] * len(spatial)
    return sliding_windows(spatial, spatial, ones, [(0, 0)] * len(spatial), ones)


@operation("AveragePool")
def _average_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.average(
        x, _windows(node, x), count_padding=bool(node.attribute("count_include_pad", 0))
    )


@operation("GlobalAveragePool")
def _global_average_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.average(x, _all_positions(x), count_padding=False)


@operation("MaxPool")
def _max_pool(node: Node) -> Value:
    x = node.tensor()
    if node.extra_output_used():
        raise CannotLower("its indices are used")
    return node.lowering.max_pool(x, _windows(node, x), node.label)


@operation("GlobalMaxPool")
def _global_max_pool(node: Node) -> Value:
    x = node.tensor()
    return node.lowering.max_pool(x, _all_positions(x), node.label)


# ---------------------------------------------------------------------- activations


@operation("Relu")
def _relu(node: Node) -> Value:
    return node.lowering.activate(node.tensor(), RELU, node.label)


@operation("LeakyRelu")
def _leaky_relu(node: Node) -> Value:
    slope = float(node.attribute("alpha", 0.01))
    return node.lowering.activate(node.tensor(), Activation("leaky", slope), node.label)


@operation("PRelu")
def _prelu(node: Node) -> Value:
    x, slope = node.tensor(), node.constant(1)
    low = node.lowering
    if np.size(slope) and np.all(slope == slope.flat[0]):
        return low.activate(x, Activation("leaky", float(slope.flat[0])), node.label)
    above = low.activate(x, RELU, node.label)
    below = low.activate(_negative(node, x), RELU, node.label)
    return low.subtract(above, low.scale(below, slope))


@operation("Clip")
def _clip(node: Node) -> Value:
    low, high = (
        node.attribute(name) if node.input(k) is None else float(node.constant(k).reshape(()))
        for k, name in ((1, "min"), (2, "max"))
    )
    return node.lowering.clip(node.tensor(), low, high, node.label)


@operation("Max", "Min")
def _extreme(node: Node) -> Value:
    """max(a, b) = a + relu(b - a), and min(a, b) = -max(-a, -b); also against constants."""
    sign = 1.0 if node.kind == "Max" else -1.0
    low = node.lowering

    def signed(value: Value) -> Value:
        return low.scale(value, np.array(sign)) if isinstance(value, Tensor) else sign * value

    best = signed(node.inputs[0])
    for value in map(signed, node.inputs[1:]):
        if isinstance(best, Tensor) and isinstance(value, Tensor):
            best = low.maximum(best, value, node.label)
        elif isinstance(best, Tensor) or isinstance(value, Tensor):
            x, c = (best, value) if isinstance(best, Tensor) else (value, best)
            c = np.asarray(c, dtype=np.float64)
            best = low.shift(low.activate(low.shift(x, -c), RELU, node.label), c)
        else:
            best = np.maximum(best, value)
    return signed(best)


@operation("Abs")
def _abs(node: Node) -> Value:
    x = node.tensor()
    low = node.lowering
    above = low.activate(x, RELU, node.label)
    return low.add(above, low.activate(_negative(node, x), RELU, node.label))


@operation("Sign")
def _sign(node: Node) -> Value:
    """sign(x) = 2 step(x) - 1, with the step 1/2 at 0."""
    low = node.lowering
    step = low.activate(node.tensor(), Activation("step"), node.label)
    return low.shift(low.scale(step, np.array(2.0)), np.array(-1.0))


def _check_count(shape: Sequence[int]) -> None:
    count = 1
    for n in shape:
        count *= int(n)
    if count > MAX_SIZE or any(n < 0 for n in shape):
        raise InvalidNetworkError(f"a value of shape {list(shape)}; the limit is {MAX_SIZE:,}")

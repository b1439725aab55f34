"""What Keras' own functions (keras.ops) mean in a functional model; axis 0 is the batch.

Unlike a layer a function is called with constants as well, so these get all their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relunorm.io.graph import heads, operations
from relunorm.io.graph.einsum import einsum, matmul
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.keras.layers import as_constant, computed
from relunorm.network import RELU, Activation

#: Class name -> function(lowering, function, its arguments) -> tensor, or a list of them.
FUNCTIONS: dict[str, Callable[..., Any]] = {}

#: What only moves, drops or repeats entries or puts zeros; Keras says where each comes from.
MOVES = (
    "Reshape", "Transpose", "Squeeze", "ExpandDims", "Moveaxis", "Swapaxes", "Flip", "Fliplr",
    "Flipud", "Roll", "Rot90", "Repeat", "Tile", "GetItem", "Slice", "Split", "ArraySplit",
    "Hsplit", "Unstack", "Stack", "Hstack", "Take", "TakeAlongAxis", "Tril", "Triu",
    "Diagonal", "BroadcastTo", "Copy", "DepthToSpace", "SpaceToDepth", "Unfold", "CropImages",
    "PadImages", "Pad",
)  # fmt: skip
#: Those that may follow a step of a head.
_AFTER = ("Reshape", "Squeeze", "ExpandDims", "GetItem", "Transpose", "Slice", "Take")
_ARITHMETIC = {"Add": "add", "Subtract": "sub", "Multiply": "mul", "TrueDivide": "div",
               "Divide": "div", "Negative": "neg"}  # fmt: skip


def function(*names: str) -> Callable[[Any], Any]:
    """Register the meaning of Keras' functions of these names."""

    def register(meaning: Any) -> Any:
        FUNCTIONS.update((name, meaning) for name in names)
        return meaning

    return register


@function(*MOVES)
def _move(low: Lowering, op: Any, *args: Any, **named: Any) -> Any:
    values = [value for value in leaves([*args, *named.values()]) if isinstance(value, Tensor)]

    def run(*places: Any) -> Any:
        given = iter(places)
        filled = [_with(arg, given) for arg in args]
        return computed(lambda *all_, **more: op.call(*all_, **more), *filled,
                        **{key: _with(arg, given) for key, arg in named.items()})  # fmt: skip

    if type(op).__name__ == "Pad" and [*args[1:], *named.values()] not in ([], [None]):
        raise CannotLower("with another constant than 0")
    return operations.moved(low, values, run)


def leaves(value: Any) -> list[Any]:
    """The values among nested arguments, None left out."""
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [value]


def _with(value: Any, places: Any) -> Any:
    """An argument with the next places in place of every tensor."""
    if isinstance(value, Tensor):
        from keras import ops  # pyright: ignore[reportMissingImports]

        return ops.convert_to_tensor(next(places))
    if isinstance(value, list | tuple):
        return type(value)(_with(each, places) for each in value)
    return value


@function("Concatenate")
def _concatenate(low: Lowering, op: Any, xs: Sequence[Any]) -> Tensor:
    if op.axis % len(xs[0].shape) == 0:
        raise CannotLower("along the batch axis")
    parts = [x if isinstance(x, Tensor) else operations.constant_tensor(as_constant(x)) for x in xs]
    return low.concatenate(parts, op.axis)


@function("Where")
def _where(low: Lowering, op: Any, condition: Any, x1: Any = None, x2: Any = None) -> Tensor:
    if isinstance(condition, Tensor) or x1 is None or x2 is None:
        raise CannotLower("the condition depends on the input")
    known = as_constant(condition) != 0
    return operations.moved(low, [_value(x1), _value(x2)], lambda a, b: np.where(known, a, b))


def _value(value: Any) -> Any:
    return value if isinstance(value, Tensor) else as_constant(value)


def _binary(meaning: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def apply(low: Lowering, op: Any, x1: Any, x2: Any) -> Tensor:
        return meaning(low, _value(x1), _value(x2))

    return apply


def _extreme(meaning: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def apply(low: Lowering, op: Any, x1: Any, x2: Any) -> Tensor:
        return meaning(low, _value(x1), _value(x2), op.name)

    return apply


function("Add")(_binary(operations.add))
function("Subtract")(_binary(operations.subtract))
function("Multiply")(_binary(operations.multiply))
function("TrueDivide", "Divide")(_binary(operations.divide))
function("Matmul")(_binary(matmul))
function("Maximum")(_extreme(operations.maximum))
function("Minimum")(_extreme(operations.minimum))


@function("Negative")
def _negative(low: Lowering, op: Any, x: Tensor) -> Tensor:
    return operations.negative(low, x)


@function("Abs", "Absolute")
def _absolute(low: Lowering, op: Any, x: Tensor) -> Tensor:
    return operations.absolute(low, x, op.name)


@function("Sign")
def _sign(low: Lowering, op: Any, x: Tensor) -> Tensor:
    return low.sign(x, op.name)


@function("Relu", "LeakyRelu", "Relu6", "HardSigmoid", "HardTanh", "SoftShrink", "HardShrink")
@function("Threshold")
def _activation(low: Lowering, op: Any, x: Tensor) -> Tensor:
    kind = type(op).__name__
    if kind == "Relu":
        return low.activate(x, RELU, op.name)
    if kind == "LeakyRelu":
        return low.activate(x, Activation("leaky", float(op.negative_slope)), op.name)
    if kind == "HardSigmoid":
        return operations.hard_sigmoid(low, x, op.name)
    if kind == "Threshold":
        level, value = float(op.threshold), float(op.default_value)
        return operations.threshold(low, x, level, value, op.name)
    if kind in ("SoftShrink", "HardShrink"):
        width = float(op.threshold)
        return operations.shrink(low, x, width, width if kind == "SoftShrink" else 0.0, op.name)
    return low.clip(x, *((0.0, 6.0) if kind == "Relu6" else (-1.0, 1.0)), op.name)


@function("Sum", "Mean", "Max", "Min", "Amax", "Amin")
def _reduce(low: Lowering, op: Any, x: Tensor) -> Tensor:
    rank, given = len(x.shape), op.axis
    listed: Sequence[int] = range(rank) if given is None else np.atleast_1d(given).tolist()
    axes = [a % rank for a in listed]
    if 0 in axes:
        raise CannotLower("runs over the batch axis")
    kind, keep = type(op).__name__, bool(op.keepdims)
    if kind == "Sum":
        return low.sum(x, axes, keep)
    if kind == "Mean":
        return operations.mean(low, x, axes, keep)
    extreme = operations.largest if kind in ("Max", "Amax") else operations.smallest
    return extreme(low, x, axes, keep, op.name)


@function("Cumsum")
def _cumsum(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if op.axis is None or op.axis % len(x.shape) == 0:
        raise CannotLower("runs over the batch axis")
    return operations.along(low, x, op.axis, lambda rows: rows.cumsum(axis=1))


@function("Einsum")
def _einsum(low: Lowering, op: Any, *values: Any) -> Tensor:
    return einsum(low, op.subscripts, [_value(value) for value in values])


@function("Cast", "StopGradient")
def _cast(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if not str(getattr(op, "dtype", "float32")).startswith(("float", "bfloat")):
        raise CannotLower(f"to {op.dtype}, which rounds")
    return x


@function("Expm1")
def _expm1(low: Lowering, op: Any, x: Tensor) -> Headed:
    return heads.scaled(low, heads.entry(x, "exp", op.name, "expm1"), 1.0, -1.0)


def after_head(low: Lowering, op: Any, args: Sequence[Any], named: Any) -> Headed:
    """A function on values after a step of a head."""
    name = type(op).__name__
    value = next(v for v in leaves([*args, *named.values()]) if isinstance(v, Headed))
    if name in _ARITHMETIC and not named:
        given = [v if isinstance(v, Tensor | Headed) else as_constant(v) for v in args]
        return heads.arithmetic(low, _ARITHMETIC[name], given)
    if name == "Concatenate":
        return heads.joined(low, args[0], op.axis)
    if name in _AFTER and args and args[0] is value:
        return heads.moved(value, lambda tensor: _move(low, op, tensor, *args[1:], **named))
    raise Stuck(value)

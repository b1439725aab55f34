"""What Keras' own functions (keras.ops) mean in a functional model; axis 0 is the batch.

Unlike a layer a function is called with constants as well, so these get all their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.products import einsum, matmul
from relunorm.io.keras.layers import as_constant, computed, unit

#: Units, as Keras spells them; their numbers are attributes of the function.
UNITS: dict[str, meaning.Spelling] = {
    "Relu": ("relu",),
    "LeakyRelu": ("leaky", ("negative_slope", None)),
    "Relu6": ("clip", 0.0, 6.0),
    "HardSigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "HardTanh": ("clip", -1.0, 1.0),
    "SoftShrink": ("shrink", ("threshold", None), ("threshold", None)),
    "HardShrink": ("shrink", ("threshold", None), 0.0),
    "Threshold": ("threshold", ("threshold", None), ("default_value", None)),
    "Abs": ("absolute",),
    "Absolute": ("absolute",),
    "Sign": ("sign",),
    "Expm1": ("expm1",),
}
_BINARY: dict[str, Callable[..., Any]] = {
    "Add": meaning.add,
    "Subtract": meaning.subtract,
    "Multiply": meaning.multiply,
    "TrueDivide": meaning.divide,
    "Divide": meaning.divide,
    "Matmul": matmul,
}
_REDUCTIONS = {
    "Sum": "sum",
    "Mean": "mean",
    "Average": "mean",
    "Max": "max",
    "Amax": "max",
    "Min": "min",
    "Amin": "min",
}
#: What only moves, drops or repeats entries or puts zeros; Keras says where each comes from.
MOVES = (
    "Reshape", "Transpose", "Squeeze", "ExpandDims", "Moveaxis", "Swapaxes", "Flip", "Fliplr",
    "Flipud", "Roll", "Rot90", "Repeat", "Tile", "GetItem", "Slice", "Split", "ArraySplit",
    "Hsplit", "Unstack", "Stack", "Hstack", "Take", "TakeAlongAxis", "Tril", "Triu",
    "Diagonal", "BroadcastTo", "Copy", "DepthToSpace", "SpaceToDepth", "Unfold", "CropImages",
    "PadImages", "Pad",
)  # fmt: skip


def _move(low: Lowering, op: Any, *args: Any, **named: Any) -> Any:
    values = [
        value for value in leaves([*args, *named.values()]) if isinstance(value, Tensor | Headed)
    ]

    def run(*places: Any) -> Any:
        given = iter(places)
        filled = [_with(arg, given) for arg in args]
        return computed(lambda *all_, **more: op.call(*all_, **more), *filled,
                        **{key: _with(arg, given) for key, arg in named.items()})  # fmt: skip

    if type(op).__name__ == "Pad" and [*args[1:], *named.values()] not in ([], [None]):
        raise CannotLower("with another constant than 0")
    _check_batch(values, run)
    return meaning.moved(low, values, run)


def _check_batch(values: Sequence[Any], run: Callable[..., Any]) -> None:
    try:
        kept = meaning.keeps_batch(values, run)
    except (ValueError, TypeError, RuntimeError, IndexError):  # works for a batch of one alone
        kept = False
    if not kept:
        raise CannotLower("runs over the batch axis")


def _einsum(low: Lowering, op: Any, *values: Any) -> Tensor:
    given = [_value(value) for value in values]
    result = einsum(low, op.subscripts, given)

    def run(x: Any) -> Any:
        return np.einsum(op.subscripts, *(x if isinstance(v, Tensor) else v for v in given))

    _check_batch([value for value in given if isinstance(value, Tensor)], run)
    return result


def leaves(value: Any) -> list[Any]:
    """The values among nested arguments, None left out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [value]


def _with(value: Any, places: Any) -> Any:
    """An argument with the next places in place of every tensor."""
    if isinstance(value, Tensor | Headed):
        from keras import ops

        return ops.convert_to_tensor(next(places))
    if isinstance(value, list | tuple):
        return type(value)(_with(each, places) for each in value)
    return value


def _value(value: Any) -> Any:
    return value if isinstance(value, Tensor | Headed) else as_constant(value)


def _concatenate(low: Lowering, op: Any, xs: Sequence[Any]) -> Any:
    if op.axis % len(xs[0].shape) == 0:
        raise CannotLower("along the batch axis")
    return meaning.concatenate(low, [_value(x) for x in xs], op.axis)


def _where(low: Lowering, op: Any, condition: Any, x1: Any = None, x2: Any = None) -> Tensor:
    if isinstance(condition, Tensor) or x1 is None or x2 is None:
        raise CannotLower("the condition depends on the input")
    known = as_constant(condition) != 0
    return meaning.moved(low, [_value(x1), _value(x2)], lambda a, b: np.where(known, a, b))


def _binary(combine: Callable[..., Any], low: Lowering, op: Any, x1: Any, x2: Any) -> Any:
    return combine(low, _value(x1), _value(x2))


def _extreme(extreme: Callable[..., Any], low: Lowering, op: Any, x1: Any, x2: Any) -> Tensor:
    return extreme(low, _value(x1), _value(x2), op.name)


def _reduce(low: Lowering, op: Any, x: Tensor, weights: Any = None) -> Tensor:
    if weights is not None:
        raise CannotLower("with weights")
    listed = range(len(x.shape)) if op.axis is None else np.atleast_1d(op.axis).tolist()
    axes = meaning.axes_over(x, listed, True)
    kind = _REDUCTIONS[type(op).__name__]
    keep, first = bool(getattr(op, "keepdims", False)), getattr(op, "initial", None)
    result = meaning.reduced(low, kind, x, axes, keep, op.name)
    if first is None:
        return result
    extreme = meaning.maximum if kind == "max" else meaning.minimum
    return extreme(low, result, as_constant(first), op.name)


def _cumsum(low: Lowering, op: Any, x: Tensor) -> Tensor:
    (axis,) = meaning.axes_over(x, [0 if op.axis is None else op.axis], True)
    return meaning.along(low, x, axis, lambda rows: rows.cumsum(axis=1))


def _cast(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if not str(getattr(op, "dtype", "float32")).startswith(("float", "bfloat")):
        raise CannotLower(f"to {op.dtype}, which rounds")
    return x


#: Class name -> function(lowering, function, its arguments) -> tensor, or a list of them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(unit, spelled) for name, spelled in UNITS.items()},
    **{name: partial(_binary, combine) for name, combine in _BINARY.items()},
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("Cast", "StopGradient"), _cast),
    "Maximum": partial(_extreme, meaning.maximum),
    "Minimum": partial(_extreme, meaning.minimum),
    "Negative": lambda low, op, x: meaning.negative(low, x),
    "Concatenate": _concatenate,
    "Where": _where,
    "Cumsum": _cumsum,
    "Einsum": _einsum,
}
#: Functions that can only be a step of a head, and those that may follow one.
OPENERS = meaning.curved(UNITS)
FOLLOWERS = frozenset(_BINARY) - {"Matmul"} | {
    "Negative", "Concatenate", "Reshape", "Squeeze", "ExpandDims", "GetItem", "Transpose", "Slice",
    "Take",
}  # fmt: skip

"""What operations mean that torch, ONNX and Keras share, said once.

A value is a constant array, a `Tensor`, or a `Headed`, to which a step of a head was applied. The
formats' own tables translate names and arguments; what is piecewise affine, with how few units it
can be written, and what may follow a head is said here. `UNITS` lists what works on each entry
alone; a format spells such an operation by its name there and where its numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import heads
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Lowering, Tensor
from relunorm.io.graph.windows import Windows, check_entries, sliding_windows
from relunorm.network import RELU, Activation, Affine
from relunorm.network.head import StepKind
from relunorm.network.structure import Geometry

Array = NDArray[Any]
Value = Tensor | Headed | Array


def add(low: Lowering, a: Value, b: Value) -> Any:
    """a + b."""
    if not isinstance(a, Tensor | Headed) or isinstance(b, Headed):
        a, b = b, a
    if isinstance(a, Headed):
        return heads.scaled(low, a, 1.0, b)
    if isinstance(a, Tensor):
        return low.add(a, b) if isinstance(b, Tensor) else low.shift(a, np.asarray(b))
    return a + b


def subtract(low: Lowering, a: Value, b: Value) -> Any:
    """a - b."""
    if isinstance(b, Headed):
        return heads.scaled(low, b, -1.0, a)
    return add(low, a, negative(low, b))


def multiply(low: Lowering, a: Value, b: Value) -> Any:
    """a * b, of which one must be a constant."""
    if not isinstance(a, Tensor | Headed) or isinstance(b, Headed):
        a, b = b, a
    if isinstance(a, Headed):
        return heads.scaled(low, a, b, 0.0)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        why = "a product of two computed values is not piecewise affine"
        raise CannotLower(f"both factors depend on the input, and {why}")
    return low.scale(a, np.asarray(b)) if isinstance(a, Tensor) else np.multiply(a, b)  # type: ignore[arg-type]


def divide(low: Lowering, a: Value, b: Value) -> Any:
    """a / b for a constant b."""
    if isinstance(b, Headed):
        raise Stuck(b)
    if isinstance(b, Tensor):
        raise CannotLower("the divisor depends on the input")
    return multiply(low, a, 1.0 / np.asarray(b, dtype=np.float64))


def negative(low: Lowering, a: Value) -> Any:
    """-a."""
    return multiply(low, a, np.array(-1.0))


def maximum(low: Lowering, a: Value, b: Value, name: str) -> Tensor:
    """max(a, b) = b + relu(a - b); a constant b only moves the bias."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        shape = np.broadcast_shapes(a.shape, b.shape)
        return low.maximum(low.broadcast(a, shape), low.broadcast(b, shape), name)
    tensor, level = (a, b) if isinstance(a, Tensor) else (b, a)
    if not isinstance(tensor, Tensor):
        raise CannotLower("nothing here depends on the input")
    level = np.asarray(level, dtype=np.float64)
    return low.shift(low.activate(low.shift(tensor, -level), RELU, name), level)


def minimum(low: Lowering, a: Value, b: Value, name: str) -> Tensor:
    """min(a, b) = -max(-a, -b)."""
    return negative(low, maximum(low, negative(low, a), negative(low, b), name))


def absolute(low: Lowering, x: Tensor, name: str) -> Tensor:
    """|x| = 2 relu(x) - x."""
    twice = low.scale(low.activate(x, RELU, name, piece=True), np.array(2.0))
    return low.subtract(twice, x)


def prelu(low: Lowering, x: Tensor, slopes: Array, name: str) -> Tensor:
    """s x + (1 - s) relu(x), with slopes that broadcast; leaky where all are the same."""
    if np.broadcast_shapes(x.shape, slopes.shape) != x.shape:
        raise InvalidNetworkError(f"slopes of shape {slopes.shape} do not fit {x.shape}")
    if slopes.size and (slopes == slopes.flat[0]).all():
        return low.activate(x, Activation("leaky", float(slopes.flat[0])), name)
    above = low.scale(low.activate(x, RELU, name, piece=True), 1.0 - slopes)
    return low.add(low.scale(x, slopes), above)


def hard_sigmoid(low: Lowering, x: Tensor, name: str, slope: float, middle: float) -> Tensor:
    """min(max(slope x + middle, 0), 1)."""
    line = low.shift(low.scale(x, np.array(slope)), np.array(middle))
    return low.clip(line, 0.0, 1.0, name)


def clip(low: Lowering, x: Tensor | Headed, name: str, lowest: Any, highest: Any) -> Any:
    """min(max(x, lowest), highest), with ends that may differ from entry to entry; None is open."""
    ends = [None if end is None else np.unique(np.asarray(end, np.float64)) for end in
            (lowest, highest)]  # fmt: skip
    if all(end is None or end.size == 1 for end in ends):
        bottom, top = (None if end is None else float(end[0]) for end in ends)
        if isinstance(x, Tensor):
            return low.clip(x, bottom, top, name)
        bounds = -np.inf if bottom is None else bottom, np.inf if top is None else top
        return heads.entry(x, "clip", bounds)
    if isinstance(x, Headed):
        raise Stuck(x)
    if lowest is not None:
        x = maximum(low, x, np.asarray(lowest), name)
    return x if highest is None else minimum(low, x, np.asarray(highest), name)


def threshold(low: Lowering, x: Tensor, name: str, level: float, value: float) -> Tensor:
    """x above a level, else a value: value + relu(x - level) + (level - value) step(x - level)."""
    if level == value:
        return low.clip(x, level, None, name)
    over = low.shift(x, np.array(-level))
    above = low.shift(low.activate(over, RELU, name), np.array(value))
    jump = low.activate(over, Activation("step", at_zero=0.0), name, piece=True)
    return low.add(above, low.scale(jump, np.array(level - value)))


def shrink(low: Lowering, x: Tensor, name: str, width: float, shift: float) -> Tensor:
    """x - shift above a width, x + shift below minus the width, else 0."""
    if width < 0:
        raise CannotLower("with a negative width")
    sides = [
        low.scale(_beyond(low, low.scale(x, np.array(sign)), width, shift, name), np.array(sign))
        for sign in (1.0, -1.0)
    ]
    return low.add(*sides)


def _beyond(low: Lowering, x: Tensor, width: float, shift: float, name: str) -> Tensor:
    """x - shift where x > width, else 0."""
    over = low.shift(x, np.array(-width))
    above = low.activate(over, RELU, name, piece=True)
    if width == shift:
        return above
    jump = low.activate(over, Activation("step", at_zero=0.0), name, piece=True)
    return low.add(above, low.scale(jump, np.array(width - shift)))


_CURVES: tuple[StepKind, ...] = ("sigmoid", "log_sigmoid", "tanh", "softplus", "exp", "round")


def _curve(kind: StepKind) -> Callable[..., Headed]:
    return lambda low, x, name: heads.entry(x, kind)


#: What works on each entry alone -> function(lowering, value, name, numbers).
UNITS: dict[str, Callable[..., Tensor | Headed]] = {
    "relu": lambda low, x, name: low.activate(x, RELU, name),
    "leaky": lambda low, x, name, slope: low.activate(x, Activation("leaky", slope), name),
    "step": lambda low, x, name, level: low.activate(x, Activation("step", at_zero=level), name),
    "sign": lambda low, x, name: low.sign(x, name),
    "absolute": absolute,
    "clip": clip,
    "hard_sigmoid": hard_sigmoid,
    "threshold": threshold,
    "shrink": shrink,
    **{kind: _curve(kind) for kind in _CURVES},
    "expm1": lambda low, x, name: heads.scaled(low, heads.entry(x, "exp"), 1.0, -1.0),
    "greater": lambda low, x, name, level: heads.entry(x, "greater", [level]),
}
#: Those that open a head, or are steps behind it.
CURVED = (*_CURVES, "expm1", "greater")
#: How a format writes a unit: its name in `UNITS`, then its numbers, each as it is or as the
#: format's own (argument, default).
Spelling = tuple[Any, ...]


def curved(units: Mapping[str, Spelling]) -> frozenset[str]:
    """Of a format's units those that open a head, or are steps behind it."""
    return frozenset(name for name, spelled in units.items() if spelled[0] in CURVED)


def unit(
    low: Lowering,
    x: Any,
    name: str,
    spelled: Spelling,
    argument: Callable[[str, Any], Any] = lambda _, default: default,
) -> Tensor | Headed:
    """A unit as a format spells it; ``argument`` gives the value of one of its arguments."""
    if not isinstance(x, Tensor | Headed):
        raise CannotLower("its first argument is a constant")
    kind, *numbers = spelled
    if isinstance(x, Headed) and kind not in (*CURVED, "clip"):
        raise Stuck(x)
    found = [argument(*n) if isinstance(n, tuple) else n for n in numbers]
    if any(np.broadcast_shapes(x.shape, np.shape(n)) != x.shape for n in found):
        raise CannotLower("with numbers of another shape")
    if kind != "clip":  # whose ends may be arrays, or open
        found = [_number(n) for n in found]
    return UNITS[kind](low, x, name, *found)


def _number(value: Any) -> float:
    found = np.unique(np.asarray(value, dtype=np.float64))
    if found.size != 1:
        raise CannotLower("with a number for each entry")
    return float(found[0])


def normalize(
    low: Lowering,
    x: Tensor,
    axis: int,
    statistics: tuple[Array, Array],
    epsilon: float,
    gain: Array | None,
    offset: Array | None,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gain + offset along an axis, by stored statistics."""
    mean, variance = statistics
    factor = 1.0 / np.sqrt(variance + epsilon)
    factor = factor if gain is None else factor * gain
    shift = -mean * factor if offset is None else offset - mean * factor
    shape = [1] * len(x.shape)
    shape[axis] = -1
    return low.shift(low.scale(x, factor.reshape(shape)), shift.reshape(shape))


def mean(low: Lowering, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The average over some axes, which is a pooling where the first axis is left alone."""
    rank, shape = len(x.shape), x.shape
    axes = sorted(a % rank for a in axes)
    rest = [a for a in range(rank) if a not in axes]
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    result = kept if keep else tuple(shape[a] for a in rest)
    if shape[0] != 1 or 0 in axes or not axes or len(rest) < 2:
        total = low.sum(x, axes, keep)
        return low.scale(total, np.array(1.0 / math.prod(shape[a] for a in axes)))
    x = low.rearrange(x, x.index.transpose(*rest, *axes))
    planes = (1, math.prod(shape[a] for a in rest), *(shape[a] for a in axes))
    x = low.rearrange(x, x.index.reshape(planes))
    pooled = low.average(x, one_window(x), False)
    return low.rearrange(pooled, pooled.index.reshape(result))


def constant_tensor(value: Any) -> Tensor:
    """A constant as a tensor that reads nothing."""
    array = np.asarray(value, dtype=np.float64)
    return Tensor(array.shape, Affine({}, array.ravel()))


def concatenate(low: Lowering, values: Sequence[Value], axis: int) -> Any:
    """Values side by side along an axis, constants among them."""
    if any(isinstance(v, Headed) for v in values):
        return heads.joined(low, values, axis)
    return low.concatenate(
        [v if isinstance(v, Tensor) else constant_tensor(v) for v in values], axis
    )


def turned(low: Lowering, x: Tensor | Headed, move: Callable[[Array], Array]) -> Any:
    """The value whose entries lie where ``move`` takes their places."""
    if isinstance(x, Headed):
        return heads.moved(x, lambda tensor: turned(low, tensor, move))
    return low.rearrange(x, move(x.index))


def reshaped(low: Lowering, x: Tensor | Headed, shape: Sequence[int]) -> Any:
    """The same entries read in another shape."""
    return turned(low, x, lambda index: index.reshape(tuple(shape)))


def moved(low: Lowering, values: Sequence[Value], run: Callable[..., Any]) -> Any:
    """What an operation gives that only moves, drops and repeats entries, or puts zeros.

    The framework itself says where each entry comes from: ``run`` is called on the places of the
    entries of all values, counted from 1. A list of results gives a list.
    """
    if isinstance(values[0], Headed):
        return heads.moved(values[0], lambda tensor: moved(low, [tensor, *values[1:]], run))
    tensors = [v if isinstance(v, Tensor) else constant_tensor(v) for v in values]
    starts = np.cumsum([1, *(t.size for t in tensors)])
    places = [
        np.asarray(t.index + start, dtype=np.float64)
        for t, start in zip(tensors, starts, strict=False)
    ]
    found = run(*places)
    whole = tensors[0]
    if len(tensors) > 1:
        flat = [replace(t, shape=(t.size,), step=None) for t in tensors]
        whole = low.concatenate(flat, 0)
    parts = [
        np.asarray(f).astype(np.intp) - 1 for f in (found if isinstance(found, list) else [found])
    ]
    results = [low.rearrange(whole, part) for part in parts]
    return results if isinstance(found, list) else results[0]


def keeps_batch(values: Sequence[Value], run: Callable[..., Any]) -> bool:
    """Whether ``run``, which is linear, makes a row of each of two rows, as it does of one."""
    live = [isinstance(value, Tensor | Headed) for value in values]
    alone = [
        np.arange(1.0, 1 + math.prod(v.shape)).reshape(v.shape) if varies else np.zeros(v.shape)
        for v, varies in zip(values, live, strict=True)
    ]
    pairs = zip(alone, live, strict=True)
    both = run(*(np.concatenate([x, -x]) if varies else x for x, varies in pairs))
    first = run(*alone)
    if not isinstance(first, list):
        first, both = [first], [both]
    return all(
        np.shape(a)[:1] == (1,) and np.array_equal(b, np.concatenate([a, -a]))
        for a, b in zip(first, both, strict=True)
    )


def along(low: Lowering, x: Tensor, axis: int, run: Callable[[Array], Array]) -> Tensor:
    """What an operation gives that is linear and works along one axis.

    The framework itself says with which numbers: ``run`` is called on the rows of an identity.
    """
    axis %= len(x.shape)
    if x.shape[axis] ** 2 > MAX_SIZE:
        raise InvalidNetworkError(f"works along {x.shape[axis]:,} entries, which is too many")
    table = np.asarray(run(np.eye(x.shape[axis])), dtype=np.float64).T
    if table.ndim != 2 or table.shape[1] != x.shape[axis]:
        raise InvalidNetworkError(f"does not work along axis {axis} of {x.shape} alone")
    shape = (*x.shape[:axis], len(table), *x.shape[axis + 1 :])
    if ((table == 0) | (table == 1)).all() and (table.sum(axis=1) == 1).all():
        chosen = table.argmax(axis=1)
        result = low.rearrange(x, np.take(x.index, chosen, axis=axis))
        times = len(chosen) // x.shape[axis]
        if axis > 1 and np.array_equal(chosen, np.repeat(np.arange(x.shape[axis]), times)):
            scales = tuple(times if a == axis else 1 for a in range(2, len(x.shape)))
            result.step = low.recorder.upsample(x.step, scales)
        return result
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    check_entries(outer * inner * int(np.count_nonzero(table)))
    matrix = sp.kron(sp.kron(sp.eye_array(outer), sp.csr_array(table)), sp.eye_array(inner), "csr")
    return low.map(x, mx.compact(mx.as_matrix(matrix)), None, shape)


def largest(low: Lowering, x: Tensor, axes: Sequence[int], keep: bool, name: str) -> Tensor:
    """The largest entry along some axes, as a knockout of pairs."""
    if _pools(x, axes):
        pooled = low.max_pool(x, one_window(x), name)
        return pooled if keep else low.rearrange(pooled, pooled.index.reshape(x.shape[:2]))
    rest = [a for a in range(len(x.shape)) if a not in axes]
    outer = math.prod(x.shape[a] for a in rest)
    index = x.index.transpose(*rest, *axes).reshape(1, outer, -1)
    taps = index.shape[2]
    whole = Windows((1,), np.arange(taps)[None], np.ones((1, taps), dtype=bool), np.array([taps]))
    best = low.max_pool(low.rearrange(x, index), whole, name)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return replace(best, shape=kept if keep else tuple(x.shape[a] for a in rest))


def axes_over(x: Tensor, axes: Sequence[int], batch: bool) -> list[int]:
    """The axes that an operation runs over, counted from the front; ``batch``: the first is it."""
    rank = len(x.shape)
    if any(not -rank <= a < rank for a in axes):
        raise InvalidNetworkError(f"axis {list(axes)} of a tensor of shape {x.shape}")
    found = [a % rank for a in axes]
    if batch and 0 in found:
        raise CannotLower("runs over the batch axis")
    return found


def reduced(
    low: Lowering, kind: str, x: Tensor, axes: Sequence[int], keep: bool, name: str
) -> Tensor:
    """sum, mean, max, min, or l1 (the sum of absolute values) over `axes_over`."""
    if kind == "l1":
        return low.sum(absolute(low, x, name), axes, keep)
    if kind in ("sum", "mean"):
        return low.sum(x, axes, keep) if kind == "sum" else mean(low, x, axes, keep)
    if kind == "max":
        return largest(low, x, axes, keep, name)
    return negative(low, largest(low, negative(low, x), axes, keep, name))


def _pools(x: Tensor, axes: Sequence[int]) -> bool:
    """Whether these are all axes of (1, channels, *spatial) but the first two."""
    return x.shape[0] == 1 and len(x.shape) > 2 and sorted(axes) == list(range(2, len(x.shape)))


def one_window(x: Tensor) -> Windows:
    """One window over all positions of (1, channels, *spatial)."""
    return sliding_windows(x.shape[2:], Geometry.plain(x.shape[2:]))


def same_padding(spatial: Sequence[int], geometry: Geometry) -> list[tuple[int, int]]:
    """Padding for ceil(n / stride) outputs along every axis, the odd cell at the end."""
    pads = []
    for n, (k, s, _, d) in zip(spatial, geometry.axes, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return pads


def woven(low: Lowering, y: Tensor, stride: Sequence[int]) -> Tensor:
    """Channels in the order (channel, phase of each axis) as positions of a finer grid."""
    axes = len(stride)
    if len(y.shape) != axes + 2 or y.shape[1] % math.prod(stride):
        raise InvalidNetworkError(f"{y.shape[1]} channels cannot be woven {list(stride)} times")
    grid = y.shape[2:]
    apart = low.rearrange(y, y.index.reshape(1, -1, *stride, *grid))
    order = [0, 1, *(a for k in range(axes) for a in (2 + axes + k, 2 + k))]
    turned = low.rearrange(apart, apart.index.transpose(order))
    finer = [n * s for n, s in zip(grid, stride, strict=True)]
    return low.rearrange(turned, turned.index.reshape(1, -1, *finer))

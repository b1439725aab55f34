"""What operations mean that torch, ONNX and Keras share, on tensors and on constants.

A value is a `Tensor` or a constant array. The formats' own tables translate names and arguments;
what is piecewise affine, and with how few units it can be written, is said here once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.windows import Windows, sliding_windows
from relunorm.network import RELU, Activation

Array = NDArray[Any]
Value = Tensor | Array


def add(low: Lowering, a: Value, b: Value) -> Tensor:
    """a + b, of which one may be a constant."""
    if isinstance(a, Tensor):
        return low.add(a, b) if isinstance(b, Tensor) else low.shift(a, b)
    return low.shift(_tensor(b), a)


def subtract(low: Lowering, a: Value, b: Value) -> Tensor:
    """a - b."""
    return add(low, a, negative(low, b))


def multiply(low: Lowering, a: Value, b: Value) -> Tensor:
    """a * b, of which one must be a constant."""
    if not isinstance(a, Tensor):
        return low.scale(_tensor(b), a)
    if isinstance(b, Tensor):
        why = "a product of two computed values is not piecewise affine"
        raise CannotLower(f"both factors depend on the input, and {why}")
    return low.scale(a, b)


def divide(low: Lowering, a: Value, b: Value) -> Tensor:
    """a / b for a constant b."""
    if isinstance(b, Tensor):
        raise CannotLower("the divisor depends on the input")
    return low.scale(_tensor(a), 1.0 / np.asarray(b, dtype=np.float64))


def negative(low: Lowering, a: Value) -> Any:
    """-a."""
    if isinstance(a, Tensor):
        return low.scale(a, np.array(-1.0))
    return -np.asarray(a, dtype=np.float64)


def maximum(low: Lowering, a: Value, b: Value, name: str) -> Tensor:
    """max(a, b) = b + relu(a - b); a constant b only moves the bias."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        shape = np.broadcast_shapes(a.shape, b.shape)
        return low.maximum(low.broadcast(a, shape), low.broadcast(b, shape), name)
    tensor, level = (a, b) if isinstance(a, Tensor) else (b, a)
    level = np.asarray(level, dtype=np.float64)
    return low.shift(low.activate(low.shift(_tensor(tensor), -level), RELU, name), level)


def minimum(low: Lowering, a: Value, b: Value, name: str) -> Tensor:
    """min(a, b) = -max(-a, -b)."""
    return negative(low, maximum(low, negative(low, a), negative(low, b), name))


def absolute(low: Lowering, x: Tensor, name: str) -> Tensor:
    """|x| = 2 relu(x) - x."""
    twice = low.scale(low.activate(x, RELU, name, piece=True), np.array(2.0))
    return low.subtract(twice, x)


def prelu(low: Lowering, x: Tensor, slopes: Array, name: str) -> Tensor:
    """s x + (1 - s) relu(x), with slopes that broadcast; leaky where all are the same."""
    if slopes.size and (slopes == slopes.flat[0]).all():
        return low.activate(x, Activation("leaky", float(slopes.flat[0])), name)
    above = low.scale(low.activate(x, RELU, name, piece=True), 1.0 - slopes)
    return low.add(low.scale(x, slopes), above)


def hard_sigmoid(low: Lowering, x: Tensor, name: str, slope: float = 1 / 6) -> Tensor:
    """min(max(slope x + 1/2, 0), 1)."""
    line = low.shift(low.scale(x, np.array(slope)), np.array(0.5))
    return low.clip(line, 0.0, 1.0, name)


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
    """The average over some axes."""
    if _pools(x, axes):
        pooled = low.average(x, one_window(x), count_padding=False)
        return pooled if keep else low.rearrange(pooled, pooled.index.reshape(x.shape[:2]))
    total = low.sum(x, axes, keep)
    return low.scale(total, np.array(1.0 / math.prod(x.shape[a] for a in axes)))


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


def smallest(low: Lowering, x: Tensor, axes: Sequence[int], keep: bool, name: str) -> Tensor:
    """The smallest entry along some axes."""
    return negative(low, largest(low, negative(low, x), axes, keep, name))


def _pools(x: Tensor, axes: Sequence[int]) -> bool:
    """Whether these are all axes of (1, channels, *spatial) but the first two."""
    return x.shape[0] == 1 and len(x.shape) > 2 and sorted(axes) == list(range(2, len(x.shape)))


def one_window(x: Tensor) -> Windows:
    """One window over all positions of (1, channels, *spatial)."""
    spatial = x.shape[2:]
    ones = [1] * len(spatial)
    return sliding_windows(spatial, spatial, ones, [(0, 0)] * len(spatial), ones)


def same_padding(
    spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding for ceil(n / stride) outputs along every axis, the odd cell at the end."""
    pads = []
    for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return pads


def _tensor(value: Value) -> Tensor:
    if not isinstance(value, Tensor):
        raise CannotLower("nothing here depends on the input")
    return value

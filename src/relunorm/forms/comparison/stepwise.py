"""Two networks read as the same steps with slightly different numbers, such as two exports.

Exporters write one model as the same convolutions and poolings, and fold batch norm in different
arithmetic. Then nothing has to be matched: the difference is followed from step to step, with
convolutions and poolings as what they are. For values x of the first network in an interval, and
x + d of the second with |d| <= e,

    |W' (x + d) + b' - W x - b|  <=  |W'| e + |(W' - W) x + b' - b|,

an activation enlarges e by its steepest slope at most, and a maximum passes the largest e on. One
pass over the numbers; sound, with room for rounding: what float64 loses here, and what it lost when
the networks were read, where products of consecutive steps were multiplied out. Both are bounded by
the number of roundings times the size that a sum has if nothing in it cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from relunorm.clock import Clock
from relunorm.domain import Box
from relunorm.io.graph.structured import compute, faithful, multiplied_out
from relunorm.io.graph.windows import sliding_windows
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.network.layer import RELU
from relunorm.network.structure import Step, Structure

#: Rounding of one operation in float64.
UNIT = 2.0**-53
#: How many roundings of the sum it is a weighted sum may differ by and still count as the same.
ROUNDINGS = 8.0
_AFFINE = ("conv", "conv_transpose", "upsample", "linear", "average_pool", "reshape", "permute")


@dataclass(frozen=True)
class _Value:
    """What is known of one step's result.

    Attributes:
        low, high: an interval for the first network.
        size: what the absolute value is at most in both, also if sums since the last activation
            were taken without cancelling.
        apart: how far the second network can be from the first.
        rounded: how far rounding in single precision could move it.
    """

    low: Array
    high: Array
    size: Array
    apart: Array
    rounded: Array


def same_steps(first: Network, second: Network) -> bool:
    """Whether both were read as the same operations with convolutions, but for their numbers."""
    pair = (first.structure, second.structure)
    if pair[0] is None or pair[1] is None or not pair[0].convolves:
        return False
    return len(pair[0].steps) == len(pair[1].steps) and all(
        _shape(a) == _shape(b) for a, b in zip(pair[0].steps, pair[1].steps, strict=True)
    )


def _shape(step: Step) -> tuple[object, ...]:
    """A step without its numbers."""
    weight, geometry = None if step.weight is None else step.weight.shape, step.geometry
    counted = step.count_padding and geometry is not None and any(map(any, geometry.pads))
    if geometry is not None:  # where there is one window, it makes no steps
        strides = zip(step.shape[1:], geometry.stride, strict=True)
        geometry = replace(geometry, stride=tuple(1 if n == 1 else s for n, s in strides))
    bend = step.activation.kind if step.activation is not None else None
    bounded = [end is None for end in step.ends]
    return (
        step.kind, step.inputs, step.shape, weight, geometry, step.groups, counted,
        bend, bounded, step.axes,
    )  # fmt: skip


def stepwise_difference(
    first: Network, second: Network, box: Box, unit: float, clock: Clock
) -> tuple[float, float]:
    """How far the outputs of two networks with `same_steps` can be apart on a box.

    Args:
        unit: rounding of the precision in which the networks are meant to compute.

    Returns:
        the bound, and how far the outputs would move if every weighted sum were rounded
        `ROUNDINGS` times in that precision.
    """
    assert first.structure is not None
    assert second.structure is not None
    nothing = np.zeros(box.dimension)
    size = np.maximum(np.abs(box.lo), np.abs(box.hi))
    values = [_Value(box.lo, box.hi, size, nothing, nothing)]
    pairs = zip(first.structure.steps[1:], second.structure.steps[1:], strict=True)
    shapes = [step.shape for step in first.structure.steps]
    for one, two in pairs:
        clock.check()
        inputs = [values[i] for i in one.inputs]
        if one.kind == "add":
            values.append(_sum(inputs))
        elif one.kind in _AFFINE:
            values.append(_affine(inputs[0], one, two, shapes[one.inputs[0]], unit))
        elif one.kind == "max_pool":
            values.append(_maximum(inputs[0], one, shapes[one.inputs[0]]))
        else:
            values.append(_activation(inputs[0], one, two))
    read = sum(_off(network, size) for network in (first, second))
    return float((values[-1].apart + read).max()) * (1 + 4 * UNIT), float(values[-1].rounded.max())


def _off(network: Network, size: Array) -> Array:
    """How far a network can be from its own steps, where a scaling was rounded into other weights.

    Args:
        size: of the inputs.
    """
    structure = network.structure
    if structure is None or faithful(network):
        return np.zeros(network.output_size)
    made, values = multiplied_out(structure, network), [(size, np.zeros(len(size)))]
    if [x.activation for x in made.layers] != [x.activation for x in network.layers]:
        return np.full(network.output_size, np.inf)
    slopes = [max(map(abs, layer.activation.slopes)) for layer in network.layers]
    for ours, theirs, slope in zip(network.maps, made.maps, [*slopes, 1.0], strict=True):
        if {s: m.shape for s, m in ours.terms.items()} != {
            s: m.shape for s, m in theirs.terms.items()
        }:
            return np.full(network.output_size, np.inf)
        total, apart = np.abs(ours.bias), np.abs(theirs.bias - ours.bias)
        for source, matrix in ours.terms.items():
            other, (most, before) = theirs.terms[source], values[source]
            total = total + abs(matrix) @ most
            apart = apart + abs(other - matrix) @ most + abs(other) @ before
        few = 1 + 2 * UNIT * (sum(m.shape[1] for m in ours.terms.values()) + 16)
        values.append((total * (slope * few), apart * (slope * few)))
    return values[-1][1]


def _affine(x: _Value, one: Step, two: Step, shape: Sequence[int], unit: float) -> _Value:
    (w, b), (v, c) = (_matrix(step, shape) for step in (one, two))
    middle, radius = (x.low + x.high) / 2, (x.high - x.low) / 2
    absolute, other, change = abs(w), abs(v), v - w
    few = (int(np.diff(w.indptr).max(initial=0)) + 16) * 2 * UNIT  # relative rounding of a sum
    size = np.maximum(absolute @ x.size + np.abs(b), other @ x.size + np.abs(c)) * (1 + few)
    noise = 4 * few * size
    center, spread = w @ middle + b, absolute @ radius
    moved = np.abs(change @ middle + (c - b)) + abs(change) @ radius
    if one.kind in ("conv", "conv_transpose", "linear"):
        rounded = absolute @ x.rounded + ROUNDINGS * unit * (
            absolute @ np.maximum(np.abs(x.low), np.abs(x.high)) + np.abs(b)
        )
    else:
        rounded = absolute @ x.rounded
    apart = (other @ x.apart + moved) * (1 + few) + noise
    return _Value(center - spread - noise, center + spread + noise, size, apart, rounded)


def _matrix(step: Step, shape: Sequence[int]) -> tuple[sp.csr_array, Array]:
    """A step as a matrix and a bias."""
    alone = Structure((Step("input", (), tuple(shape)), replace(step, inputs=(0,))))
    output = compute(alone, shape, step.name).output
    return sp.csr_array(output.terms[0]), output.bias


def _sum(parts: Sequence[_Value]) -> _Value:
    low, high, size, apart, rounded = (
        np.sum([getattr(p, name) for p in parts], axis=0)
        for name in ("low", "high", "size", "apart", "rounded")
    )
    noise = 4 * len(parts) * UNIT * size
    return _Value(low - noise, high + noise, size, apart * (1 + 8 * UNIT) + noise, rounded)


def _maximum(x: _Value, step: Step, shape: Sequence[int]) -> _Value:
    geometry = step.geometry
    assert geometry is not None
    windows = sliding_windows(shape[1:], geometry)

    def largest(values: Array, empty: float) -> Array:
        planes = values.reshape(shape[0], -1)[:, windows.position]
        return np.where(windows.valid, planes, empty).max(axis=-1).ravel()

    low, high = largest(x.low, -np.inf), largest(x.high, -np.inf)
    # in the networks it is a knockout: each round adds relu(b - a) to a, once a - b is rounded
    rounds = int(windows.valid.shape[1] - 1).bit_length()
    size = (1 + 2 * rounds) * largest(x.size, 0.0)
    apart = largest(x.apart, 0.0) + 16 * rounds * UNIT * size
    return _Value(low, high, size, apart, largest(x.rounded, 0.0))


def _activation(x: _Value, one: Step, two: Step) -> _Value:
    """A clip or an activation; its ends or slopes may be rounded in one of the networks."""
    if one.kind == "clip":
        return _clip(x, one, two)
    slopes, others = ((step.activation or RELU).slopes for step in (one, two))
    ends = [np.where(end > 0, slopes[1], slopes[0]) * end for end in (x.low, x.high)]
    ends.append(np.where((x.low < 0) & (x.high > 0), 0.0, ends[0]))  # the kink
    low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    steepest = max(map(abs, (*slopes, *others)))
    turned = max(abs(a - b) for a, b in zip(slopes, others, strict=True))
    far = np.maximum(np.abs(x.low), np.abs(x.high)) + x.apart
    off = (x.high + x.apart <= 0) & (slopes[0] == 0 == others[0])  # both are flat there
    apart = np.where(off, 0.0, (steepest * x.apart + turned * far) * (1 + 8 * UNIT))
    size = np.maximum(np.abs(low), np.abs(high)) + apart
    return _Value(low, high, size, apart, np.where(off, 0.0, steepest * x.rounded))


def _clip(x: _Value, one: Step, two: Step) -> _Value:
    bottom, top = one.ends
    low, high = (np.clip(end, bottom, top) for end in (x.low, x.high))
    pairs = zip(one.ends, two.ends, strict=True)
    given = [(a, b) for a, b in pairs if a is not None and b is not None]
    moved = max((abs(a - b) for a, b in given), default=0.0)
    # in the networks: low + relu(x - low) - relu(x - high), with rounded differences
    size = 4 * (x.size + sum(max(abs(a), abs(b)) for a, b in given))
    apart = (x.apart + moved) * (1 + 4 * UNIT) + 16 * UNIT * size
    return _Value(low, high, size, apart, x.rounded)

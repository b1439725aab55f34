"""Tensor algebra to Network: what the torch and ONNX readers share.

A `Tensor` is a shape and an affine function of the network's values, flattened in C order. Affine
operations rewrite that function; an activation closes it into a layer. Graphs are lowered for
batch size one, literally, so no operation needs to know which axis is the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.tensor import (
    NOBODY,
    Owners,
    Tensor,
    carried,
    joined,
    moved,
    numbered,
    steps_of,
)
from relunorm.io.graph.windows import Windows, averaging, check_entries, convolution
from relunorm.matrix import Matrix
from relunorm.network import IDENTITY, RELU, Activation, Affine, Layer, Network, substitute
from relunorm.network.structure import Geometry, Recorder, axes_of

#: A product of two affine maps is multiplied out when it has at most this many entries, ...
FILL_FREE = 1 << 16
#: ... or at most this many times the entries of its factors. Otherwise a linear stage is kept.
FILL_FACTOR = 2
#: No value may have more entries than this (128 MB each); refused before allocating.
MAX_SIZE = 1 << 24
#: All operations together may build this many matrix entries (about 3 GB).
MAX_TOTAL = 1 << 28


class CannotLower(Exception):
    """An operation that is not piecewise affine, or not known; the reader names the place."""


class Lowering:
    """Builds a Network from tensor operations on one input.

    >>> low = Lowering((1, 2))
    >>> hidden = low.activate(low.linear(low.input, np.array([[1.0, 1.0]]), None), RELU, "fc")
    >>> low.finish(hidden, input_shape=(2,), origin="example")
    Network(2 -> 1 relu -> 1, 5 parameters)
    """

    def __init__(self, shape: Sequence[int]):
        self.layers: list[Layer] = []
        self._spent = 0
        self._owners = 0
        self.recorder = Recorder(_without_batch(shape))
        self.input = replace(self._value(0, tuple(shape)), step=self.recorder.input)

    def finish(self, output: Tensor, *, input_shape: Sequence[int], origin: str) -> Network:
        """The network that computes ``output``; axes of size one in front are dropped."""
        shape = _without_batch(output.shape)
        if output.signs is not None:
            self._settle(output)
        return Network(
            self.layers,
            output.affine,
            input_shape=input_shape,
            output_shape=shape,
            origin=origin,
            structure=self.recorder.finish(output.step),
        )

    def rearrange(self, x: Tensor, index: NDArray[np.intp]) -> Tensor:
        """The tensor whose entry at i is entry ``index[i]`` of x; a negative index gives 0."""
        _check_size(index.size)
        self._settle(x)
        flat = index.ravel()
        if flat.size == x.size and np.array_equal(flat, np.arange(x.size)):
            step = self.recorder.reshape(x.step, _without_batch(index.shape))
            return Tensor(index.shape, x.affine, x.owners, step, x.weighed, joined=x.joined)
        keep = flat >= 0
        pick = sp.csr_array(
            (np.ones(int(keep.sum())), flat[keep], np.concatenate([[0], np.cumsum(keep)])),
            shape=(flat.size, x.size),
        )
        owners, step = moved(x.owners, flat), None
        if x.step is not None and index.ndim > 2 and x.shape[0] == index.shape[0] == 1:
            axes = axes_of(index[0], x.shape[1:])
            step = None if axes is None else self.recorder.permute(x.step, axes)
        return Tensor(index.shape, self._compose(pick, x, None), owners, step, x.weighed)

    def broadcast(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """x repeated to a larger shape, by numpy's rules."""
        if tuple(shape) == x.shape:
            return x
        _check_size(math.prod(shape))
        return self.rearrange(x, np.broadcast_to(x.index, tuple(shape)))

    def concatenate(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Join along an axis."""
        for tensor in tensors:
            self._settle(tensor)
        offsets = np.cumsum([0, *(t.size for t in tensors)])
        index = np.concatenate(
            [t.index + start for t, start in zip(tensors, offsets[:-1], strict=True)], axis=axis
        )
        sources = sorted({s for t in tensors for s in t.affine.terms})
        terms = {}
        for source in sources:
            size = self._size(source)
            blocks = [
                sp.csr_array(t.affine.terms.get(source, sp.csr_array((t.size, size))))
                for t in tensors
            ]
            terms[source] = mx.compact(sp.csr_array(sp.vstack(blocks, format="csr")))
        bias = np.concatenate([t.affine.bias for t in tensors])
        whole = Tensor((bias.size,), Affine(terms, bias), self._side_by_side(tensors))
        whole.weighed = any(t.weighed for t in tensors)
        whole.joined = all(t.size == 1 for t in tensors)
        return self.rearrange(whole, index)

    def _side_by_side(self, tensors: Sequence[Tensor]) -> Owners | None:
        """The owners of several tensors; constants have none, which loses nothing."""
        if any(t.owners is None and t.affine.terms for t in tensors):
            return None
        return np.concatenate(
            [np.full(t.size, NOBODY) if t.owners is None else t.owners for t in tensors]
        )

    def map(
        self,
        x: Tensor,
        matrix: Matrix,
        bias: NDArray[Any] | None,
        shape: Sequence[int],
        owners: Owners | None = None,
    ) -> Tensor:
        """``matrix @ x + bias`` on the flattened entries; ``owners`` where it makes new units."""
        self._settle(x)
        weights = owners is not None
        if weights and x.weighed:
            self._stage(x)
        if owners is None:
            owners = carried(x.owners, matrix)
        affine = self._compose(matrix, x, bias)
        return Tensor(tuple(shape), affine, owners, weighed=weights or x.weighed)

    def new_units(self, count: int) -> Owners:
        """Numbers of units that nothing has yet."""
        self._owners += count
        return np.arange(self._owners - count, self._owners)

    def linear(self, x: Tensor, weight: NDArray[Any], bias: NDArray[Any] | None) -> Tensor:
        """``weight @ x + bias`` along the last axis."""
        *prefix, last = x.shape or (1,)
        if weight.ndim != 2 or weight.shape[1] != last:
            raise InvalidNetworkError(f"a weight of shape {weight.shape} cannot act on {x.shape}")
        repeats, matrix = math.prod(prefix), _float64(weight)
        if repeats > 1:
            check_entries(repeats * weight.size)
            matrix = mx.as_matrix(sp.kron(sp.eye_array(repeats), matrix, format="csr"))
        if bias is not None:
            bias = np.tile(np.broadcast_to(_float64(bias), len(weight)), repeats)
        owners = np.tile(self.new_units(len(weight)), repeats)
        result = self.map(x, matrix, bias, (*prefix, len(weight)), owners)
        if repeats == 1 and len(x.shape) <= 2:
            result.step = self.recorder.affine(
                x.step, "linear", (len(weight),), weight=matrix, bias=bias
            )
        return result

    def left_multiply(self, weight: NDArray[Any], x: Tensor) -> Tensor:
        """``weight @ x`` over the last two axes (the last one when x is a vector)."""
        if len(x.shape) == 1:
            return self.linear(x, weight, None)
        order = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
        turned = self.linear(self.rearrange(x, x.index.transpose(order)), weight, None)
        return self.rearrange(turned, turned.index.transpose(order))

    def convolve(
        self,
        x: Tensor,
        weight: NDArray[Any],
        bias: NDArray[Any] | None,
        geometry: Geometry,
        groups: int,
    ) -> Tensor:
        """A convolution on (1, channels, *spatial)."""
        shape = _planes_of(x)
        kernel, offset = _float64(weight), None if bias is None else _float64(bias)
        matrix, out = convolution(kernel, shape, geometry, groups)
        if offset is not None:
            bias = np.repeat(offset, math.prod(out[1:]))
        owners = np.repeat(self.new_units(out[0]), math.prod(out[1:]))
        result = self.map(x, mx.compact(matrix), bias, (1, *out), owners)
        result.step = self.recorder.affine(
            x.step, "conv", out, weight=kernel, bias=offset, geometry=geometry, groups=groups
        )
        return result

    def average(self, x: Tensor, windows: Windows, count_padding: bool) -> Tensor:
        """Average pooling of (1, channels, *spatial)."""
        channels, *spatial = _planes_of(x)
        matrix = averaging(channels, spatial, windows, count_padding)
        result = self.map(x, mx.compact(matrix), None, (1, channels, *windows.shape))
        result.step = self.recorder.pool(
            x.step,
            "average_pool",
            result.shape[1:],
            windows.geometry,
            count_padding=count_padding,
        )
        return result

    def sum(self, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
        """Sum over some axes."""
        axes = tuple(a % len(x.shape) for a in axes)
        kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        shape = kept if keep else tuple(n for a, n in enumerate(x.shape) if a not in axes)
        rows = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), x.shape).ravel()
        matrix = sp.csr_array(
            (np.ones(x.size), (rows, np.arange(x.size))), shape=(math.prod(kept), x.size)
        )
        return self.map(x, mx.compact(matrix), None, shape)

    def scale(self, x: Tensor, factors: NDArray[Any]) -> Tensor:
        """Entrywise product with a constant, broadcast by numpy's rules."""
        factors = _float64(factors)
        if x.signs is not None and factors.size == 1 and factors.ndim <= len(x.shape):
            return replace(x, signs=x.signs * factors.item())
        self._settle(x)
        x = self.broadcast(x, np.broadcast_shapes(x.shape, factors.shape))
        flat = np.broadcast_to(factors, x.shape).ravel()
        terms = {s: mx.scale_rows(m, flat) for s, m in x.affine.terms.items()}
        step = x.step if (flat == 1).all() else self.recorder.scale(x.step, flat)
        affine = Affine(_frozen(terms), x.affine.bias * flat)
        return Tensor(x.shape, affine, x.owners, step, x.weighed)

    def shift(self, x: Tensor, constant: NDArray[Any]) -> Tensor:
        """Entrywise sum with a constant, broadcast by numpy's rules."""
        constant = _float64(constant)
        if x.signs is not None and constant.size == 1 and constant.ndim <= len(x.shape):
            return replace(x, signs=x.signs + constant.item())
        self._settle(x)
        x = self.broadcast(x, np.broadcast_shapes(x.shape, constant.shape))
        flat = np.broadcast_to(constant, x.shape).ravel()
        step = x.step if not flat.any() else self.recorder.shift(x.step, flat)
        affine = Affine(x.affine.terms, x.affine.bias + flat)
        return Tensor(x.shape, affine, x.owners, step, x.weighed)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Entrywise sum of two tensors, broadcast by numpy's rules."""
        same = x.affine is y.affine and x.shape == y.shape
        if same and x.signs is not None and y.signs is not None:
            return replace(x, signs=x.signs + y.signs)
        self._settle(x)
        self._settle(y)
        shape = np.broadcast_shapes(x.shape, y.shape)
        x, y = self.broadcast(x, shape), self.broadcast(y, shape)
        terms = dict(x.affine.terms)
        for source, matrix in y.affine.terms.items():
            terms[source] = mx.add(terms[source], matrix) if source in terms else matrix
        bias, owners = x.affine.bias + y.affine.bias, joined(x.owners, y.owners)
        step = self.recorder.add(x.step, y.step)
        weighed = x.weighed or y.weighed
        # A residual stream is read by every later block: without a stage its terms pile up.
        large = len(terms) > 2 and sum(map(mx.nnz, terms.values())) > FILL_FREE
        return Tensor(shape, Affine(_frozen(terms), bias), owners, step, weighed, large)

    def subtract(self, x: Tensor, y: Tensor) -> Tensor:
        """Entrywise difference of two tensors."""
        return self.add(x, self.scale(y, np.array(-1.0)))

    def activate(
        self, x: Tensor, activation: Activation, name: str, *, piece: bool = False
    ) -> Tensor:
        """Close x into a layer; a ``piece`` only helps to write another operation."""
        if x.signs is not None:
            return replace(x, signs=activation.apply_(x.signs.copy()))
        shape = _without_batch(x.shape)
        layer = Layer(x.affine, activation, name, shape, piece, numbered(x.owners))
        self.layers.append(layer)
        step = None if piece else self.recorder.act(x.step, activation, name, len(self.layers) - 1)
        return replace(self._value(len(self.layers), x.shape), owners=x.owners, step=step)

    def sign(self, x: Tensor, name: str) -> Tensor:
        """-1, 0 or 1: step units once something reads it that mixes it with other values."""
        if x.signs is not None:
            return replace(x, signs=np.sign(x.signs))
        return replace(x, step=None, large=False, signs=np.array([-1.0, 0.0, 1.0]), name=name)

    def clip(self, x: Tensor, low: float | None, high: float | None, name: str) -> Tensor:
        """min(max(x, low), high), exactly: low + relu(x - low) - relu(x - high), where low < high.

        An end that is None or infinite is open. With two ends the lower one is the unit, and the
        upper one a piece of it.
        """
        low = None if low is None or low == -math.inf else low
        high = None if high is None or high == math.inf else high
        if low is not None and high is not None and low >= high:
            constant = self.scale(x, np.array(0.0))
            return self.shift(constant, np.array(high))
        step = x.step if low is None and high is None else None
        if low != 0 or high is not None:
            step = self.recorder.clip(x.step, low, high, name)
        if low is not None:
            above = self.activate(self.shift(x, np.array(-low)), RELU, name)
            if high is not None:
                excess = self.shift(x, np.array(-high))
                excess = self.activate(excess, RELU, name, piece=True)
                above = self.subtract(above, excess)
            result = self.shift(above, np.array(low))
            return replace(result, step=result.step if step is None else step)
        if high is not None:
            room = self.scale(self.shift(x, np.array(-high)), np.array(-1.0))
            room = self.activate(room, RELU, name)
            result = self.shift(self.scale(room, np.array(-1.0)), np.array(high))
            return replace(result, step=step)
        return x

    def maximum(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        """max(x, y) = x + relu(y - x)."""
        return self.add(x, self.activate(self.subtract(y, x), RELU, name, piece=True))

    def max_pool(self, x: Tensor, windows: Windows, name: str) -> Tensor:
        """Max pooling of (1, channels, *spatial), exactly, as a knockout of pairs.

        Each round replaces a, b by a + relu(b - a): one unit a pair, log2(taps) layers in all.
        """
        channels, *spatial = _planes_of(x)
        plane = math.prod(spatial)
        outputs = len(windows.valid)
        per_window = windows.valid.sum(axis=1)
        if not per_window.all():
            raise InvalidNetworkError("max pooling: a window lies entirely in the padding")
        start = (np.arange(channels) * plane)[:, None]
        reads = windows.position[windows.valid]
        _check_size(channels * reads.size)
        if (per_window == per_window[0]).all() and outputs > 1:
            taps = reads.reshape(outputs, -1).T
            items = self.rearrange(x, (start[:, :, None] + taps).ravel())
            items = self._planes(items, (channels, *taps.shape), windows.shape, name)
        else:
            items = self.rearrange(x, (start + reads[None, :]).ravel())
            remaining = np.tile(per_window, channels)
            while (remaining > 1).any():
                items, remaining = self._knockout(items, remaining, name)
        if items.size != channels * outputs:
            raise InvalidNetworkError("max pooling: windows and outputs do not match")
        shape = (channels, *windows.shape)
        step = self.recorder.pool(x.step, "max_pool", shape, windows.geometry, name)
        return replace(items, shape=(1, *shape), step=step)

    def _planes(
        self, items: Tensor, shape: tuple[int, int, int], window: tuple[int, ...], name: str
    ) -> Tensor:
        """The largest of (channels, taps, positions) over the taps.

        Every pair of taps is a plane of units, so that each round is a convolution.
        """
        channels, count, outputs = shape
        while count > 1:
            place = np.arange(items.size).reshape(channels, count, outputs)
            pairs, kept = count // 2, place[:, ::2]
            first, second = kept[:, :pairs].ravel(), place[:, 1::2].ravel()
            lead = self.subtract(self.rearrange(items, second), self.rearrange(items, first))
            lead = replace(lead, shape=(1, channels * pairs, *window))
            gain = self.activate(lead, RELU, name, piece=True)
            back = np.full(kept.shape, -1)
            back[:, :pairs] = np.arange(gain.size).reshape(channels, pairs, outputs)
            items = self.add(
                self.rearrange(items, kept.ravel()), self.rearrange(gain, back.ravel())
            )
            count = kept.shape[1]
        return items

    def _knockout(
        self, items: Tensor, remaining: NDArray[np.int64], name: str
    ) -> tuple[Tensor, NDArray[np.int64]]:
        rank = np.arange(items.size) - np.repeat(np.cumsum(remaining) - remaining, remaining)
        first = rank % 2 == 0
        paired = first & (rank + 1 < np.repeat(remaining, remaining))
        a = np.flatnonzero(paired)
        rivals = self.rearrange(items, a + 1)
        lead = self.subtract(rivals, self.rearrange(items, a))
        gain = self.activate(lead, RELU, name, piece=True)
        target = (np.cumsum(first) - 1)[a]
        back = np.full(int(first.sum()), -1)
        back[target] = np.arange(len(a))
        kept = self.rearrange(items, np.flatnonzero(first))
        return self.add(kept, self.rearrange(gain, back)), (remaining + 1) // 2

    def _value(self, number: int, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape)
        _check_size(size)
        self._spend(size)
        whole = mx.frozen(mx.identity(size))
        return Tensor(shape, Affine({number: whole}, np.zeros(size)))

    def _spend(self, entries: int) -> None:
        """Count what all operations together build; a graph of cheap steps can add up to a bomb."""
        check_entries(entries)
        self._spent += entries
        if self._spent > MAX_TOTAL:
            raise InvalidNetworkError(
                f"the graph lowers to more than {MAX_TOTAL:,} matrix entries in all"
            )

    def _size(self, source: int) -> int:
        return self.input.size if source == 0 else self.layers[source - 1].width

    def _compose(self, matrix: Matrix, x: Tensor, bias: NDArray[Any] | None) -> Affine:
        """``matrix @ x + bias``, multiplied out unless that would fill in (then via a stage)."""
        inner = x.affine.terms.values()
        product = sum(mx.product_size(matrix, m) for m in inner)
        factors = mx.nnz(matrix) + sum(map(mx.nnz, inner))
        if product > max(FILL_FREE, FILL_FACTOR * factors):
            self._stage(x)
            product = mx.nnz(matrix)
        self._spend(product)
        outer = Affine({0: mx.frozen(matrix)}, np.zeros(matrix.shape[0]) if bias is None else bias)
        return substitute(outer, [x.affine])

    def keep(self, x: Tensor) -> Tensor:
        """x as the linear stage that the file says it is, unless it is a value as it stands."""
        self._settle(x)
        plain = len(x.affine.terms) == 1 and not x.affine.bias.any()
        if not (plain and all(map(mx.is_identity, x.affine.terms.values()))):
            self._stage(x)
            x.step = None  # the recorded steps would be multiplied out
        return x

    def _settle(self, x: Tensor) -> None:
        """Make a stage of a large sum, and step units of a function of a sign."""
        if x.large:
            self._stage(x)
        if x.signs is None:
            return
        terms, shape = {}, _without_batch(x.shape)
        for at_zero, weight in steps_of(x.signs):
            activation = Activation("step", at_zero=at_zero)
            units = numbered(x.owners)
            self.layers.append(Layer(x.affine, activation, x.name, shape, unit_of=units))
            factors = np.full(x.size, weight)
            terms[len(self.layers)] = mx.scale_rows(mx.identity(x.size), factors)
        x.affine = Affine(_frozen(terms), np.full(x.size, x.signs[0]))
        x.signs, x.weighed = None, False

    def _stage(self, x: Tensor) -> None:
        """Keep x as a linear stage: every later use reads the stage instead of its terms."""
        shape = _without_batch(x.shape)
        self.layers.append(Layer(x.affine, IDENTITY, "linear stage", shape))
        x.affine = self._value(len(self.layers), x.shape).affine
        x.weighed = x.large = False


def _without_batch(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape without a batch axis of size one in front."""
    return tuple(shape[1:]) if len(shape) > 1 and shape[0] == 1 else tuple(shape)


def _planes_of(x: Tensor) -> tuple[int, ...]:
    """(channels, *spatial) of what slides over one input."""
    if len(x.shape) < 3 or x.shape[0] != 1:
        raise InvalidNetworkError(f"a window over {x.shape}; (1, channels, ...) is expected")
    return x.shape[1:]


def _frozen(terms: dict[int, Matrix]) -> dict[int, Matrix]:
    return {source: mx.frozen(matrix) for source, matrix in terms.items()}


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """A copy; refused here, where the operation is known, when it is not finite."""
    copy = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(copy).all():
        raise InvalidNetworkError("a weight or constant holds NaN or infinite entries")
    return copy


def _check_size(size: int) -> None:
    if not 1 <= size <= MAX_SIZE:
        raise InvalidNetworkError(f"a value with {size:,} entries; between 1 and {MAX_SIZE:,} work")

"""Index arithmetic of sliding windows: what convolutions and poolings read, as sparse matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.network.structure import Geometry

#: A lowered matrix may hold this many entries (about 2 GB); more is refused before allocating.
MAX_ENTRIES = 1 << 27


@dataclass(frozen=True)
class Windows:
    """The positions each output position reads.

    Attributes:
        shape: spatial shape of the output.
        position: shape (outputs, taps), flat spatial input positions; 0 where not valid.
        valid: shape (outputs, taps), False where a tap falls into the padding.
        padded: shape (outputs,), taps that fall inside the padded input, for averaging that
            counts padding (a window hanging over the end in ceil mode is not padding).
        geometry: how the windows slide, where they do.
    """

    shape: tuple[int, ...]
    position: NDArray[np.int64]
    valid: NDArray[np.bool_]
    padded: NDArray[np.int64]
    geometry: Geometry | None = None


def sliding_windows(spatial: Sequence[int], geometry: Geometry) -> Windows:
    """Enumerate the windows of a convolution or pooling over axes of these sizes.

    In ceil mode a last window that starts in the end padding is dropped, as torch and ONNX do.
    """
    _check_geometry(spatial, geometry)
    shape, positions, inside, within = [], [], [], []
    for n, (k, s, (before, after), d) in zip(spatial, geometry.axes, strict=True):
        room = n + before + after - (d * (k - 1) + 1)
        count = (-(-room // s) if geometry.ceil else room // s) + 1
        if geometry.ceil and count > 1 and (count - 1) * s >= n + before:
            count -= 1
        if count < 1:
            raise InvalidNetworkError(f"a window of {k} (dilation {d}) does not fit an axis of {n}")
        check_entries(count * k)
        at = np.arange(count)[:, None] * s - before + np.arange(k)[None, :] * d
        shape.append(count)
        positions.append(at)
        inside.append((at >= 0) & (at < n))
        within.append((at < n + after).sum(axis=1))
    check_entries(math.prod(shape) * math.prod(geometry.kernel))
    position, valid = _together(spatial, positions, inside)
    padded = reduce(np.multiply.outer, within).ravel()
    return Windows(tuple(shape), position, valid, padded, geometry)


def _together(
    spatial: Sequence[int], positions: Sequence[Any], inside: Sequence[Any]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What the outputs read and whether it is there, shape (outputs, taps), from axis by axis."""
    position, valid = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=bool)
    for n, at, there in zip(spatial, positions, inside, strict=True):
        outer = (len(position) * len(at), -1)
        position = (position[:, None, :, None] * n + at[None, :, None, :]).reshape(outer)
        valid = (valid[:, None, :, None] & there[None, :, None, :]).reshape(outer)
    return np.where(valid, position, 0), valid


def adaptive_windows(spatial: Sequence[int], output: Sequence[int]) -> Windows:
    """The windows of an adaptive pooling: output i of m over n reads [floor(in/m), ceil((i+1)n/m)).

    >>> adaptive_windows([5], [2]).position.tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    if len(spatial) != len(output) or min((*spatial, *output), default=0) < 1:
        raise InvalidNetworkError(f"adaptive pooling of {tuple(spatial)} to {tuple(output)}")
    if all(n % m == 0 for n, m in zip(spatial, output, strict=True)):  # then they only slide
        sizes = [n // m for n, m in zip(spatial, output, strict=True)]
        return sliding_windows(spatial, Geometry.plain(sizes, sizes))
    positions, inside = [], []
    for n, m in zip(spatial, output, strict=True):
        start, end = np.arange(m) * n // m, -(-(np.arange(m) + 1) * n // m)
        at = start[:, None] + np.arange(int((end - start).max()))
        positions.append(at)
        inside.append(at < end[:, None])
        check_entries(math.prod(part.size for part in positions))
    position, valid = _together(spatial, positions, inside)
    return Windows(tuple(output), position, valid, valid.sum(axis=1))


def convolution(
    weight: NDArray[np.float64],
    shape: Sequence[int],
    geometry: Geometry,
    groups: int,
) -> tuple[sp.csr_array, tuple[int, ...]]:
    """The matrix of a convolution on inputs of shape (channels, *spatial), and its output shape.

    Args:
        weight: shape (out channels, in channels / groups, *kernel).
    """
    channels, spatial = shape[0], tuple(shape[1:])
    out_channels, per_group = weight.shape[:2]
    if weight.ndim != len(spatial) + 2 or channels != per_group * groups or out_channels % groups:
        raise InvalidNetworkError(
            f"a convolution with weight {weight.shape} and {groups} groups does not fit an input "
            f"of shape {tuple(shape)}"
        )
    windows = sliding_windows(spatial, geometry)
    outputs, taps = windows.valid.shape
    per_channel = per_group * int(windows.valid.sum())
    check_entries(out_channels * per_channel)
    plane = math.prod(spatial)
    # Row by row in the order (position, channel, tap): column indices come out sorted.
    mask = np.broadcast_to(windows.valid[:, None, :], (outputs, per_group, taps))
    columns = (np.arange(per_group)[None, :, None] * plane + windows.position[:, None, :])[mask]
    data = np.empty((out_channels, per_channel))
    indices = np.empty((out_channels, per_channel), dtype=np.int64)
    flat = weight.reshape(out_channels, 1, per_group, taps)
    for channel in range(out_channels):
        data[channel] = np.broadcast_to(flat[channel], mask.shape)[mask]
        group = channel // (out_channels // groups)
        indices[channel] = columns + group * per_group * plane
    per_row = np.tile(per_group * windows.valid.sum(axis=1), out_channels)
    indptr = np.concatenate([[0], np.cumsum(per_row)])
    matrix = sp.csr_array(
        (data.ravel(), indices.ravel(), indptr),
        shape=(out_channels * outputs, channels * plane),
    )
    return matrix, (out_channels, *windows.shape)


def averaging(
    channels: int, spatial: Sequence[int], windows: Windows, count_padding: bool
) -> sp.csr_array:
    """The matrix of an average pooling applied to each channel."""
    inside = windows.valid.sum(axis=1)
    divisor = windows.padded if count_padding else inside
    data = np.repeat(1.0 / divisor, inside)
    indptr = np.concatenate([[0], np.cumsum(inside)])
    one = sp.csr_array(
        (data, windows.position[windows.valid], indptr),
        shape=(len(inside), math.prod(spatial)),
    )
    check_entries(channels * one.nnz)
    return sp.csr_array(sp.kron(sp.eye_array(channels), one, format="csr"))


def _check_geometry(spatial: Sequence[int], g: Geometry) -> None:
    axes = len(spatial)
    if axes == 0 or not len(g.kernel) == len(g.stride) == len(g.pads) == len(g.dilation) == axes:
        raise InvalidNetworkError(
            f"a window over {axes} axes was given {len(g.kernel)} kernel sizes, {len(g.stride)} "
            f"strides, {len(g.pads)} paddings and {len(g.dilation)} dilations"
        )
    positive = [*spatial, *g.kernel, *g.stride, *g.dilation]
    if min(positive) < 1 or min(map(min, g.pads)) < 0:
        raise InvalidNetworkError(
            f"a window with kernel {g.kernel}, stride {g.stride}, padding {list(g.pads)}, "
            f"dilation {g.dilation} over {tuple(spatial)} makes no sense"
        )


def check_entries(count: int) -> None:
    """Raise `InvalidNetworkError` when a matrix of so many entries is more than we build."""
    if count > MAX_ENTRIES:
        raise InvalidNetworkError(
            f"an operation lowers to a matrix with {count:,} entries; the limit is {MAX_ENTRIES:,}"
        )


#: Geometries that are tried along one axis.
GUESSES = 3
#: Entries of a kernel, groups not yet told apart, that are always allowed.
LARGEST = 1 << 24


@dataclass(frozen=True)
class Convolution:
    """The parameters of a convolution, as torch and ONNX name them."""

    weight: NDArray[np.float64]
    geometry: Geometry
    groups: int


def recover_convolution(
    matrix: sp.csr_array, shape_in: Sequence[int], shape_out: Sequence[int]
) -> Convolution | None:
    """The convolution from (channels, *spatial) to the same whose matrix this is, if there is one.

    Exact: the returned parameters lower to ``matrix`` entry for entry.
    """
    axes = len(shape_in) - 1
    if axes not in (1, 2, 3) or len(shape_out) - 1 != axes or not matrix.nnz:
        return None
    entries = sp.coo_array(matrix)
    row, *at = np.unravel_index(entries.row, tuple(shape_out))
    column, *reads = np.unravel_index(entries.col, tuple(shape_in))
    guesses = [
        _geometries(p, j, count, size)
        for p, j, count, size in zip(at, reads, shape_out[1:], shape_in[1:], strict=True)
    ]
    for guess in itertools.product(*guesses):
        kernel, stride, pads, dilation = zip(*guess, strict=True)
        geometry = Geometry(kernel, stride, pads, dilation)
        tap = [
            (j - p * stride + before) // dilation
            for p, j, (_, stride, (before, _), dilation) in zip(at, reads, guess, strict=True)
        ]
        shape = (shape_out[0], shape_in[0], *geometry.kernel)
        if math.prod(shape) > max(8 * matrix.nnz, LARGEST):
            continue
        weight = np.zeros(shape)
        weight[(row, column, *tap)] = entries.data
        if not np.array_equal(weight[(row, column, *tap)], entries.data):
            continue  # two positions disagree about a tap
        groups = _groups(weight)
        found = Convolution(_grouped(weight, groups), geometry, groups)
        if _is_behind(found, matrix, shape_in, shape_out):
            return found
    return None


#: Taps, stride, pads and dilation along one axis: output p reads p stride - before + t dilation.
_Axis = tuple[int, int, tuple[int, int], int]


def _geometries(at: Any, reads: Any, count: int, size: int) -> list[_Axis]:
    """What one axis can be, the likeliest first; all of it follows from the stride.

    Args:
        at, reads: the positions of every weight in the output and in the input.
        count, size: how many positions there are.
    """
    seen = np.zeros((count, size), dtype=bool)
    seen[at, reads] = True
    found = []
    # a single window may leave inputs behind it that a second one would need
    strides = range(1, size + 1) if count > 1 else (max(1, size - int(reads.max())),)
    for stride in strides:
        offset = reads - at * stride
        low, high = int(offset.min()), int(offset.max())
        if low > 0:
            continue  # the first inputs are read by none
        dilation = max(1, int(np.gcd.reduce(offset - low)))
        taps = (high - low) // dilation + 1
        place = np.arange(count)[:, None] * stride + low + np.arange(taps) * dilation
        inside = (place >= 0) & (place < size)
        extra = int(inside.sum()) - int(seen.sum())  # places that no weight reads
        after = (count - 1) * stride + high - size + 1
        found.append((extra, (taps, stride, (-low, max(after, 0)), dilation)))
    return [axis for _, axis in sorted(found, key=lambda f: (f[0], f[1][0]))[:GUESSES]]


def _groups(weight: NDArray[np.float64]) -> int:
    """The largest number of groups whose blocks hold every non-zero weight."""
    outs, ins = weight.shape[:2]
    used_out, used_in = np.nonzero(weight.reshape(outs, ins, -1).any(axis=2))
    for groups in range(math.gcd(outs, ins), 1, -1):
        if outs % groups == ins % groups == 0 and np.array_equal(
            used_out // (outs // groups), used_in // (ins // groups)
        ):
            return groups
    return 1


def _grouped(weight: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    outs, ins = weight.shape[:2]
    blocks = weight.reshape(groups, outs // groups, groups, ins // groups, *weight.shape[2:])
    return np.concatenate([blocks[g, :, g] for g in range(groups)])


def _is_behind(
    found: Convolution,
    matrix: sp.csr_array,
    shape_in: Sequence[int],
    shape_out: Sequence[int],
) -> bool:
    try:
        lowered, shape = convolution(found.weight, shape_in, found.geometry, found.groups)
    except InvalidNetworkError:
        return False
    return shape == tuple(shape_out) and mx.same(lowered, matrix)

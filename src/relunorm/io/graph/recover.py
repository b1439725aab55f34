"""Finding the convolution behind a sparse matrix, so that it can be written as one.

Nothing is remembered from reading: geometry is guessed from a central output position and its
neighbours, and the guess counts only if lowering it gives the very same matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.windows import convolution


@dataclass(frozen=True)
class Convolution:
    """The parameters of a convolution, as torch and ONNX name them."""

    weight: NDArray[np.float64]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
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
    middle = [(n - 1) // 2 for n in shape_out[1:]]
    taps = _taps(matrix, shape_in, shape_out, middle)
    if taps is None:
        return None
    positions = taps[2]
    low, high = positions.min(axis=0), positions.max(axis=0)
    stride = []
    for axis in range(axes):
        moved = list(middle)
        moved[axis] += 1
        if moved[axis] == shape_out[axis + 1]:
            stride.append(1 if shape_out[axis + 1] == 1 else 0)
            continue
        beside = _taps(matrix, shape_in, shape_out, moved)
        stride.append(0 if beside is None else int(beside[2].min(axis=0)[axis] - low[axis]))
    if min(stride) < 1:
        return None
    dilation = [max(1, int(np.gcd.reduce(positions[:, a] - low[a]))) for a in range(axes)]
    kernel = [(h - lo) // d + 1 for h, lo, d in zip(high, low, dilation, strict=True)]
    pads = _pads(shape_in[1:], shape_out[1:], middle, low, high, stride)
    if pads is None:
        return None
    weight = np.zeros((shape_out[0], shape_in[0], *kernel))
    offset = (positions - low) // dilation
    weight[(taps[0], taps[1], *offset.T)] = taps[3]
    groups = _groups(weight)
    found = Convolution(_grouped(weight, groups), tuple(stride), pads, tuple(dilation), groups)
    return found if _is_behind(found, matrix, shape_in, shape_out) else None


def _taps(
    matrix: sp.csr_array, shape_in: Sequence[int], shape_out: Sequence[int], at: Sequence[int]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Out channel, in channel, spatial position and value of all weights into one position."""
    plane_out, plane_in = math.prod(shape_out[1:]), math.prod(shape_in[1:])
    rows = np.arange(shape_out[0]) * plane_out + int(np.ravel_multi_index(at, shape_out[1:]))
    part = sp.coo_array(matrix[rows])
    if not part.nnz:
        return None
    channel, flat = np.divmod(part.col, plane_in)
    positions = np.stack(np.unravel_index(flat, shape_in[1:]), axis=1)
    return part.row, channel, positions, part.data


def _pads(
    spatial_in: Sequence[int],
    spatial_out: Sequence[int],
    middle: Sequence[int],
    low: NDArray[np.intp],
    high: NDArray[np.intp],
    stride: Sequence[int],
) -> tuple[tuple[int, int], ...] | None:
    pads = []
    for axis, (n, count) in enumerate(zip(spatial_in, spatial_out, strict=True)):
        before = middle[axis] * stride[axis] - int(low[axis])
        extent = int(high[axis] - low[axis]) + 1
        after = (count - 1) * stride[axis] + extent - before - n
        if before < 0:
            return None
        pads.append((before, max(after, 0)))
    return tuple(pads)


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
        lowered, shape = convolution(
            found.weight, shape_in, found.stride, found.pads, found.dilation, found.groups
        )
    except InvalidNetworkError:
        return False
    return shape == tuple(shape_out) and mx.same(lowered, matrix)

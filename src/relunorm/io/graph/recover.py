"""Finding the convolution behind a sparse matrix, so that it can be written as one.

Nothing is remembered from reading: along each axis stride, padding and dilation are guessed from
the positions that are read, and a guess counts only if lowering it gives the very same matrix.
"""

from __future__ import annotations

import itertools
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

#: Geometries that are tried along one axis.
GUESSES = 3
#: Entries of a kernel, groups not yet told apart, that are always allowed.
LARGEST = 1 << 24


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
    entries = sp.coo_array(matrix)
    row, *at = np.unravel_index(entries.row, tuple(shape_out))
    column, *reads = np.unravel_index(entries.col, tuple(shape_in))
    guesses = [
        _geometries(p, j, count, size)
        for p, j, count, size in zip(at, reads, shape_out[1:], shape_in[1:], strict=True)
    ]
    for guess in itertools.product(*guesses):
        tap = [
            (j - p * g.stride + g.before) // g.dilation
            for p, j, g in zip(at, reads, guess, strict=True)
        ]
        shape = (shape_out[0], shape_in[0], *(g.taps for g in guess))
        if math.prod(shape) > max(8 * matrix.nnz, LARGEST):
            continue
        weight = np.zeros(shape)
        weight[(row, column, *tap)] = entries.data
        if not np.array_equal(weight[(row, column, *tap)], entries.data):
            continue  # two positions disagree about a tap
        groups = _groups(weight)
        found = Convolution(
            _grouped(weight, groups),
            tuple(g.stride for g in guess),
            tuple((g.before, g.after) for g in guess),
            tuple(g.dilation for g in guess),
            groups,
        )
        if _is_behind(found, matrix, shape_in, shape_out):
            return found
    return None


@dataclass(frozen=True)
class _Geometry:
    """A convolution along one axis: output p reads ``p stride - before + t dilation``, t < taps."""

    stride: int
    before: int
    after: int
    dilation: int
    taps: int


def _geometries(at: Any, reads: Any, count: int, size: int) -> list[_Geometry]:
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
        found.append((extra, taps, _Geometry(stride, -low, max(after, 0), dilation, taps)))
    return [geometry for *_, geometry in sorted(found, key=lambda f: f[:2])[:GUESSES]]


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

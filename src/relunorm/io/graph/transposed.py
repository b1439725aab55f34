"""Transposed convolutions, as ordinary ones whose results are woven together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import Lowering, Tensor
from relunorm.io.graph.operations import Array
from relunorm.io.graph.windows import check_entries


def convolve_transposed(
    low: Lowering,
    x: Tensor,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> Tensor:
    """A transposed convolution of (1, channels, *spatial): tap t of input i adds to output
    i stride - before + t dilation.

    Output q stride + r is an ordinary convolution of step 1 for each r; those results lie side by
    side as channels and are woven together.

    Args:
        weight: shape (in channels, out channels / groups, *kernel).
        extra: outputs added at the end of each axis.
    """
    channels, each, *kernel = weight.shape
    axes = len(kernel)
    if len(x.shape) != axes + 2 or x.shape[1] != channels or channels % groups:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    phases = math.prod(stride)
    shifts, pad, taps, out = [], [], [], []
    for n, k, s, (before, after), d, more in zip(
        x.shape[2:], kernel, stride, pads, dilation, extra, strict=True
    ):
        size = (n - 1) * s + d * (k - 1) + 1 - before - after + more
        if size < 1 or min(s, d) < 1:
            raise InvalidNetworkError(f"nothing is left of an axis of {n}")
        place = np.arange(s)[:, None] + before - np.arange(k)[None] * d
        shift = np.where(place % s == 0, place // s, 0)
        first, last = min(0, int(shift.min())), int(shift.max())
        shifts.append((shift - first, place % s == 0))
        pad.append((-first, max(0, -(-size // s) + last - n)))
        taps.append(last - first + 1)
        out.append(size)
    check_entries(each * phases * channels * math.prod(taps))
    spread = np.zeros((groups, each, *stride, channels // groups, *taps))
    source = np.asarray(weight, np.float64).reshape(groups, channels // groups, each, *kernel)
    source = source.swapaxes(1, 2)
    for at in np.ndindex(*stride, *kernel):
        r, t = at[:axes], at[axes:]
        if all(valid[i, j] for (_, valid), i, j in zip(shifts, r, t, strict=True)):
            tap = tuple(int(shift[i, j]) for (shift, _), i, j in zip(shifts, r, t, strict=True))
            spread[(slice(None), slice(None), *r, slice(None), *tap)] += source[(..., *t)]
    ones = [1] * axes
    flat = spread.reshape(groups * each * phases, channels // groups, *taps)
    offset = None if bias is None else np.repeat(np.asarray(bias, np.float64), phases)
    y = low.convolve(x, flat, offset, ones, pad, ones, groups)
    if y.owners is not None:  # one unit for all phases
        y.owners = y.owners - (y.owners - y.owners.min()) % phases
    if phases > 1:
        y = woven(low, y, stride)
    cut = y.index[(slice(None), slice(None), *(slice(n) for n in out))]
    return y if cut.size == y.size else low.rearrange(y, cut)


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

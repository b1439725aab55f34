"""What makes a grid finer: transposed convolutions, channels woven together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.operations import Array
from relunorm.io.graph.windows import convolution
from relunorm.network.structure import Geometry


def convolve_transposed(
    low: Lowering,
    x: Tensor,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """A transposed convolution of (1, channels, *spatial): tap t of input i adds to output
    i stride - before + t dilation. Its matrix is that of the convolution back, transposed.

    Args:
        weight: shape (out channels, in channels / groups, *kernel), as convolutions have it.
        pads: outputs cut off before and after each axis; a negative number after it adds some.
    """
    outs, each, *kernel = weight.shape
    if len(x.shape) != weight.ndim or x.shape[:2] != (1, each * groups) or outs % groups:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    spatial = [
        (n - 1) * s + d * (k - 1) + 1 - before - after
        for n, k, s, (before, after), d in zip(
            x.shape[2:], kernel, stride, pads, dilation, strict=True
        )
    ]
    if any(before < 0 or -after >= s for s, (before, after) in zip(stride, pads, strict=True)):
        raise CannotLower("adds more outputs than it makes steps")
    back = np.asarray(outputs_first(weight, groups), np.float64)
    cut = [(before, max(after, 0)) for before, after in pads]
    matrix, shape = convolution(back, (outs, *spatial), stride, cut, dilation, groups)
    if shape != x.shape[1:]:
        raise InvalidNetworkError(f"outputs of {spatial} do not come from {x.shape}")
    offset = np.zeros(outs) if bias is None else np.array(bias, np.float64)
    planes = math.prod(spatial)
    owners, shift = np.repeat(low.new_units(outs), planes), np.repeat(offset, planes)
    table = mx.compact(mx.as_matrix(sp.csr_array(matrix.T)))
    result = low.map(x, table, shift, (1, outs, *spatial), owners)
    ends = tuple((before, after) for before, after in pads)
    geometry = Geometry(tuple(kernel), tuple(stride), ends, tuple(dilation))
    result.step = low.recorder.affine(
        x.step, "conv_transpose", (outs, *spatial), weight=np.array(weight, np.float64),
        bias=offset, geometry=geometry, groups=groups,
    )  # fmt: skip
    return result


def outputs_first(weight: Array, groups: int) -> Array:
    """A weight of shape (in, out / groups, *kernel) as (out, in / groups, *kernel), or back."""
    channels, each, *kernel = weight.shape
    if channels % groups:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} in {groups} groups")
    apart = np.asarray(weight).reshape(groups, channels // groups, each, *kernel).swapaxes(1, 2)
    return apart.reshape(groups * each, channels // groups, *kernel)


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

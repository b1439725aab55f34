"""Tridiagonal systems, scalar and in 2 x 2 blocks, for many members at once.

Parallel cyclic reduction (Hockney 1965): in each of log2(N) sweeps every unknown is decoupled from
its neighbours at distance s, then 2 s, then 4 s. All work is elementwise on (members, N) arrays, so
it runs at memory speed on a GPU and without a LAPACK call per member on a CPU. For symmetric
positive definite systems every pivot is a Schur complement, so none needs exchanging.
"""

from __future__ import annotations

import torch
from torch import Tensor


def solve_tridiagonal(diagonal: Tensor, off: Tensor, right: Tensor) -> Tensor:
    """x with diagonal_i x_i + off_{i-1} x_{i-1} + off_i x_{i+1} = right_i; symmetric.

    Args:
        diagonal, right: (B, N); off: (B, N - 1).

    >>> ones = torch.ones(1, 3)
    >>> solve_tridiagonal(4 * ones, ones[:, :2], torch.tensor([[5.0, 6.0, 5.0]]))
    tensor([[1., 1., 1.]])
    """
    size = diagonal.shape[1]
    before, after = _pad(off, 1, 0), _pad(off, 0, 1)
    step = 1
    while step < size:
        table = torch.stack([before, after, right]) / diagonal
        # what neighbours at distance `step` contribute; beyond the ends there are none
        low, high = _shift(table, step), _shift(table, -step)
        diagonal = diagonal - before * low[1] - after * high[0]
        right = right - before * low[2] - after * high[2]
        before, after = -before * low[0], -after * high[1]
        step *= 2
    return right / diagonal


def solve_blocks(diagonal: Tensor, after: Tensor, right: Tensor) -> Tensor:
    """x with D_i x_i + U_{i-1}^T x_{i-1} + U_i x_{i+1} = right_i, in blocks of two; symmetric.

    Args:
        diagonal: (2, 2, B, N) symmetric blocks D_i.
        after: (2, 2, B, N) blocks U_i; the last one is not used.
        right: (2, B, N).

    Returns:
        (2, B, N).
    """
    size = diagonal.shape[3]
    after = after.clone()
    after[..., -1] = 0.0
    before = _shift(after, 1).transpose(0, 1)
    step = 1
    while step < size:
        # rows of D^-1 times everything a neighbour holds: blocks before and after, right-hand side
        table = torch.cat([before, after, right[:, None]], dim=1)
        table = _times(_inverse(diagonal), table)
        low, high = _shift(table, step), _shift(table, -step)
        update = _times(before, low), _times(after, high)
        diagonal = diagonal - update[0][:, 2:4] - update[1][:, 0:2]
        right = right - update[0][:, 4] - update[1][:, 4]
        before, after = -update[0][:, 0:2], -update[1][:, 2:4]
        step *= 2
    return _times(_inverse(diagonal), right[:, None])[:, 0]


def _times(left: Tensor, table: Tensor) -> Tensor:
    """(2, 2, ...) times (2, k, ...), block by block."""
    return left[:, :1] * table[:1] + left[:, 1:] * table[1:]


def _inverse(block: Tensor) -> Tensor:
    determinant = block[0, 0] * block[1, 1] - block[0, 1] * block[1, 0]
    swapped = torch.stack(
        [torch.stack([block[1, 1], -block[0, 1]]), torch.stack([-block[1, 0], block[0, 0]])]
    )
    return swapped / determinant


def _shift(table: Tensor, step: int) -> Tensor:
    """Entry i becomes entry i - step; zeros come in from outside."""
    if abs(step) >= table.shape[-1]:
        return torch.zeros_like(table)
    return _pad(table[..., :-step], step, 0) if step > 0 else _pad(table[..., -step:], 0, -step)


def _pad(tensor: Tensor, before: int, after: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (before, after))

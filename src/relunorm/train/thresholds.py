"""Thresholds by which every unit is live on the data."""

from __future__ import annotations

import torch
from torch import Tensor


def live_thresholds(z: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    """b = -t with t strictly between two neighbouring values of z, unit by unit.

    A value of z is drawn uniformly, rows that share it counting each, and t is the middle of the
    gap above it; above the largest value there is none, and the gap below it is taken. So every
    unit is active on a row and inactive on another. Gaps that rounding could close are passed over
    while there are wider ones. Where all values of a unit coincide no such t exists, and b = -z.

    Args:
        z: (..., n, units) projections w . h of the rows.
        size: |h| at most, for the rounding of z; broadcasts against (..., 1, units).
        generator: for the draw.

    >>> z = torch.tensor([[0.0], [1.0], [4.0]])
    >>> b = live_thresholds(z, torch.tensor(4.0), torch.Generator().manual_seed(0))
    >>> float(b) in (-0.5, -2.5)
    True
    """
    *batch, n, units = z.shape
    shape = (*batch, 1, units)
    pick = torch.randint(n, shape, generator=generator, device=generator.device).to(z.device)
    if n == 1:
        return -z[..., 0, :]
    values = z.sort(dim=-2).values
    gaps = values.diff(dim=-2)
    rounding = 64 * torch.finfo(z.dtype).eps * size
    wide = gaps > torch.minimum(rounding, gaps.amax(dim=-2, keepdim=True) / 2)
    index = torch.arange(n - 1, device=z.device)[:, None]
    above = torch.where(wide & (index >= pick), index, n).amin(dim=-2, keepdim=True)
    below = torch.where(wide & (index < pick), index, -1).amax(dim=-2, keepdim=True)
    at = torch.where(above < n, above, below).clamp_min(0)
    low, high = values.gather(-2, at), values.gather(-2, at + 1)
    return -(low + (high - low) / 2)[..., 0, :]

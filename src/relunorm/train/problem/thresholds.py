"""Thresholds by which every unit is live on the data."""

from __future__ import annotations

import torch
from torch import Tensor

#: Rows at a time.
PART = 8192


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


def revived_layers(
    pairs: list[tuple[Tensor, Tensor]], x: Tensor, generator: torch.Generator, rounding: float
) -> list[tuple[Tensor, Tensor]]:
    """Hidden layers (w, b) in which units that no row activates have a live threshold instead.

    Nothing read such a unit on the rows, so its columns in the next layer become 0 and the values
    of all other units stay as they are; behind the last layer its weight is to be fitted anew.

    Args:
        x: (n, d) the rows, looked at a part at a time.
        rounding: activity, relative to order one, that does not count.
    """
    top: list[Tensor] = []
    for rows in x.split(PART):
        h, found = rows.double(), []
        for w, b in pairs:
            h = torch.addmm(b, h, w.mT)
            found.append(h.amax(dim=0))
            h = h.clamp_min(0)
        top = [torch.maximum(a, z) for a, z in zip(top, found, strict=True)] if top else found
    dead = [peak <= rounding for peak in top]
    if not any(bool(mask.any()) for mask in dead):
        return pairs
    h, result = x[:PART].double(), []
    before = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    for (w, b), mask in zip(pairs, dead, strict=True):
        w, b = w.masked_fill(before, 0.0), b.clone()
        z = h @ w.mT
        if bool(mask.any()):
            b[mask] = live_thresholds(z[:, mask], h.norm(dim=1).amax(), generator)
        h, before = (z + b).clamp_min(0), mask
        result.append((w, b))
    return result

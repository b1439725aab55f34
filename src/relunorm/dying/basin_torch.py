"""Basin maps on an accelerator: the step of `basin_kernel` as torch operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from relunorm.dying.basin_kernel import CLIP

State = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

#: Updates that one compiled kernel makes.
UNROLLED = 16


def advance(*given: Any, fuse: bool) -> None:
    """`basin_kernel.advance` of tensors; ``steps`` is rounded up to a multiple of `UNROLLED`.

    Args:
        fuse: whether torch.compile makes one kernel of the updates.
    """
    *state, delta, eta, beta, update, slope, steps = given
    several = _several(delta, eta, beta, update, slope, fuse)
    for _ in range(-(-steps // UNROLLED)):
        for held, new in zip(state, several(*state), strict=True):
            held.copy_(new)


@lru_cache(maxsize=32)
def _several(
    delta: float, eta: float, beta: float, update: float, slope: float, fuse: bool
) -> Callable[..., State]:
    """Some updates as one function; compiled once per rule, whatever the number of points."""

    def several(*state: Tensor) -> Any:
        for _ in range(UNROLLED):
            state = _step(state, delta, eta, beta, update, slope)
        return state

    return torch.compile(several, dynamic=True) if fuse else several


def _step(state: Any, delta: float, eta: float, beta: Any, update: float, slope: float) -> State:
    """One update of (w, b, mw, mb, moving), in units of gamma."""
    w, b, mw, mb, moving = state
    tiny = 1e-300 if w.dtype == torch.float64 else 1e-30
    # At w = b = 0 the unit is off, as in torch.
    h = ((b - 100 * tiny) / w.abs().clamp_min(tiny)).clamp(-CLIP, CLIP)
    pdf = torch.exp(-0.5 * h * h) * (1 / math.sqrt(2 * math.pi))
    cdf = 0.5 * torch.erfc(h * -math.sqrt(0.5))
    rho = torch.where(w > 0, 1.0, -1.0)
    a, c = w - 1.0, b - delta
    gw = a * (cdf - h * pdf) + rho * c * pdf
    gb = rho * a * pdf + c * cdf
    mw = beta * mw + (1 - beta) * gw
    mb = beta * mb + (1 - beta) * gb
    k = moving * eta
    still = (k * k * (mw * mw + mb * mb) < update) & (gw * gw + gb * gb < slope)
    return w - k * mw, b - k * mb, mw, mb, torch.where(still, 0.0, moving)

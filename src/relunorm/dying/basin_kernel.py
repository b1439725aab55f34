"""The inner loop of basin maps, many single units stepped side by side: compiled for one thread,
without branches, and as torch operations for an accelerator.

Phi and phi come from one exponential and one polynomial, written so that LLVM turns the loop over
units into vector instructions: exp by scaling and squaring, the tail through the Mills ratio
Phi(-a) / exp(-a^2/2), which is smooth in (a - 3) / (a + 3). Relative error below 2e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate
from scipy.special import erfcx

from relunorm.compiled.jit import inner, kernel

#: Positions are clipped here; Phi(-12) is 2e-33, far below any stopping tolerance.
CLIP = 12.0


def _mills() -> tuple[float, ...]:
    """Coefficients in s = (a - 3) / (a + 3) of (1 + a) Phi(-a) exp(a^2 / 2) on [0, CLIP]."""
    lo, hi = -1.0, (CLIP - 3.0) / (CLIP + 3.0)

    def ratio(r: Any) -> Any:
        s = (lo + hi) / 2 + (hi - lo) / 2 * r
        a = 3.0 * (1 + s) / (1 - s)
        return 0.5 * erfcx(a / math.sqrt(2)) * (1 + a)

    shift = Polynomial([-(lo + hi) / (hi - lo), 2 / (hi - lo)])
    return tuple(Polynomial(cheb2poly(chebinterpolate(ratio, 15)))(shift).coef)


_M = _mills()
M0, M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, M15 = _M
_INV = 1 / math.sqrt(2 * math.pi)
_FAST = "contract nsz arcp"


@partial(inner, fast=_FAST)
def normal(h):
    """Phi(h) and phi(h) for |h| <= CLIP."""
    a = abs(h)
    e = a * a * (-0.5 / 128)
    x = 1.0 + e * (1.0 + e * (1 / 2 + e * (1 / 6 + e * (1 / 24 + e * (1 / 120 + e * (1 / 720
        + e * (1 / 5040 + e * (1 / 40320 + e * (1 / 362880 + e * (1 / 3628800 + e * (1 / 39916800
        + e * (1 / 479001600 + e * (1 / 6227020800)))))))))))))  # fmt: skip
    x *= x
    x *= x
    x *= x
    x *= x
    x *= x
    x *= x
    x *= x
    s = (a - 3.0) / (a + 3.0)
    q = M0 + s * (M1 + s * (M2 + s * (M3 + s * (M4 + s * (M5 + s * (M6 + s * (M7 + s * (M8
        + s * (M9 + s * (M10 + s * (M11 + s * (M12 + s * (M13 + s * (M14 + s * M15
        ))))))))))))))  # fmt: skip
    tail = x * q / (1.0 + a)
    return (1.0 - tail if h > 0 else tail), x * _INV


@partial(kernel, fast=_FAST)
def advance(w, b, mw, mb, moving, delta, eta, beta, update, slope, steps):
    """``steps`` updates of every unit, in place, in units of gamma (so the optimum is (1, delta)).

    A unit whose update is below sqrt(``update``) and whose gradient is below sqrt(``slope``) gets
    ``moving`` 0 and stays where it is from then on.
    """
    block = 64  # five arrays of 64 doubles stay in the first-level cache
    for start in range(0, len(w), block):
        ws, bs = w[start : start + block], b[start : start + block]
        us, vs = mw[start : start + block], mb[start : start + block]
        on = moving[start : start + block]
        for _ in range(steps):
            for i in range(len(ws)):
                x = ws[i]
                y = bs[i]
                size = abs(x)
                size = size if size > 1e-300 else 1e-300
                h = (y - 1e-298) / size  # at w = b = 0 the unit is off, as in torch
                h = h if h < CLIP else CLIP
                h = h if h > -CLIP else -CLIP
                cdf, pdf = normal(h)
                rho = 1.0 if x > 0 else -1.0
                a = x - 1.0
                c = y - delta
                gw = a * (cdf - h * pdf) + rho * c * pdf
                gb = rho * a * pdf + c * cdf
                u = beta * us[i] + (1 - beta) * gw
                v = beta * vs[i] + (1 - beta) * gb
                k = on[i] * eta
                us[i] = u
                vs[i] = v
                ws[i] = x - k * u
                bs[i] = y - k * v
                still = k * k * (u * u + v * v) < update and gw * gw + gb * gb < slope
                on[i] = 0.0 if still else on[i]


#: Updates that one compiled kernel makes.
UNROLLED = 16


def advance_tensors(*given: Any, fuse: bool) -> None:
    """`advance` of tensors by torch; ``steps`` is rounded up to a multiple of `UNROLLED`."""
    *state, delta, eta, beta, update, slope, steps = given
    several = _several(delta, eta, beta, update, slope, fuse)
    for _ in range(-(-steps // UNROLLED)):
        for held, new in zip(state, several(*state), strict=True):
            held.copy_(new)


@lru_cache(maxsize=32)
def _several(
    delta: float, eta: float, beta: float, update: float, slope: float, fuse: bool
) -> Callable[..., Any]:
    """Some updates as one function; compiled once per rule, whatever the number of points."""
    import torch

    def several(*state: Any) -> Any:
        for _ in range(UNROLLED):
            state = _step(state, delta, eta, beta, update, slope)
        return state

    return torch.compile(several, dynamic=True) if fuse else several


def _step(state: Any, delta: float, eta: float, beta: Any, update: float, slope: float) -> Any:
    """One update of (w, b, mw, mb, moving), in units of gamma."""
    import torch

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

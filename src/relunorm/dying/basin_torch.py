"""Basin maps on an accelerator: the step of `basin_kernel` as fused torch operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from relunorm.errors import InvalidInputError

Mode = Literal["compile", "graph", "eager"]
State = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
CLIP = 12.0


def step(state: State, delta: float, eta: float, beta: Any, update: float, slope: float) -> State:
    """One update of (w, b, mw, mb, moving), in units of gamma; see `basin_kernel.advance`."""
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


def stepper(
    state: State,
    delta: float,
    eta: float,
    beta: float,
    update: float,
    slope: float,
    *,
    mode: Mode = "compile",
    unroll: int = 16,
) -> Callable[[int], None]:
    """A function that moves ``state`` in place by a number of updates (a multiple of ``unroll``).

    Modes: ``compile`` fuses ``unroll`` updates into one kernel by torch.compile; ``graph`` captures
    them as a CUDA graph of single operations; ``eager`` runs them one by one, on any device.
    """
    if mode not in ("compile", "graph", "eager"):
        raise InvalidInputError(f"mode {mode!r}: use compile, graph or eager")

    body = _several(delta, eta, beta, update, slope, unroll, mode == "compile")

    def replace() -> None:
        for held, new in zip(state, body(*state), strict=True):
            held.copy_(new)

    advance = _captured(replace) if mode == "graph" else replace

    def run(steps: int) -> None:
        for _ in range(-(-steps // unroll)):
            advance()

    return run


@lru_cache(maxsize=32)
def _several(
    delta: float, eta: float, beta: float, update: float, slope: float, unroll: int, fuse: bool
) -> Callable[..., Any]:
    """``unroll`` updates as one function; compiled once per rule, whatever the number of points."""

    def several(w: Tensor, b: Tensor, mw: Tensor, mb: Tensor, moving: Tensor) -> State:
        now = (w, b, mw, mb, moving)
        for _ in range(unroll):
            now = step(now, delta, eta, beta, update, slope)
        return now

    return torch.compile(several, dynamic=True) if fuse else several


def _captured(once: Callable[[], None]) -> Callable[[], None]:
    """The call as a CUDA graph. Warm-up runs on a side stream move the state like real ones."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        once()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        once()
    return graph.replay

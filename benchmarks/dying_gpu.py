"""Basin maps on a GPU: ns a point-step. Needs torch with CUDA, numpy, and this package's src.

PYTHONPATH=src python benchmarks/dying_gpu.py
"""

from __future__ import annotations

import time

import numpy as np
import torch

from relunorm.dying.basin_kernel import UNROLLED, advance_tensors
from relunorm.dying.basins import basin


def measure(grid: int, mode: str, dtype: torch.dtype = torch.float64) -> float:
    """Nanoseconds a point-step at gamma = 1, beta = 0.9, with nothing dropped."""
    axis = np.linspace(-2, 2, grid)
    w, b = (torch.as_tensor(p.ravel(), dtype=dtype, device="cuda") for p in np.meshgrid(axis, axis))
    state = (w, b, torch.zeros_like(w), torch.zeros_like(w), torch.ones_like(w))
    steps = UNROLLED * 64

    def move() -> None:
        advance_tensors(*state, 0.0, 0.1, 0.9, 1e-12, 1e-6, steps, fuse=mode == "compile")

    move()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        move()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best / steps / len(w) * 1e9


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    print("| grid | mode | dtype | ns a point-step |")
    print("| --- | --- | --- | --- |")
    for mode in ("compile", "eager"):
        for grid in (201, 2001):
            for dtype in (torch.float64, torch.float32):
                try:
                    value = f"{measure(grid, mode, dtype):.4f}"
                except Exception as error:  # a missing compiler must not hide the other modes
                    value = f"failed: {type(error).__name__}: {str(error)[:80]}"
                print(f"| {grid} | {mode} | {str(dtype)[6:]} | {value} |", flush=True)
    for gamma, beta, expected in ((1.0, 0.9, 72.0), (0.1, 0.0, 58.0), (0.001, 0.0, 14.2)):
        began = time.perf_counter()
        found = basin(gamma, beta, device="cuda", mode="eager")
        took = time.perf_counter() - began
        print(f"{found!r}; expected optimum {expected}; {took:.1f} s")


if __name__ == "__main__":
    main()

"""Figure 1's whole sweep on a GPU: 4 data sets x 7 gamma x 5 optimizers x 8 seeds, 250,000 updates.

Needs torch with CUDA, numpy, and this package's src. Data: .npz files with x and y, or, without
arguments, four generated sets of UCI-like sizes.

    PYTHONPATH=src python benchmarks/dying_sweep_gpu.py [--updates 250000] [FILE.npz ...]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from relunorm.dying.scale_sweep import STRETCH, Plan, Sweep


def generated() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Four smooth random functions of 8, 8, 4 and 11 inputs."""
    rng = np.random.default_rng(0)
    tables = {}
    for name, n, d in (("a", 1030, 8), ("b", 768, 8), ("c", 9568, 4), ("d", 1599, 11)):
        x = rng.standard_normal((n, d))
        y = np.tanh(x @ rng.standard_normal((d, 5))) @ rng.standard_normal(5)
        tables[name] = (x, y + 0.1 * rng.standard_normal(n))
    return tables


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--updates", type=int, default=250_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    tables = generated()
    if options.files:
        tables = {}
        for file in options.files:
            with np.load(file) as arrays:
                tables[Path(file).stem] = (arrays["x"], arrays["y"])
    plan = Plan(tuple(tables), seeds=tuple(range(options.seeds)), updates=options.updates)
    sweep = Sweep(plan, tables, device=options.device)
    if options.device == "cuda":
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)

    def show(done: int, total: int, left: float) -> None:
        if done % (100 * STRETCH) == 0 or done == total:
            print(f"{done:,} of {total:,} updates, {left:.0f} s left", flush=True)

    began = time.perf_counter()
    found = sweep.run(show)
    took = time.perf_counter() - began
    print(
        f"{len(plan.members)} members, {found.updates:,} updates: {took:.1f} s, evaluation included"
    )
    print(f"{took / found.updates / len(plan.members) * 1e9:.1f} ns a member-update")
    print("\n| data | optimizer | " + " | ".join(f"gamma {g:g}" for g in plan.gammas) + " |")
    print("|" + " --- |" * (2 + len(plan.gammas)))
    for name in plan.data:
        for rule in plan.rules:
            cells = [
                f"{found.mean('dead', data=name, optimizer=rule.name, gamma=g):.0%} "
                f"({found.mean('mse', data=name, optimizer=rule.name, gamma=g):.2g})"
                for g in plan.gammas
            ]
            print(f"| {name} | {rule.name} | " + " | ".join(cells) + " |")
    print("\ncells: dead units (MSE / gamma^2), means over seeds")


if __name__ == "__main__":
    main()

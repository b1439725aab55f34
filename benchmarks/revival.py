"""Revival after figure 1's regime: 10 seeds, with and without, against a healthy run.

Stage 1 trains 200 hidden units at gamma = 1e-4 with Adam (beta1 = 0) until 60% are dead. Stage 2
puts the scale right (output layer times 1e4: the same function) and trains on at gamma = 1 with
Adam: as it is, and after one call of `revive_live_`. The healthy run trains at gamma = 1 all the
time, for as many updates in total. Error: MSE on the training set in units of the variance.

    python benchmarks/revival.py [DATA.npz] [--updates 30000] [--seeds 10]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from record import record
from torch import nn

from relunorm.dying.revive import revive_live_
from relunorm.dying.sweep import Plan, Sweep, by_name
from relunorm.papers.regression_data import load_tables


def kill(tables, seeds: int, share: float) -> tuple[Sweep, list[int], torch.Tensor]:
    """Stage 1: each seed's parameters at the first look (every 500 updates) with enough dead."""
    name = next(iter(tables))
    plan = Plan((name,), (1e-4,), (0.0,), by_name(["adam beta1=0"]), tuple(range(seeds)),
                updates=100_000)  # fmt: skip
    sweep = Sweep(plan, tables)
    at, taken = [0] * seeds, [None] * seeds
    while min(at) == 0 and sweep.done < plan.updates:
        for _ in range(5):
            sweep._stretch()
        dead = [row[6] for row in sweep.result().rows]
        flat = torch.cat([part.ensemble.parameters for part in sweep.parts])
        for k in range(seeds):
            if not at[k] and dead[k] >= share:
                at[k], taken[k] = sweep.done, flat[k].clone()
    return sweep, at, torch.stack(taken)


def revived(sweep: Sweep, flat: torch.Tensor, seed: int) -> torch.Tensor:
    """One member's parameters after `revive_live_` on its whole training set."""
    d, h = sweep.x.shape[1], sweep.plan.hidden
    model = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 1))
    parts = (model[0].weight, model[0].bias, model[2].weight, model[2].bias)
    with torch.no_grad():
        at = 0
        for part in parts:
            part.copy_(flat[at : at + part.numel()].reshape(part.shape))
            at += part.numel()
    before = model(sweep.x)
    found = revive_live_(model, sweep.x, random_state=seed)
    change = float((model(sweep.x) - before).abs().max())
    print(f"seed {seed}: revived {found.count} units, outputs changed by {change:.1e}", flush=True)
    return torch.cat([part.detach().reshape(-1) for part in parts])


def train(tables, flat: torch.Tensor | None, seeds: int, updates: int) -> list[float]:
    """Stage 2: errors after ``updates`` at gamma = 1 from the given parameters."""
    name = next(iter(tables))
    plan = Plan((name,), (1.0,), (0.0,), by_name(["adam"]), tuple(range(seeds)), updates=updates)
    sweep = Sweep(plan, tables)
    if flat is not None:
        at = 0
        for part in sweep.parts:
            count = len(part.ensemble.parameters)
            part.ensemble.parameters.copy_(flat[at : at + count])
            at += count
    return [row[5] for row in sweep.run().rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="friedman")
    parser.add_argument("--updates", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = load_tables([options.data])
    sweep, at, flat = kill(tables, options.seeds, 0.6)
    h = sweep.plan.hidden
    flat[:, -(h + 1) :] *= 1e4  # output weights and bias: the same function at gamma = 1
    without = train(tables, flat, options.seeds, options.updates)
    fixed = torch.stack([revived(sweep, flat[k], k) for k in range(options.seeds)])
    with_ = train(tables, fixed, options.seeds, options.updates)
    healthy = train(tables, None, options.seeds, options.updates + max(at))
    rows = [
        (k, at[k], healthy[k], with_[k], without[k], with_[k] / healthy[k], with_[k] < without[k])
        for k in range(options.seeds)
    ]
    ratio = float(np.mean(with_) / np.mean(healthy))
    record(
        f"revival after figure 1's regime, {next(iter(tables))}",
        ("seed", "60% dead at update", "healthy MSE", "revived MSE", "not revived", "ratio", "wins"),
        rows,
        note=f"Mean revived / mean healthy: {ratio:.3f}; wins {sum(r[-1] for r in rows)} of "
        f"{len(rows)}. {options.updates} updates after revival.",
    )


if __name__ == "__main__":
    main()

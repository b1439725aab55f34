"""Revival after figure 1's regime: 10 seeds, with and without, against a healthy run.

Stage 1 trains 200 hidden units at gamma = 1e-4 with Adam (beta1 = 0) until 60% are dead. Stage 2
puts the scale right (output layer times 1e4, then `balance_`: the same function) and trains on at
gamma = 1 with Adam: as it is, and after one call of `revive_live_`, which replaces the dead units
and those active on at most a tenth of the rows (most survivors). The healthy run trains at
gamma = 1 all the time, for as many updates in total. Errors: MSE in units of the variance, on the
training rows and on a fifth held out.

    python benchmarks/revival.py [DATA.npz] [--updates 30000] [--seeds 10]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from record import record
from torch import nn

from relunorm.dying.balance import balance_
from relunorm.dying.revive import revive_live_
from relunorm.dying.sweep import Plan, Sweep, by_name
from relunorm.papers.regression_data import load_tables

#: Survivors of the regime are active on 2-5% of the rows: dying too.
LEAST = 0.1


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


def prepared(sweep: Sweep, flat: torch.Tensor, seed: int, revive: bool) -> torch.Tensor:
    """One member's parameters, balanced, and with its dead units revived if asked."""
    d, h = sweep.x.shape[1], sweep.plan.hidden
    model = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 1))
    parts = (model[0].weight, model[0].bias, model[2].weight, model[2].bias)
    with torch.no_grad():
        at = 0
        for part in parts:
            part.copy_(flat[at : at + part.numel()].reshape(part.shape))
            at += part.numel()
        balance_(model, sweep.x)
        if revive:
            before = model(sweep.x)
            found = revive_live_(model, sweep.x, random_state=seed, least=LEAST)
            change = float((model(sweep.x) - before).abs().max())
            print(
                f"seed {seed}: revived {found.count}, outputs changed by {change:.1e}", flush=True
            )
        return torch.cat([part.reshape(-1) for part in parts])


def train(
    tables,
    held: tuple[torch.Tensor, torch.Tensor],
    flat: torch.Tensor | None,
    seeds: int,
    updates: int,
) -> tuple[list[float], list[float]]:
    """Stage 2: errors on the training rows and on those held out, after updates at gamma = 1."""
    name = next(iter(tables))
    plan = Plan((name,), (1.0,), (0.0,), by_name(["adam"]), tuple(range(seeds)), updates=updates)
    sweep = Sweep(plan, tables)
    if flat is not None:
        at = 0
        for part in sweep.parts:
            count = len(part.ensemble.parameters)
            part.ensemble.parameters.copy_(flat[at : at + count])
            at += count
    inside = [row[5] for row in sweep.run().rows]
    outside = []
    for part in sweep.parts:
        outside += part._on_rows(list(range(len(part.members))), *held)[0].tolist()
    return inside, outside


def split(tables) -> tuple[dict, tuple[torch.Tensor, torch.Tensor]]:
    """Four fifths to train on; the rest standardised as `Sweep` standardises the training rows."""
    (name, (x, y)), *_ = tables.items()
    order = np.random.default_rng(0).permutation(len(x))
    fit, rest = order[len(x) // 5 :], order[: len(x) // 5]
    spread = x[fit].std(0)
    held_x = (x[rest] - x[fit].mean(0)) / np.where(spread > 0, spread, 1.0)
    held_y = (y[rest] - y[fit].mean()) / y[fit].std()
    kind = torch.float32
    held = torch.as_tensor(held_x, dtype=kind), torch.as_tensor(held_y, dtype=kind)[:, None]
    return {name: (x[fit], y[fit])}, held


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="friedman")
    parser.add_argument("--updates", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables, held = split(load_tables([options.data]))
    sweep, at, flat = kill(tables, options.seeds, 0.6)
    flat[:, -(sweep.plan.hidden + 1) :] *= 1e4  # output weights and bias: the function at gamma = 1
    arms: dict[str, tuple[list[float], list[float]]] = {}
    for arm, revive in (("revived", True), ("not revived", False)):
        start = torch.stack([prepared(sweep, flat[k], k, revive) for k in range(options.seeds)])
        arms[arm] = train(tables, held, start, options.seeds, options.updates)
    arms["healthy"] = train(tables, held, None, options.seeds, options.updates + max(at))
    rows = []
    for k in range(options.seeds):
        errors = [
            arms[a][side][k] for side in (0, 1) for a in ("healthy", "revived", "not revived")
        ]
        rows.append((k, at[k], *errors, errors[1] < errors[2], errors[4] < errors[5]))
    ratios = [float(np.mean(arms["revived"][s]) / np.mean(arms["healthy"][s])) for s in (0, 1)]
    wins = [sum(row[-2] for row in rows), sum(row[-1] for row in rows)]
    record(
        f"revival after figure 1's regime, {next(iter(tables))}",
        ("seed", "60% dead at", "healthy, train", "revived, train", "not revived, train",
         "healthy, held out", "revived, held out", "not revived, held out", "wins train",
         "wins held out"),
        rows,
        note=f"Mean revived / mean healthy: {ratios[0]:.3f} on training rows, {ratios[1]:.3f} held "
        f"out; better than without revival in {wins[0]} and {wins[1]} of {len(rows)} seeds. "
        f"{options.updates} updates after revival.",
    )  # fmt: skip


if __name__ == "__main__":
    main()

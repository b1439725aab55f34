"""Revival after figure 1's regime: dead networks trained on with and without, and a healthy run.

Protocol, fixed before the seeds below were run (chosen on seeds 100-104):

1. Four fifths of the rows train, the rest are held out; inputs and targets are standardised. 200
   hidden units, batches of 64. At gamma = 1e-4 with Adam (beta1 = 0) a network is trained until
   60% of its units are dead on the training rows (a look every 500 updates).
2. The scale is put right: from here on the target has gamma = 1 and the optimizer is a new Adam.
   The parameters are taken as they are. (Multiplying the output layer by 1e4 would carry over the
   function too, but that function is worse than the constant: MSE 0.4 to 90 variances.)
3. Three runs of ``--updates`` updates at gamma = 1 on the same batches:
   healthy: the network as it was initialised, before stage 1;
   revived: the dead network, with ``Reviver(rule="live", every=1000, until=updates / 2)``;
   not revived: the dead network.
   A fourth, longer healthy run also gets the updates of stage 1.

Errors are MSE in units of the target's variance. Revival succeeds if the mean error of the revived
networks is at most 1.05 times that of the healthy ones and if every seed beats its own run without.

    python benchmarks/revival.py [DATA.npz] [--updates 30000] [--seeds 10] [--first 0]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from record import record
from torch import nn

from relunorm.dying.revive.schedule import Reviver
from relunorm.dying.scale_sweep import STRETCH, Plan, Sweep, by_name
from relunorm.papers.dying.target_scales import load_tables

#: Where the batched runs go; the one-by-one runs of 200 units are faster on a CPU than on a GPU.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Errors = list[tuple[float, float]]  # per seed: on the training rows, held out


def prepare(
    tables, gamma: float, rule: str, seeds: tuple[int, ...], updates: int, device: str = DEVICE
) -> Sweep:
    """One ensemble with a member per seed."""
    plan = Plan(tuple(tables), (gamma,), (0.0,), by_name([rule]), seeds, updates=updates)
    return Sweep(plan, tables, device=device)


def parameters(sweep: Sweep) -> torch.Tensor:
    return torch.cat([part.ensemble.parameters for part in sweep.parts])


def kill(tables, seeds: tuple[int, ...], share: float) -> tuple[list[int], torch.Tensor]:
    """Stage 1: each seed's parameters at the first look with enough dead, and when that was."""
    sweep = prepare(tables, 1e-4, "adam beta1=0", seeds, 100_000)
    at, taken = [0] * len(seeds), list(parameters(sweep))
    while min(at) == 0 and sweep.done < sweep.plan.updates:
        for _ in range(500 // STRETCH):
            sweep._stretch()
        now = parameters(sweep)
        for k, row in enumerate(sweep.result().rows):
            if not at[k] and row[6] >= share:
                at[k], taken[k] = sweep.done, now[k].clone()
    if min(at) == 0:
        raise SystemExit(f"after {sweep.done} updates some seed has fewer than {share:.0%} dead")
    return at, torch.stack(taken)


def train(
    tables, held, seeds: tuple[int, ...], updates: int, flat: torch.Tensor | None = None
) -> Errors:
    """Stage 2 without revival, from the seeds' own initial weights or from ``flat``."""
    sweep = prepare(tables, 1.0, "adam", seeds, updates)
    at = 0
    for part in sweep.parts if flat is not None else ():
        count = len(part.ensemble.parameters)
        part.ensemble.parameters.copy_(flat[at : at + count])
        at += count
    inside = [row[5] for row in sweep.run().rows]
    outside = [
        float(v) for p in sweep.parts for v in p._on_rows(list(range(len(p.members))), *held)[0]
    ]
    return list(zip(inside, outside, strict=True))


def train_revived(
    tables, held, seed: int, updates: int, flat: torch.Tensor
) -> tuple[float, float, list[int]]:
    """Stage 2 with a `Reviver`, on the batches that seed has in `train`; errors and revived."""
    sweep = prepare(tables, 1.0, "adam", (seed,), updates, "cpu")
    x, y = sweep.x, sweep.y
    model = nn.Sequential(
        nn.Linear(x.shape[1], sweep.plan.hidden), nn.ReLU(), nn.Linear(sweep.plan.hidden, 1)
    )
    torch.nn.utils.vector_to_parameters(flat.cpu(), model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Reviver(
        model, x, optimizer, rule="live", every=1000, until=updates // 2, random_state=seed
    ) as reviver:
        for start in range(0, updates, STRETCH):
            picks = sweep._picks(start // STRETCH)[: updates - start, 0]
            for rows in picks:
                optimizer.zero_grad()
                (model(x[rows]) - y[rows]).square().mean().backward()
                optimizer.step()
                reviver.step()
    sides = ((x, y), (held[0].cpu(), held[1].cpu()))
    with torch.no_grad():
        inside, outside = (float((model(a) - b).double().square().mean()) for a, b in sides)
    return inside, outside, [revival.count for _, revival in reviver.history]


def split(tables) -> tuple[dict, tuple[torch.Tensor, torch.Tensor]]:
    """Four fifths to train on; the rest standardised as `Sweep` standardises the training rows."""
    (name, (x, y)), *_ = tables.items()
    order = np.random.default_rng(0).permutation(len(x))
    fit, rest = order[len(x) // 5 :], order[: len(x) // 5]
    spread = x[fit].std(0)
    held_x = (x[rest] - x[fit].mean(0)) / np.where(spread > 0, spread, 1.0)
    held_y = (y[rest] - y[fit].mean()) / y[fit].std()
    kind: dict = {"dtype": torch.float32, "device": DEVICE}
    held = torch.as_tensor(held_x, **kind), torch.as_tensor(held_y, **kind)[:, None]
    return {name: (x[fit], y[fit])}, held


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="friedman")
    parser.add_argument("--updates", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables, held = split(load_tables([options.data]))
    seeds = tuple(range(options.first, options.first + options.seeds))
    at, dead = kill(tables, seeds, 0.6)
    arms: dict[str, Errors] = {
        "healthy": train(tables, held, seeds, options.updates),
        "not revived": train(tables, held, seeds, options.updates, dead),
        "longer": train(tables, held, seeds, options.updates + max(at)),
        "revived": [],
    }
    try:
        for k, seed in enumerate(seeds):
            inside, outside, counts = train_revived(tables, held, seed, options.updates, dead[k])
            arms["revived"].append((inside, outside))
            print(
                f"seed {seed}: revived {counts}; {inside:.4g}, {outside:.4g} held out", flush=True
            )
    except KeyboardInterrupt:
        print(f"interrupted; the table has the first {len(arms['revived'])} seeds")
    done = len(arms["revived"])
    arms = {arm: errors[:done] for arm, errors in arms.items()}
    report(next(iter(tables)), seeds[:done], at, arms, options.updates)


def report(name: str, seeds: tuple[int, ...], at: list[int], arms, updates: int) -> None:
    shown = ("healthy", "revived", "not revived")
    rows = []
    for k, seed in enumerate(seeds):
        errors = [arms[arm][k][side] for side in (0, 1) for arm in shown]
        rows.append((seed, at[k], *errors, errors[1] < errors[2], errors[4] < errors[5]))
    means = {arm: np.mean(arms[arm], axis=0) for arm in arms}
    level = means["revived"] / means["healthy"]
    total = means["revived"] / means["longer"]
    wins = [sum(row[-2] for row in rows), sum(row[-1] for row in rows)]
    header = (
        "seed", "60% dead at", *(f"{arm}, train" for arm in shown),
        *(f"{arm}, held out" for arm in shown), "wins train", "wins held out",
    )  # fmt: skip
    record(
        f"revival after figure 1's regime, {name}",
        header,
        rows,
        note=f"Mean revived / mean healthy, {updates} updates each: {level[0]:.3f} on training "
        f"rows, {level[1]:.3f} held out; against a healthy run that also has the updates of stage "
        f"1: {total[0]:.3f} and {total[1]:.3f}. Better than without revival in {wins[0]} and "
        f"{wins[1]} of {len(rows)} seeds. On {DEVICE}.",
    )


if __name__ == "__main__":
    main()

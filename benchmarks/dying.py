"""Basin maps (ns a point-step, table), the monitor's cost, and batched against one-by-one training.

python benchmarks/dying.py [maps] [monitor] [ensemble]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from record import record
from torch import nn

from relunorm.dying import DeadUnitMonitor, basin
from relunorm.dying.sweep import Plan, Sweep, by_name
from relunorm.papers.dying import MEASURED
from relunorm.papers.regression_data import load_tables


def maps() -> None:
    basin(grid=11)  # compile
    rows = []
    for gamma in (1.0, 0.1, 0.01, 0.001):
        for beta in (0.0, 0.7, 0.8, 0.9, 0.95, 0.99):
            began = time.process_time()
            found = basin(gamma, beta)
            took = time.process_time() - began
            expected = MEASURED.get(gamma, {}).get(beta)
            gap = "" if expected is None else f"{found.optimum - expected:+.2f}"
            ns = took / found.point_steps * 1e9
            rows.append((gamma, beta, found.optimum, found.dead, found.moving, gap, took, ns))
    record(
        "basin maps, 201 x 201",
        (
            "gamma",
            "beta",
            "optimum %",
            "dead %",
            "moving %",
            "gap to table",
            "CPU s",
            "ns a point-step",
        ),
        rows,
        note="CPU seconds, one run each, one thread.",
    )


def monitor() -> None:
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))

    def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        return model, torch.optim.Adam(model.parameters())

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        began = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        return time.process_time() - began

    pair = trained(), trained()
    watch = DeadUnitMonitor(pair[1][0])
    for _ in range(20):
        step(*pair[0])
        step(*pair[1])
    plain, watched = [], []
    for turn in range(600):  # single steps in turn, so that a busy machine hits both alike
        order = (0, 1) if turn % 2 else (1, 0)
        took = {k: step(*pair[k]) for k in order}
        plain.append(took[0])
        watched.append(took[1])
    watch.close()
    a, b = float(np.median(plain)), float(np.median(watched))
    gap = float(np.median(np.subtract(watched, plain)))
    record(
        "monitor, MLP 784-512-512-10, batch 128, Adam",
        ("plain step ms", "watched step ms", "median of paired differences", "ratio of minima"),
        [(a * 1e3, b * 1e3, f"{gap / a:+.1%}", min(watched) / min(plain))],
        note="CPU seconds of 600 steps each of two equal models in turn, one thread.",
    )


def ensemble(members: int = 32) -> None:
    tables = load_tables(["friedman"])
    x, y = (np.asarray(v, dtype=np.float32) for v in tables["friedman"])
    tx, ty = torch.as_tensor(x), torch.as_tensor(y)[:, None]
    model = nn.Sequential(nn.Linear(x.shape[1], 200), nn.ReLU(), nn.Linear(200, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def one_by_one() -> float:
        began = time.process_time()
        for _ in range(100):
            pick = torch.randint(len(tx), (64,))
            optimizer.zero_grad()
            (model(tx[pick]) - ty[pick]).square().mean().backward()
            optimizer.step()
        return (time.process_time() - began) / 100

    plan = Plan(("friedman",), (1.0,), (0.0,), by_name(["adam"]), tuple(range(members)))
    sweep = Sweep(plan, tables)

    def batched() -> float:
        began = time.process_time()
        sweep._stretch()
        return (time.process_time() - began) / 100 / members

    single, together = [], []
    for _ in range(8):
        single.append(one_by_one())
        together.append(batched())
    a, b = float(np.median(single)), float(np.median(together))
    record(
        "figure 1's networks, batched against one by one",
        ("members", "one by one us", "batched us a member", "speed-up"),
        [(members, a * 1e6, b * 1e6, a / b)],
        note="CPU seconds per model-step, median of 8, one thread, 200 units, batch 64, Adam.",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or ["maps", "monitor", "ensemble"]
    for name in wanted:
        {"maps": maps, "monitor": monitor, "ensemble": ensemble}[name]()

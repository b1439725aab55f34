"""Basin maps (ns a point-step, table), what the monitor and young units cost a training step, and
batched against one-by-one training.

python benchmarks/dying.py [maps] [monitor] [resnet] [young] [ensemble] [--pairs 40]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from record import record
from torch import nn

from relunorm.dying import DeadUnitMonitor, basin
from relunorm.dying.revive.optimizer_state import FreshUnits
from relunorm.dying.scale_sweep import Plan, Sweep, by_name
from relunorm.papers.dying.target_scales import load_tables

#: Percent of [-2, 2]^2 reaching the optimum, measured apart from this code (docs/errata.md).
MEASURED = {
    1.0: {0.0: 62.4, 0.7: 64.5, 0.8: 66.8, 0.9: 72.0, 0.95: 77.3, 0.99: 84.3},
    0.1: {0.0: 58.0, 0.7: 57.6, 0.8: 58.3, 0.9: 48.4, 0.95: 43.8, 0.99: 24.6},
    0.001: {0.0: 14.2, 0.7: 8.3, 0.8: 0.1, 0.9: 0.1, 0.95: 0.1, 0.99: 0.0},
}


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


#: malloc of glibc gives freed memory back to the system, and a training step then faults its pages
#: in again, hundreds a step and at random. These settings keep the memory for both kinds of block.
KEEPING = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def monitor() -> None:
    """Steps of one model in turn with and without a monitor, in a process per allocator setting."""
    rows = []
    for label, extra in (("memory kept", KEEPING), ("glibc's default", {})):
        run = subprocess.run(
            [sys.executable, __file__, "blocks"], env={**os.environ, **extra},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        rows.append((label, *json.loads(run.stdout)))
    record(
        "monitor, MLP 784-512-512-10, batch 128, Adam",
        ("allocator", "plain step ms", "watched step ms", "median of block ratios", "95% interval",
         "ratio of minima", "page faults a step, plain and watched"),
        rows,
        note="CPU seconds of one thread, one model; 60 pairs of blocks of 100 steps (a window, so "
        "a block takes its held sums in once), with and without monitor in turn; the interval is "
        "that of the median by order statistics. Load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. No hardware counters on this "
        "machine, so no instruction counts.",
    )  # fmt: skip


def blocks(pairs: int = 60, steps: int = 100) -> None:
    """Measure in this process; one JSON line on stdout."""
    torch.manual_seed(0)
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    optimizer = torch.optim.Adam(model.parameters())

    def block(count: int) -> tuple[float, float]:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        began = time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        took = time.process_time() - began
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        return took / count * 1e3, faults / count

    def watched() -> tuple[float, float]:
        with DeadUnitMonitor(model):
            block(4)
            return block(steps)

    def plain() -> tuple[float, float]:
        block(4)
        return block(steps)

    block(50)
    found = []
    for turn in range(pairs):
        first, second = (plain, watched) if turn % 2 else (watched, plain)
        one, two = first(), second()
        found.append((one, two) if turn % 2 else (two, one))
    times, faults = np.moveaxis(np.array(found), 2, 0)
    ratios = np.sort(times[:, 1] / times[:, 0])
    reach = round(0.98 * np.sqrt(pairs))  # 1.96 deviations of a binomial with p = 1/2
    low, high = ratios[pairs // 2 - reach], ratios[pairs // 2 + reach]
    medians = np.median(times, axis=0)
    least = times.min(axis=0)
    print(json.dumps([
        *medians.tolist(), float(np.median(ratios)), f"{low:.3f} to {high:.3f}",
        float(least[1] / least[0]), " and ".join(f"{v:.0f}" for v in faults.mean(axis=0)),
    ]))  # fmt: skip


def paired(plain: Callable[[], float], other: Callable[[], float], pairs: int) -> tuple[Any, ...]:
    """Median milliseconds of both, median ratio, and its 95 % interval by order statistics."""
    found = []
    for turn in range(pairs):
        if turn % 2:
            one, two = plain(), other()
        else:
            two, one = other(), plain()
        found.append((one, two))
    times = np.array(found)
    ratios = np.sort(times[:, 1] / times[:, 0])
    reach = round(0.98 * np.sqrt(pairs))  # 1.96 deviations of a binomial with p = 1/2
    low, high = ratios[pairs // 2 - reach], ratios[min(pairs // 2 + reach, pairs - 1)]
    return *np.median(times, axis=0).tolist(), float(np.median(ratios)), f"{low:.3f} to {high:.3f}"


class Block(nn.Module):
    def __init__(self, a: int, b: int, stride: int):
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b))
        self.two = nn.Sequential(nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
        short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
        self.short = short if a != b else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.two(F.relu(self.one(x))) + self.short(x))


def resnet(pairs: int, steps: int = 20) -> None:
    """The monitor on a small residual CNN: nine rectifiers, eight of them functional."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 1, 16, 16), torch.randint(0, 10, (32,))
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())

    def block(count: int = steps) -> float:
        began = time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return (time.process_time() - began) / count * 1e3

    def watched() -> float:
        with DeadUnitMonitor(model):
            block(10)  # the first eight passes are watched call by call
            return block()

    def plain() -> float:
        block(10)
        return block()

    block(10)
    record(
        "monitor, residual CNN of four blocks, 16 x 16, batch 32, Adam",
        ("plain step ms", "watched step ms", "median of block ratios", "95% interval"),
        [paired(plain, watched, pairs)],
        note=f"CPU seconds of one thread, one model; {pairs} pairs of blocks of {steps} steps, "
        "with and without monitor in turn, after ten steps each. Load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
    )


def young(pairs: int, steps: int = 4) -> None:
    """A training step with hidden units young in Adam, and with none.

    One model for both, since two copies differ by up to a fifth by where they lie in memory. Short
    blocks, so that both of a pair find the machine equally busy. Batches that are always new: one
    learnt by heart leaves moments that decay to subnormal numbers, which are slow.
    """
    rows = [
        ("1,024 at once", *with_young(1, 512, None, pairs, steps)),
        ("1,024 in 8 revivals of 128", *with_young(8, 64, None, pairs, steps)),
        ("16 at once", *with_young(1, 8, None, pairs, steps)),
        ("1,024 at once, fused=True", *with_young(1, 512, True, pairs, steps)),
        ("1,024 in 8 revivals of 128, fused=True", *with_young(8, 64, True, pairs, steps)),
    ]
    record(
        "Adam with a thousand revived units, MLP 784-512-512-10, batch 128",
        ("revived", "plain step ms", "step ms with them", "median of block ratios", "95% interval"),
        rows,
        note=f"CPU seconds of one thread, one model a row; {pairs} pairs of blocks of {steps} "
        f"steps in turn. Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
    )


def with_young(
    times: int, each: int, fused: bool | None, pairs: int, steps: int
) -> tuple[Any, ...]:
    """`paired` for so many revivals of ``each`` units in both layers."""
    torch.manual_seed(0)
    data = torch.randn(200_000)
    layers: list[Any] = [nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)

    def block(count: int = steps) -> float:
        took = 0.0
        for _ in range(count):
            start = int(torch.randint(len(data) - 128 * 784, (1,)))
            x, y = data[start : start + 128 * 784].reshape(128, 784), torch.randint(10, (128,))
            began = time.process_time()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            took += time.process_time() - began
        return took / count * 1e3

    def renewed() -> float:
        fresh = FreshUnits(optimizer)
        for k in range(times):
            units = torch.arange(each * k, each * (k + 1))
            for layer, after in pairwise(layers):
                fresh.reset(layer.weight, (units,))
                fresh.reset(layer.bias, (units,))
                fresh.reset(after.weight, (slice(None), units))
            block(1)
        took = block()
        fresh.close()
        return took

    def plain() -> float:
        block(times)
        return block()

    block(10)
    return paired(plain, renewed, pairs)


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
    parts = {"maps": maps, "monitor": monitor, "resnet": lambda: resnet(given.pairs)}
    parts |= {"young": lambda: young(given.pairs), "ensemble": ensemble}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "part", nargs="*", help=f"{', '.join(parts)} (all by default); blocks: one run of monitor"
    )
    parser.add_argument("--pairs", type=int, default=40, help="of blocks, of resnet and young")
    given = parser.parse_args()
    wanted = given.part or list(parts)
    parts["blocks"] = blocks
    if unknown := set(wanted) - set(parts):
        parser.error(f"no part called {', '.join(sorted(unknown))}")
    for name in wanted:
        parts[name]()

"""Continual training on four streams that change, beside ReDo, continual backprop, layer norm and
shrink-and-perturb in our own plain versions.

python benchmarks/streams.py [report | ablations | fixed] [--streams targets ...] [--updates 1500]
    [--seeds 10] [--keep FILE ...]

Nobody is told when a stream changes. Defaults, and the settings of the others, were chosen on other
sizes of these streams with seeds 100-109 (docs/dying.md); the report uses seeds 20-29 (some of 0-5
had been looked at before). With --keep, results are kept in the first file, and those in any of the
files are not computed again. Streams, as long as ``--updates`` says:

targets   100 fixed inputs, tasks of 150 updates with fresh random targets; error: mean squared
          error over all inputs at the end of the last three tasks
permuted  digits, tasks of 150 updates, each with its own order of the pixels; error: share of
          wrong answers on each batch before it is learnt, over the last quarter
drifting  regression of a network of threshold units; one of 18 slow input bits flips every 40
          updates (after Dohare et al. 2024); error: squared error before learning, last quarter
bandit    ten-dimensional contexts, four arms whose rewards change every 250 updates, actions by the
          network itself, replay of 400; error: regret of the greedy arm, last quarter

The part ``fixed`` asks what the same methods do where nothing changes:

raw       400 rows, targets around 30 with deviation 25, SGD with momentum; error: mean squared
          error over the rows / variance
digits    1,397 rows, Adam; error: share of wrong answers on the other 400
smooth    300 rows of a smooth function, Adam whose rate falls to 0; error as in raw, on fresh rows
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from record import record
from sklearn.datasets import load_digits
from torch import Tensor, nn

from relunorm.dying import Reviver

UPDATES = 1500


def network(inputs: int, outputs: int, width: int, seed: int, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    sizes = (inputs, width, width)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), *([nn.LayerNorm(b)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class Peer:
    """Our own plain version of a method: called after every update with the batch's input."""

    def __init__(self, model: nn.Sequential, optimizer: torch.optim.Optimizer, seed: int):
        self.model, self.optimizer, self.count = model, optimizer, 0
        self.layers: list[Any] = [m for m in model if isinstance(m, nn.Linear)]
        self.gen = torch.Generator().manual_seed(seed)

    def fresh(self, layer: Any, tensor: Tensor) -> Tensor:
        """As torch initialises a linear layer."""
        bound = layer.in_features**-0.5
        return (torch.rand(tensor.shape, generator=self.gen) * 2 - 1) * bound

    def activations(self, x: Tensor) -> list[Tensor]:
        found = []
        for part in self.model:
            x = part(x)
            if isinstance(part, nn.ReLU):
                found.append(x)
        return found

    def replace(self, at: int, units: Tensor) -> None:
        """Draw the units anew: outgoing weights 0, moments of their entries 0."""
        layer, after = self.layers[at], self.layers[at + 1]
        layer.weight[units] = self.fresh(layer, layer.weight)[units]
        layer.bias[units] = self.fresh(layer, layer.bias)[units]
        after.weight[:, units] = 0.0
        for p, index in (
            (layer.weight, units), (layer.bias, units), (after.weight, (slice(None), units)),
        ):  # fmt: skip
            for name in ("exp_avg", "exp_avg_sq"):
                self.optimizer.state[p][name][index] = 0.0

    @torch.no_grad()
    def step(self, x: Tensor) -> None:
        self.count += 1
        self.after(x)

    def after(self, x: Tensor) -> None:
        """Nothing: plain training."""


class ReDo(Peer):
    """Sokar et al. 2023: scores on the batch at hand, every 100 updates."""

    tau, every = 0.1, 100

    def after(self, x: Tensor) -> None:
        if self.count % self.every:
            return
        for at, h in enumerate(self.activations(x)):
            size = h.abs().mean(0)
            units = (size <= self.tau * size.mean()).nonzero()[:, 0]
            if len(units):
                self.replace(at, units)


class Continual(Peer):
    """Dohare et al. 2024: 1e-3 of the mature units per update, those of least utility."""

    rate, maturity, decay = 1e-3, 100, 0.99

    def __init__(self, *given: Any):
        super().__init__(*given)
        widths = [layer.out_features for layer in self.layers[:-1]]
        self.utility, self.mean, self.age = ([torch.zeros(w) for w in widths] for _ in range(3))
        self.due = [0.0 for _ in widths]

    def after(self, x: Tensor) -> None:
        for at, h in enumerate(self.activations(x)):
            worth = h.abs().mean(0) * self.layers[at + 1].weight.abs().sum(0)
            self.utility[at].lerp_(worth, 1 - self.decay)
            self.mean[at].lerp_(h.mean(0), 1 - self.decay)
            self.age[at] += 1
            mature = (self.age[at] > self.maturity).nonzero()[:, 0]
            self.due[at] += self.rate * len(mature)
            count = int(self.due[at])
            if count:
                self.due[at] -= count
                scale = 1 - self.decay ** self.age[at]
                units = mature[(self.utility[at] / scale)[mature].argsort()[:count]]
                after = self.layers[at + 1]
                after.bias += after.weight[:, units] @ (self.mean[at] / scale)[units]
                self.replace(at, units)
                for table in (self.utility[at], self.mean[at], self.age[at]):
                    table[units] = 0.0


class ShrinkAndPerturb(Peer):
    """Ash and Adams 2020: every 100 updates a step towards a fresh draw."""

    share = 0.05

    def after(self, x: Tensor) -> None:
        if self.count % 100 == 0:
            for layer in self.layers:
                for p in (layer.weight, layer.bias):
                    p.lerp_(self.fresh(layer, p), self.share)


class Ours(Peer):
    """The library's `Reviver`, with its defaults unless told otherwise."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, *given: Any):
        super().__init__(*given)
        inputs = self.layers[0].in_features
        batch = torch.randn(32, inputs, generator=self.gen)
        self.reviver = Reviver(self.model, batch, self.optimizer, **self.options)

    def step(self, x: Tensor) -> None:
        self.reviver.step()


METHODS: dict[str, type[Peer]] = {
    "Reviver": Ours, "ReDo 0.1": ReDo, "continual backprop": Continual, "layer norm": Peer,
    "shrink 0.05": ShrinkAndPerturb,
}  # fmt: skip


class Learner:
    """A network, Adam, and the method that keeps it able to learn."""

    def __init__(self, method: str, kind: type[Peer], inputs: int, outputs: int, seed: int,
                 lr: float, width: int, momentum: float | None = None):  # fmt: skip
        self.model = network(inputs, outputs, width, seed, norm=method == "layer norm")
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.Adam(parameters, lr=lr, fused=True) if momentum is None
            else torch.optim.SGD(parameters, lr=lr, momentum=momentum)
        )  # fmt: skip
        self.keeper = kind(self.model, self.optimizer, seed + 7)

    def learn(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """One update; the outputs from before it."""
        outputs = self.model(x)
        self.optimizer.zero_grad()
        loss(outputs).backward()
        self.optimizer.step()
        self.keeper.step(x)
        return outputs.detach()

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        return self.model(x)


def targets(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    rows, inputs, length = (80, 20, 180) if dev else (100, 12, 150)
    gen = torch.Generator().manual_seed(seed)
    learner = make(inputs, 1, lr=1e-2)
    x, errors = torch.randn(rows, inputs, generator=gen), []
    for _ in range(UPDATES // length):
        y = torch.randn(rows, 1, generator=gen)
        for _ in range(length):
            pick = torch.randint(rows, (32,), generator=gen)
            learner.learn(x[pick], lambda out, y=y[pick]: F.mse_loss(out, y))
        errors.append(float(F.mse_loss(learner(x), y)))
    return float(np.mean(errors[-3:]))


def permuted(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    length = 120 if dev else 150
    x, y = load_digits(return_X_y=True)
    table, labels = torch.tensor(x / 16 - 0.3, dtype=torch.float32), torch.tensor(y)
    gen = torch.Generator().manual_seed(seed + 1000)
    learner, wrong = make(64, 10, lr=5e-3), []
    for _ in range(UPDATES // length):
        order = torch.randperm(64, generator=gen)
        for _ in range(length):
            pick = torch.randint(len(table), (32,), generator=gen)
            truth = labels[pick]
            out = learner.learn(table[pick][:, order],
                                lambda out, y=truth: F.cross_entropy(out, y))  # fmt: skip
            wrong.append(float((out.argmax(1) != truth).float().mean()))
    return float(np.mean(wrong[-UPDATES // 4 :]))


def drifting(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    inputs, slow, flip = (20, 15, 50) if dev else (24, 18, 40)
    gen = torch.Generator().manual_seed(seed + 2000)
    signs = torch.randint(0, 2, (inputs + 1, 100), generator=gen) * 2.0 - 1
    out = (torch.randint(0, 2, (100, 1), generator=gen) * 2.0 - 1) / 10
    level = 0.7 * (inputs + 1) - (signs < 0).sum(0)
    bits = torch.randint(0, 2, (slow,), generator=gen).float()
    learner, errors = make(inputs, 1, lr=1e-2), []
    for step in range(UPDATES):
        if step % flip == 0:
            at = int(torch.randint(slow, (1,), generator=gen))
            bits[at] = 1 - bits[at]
        fast = torch.randint(0, 2, (16, inputs - slow), generator=gen).float()
        x = torch.cat([bits.expand(16, -1), fast], 1)
        y = (torch.cat([x, torch.ones(16, 1)], 1) @ signs > level).float() @ out
        errors.append(float(F.mse_loss(learner.learn(x, lambda o, y=y: F.mse_loss(o, y)), y)))
    return float(np.mean(errors[-UPDATES // 4 :]))


def bandit(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    inputs, arms, change, memory = (8, 5, 300, 500) if dev else (10, 4, 250, 400)
    gen = torch.Generator().manual_seed(seed + 3000)
    learner, regret = make(inputs, arms, lr=5e-3), []
    seen_x, seen_r = torch.zeros(memory, inputs), torch.zeros(memory)
    seen_a = torch.zeros(memory, dtype=torch.long)
    for step in range(UPDATES):
        if step % change == 0:
            a = 2 * torch.randn(inputs, 32, generator=gen) / math.sqrt(inputs)
            b = 2 * torch.randn(32, arms, generator=gen) / math.sqrt(32)
        x = torch.randn(4, inputs, generator=gen)
        reward = torch.tanh(x @ a) @ b
        greedy = learner(x).argmax(1)
        explore = torch.rand(4, generator=gen) < 0.1
        arm = torch.where(explore, torch.randint(arms, (4,), generator=gen), greedy)
        rows = torch.arange(4)
        regret.append(float((reward.amax(1) - reward[rows, greedy]).mean()))
        place = (4 * step + rows) % memory
        noise = 0.1 * torch.randn(4, generator=gen)
        seen_x[place], seen_a[place], seen_r[place] = x, arm, reward[rows, arm] + noise
        pick = torch.randint(min(memory, 4 * step + 4), (32,), generator=gen)
        arm, r = seen_a[pick], seen_r[pick]
        learner.learn(seen_x[pick], lambda out, arm=arm, r=r: F.mse_loss(
            out.gather(1, arm[:, None])[:, 0], r))  # fmt: skip
    return float(np.mean(regret[-UPDATES // 4 :]))


def raw(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    gen = torch.Generator().manual_seed(seed + 4000)
    x = torch.randn(400, 6, generator=gen)
    y = (30 + 20 * (x[:, 0].abs() + x[:, 1] * x[:, 2]))[:, None]
    learner = make(6, 1, lr=3e-4, momentum=0.9)
    for _ in range(UPDATES):
        pick = torch.randint(400, (32,), generator=gen)
        learner.learn(x[pick], lambda out, y=y[pick]: F.mse_loss(out, y))
    return float(F.mse_loss(learner(x), y) / y.var())


def digits(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    x, y = load_digits(return_X_y=True)
    table, labels = torch.tensor(x / 16 - 0.3, dtype=torch.float32), torch.tensor(y)
    gen = torch.Generator().manual_seed(seed + 5000)
    order = torch.randperm(len(table), generator=gen)
    rest, rows = order[:400], order[400:]
    learner = make(64, 10, lr=5e-3)
    for _ in range(UPDATES):
        pick = rows[torch.randint(len(rows), (32,), generator=gen)]
        learner.learn(table[pick], lambda out, y=labels[pick]: F.cross_entropy(out, y))
    return float((learner(table[rest]).argmax(1) != labels[rest]).float().mean())


def smooth(make: Callable[..., Learner], seed: int, dev: bool) -> float:
    gen = torch.Generator().manual_seed(seed + 6000)

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(count, 3, generator=gen) * 2 - 1
        return x, torch.sin(3 * x[:, :1]) * x[:, 1:2] + x[:, 2:].square()

    (x, y), (new, truth) = draw(300), draw(1000)
    learner = make(3, 1, lr=1e-2)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(learner.optimizer, UPDATES)
    for _ in range(UPDATES):
        pick = torch.randint(300, (32,), generator=gen)
        learner.learn(x[pick], lambda out, y=y[pick]: F.mse_loss(out, y))
        falling.step()
    return float(F.mse_loss(learner(new), truth) / truth.var())


STREAMS = {"targets": targets, "permuted": permuted, "drifting": drifting, "bandit": bandit}
FIXED = {"raw": raw, "digits": digits, "smooth": smooth}


Kept = dict[str, list[float]]


def run(methods: dict[str, type[Peer]], seeds: range, dev: bool, given: Any) -> Kept:
    """Error and CPU seconds by stream, method and seed."""
    kept: Kept = {}
    for file in map(Path, given.keep):
        kept.update(json.loads(file.read_text()) if file.exists() else {})
    for seed in seeds:
        for stream in given.streams:
            for name, kind in methods.items():
                key = f"{stream} {name} {seed}"
                if key in kept:
                    continue

                def make(inputs: int, outputs: int, name=name, kind=kind, seed=seed, **rest: Any):
                    width = 96 if dev else 64
                    return Learner(name, kind, inputs, outputs, seed, width=width, **rest)

                began = time.process_time()
                error = {**STREAMS, **FIXED}[stream](make, seed, dev)
                kept[key] = [error, time.process_time() - began]
                if given.keep:
                    Path(given.keep[0]).write_text(json.dumps(kept))
    return kept


def table(title: str, methods: dict[str, type[Peer]], seeds: range, dev: bool, note: str,
          given: Any) -> None:  # fmt: skip
    kept = run(methods, seeds, dev, given)
    rows = []
    for name in methods:
        found = {s: np.array([kept[f"{s} {name} {seed}"] for seed in seeds]) for s in given.streams}
        cells = [
            "{1:.4g} ({0:.3g} to {2:.3g})".format(*np.quantile(f[:, 0], [0.25, 0.5, 0.75]))
            for f in found.values()
        ]
        rows.append((name, *cells, float(np.mean([f[:, 1].mean() for f in found.values()]))))
    record(title, ("method", *given.streams, "CPU s a run"), rows, note=note)


def report(given: Any) -> None:
    table(
        "streams that change, 2 x 64 units, Adam", METHODS, range(20, 20 + given.seeds), False,
        f"Median final error over seeds 20-{19 + given.seeds} (quartiles), lower is better; one "
        f"thread, {UPDATES:,} updates. Every setting was chosen on seeds from 100 on and streams "
        "of other sizes.", given,
    )  # fmt: skip


def with_options(kind: type[Ours], **options: Any) -> type[Peer]:
    return type("Variant", (kind,), {"options": options})


def variant(**options: Any) -> type[Peer]:
    return with_options(Ours, **options)


class OldState(Ours):
    """Moments as they are: no renewed optimizer state."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.reviver.fresh = None


class ZeroedState(Ours):
    """Moments zeroed under the tensor's one step count, as in ReDo."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        fresh = self.reviver.fresh
        assert fresh is not None
        forget = fresh.reset

        def reset(parameter: Tensor, index: tuple[Any, ...]) -> None:
            forget(parameter, index)
            fresh.close()

        fresh.reset = reset


class OneBatch(ReDo):
    """ReDo as published, but as often and as cautious as `Reviver`."""

    tau, every = 0.025, 50


class ManyBatches(ReDo):
    """ReDo with scores over the batches since the last time."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.sums: list[Any] = [0.0 for _ in self.layers[:-1]]

    def after(self, x: Tensor) -> None:
        for at, h in enumerate(self.activations(x)):
            self.sums[at] = self.sums[at] + h.abs().mean(0)
        if self.count % self.every == 0:
            for at, size in enumerate(self.sums):
                units = (size <= self.tau * size.mean()).nonzero()[:, 0]
                if len(units):
                    self.replace(at, units)
                self.sums[at] = 0.0


def ablations(given: Any) -> None:
    plain = {"pull": 0.0}
    methods = {
        "Reviver (every 50, tau 0.025, pull 0.3)": Ours,
        "pull 0.1": variant(pull=0.1), "pull 0.5": variant(pull=0.5),
        "no pull": variant(**plain), "no pull, moments kept": with_options(OldState, **plain),
        "no pull, moments zeroed, one count": with_options(ZeroedState, **plain),
        "no pull, tau 0.1": variant(tau=0.1, **plain),
        "no pull, every 500": variant(every=500, **plain),
        "dead units only (rule live)": variant(rule="live"),
        "ReDo 0.1": ReDo, "ReDo 0.1, scores over all batches": ManyBatches,
        "ReDo 0.025, every 50": OneBatch, "none": Peer,
    }  # fmt: skip
    table(
        "streams that change: what matters", methods, range(100, 100 + given.seeds), True,
        f"Median final error over development seeds 100-{99 + given.seeds} (quartiles) on the "
        "development sizes, 2 x 96 units.", given,
    )  # fmt: skip


def fixed(given: Any) -> None:
    given.streams = list(FIXED)
    methods = {
        "none": Peer, "Reviver": Ours, "Reviver, no pull": variant(pull=0.0),
        "Reviver, rule live": variant(rule="live"),
    }  # fmt: skip
    table(
        "data that stay the same, 2 x 64 units", methods, range(20, 20 + given.seeds), False,
        f"Median final error over seeds 20-{19 + given.seeds} (quartiles), lower is better; "
        f"{UPDATES:,} updates. Nothing was chosen on these.", given,
    )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    parts = {"report": report, "ablations": ablations, "fixed": fixed}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("part", nargs="?", default="report", choices=parts)
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=STREAMS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", nargs="+", default=[])
    parser.add_argument("--updates", type=int, default=UPDATES)
    arguments = parser.parse_args()
    UPDATES = arguments.updates
    parts[arguments.part](arguments)

"""The trainings behind figure 6 of seed 002: deeper networks at a small target scale, all seeds of
a setting side by side.

The loss is the sum of the seeds' losses, so each one's gradient is its own, and SGD and Adam make
for each the updates it would make alone. Batch norm takes the statistics of the batch, in training
and when dead units are counted over all rows, so that the start and the end have one measure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from relunorm.dying.target import TargetScaler
from relunorm.dying.watch.monitor import DeadUnitMonitor

#: Updates whose batches are drawn at once.
STRETCH = 100
#: (kind, optimizer, depth).
Setting = tuple[str, str, int]
#: Shares of dead units in the worst layer, one per seed: at the start, after a third of the
#: updates, at the end.
Deaths = tuple[list[float], list[float], list[float]]


@dataclass(frozen=True)
class DeepPlan:
    """What to train: every network kind, optimizer and depth, with every seed."""

    kinds: tuple[str, ...] = ("mlp", "residual")
    optimizers: tuple[str, ...] = ("adam", "sgd")
    depths: tuple[int, ...] = (1, 2, 4, 8)
    seeds: tuple[int, ...] = tuple(range(8))
    width: int = 64
    batch: int = 64
    updates: int = 3000
    gamma: float = 1e-4

    @property
    def settings(self) -> list[Setting]:
        return [(k, o, d) for k in self.kinds for o in self.optimizers for d in self.depths]


class Block(nn.Module):
    """x + W relu(BN(x)): normalisation stands before the rectifier."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(width, track_running_stats=False)
        self.act, self.linear = nn.ReLU(), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.act(self.norm(x)))


def network(kind: str, inputs: int, width: int, depth: int, seed: int) -> nn.Module:
    """A perceptron of ``depth`` hidden layers, or a linear layer, ``depth`` residual blocks and a
    linear layer; weights and biases uniform within 1/sqrt(fan-in), as in Appendix A."""
    parts: list[nn.Module] = []
    if kind == "mlp":
        for a, b in pairwise([inputs, *[width] * depth]):
            parts += [nn.Linear(a, b), nn.ReLU()]
    else:
        parts = [nn.Linear(inputs, width), *(Block(width) for _ in range(depth))]
    model = nn.Sequential(*parts, nn.Linear(width, 1))
    gen = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for parameter in (module.weight, module.bias):
                parameter.data = (torch.rand(parameter.shape, generator=gen) * 2 - 1) * bound
    return model


def train_deep(
    plan: DeepPlan, x: NDArray[np.float64], y: NDArray[np.float64]
) -> dict[Setting, Deaths]:
    """Train every setting; x and y are raw and standardised here, the targets to scale gamma."""
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    scaled = TargetScaler(plan.gamma).fit_transform(np.asarray(y, dtype=np.float64))
    inputs, targets = (torch.as_tensor(v, dtype=torch.float32) for v in (x, scaled[:, None]))
    return {setting: _deaths(plan, setting, inputs, targets) for setting in plan.settings}


def batches(plan: DeepPlan, rows: int, stretch: int) -> Tensor:
    """Row numbers (STRETCH, seeds, batch)."""
    drawn = [
        np.random.default_rng([seed, stretch, 6]).integers(0, rows, (STRETCH, plan.batch))
        for seed in plan.seeds
    ]
    return torch.as_tensor(np.stack(drawn, axis=1))


class Training:
    """All seeds of one setting, their parameters stacked along a first axis."""

    def __init__(self, plan: DeepPlan, setting: Setting, x: Tensor, y: Tensor):
        kind, optimizer, depth = setting
        self.plan, self.x, self.y = plan, x, y
        self.members = [network(kind, x.shape[1], plan.width, depth, s) for s in plan.seeds]
        self.values: dict[str, Any] = stack_module_state(self.members)[0]
        self.rule: torch.optim.Optimizer = (
            torch.optim.Adam(self.values.values(), lr=1e-3)
            if optimizer == "adam"
            else torch.optim.SGD(self.values.values(), lr=1e-2)
        )
        base = self.members[0]
        self.outputs = vmap(lambda values, x: functional_call(base, values, (x,)))

    def advance(self, done: int, until: int) -> None:
        """The updates from ``done`` to ``until``."""
        drawn = torch.empty(0)
        for at in range(done, until):
            if at % STRETCH == 0 or at == done:
                drawn = batches(self.plan, len(self.x), at // STRETCH)
            rows = drawn[at % STRETCH]
            error = self.outputs(self.values, self.x[rows]) - self.y[rows]
            self.rule.zero_grad()
            error.square().mean((1, 2)).sum().backward()
            self.rule.step()

    def networks(self) -> list[nn.Module]:
        """The networks as they are now."""
        for k, member in enumerate(self.members):
            member.load_state_dict({name: value[k] for name, value in self.values.items()})
        return self.members

    def worst(self) -> list[float]:
        """Per seed the largest share of a layer's units that are off on all rows."""
        found = []
        for member in self.networks():
            with DeadUnitMonitor(member) as monitor, torch.no_grad():
                member(self.x)
            found.append(max(float(site.dead.mean()) for site in monitor.report().sites))
        return found


def _deaths(plan: DeepPlan, setting: Setting, x: Tensor, y: Tensor) -> Deaths:
    training, third = Training(plan, setting, x, y), plan.updates // 3
    born = training.worst()
    training.advance(0, third)
    early = training.worst()
    training.advance(third, plan.updates)
    return born, early, training.worst()

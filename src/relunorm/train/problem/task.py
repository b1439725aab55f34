"""What every solver is given and what it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relunorm.clock import NO_LIMIT, Clock, Listener, Teller

Constraint = Literal["tight", "bounded", "unit"]

#: Multiplications a second on one modest core, for the size of steps before any was measured.
SPEED = 4e9


@dataclass(frozen=True)
class Penalty:
    """alpha |c|^2 + affine |S|^2 beside the mean squared error: output weights and slopes."""

    alpha: float
    affine: float = 0.0


@dataclass(frozen=True)
class Start:
    """A network in the units of a task.

    Attributes:
        layers: (w, b) of every hidden layer, rows of length 1.
        bias: (m,), skip: (m, d), output: (m, K_L).
    """

    layers: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    bias: NDArray[np.float64]
    skip: NDArray[np.float64]
    output: NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """A regression problem in normalized units.

    Attributes:
        x: (n, d) inputs with mean 0 and deviation 1.
        y: (n, m) targets, likewise.
        weight: (n,) positive row weights.
        hidden: ReLU units per hidden layer.
        constraint: how the hidden rows and thresholds are bounded; None for not at all.
        alpha: penalty alpha * |c|^2 on the output weights of the last hidden layer, beside the mean
            squared error; None to choose it by hold-out.
        affine: penalty affine * |S|^2 on the slopes of the affine part; chosen too without alpha.
        skip: whether the output also reads x.
        rounds: restarts or improvement rounds; None for the solver's own number, or as many as the
            time allows where a time limit is set.
        clock: when to stop.
        seed: of every random choice.
        logistic: whether y holds classes (one column for two of them, else one a class, 0 or 1)
            and the error is the log-loss of the outputs.
        start: the network to go on from, or None.
        watch: rows held out for early stopping, or None.
        progress: called with a `Progress`: the stage and the share done; its fact is the best
            ``loss`` so far.
        options: for one solver only (batch size, learning rate, ...).
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    hidden: tuple[int, ...]
    constraint: Constraint | None = "tight"
    alpha: float | None = None
    affine: float = 0.0
    skip: bool = True
    rounds: int | None = None
    clock: Clock = NO_LIMIT
    seed: int = 0
    logistic: bool = False
    start: Start | None = None
    watch: Watch | None = None
    progress: Listener | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def affordable(self, share: float) -> float:
        """Normal equations over all rows that fit into a share of the time limit; an estimate."""
        sizes = (self.x.shape[1], *self.hidden)
        parameters = sum((a + 1) * b for a, b in pairwise(sizes))
        return share * self.clock.limit * SPEED / (parameters**2 * len(self.x))

    def generator(self, stream: int = 0) -> torch.Generator:
        """A fresh generator; different streams of one task are independent."""
        seed = int(np.random.SeedSequence([self.seed, stream]).generate_state(1, np.uint64)[0])
        return torch.Generator(device=self.x.device).manual_seed(seed & (2**63 - 1))

    def rows(self, keep: Tensor) -> Task:
        """The same task on some of the rows."""
        return replace(self, x=self.x[keep], y=self.y[keep], weight=self.weight[keep])

    def with_fresh_watch(self) -> Task:
        """The same task, its watch without memory of another fit."""
        if self.watch is None:
            return self
        return replace(self, watch=replace(self.watch, best=None, curve=[], idle=0))

    def report(self, stage: str, share: float, loss: float) -> None:
        """Tell the listener, if there is one; the share is NaN where nobody knows it."""
        known = not math.isnan(share)
        tell = Teller(self.progress, self.clock)
        tell(stage, share if known else 0.0, 1.0 if known else None, loss=loss)

    @property
    def spent(self) -> bool:
        """Whether the time limit has passed."""
        return self.clock.expired()


@dataclass(eq=False)
class Watch:
    """Rows held out of a fit: what does best on them is kept, and no progress on them ends it.

    Attributes:
        x, y, weight: the rows.
        patience: how many looks in a row without a new best end the fit.
        logistic: as in the task.
        best: the best candidate so far, whatever the solver makes it of.
        curve: error at every look.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    patience: int
    logistic: bool = False
    best: Any = None
    curve: list[float] = field(default_factory=list)
    idle: int = 0

    @classmethod
    def over(cls, task: Task, count: int, patience: int) -> Task:
        """The task without ``count`` of its rows, and a watch over these."""
        order = torch.randperm(len(task.x), generator=task.generator(95), device=task.x.device)
        held, kept = order[:count], order[count:].sort().values
        watch = cls(task.x[held], task.y[held], task.weight[held], patience, task.logistic)
        return replace(task.rows(kept), watch=watch)

    def look(self, candidate: Any, outputs: Tensor) -> bool:
        """Note a candidate with its outputs on the rows; True if the fit should end."""
        losses = row_losses(outputs, self.y, self.logistic)
        error = float(self.weight @ losses.to(self.weight.dtype) / self.weight.sum())
        better = not self.curve or error < min(self.curve)
        self.curve.append(error)
        if better:
            self.best = candidate
        self.idle = 0 if better else self.idle + 1
        return self.over_now

    @property
    def over_now(self) -> bool:
        """Whether patience has run out."""
        return self.idle >= self.patience


def row_losses(outputs: Tensor, y: Tensor, logistic: bool) -> Tensor:
    """(..., n) squared errors, summed over outputs, or log-losses.

    >>> row_losses(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.0]]), True).exp()
    tensor([3.])
    """
    if not logistic:
        return (outputs - y).square().sum(dim=-1)
    if y.shape[-1] == 1:
        return (torch.nn.functional.softplus(outputs) - y * outputs).squeeze(-1)
    return -(y * outputs.log_softmax(dim=-1)).sum(dim=-1)


@dataclass(frozen=True)
class Fit(Start):
    """A solver's answer in the task's units; its rows may have any length.

    Attributes:
        loss: weighted mean squared error, summed over outputs, without penalty.
        curve: loss after every iteration or round.
        iterations: how many there were.
        alpha: the penalty that was used.
        affine: that on the slopes of the affine part.
        lower_bound: no network of this size has a smaller ``loss``; None if not certified.
        stopped: "" if the solver ended by itself, else "time limit" or "interrupted".
        watched: error on the rows held out for early stopping, step by step.
        facts: further numbers worth showing.
    """

    loss: float
    curve: list[float]
    iterations: int
    alpha: float = 0.0
    affine: float = 0.0
    lower_bound: float | None = None
    stopped: str = ""
    watched: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def assemble(
    layers: list[tuple[Tensor, Tensor]], weights: Tensor, task: Task, loss: float, **rest: Any
) -> Fit:
    """A `Fit` from hidden layers and the output layer's weights with rows (a, [S], c).

    Args:
        layers: (w, b) of one member.
        weights: (q, m) for that member.
        loss: its weighted sum of squares.
    """
    d, m = task.x.shape[1], task.y.shape[1]
    table = weights.cpu().numpy()
    first = 1 + d * task.skip
    return Fit(
        layers=[(w.cpu().numpy().copy(), b.cpu().numpy().copy()) for w, b in layers],
        bias=table[0].copy(),
        skip=table[1:first].T.copy() if task.skip else np.zeros((m, d)),
        output=table[first:].T.copy(),
        loss=loss / float(task.weight.sum()),
        watched=[] if task.watch is None else task.watch.curve,
        **rest,
    )

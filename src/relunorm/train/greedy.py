"""Solver ``greedy``: one hidden layer, any number of inputs.

Units are chosen one by one from a sample of the reduced parameter space, moved together by variable
projection + Levenberg-Marquardt, and then exchanged in rounds: drop a few that contribute little,
grow others on what is left, move all, keep what is better.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock
from relunorm.errors import InvalidInputError
from relunorm.train.dictionary import greedy_units, revived, sample_units
from relunorm.train.holdout import SHARE, Clean, decide
from relunorm.train.lm import minimize
from relunorm.train.shallow import Bounds, ShallowProblem
from relunorm.train.task import Fit, Penalty, Task, assemble

#: Candidates sampled per greedy run, rows they are scored on, exchanges tried per round.
CANDIDATES, SCORED_ROWS, EXCHANGES = 300, 4000, 4


def solve_greedy(task: Task) -> Fit:
    """A shallow network by greedy growth, joint refinement and exchange of units.

    An estimate (local search). Cost per round about O(n (K d)^2); no cost grows faster than the
    rows. Without ``alpha`` the penalty is chosen by hold-out.
    """
    if len(task.hidden) != 1:
        raise InvalidInputError(
            f"solver 'greedy' fits one hidden layer, but hidden={task.hidden}; use solver='deep'"
        )
    units = min(_free_units(task), max(1, len(task.x) // 2))
    task, stopped = decide(task, _predictions, Clean(), slopes=True)
    search = _Search(task, units)
    search.stopped = stopped
    try:
        task.report("penalty", 0.2, float("nan"))
        search.start()
        search.run()
    except KeyboardInterrupt:
        search.interrupt()
    return search.fit()


def _free_units(task: Task) -> int:
    """Units that are not spent on the affine part; without a skip it takes d + 1 (2.10)."""
    spent = 0 if task.skip else task.x.shape[1] + 1
    free = task.hidden[0] - spent
    if free < 1:
        raise InvalidInputError(
            f"hidden={task.hidden[0]} leaves no unit beside the {spent} that carry the affine part "
            f"of {task.x.shape[1]} inputs; use more units, or skip=True"
        )
    return free


def _problem(task: Task, ridge: float | Tensor, affine: float | Tensor) -> ShallowProblem:
    bounds = Bounds.around(task.x, task.constraint or "unit")
    return ShallowProblem(task.x, task.y, bounds, task.weight, ridge, affine)


def _grow(
    task: Task, count: int, stream: torch.Generator, kept=None, until: float = 0.8
) -> tuple[Tensor, Tensor]:
    """Greedy choice, scored on a subsample of the rows where there are many.

    Args:
        until: share of the time limit after which the units that are missing are random ones.
    """
    x, y, root = task.x, task.y, task.weight.sqrt()
    if len(x) > SCORED_ROWS:
        pick = torch.randint(len(x), (SCORED_ROWS,), generator=stream, device=x.device)
        x, y, root = x[pick], y[pick], root[pick]
    candidates = CANDIDATES + 2 * count
    return greedy_units(
        x, y, root, count, candidates, stream, kept, task.affine, task.clock.until(until)
    )


def _predictions(task: Task, tried: tuple[Penalty, ...], x: Tensor) -> Tensor:
    """Held-out predictions of one start refined under every penalty at once.

    One start for every penalty of the affine part: what a free plane leaves is not what a
    penalized one does.
    """
    units = min(_free_units(task), max(1, len(task.x) // 2))
    affine = [penalty.affine for penalty in tried]
    grown = {
        value: _grow(replace(task, affine=value), units, task.generator(5), until=SHARE)
        for value in set(affine)
    }
    count = len(tried)
    ridge = task.x.new_tensor([penalty.alpha for penalty in tried])
    problem = _problem(task, ridge, task.x.new_tensor(affine))
    start = tuple(torch.stack([grown[value][k] for value in affine]) for k in (0, 1))
    found = minimize(problem, start, iterations=6, clock=task.clock.until(SHARE))
    if found.interrupted:
        raise KeyboardInterrupt
    weights, _ = problem.output(found.point)
    w, b = found.point
    hidden = (x @ w.mT + b[:, None]).clamp_min(0)
    shared = torch.cat([torch.ones_like(x[:, :1]), x], dim=1).expand(count, -1, -1)
    return torch.cat([shared, hidden], dim=2) @ weights


class _Search:
    """The best units so far."""

    def __init__(self, task: Task, units: int):
        self.task, self.units = task, units
        self.problem = _problem(task, task.alpha or 0.0, task.affine)
        self.stream = task.generator(6)
        self.curve: list[float] = []
        self.iterations, self.stopped, self.loss = 0, "", float("inf")
        #: Seconds of one step of one member.
        self.pace = 0.0
        self.w = self.b = torch.empty(0)

    def start(self) -> None:
        """Greedy growth and the first refinement."""
        w, b = _grow(self.task, self.units, self.stream)
        # interrupted before there was any network: a few steps only
        self._refine(w[None], b[None], 3 if self.stopped else 30)

    def interrupt(self) -> None:
        """Stop with what there is; if that is nothing, with random live units."""
        self.stopped = INTERRUPTED
        if not self.curve:
            w, b = sample_units(self.task.x, self.units, self.stream)
            self._refine(w[None], b[None], 0)

    def run(self) -> None:
        """Exchange rounds until the rounds or the time are spent."""
        rounds = self.task.rounds
        if rounds is None:
            rounds = 10**9 if self.task.clock.limited else self._own_rounds
        for done in range(rounds):
            if self.stopped or self.loss <= 1e-14 * self.problem.energy:
                return
            # fewer exchanges where so many could not even take two steps
            left = self.task.clock.left()
            members = int(min(EXCHANGES, left / (3 * self.pace)))
            if members < 1:
                self.stopped = TIME_LIMIT
                return
            starts = [self._exchange() for _ in range(members)]
            self._refine(
                torch.stack([s[0] for s in starts]), torch.stack([s[1] for s in starts]), 15
            )
            share = float("nan") if rounds > 1e6 else (done + 1) / rounds
            self.task.report("exchange", share, self.curve[-1])

    @property
    def _own_rounds(self) -> int:
        return 4 if self.w.numel() <= 120 else 2

    def _refine(self, w: Tensor, b: Tensor, iterations: int) -> None:
        b = self.problem.bounds.clip(w, b)
        clock = Clock(self.task.clock)
        found = minimize(self.problem, (w, b), iterations=iterations, clock=clock)
        self.pace = (clock.elapsed() + 1e-9) / (len(w) * (found.iterations + 1))
        self.iterations += found.iterations
        if found.interrupted:
            self.stopped = INTERRUPTED
        best = int(found.loss.argmin())
        if float(found.loss[best]) < self.loss or not self.curve:
            self.loss = float(found.loss[best])
            self.w, self.b = found.point[0][best], found.point[1][best]
        self.curve.append(self.loss / float(self.task.weight.sum()))

    def _exchange(self) -> tuple[Tensor, Tensor]:
        """Drop a few units, rather those that contribute little, and grow as many others."""
        most = max(1, min(6, self.units // 2))
        count = 1 + int(torch.randint(most, (), generator=self.stream, device=self.w.device))
        share = self.problem.contributions((self.w[None], self.b[None]))[0]
        odds = 1 / (share + 0.1 * share.median() + 1e-300)
        drop = torch.multinomial(odds / odds.amax(), count, generator=self.stream)
        keep = torch.ones(self.units, dtype=torch.bool, device=self.w.device)
        keep[drop] = False
        kept = self.w[keep], self.b[keep]
        w, b = _grow(self.task, count, self.stream, kept)
        return torch.cat([kept[0], w]), torch.cat([kept[1], b])

    def fit(self) -> Fit:
        """The answer, every unit live, with the affine part as units where there is no skip.

        A unit may leave the data, though not their box, while others gain. Back among the rows it
        cannot raise the penalized loss, whatever it does there: its weight is fitted anew.
        """
        self.b = revived(self.task.x, self.w, self.b, self.stream)
        weights, loss = self.problem.output((self.w[None], self.b[None]))
        table, layer = weights[0], (self.w, self.b)
        if not self.task.skip:
            table, layer = _affine_as_units(table, layer, self.problem.bounds)
        return assemble(
            [layer],
            table,
            self.task,
            float(loss[0]),
            curve=self.curve,
            iterations=self.iterations,
            alpha=float(self.task.alpha or 0.0),
            affine=self.task.affine,
            stopped=self.stopped,
        )


def _affine_as_units(
    table: Tensor, layer: tuple[Tensor, Tensor], bounds: Bounds
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """a + S x on the box as d + 1 always-active units and no bias.

    With directions e_1, .., e_d and -(1, .., 1)/sqrt(d) and thresholds at the end of their
    interval the d + 1 affine functions are independent, so they span all of them.
    """
    w, b = layer
    d = w.shape[1]
    spread = torch.cat([torch.eye(d, dtype=w.dtype, device=w.device), -w.new_ones(1, d) / d**0.5])
    tight = Bounds("tight", bounds.center, bounds.halfwidth.clamp_min(1e-3))
    top = tight.interval(spread)[1]
    # column k of `span` holds unit k as (constant, slopes)
    span = torch.cat([top[:, None], spread], dim=1).mT
    extra = torch.linalg.solve(span, table[: 1 + d])
    weights = torch.cat([torch.zeros_like(table[:1]), table[1 + d :], extra])
    return weights, (torch.cat([w, spread]), torch.cat([b, top]))

"""Solver ``deep``: any number of hidden layers.

Live starts, layer by layer, go through a knock-out: all of them take a few Levenberg-Marquardt
steps at once with the output layer eliminated, the better half goes on, then the better quarter,
and the best one runs to convergence. No start can begin with a dead unit, and none is waited for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relunorm.clock import INTERRUPTED, TIME_LIMIT
from relunorm.train.holdout import SHARE, Clean, decide, spent_patience, watching
from relunorm.train.problem.layered import LayeredProblem, layers, live_start, revived_layers
from relunorm.train.problem.levenberg_marquardt import Point, Solution, minimize
from relunorm.train.problem.task import Fit, Penalty, Task, assemble

#: Starts of one knock-out; iterations of its stages and the members that enter them.
STARTS = 12
#: A short fit of a deep network is further from its best than one of a shallow network.
CLEAN = Clean(share=2e-2, alpha=1e-7)
STAGES = ((15, 1.0), (25, 0.5), (60, 0.25))


def solve_deep(task: Task) -> Fit:
    """A perceptron with ``task.hidden`` units, by knock-out of live starts.

    ``rounds`` is the number of starts. With a time limit knock-outs are repeated until it is
    spent. An estimate (local search). Cost per start and iteration O(n P^2 + P^3), P parameters.
    """
    task, stopped = decide(task, _predictions, CLEAN, slopes=task.skip)
    alpha = float(task.alpha or 0.0)
    problem = _problem(task, alpha, task.affine)
    search = _Search(problem, task)
    search.stopped = stopped
    try:
        task.report("penalty", 0.1, float("nan"))
        search.run()
    except KeyboardInterrupt:
        search.interrupt()
    best = search.point if task.watch is None or task.watch.best is None else task.watch.best
    member = [(w[0], b[0]) for w, b in layers(best)]
    if task.constraint == "tight":
        member = revived_layers(member, task.x, task.generator(99), 1e-13)
    weights, loss = problem.output(tuple(part[None] for pair in member for part in pair))
    return assemble(
        member,
        weights[0],
        task,
        float(loss[0]),
        curve=search.curve,
        iterations=search.iterations,
        alpha=alpha,
        affine=task.affine,
        stopped=search.stopped,
    )


def _problem(task: Task, ridge: float | Tensor, affine: float | Tensor) -> LayeredProblem:
    clip = task.constraint == "tight"
    return LayeredProblem(task.x, task.y, task.weight, ridge, task.skip, clip, affine)


def _predictions(task: Task, tried: tuple[Penalty, ...], x: Tensor) -> Tensor:
    """Held-out predictions of the best of a few starts, refined under every penalty."""
    start = live_start(task.x, task.hidden, 3, task.generator(7))
    until = task.clock.until(SHARE)
    # the plane is held back here as far as any of the penalties will
    ridge, affine = (
        task.x.new_tensor([getattr(penalty, part) for penalty in tried])
        for part in ("alpha", "affine")
    )
    early = _problem(task, 1e-4, float(affine.amax()))
    first = minimize(early, start, iterations=10, clock=until)
    count, best = len(tried), int(first.loss.argmin())
    point = tuple(part[best].expand(count, *part.shape[1:]) for part in first.point)
    problem = _problem(task, ridge, affine)
    found = minimize(problem, point, iterations=12, clock=until)
    if first.interrupted or found.interrupted:
        raise KeyboardInterrupt
    return problem.predict(found.point, x)


class _Search:
    """The best network so far."""

    def __init__(self, problem: LayeredProblem, task: Task):
        self.problem, self.task = problem, task
        self.loss = float("inf")
        self.point: Point = ()
        self.curve: list[float] = []
        self.iterations, self.stopped = 0, ""

    def run(self) -> None:
        """Knock-outs: one, or as many as the time allows; it cuts short only the first."""
        task = self.task
        again = task.rounds is None and task.clock.limited
        # a first stage of all starts takes at most half of the time
        starts = int(max(1, min(STARTS, task.affordable(0.5) / (STAGES[0][0] + 1))))
        for turn in range(10**9 if again else 1):
            if turn == 0 and task.start is not None:
                pairs = [
                    torch.from_numpy(part).to(task.x.device)
                    for p in task.start.layers
                    for part in p
                ]
                self._advance(tuple(part[None] for part in pairs), 200, len(STAGES))
            else:
                self._knock_out(task.rounds or starts, turn)
            if turn and self.stopped == TIME_LIMIT:
                self.stopped = ""
                return
            if spent_patience(task) or self.stopped or self.loss <= 1e-14 * self.problem.energy:
                return

    def interrupt(self) -> None:
        """Stop with what there is; if that is nothing, with one start and a few steps."""
        if not self.curve:
            task = self.task
            self._advance(live_start(task.x, task.hidden, 1, task.generator(100)), 3, 0)
        self.stopped = INTERRUPTED

    def _knock_out(self, members: int, turn: int) -> None:
        task = self.task
        if self.stopped:
            self.interrupt()
            return
        point = live_start(task.x, task.hidden, members, task.generator(100 + turn))
        for stage, (iterations, share) in enumerate(STAGES):
            found = self._advance(point, iterations, stage)
            if self.stopped or spent_patience(task):
                return
            following = STAGES[stage + 1][1] if stage + 1 < len(STAGES) else share
            keep = found.loss.argsort()[: max(1, round(members * following))]
            point = tuple(part[keep] for part in found.point)
        best = tuple(part[:1] for part in self.point)
        self._advance(best, 200, len(STAGES))

    def _advance(self, point: Point, iterations: int, stage: int) -> Solution:
        """Some iterations of all members; remembers the best of them."""
        share = stage / (len(STAGES) + 1)
        total = float(self.task.weight.sum())
        found = minimize(
            self.problem,
            point,
            iterations=iterations,
            clock=self.task.clock,
            callback=lambda _, loss: self.task.report("search", share, loss / total),
            watch=watching(self.task, self.problem),
        )
        self.iterations += found.iterations
        best = int(found.loss.argmin())
        if float(found.loss[best]) < self.loss or not self.curve:
            self.loss = float(found.loss[best])
            self.point = tuple(part[best : best + 1] for part in found.point)
        self.curve += [min(loss, self.loss if stage else loss) / total for loss in found.curve]
        if found.interrupted:
            self.stopped = INTERRUPTED
        elif self.task.spent:
            self.stopped = TIME_LIMIT
        return found

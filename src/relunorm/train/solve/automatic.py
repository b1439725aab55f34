"""What ``auto`` does where either of two solvers may be right.

One input: the certified optimum has no penalty. On data free of noise that is what is wanted; on
noisy or stepped targets it follows the noise, with spikes between the rows.

Several inputs: Levenberg-Marquardt from many random starts may find what units that were chosen one
by one do not, and the other way round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from relunorm.clock import Clock
from relunorm.train.holdout import SMALL, Clean, within
from relunorm.train.problem.task import Fit, Task
from relunorm.train.solve.deep import STAGES, STARTS, solve_deep
from relunorm.train.solve.exact import solve_exact
from relunorm.train.solve.greedy import solve_greedy

#: Seconds on one modest core that the second search may take where no time limit is set.
WORTH = 5.0


def solve_one_input(task: Task) -> Fit:
    """``exact`` if its first fit leaves less than 0.2 % of the variance and has no spike.

    Otherwise a small table goes to ``greedy``; ``exact`` and ``greedy`` are fitted to four fifths
    of a larger one, and the one with the smaller error on the others is fitted to all. With a
    penalty given, ``greedy``.
    """
    if task.alpha:
        return _named(solve_greedy(task), "greedy")
    first = solve_exact(replace(task, alpha=0.0), give_up=is_noisy)
    if task.alpha == 0 or first.stopped == "interrupted" or not first.facts["given_up"]:
        return _named(first, "exact")
    if len(task.x) <= SMALL:
        # a fifth of so few rows cannot tell, and only `greedy` may become a plane
        return _named(solve_greedy(task), "greedy")
    held, part = _held_out(task)
    plain = solve_exact(replace(part, alpha=0.0, rounds=1, clock=task.clock.until(1 / 4)))
    careful = solve_greedy(replace(part, rounds=1, clock=task.clock.until(1 / 2)))
    rows = task.x[held], task.y[held], task.weight[held]
    if _error(plain, *rows) <= _error(careful, *rows):
        return _named(solve_exact(replace(task, alpha=0.0)), "exact")
    return _named(solve_greedy(task), "greedy")


def is_noisy(loss: float, spike: float) -> bool:
    """Whether a first fit says that the data is not free of noise."""
    return loss > Clean().share or spike > 1


def solve_one_layer(task: Task) -> Fit:
    """``greedy``, or ``deep`` with the same penalty where that predicts held-out rows better.

    With a time limit, a given effort or few rows ``greedy`` alone: the second search costs about
    three times the first.
    """
    fit = solve_greedy(task)
    same = replace(
        task, hidden=(len(fit.layers[0][1]),), alpha=fit.alpha, affine=fit.affine, progress=None
    )
    # equations for the stages of one knock-out, as `Task.affordable` counts them
    work = STARTS * sum(steps * share for steps, share in STAGES)
    seconds = work / max(replace(same, clock=Clock(1.0)).affordable(1.0), 1e-300)
    limited = task.clock.limited or task.rounds is not None or task.watch is not None
    plane = fit.alpha >= 1 or not task.skip
    if fit.stopped or limited or plane or len(task.x) <= SMALL or seconds > WORTH:
        return _named(fit, "greedy")
    held, part = _held_out(same)
    rows = task.x[held], task.y[held], task.weight[held]
    task.report("greedy or deep", float("nan"), fit.loss)
    other = solve_deep(part)
    if other.stopped or _error(other, *rows) >= _error(solve_greedy(part), *rows):
        return _named(replace(fit, stopped=other.stopped), "greedy")
    return _named(solve_deep(replace(same, progress=task.progress)), "deep")


def _held_out(task: Task) -> tuple[Tensor, Task]:
    """A fifth of the rows, but for those far outside the others, and the task on the others."""
    order = torch.randperm(len(task.x), generator=task.generator(93), device=task.x.device)
    held, kept = order[: len(order) // 5], order[len(order) // 5 :].sort().values
    part = replace(task.rows(kept), progress=None)
    return within(part.x, task.x, held), part


def objective(fit: Fit) -> float:
    """What fits of one task are compared by: error on held-out rows if there are any, else loss
    and penalty."""
    if fit.watched:
        return min(fit.watched)
    held = fit.alpha * float(np.square(fit.output).sum())
    return fit.loss + held + fit.affine * float(np.square(fit.skip).sum())


def _named(fit: Fit, solver: str) -> Fit:
    return replace(fit, facts={**fit.facts, "solver": solver})


def _error(fit: Fit, x: Tensor, y: Tensor, weight: Tensor) -> float:
    """Weighted squared error of a shallow fit."""
    (w, b), x = (torch.from_numpy(part) for part in fit.layers[0]), x.cpu()
    hidden = (x @ w.mT + b).clamp_min(0)
    output, skip, bias = (torch.from_numpy(part) for part in (fit.output, fit.skip, fit.bias))
    residual = hidden @ output.mT + x @ skip.mT + bias - y.cpu()
    return float((weight.cpu() * residual.square().sum(dim=1)).sum())

"""What ``auto`` does with one input and one output: ``exact`` on clean data, else what predicts.

The certified optimum has no penalty. On data free of noise that is what is wanted; on noisy or
stepped targets it follows the noise, with spikes between the rows.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relunorm.train.exact import solve_exact
from relunorm.train.greedy import solve_greedy
from relunorm.train.holdout import Clean, within
from relunorm.train.task import Fit, Task


def solve_one_input(task: Task) -> Fit:
    """``exact`` if its first fit leaves less than 0.2 % of the variance and has no spike.

    Otherwise ``exact`` and ``greedy`` are fitted to four fifths of the rows, and the one with the
    smaller error on the others is fitted to all. With a penalty given, ``greedy``.
    """
    if task.alpha:
        return solve_greedy(task)
    first = solve_exact(replace(task, alpha=0.0), give_up=is_noisy)
    if task.alpha == 0 or first.stopped == "interrupted" or not first.facts["given_up"]:
        return first
    order = torch.randperm(len(task.x), generator=task.generator(93), device=task.x.device)
    held, kept = order[: len(order) // 5], order[len(order) // 5 :].sort().values
    part = replace(task.rows(kept), progress=None)
    held = within(part.x, task.x, held)
    plain = solve_exact(replace(part, alpha=0.0, rounds=1, clock=task.clock.until(1 / 4)))
    careful = solve_greedy(replace(part, rounds=1, clock=task.clock.until(1 / 2)))
    rows = task.x[held], task.y[held], task.weight[held]
    if _error(plain, *rows) <= _error(careful, *rows):
        return solve_exact(replace(task, alpha=0.0))
    return solve_greedy(task)


def is_noisy(loss: float, spike: float) -> bool:
    """Whether a first fit says that the data is not free of noise."""
    return loss > Clean().share or spike > 1


def _error(fit: Fit, x: Tensor, y: Tensor, weight: Tensor) -> float:
    """Weighted squared error of a shallow fit."""
    (w, b), x = (torch.from_numpy(part) for part in fit.layers[0]), x.cpu()
    hidden = (x @ w.mT + b).clamp_min(0)
    output, skip, bias = (torch.from_numpy(part) for part in (fit.output, fit.skip, fit.bias))
    residual = hidden @ output.mT + x @ skip.mT + bias - y.cpu()
    return float((weight.cpu() * residual.square().sum(dim=1)).sum())

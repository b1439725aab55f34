"""Which penalty: decided on rows that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from relunorm.train.task import Task

#: Penalties that are tried, relative to a target of variance one.
LADDER = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)

#: Held-out error, as a share of the variance, below which the data counts as free of noise.
CLEAN = 2e-3

#: With fewer rows than this a hold-out says nothing; the penalty is then `CAUTIOUS`.
FEWEST = 20
CAUTIOUS = 1e-2


def choose_alpha(task: Task, predict: Callable[[Task, tuple[float, ...], Tensor], Tensor]) -> float:
    """The penalty with the smallest error on held-out rows, or 0 for data free of noise.

    Small tables are split more often (up to five folds), since one split of them is a coin toss.
    Among penalties within one standard error of the best the largest wins. An estimate.

    Args:
        predict: fits the task once per penalty, all from the same start, and returns predictions
            (penalties, rows, m) on the inputs given last.
    """
    n = len(task.x)
    if n < FEWEST:
        return CAUTIOUS
    folds = max(1, min(5, 2000 // n))
    order = torch.randperm(n, generator=task.generator(91), device=task.x.device)
    size = max(1, n // 5)
    errors = []
    for fold in range(folds):
        held = order[fold * size : (fold + 1) * size]
        keep = torch.ones(n, dtype=torch.bool, device=task.x.device)
        keep[held] = False
        part = replace(task.rows(keep), seed=task.seed + fold)
        if fold == 0 and float(_errors(part, task, held, predict, (0.0,)).mean()) < CLEAN:
            return 0.0
        errors.append(_errors(part, task, held, predict, LADDER))
    table = torch.cat(errors, dim=1)
    mean = table.mean(dim=1)
    best = int(mean.argmin())
    # paired differences to the best: their spread is what one split's luck is worth
    spread = (table - table[best]).std(dim=1) / table.shape[1] ** 0.5
    allowed = mean <= mean[best] + spread
    return LADDER[max(i for i in range(len(LADDER)) if bool(allowed[i]) and i >= best)]


def _errors(
    part: Task,
    task: Task,
    held: Tensor,
    predict: Callable[[Task, tuple[float, ...], Tensor], Tensor],
    ladder: tuple[float, ...],
) -> Tensor:
    """(penalties, held rows) weighted squared errors, averaged over outputs."""
    weight = task.weight[held] / task.weight[held].mean()
    fitted = predict(part, ladder, task.x[held])
    return (fitted - task.y[held]).square().mean(dim=2) * weight

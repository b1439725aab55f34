"""Which penalty: decided on rows that were held out.

The slopes of the affine part are left alone, or held back as cross-validation of the plane alone
says (`affine_ridge`); the units get every penalty of a ladder beside both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relunorm.train.affine import affine_ridge
from relunorm.train.task import Penalty, Task

#: Fits a task once per penalty and predicts on the inputs given last.
Predict = Callable[[Task, tuple[Penalty, ...], Tensor], Tensor]

#: Penalties that are tried, relative to a target of variance one.
LADDER = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: More of them beside a penalized affine part; at the last one units have no say.
STRONGER = (10.0, 1e3)


@dataclass(frozen=True)
class Clean:
    """When data counts as free of noise, and the penalty it then gets.

    Attributes:
        share: held-out error of a short fit, as a share of the variance, below which it does.
        alpha: small enough not to be felt, large enough to keep weights that no row asks for down.
    """

    share: float = 2e-3
    alpha: float = LADDER[0]


#: With fewer rows than this a hold-out says nothing; the penalty is then `CAUTIOUS`.
FEWEST = 20
CAUTIOUS = 1e-2

#: Share of a time limit that the choice may take, the normal equations it solves at most (over
#: starts, penalties and iterations), and the rows below which a part of a table is not worth it.
SHARE, EVALUATIONS, FEWEST_SAMPLED = 0.3, 100, 200


def ladder(affine: float, rows: int, inputs: int) -> tuple[Penalty, ...]:
    """What is tried, weakest first, given the penalty that the affine part alone would need.

    Where even a plane must be held back, the units may have to go: `STRONGER` leaves ridge
    regression among the choices. A free plane is one only where the rows determine it.

    >>> len(ladder(0.0, 100, 3)), ladder(0.5, 100, 30)[-1]
    (8, Penalty(alpha=1000.0, affine=0.5))
    >>> ladder(0.5, 30, 30)[0]
    Penalty(alpha=1e-08, affine=0.5)
    """
    free = [Penalty(alpha) for alpha in LADDER]
    if not affine:
        return tuple(free)
    held = [Penalty(alpha, affine) for alpha in (*LADDER, *STRONGER)]
    return tuple(free + held if rows > inputs + 1 else held)


def choose_penalty(task: Task, predict: Predict, clean: Clean, affine: float) -> Penalty:
    """The penalty with the smallest error on held-out rows; data free of noise needs no search.

    Small tables are split more often (up to three folds), since one split of them is a coin toss.
    Among penalties within one standard error of the best the largest wins. An estimate. Where a
    time limit leaves no time for all rows, as many are drawn as fit into `SHARE` of it.

    Args:
        predict: fits the task once per penalty, all from the same start, and returns predictions
            (penalties, rows, m) on the inputs given last.
        affine: what the affine part alone would need.
    """
    total = len(task.x)
    n = int(min(total, total * task.affordable(SHARE) / EVALUATIONS))
    cautious = Penalty(CAUTIOUS, affine)
    if n < FEWEST or n < min(total, FEWEST_SAMPLED):
        return cautious
    folds = max(1, min(3, 2000 // total))
    order = torch.randperm(total, generator=task.generator(91), device=task.x.device)
    if n < total:
        task = task.rows(order[:n])
        order = torch.arange(n, device=order.device)
    size = max(1, n // 5)
    tried, errors = ladder(affine, n - size, task.x.shape[1]), []
    for fold in range(folds):
        if task.clock.until(SHARE).expired():
            break
        held = order[fold * size : (fold + 1) * size]
        keep = torch.ones(n, dtype=torch.bool, device=task.x.device)
        keep[held] = False
        part = replace(task.rows(keep), seed=task.seed + fold)
        held = within(part.x, task.x, held)
        if fold == 0:
            plain = replace(tried[0], alpha=clean.alpha)
            first = _errors(part, task, held, predict, (plain,))
            if float(first.mean()) < clean.share:
                return plain
        errors.append(_errors(part, task, held, predict, tried))
    if not errors:
        return cautious
    return tried[strongest(torch.cat(errors, dim=1))]


def within(x: Tensor, table: Tensor, held: Tensor) -> Tensor:
    """Held rows that are not far outside the others' box: what happens there is no guide.

    Far is half the box's width; if all are, all are kept.
    """
    low, high = x.amin(dim=0), x.amax(dim=0)
    margin = (high - low) / 2
    rows = table[held]
    near = ((rows >= low - margin) & (rows <= high + margin)).all(dim=1)
    return held[near] if bool(near.any()) else held


def strongest(table: Tensor) -> int:
    """The last penalty whose mean error is within one standard error of the smallest.

    Args:
        table: (penalties, held rows) squared errors, weakest penalty first.
    """
    mean = table.mean(dim=1)
    best = int(mean.argmin())
    # paired differences to the best: their spread is what one split's luck is worth
    spread = (table - table[best]).std(dim=1) / table.shape[1] ** 0.5
    allowed = mean <= mean[best] + spread
    return max(i for i in range(len(table)) if bool(allowed[i]) and i >= best)


def decide(task: Task, predict: Predict, clean: Clean, slopes: bool) -> tuple[Task, str]:
    """The task with its own penalty or the chosen one; "interrupted" if the choice was cut short.

    Args:
        slopes: whether there is an affine part.
    """
    if task.alpha is not None:
        return task, ""
    affine = 0.0
    try:
        affine = affine_ridge(task.x, task.y, task.weight) if slopes else 0.0
        chosen, stopped = choose_penalty(task, predict, clean, affine), ""
    except KeyboardInterrupt:
        chosen, stopped = Penalty(CAUTIOUS, affine), "interrupted"
    return replace(task, alpha=chosen.alpha, affine=chosen.affine), stopped


def _errors(
    part: Task,
    task: Task,
    held: Tensor,
    predict: Predict,
    tried: tuple[Penalty, ...],
) -> Tensor:
    """(penalties, held rows) weighted squared errors, averaged over outputs."""
    weight = task.weight[held] / task.weight[held].mean()
    fitted = predict(part, tried, task.x[held])
    return (fitted - task.y[held]).square().mean(dim=2) * weight

"""Which penalty: decided on rows that were held out.

The slopes of the affine part are left alone, or held back as cross-validation of the plane alone
says (`affine_ridge`): with few rows for each input the least-squares plane follows the noise,
whatever the hidden units do. The units get every penalty of a ladder beside both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from relunorm.train.problem.levenberg_marquardt import Point
from relunorm.train.problem.task import Penalty, Task

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


#: With fewer rows than this a hold-out says nothing, and the units have no say.
FEWEST = 8
#: Up to so many rows the plane is always held back as cross-validation says, and every row is held
#: out this many times: a few rows left out once are a coin toss.
SMALL, REPEATS = 100, 3
#: The penalty of larger tables without the time for a choice.
CAUTIOUS = 1e-2

#: Share of a time limit that the choice may take, the normal equations it solves at most (over
#: starts, penalties and iterations), and the rows below which a part of a table is not worth it.
SHARE, EVALUATIONS, FEWEST_SAMPLED = 0.3, 100, 200


def ladder(affine: float, rows: int, inputs: int) -> tuple[Penalty, ...]:
    """What is tried, weakest first, given the penalty that the affine part alone would need.

    Where even a plane must be held back, the units may have to go: `STRONGER` leaves ridge
    regression among the choices, and with it the mean, where the ridge is strong. A free plane is a
    choice only where the rows are many and determine it.

    >>> len(ladder(0.0, 200, 3)), ladder(0.5, 200, 30)[-1]
    (8, Penalty(alpha=1000.0, affine=0.5))
    >>> ladder(0.5, 30, 30)[0]
    Penalty(alpha=1e-08, affine=0.5)
    """
    free = [Penalty(alpha) for alpha in LADDER]
    if not affine:
        return tuple(free)
    held = [Penalty(alpha, affine) for alpha in (*LADDER, *STRONGER)]
    return tuple(free + held if rows > max(inputs + 1, SMALL) else held)


def choose_penalty(task: Task, predict: Predict, clean: Clean, affine: float) -> Penalty:
    """The penalty with the smallest error on held-out rows; data free of noise needs no search.

    Small tables are split more often (up to three folds; `SMALL` ones five, `REPEATS` times), since
    one split of them is a coin toss. Among penalties within one standard error of the best the
    largest wins. An estimate. Where a time limit leaves no time for all rows, as many are drawn as
    fit into `SHARE` of it.

    Args:
        predict: fits the task once per penalty, all from the same start, and returns predictions
            (penalties, rows, m) on the inputs given last.
        affine: what the affine part alone would need.
    """
    total = len(task.x)
    n = int(min(total, total * task.affordable(SHARE) / EVALUATIONS))
    if total < FEWEST:
        return Penalty(STRONGER[-1], affine)
    cautious = Penalty(CAUTIOUS, affine)
    if n < min(total, FEWEST_SAMPLED):
        return cautious
    order = torch.randperm(total, generator=task.generator(91), device=task.x.device)
    if n < total:
        task = task.rows(order[:n])
        order = torch.arange(n, device=order.device)
    tried = ladder(affine, n - max(1, n // 5), task.x.shape[1])
    errors: list[Tensor] = []
    for fold, held in enumerate(_parts(order, task)):
        if task.clock.until(SHARE).expired():
            break
        keep = torch.ones(n, dtype=torch.bool, device=task.x.device)
        keep[held] = False
        part = replace(task.rows(keep), seed=task.seed + fold)
        held = within(part.x, task.x, held)
        if fold == 0:
            plain = replace(tried[0], alpha=clean.alpha)
            first = _errors(part, task, held, predict, (plain,))
            if float(first.mean()) < clean.share:
                return plain
        found = torch.full((len(tried), n), torch.nan, dtype=task.x.dtype, device=task.x.device)
        found[:, held] = _errors(part, task, held, predict, tried)
        errors.append(found)
    if not errors:
        return cautious
    # a row that was held out several times counts once
    table = torch.stack(errors).nanmean(dim=0)
    return tried[strongest(table[:, ~table[0].isnan()])]


def _parts(order: Tensor, task: Task) -> Iterator[Tensor]:
    """Rows to hold out, one part after the other."""
    n = len(order)
    if n <= SMALL:
        for repeat in range(REPEATS):
            stream = task.generator(700 + repeat)
            mixed = order[torch.randperm(n, generator=stream, device=order.device)]
            yield from mixed.tensor_split(5)
        return
    size = n // 5
    for fold in range(max(1, min(3, 2000 // n))):
        yield order[fold * size : (fold + 1) * size]


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
    affine, alone = 0.0, replace(task, watch=None)
    try:
        affine = affine_ridge(task.x, task.y, task.weight) if slopes else 0.0
        chosen, stopped = choose_penalty(alone, predict, clean, affine), ""
    except KeyboardInterrupt:
        chosen, stopped = Penalty(CAUTIOUS, affine), "interrupted"
    return replace(task, alpha=chosen.alpha, affine=chosen.affine), stopped


class Predictor(Protocol):
    """A problem that can predict other rows."""

    def predict(self, point: Point, x: Tensor) -> Tensor:
        """(B, rows, m)."""
        ...


def watching(task: Task, problem: Predictor) -> Callable[[Point, Tensor], bool] | None:
    """What `minimize` is to call for early stopping: it shows the watch the best member."""
    watch = task.watch
    if watch is None:
        return None

    def look(point: Point, loss: Tensor) -> bool:
        best = int(loss.argmin())
        one = tuple(part[best : best + 1] for part in point)
        return watch.look(one, problem.predict(one, watch.x)[0])

    return look


def spent_patience(task: Task) -> bool:
    """Whether early stopping has ended the fit."""
    return task.watch is not None and task.watch.over_now


def _errors(
    part: Task, task: Task, held: Tensor, predict: Predict, tried: tuple[Penalty, ...]
) -> Tensor:
    """(penalties, held rows) weighted squared errors, averaged over outputs."""
    weight = task.weight[held] / task.weight[held].mean()
    fitted = predict(part, tried, task.x[held])
    return (fitted - task.y[held]).square().mean(dim=2) * weight


#: Penalties that are tried, relative to inputs and a target of variance one.
RIDGES = tuple(10.0 ** (k / 3) for k in range(-18, 10))

#: Share by which a penalty could lower the score at most where none is looked for, and by which it
#: must lower it; less is not worth a biased plane.
POSSIBLE, MARGIN = 0.1, 0.01


def affine_ridge(x: Tensor, y: Tensor, weight: Tensor) -> float:
    """The penalty beta of min sum_i w_i |y_i - a - S x_i|^2 + beta sum(w) |S|^2, or 0.

    The smallest score of generalized cross-validation (Golub, Heath & Wahba 1979),
    G(beta) = RSS(beta) / (1 - df(beta) / n)^2, df the trace of the hat matrix. It is 0 unless
    G falls by `MARGIN`, or the rows are `SMALL`. Since RSS grows with beta,
    G(beta) >= (1 - df(0) / n)^2 G(0): about twenty rows for each input are enough for 0, and
    nothing is computed. An estimate; O(n d min(n, d)).

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 10, dtype=torch.float64, generator=generator)
    >>> y = torch.randn(1000, 1, dtype=torch.float64, generator=generator)
    >>> affine_ridge(x, y, torch.ones(1000, dtype=torch.float64))
    0.0
    >>> affine_ridge(x[:12], y[:12], torch.ones(12, dtype=torch.float64)) > 0.1
    True
    """
    n, d = x.shape
    if n > SMALL and d + 1 < n and (1 - (d + 1) / n) ** 2 >= 1 - POSSIBLE:
        return 0.0
    x, y, share = x.double(), y.double(), (weight / weight.sum()).double()
    x, y = ((v - share @ v) * share.sqrt()[:, None] for v in (x, y))
    left, values, _ = torch.linalg.svd(x, full_matrices=False)
    sound = values > 1e-10 * values.amax()
    square = values[sound].square()
    seen = (left[:, sound].mT @ y).square().sum(dim=1)
    outside = (y.square().sum() - seen.sum()).clamp_min(0)

    def score(ridge: float) -> float:
        kept = ridge / (square + ridge)
        free = n - 1 - len(square) + float(kept.sum())
        if free < 1e-6:
            return float("inf")
        return float(outside + (kept.square() * seen).sum()) * (n / free) ** 2

    best = min(RIDGES, key=score)
    return best if n <= SMALL or score(best) < (1 - MARGIN) * score(0.0) else 0.0

"""Solver ``logistic``: classification with any number of hidden layers, by L-BFGS from live starts.

The objective is the mean log-loss + alpha (|W|^2 + |V|^2) over the hidden and output weights +
affine |S|^2 over the slopes of the affine part. A unit c relu(w . x + b) may be rescaled freely,
and its cheapest scaling costs 2 alpha |w| |c|: in the reduced space, with |w| = 1, the penalty is
the sum of the units' weights, not of their squares, and units that do not help vanish.

Both penalties are chosen by cross-validation of the log-loss, with the logistic plane among the
choices. The same held-out outputs say by how much the margins have to be stretched to be log-odds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

from relunorm.clock import INTERRUPTED
from relunorm.train.problem.layered import live_start
from relunorm.train.problem.task import Fit, Penalty, Task
from relunorm.train.solve.descent import FlatPerceptron, Vector, descend
from relunorm.train.solve.greedy import CANDIDATES, greedy_units, scored_rows

#: Penalties of the units that are tried, weakest first, and that of the slopes beside them.
LADDER, BESIDE = (1e-5, 1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.5e-2), 1e-2
#: Penalties of the slopes where no unit has a say, and what the units' is then.
SLOPES, ALONE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0), 1.0
#: Standard errors that the log-loss may be above the smallest for a stronger penalty, of the units
#: and of the plane by itself.
ALLOWED, ALLOWED_ALONE = 0.5, 1.0
#: What too few rows, or too little time, for a choice get.
CAUTIOUS, FEWEST = Penalty(1e-2, 1e-2), 10
#: Folds, iterations in them, starts and iterations of the last fit.
FOLDS, TRIAL, STARTS, ITERATIONS = 5, 150, 3, 1000
#: Multiplications of one evaluation above which there is one start, and of the choice above which
#: it is made on a part of the rows; share of a time limit that the choice may take.
ONE_START, MOST, SHARE = 2e7, 4e11, 0.5
#: The margins are stretched by at most so much, or shrunk.
STRETCH = 8.0


def solve_logistic(task: Task, calibrate: bool = True) -> Fit:
    """The network with the smallest penalized log-loss of a few starts.

    ``rounds`` is the number of starts. An estimate (local search). O(n P) an iteration.
    """
    stopped, stretch = "", 1.0
    try:
        if task.alpha is None or calibrate:
            choice = choose(replace(task, watch=None, start=None), calibrate)
            task = replace(task, alpha=choice.penalty.alpha, affine=choice.penalty.affine)
            stretch = choice.stretch
    except KeyboardInterrupt:
        stopped = INTERRUPTED
        if task.alpha is None:
            task = replace(task, alpha=CAUTIOUS.alpha, affine=CAUTIOUS.affine)
    net = LogisticPerceptron(task)
    starts = task.rounds or (1 if 6 * len(net.x) * net.size > ONE_START else STARTS)
    if task.watch is not None or task.start is not None:
        starts = 1
    best, lowest, curve, evaluations = np.zeros(0), np.inf, [], 0
    for turn in range(starts):
        most = 3 if stopped else ITERATIONS
        theta, losses, stopped_now = _descend(
            net, net.begin(live_layers(task, 50 + turn)), task, most
        )
        evaluations += len(losses)
        curve += [min(loss, lowest) for loss in losses]
        objective = net.loss_and_gradient(theta)[0]
        if objective < lowest or turn == 0:
            best, lowest = theta, objective
        stopped = stopped or stopped_now
        if stopped:
            break
        task.report("starts", (turn + 1) / starts, lowest)
    fit = net.fit(best, curve, stopped)
    return replace(
        fit,
        bias=stretch * fit.bias,
        skip=stretch * fit.skip,
        output=stretch * fit.output,
        iterations=max(1, evaluations),
        facts={"stretch": stretch},
    )


class LogisticPerceptron(FlatPerceptron):
    """The mean log-loss in all parameters; one output is the log-odds of the second class."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.affine = task.affine
        *hidden, v, s, _ = self.split(self.decay)
        for part in (*hidden[::2], v):
            part[:] = self.alpha
        s[:] = self.affine

    def error(self, fit: Vector) -> tuple[float, Vector]:
        """Weighted mean log-loss of the outputs, and its derivative by them."""
        chance = expit(fit) if fit.shape[1] == 1 else softmax(fit, axis=1)
        return float(self.share @ log_losses(fit, self.y)), self.share[:, None] * (chance - self.y)

    def begin(self, layers: list[tuple[Vector, Vector]] | None) -> Vector:
        """These hidden layers with the output layer that least squares on the classes suggests.

        None goes on from the task's own start. Weights are shared evenly between a unit's input and
        output, where the penalty wants them.
        """
        if layers is None:
            assert self.task.start is not None
            theta = self.going_on(self.task.start)
        else:
            theta = self.from_layers(layers, 1e-3)
            for part in self.split(theta)[-3:]:
                part *= 4  # p = 1/2 + t/4 for small log-odds t
        *hidden, v, _, _ = self.split(theta)
        length = np.sqrt(np.linalg.norm(v, axis=0) + 1e-12)
        hidden[-2] *= length[:, None]
        hidden[-1] *= length
        v /= length
        return theta


def live_layers(task: Task, stream: int) -> list[tuple[Vector, Vector]]:
    """Live hidden layers to begin with.

    One hidden layer: the units that lower the squared error of the classes most, one by one, on a
    sample of the rows where they are many.
    """
    generator = task.generator(stream)
    if len(task.hidden) > 1:
        parts = [part[0].numpy() for part in live_start(task.x, task.hidden, 1, generator)]
        return list(zip(parts[::2], parts[1::2], strict=True))
    count, weight = sum(task.hidden), task.weight
    target = task.y - weight @ task.y / weight.sum()
    more = CANDIDATES + 2 * count
    rows = scored_rows(task.x, target, weight.sqrt(), generator)
    w, b = greedy_units(*rows, count, more, generator, clock=task.clock)
    return [(w.numpy(), b.numpy())]


def log_losses(fit: Vector, y: Vector) -> Vector:
    """(n,) -log of what the outputs give to each row's class.

    >>> log_losses(np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]])) == np.log(2)
    array([ True,  True])
    """
    if fit.shape[1] == 1:
        return (np.logaddexp(0, fit) - y * fit)[:, 0]
    return -(y * log_softmax(fit, axis=1)).sum(axis=1)


@dataclass(frozen=True)
class Choice:
    """Penalties, and what the outputs are to be multiplied by to be log-odds."""

    penalty: Penalty
    stretch: float


def choose(task: Task, calibrate: bool = True) -> Choice:
    """Penalties by cross-validated log-loss: the strongest within `ALLOWED` of the best.

    Tried are the units' penalties and the plane by itself with its own; a penalty that is given
    stays. Each is judged with its stretch: the t with the smallest held-out log-loss of
    t f, drawn towards 1 by its own uncertainty.
    """
    given = None if task.alpha is None else Penalty(task.alpha, task.affine)
    small = _affordable(task)
    y = small.y.numpy()
    if len(y) < FEWEST:
        return Choice(given or CAUTIOUS, 1.0)
    fold = _folds(y, FOLDS, np.random.default_rng([task.seed, 31]))
    weight = small.weight.numpy() / float(small.weight.sum())
    small = replace(small, clock=task.clock.until(SHARE))
    tried = [given] if given else [Penalty(alpha, BESIDE) for alpha in LADDER]
    found = _held_out(small, tried, fold)
    if found is None:
        return Choice(given or CAUTIOUS, 1.0)
    if given is None and task.skip:
        planes = [Penalty(ALONE, slope) for slope in SLOPES]
        outputs = _held_out(replace(small, hidden=(1,)), planes, fold)
        if outputs is not None:
            at = _strongest(outputs, y, weight, ALLOWED_ALONE)
            # a plane that is hardly held back is no stronger than units that are
            first = [] if planes[at].affine >= BESIDE / 10 else [at]
            last = [] if first else [at]
            tried = [*(planes[k] for k in first), *tried, *(planes[k] for k in last)]
            found = np.concatenate([outputs[first], found, outputs[last]])
    stretches = [_cautious_stretch(part, y, weight) if calibrate else 1.0 for part in found]
    at = _strongest(np.array(stretches)[:, None, None] * found, y, weight, ALLOWED)
    return Choice(tried[at], stretches[at])


def stretch_of(outputs: Vector, y: Vector, weight: Vector) -> float:
    """The factor by which these held-out outputs have the smallest log-loss.

    Where hardly a held-out row is wrong any factor above 1 lowers the loss, and a few rows of a
    rare class say little about the next one: it is at most what `hedged` labels ask for, or 1.
    """
    plain, cautious = (_factor(outputs, labels, weight) for labels in (y, hedged(y)))
    return min(plain, max(1.0, cautious))


def hedged(y: Vector) -> Vector:
    """Labels as sure as their number allows: of n rows of a class, (n + 1) / (n + classes).

    That is Laplace's rule, by which Platt (Probabilistic outputs for support vector machines, 1999)
    keeps separable scores from growing for ever.

    >>> hedged(np.array([[1.0], [0.0], [0.0]])).tolist()
    [[0.6666666666666666], [0.25], [0.25]]
    """
    label = np.hstack([1 - y, y]) if y.shape[1] == 1 else y
    rows = (label @ label.sum(axis=0))[:, None]
    return ((label * rows + 1) / (rows + label.shape[1]))[:, -y.shape[1] :]


def _factor(outputs: Vector, y: Vector, weight: Vector) -> float:
    most = np.log(STRETCH)
    found: Any = minimize_scalar(
        lambda t: weight @ log_losses(np.exp(t) * outputs, y),
        bounds=(-most, most),
        method="bounded",
    )
    return float(np.exp(found.x))


def _cautious_stretch(outputs: Vector, y: Vector, weight: Vector) -> float:
    """The stretch, drawn towards 1 as far as its standard error s asks for.

    log t becomes log t max(0, 1 - (s / log t)^2): a few rows that are confidently wrong make s
    large, and nothing is stretched on their account.
    """
    t = np.log(stretch_of(outputs, y, weight))
    step = 1e-3
    before, at, after = (log_losses(np.exp(t + k * step) * outputs, y) for k in (-1, 0, 1))
    slope, bend = (after - before) / (2 * step), weight @ (after - 2 * at + before) / step**2
    error = np.sqrt(weight**2 @ slope**2) / max(bend, 1e-12)
    return float(np.exp(t * max(0.0, 1 - (error / t) ** 2))) if t else 1.0


def _affordable(task: Task) -> Task:
    """The task on as many of its rows as the choice can afford."""
    n = len(task.x)
    net = LogisticPerceptron(replace(task, alpha=0.0))
    trials = FOLDS * TRIAL * len(LADDER)
    most = int(MOST / (6 * net.size * trials))
    if n <= most:
        return task
    order = torch.randperm(n, generator=task.generator(33), device=task.x.device)
    return task.rows(order[: max(most, 200)])


def _folds(y: Vector, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of every row, every class spread over all folds."""
    label = y.argmax(axis=1) if y.shape[1] > 1 else (y[:, 0] > 0.5).astype(int)
    fold = np.empty(len(y), np.intp)
    for value in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == value))
        fold[rows] = (np.arange(len(rows)) + rng.integers(count)) % count
    return fold


def _held_out(task: Task, tried: list[Penalty], fold: NDArray[np.intp]) -> Vector | None:
    """(penalties, n, m) outputs on rows that were not fitted; None if time ran out."""
    x = task.x.numpy()
    outputs = np.empty((len(tried), len(x), task.y.shape[1]))
    for number in np.unique(fold):
        kept, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part = task.rows(torch.from_numpy(kept))
        layers = live_layers(part, 5)
        for at, penalty in enumerate(tried):
            if task.clock.expired():
                return None
            net = LogisticPerceptron(replace(part, alpha=penalty.alpha, affine=penalty.affine))
            theta, _, stopped = _descend(net, net.begin(layers), part, TRIAL)
            if stopped == INTERRUPTED:
                raise KeyboardInterrupt
            outputs[at, held] = net.outputs(theta, x[held])
        done = (int(number) + 1) / (int(fold.max()) + 1)
        task.report("penalty", 0.5 * done, float("nan"))
    return outputs


def _strongest(outputs: Vector, y: Vector, weight: Vector, allowed: float) -> int:
    """The last choice whose log-loss is within so many standard errors of the smallest."""
    losses = np.array([log_losses(part, y) for part in outputs])
    mean = losses @ weight
    best = int(mean.argmin())
    # paired differences to the best: their spread is what the luck of these rows is worth
    spread = np.array([_spread(row - losses[best], weight) for row in losses])
    return int(np.flatnonzero(mean <= mean[best] + allowed * spread).max())


def _spread(values: Vector, weight: Vector) -> float:
    """Standard error of the weighted mean; the weights sum to one."""
    return float(np.sqrt(weight**2 @ (values - weight @ values) ** 2))


def _descend(
    net: LogisticPerceptron, start: Vector, task: Task, iterations: int
) -> tuple[Vector, list[float], str]:
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-10, "gtol": 1e-7}
    return descend(net, start, task, "L-BFGS-B", options=options)

"""Solvers ``slsqp``, ``bfgs`` and ``lbfgs``: runs of SciPy that keep their best point."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from relunorm.clock import INTERRUPTED, TIME_LIMIT
from relunorm.errors import TimeLimitError
from relunorm.train.problem.perceptron import FlatPerceptron, Vector
from relunorm.train.problem.task import Fit, Task


class Watched(Exception):
    """Early stopping has ended the run; never leaves this package."""


def descend(
    net: FlatPerceptron, start: Vector, task: Task, method: str, **arguments: Any
) -> tuple[Vector, list[float], str]:
    """The best point of one run, the best loss after each evaluation, and why it stopped early.

    Ctrl-C and the time limit end the run with what was found. Exact gradients.
    """
    best, lowest = start, float("inf")
    curve: list[float] = []

    def evaluate(theta: Vector) -> tuple[float, Vector]:
        nonlocal best, lowest
        loss, gradient = net.loss_and_gradient(theta)
        if loss < lowest and arguments.get("feasible", _always)(theta):
            best, lowest = theta.copy(), loss
        curve.append(lowest)
        task.report(method.lower(), float("nan"), lowest)
        task.clock.check()
        return (loss, gradient) if np.isfinite(loss) else (1e300, np.zeros_like(theta))

    def show(theta: Vector) -> None:
        watch = task.watch
        if watch is None:
            return
        outputs = torch.from_numpy(net.outputs(theta, watch.x.cpu().numpy()))
        if watch.look(theta.copy(), outputs.to(watch.x.device)):
            raise Watched

    passed = {k: v for k, v in arguments.items() if k != "feasible"}
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            minimize(evaluate, start, jac=True, method=method, callback=show, **passed)
    except Watched:
        pass
    except TimeLimitError:
        return best, curve, TIME_LIMIT
    except KeyboardInterrupt:
        return best, curve, INTERRUPTED
    if task.watch is not None and task.watch.best is not None:
        best = task.watch.best
    return best, curve, ""


def _always(theta: Vector) -> bool:
    return True


def solve_bfgs(task: Task) -> Fit:
    """BFGS on all parameters from a normal start; no constraint, one start (seed 001, sect. 5)."""
    net = FlatPerceptron(task)
    options = {"maxiter": int(task.options.get("max_iter", 1000)), "gtol": 1e-8}
    theta, curve, stopped = descend(net, net.start(task.seed), task, "BFGS", options=options)
    return net.fit(theta, curve, stopped)


def solve_lbfgs(task: Task) -> Fit:
    """L-BFGS on all parameters from the same start as ``bfgs``; no constraint."""
    net = FlatPerceptron(task)
    most = int(task.options.get("max_iter", 2000))
    options = {"maxiter": most, "maxfun": 2 * most, "ftol": 1e-15, "gtol": 1e-10}
    theta, curve, stopped = descend(net, net.start(task.seed), task, "L-BFGS-B", options=options)
    return net.fit(theta, curve, stopped)


def solve_slsqp(task: Task) -> Fit:
    """Sequential quadratic programming with |w_j| = 1 and bounded thresholds.

    Starts from the same function as ``bfgs``, rescaled to unit rows. Thresholds of the first layer
    lie in [-X_B, X_B], with one input and ``tight`` in the interval of (5.3); those of layer l > 1
    in [-Y, Y] with Y_2 = 2 sqrt(J_2) X_B and Y_m = sqrt(2 J_m) Y_{m-1}, which corrects (4.5) of
    seed 001 (docs/errata). Each step costs O(P^3): small networks only.
    """
    net = FlatPerceptron(task)
    start = net.normalized(net.start(task.seed))
    lower, upper = _bounds(net, task, start)
    start = np.clip(start, lower, upper)
    # with one input the first layer's directions are fixed signs and need no equation
    first = int(task.x.shape[1] == 1)
    constraints: Any = [_unit_rows(net, first)] if first < len(task.hidden) else []
    options = {"maxiter": int(task.options.get("max_iter", 300)), "ftol": 1e-13}
    theta, curve, stopped = descend(
        net,
        start,
        task,
        "SLSQP",
        bounds=list(zip(lower, upper, strict=True)),
        constraints=constraints,
        options=options,
        feasible=_near_unit(net),
    )
    return net.fit(net.normalized(theta), curve, stopped)


def _bounds(net: FlatPerceptron, task: Task, start: Vector) -> tuple[Vector, Vector]:
    """Box for every parameter; in one dimension the directions stay at their sign (5.2)."""
    lower, upper = np.full(net.size, -np.inf), np.full(net.size, np.inf)
    *low, _, _, _ = net.split(lower)
    *high, _, _, _ = net.split(upper)
    rows = net.split(start)
    least, most = net.x.min(axis=0), net.x.max(axis=0)
    radius = float(np.linalg.norm(np.maximum(np.abs(least), np.abs(most))))
    for index in range(len(task.hidden)):
        w, b = 2 * index, 2 * index + 1
        low[w][:], high[w][:] = -1.0, 1.0
        if index == 0 and net.x.shape[1] == 1:
            low[w][:] = high[w][:] = np.sign(rows[w])
        if task.constraint in (None, "unit"):
            continue
        if index == 0 and task.constraint == "tight" and net.x.shape[1] == 1:
            ends = np.sort(-rows[w] * np.array([least[0], most[0]]), axis=1)
            low[b][:], high[b][:] = ends[:, 0], ends[:, 1]
            continue
        low[b][:], high[b][:] = -radius, radius
        width = task.hidden[index]
        radius *= 2 * np.sqrt(width) if index == 0 else np.sqrt(2 * width)
    return lower, upper


def _unit_rows(net: FlatPerceptron, skipped: int) -> dict[str, Any]:
    """|w_j|^2 = 1 for every hidden row after the first ``skipped`` layers, with its Jacobian."""
    chosen = slice(2 * skipped, -3, 2)
    count = sum(shape[0] for shape in net.shapes[chosen])

    def value(theta: Vector) -> Vector:
        return np.concatenate([(w**2).sum(axis=1) - 1 for w in net.split(theta)[chosen]])

    def jacobian(theta: Vector) -> Vector:
        table = np.zeros((count, net.size))
        row = 0
        for part, w in enumerate(net.split(theta)[chosen], start=skipped):
            first = int(net.ends[2 * part]) - w.size
            for j in range(len(w)):
                at = first + j * w.shape[1]
                table[row, at : at + w.shape[1]] = 2 * w[j]
                row += 1
        return table

    return {"type": "eq", "fun": value, "jac": jacobian}


def _near_unit(net: FlatPerceptron):
    """Accept only points whose rows have unit length to 1e-3, so that rescaling changes little."""

    def feasible(theta: Vector) -> bool:
        weights = net.split(theta)[:-3:2]
        return all(np.abs((w**2).sum(axis=1) - 1).max() < 1e-3 for w in weights)

    return feasible

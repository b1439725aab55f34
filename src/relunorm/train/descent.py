"""Solvers ``bfgs`` and ``lbfgs``: one SciPy run that can be stopped and keeps its best point."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from relunorm.train.perceptron import FlatPerceptron, Vector
from relunorm.train.task import Fit, Task


class Spent(Exception):
    """The time limit has passed; never leaves this package."""


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
        if task.spent:
            raise Spent
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
    except Spent:
        return best, curve, "time limit"
    except KeyboardInterrupt:
        return best, curve, "interrupted"
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

"""One SciPy run that can be stopped and keeps the best point it saw."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from relunorm.clock import INTERRUPTED, TIME_LIMIT
from relunorm.errors import TimeLimitError
from relunorm.train.perceptron import FlatPerceptron, Vector
from relunorm.train.task import Task


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

    passed = {k: v for k, v in arguments.items() if k != "feasible"}
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            minimize(evaluate, start, jac=True, method=method, **passed)
    except TimeLimitError:
        return best, curve, TIME_LIMIT
    except KeyboardInterrupt:
        return best, curve, INTERRUPTED
    return best, curve, ""


def _always(theta: Vector) -> bool:
    return True

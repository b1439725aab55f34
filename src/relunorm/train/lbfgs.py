"""Solver ``lbfgs``: the unconstrained run with limited memory, for comparison."""

from __future__ import annotations

from relunorm.train.descent import descend
from relunorm.train.perceptron import FlatPerceptron
from relunorm.train.task import Fit, Task


def solve_lbfgs(task: Task) -> Fit:
    """L-BFGS on all parameters from the same start as ``bfgs``; no constraint."""
    net = FlatPerceptron(task)
    most = int(task.options.get("max_iter", 2000))
    options = {"maxiter": most, "maxfun": 2 * most, "ftol": 1e-15, "gtol": 1e-10}
    theta, curve, stopped = descend(net, net.start(task.seed), task, "L-BFGS-B", options=options)
    return net.fit(theta, curve, stopped)

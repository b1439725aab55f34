"""Solver ``bfgs``: the unconstrained run of seed 001, for comparison."""

from __future__ import annotations

from relunorm.train.descent import descend
from relunorm.train.perceptron import FlatPerceptron
from relunorm.train.task import Fit, Task


def solve_bfgs(task: Task) -> Fit:
    """BFGS on all parameters from a normal start; no constraint, one start (seed 001, sect. 5)."""
    net = FlatPerceptron(task)
    options = {"maxiter": int(task.options.get("max_iter", 1000)), "gtol": 1e-8}
    theta, curve, stopped = descend(net, net.start(task.seed), task, "BFGS", options=options)
    return net.fit(theta, curve, stopped)

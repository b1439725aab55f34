"""Solvers ``slsqp``, ``bfgs`` and ``lbfgs``: runs of SciPy on a perceptron as one flat vector."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from relunorm.clock import INTERRUPTED, TIME_LIMIT
from relunorm.errors import TimeLimitError
from relunorm.train.problem.task import Fit, Start, Task


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


Vector = NDArray[np.float64]


class FlatPerceptron:
    """The mean squared error of f(x) = c + [S x] + V h_L(x) in all its parameters.

    The vector holds w_1, b_1, ..., w_L, b_L, V, S, c; S only with ``task.skip``.
    """

    def __init__(self, task: Task):
        self.task = task
        self.x, self.y = task.x.cpu().numpy(), task.y.cpu().numpy()
        self.share = task.weight.cpu().numpy() / float(task.weight.sum())
        self.alpha, self.affine = task.alpha or 0.0, 0.0
        d, m = self.x.shape[1], self.y.shape[1]
        sizes = (d, *task.hidden)
        self.shapes: list[tuple[int, ...]] = []
        for before, width in pairwise(sizes):
            self.shapes += [(width, before), (width,)]
        self.shapes += [(m, sizes[-1]), (m, d if task.skip else 0), (m,)]
        self.ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        self.decay = np.zeros(self.size)
        self.split(self.decay)[-3][:] = self.alpha

    @property
    def size(self) -> int:
        """Length of the parameter vector."""
        return int(self.ends[-1])

    def split(self, theta: Vector) -> list[Vector]:
        """Views of the vector as matrices and biases."""
        parts = np.split(theta, self.ends[:-1])
        return [p.reshape(shape) for p, shape in zip(parts, self.shapes, strict=True)]

    def outputs(self, theta: Vector, x: Vector) -> Vector:
        """f(x) of every row."""
        *hidden, v, s, c = self.split(theta)
        return self._forward(hidden, x)[-1] @ v.T + (x @ s.T if s.shape[1] else 0.0) + c

    def error(self, fit: Vector) -> tuple[float, Vector]:
        """Weighted mean squared error of outputs on the rows, and its derivative by them."""
        residual = fit - self.y
        return float(self.share @ (residual**2).sum(axis=1)), 2 * self.share[:, None] * residual

    def loss_and_gradient(self, theta: Vector) -> tuple[float, Vector]:
        """The error plus penalties, and its gradient."""
        *hidden, v, s, c = self.split(theta)
        values = self._forward(hidden, self.x)
        fit = values[-1] @ v.T + c
        if s.shape[1]:
            fit += self.x @ s.T
        loss, signal = self.error(fit)
        gradient = np.empty_like(theta)
        *gh, gv, gs, gc = self.split(gradient)
        gv[:] = signal.T @ values[-1]
        gs[:] = signal.T @ self.x if s.shape[1] else 0.0
        gc[:] = signal.sum(axis=0)
        upstream = signal @ v
        for index in range(len(hidden) // 2 - 1, -1, -1):
            upstream *= values[index + 1] > 0
            gh[2 * index][:] = upstream.T @ values[index]
            gh[2 * index + 1][:] = upstream.sum(axis=0)
            if index:
                upstream = upstream @ hidden[2 * index]
        pull = self.decay * theta
        gradient += 2 * pull
        return loss + float(pull @ theta), gradient

    @staticmethod
    def _forward(hidden: list[Vector], x: Vector) -> list[Vector]:
        """x and what every hidden layer makes of it."""
        values = [x]
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            z = values[-1] @ w.T
            z += b
            values.append(np.maximum(z, 0.0, out=z))
        return values

    def start(self, seed: int) -> Vector:
        """Independent normal weights of deviation 1/sqrt(fan-in) and normal thresholds.

        The common start of the constrained and unconstrained runs, as in seed 001, section 5. Where
        there is a network to go on from, that one.
        """
        if self.task.start is not None:
            return self.going_on(self.task.start)
        rng = np.random.default_rng([seed, 23])
        theta = rng.normal(size=self.size)
        *hidden, v, s, c = self.split(theta)
        for w in hidden[::2]:
            w /= np.sqrt(w.shape[1])
        v /= np.sqrt(v.shape[1])
        s[:], c[:] = 0.0, 0.0
        return theta

    def going_on(self, start: Start) -> Vector:
        """A network as a vector."""
        theta = np.zeros(self.size)
        *hidden, v, s, c = self.split(theta)
        for at, (w, b) in enumerate(start.layers):
            hidden[2 * at][:], hidden[2 * at + 1][:] = w, b
        v[:], c[:] = start.output, start.bias
        if s.shape[1]:
            s[:] = start.skip
        return theta

    def from_layers(self, layers: list[tuple[Vector, Vector]], ridge: float = 1e-9) -> Vector:
        """These hidden layers, with the output layer that least squares gives them."""
        theta = np.zeros(self.size)
        *hidden, v, s, c = self.split(theta)
        for at, (w, b) in enumerate(layers):
            hidden[2 * at][:], hidden[2 * at + 1][:] = w, b
        last = self._forward(hidden, self.x)[-1]
        features = np.hstack([np.ones((len(last), 1)), self.x[:, : s.shape[1]], last])
        weighted = features * self.share[:, None]
        gram = features.T @ weighted
        held = [0.0, *[self.affine] * s.shape[1], *[self.alpha] * v.shape[1]]
        gram[np.diag_indices(len(gram))] += np.array(held) + ridge
        table = np.linalg.solve(gram, weighted.T @ self.y)
        c[:], s[:], v[:] = table[0], table[1 : 1 + s.shape[1]].T, table[1 + s.shape[1] :].T
        return theta

    def normalized(self, theta: Vector) -> Vector:
        """The same function with unit hidden rows: lengths move to the next layer's columns."""
        theta = theta.copy()
        *hidden, v, _, _ = self.split(theta)
        for index in range(0, len(hidden), 2):
            w, b = hidden[index], hidden[index + 1]
            length = np.linalg.norm(w, axis=1)
            length[length == 0] = 1.0
            w /= length[:, None]
            b /= length
            following = hidden[index + 2] if index + 2 < len(hidden) else v
            following *= length
        return theta

    def fit(self, theta: Vector, curve: list[float], stopped: str) -> Fit:
        """The vector as a solver's answer."""
        *hidden, v, s, c = self.split(theta)
        d = self.x.shape[1]
        return Fit(
            layers=[(w.copy(), b.copy()) for w, b in zip(hidden[::2], hidden[1::2], strict=True)],
            bias=c.copy(),
            skip=s.copy() if s.shape[1] else np.zeros((len(c), d)),
            output=v.copy(),
            loss=self.error(self.outputs(theta, self.x))[0],
            curve=curve,
            iterations=max(1, len(curve)),
            alpha=self.alpha,
            affine=self.affine,
            stopped=stopped,
            watched=[] if self.task.watch is None else self.task.watch.curve,
        )

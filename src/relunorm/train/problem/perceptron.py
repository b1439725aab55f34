"""Loss and gradient of a perceptron as one flat vector, for SciPy's optimizers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from relunorm.train.problem.task import Fit, Start, Task

Vector = NDArray[np.float64]


class FlatPerceptron:
    """The mean squared error of f(x) = c + [S x] + V h_L(x) in all its parameters.

    The vector holds w_1, b_1, ..., w_L, b_L, V, S, c; S only with ``task.skip``.

    Attributes:
        decay: (P,) what the square of each parameter costs beside the error.
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

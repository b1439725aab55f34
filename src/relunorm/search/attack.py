"""Good points early: projected gradient ascent from many starts at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.domain import Domain
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

Array = NDArray[np.float64]

#: Starts of one round, steps of a start, and entries of a batch of Jacobians at most.
STARTS, STEPS, ENTRIES = 64, 24, 1 << 22


class Attack:
    """Looks for a point where some group of goals rhs - A f is large: its smallest entry counts.

    Args:
        groups: pairs (A, rhs), one or more rows each.
        random_state: a seed, or a generator.
    """

    def __init__(
        self,
        network: Network,
        domain: Domain,
        groups: Sequence[tuple[Array, Vector]],
        random_state: int | np.random.Generator | None,
    ):
        self.network, self.domain, self.groups = network, domain, groups
        self.rng = np.random.default_rng(random_state)
        self.value = -np.inf
        self.point = np.array(domain.center)
        #: per group a network of its rows, where those are fewer than the outputs
        self.goals = [
            _composed(network, -A) if len(A) < network.output_size else None for A, _ in groups
        ]

    def run(self, clock: Clock, target: float = np.inf, rounds: int = 1) -> None:
        """Rounds of ascent for every group, until one brings nothing or the target is reached."""
        most = min(self.network.output_size, max(len(A) for A, _ in self.groups))
        size = max(self.network.widths) + self.network.input_size * most
        starts = max(4, min(STARTS, ENTRIES // size))
        self.offer(self.domain.center[None])
        for _ in range(rounds):
            before = self.value
            for q in range(len(self.groups)):
                if clock.expired() or self.value >= target:
                    return
                self._ascend(q, self.domain.sample(starts, self.rng), clock, target)
            if self.value <= before:
                return

    def refine(self, point: Vector, clock: Clock, target: float = np.inf) -> None:
        """Ascent from around a point that somebody else found."""
        half = self.domain.bounding_box.halfwidth
        reach = 10.0 ** self.rng.uniform(-4, 0, (STARTS // 2, 1))
        noise = self.rng.uniform(-1, 1, (STARTS // 2, len(point)))
        points = np.concatenate([point[None], point + reach * half * noise])
        self.offer(self.domain.project(point[None]))
        for q in range(len(self.groups)):
            if not clock.expired() and self.value < target:
                self._ascend(q, points, clock, target)

    def around(self, lo: Vector, hi: Vector, clock: Clock, target: float = np.inf) -> None:
        """Ascent from points of a box, in steps of its size: where a search has become deep."""
        points = self.rng.uniform(lo, hi, (STARTS // 2, len(lo)))
        for q in range(len(self.groups)):
            if not clock.expired() and self.value < target:
                self._ascend(q, points, clock, target, 0.5 * (hi - lo))

    def offer(self, points: Array) -> None:
        """Evaluate points of the domain and keep the best for any group."""
        if not len(points):
            return
        outputs = self.network(points)
        for A, rhs in self.groups:
            values = (rhs - outputs @ A.T).min(axis=1)
            top = int(np.argmax(values))
            if values[top] > self.value:
                self.value, self.point = float(values[top]), points[top].copy()

    def _ascend(
        self, q: int, points: Array, clock: Clock, target: float, half: Vector | None = None
    ) -> None:
        """Corner steps that shrink: on a box along the sign of the gradient, else along it."""
        A, rhs = self.groups[q]
        points = self.domain.project(points)
        half = self.domain.bounding_box.halfwidth if half is None else half
        pace = np.ones((len(points), 1))
        best, kept = np.full(len(points), -np.inf), points.copy()
        for step in range(STEPS):
            slack = rhs - self.network(points) @ A.T
            values = slack.min(axis=1)
            better = values > best
            best, kept = np.where(better, values, best), np.where(better[:, None], points, kept)
            pace = np.where(better[:, None], pace, pace * 0.6)
            if best.max() >= target or clock.expired():
                break
            gradient = self._gradient(q, points, slack.argmin(axis=1))
            start = points if step % 4 else kept
            move = self.domain.ascent(start, gradient, half)
            scale = 2.0 if step == 0 else pace * self.rng.uniform(0.2, 1.0, (len(points), 1))
            points = self.domain.project(start + scale * move)
        self.offer(np.concatenate([kept, points]))

    def _gradient(self, q: int, points: Array, rows: NDArray[np.intp]) -> Array:
        """Of one row of a group at every point."""
        goal = self.goals[q]
        if goal is not None:
            return goal.jacobian(points)[np.arange(len(points)), rows]
        return -np.einsum("no,nod->nd", self.groups[q][0][rows], self.network.jacobian(points))


def _composed(network: Network, rows: Array) -> Network:
    """rows . f, up to rounding."""
    terms = {source: rows @ matrix for source, matrix in network.output.terms.items()}
    output = Affine(terms, rows @ network.output.bias)
    return network.replace(output=output, output_shape=(len(rows),))

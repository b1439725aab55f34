"""Good points early: projected gradient ascent from many starts at once, and a walk from its best.

Starts come from everywhere, from the boxes of open nodes, from around the best point of each group
of goals, and from points that the bounds of nodes have led to. Each of these gets time in
proportion to how often it has raised the best value of a group: no share is fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm.bounds.problem import Group
from relunorm.clock import Clock
from relunorm.domain import Domain
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.search.pieces import Walk, walkable

#: Starts of a round, steps of a start, and entries of a batch at most.
STARTS, STEPS, ENTRIES = 64, 24, 1 << 22

#: The same where every start ends in a walk.
FEW_STARTS, FEW_STEPS = 16, 12

#: What a source of starts has brought counts this much less with every round.
FORGET = 0.9

#: Where starts come from.
ANYWHERE, RECORD, NODE, OFFERED = 0, 1, 2, 3


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
        groups: Sequence[Group],
        random_state: int | np.random.Generator | None,
    ):
        self.network, self.domain, self.groups = network, domain, groups
        self.rng = np.random.default_rng(random_state)
        #: the best of every group
        self.values = np.full(len(groups), -np.inf)
        self.points = np.tile(np.array(domain.center), (len(groups), 1))
        self.walk = Walk(network, domain) if walkable(network, domain) else None
        starts, self.steps = (STARTS, STEPS) if self.walk is None else (FEW_STARTS, FEW_STEPS)
        most = min(network.output_size, max(len(A) for A, _ in groups))
        size = max(network.widths) + network.input_size * most
        self.starts = max(4, min(starts, ENTRIES // size))
        #: seconds and raised records, by where starts came from and group
        self.seconds, self.raised = np.zeros((2, 4, len(groups)))

    @property
    def value(self) -> float:
        """The best of any group."""
        return float(self.values.max())

    @property
    def point(self) -> Vector:
        return self.points[self.values.argmax()]

    def run(self, clock: Clock, target: float = np.inf, rounds: int = 1) -> None:
        """Rounds of ascent for every group, until one brings nothing or the target is reached; one
        where it ends in walks, which take as long as the bounds of some dozen nodes."""
        self.offer(self.domain.center[None])
        for _ in range(rounds if self.walk is None else min(rounds, 1)):
            before = self.value
            for q in range(len(self.groups)):
                if clock.expired() or self.value >= target:
                    return
                self._ascend(q, self.domain.sample(self.starts, self.rng), clock, target)
            if self.value <= before:
                return

    def more(
        self,
        clock: Clock,
        target: float,
        boxes: tuple[Array, Array],
        offered: Vector | None = None,
    ) -> None:
        """One more round for one group, from where time was best spent.

        Args:
            boxes: ends of those of open nodes, one a start; the first is looked at closely.
            offered: a point that somebody else found.
        """
        lo, hi = boxes
        price = self.seconds / (1.0 + self.raised)
        price[OFFERED] += np.inf if offered is None else 0.0
        source, q = divmod(int(price.argmin()), len(self.groups))
        began, before, half = clock.elapsed(), self.values[q], None
        if source == ANYWHERE:
            points = self.rng.uniform(lo, hi)
        elif source == NODE:
            points, half = self.rng.uniform(lo[0], hi[0], lo.shape), 0.5 * (hi[0] - lo[0])
        else:
            points = self._near(self.points[q] if source == RECORD else offered, len(lo))
        self._ascend(q, points, clock, target, half)
        self.seconds[source, q] += clock.elapsed() - began
        self.raised[source, q] += self.values[q] > before
        self.seconds *= FORGET
        self.raised *= FORGET

    def _near(self, point: Vector | None, count: int) -> Array:
        """A point, and others around it at all distances."""
        assert point is not None
        half = self.domain.bounding_box.halfwidth
        reach = 10.0 ** self.rng.uniform(-4, 0, (count, 1))
        reach[0] = 0.0
        return point + reach * half * self.rng.uniform(-1, 1, (count, len(point)))

    def offer(self, points: Array) -> None:
        """Evaluate points of the domain and keep the best for every group."""
        outputs = self.network(points)
        for q, (A, rhs) in enumerate(self.groups):
            values = (rhs - outputs @ A.T).min(axis=1)
            top = int(np.argmax(values))
            if values[top] > self.values[q]:
                self.values[q], self.points[q] = values[top], points[top]

    def _ascend(
        self, q: int, points: Array, clock: Clock, target: float, half: Vector | None = None
    ) -> None:
        """Corner steps that shrink: on a box along the sign of the gradient, else along it."""
        A, rhs = self.groups[q]
        points = self.domain.project(points)
        half = self.domain.bounding_box.halfwidth if half is None else half
        pace = np.ones((len(points), 1))
        best, kept = np.full(len(points), -np.inf), points.copy()
        for step in range(self.steps):
            slack = rhs - self.network(points) @ A.T
            values = slack.min(axis=1)
            better = values > best
            best, kept = np.where(better, values, best), np.where(better[:, None], points, kept)
            pace = np.where(better[:, None], pace, pace * 0.6)
            if best.max() >= target or clock.expired():
                break
            gradient = self.network.pullback(points, -A[slack.argmin(axis=1)])
            start = points if step % 4 else kept
            move = self.domain.ascent(start, gradient, half)
            scale = 2.0 if step == 0 else pace * self.rng.uniform(0.2, 1.0, (len(points), 1))
            points = self.domain.project(start + scale * move)
        self.offer(np.concatenate([kept, points]))
        if self.walk is None:
            return
        for start in kept[np.argsort(-best)]:
            if self.value >= target or clock.expired():
                return
            end = self.walk.up(start, A, rhs, clock, target)
            self.offer(self.domain.project(end[None]))

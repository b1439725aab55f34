"""The other side of a comparison: a point where two networks differ for certain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.domain import Domain, Polytope
from relunorm.forms.attack import attack, between_thresholds, difference, spread
from relunorm.forms.rational import exact_output
from relunorm.forms.relation import Walk
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.plane import onto_plane
from relunorm.stability.problem import Problem
from relunorm.stability.reach import Reach
from relunorm.stability.witness import certain_outputs

#: A doubtful point is looked at in rational arithmetic up to this many parameters.
RATIONAL = 200_000


@dataclass(eq=False)
class Counterexample:
    """The best point so far, and how far apart the networks are there at least.

    Attributes:
        given: the two networks.
        reach: the domain and what is known of it.
        tolerance: differences up to this one are none.
        rng: for the points and climbs.
        clock: when climbing has to stop.
        lower: the difference at ``point``, rounding of the evaluation accounted for.
    """

    given: tuple[Network, Network]
    reach: Reach
    tolerance: float
    rng: np.random.Generator
    clock: Clock
    lower: float = 0.0
    point: Vector | None = None
    points: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        first, second = self.given
        self.folded = first.folded(), second.folded()
        self.problems = [Problem(network, self.reach) for network in self.given]
        points = spread(self.domain, 256, self.rng)
        inside = self.domain.contains(points)
        self.points = points[inside] if inside.any() else points

    @property
    def domain(self) -> Domain:
        """Where the point has to lie."""
        return self.reach.domain

    @property
    def found(self) -> bool:
        """Whether the networks differ by more than the tolerance."""
        return self.lower > self.tolerance

    def probe(self) -> None:
        """Look at a few hundred points; most networks that differ show it here."""
        self._best(self.points, 1)
        if self.found:
            self.climb()

    def between(self, walk: Walk) -> None:
        """Look where only one of two related steps has jumped."""
        points = between_thresholds(walk, self.points)
        points = points[self.domain.contains(points)]
        if len(points):
            self._best(points, 4)

    def climb(self) -> None:
        """Go uphill from many starts."""
        point, _ = attack(*self.folded, self.domain, rng=self.rng, clock=self.clock)
        self.offer(point)

    def offer(self, point: Vector) -> None:
        """Take a point if it shows a larger difference for certain."""
        inside = bool(self.domain.contains(point)[0])
        # in a flat polytope: off by a rounding error
        if not inside and isinstance(self.domain, Polytope) and not self.found:
            moved = onto_plane(self.domain, point)
            point, inside = (point, False) if moved is None else (moved, True)
        sure = self._certain(point)
        if inside and (sure > self.lower or self.point is None):
            self.point, self.lower = point, max(sure, self.lower)

    def _best(self, points: NDArray[np.float64], count: int) -> None:
        gaps = np.abs(difference(*self.folded, points)).max(axis=1)
        for k in np.argsort(-gaps, kind="stable")[:count]:
            self.offer(points[k])

    def _certain(self, point: Vector) -> float:
        """A lower bound on the difference at a point, rounding of the evaluation accounted for."""
        (a, a_off), (b, b_off) = (certain_outputs(p, point[None]) for p in self.problems)
        gap = np.abs(a - b)
        sure = float((gap * (1 - 1e-15) - a_off - b_off).max())
        doubtful = gap.max() > self.tolerance and not sure > self.tolerance
        if doubtful and sum(network.parameters for network in self.folded) <= RATIONAL:
            return self._exactly(point)
        return sure if np.isfinite(sure) else -np.inf

    def _exactly(self, point: Vector) -> float:
        values = (exact_output(n, point) for n in self.given)
        return float(max(abs(a - b) for a, b in zip(*values, strict=True))) * (1 - 1e-15)

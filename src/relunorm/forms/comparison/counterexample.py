"""The other side of a comparison: a point where two networks differ for certain.

Both halves of that are decided without rounding: the point lies in the domain (`Domain.holds`), and
the outputs differ there by more than the tolerance. Where float64 and a bound on its rounding leave
the second one open, whole numbers decide it, up to a size; beyond that it stays open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.domain import Domain
from relunorm.forms.comparison.attack import attack, between_thresholds, difference, spread
from relunorm.forms.relation.walk import Walk
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.certain import PARAMETERS, certain_outputs, exact_output
from relunorm.stability.plane import moved_inside
from relunorm.stability.rounding import float_below

#: Share of a difference that has to be certain in floats; else whole numbers give the rest.
HIDDEN = 0.98


@dataclass(eq=False)
class Counterexample:
    """The best point so far, and how far apart the networks are there at least.

    Attributes:
        given: the two networks.
        domain: where the point has to lie.
        tolerance: differences up to this one are none.
        rng: for the points and climbs.
        clock: when climbing has to stop.
        lower: the difference at ``point``, rounded down.
        found: whether the difference there is more than the tolerance.
    """

    given: tuple[Network, Network]
    domain: Domain
    tolerance: float
    rng: np.random.Generator
    clock: Clock
    lower: float = 0.0
    found: bool = False
    point: Vector | None = None
    points: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        first, second = self.given
        self.folded = first.folded(), second.folded()
        points = spread(self.domain, 256, self.rng)
        inside = self.domain.holds(points)
        self.points = points[inside] if inside.any() else points

    def probe(self) -> None:
        """Look at a few hundred points; most networks that differ show it here."""
        self._best(self.points, 1)
        if self.found:
            self.climb()

    def between(self, walk: Walk) -> None:
        """Look where only one of two related steps has jumped."""
        points = between_thresholds(walk, self.points)
        points = points[self.domain.holds(points)]
        if len(points):
            self._best(points, 4)

    def climb(self, **more: int) -> None:
        """Go uphill from many starts; ``more`` of them, say."""
        point, _ = attack(*self.folded, self.domain, rng=self.rng, clock=self.clock, **more)
        self.offer(point)

    def offer_best(self, points: NDArray[np.float64]) -> None:
        """Try the best of many points; given none, climb with more starts."""
        if len(points):
            self._best(points, 1)
        else:
            self.climb(starts=128, samples=8192, rounds=100)

    def offer(self, point: Vector) -> None:
        """Take a point if it lies in the domain and shows a larger difference for certain."""
        moved = moved_inside(self.domain, point)
        if moved is None:
            return
        point = moved
        sure, more = self._certain(point)
        if sure > self.lower or more > self.found or self.point is None:
            self.point, self.lower = point, max(sure, self.lower)
            self.found |= more

    def _best(self, points: NDArray[np.float64], count: int) -> None:
        gaps = np.abs(difference(*self.folded, points)).max(axis=1)
        for k in np.argsort(-gaps, kind="stable")[:count]:
            self.offer(points[k])

    def _certain(self, point: Vector) -> tuple[float, bool]:
        """A lower bound on the difference at a point, and whether it exceeds the tolerance."""
        (a, a_off), (b, b_off) = (certain_outputs(n, point[None]) for n in self.given)
        gap = np.abs(a - b)
        sure = gap * (1 - 1e-15) - a_off - b_off
        best = float(np.where(np.isnan(sure), -np.inf, sure).max())
        doubtful = not best > self.tolerance and not (gap + a_off + b_off).max() < self.tolerance
        # a bound on the rounding that hides the difference, where it would be the largest one
        most = float(np.where(np.isnan(gap), np.inf, gap).max())
        doubtful |= best < HIDDEN * most and most > self.lower * (2 - HIDDEN)
        if doubtful and sum(network.parameters for network in self.given) <= PARAMETERS:
            values = (exact_output(network, point) for network in self.given)
            exact = max(abs(a - b) for a, b in zip(*values, strict=True))
            return float_below(exact), exact > Fraction(self.tolerance)
        return best, best > self.tolerance

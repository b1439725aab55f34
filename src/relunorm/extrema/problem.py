"""What a maximisation knows while it runs: the problem, the best point, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Ball, Box, Domain, Polytope
from relunorm.domain.base import lengths
from relunorm.matrix import Vector
from relunorm.network import Network

#: A maximum is exact when the interval is at most this wide, relative to max(1, |maximum|).
TOLERANCE = 1e-9


@dataclass
class Search:
    """A scalar network to maximise over a domain, and what was found so far.

    Args:
        network: one output, no linear stages, no step units.
        target: stop once a value of at least this is found or the upper bound falls below it.
        noise: how far rounding can have moved the upper bound; not in ``upper``.
        stop: of ``clock.watch()``, for compiled loops.
    """

    network: Network
    domain: Domain
    clock: Clock = NO_LIMIT
    target: float = np.inf
    tolerance: float = TOLERANCE
    lower: float = -np.inf
    upper: float = np.inf
    point: Vector = field(default_factory=lambda: np.zeros(0))
    nodes: int = 0
    tell: Teller = field(default_factory=lambda: Teller(None, NO_LIMIT))
    stop: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1, np.uint8))
    decide: bool = False
    noise: float = 0.0

    @property
    def margin(self) -> float:
        """A bound within this of the best value counts as reached."""
        return self.tolerance * max(1.0, abs(self.lower)) if np.isfinite(self.lower) else 0.0

    @property
    def floor(self) -> float:
        """Bounds at or below this need no further look."""
        if self.decide:
            return max(self.lower, self.target - self.tolerance * max(1.0, abs(self.target)))
        return self.lower + self.slack

    @property
    def slack(self) -> float:
        """How far above the best value a bound may stay; none when a target is to be decided."""
        return 0.0 if self.decide else self.margin / 2

    def offer(self, points: NDArray[np.float64]) -> None:
        """Evaluate points of the domain and keep the best."""
        if not len(points):
            return
        points = project(points, self.domain)
        values = self.network(points)[:, 0]
        top = int(np.argmax(values))
        if values[top] > self.lower:
            self.lower, self.point = float(values[top]), points[top].copy()

    def out_of_time(self) -> bool:
        """Whether the time is up."""
        return self.clock.expired()

    def decided(self) -> bool:
        """Whether a target, if any, is already reached."""
        return self.decide and self.lower >= self.target

    def report(self) -> None:
        """Tell the caller where the search stands."""
        upper = max(self.upper, self.lower)
        text = f"between {self.lower:.6g} and {upper:.6g}"
        self.tell(text, self.nodes, at_once=False, lower=self.lower, upper=upper)


def project(points: NDArray[np.float64], domain: Domain) -> NDArray[np.float64]:
    """Points of the domain near the given ones: clipped for a box, else drawn to the centre."""
    if isinstance(domain, Box):
        return np.clip(points, domain.lo, domain.hi)
    if isinstance(domain, Ball):
        step = points - domain.center
        length = lengths(step)[:, None]
        share = np.divide(domain.reach, length, out=np.ones_like(length), where=length > 0)
        return domain.center + step * np.minimum(1.0, share)
    inside = domain.contains(points, 1e-12)
    return np.where(inside[:, None], points, _drawn_in(points, domain))


def _drawn_in(points: NDArray[np.float64], domain: Domain) -> NDArray[np.float64]:
    """Where the segments from a polytope's centre to the points leave the polytope."""
    if not isinstance(domain, Polytope):
        return np.broadcast_to(domain.center, points.shape)
    step = points - domain.center
    rates, slack = step @ domain.A.T, np.maximum(domain.b - domain.A @ domain.center, 0.0)
    share = np.divide(slack, rates, out=np.ones_like(rates), where=rates > slack)
    drawn = domain.center + share.min(axis=1, initial=1.0)[:, None] * step
    return np.where(domain.contains(drawn, 1e-12)[:, None], drawn, domain.center)

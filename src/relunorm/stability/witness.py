"""Points that show a unit active or inactive: the cheap half of the answer.

A pool of points is pushed through the network once; every unit remembers the point where it is
largest and the one where it is smallest. Sides still without a witness are climbed: forward,
gradient of that unit, jump to the point of the domain that maximises the gradient, repeat while it
gains. A witness counts only when its sign survives the rounding of the evaluation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.certain import enclosed
from relunorm.bounds.problem import Problem
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.domain.inside import is_flat, onto_plane
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.network.patterns import pulled_back

#: Points of one batch times units of the network, at most.
CHUNK_DOUBLES = 1 << 20

#: Jumps of one climb, at most; most stop after three or four.
JUMPS = 24

#: A climb whose steps have shrunk to this share of the way to the extreme point stops.
SHORTEST = 1e-3

#: Points of a flat polytope moved onto its plane: of one batch, and in all; a failure counts more.
MOVED = 16
MOVES = 512
MISS = 32


class Witnesses:
    """How far on either side of 0 every unit was seen for certain, and where.

    Args:
        clock: no further points are tried after its end, but for the very first ones.

    Attributes:
        most: per layer the largest -z (row 0) and z (row 1) that is certain of every unit.
        at: the points that show it.
    """

    def __init__(self, problem: Problem, clock: Clock = NO_LIMIT):
        self.problem, self.clock = problem, clock
        self.domain: Domain = problem.reach.domain
        self.points = self.domain.center[None]
        self.moves = MOVES
        widths = [layer.width for layer in problem.network.layers]
        self.most = [np.full((2, n), -np.inf) for n in widths]
        self.at = [np.full((2, n), -1) for n in widths]

    def add(self, points: Array) -> None:
        """Evaluate points of the domain and keep those that extend some unit's range."""
        inside = self.domain.holds(points)
        moved = self._moved(points[~inside]) if is_flat(self.domain) else []
        points = np.concatenate([points[inside], *moved])
        step = max(1, CHUNK_DOUBLES // sum(self.problem.network.widths))
        for start in range(0, len(points), step):
            if start and self.clock.expired():
                return
            self._add(points[start : start + step])

    def _moved(self, points: Array) -> list[Array]:
        """Some of the points moved onto the plane of a flat polytope, in rational arithmetic."""
        moved = []
        for point in points[: min(MOVED, self.moves)]:
            found = onto_plane(self.domain, point)
            # a plane that holds no floats is given up soon
            self.moves -= 1 if found is not None else MISS
            if found is not None:
                moved.append(found[None])
        return moved

    def _add(self, points: Array) -> None:
        pre, off = enclosed(self.problem.network, points, self.problem.absolute)
        values, errors = pre[:-1], off[:-1]
        used = np.zeros(len(points), dtype=bool)
        found = []
        for layer, (z, error) in enumerate(zip(values, errors, strict=True)):
            for side, sure in enumerate((-z - error, z - error)):
                best, most = sure.argmax(axis=0), self.most[layer][side]
                top = sure[best, np.arange(len(most))]
                better = top > most
                used[best[better]], most[better] = True, top[better]
                found.append((self.at[layer][side], better, best))
        place = np.cumsum(used) - 1 + len(self.points)
        self.points = np.concatenate([self.points, points[used]])
        for at, better, best in found:
            at[better] = place[best[better]]

    def shows(self, layer: int, unit: int, sign: float) -> bool:
        """Whether a point with sign * z[unit] > 0 is known."""
        return bool(self.most[layer][int(sign > 0), unit] > 0)

    def start(self, count: int, rng: np.random.Generator) -> None:
        """Seed the pool: the centre, random points and random extreme points."""
        self.add(start_points(self.domain, count, rng))

    def climb(
        self,
        layer: int,
        units: NDArray[np.intp],
        signs: Vector,
        starts: int,
        rng: np.random.Generator,
    ) -> None:
        """Search for points with signs * z[units] > 0, ``starts`` climbs a side in one batch."""
        step = max(1, CHUNK_DOUBLES // (starts * sum(self.problem.network.widths)))
        for start in range(0, len(units), step):
            if self.clock.expired():
                return
            some, side = units[start : start + step], signs[start : start + step]
            own = self.at[layer][(side > 0).astype(int), some]
            fresh = start_points(self.domain, len(some) * (starts - 1), rng)[1:]
            points = np.concatenate([self.points[own], fresh])
            count = len(points)
            self.climb_from(layer, points, np.resize(some, count), np.resize(side, count))

    def climb_from(self, layer: int, points: Array, units: NDArray[np.intp], signs: Vector) -> None:
        """Climb signs[i] * z[units[i]] from points[i]; a side stops at its first positive point."""
        best, step = np.full(len(points), -np.inf), np.ones(len(points))
        home, pull = points, np.zeros_like(points)
        for _ in range(JUMPS):
            if not len(points) or self.clock.expired():
                return
            z, gradient = unit_gradient(self.problem.network, points, layer, units)
            value = signs * z
            hit = value > 0
            self.add(points[hit])
            gained = value > best
            best = np.where(gained, value, best)
            home = np.where(gained[:, None], points, home)
            pull = np.where(gained[:, None], signs[:, None] * gradient, pull)
            step = np.where(gained, np.minimum(2 * step, 1.0), step / 4)
            sides = units * 2 + (signs > 0)
            keep = (step > SHORTEST) & ~np.isin(sides, sides[hit])
            units, signs, best, step = units[keep], signs[keep], best[keep], step[keep]
            home, pull = home[keep], pull[keep]
            far = self.domain.far_points(home, pull)
            points = np.where(step[:, None] == 1.0, far, home + step[:, None] * (far - home))


def start_points(domain: Domain, count: int, rng: np.random.Generator) -> Array:
    """The centre, then random points, half of them extreme."""
    inside = domain.sample(count // 2, rng)
    rest = count - len(inside)
    return np.concatenate([domain.center[None], inside, domain.extreme_points(rest, rng)])


def unit_gradient(
    network: Network, points: Array, layer: int, units: NDArray[np.intp]
) -> tuple[Vector, Array]:
    """Pre-activation of unit ``units[i]`` of a layer at ``points[i]``, and its gradient there."""
    values, slopes = [points], []
    for index in range(layer):
        z = network.layers[index].affine(values)
        slopes.append(network.layers[index].activation.derivative(z))
        values.append(network.layers[index].activation.apply_(z))
    affine = network.layers[layer].affine
    z = affine.bias[units].copy()
    by_value: dict[int, Array] = {}
    for source, matrix in affine.terms.items():
        rows = mx.dense(matrix[units])
        by_value[source] = rows[:, None]
        z += (rows * values[source]).sum(axis=1)
    found = pulled_back(network.layers[:layer], slopes, by_value)
    return z, np.zeros_like(points) if found is None else found[:, 0]

"""The other side of a comparison: a point where two networks differ for certain.

Both halves of that are decided without rounding: the point lies in the domain (`Domain.holds`), and
the outputs differ there by more than the tolerance. Where float64 and a bound on its rounding leave
the second one open, whole numbers decide it, up to a size; beyond that it stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from relunorm.arithmetic.certain import PARAMETERS, certain_outputs, exact_output
from relunorm.arithmetic.floats import float_below
from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference.difference import FEW_INPUTS
from relunorm.domain import Box, Domain
from relunorm.domain.inside import moved_inside
from relunorm.forms.precision import DOUBLE
from relunorm.forms.relation.relate import Walk
from relunorm.forms.relation.relation import NEW, SCALED
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.stability.witness import unit_gradient

#: Multiplications of one round of single coordinates, at most.
FLIPPING = 200_000_000

#: Share of the time for random steps, how many of them from a point at a time, and from how many
#: points in the end.
SCATTERED, TRIALS, FEWEST = 0.05, 8, 16

#: Steps at the shortest and at the longest, relative to the first ones.
LEAST, MOST = 2e-5, 6.0

#: Points that go on beside a search.
WANDERING = 24

#: Share of a difference that has to be certain in floats; else whole numbers give the rest.
HIDDEN = 0.98


@dataclass(eq=False)
class Counterexample:
    """The best point so far, and how far apart the networks are there at least.

    Attributes:
        lower: the difference at ``point``, rounded down.
        found: whether the difference there is more than the tolerance.
        visible: whether networks in float64 differ by more than their rounding, or by more than
            double precision can explain.
        points: a few hundred of the domain, and the outputs of the first network there.
    """

    given: tuple[Network, Network]
    domain: Domain
    tolerance: float
    rng: np.random.Generator
    clock: Clock
    lower: float = 0.0
    found: bool = False
    visible: bool = False
    point: Vector | None = None
    points: Array = field(init=False, repr=False)
    outputs: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        first, second = self.given
        self.folded = first.folded(), second.folded()
        points = spread(self.domain, 256, self.rng)
        inside = self.domain.holds(points)
        self.points = points[inside] if inside.any() else points
        self.outputs = self.folded[0](self.points)
        self.scale = float(np.nan_to_num(np.abs(self.outputs).max()))

    def probe(self) -> None:
        """Look at a few hundred points; most networks that differ show it here, in floats."""
        self._best(self.points, self.outputs - self.folded[1](self.points), 1, exactly=False)
        if self.found:
            self.climb()

    def between(self, walk: Walk) -> None:
        """Look where only one of two related steps has jumped."""
        points = between_thresholds(walk, self.points)
        points = points[self.domain.holds(points)]
        if len(points):
            self._best(points, difference(*self.folded, points), 4)

    def climb(self, **more: int) -> None:
        """Go uphill from many starts; ``more`` of them, say."""
        point, _ = attack(*self.folded, self.domain, rng=self.rng, clock=self.clock, **more)
        self.offer(point)

    def offer_best(self, points: Array, around: Array) -> None:
        """Try the best of many points and, where it is said how far, what is around them.

        Given none, climb with more starts.
        """
        box = self.domain.as_box
        few = box is not None and box.dimension <= FEW_INPUTS
        if not len(points):
            work = self.domain.dimension * max(network.parameters for network in self.folded)
            flips = min(32, FLIPPING // (4 * work))
            self.climb(starts=128, samples=4096, rounds=100, flips=flips)
            if few:
                self._scatter(box)
        elif few and around.any():
            self.offer(wander(*self.folded, box, points, WANDERING, around, self.rng, self.clock))
        else:
            self._best(points, difference(*self.folded, points), 1)

    def _scatter(self, box: Box) -> None:
        """`scatter` with more and more points, until twice that gains nothing."""
        clock, idle = self.clock.part(share=SCATTERED), 0
        most = FLIPPING * 100 // sum(network.parameters for network in self.folded)
        for count in (1 << 12, 1 << 14, 1 << 16, 1 << 18):
            if idle == 2 or count > most or clock.expired():
                return
            before = self.lower
            self.offer(scatter(*self.folded, box, count, self.rng, clock))
            idle = idle + 1 if self.lower <= 1.01 * before else 0

    def offer(self, point: Vector, exactly: bool = True) -> None:
        """Take a point if it lies in the domain and shows a larger difference for certain.

        Args:
            exactly: whether whole numbers decide what floats leave open.
        """
        moved = moved_inside(self.domain, point)
        if moved is None:
            return
        point = moved
        sure, more = self._certain(point, exactly)
        if sure > self.lower or more > self.found or self.point is None:
            self.point, self.lower = point, max(sure, self.lower)
            self.visible |= self.lower > DOUBLE * self.scale
            self.found |= more

    def _best(self, points: Array, apart: Array, count: int, exactly: bool = True) -> None:
        gaps = np.abs(apart).max(axis=1)
        for k in np.argsort(-gaps, kind="stable")[:count]:
            self.offer(points[k], exactly)

    def _certain(self, point: Vector, exactly: bool) -> tuple[float, bool]:
        """A lower bound on the difference at a point, and whether it exceeds the tolerance."""
        (a, a_off), (b, b_off) = (certain_outputs(n, point[None]) for n in self.given)
        gap = np.abs(a - b)
        sure = gap * (1 - 1e-15) - a_off - b_off
        best = float(np.where(np.isnan(sure), -np.inf, sure).max())
        self.visible |= best > 0
        doubtful = not best > self.tolerance and not (gap + a_off + b_off).max() < self.tolerance
        # a bound on the rounding that hides the difference, where it would be the largest one
        most = float(np.where(np.isnan(gap), np.inf, gap).max())
        doubtful |= best < HIDDEN * most and most > self.lower * (2 - HIDDEN)
        if exactly and doubtful and sum(network.parameters for network in self.given) <= PARAMETERS:
            values = (exact_output(network, point) for network in self.given)
            exact = max(abs(a - b) for a, b in zip(*values, strict=True))
            return float_below(exact), exact > Fraction(self.tolerance)
        return best, best > self.tolerance


#: Pairs of step units looked at, at most.
PAIRS = 64
#: How far beside a threshold, as a share of the largest coordinate.
BESIDE = (1e-2, 1e-4, 1e-7, 1e-10, 1e-13)
STEPS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


def attack(
    first: Network,
    second: Network,
    domain: Domain,
    *,
    rng: np.random.Generator,
    starts: int = 32,
    samples: int = 512,
    rounds: int = 30,
    flips: int = 0,
    clock: Clock = NO_LIMIT,
) -> tuple[Vector, float]:
    """The input found where max |f - g| is largest, and the value there (an estimate from below).

    Random points and corners first; from the best, steps along the sign of the gradient of the
    output that differs most, of several lengths at once, as long as something improves. Then, in a
    box, from so many of the best and twice as many in all, single coordinates (``flips``).
    """
    points = spread(domain, samples, rng)
    gaps = difference(first, second, points)
    size = np.abs(gaps).max(axis=1)
    if domain.rows:  # every step costs a linear programme
        starts = min(starts, 4)
    best = np.argsort(-size)[:starts]
    points, gaps, size = points[best], gaps[best], size[best]
    for _ in range(rounds):
        if clock.expired():
            break
        output = np.abs(gaps).argmax(axis=1)
        sign = np.sign(gaps[np.arange(len(points)), output])
        chosen = np.zeros_like(gaps)
        chosen[np.arange(len(points)), output] = np.where(sign == 0, 1.0, sign)
        slope = first.pullback(points, chosen) - second.pullback(points, chosen)
        trials = uphill(domain, points, slope)
        found = difference(first, second, trials).reshape(len(STEPS), len(points), -1)
        sizes = np.abs(found).max(axis=2)
        step = sizes.argmax(axis=0)
        rows = np.arange(len(points))
        better = sizes[step, rows] > size * (1 + 1e-9)
        if not better.any():
            break
        trials = trials.reshape(len(STEPS), len(points), -1)
        points = np.where(better[:, None], trials[step, rows], points)
        gaps = np.where(better[:, None], found[step, rows], gaps)
        size = np.abs(gaps).max(axis=1)
    if domain.as_box is not None and flips:
        more = spread(domain, samples, rng)
        points = np.concatenate([points[np.argsort(-size)[:flips]], more])
        points, size = _flipped(first, second, domain.as_box, points, flips, clock)
    winner = int(size.argmax())
    return points[winner], float(size[winner])


def scatter(
    first: Network,
    second: Network,
    box: Box,
    count: int,
    rng: np.random.Generator,
    clock: Clock = NO_LIMIT,
) -> Vector:
    """The input found where max |f - g| is largest, by random steps from many points.

    With few inputs a difference can have its peak in a corner that no gradient points to. A tenth
    of the points goes on.
    """
    lo, width = box.lo, box.hi - box.lo
    points = box.sample(count, rng)
    edge = rng.random((count // 4, box.dimension))  # a third of the coordinates of a quarter
    points[: count // 4] = np.where(
        edge < 1 / 6, lo, np.where(edge < 1 / 3, box.hi, points[: count // 4])
    )
    around = np.broadcast_to(0.05 * width, points.shape)
    return wander(first, second, box, points, max(FEWEST, count // 10), around, rng, clock)


def wander(
    first: Network,
    second: Network,
    box: Box,
    points: Array,
    count: int,
    around: Array,
    rng: np.random.Generator,
    clock: Clock = NO_LIMIT,
) -> Vector:
    """The input found by random steps from the best of some points, that far ``around`` at first.

    Each point takes the best of a few steps of many lengths, and after each step the worst are left
    behind. (Successive halving: Karnin, Koren and Somekh, ICML 2013.)
    """
    size = _sizes(first, second, points)
    best = np.argsort(-size, kind="stable")[:count]
    points, size, around, reach = points[best], size[best], around[best], np.ones(len(best))
    idle = 0
    while idle < 20 and not clock.expired():
        shape = (len(points), TRIALS, box.dimension)
        length = reach[:, None, None] * 10 ** rng.uniform(-1.5, 0.5, (*shape[:2], 1))
        moves = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), 0.0)
        trials = box.project(
            (points[:, None] + length * around[:, None] * moves).reshape(-1, shape[2])
        )
        found = _sizes(first, second, trials).reshape(shape[:2])
        rows, one = np.arange(len(points)), found.argmax(axis=1)
        chosen, value = trials.reshape(shape)[rows, one], found[rows, one]
        better = value > size
        idle = 0 if len(points) > FEWEST or value.max() > 1.001 * size.max() else idle + 1
        far = (np.abs(chosen - points) / np.where(around > 0, around, 1.0)).max(axis=1)
        reach = np.where(better, np.clip(2 * far, LEAST, MOST), np.maximum(0.8 * reach, LEAST))
        points, size = np.where(better[:, None], chosen, points), np.maximum(value, size)
        kept = np.argsort(-size, kind="stable")[: max(FEWEST, int(0.7 * len(size)))]
        points, size, around, reach = points[kept], size[kept], around[kept], reach[kept]
    return points[0]


def _sizes(first: Network, second: Network, points: Array) -> Vector:
    """max |f - g| at many points, some at a time."""
    parts = np.array_split(points, max(1, len(points) >> 13))
    return np.concatenate([np.abs(difference(first, second, p)).max(axis=1) for p in parts])


def _flipped(
    first: Network, second: Network, box: Box, points: Array, count: int, clock: Clock
) -> tuple[Array, Vector]:
    """From the best points, one coordinate at a time to the end of its range that gains most."""
    size = np.abs(difference(first, second, points)).max(axis=1)
    best = np.argsort(-size, kind="stable")[: 2 * count]
    points, size = points[best], size[best]
    d, going = box.dimension, np.arange(len(best))
    while len(going) and not clock.expired():
        trials = np.repeat(points[going][:, None], 2 * d, axis=1)
        trials[:, np.arange(d), np.arange(d)] = box.lo
        trials[:, d + np.arange(d), np.arange(d)] = box.hi
        sizes = np.abs(difference(first, second, trials.reshape(-1, d))).max(axis=1)
        sizes = sizes.reshape(len(going), 2 * d)
        rows, flip = np.arange(len(going)), sizes.argmax(axis=1)
        better = sizes[rows, flip] > size[going] * (1 + 1e-9)
        points[going[better]] = trials[rows, flip][better]
        size[going[better]] = sizes[rows, flip][better]
        going = going[better]
    return points, size


def spread(domain: Domain, count: int, rng: np.random.Generator) -> Array:
    """Random points, for a box half of them corners, and the centre.

    Points of a flat polytope leave its plane by a rounding error. Copies on a coarse binary grid
    are added; for planes with simple coefficients many of them lie inside exactly.
    """
    points = domain.sample(count, rng)
    if domain.rows:
        points = np.concatenate([points, domain.center[None]])
        grid = 2.0 ** (np.ceil(np.log2(np.maximum(np.abs(points).max(), 1e-300))) - 10)
        return np.concatenate([points, np.round(points / grid) * grid])
    box = domain.as_box
    if box is not None:
        half = count // 2
        corner = rng.random((half, box.dimension)) < 0.5
        points[:half] = np.where(corner, box.lo, box.hi)
    return np.concatenate([points, np.atleast_2d(domain.center)])


def difference(first: Network, second: Network, points: Array) -> Array:
    """f - g, point by point."""
    return first(points) - second(points)


def uphill(domain: Domain, points: Array, slope: Array) -> Array:
    """Steps of every length uphill, all inside the domain: those of the first length first."""
    box = domain.as_box
    if box is not None:
        stride = np.sign(slope) * 2 * box.halfwidth
        return np.concatenate([box.project(points + step * stride) for step in STEPS])
    far = domain.maximizer(slope)
    # a hair inside: the end of the segment may lie outside by a rounding error
    return np.concatenate([points + step * (1 - 1e-9) * (far - points) for step in STEPS])


def between_thresholds(walk: Walk, points: Array) -> Array:
    """Candidates for a difference of step networks: inputs at and beside their thresholds.

    Halfway between the thresholds of related units, where only one of them has jumped, and on
    either side of every threshold, where only one network jumps if the other has no such unit.
    """
    singles = [
        [(side.network, k, unit, 1.0)]
        for side in walk.sides
        for k, layer in enumerate(side.network.layers)
        if layer.activation.kind == "step"
        for unit in range(layer.width)
    ]
    found = [_roots(pair, points)[0] for pair in _step_pairs(walk)[:PAIRS]]
    size = np.abs(points).max(initial=1e-300)
    for single in singles[:PAIRS]:
        root, normal = _roots(single, points)
        for share in BESIDE:
            found += [root + share * size * normal, root - share * size * normal]
    return np.concatenate([np.empty((0, points.shape[1])), *found])


def _roots(units: Sequence[tuple[Network, int, int, float]], points: Array) -> tuple[Array, Array]:
    """Zeros of the mean of a few pre-activations, and the unit normals there.

    One Newton step x - h grad h / |grad h|^2 from the points nearest by: exact for first layers.
    """
    z, slope = np.zeros(len(points)), np.zeros_like(points)
    for network, layer, unit, factor in units:
        value, gradient = unit_gradient(network, points, layer, np.full(len(points), unit))
        z, slope = z + factor * value / len(units), slope + factor * gradient / len(units)
    square = (slope * slope).sum(axis=1)
    steep = np.flatnonzero(square > 0)
    near = steep[np.argsort(z[steep] ** 2 / square[steep])[:8]]
    normal = slope[near] / np.sqrt(square[near])[:, None]
    return points[near] - (z[near] / np.sqrt(square[near]))[:, None] * normal, normal


def _step_pairs(walk: Walk) -> list[list[tuple[Network, int, int, float]]]:
    """Related step units, the worst matched first: (network, layer, unit, factor) twice."""
    home = []  # where each block's functions live
    for side in walk.sides:
        home += [(side, k, np.flatnonzero(r.kind == NEW)) for k, r in enumerate(side.relations)]
    pairs = []
    for side in walk.sides:
        for k, (relation, margin) in enumerate(zip(side.relations, side.margins, strict=True)):
            for unit in np.flatnonzero(np.isfinite(margin)):
                other, layer, units = home[relation.block[unit] - 1]
                turn = 1.0 if relation.kind[unit] == SCALED else -1.0
                ours = (side.network, k, int(unit), turn / relation.factor[unit])
                theirs = (other.network, layer, int(units[relation.index[unit]]), 1.0)
                pairs.append((margin[unit] / relation.factor[unit], [ours, theirs]))
    return [pair for _, pair in sorted(pairs, key=lambda entry: -entry[0])]

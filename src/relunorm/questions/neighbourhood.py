"""What robustness asks around one input: which inputs are near, and which outputs are wrong.

And what can be said cheaply: an attack on many inputs at once, and a radius that is safe. Around
one input most units keep their sign, and over so little of the domain intervals for the units and
one backward pass for the outputs go far. A search that starts from such a radius has something to
show, whatever its time; of a network with thousands of units it is often all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from relunorm.arithmetic.floats import float_above, root_above
from relunorm.bounds.layers.intervals import interval_bounds
from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.problem import Bounds, Group, Problem
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain, NormBall
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.search.folding import with_goals

#: Steps of the common attack, and entries of one batch.
STEPS, ENTRIES = 8, 1 << 22

#: Radii that are tried, how many of them whatever the clock says, and how many times the smallest
#: is halved beneath the largest.
TRIES, SURE_TRIES, HALVINGS = 7, 4, 16


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The valid inputs within a radius of x.

    Args:
        outer: holds all of them; a proof is about this.
        inner: holds nothing else; an adversarial input lies in this. The two differ by the rounding
            of x - radius and x + radius.
    """

    outer: Domain
    inner: Domain


def neighbourhood(
    x: Vector, radius: float, norm: float, valid: Box | None, scale: Vector | None = None
) -> Neighbourhood:
    """The inputs within ``radius`` of ``x`` in the norm inf, 2 or 1, clipped to ``valid``.

    With ``scale`` (norm inf only) input i may move by ``radius * scale[i]``.

    >>> found = neighbourhood(np.array([0.5]), 0.75, np.inf, Box([0.0], [1.0]))
    >>> found.outer
    Box([0, 1]^1)
    """
    most = least = np.float64(radius)
    if scale is not None:
        most = least = radius * scale
        if radius != 1:  # the product rounds
            most, least = np.nextafter(most, np.inf), np.nextafter(least, 0.0)
            most, least = np.where(scale == 0, 0.0, [most, least])
    low = _ends(x, -most)[0], _ends(x, -least)[1]
    high = _ends(x, least)[0], _ends(x, most)[1]
    if valid is not None:
        low = tuple(np.maximum(end, valid.lo) for end in low)
        high = tuple(np.minimum(end, valid.hi) for end in high)
    outer = Box(low[0], high[1])
    if norm == np.inf:
        return Neighbourhood(outer, Box(np.minimum(low[1], x), np.maximum(high[0], x)))
    ball = NormBall(x, radius, int(norm), outer)
    return Neighbourhood(ball, ball)


def _ends(x: Vector, step: float | Vector) -> tuple[Vector, ...]:
    """x + step rounded down and up; the rounding of a sum is itself a float (Knuth's TwoSum)."""
    total = x + step
    back = total - x
    lost = (x - (total - back)) + (step - back)
    below = np.where(lost < 0, np.nextafter(total, -np.inf), total)
    return below, np.where(lost > 0, np.nextafter(total, np.inf), total)


def distance(x: Vector, y: Vector, norm: float, scale: Vector | None = None) -> float:
    """The distance in the norm inf, 2 or 1, rounded up.

    With ``scale`` in its units; inputs of scale 0 do not move.
    """
    steps = [abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(x, y, strict=True)]
    if scale is not None:
        steps = [s / Fraction(u) for s, u in zip(steps, scale.tolist(), strict=True) if u]
    if norm == np.inf or norm == 1:
        return float_above(max(steps) if norm == np.inf else sum(steps, Fraction(0)))
    return root_above(sum((s * s for s in steps), Fraction(0)))


def wrong_outputs(
    network: Network, label: int | None, value: Vector, delta: float | None, *, surely: bool
) -> list[Group]:
    """The conjunctions A f(x) <= b, any of which makes an output wrong.

    A tie counts as wrong, as does an output exactly ``delta`` away. Where value + delta is no
    float, those that are not ``surely`` wrong hold every wrong output, and the others no right one.
    """
    count = network.output_size
    own = np.eye(count)
    if delta is not None:
        high, low = _ends(value, delta)[surely], _ends(value, -delta)[not surely]
        up = [(-own[[i]], -high[[i]]) for i in range(count)]
        return up + [(own[[i]], low[[i]]) for i in range(count)]
    if label is None:
        raise InvalidInputError("a classifier needs a label to be robust about")
    if count == 1:  # one output: class 1 where it is positive
        return [(np.array([[1.0 if label else -1.0]]), np.zeros(1))]
    return [(own[[label]] - own[[j]], np.zeros(1)) for j in range(count) if j != label]


def attack_all(
    network: Network,
    domains: Sequence[Domain],
    groups: Sequence[Sequence[Group]],
    random_state: int = 0,
    clock: Clock = NO_LIMIT,
) -> Array:
    """For every row a point of its domain where an output comes near to being wrong, or is.

    All rows move at once along the gradient of the group that is nearest to being satisfied, from
    the centre and from a random point, until the clock's end. An estimate: nothing follows where
    nothing is found.
    """
    rng = np.random.default_rng(random_state)
    size = network.input_size * network.output_size + max(network.widths)
    chunk = max(1, ENTRIES // size)
    found = [np.zeros((0, network.input_size))]
    for first in range(0, len(domains), chunk):
        part = slice(first, first + chunk)
        found.append(_attack(network, domains[part], groups[part], rng, clock))
    return np.concatenate(found)


def _attack(
    network: Network,
    domains: Sequence[Domain],
    groups: Sequence[Sequence[Group]],
    rng: np.random.Generator,
    clock: Clock,
) -> Array:
    A = np.array([[group[0][0] for group in each] for each in groups])  # rows, groups, outputs
    b = np.array([[group[1][0] for group in each] for each in groups])
    best = np.array([domain.center for domain in domains])
    value = np.full(len(domains), -np.inf)
    for start in range(2):
        points = best.copy()
        if start:
            points = np.concatenate([domain.sample(1, rng) for domain in domains])
        for step in range(STEPS):
            if clock.expired():
                return best
            goals = b - np.einsum("ngo,no->ng", A, network(points))
            better = goals.max(axis=1) > value
            value = np.where(better, goals.max(axis=1), value)
            best = np.where(better[:, None], points, best)
            rows = A[np.arange(len(A)), goals.argmax(axis=1)]
            gradient = network.pullback(points, -rows)
            far = _furthest(domains, gradient, points)
            share = 1.0 if step % 4 == 0 else rng.uniform(0.1, 0.7, (len(points), 1))
            points = points + share * (far - points)
    return best


def _furthest(domains: Sequence[Domain], gradient: Array, points: Array) -> Array:
    """For every row the point of its domain that is furthest along its gradient."""
    boxes = [domain.as_box for domain in domains if domain.as_box is not None]
    if len(boxes) == len(domains):
        lo, hi = np.array([box.lo for box in boxes]), np.array([box.hi for box in boxes])
        return np.where(gradient > 0, hi, np.where(gradient < 0, lo, points))
    return np.concatenate([d.maximizer(g[None]) for d, g in zip(domains, gradient, strict=True)])


def quick_radius(
    network: Network,
    groups: Sequence[Group],
    around: Callable[[float], Domain],
    most: float,
    clock: Clock,
) -> float:
    """The largest of some radii below ``most`` at which no conjunction A f(x) <= b can hold.

    Returns:
        0 where none of those that were tried is proved.
    """
    goals = with_goals(network, groups)
    below, above = -float(HALVINGS), 0.0  # exponents of two
    found = 0.0
    for attempt in range(TRIES):
        if attempt >= SURE_TRIES and clock.expired():
            break
        middle = (below + above) / 2
        radius = most * 2.0**middle
        if radius > 0 and _proved(goals, groups, around(radius)):
            found, below = radius, middle
        else:
            above = middle
    return found


def _proved(goals: Network, groups: Sequence[Group], domain: Domain) -> bool:
    """Whether in every group some row is negative everywhere."""
    problem = Problem(goals, reach_of(domain))
    bounds, last = Bounds(problem), len(goals.layers)
    for index in range(last):
        bounds.append(*interval_bounds(problem, bounds, index))
    rows = np.arange(goals.output_size)
    most = linear_upper(problem, bounds, last, rows, np.ones(len(rows)))
    ends = np.cumsum([len(b) for _, b in groups])[:-1]
    return all(part.min(initial=np.inf) < 0 for part in np.split(most, ends))

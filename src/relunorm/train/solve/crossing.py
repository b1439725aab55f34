"""A sharper lower bound for linear splines: neighbouring lines have to meet between the data.

`spline_bound` lets every piece have its own line. But if exactly one knot of a continuous spline
lies in the gap [l, r] between two neighbouring inputs, the lines on both sides cross in it: their
difference d has d(l) d(r) <= 0. For a group of rows with its least-squares line, another line costs
(p - p^)' A (p - p^) more, p its values at l and r; so lines with difference d cost a pair of groups
at least (d - d^)' C^-1 (d - d^), C = A_1^-1 + A_2^-1, and where d^(l) d^(r) > 0 the nearest
admissible d lies on an axis:

    penalty = min(d^(l)^2 / C_ll, d^(r)^2 / C_rr).

A group shares its A between the two pairs it belongs to, which makes the penalties of all pairs add
up to a lower bound. Two knots in one gap join any two lines and cost nothing but the second knot.
The cheapest division is a shortest path over pairs of groups. Groups that occur in no division
below the best spline known are left out, so what remains is small where that spline is good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.train.solve.bound import Floats, Pieces, Places, SplineBound

#: Pairs of groups times knots above which the path is not searched.
MOST_WORK = 200_000_000
#: Entries of the table that one step of the path may hold.
MOST_HELD = 4_000_000


def crossing_bound(
    x: Floats,
    y: Floats,
    weight: Floats,
    knots: int,
    upper: float,
    clock: Clock = NO_LIMIT,
    pieces: Pieces | None = None,
) -> SplineBound | None:
    """Lower bound on the squared error of every continuous spline with at most ``knots`` knots.

    Sound, rounding accounted for, and never above ``upper``; at least `spline_bound`. None where
    there are too many distinct inputs, too many groups are left to search through or the time is
    up.

    >>> from relunorm.train.solve.bound import spline_bound
    >>> x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    >>> y = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    >>> plain = spline_bound(x, y, np.ones(6), 1).value
    >>> round(plain, 3), round(crossing_bound(x, y, np.ones(6), 1, 0.3).value, 3)
    (0.0, 0.3)
    """
    if knots < 1:
        return None
    pieces = pieces or Pieces.of(x, y, weight, clock=clock)
    if pieces is None or pieces.coarse:
        return None
    useful = _useful(pieces.costs, knots, upper, clock)
    if useful is None:
        return None
    groups = _groups(pieces, useful)
    left, right = groups.by_end, groups.by_start
    work = sum(len(left[c]) * len(right[c]) for c in range(1, len(pieces.origin)))
    if work * (knots + 1) > MOST_WORK:
        return None
    return _cheapest(groups, pieces.origin, knots, upper, clock)


def _useful(cost: Floats, knots: int, upper: float, clock: Clock) -> NDArray[np.bool_] | None:
    """Groups (s, t) of cells that occur in a division into lines of cost at most ``upper``."""
    size = len(cost)
    before = np.full((knots + 1, size), np.inf)
    after = np.full((knots + 1, size), np.inf)
    before[0, 0] = after[0, -1] = 0.0
    for k in range(1, knots + 1):
        if clock.expired():
            return None
        before[k] = np.minimum(before[k - 1], (before[k - 1][:, None] + cost).min(axis=0))
        after[k] = np.minimum(after[k - 1], (cost + after[k - 1]).min(axis=1))
    best = np.full_like(cost, np.inf)
    for k in range(knots + 1):
        if clock.expired():
            return None
        np.minimum(best, before[k][:, None] + cost + after[knots - k], out=best)
    return best <= upper


@dataclass(frozen=True)
class _Groups:
    """Groups of neighbouring cells with their least-squares lines.

    Attributes:
        mass, middle, height, slope, spread: total weight, mean input (from the origin), mean
            target, slope, and sum of squared deviations of the inputs (0 where they do not
            determine a slope).
    """

    start: Places
    end: Places
    cost: Floats
    origin: Floats
    mass: Floats
    middle: Floats
    height: Floats
    slope: Floats
    spread: Floats
    slack: Floats
    by_start: list[Places]
    by_end: list[Places]

    def values(self, which: Places, at: float) -> tuple[Floats, Floats]:
        """The lines at one input, and how wrong they can be."""
        reach = (at - self.origin[which]) - self.middle[which]
        slack = self.slack[which] * np.abs(reach) + 1e-14 * (1 + np.abs(self.height[which]))
        return self.height[which] + self.slope[which] * reach, slack

    def variance(self, which: Places, at: float) -> Floats:
        """Diagonal entries of A^-1; infinite where the slope is free."""
        spread = self.spread[which]
        free = spread <= 0
        reach = (at - self.origin[which]) - self.middle[which]
        far = np.square(reach) / np.where(free, 1.0, spread)
        return np.where(free, np.inf, 1 / self.mass[which] + far)


def _groups(pieces: Pieces, useful: NDArray[np.bool_]) -> _Groups:
    start, end = np.nonzero(useful)
    which = start, end
    error_x, error_y = (part[which] for part in pieces.rounding)
    spread = pieces.xx[which]
    determined = (spread > 0) & (error_x < 1e-7)
    safe = np.where(determined, spread, 1.0)
    size = len(pieces.edges)
    return _Groups(
        start=start,
        end=end,
        cost=pieces.costs[which],
        origin=pieces.origin[start],
        mass=pieces.mass[which],
        middle=pieces.middle[which],
        height=pieces.base[start] + pieces.height[which],
        slope=np.where(determined, pieces.xy[which] / safe, 0.0),
        spread=np.where(determined, spread, 0.0),
        slack=2 * (error_x + error_y) * np.sqrt(spread * pieces.yy[which]) / safe,
        by_start=_gathered(start, size),
        by_end=_gathered(end, size),
    )


def _gathered(keys: Places, size: int) -> list[Places]:
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.searchsorted(keys[order], np.arange(1, size)))


def _penalties(groups: _Groups, left: Places, right: Places, low: float, high: float) -> Floats:
    """(left, right): what it costs at least that the two lines cross between low and high."""
    last = len(groups.by_end) - 1
    share_left = np.where(groups.start[left] == 0, 1.0, 2.0)
    share_right = np.where(groups.end[right] == last, 1.0, 2.0)
    parts, signs = [], []
    for at in (low, high):
        (a, slack_a), (b, slack_b) = groups.values(left, at), groups.values(right, at)
        gap = b - a[:, None]
        sure = np.maximum(np.abs(gap) - slack_a[:, None] - slack_b, 0.0)
        spread = (share_left * groups.variance(left, at))[:, None]
        spread = spread + share_right * groups.variance(right, at)
        parts.append(np.square(sure) / spread)
        signs.append(np.sign(gap))
    # a hair less than computed: the spreads carry rounding too
    return np.where(signs[0] == signs[1], (1 - 1e-9) * np.minimum(*parts), 0.0)


def _cheapest(
    groups: _Groups, inputs: Floats, knots: int, upper: float, clock: Clock
) -> SplineBound | None:
    """The shortest path: after each group, for each number of knots used, the least total."""
    total = np.full((len(groups.cost), knots + 1), np.inf)
    first = groups.by_start[0]
    total[first, 0] = groups.cost[first]
    back: dict[int, tuple[Places, Places]] = {}
    for cut in range(1, len(inputs)):
        left, right = groups.by_end[cut], groups.by_start[cut]
        if not len(left) or not len(right):
            continue
        if clock.expired():
            return None
        penalty = _penalties(groups, left, right, float(inputs[cut - 1]), float(inputs[cut]))
        best, at = _step(total[left], penalty)
        if knots > 1:
            # two knots in the gap: no penalty
            free = total[left].argmin(axis=0)
            two = total[left[free], np.arange(knots + 1)]
            jump = np.full_like(best, np.inf)
            jump[:, 2:] = two[:-2]
            at = np.where(jump < best, -1 - np.roll(free, 2), at)
            best = np.minimum(best, jump)
        total[right] = best + groups.cost[right, None]
        back[cut] = (left, at)
    ends = groups.by_end[-1]
    if not len(ends) or not np.isfinite(total[ends]).any():
        return None
    group, used = np.unravel_index(int(total[ends].argmin()), total[ends].shape)
    value = float(total[ends[group], used])
    return SplineBound(min(value, upper), _trace(groups, back, inputs, int(ends[group]), int(used)))


def _step(total: Floats, penalty: Floats) -> tuple[Floats, Places]:
    """For every right group and number of knots: the least total with one knot more, and whose."""
    members, count = total.shape
    best = np.full((penalty.shape[1], count), np.inf)
    at = np.zeros(best.shape, dtype=np.intp)
    width = max(1, MOST_HELD // (members * count))
    for begin in range(0, len(best), width):
        part = slice(begin, begin + width)
        table = total[:, None, :-1] + penalty[:, part, None]
        where = table.argmin(axis=0)
        at[part, 1:] = where
        best[part, 1:] = np.take_along_axis(table, where[None], axis=0)[0]
    return best, at


def _trace(groups: _Groups, back: dict, inputs: Floats, group: int, used: int) -> Floats:
    """A knot where the lines cross in every gap the path has one in, two where it has two."""
    knots: list[float] = []
    while groups.start[group] > 0:
        cut = int(groups.start[group])
        left, at = back[cut]
        row = int(np.flatnonzero(groups.by_start[cut] == group)[0])
        where = int(at[row, used])
        low, high = float(inputs[cut - 1]), float(inputs[cut])
        before = int(left[max(where, -1 - where)])
        if where >= 0:
            knots.append(_crossing(groups, np.array([before, group]), low, high))
            used -= 1
        else:
            knots += [low + 2 * (high - low) / 3, low + (high - low) / 3]
            used -= 2
        group = before
    return np.array(knots[::-1])


def _crossing(groups: _Groups, pair: Places, low: float, high: float) -> float:
    """Where two lines cross between low and high, or the end at which they are closer."""
    (a, b), (c, d) = groups.values(pair, low)[0], groups.values(pair, high)[0]
    start, end = float(b - a), float(d - c)
    if start * end < 0:
        return low + (high - low) * start / (start - end)
    return low if abs(start) < abs(end) else high

"""A certified lower bound for fitting linear splines, by exact dynamic programming.

A continuous piecewise-linear function with K knots is affine on K + 1 pieces; on each of them it
fits no better than that piece's own least-squares line. The cheapest division of the sorted data
into K + 1 consecutive groups, each with its own line, is therefore a lower bound on the squared
error of every network with one input and K units (beside an affine part), and its cuts are
excellent knots.

Sums over a group are not differences of prefix sums, which lose every digit where the rest of the
data is far away: they grow row by row from the group's own first input (Chan, Golub & LeVeque
1983), all groups that end at the same place at once. So one input at 1e9 costs the others nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

#: Above this many distinct inputs the data is gathered into so many cells.
CELLS = 1500


@dataclass(frozen=True)
class Pieces:
    """Moments of the rows in cells s .. t-1, as matrices [s, t]; zero unless s < t.

    Attributes:
        edges: row numbers where cells start, and n.
        coarse: whether a cell may hold several inputs.
        middle: mean input, from ``origin[s]``.
        height: mean target, from ``base[s]``.
        xx, xy, yy: sums of products of deviations from the means.
    """

    edges: Places
    coarse: bool
    origin: Floats
    base: Floats
    mass: Floats
    middle: Floats
    height: Floats
    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(
        cls, x: Floats, y: Floats, weight: Floats, most: int = CELLS, clock: Clock = NO_LIMIT
    ) -> Pieces | None:
        """From sorted rows, in at most so many cells, at a cost of O(cells^2).

        None if the clock ends first.
        """
        edges, coarse = cells(x, most)
        first = edges[:-1]
        size = len(first)
        mass, middle, height, xx, xy, yy = single = _cells(x, y, weight, edges)
        # [t, s] while it grows, so that groups with the same end lie together
        table = np.zeros((6, size + 1, size + 1))
        state = np.zeros((6, size))
        for t in range(size):
            if t % 64 == 0 and clock.expired():
                return None
            group = state[:, :t]
            right = (x[first[t]] - x[first[:t]]) + middle[t] - group[1]
            up = (y[first[t]] - y[first[:t]]) + height[t] - group[2]
            share = mass[t] / (group[0] + mass[t])
            pull = share * group[0]
            group[0] += mass[t]
            group[1] += share * right
            group[2] += share * up
            group[3] += xx[t] + pull * right * right
            group[4] += xy[t] + pull * right * up
            group[5] += yy[t] + pull * up * up
            state[:, t] = [part[t] for part in single]
            table[:, t + 1, : t + 1] = state[:, : t + 1]
        return cls(edges, coarse, x[first], y[first], *(part.T for part in table))

    @cached_property
    def rounding(self) -> tuple[Floats, Floats]:
        """Relative errors of ``xx`` and ``yy`` at most: the bound of Chan, Golub & LeVeque.

        rows * eps * sqrt(1 + mean^2 / variance), the mean measured from the group's origin.
        """
        rows = np.maximum(self.edges[None, :] - self.edges[:, None], 1)
        unit = 8 * np.finfo(np.float64).eps * (rows + 4)

        def spread(mean: Floats, squares: Floats) -> Floats:
            ratio = np.zeros_like(squares)
            np.divide(self.mass * mean * mean, squares, out=ratio, where=squares > 0)
            return unit * np.sqrt(1 + ratio)

        return spread(self.middle, self.xx), spread(self.height, self.yy)

    @cached_property
    def costs(self) -> Floats:
        """A lower bound on the squared error of the best line through cells s .. t-1.

        Infinite unless s < t.
        """
        error_x, error_y = self.rounding
        sure = self.yy * (1 - error_y)
        joint = np.abs(self.xy) + (error_x + error_y) * np.sqrt(self.xx * self.yy)
        explained = np.full_like(sure, np.inf)
        # a single input explains nothing; inputs that rounding cannot tell apart may explain all
        determined = (self.xx > 0) & (error_x < 0.25)
        np.divide(joint * joint, self.xx * (1 - error_x), out=explained, where=determined)
        explained[self.xx <= 0] = 0.0
        cost = np.maximum(sure - explained, 0.0)
        cost[self.mass <= 0] = np.inf
        return cost


def cells(x: Floats, most: int) -> tuple[Places, bool]:
    """Row numbers where cells start (and n): one cell per distinct input, or ``most``."""
    starts = np.flatnonzero(np.diff(x, prepend=-np.inf) > 0)
    coarse = len(starts) > most
    if coarse:
        starts = starts[np.linspace(0, len(starts), most, endpoint=False).astype(np.intp)]
    return np.append(starts, len(x)), coarse


def _cells(x: Floats, y: Floats, weight: Floats, edges: Places) -> tuple[Floats, ...]:
    """Mass, mean input and target from the first row, and squared deviations, cell by cell."""
    first, width = edges[:-1], np.diff(edges)

    def total(values: Floats) -> Floats:
        return np.add.reduceat(weight * values, first)

    mass = total(np.ones_like(x))
    right, up = (v - np.repeat(v[first], width) for v in (x, y))
    middle, height = total(right) / mass, total(up) / mass
    right, up = right - np.repeat(middle, width), up - np.repeat(height, width)
    return mass, middle, height, total(right * right), total(right * up), total(up * up)


@dataclass(frozen=True)
class SplineBound:
    """The bound and where its pieces meet.

    Attributes:
        value: weighted sum of squares that no spline with so many knots can beat.
        knots: the middle of the gap between neighbouring pieces, sorted.
        complete: whether there was time for it; else the value is 0, which is true and worthless,
            and the knots are fewer.
    """

    value: float
    knots: NDArray[np.float64]
    complete: bool = True


def spline_bound(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    knots: int,
    clock: Clock = NO_LIMIT,
    pieces: Pieces | None = None,
) -> SplineBound:
    """Lower bound on sum_i weight_i (y_i - f(x_i))^2 over all f with at most ``knots`` knots.

    Sound: rounding is accounted for. Exact for discontinuous pieces while there are at most
    `CELLS` distinct inputs; with more, rows are gathered into cells and a cell that a knot may
    fall into counts as fitted perfectly. Cost O(min(n, CELLS)^2 knots).

    Args:
        x: (n,) sorted inputs, y: (n,) targets of order one, weight: (n,) positive.
        pieces: the rows' own, if known; they may be fewer than `CELLS`.

    >>> x = np.linspace(0, 1, 50)
    >>> spline_bound(x, np.abs(x - 0.5), np.ones(50), 1).value < 1e-12
    True
    >>> round(spline_bound(x, np.abs(x - 0.5), np.ones(50), 0).value, 4)
    1.0829
    """
    pieces = pieces or Pieces.of(x, y, weight, clock=clock)
    if pieces is None:
        return SplineBound(0.0, np.empty(0), complete=False)
    cost, edges, coarse = pieces.costs, pieces.edges, pieces.coarse
    size = len(edges)
    best = cost[0].copy()
    back: list[NDArray[np.intp]] = []
    # the next piece starts at the cut, or after the cell that holds it
    following = _shifted(cost) if coarse else cost
    for _ in range(knots):
        if clock.expired():
            return SplineBound(0.0, _trace(back, x, edges, coarse), complete=False)
        total = best[:, None] + following
        at = total.argmin(axis=0)
        lower = total[at, np.arange(size)]
        better = lower < best
        back.append(np.where(better, at, -1))
        best = np.where(better, lower, best)
    return SplineBound(float(best[-1]), _trace(back, x, edges, coarse))


def _shifted(cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """cost with the first cell of the piece given away; an empty piece is free."""
    shifted = np.full_like(cost, np.inf)
    shifted[:-1] = cost[1:]
    index = np.arange(len(cost) - 1)
    shifted[index, index + 1] = 0.0
    return shifted


def _trace(
    back: list[NDArray[np.intp]], x: NDArray[np.float64], edges: NDArray[np.intp], coarse: bool
) -> NDArray[np.float64]:
    knots, at = [], len(edges) - 1
    for choice in reversed(back):
        if choice[at] < 0:
            continue
        at = int(choice[at])
        row = int(edges[at])
        high = x[min(row, len(x) - 1)] if not coarse else x[min(int(edges[at + 1]), len(x) - 1)]
        knots.append((x[max(row - 1, 0)] + high) / 2)
    return np.array(knots[::-1])

"""A certified lower bound for fitting linear splines, by exact dynamic programming.

A continuous piecewise-linear function with K knots is affine on K + 1 pieces; on each of them it
fits no better than that piece's own least-squares line. The cheapest division of the sorted data
into K + 1 consecutive groups, each with its own line, is therefore a lower bound on the squared
error of every network with one input and K units (beside an affine part), and its cuts are
excellent knots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.train.pieces import Pieces


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
        clock: when to give up.
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
    back: list[NDArray[np.intp]],
    x: NDArray[np.float64],
    edges: NDArray[np.intp],
    coarse: bool,
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

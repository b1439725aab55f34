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

#: Above this many distinct inputs the data is gathered into so many cells.
CELLS = 1500


@dataclass(frozen=True)
class SplineBound:
    """The bound and where its pieces meet.

    Attributes:
        value: weighted sum of squares that no spline with so many knots can beat.
        knots: the middle of the gap between neighbouring pieces, sorted.
    """

    value: float
    knots: NDArray[np.float64]


def spline_bound(
    x: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64], knots: int
) -> SplineBound:
    """Lower bound on sum_i weight_i (y_i - f(x_i))^2 over all f with at most ``knots`` knots.

    Sound: rounding is accounted for. Exact for discontinuous pieces while there are at most
    `CELLS` distinct inputs; with more, rows are gathered into cells and a cell that a knot may
    fall into counts as fitted perfectly. Cost O(min(n, CELLS)^2 knots).

    Args:
        x: (n,) sorted inputs of order one, y: (n,), weight: (n,) positive.

    >>> x = np.linspace(0, 1, 50)
    >>> spline_bound(x, np.abs(x - 0.5), np.ones(50), 1).value < 1e-12
    True
    >>> round(spline_bound(x, np.abs(x - 0.5), np.ones(50), 0).value, 4)
    1.0829
    """
    edges, coarse = cells(x)
    cost = costs(x, y, weight, edges)
    size = len(edges)
    best = cost[0].copy()
    back: list[NDArray[np.intp]] = []
    for _ in range(knots):
        # the next piece starts at the cut, or after the cell that holds it
        total = best[:, None] + (cost if not coarse else _shifted(cost))
        at = total.argmin(axis=0)
        lower = total[at, np.arange(size)]
        better = lower < best
        back.append(np.where(better, at, -1))
        best = np.where(better, lower, best)
    return SplineBound(float(best[-1]), _trace(back, x, edges, coarse))


def cells(x: NDArray[np.float64]) -> tuple[NDArray[np.intp], bool]:
    """Row numbers where cells start (and n): one cell per distinct input, or about `CELLS`."""
    starts = np.flatnonzero(np.diff(x, prepend=-np.inf) > 0)
    coarse = len(starts) > CELLS
    if coarse:
        starts = starts[np.linspace(0, len(starts), CELLS, endpoint=False).astype(np.intp)]
    return np.append(starts, len(x)), coarse


def costs(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    edges: NDArray[np.intp],
) -> NDArray[np.float64]:
    """cost[s, t]: a lower bound on the squared error of the best line through cells s .. t-1."""
    eps = np.finfo(np.float64).eps

    def between(values: NDArray[np.float64]) -> NDArray[np.float64]:
        # extended precision, so that differences of prefix sums keep every digit of a double
        sums = np.append(0, np.cumsum((weight * values).astype(np.longdouble)))[edges]
        return (sums[None, :] - sums[:, None]).astype(np.float64)

    n, x1, y1 = between(np.ones_like(x)), between(x), between(y)
    xx, xy, yy = between(x * x), between(x * y), between(y * y)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread_x, spread_y = xx - x1 * x1 / n, yy - y1 * y1 / n
        error_x, error_y = 8 * eps * xx, 8 * eps * yy
        joint = np.abs(xy - x1 * y1 / n) + 8 * eps * np.sqrt(xx * yy)
        explained = joint * joint / (spread_x - error_x)
        cost = np.where(spread_x > 4 * error_x, spread_y - error_y - explained, 0.0)
    width = np.diff(edges)
    same = (np.arange(len(edges))[None, :] - np.arange(len(edges))[:, None]) == 1
    if (width > 1).any():
        # one distinct input: its spread in y is unavoidable, whatever the slope
        single = same & (spread_x <= 4 * error_x)
        cost = np.where(single, spread_y - error_y, cost)
    cost = np.maximum(cost, 0.0)
    cost[n <= 0] = np.inf
    return cost


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

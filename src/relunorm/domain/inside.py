"""Points that lie in a domain exactly, not up to a rounding error."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np

from relunorm.domain.base import Domain
from relunorm.matrix import Vector

#: Coordinates are moved to a multiple of such a share of the largest one first: sums stay short.
GRIDS = (2.0**-20, 2.0**-12, 2.0**-6)
#: Shares of the way to the centre that a point beside a ball or a polytope is moved.
SHARES = (2.0**-50, 1e-13, 1e-11, 1e-9)
#: Polytopes with more numbers than this are searched for rows that are opposite bit by bit only.
NUMBERS = 20_000
#: A point lies on a side up to rounding if its distance is such a share of the numbers in the row.
NEAR = 1e-12
#: Sides are made equalities while their number times the squared dimension is at most this.
SIDES = 20_000
#: Coordinates tried as the one that is computed, the smallest first.
TRIES = 16


def moved_inside(domain: Domain, point: Vector) -> Vector | None:
    """The point itself where it lies in the domain, else one beside it that does, or None.

    >>> from relunorm.domain import Ball
    >>> ball = Ball([1.0, 0.0], 0.1)
    >>> ball.holds([1.1, 0.0])[0], ball.holds(moved_inside(ball, np.array([1.1, 0.0])))[0]
    (np.False_, np.True_)
    """
    if domain.holds(point)[0]:
        return point
    if domain.as_box is not None:
        return domain.project(point) if np.isfinite(point).all() else None
    if is_flat(domain):
        moved = onto_plane(domain, point)
        return _onto_sides(domain, point) if moved is None else moved
    tries = np.array([point + share * (domain.center - point) for share in SHARES])
    inside = np.flatnonzero(domain.holds(tries))
    return tries[inside[0]] if len(inside) else _onto_sides(domain, point)


def _onto_sides(domain: Domain, point: Vector) -> Vector | None:
    """A point of a polytope on all the sides that ``point`` lies on up to rounding, or None.

    Rows that are no pair may leave a single point too, as x <= 1, y <= 1 and x + y >= 2 do.
    """
    if not (domain.rows and np.isfinite(point).all()):
        return None
    A, b = domain.sides
    near = np.abs(b - A @ point) <= NEAR * (np.abs(A) @ np.abs(point) + np.abs(b))
    near &= np.abs(A).max(axis=1) > 0
    if not near.any() or near.sum() * A.shape[1] ** 2 > SIDES:
        return None
    rows = np.column_stack([A, b])[near].tolist()
    return onto_plane(domain, point, [[Fraction(v) for v in row] for row in rows])


def onto_plane(
    domain: Domain, point: Vector, rows: list[list[Fraction]] | None = None
) -> Vector | None:
    """A point near ``point`` that satisfies every equality of the polytope in real arithmetic.

    Equalities are pairs of rows a.x <= b and -a.x <= -b, or the ``rows`` that are given. All
    coordinates are put on a coarse binary grid; elimination in rational arithmetic then gives one
    coordinate per equality from the others, preferably one whose coefficient is a power of two, and
    each in turn, as a small coordinate has room for more bits. A point that passes
    `Polytope.contains` too is preferred. None where no choice gives floats (0.1 x + 0.3 y = 0.7 may
    hold at no pair of floats at all), or where the point fails an inequality.

    >>> from relunorm.domain import Polytope
    >>> plane = Polytope([[1, 1], [-1, -1], [-1, 0], [0, -1]], [1, -1, 0, 0])  # x + y = 1, >= 0
    >>> onto_plane(plane, np.array([0.3, 0.7])).sum()
    np.float64(1.0)
    """
    rows = _equalities(domain) if rows is None else rows
    size = Fraction(2) ** int(np.ceil(np.log2(max(np.abs(point).max(), 1e-300))))
    spare: Vector | None = None
    order = [int(j) for j in np.argsort(np.abs(point))[:TRIES]]
    for grid, first in product(GRIDS, order):
        unit = Fraction(grid) * size
        near = [round(Fraction(float(v)) / unit) * unit for v in point]
        x = _solved(rows, near, first)
        found = np.array([float(v) for v in x])
        exact = all(Fraction(float(v)) == w for v, w in zip(found, x, strict=True))
        if exact and domain.holds(found)[0]:
            if domain.contains(found)[0]:
                return found
            spare = found if spare is None else spare
    return spare


def is_flat(domain: Domain) -> bool:
    """Whether two opposite inequalities state an equality."""
    return domain.rows > 0 and bool(_equalities(domain))


def _solved(rows: list[list[Fraction]], near: list[Fraction], first: int) -> list[Fraction]:
    """The point with one coordinate per equality replaced, coordinate ``first`` if possible."""
    solved: list[tuple[int, list[Fraction]]] = []
    for row in rows:
        for pivot, other in solved:
            share = row[pivot]
            row = [a - share * c for a, c in zip(row, other, strict=True)]
        columns = [j for j, a in enumerate(row[:-1]) if a]
        if not columns:
            continue
        pivot = max(columns, key=lambda j: (_dyadic(1 / row[j]), j == first, abs(row[j])))
        row = [a / row[pivot] for a in row]
        solved = [
            (p, [a - other[pivot] * c for a, c in zip(other, row, strict=True)])
            for p, other in solved
        ]
        solved.append((pivot, row))
    x = list(near)
    for pivot, row in solved:
        rest = (a * v for j, (a, v) in enumerate(zip(row, near, strict=False)) if j != pivot)
        x[pivot] = row[-1] - sum(rest, Fraction(0))
    return x


@lru_cache(maxsize=8)
def _equalities(domain: Domain) -> list[list[Fraction]]:
    """Rows a, b of the equalities a.x = b that two opposite inequalities state."""
    A, b = domain.sides
    table = np.column_stack([A, b])[np.abs(A).max(axis=1) > 0] + 0.0
    small = table.size <= NUMBERS  # then rows may be opposite up to a positive factor
    rows = [_primitive(row) if small else tuple(row) for row in table.tolist()]
    known = dict.fromkeys(rows)
    turned = {row: tuple(-v for v in row) for row in known}
    found = [row for row in known if row > turned[row] and turned[row] in known]
    return [[Fraction(v) for v in row] for row in found]


def _primitive(row: list[float]) -> tuple[Fraction, ...]:
    """The row divided by the size of its first non-zero entry."""
    exact = [Fraction(v) for v in row]
    size = abs(next(v for v in exact if v))
    return tuple(v / size for v in exact)


def _dyadic(value: Fraction) -> bool:
    """Whether the number is an integer divided by a power of two."""
    return value.denominator & (value.denominator - 1) == 0

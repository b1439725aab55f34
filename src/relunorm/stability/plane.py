"""Points that lie in a flat polytope exactly, not up to a rounding error."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from relunorm.domain import Polytope
from relunorm.matrix import Vector

#: Coordinates are moved to a multiple of such a share of the largest one first: sums stay short.
GRIDS = (2.0**-20, 2.0**-12, 2.0**-6)
#: Coordinates tried as the one that is computed, the smallest first.
TRIES = 16


def onto_plane(domain: Polytope, point: Vector) -> Vector | None:
    """A point near ``point`` that satisfies every equality of the polytope in real arithmetic.

    Equalities are pairs of rows a.x <= b and -a.x <= -b. All coordinates are put on a coarse binary
    grid; elimination in rational arithmetic then gives one coordinate per equality from the others,
    preferably one whose coefficient is a power of two, and each in turn, as a small coordinate has
    room for more bits. A point that passes `Polytope.contains` too is preferred. None where no
    choice gives floats (0.1 x + 0.3 y = 0.7 may hold at no pair of floats at all), or where the
    point fails an inequality.

    >>> plane = Polytope([[1, 1], [-1, -1], [-1, 0], [0, -1]], [1, -1, 0, 0])  # x + y = 1, >= 0
    >>> onto_plane(plane, np.array([0.3, 0.7])).sum()
    np.float64(1.0)
    """
    rows = _equalities(domain)
    size = Fraction(2) ** int(np.ceil(np.log2(max(np.abs(point).max(), 1e-300))))
    spare: Vector | None = None
    order = [int(j) for j in np.argsort(np.abs(point))[:TRIES]]
    for grid, first in product(GRIDS, order):
        unit = Fraction(grid) * size
        near = [round(Fraction(float(v)) / unit) * unit for v in point]
        x = _solved(rows, near, first)
        found = np.array([float(v) for v in x])
        exact = all(Fraction(float(v)) == w for v, w in zip(found, x, strict=True))
        if exact and in_polytope(domain, found):
            if domain.contains(found)[0]:
                return found
            spare = found if spare is None else spare
    return spare


def is_flat(domain: Polytope) -> bool:
    """Whether two opposite inequalities state an equality."""
    return bool(_equalities(domain))


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


def in_polytope(domain: Polytope, point: Vector) -> bool:
    """Whether A x <= b in rational arithmetic."""
    x = [Fraction(float(v)) for v in point]
    return all(
        sum((Fraction(float(a)) * v for a, v in zip(row, x, strict=True) if a), Fraction(0))
        <= Fraction(float(b))
        for row, b in zip(domain.A, domain.b, strict=True)
    )


def _equalities(domain: Polytope) -> list[list[Fraction]]:
    """Rows a, b of the equalities a.x = b that two opposite inequalities state."""
    table = np.column_stack([domain.A, domain.b]) + 0.0
    known = {tuple(row) for row in table.tolist()}
    found = []
    for row in table.tolist():
        opposite = tuple(-v + 0.0 for v in row)
        if opposite in known and tuple(row) > opposite:
            found.append([Fraction(v) for v in row])
    return found


def _dyadic(value: Fraction) -> bool:
    """Whether the number is an integer divided by a power of two."""
    return value.denominator & (value.denominator - 1) == 0

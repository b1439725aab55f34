"""Linear programmes in fractions: guessed in floats, finished without rounding.

    maximise g . x   subject to   rows[k] . x <= rhs[k],  lo <= x <= hi

A compiled dual simplex in floats proposes a basis; a dual simplex in fractions goes on from it, and
as a rule has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from relunorm.compiled.simplex import FOUND, maximize, workspace

Row = list[Fraction]

ZERO, ONE = Fraction(0), Fraction(1)

#: Pivots by the largest violation before Bland's rule takes over.
PATIENCE = 50


@dataclass(frozen=True)
class Place:
    """The inputs of a part: a box, and rows . x <= rhs."""

    lo: Row
    hi: Row
    rows: tuple[Row, ...] = ()
    rhs: tuple[Fraction, ...] = ()

    def cut(self, row: Row, end: Fraction) -> Place:
        """The inputs with row . x <= end besides."""
        return Place(self.lo, self.hi, (*self.rows, row), (*self.rhs, end))

    def outer(self, form: Form) -> tuple[Fraction, Fraction]:
        """Range of an affine form over the box alone."""
        low = high = form.const
        for w, a, b in zip(form.row, self.lo, self.hi, strict=True):
            low, high = low + w * (a if w > 0 else b), high + w * (b if w > 0 else a)
        return low, high


@dataclass(frozen=True)
class Form:
    """row . x + const."""

    row: Row
    const: Fraction

    def at(self, x: Sequence[Fraction]) -> Fraction:
        """Its value at a point."""
        return dot(self.row, x) + self.const

    def times(self, factor: Fraction | int) -> Form:
        """The form times a number."""
        return Form([factor * w for w in self.row], factor * self.const)


def combined(weights: Iterable[tuple[Fraction, Form]], const: Fraction, size: int) -> Form:
    """A sum of forms of so many inputs, each times a number, and a constant."""
    row = [ZERO] * size
    for w, form in weights:
        if w:
            const += w * form.const
            row = [a + w * b if b else a for a, b in zip(row, form.row, strict=True)]
    return Form(row, const)


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    """A scalar product."""
    return sum((x * y for x, y in zip(a, b, strict=True) if x and y), ZERO)


def solve(g: Row, place: Place) -> tuple[Fraction, Row] | None:
    """Maximise g . x over a place: value and point; None if it is empty."""
    basis = _guess(g, place)
    state = None if basis is None else _factored(g, place, basis)
    if state is None:
        corner = [-2 * k - 1 if w >= 0 else -2 * k - 2 for k, w in enumerate(g)]
        state = _factored(g, place, corner)
    assert state is not None  # a corner of the box that is best for g is dual feasible
    basis, inverse, weights, x = state
    pivots = 0
    while True:
        row = _violated(place, x, first=pivots > PATIENCE)
        if row is None:
            return dot(g, x), x
        a, gap = _constraint(place, row)
        gap = dot(a, x) - gap
        u = [dot(a, [line[j] for line in inverse]) for j in range(len(x))]
        rising = [j for j, w in enumerate(u) if w > 0]
        if not rising:
            return None
        ratio = min(weights[j] / u[j] for j in rising)
        leave = min((j for j in rising if weights[j] / u[j] == ratio), key=lambda j: basis[j])
        column = [line[leave] / u[leave] for line in inverse]
        x = [v - gap * c for v, c in zip(x, column, strict=True)]
        for i, c in enumerate(column):
            if c:
                inverse[i] = [v - w * c for v, w in zip(inverse[i], u, strict=True)]
            inverse[i][leave] = c
        weights = [v - ratio * w for v, w in zip(weights, u, strict=True)]
        weights[leave], basis[leave] = ratio, row
        pivots += 1


def _constraint(place: Place, index: int) -> tuple[Row, Fraction]:
    """A row of the programme: of the place, or a side of its box (upper odd, lower even)."""
    if index >= 0:
        return place.rows[index], place.rhs[index]
    k, upper = (-index - 1) // 2, index % 2 == 1
    row = [ZERO] * len(place.lo)
    row[k] = ONE if upper else -ONE
    return row, place.hi[k] if upper else -place.lo[k]


def _violated(place: Place, x: Row, *, first: bool) -> int | None:
    """The row violated most, or the first one, for Bland's rule; None if there is none."""
    worst, found = ZERO, None
    for k, v in enumerate(x):
        for index, gap in ((-2 * k - 1, v - place.hi[k]), (-2 * k - 2, place.lo[k] - v)):
            if gap > worst:
                worst, found = gap, index
    for index, (row, end) in enumerate(zip(place.rows, place.rhs, strict=True)):
        gap = dot(row, x) - end
        if gap > 0 and (gap > worst or first) and not (first and found is not None):
            worst, found = gap, index
    return found


State = tuple[list[int], list[Row], Row, Row]


def _factored(g: Row, place: Place, basis: list[int]) -> State | None:
    """Inverse, weights and point of a basis; None if it is none, or is not dual feasible."""
    size = len(g)
    rows = [_constraint(place, index) for index in basis]
    table = [[*row, *(ONE if i == j else ZERO for j in range(size))] for i, (row, _) in
             enumerate(rows)]  # fmt: skip
    for k in range(size):
        pivot = next((i for i in range(k, size) if table[i][k]), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        scale = table[k][k]
        table[k] = [v / scale for v in table[k]]
        for i in range(size):
            if i != k and table[i][k]:
                w = table[i][k]
                table[i] = [v - w * p for v, p in zip(table[i], table[k], strict=True)]
    inverse = [line[size:] for line in table]
    weights = [dot(g, [line[j] for line in inverse]) for j in range(size)]
    if any(w < 0 for w in weights):
        return None
    x = [dot(line, [end for _, end in rows]) for line in inverse]
    return list(basis), inverse, weights, x


def _guess(g: Row, place: Place) -> list[int] | None:
    """The basis that floats find."""
    try:
        rows = np.array([[float(w) for w in row] for row in place.rows]).reshape(-1, len(g))
        rhs, goal, lo, hi = (np.array([float(v) for v in some])
                             for some in (place.rhs, g, place.lo, place.hi))  # fmt: skip
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        length = np.linalg.norm(rows, axis=1)
    size = float(np.abs(goal).max(initial=0.0))
    if not (np.isfinite(length).all() and length.all() and size > 0.0):
        return None
    work = workspace(len(g))
    status = maximize(
        goal / size, rows / length[:, None], rhs / length, len(rhs), lo, hi, -np.inf, work
    )
    return [int(i) for i in work.basis] if status == FOUND else None

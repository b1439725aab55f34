"""Linear programmes of a few variables over a box and many rows, compiled.

    maximise g.x   subject to   rows[k].x <= rhs[k] (k < m),  lo <= x <= hi

by a dense dual simplex. The start is the vertex of the box that maximises the objective, which is
dual feasible at once, so there is no first phase; the basis inverse is d x d. Each pivot lowers an
upper bound on the maximum, and the search stops as soon as that bound is at most ``stop``: most
questions ("can this form be positive here?") are answered without reaching the optimum.

How to call it::

    work = workspace(d)                       # once; reused by every call of one thread
    status = maximize(g, rows, rhs, m, lo, hi, stop, work)
    x = work.x                                # status FOUND: the maximiser, g.x > stop
                                              # status ABSENT: the maximum is <= stop (proved)
                                              # status EMPTY: no x satisfies the rows
                                              # status STOPPED: the time was up, nothing is known

Rows should have unit length: then feasibility is kept to `FEASIBLE` as a distance. FOUND points
satisfy every row to that accuracy whatever rounding went before, because it is measured. Cycling
is excluded by Bland's rule, which takes over when the bound stalls. FAILED (the pivot limit) has
not been seen; callers must report it, not guess. After ABSENT, ``work.basis`` (row numbers;
negative for sides of the box) with positive ``work.multipliers`` is the proof.

Reference: Lemke's dual method (1954) with bounds as rows; Bland (1977).
Cost: O(d^2 + m d) a pivot, no allocation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import group
from relunorm.compiled.jit import inner, inner_sum, kernel

FOUND, ABSENT, EMPTY, FAILED, STOPPED = 1, 0, -1, -2, -3

#: How far outside a row (of unit length) a point may lie and still count as satisfying it.
FEASIBLE = 1e-12
#: Entries of the pivot row below this are rounding.
PIVOT = 1e-10


@group
class Workspace(NamedTuple):
    """Scratch memory of one thread; after a call ``x`` is the vertex reached."""

    x: NDArray[np.float64]
    inverse: NDArray[np.float64]
    multipliers: NDArray[np.float64]
    pivot_row: NDArray[np.float64]
    basis: NDArray[np.int64]
    stop: NDArray[np.uint8]  # of `Clock.watch`: becomes 1 when the time is up


def workspace(dimension: int, stop: NDArray[np.uint8] | None = None) -> Workspace:
    """Scratch memory for programmes in ``dimension`` variables; ``stop`` of `Clock.watch`."""
    d = dimension
    return Workspace(
        np.zeros(d),
        np.zeros((d, d)),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d, np.int64),
        np.zeros(1, np.uint8) if stop is None else stop,
    )


@kernel
def maximize(g, rows, rhs, m, lo, hi, stop, work):  # type: ignore[no-untyped-def]
    """Maximise g.x; see the head of this file. Returns FOUND, ABSENT, EMPTY, FAILED or STOPPED."""
    x, inverse, basis = work.x, work.inverse, work.basis
    multipliers = work.multipliers
    d = len(g)
    bound = 0.0
    for i in range(d):
        for j in range(d):
            inverse[i, j] = 0.0
        if g[i] >= 0.0:
            x[i], inverse[i, i], basis[i] = hi[i], 1.0, -2 * i - 1
            multipliers[i] = g[i]
        else:
            x[i], inverse[i, i], basis[i] = lo[i], -1.0, -2 * i - 2
            multipliers[i] = -g[i]
        bound += g[i] * x[i]
    limit = 200 + 50 * (m + 2 * d)
    status, _ = descend(g, rows, rhs, m, lo, hi, stop, FEASIBLE, limit, bound, work)
    return status


@inner
def descend(g, rows, rhs, m, lo, hi, stop, near, limit, bound, work):  # type: ignore[no-untyped-def]
    """Pivots from the basis in ``work``, at most ``limit``: the status, and the row last violated.

    ``bound`` is the objective there; a point may be outside a row by ``near``.
    """
    x, inverse, basis = work.x, work.inverse, work.basis
    multipliers, u = work.multipliers, work.pivot_row
    patience = 8 * (len(g) + 4)
    row = -1
    for pivot in range(limit):
        if bound <= stop:
            return ABSENT, row
        row, gap = violated(rows, rhs, m, lo, hi, x, near, pivot > patience)
        if gap <= near:
            return (FOUND if _dot(g, x) > stop else ABSENT), row
        if work.stop[0]:
            return STOPPED, row
        pivot_row(rows, row, inverse, u)
        leave = _leaving(u, multipliers, basis, pivot > patience)
        if leave < 0:
            return EMPTY, row
        bound -= _exchange(leave, row, gap, x, inverse, multipliers, u, basis)
    return FAILED, row


@inner
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(b)):
        total += a[i] * b[i]
    return total


@inner_sum
def violated(rows, rhs, m, lo, hi, x, near, first):  # type: ignore[no-untyped-def]
    """The row violated most (or the first one violated, for Bland's rule) and by how much."""
    worst, row = near, -1
    d = len(x)
    for i in range(d):
        if x[i] - hi[i] > worst:
            worst, row = x[i] - hi[i], -2 * i - 1
        if lo[i] - x[i] > worst:
            worst, row = lo[i] - x[i], -2 * i - 2
    if first and worst > near:
        return row, worst
    for k in range(m):
        gap = -rhs[k]
        for i in range(d):
            gap += rows[k, i] * x[i]
        if gap > worst:
            worst, row = gap, k
            if first:
                break
    return row, worst


@inner
def pivot_row(rows, row, inverse, u):  # type: ignore[no-untyped-def]
    """The entering row in terms of the basis: u = a @ inverse."""
    d = len(u)
    if row < 0:
        i, sign = (-row - 1) // 2, 1.0 if row % 2 else -1.0
        for j in range(d):
            u[j] = sign * inverse[i, j]
        return
    for j in range(d):
        u[j] = 0.0
    for i in range(d):
        a = rows[row, i]
        for j in range(d):
            u[j] += a * inverse[i, j]


@inner
def _leaving(u, multipliers, basis, bland):  # type: ignore[no-untyped-def]
    """Ratio test: the basic row that keeps every multiplier non-negative; -1 if there is none."""
    best, leave = np.inf, -1
    for i in range(len(u)):
        if u[i] > PIVOT:
            ratio = multipliers[i] / u[i]
            if ratio < best:
                best, leave = ratio, i
            elif ratio == best:
                better = basis[i] < basis[leave] if bland else u[i] > u[leave]
                if better:
                    leave = i
    return leave


@inner
def _exchange(leave, row, gap, x, inverse, multipliers, u, basis):  # type: ignore[no-untyped-def]
    """Swap the basic row ``leave`` for ``row``; returns by how much the bound falls."""
    d = len(x)
    pivot = 1.0 / u[leave]
    rate = multipliers[leave] * pivot
    for i in range(d):
        column = inverse[i, leave] * pivot
        x[i] -= gap * column
        for j in range(d):
            inverse[i, j] -= u[j] * column
        inverse[i, leave] = column
    for j in range(d):
        multipliers[j] = max(multipliers[j] - rate * u[j], 0.0)
    multipliers[leave] = rate
    basis[leave] = row
    return rate * gap

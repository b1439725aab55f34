"""Linear programmes over a cell that begin where the last one for the same unit ended, compiled.

Cells of nodes that follow each other differ in a few walls. So the walls that the last programme
with the same aim rested on, those of them that still stand, are entered at once, without asking
which row is violated most; the other coordinates go to the sides of the box that fit. If all
multipliers are then >= 0, `descend` goes on from there with a few pivots instead of from a corner
of the box.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import inner, kernel_part
from relunorm.compiled.simplex import ABSENT, FEASIBLE, FOUND, descend, pivot_row
from relunorm.lipschitz.search.cells import COUNT, NO_WALL, WALLS

#: Entries of a pivot row below this are too small to enter a wall by.
PIVOT = 1e-3


@kernel_part
def reach(nodes, place, unit, side, stop):  # type: ignore[no-untyped-def]
    """Maximise goal[0], the form of a unit or its negative, over the cell; as `maximize` does."""
    goal, work, m = nodes.goal[0], nodes.work, nodes.whole[WALLS]
    walls = nodes.bases[2 * unit + side]
    _enter(nodes, place, walls)
    bound = 0.0
    for k in range(len(goal)):
        bound += goal[k] * work.x[k]
    limit = 200 + 50 * (m + 2 * len(goal))
    status, _ = descend(
        goal, nodes.rows, nodes.rhs, m, place.lo, place.hi, stop, FEASIBLE, limit, bound, work
    )
    if status == FOUND or status == ABSENT:
        bits = nodes.bits[nodes.whole[COUNT] - 1]
        for k in range(len(goal)):
            row = work.basis[k]
            owner = nodes.owner[row] if row >= 0 else -1
            walls[k] = 2 * owner + bits[owner] if owner >= 0 else NO_WALL
    return status


@kernel_part
def _enter(nodes, place, walls):  # type: ignore[no-untyped-def]
    """A dual feasible basis of walls that stand and of sides of the box."""
    goal, work, lo, hi = nodes.goal[0], nodes.work, place.lo, place.hi
    x, inverse, basis = work.x, work.inverse, work.basis
    multipliers, u = work.multipliers, work.pivot_row
    bits, d = nodes.bits[nodes.whole[COUNT] - 1], len(goal)
    for i in range(d):
        for j in range(d):
            inverse[i, j] = 0.0
        inverse[i, i], basis[i], multipliers[i], x[i] = 1.0, -2 * i - 1, goal[i], hi[i]
    for p in range(d):
        unit = walls[p] // 2
        row = nodes.wall[unit] if walls[p] != NO_WALL else -1
        if row < 0 or bits[unit] != walls[p] % 2:
            continue
        pivot_row(nodes.rows, row, inverse, u)
        leave = -1
        for j in range(d):
            if basis[j] < 0 and abs(u[j]) > PIVOT and (leave < 0 or abs(u[j]) > abs(u[leave])):
                leave = j
        if leave >= 0:
            gap = -nodes.rhs[row]
            for k in range(d):
                gap += nodes.rows[row, k] * x[k]
            _exchange(leave, row, gap, work)
    while True:  # walls that would pull the wrong way leave again
        leave = -1
        for j in range(d):
            if basis[j] >= 0 and multipliers[j] < 0.0:
                if leave < 0 or multipliers[j] < multipliers[leave]:
                    leave = j
        if leave < 0:
            break
        most = 0
        for i in range(1, d):
            if abs(inverse[i, leave]) > abs(inverse[most, leave]):
                most = i
        pivot_row(nodes.rows, -2 * most - 1, inverse, u)
        _exchange(leave, -2 * most - 1, x[most] - hi[most], work)
    for j in range(d):
        if multipliers[j] < 0.0:  # from the upper side to the lower one
            i = (-basis[j] - 1) // 2
            for k in range(d):
                x[k] -= (hi[i] - lo[i]) * inverse[k, j]
                inverse[k, j] = -inverse[k, j]
            basis[j], multipliers[j] = -2 * i - 2, -multipliers[j]


@inner
def _exchange(leave, row, gap, work):  # type: ignore[no-untyped-def]
    """Swap the basic row ``leave`` for ``row``, whatever the signs of multipliers become."""
    x, inverse, multipliers, u = work.x, work.inverse, work.multipliers, work.pivot_row
    pivot = 1.0 / u[leave]
    rate = multipliers[leave] * pivot
    for i in range(len(x)):
        column = inverse[i, leave] * pivot
        x[i] -= gap * column
        for j in range(len(x)):
            inverse[i, j] -= u[j] * column
        inverse[i, leave] = column
    for j in range(len(x)):
        multipliers[j] -= rate * u[j]
    multipliers[leave], work.basis[leave] = rate, row

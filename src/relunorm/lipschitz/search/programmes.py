"""Linear programmes over a cell and the corners they found, compiled.

Cells of nodes that follow each other differ in a few walls. So the walls that the last programme
with the same aim rested on, those of them that still stand, are entered at once, without asking
which row is violated most; the other coordinates go to the sides of the box that fit. Walls whose
multipliers are negative then leave again. From there `descend` takes a few pivots, where from a
corner of the box it takes two or three times as many.

A ball is cut out of its box where programmes leave it: a half-space that touches the ball next to
the point found is one more row, and the pivots go on. What is proved rests on the walls alone: the
multipliers of such half-spaces add up to a remainder that `dual_bound` meets with its length.

The corners that programmes found are kept for the nodes below. One that the walls of a node do not
cut off shows how far units reach there without another programme; when a node is split, each half
takes the corners on its side.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import inner, kernel_part, loose_part
from relunorm.compiled.simplex import ABSENT, FEASIBLE, FOUND, descend, maximize
from relunorm.lipschitz.search.cells import COUNT, CUTS, MOST_CUTS, NO_WALL, WALLS

#: Entries of a pivot row below this are too small to enter a wall by.
PIVOT = 1e-3

#: How far outside of a ball a point may lie, relative to its radius.
NEAR_BALL = 1e-10


@kernel_part
def over_cell(nodes, place):  # type: ignore[no-untyped-def]
    """Maximise goal[0] over the cell; as `maximize` does."""
    goal, rows, rhs, work = nodes.goal[0], nodes.rows, nodes.rhs, nodes.work
    m = _rows(nodes)
    status = maximize(goal, rows, rhs, m, place.lo, place.hi, -np.inf, work)
    return _round_off(nodes, place, -np.inf, status) if place.norm > 0.0 else status


@kernel_part
def reach_of(nodes, place, unit, side, stop):  # type: ignore[no-untyped-def]
    """The same with goal[0] the form of a unit or its negative, from the walls of the last time."""
    goal, work = nodes.goal[0], nodes.work
    walls = nodes.bases[2 * unit + side]
    _rows(nodes)
    _enter(nodes, place, walls)
    status = _go_on(nodes, place, stop)
    if place.norm > 0.0:
        status = _round_off(nodes, place, stop, status)
    if status >= ABSENT:  # or FOUND
        bits = nodes.bits[nodes.whole[COUNT] - 1]
        for k in range(len(goal)):
            row = work.basis[k]
            owner = nodes.owner[row] if row >= 0 else -1
            walls[k] = 2 * owner + bits[owner] if owner >= 0 else NO_WALL
    return status


@inner
def _rows(nodes):  # type: ignore[no-untyped-def]
    """How many rows a programme begins with; many half-spaces around a ball are forgotten."""
    if nodes.whole[CUTS] > MOST_CUTS // 2:
        nodes.whole[CUTS] = 0
    return nodes.whole[WALLS] + nodes.whole[CUTS]


@kernel_part
def _go_on(nodes, place, stop):  # type: ignore[no-untyped-def]
    """Pivots from the basis at hand."""
    goal, m, bound = nodes.goal[0], nodes.whole[WALLS] + nodes.whole[CUTS], 0.0
    for k in range(len(goal)):
        bound += goal[k] * nodes.work.x[k]
    limit = 200 + 50 * (m + 2 * len(goal))
    lo, hi, work = place.lo, place.hi, nodes.work
    status, _ = descend(goal, nodes.rows, nodes.rhs, m, lo, hi, stop, FEASIBLE, limit, bound, work)
    return status


@kernel_part
def _round_off(nodes, place, stop, status):  # type: ignore[no-untyped-def]
    """Cut off points outside of the ball until the programme has one inside, or enough."""
    while status == FOUND and nodes.whole[CUTS] < MOST_CUTS and _cut(nodes, place):
        status = _go_on(nodes, place, stop)
    return status


@kernel_part
def _cut(nodes, place):  # type: ignore[no-untyped-def]
    """Add the half-space that touches the ball next to the point found; False if it is inside."""
    x, ball, d = nodes.work.x, place.ball, len(place.lo)
    at, total, square = nodes.whole[WALLS] + nodes.whole[CUTS], 0.0, 0.0
    row = nodes.rows[at]
    for k in range(d):
        row[k] = (x[k] - ball[0, k]) / ball[1, k]
        total, square = total + abs(row[k]), square + row[k] * row[k]
    far = np.sqrt(square) if place.norm == 2.0 else total
    if far <= 1.0 + NEAR_BALL:
        return False
    length, end = 0.0, 1.0
    for k in range(d):
        away = row[k] / far if place.norm == 2.0 else np.sign(row[k])
        row[k] = away / ball[1, k]
        length += row[k] * row[k]
        end += row[k] * ball[0, k]
    length = np.sqrt(length)
    for k in range(d):
        row[k] /= length
    nodes.rhs[at], nodes.owner[at] = end / length, -1
    nodes.whole[CUTS] += 1
    return True


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
    changed, count = nodes.picks, 0  # rows of the inverse that are not those of the identity
    for p in range(d):
        unit = walls[p] // 2
        row = nodes.wall[unit] if walls[p] != NO_WALL else -1
        if row < 0 or bits[unit] != walls[p] % 2:
            continue
        gap = -nodes.rhs[row]
        for k in range(d):
            u[k] = nodes.rows[row, k]
            gap += u[k] * x[k]
        for e in range(count):
            u[changed[e]] = 0.0
        for e in range(count):
            a = nodes.rows[row, changed[e]]
            for k in range(d):
                u[k] += a * inverse[changed[e], k]
        leave = -1
        for k in range(d):
            if basis[k] < 0 and abs(u[k]) > PIVOT and (leave < 0 or abs(u[k]) > abs(u[leave])):
                leave = k
        if leave < 0:
            continue
        changed[count] = leave
        count += 1
        _exchange(leave, row, gap, changed, count, work)
    while True:  # walls that would pull the wrong way leave again
        leave = -1
        for j in range(d):
            least = 0.0 if leave < 0 else multipliers[leave]
            if basis[j] >= 0 and multipliers[j] < least:
                leave = j
        if leave < 0:
            break
        most = 0
        for i in range(1, d):
            if abs(inverse[i, leave]) > abs(inverse[most, leave]):
                most = i
        for k in range(d):
            u[k] = inverse[most, k]
        _exchange(leave, -2 * most - 1, x[most] - hi[most], changed, count, work)
    for j in range(d):
        if multipliers[j] < 0.0:  # from the upper side to the lower one
            i = (-basis[j] - 1) // 2
            for k in range(d):
                x[k] -= (hi[i] - lo[i]) * inverse[k, j]
                inverse[k, j] = -inverse[k, j]
            basis[j], multipliers[j] = -2 * i - 2, -multipliers[j]


@inner
def _exchange(leave, row, gap, changed, count, work):  # type: ignore[no-untyped-def]
    """Swap the basic row ``leave`` for ``row``, whatever the signs of multipliers become."""
    x, inverse, multipliers, u = work.x, work.inverse, work.multipliers, work.pivot_row
    pivot = 1.0 / u[leave]
    rate = multipliers[leave] * pivot
    for e in range(count):
        i = changed[e]
        column = inverse[i, leave] * pivot
        x[i] -= gap * column
        for j in range(len(x)):
            inverse[i, j] -= u[j] * column
        inverse[i, leave] = column
    for j in range(len(x)):
        multipliers[j] -= rate * u[j]
    multipliers[leave], work.basis[leave] = rate, row


@loose_part
def cut_off(nodes, place):  # type: ignore[no-untyped-def]
    """Forget the corners of the top node that lie outside of its walls."""
    top = nodes.whole[COUNT] - 1
    d, corners, kept = len(place.lo), nodes.corners[top], 0
    for p in range(nodes.found[top]):
        inside = True
        for w in range(place.given, nodes.whole[WALLS]):
            gap = -nodes.rhs[w]
            for k in range(d):
                gap += nodes.rows[w, k] * corners[p, k]
            if gap > FEASIBLE:
                inside = False
                break
        if inside:
            for k in range(d):
                corners[kept, k] = corners[p, k]
            kept += 1
    nodes.found[top] = kept


@kernel_part
def remember(nodes):  # type: ignore[no-untyped-def]
    """Add the point that a programme found to the corners of the top node."""
    top, x = nodes.whole[COUNT] - 1, nodes.work.x
    n = nodes.found[top]
    if n < nodes.corners.shape[1]:
        for k in range(len(x)):
            nodes.corners[top, n, k] = x[k]
        nodes.found[top] = n + 1


@loose_part
def beyond(nodes, least):  # type: ignore[no-untyped-def]
    """Whether goal[0] exceeds a value at a corner of the top node."""
    top, goal = nodes.whole[COUNT] - 1, nodes.goal[0]
    for p in range(nodes.found[top] - 1, -1, -1):
        value = 0.0
        for k in range(len(goal)):
            value += goal[k] * nodes.corners[top, p, k]
        if value > least:
            return True
    return False


@kernel_part
def middle(nodes):  # type: ignore[no-untyped-def]
    """Put the mean of the corners of the top node into goal[1]."""
    top, mean = nodes.whole[COUNT] - 1, nodes.goal[1]
    n = nodes.found[top]
    for k in range(len(mean)):
        mean[k] = 0.0
        for p in range(n):
            mean[k] += nodes.corners[top, p, k]
        mean[k] /= n


@kernel_part
def divide(nodes, unit, first):  # type: ignore[no-untyped-def]
    """Give the two nodes on top, halves of one, the corners on their sides of a unit."""
    top, d = nodes.whole[COUNT] - 1, nodes.corners.shape[2]
    here, there, form = nodes.corners[top - 1], nodes.corners[top], nodes.forms[0, unit]
    kept, gone = 0, 0
    for p in range(nodes.found[top - 1]):
        value = form[d]
        for k in range(d):
            value += form[k] * here[p, k]
        if (value > 0.0) == (first == 1):
            for k in range(d):
                there[gone, k] = here[p, k]
            gone += 1
        else:
            for k in range(d):
                here[kept, k] = here[p, k]
            kept += 1
    nodes.found[top - 1], nodes.found[top] = kept, gone

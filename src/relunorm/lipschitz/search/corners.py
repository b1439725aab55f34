"""Corners of cells that linear programmes found, kept for the nodes below, compiled.

A corner that the walls of a node do not cut off shows how far units reach there without another
programme. When a node is split, each half takes the corners on its side.
"""

from __future__ import annotations

from relunorm.compiled.jit import kernel_part, loose_part
from relunorm.compiled.simplex import FEASIBLE
from relunorm.lipschitz.search.cells import COUNT, WALLS


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

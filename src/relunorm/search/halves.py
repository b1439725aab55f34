"""Parts of a node, compiled: what both a search and its replay make out of a node."""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.child import FOLDED_ERROR, ON_INPUT, ON_UNIT, child, place_child
from relunorm.bounds.nodes.kernel import part
from relunorm.bounds.nodes.node import node_size

#: Units of a half are bounded again while that takes at most this many multiplications; of larger
#: ones intervals have to do.
MOST_REFRESH = 1e9


@part
def half(arena, where, node, ball, d, n, known, firsts, kind, index, value, side, memory):  # type: ignore[no-untyped-def]
    """One half of a node, placed at ``where``: (open units, known rows).

    Units is -1 for an empty half and -2 where the arena is full.
    """
    dear = float(n) * n * (d + n) > MOST_REFRESH
    for j in range(n):
        memory.refresh[j] = 0 if (kind == ON_INPUT or j > index) and not dear else -1
    name = node.units[index] + 1.0 if kind == ON_UNIT else 0.0
    return _placed(
        arena, where, node, ball, d, n, known, firsts, kind, index, value, side, FOLDED_ERROR,
        name, memory,
    )  # fmt: skip


@part
def straightened(arena, where, node, ball, d, n, known, firsts, memory):  # type: ignore[no-untyped-def]
    """A node without open units, every active row folded: what a linear programme can solve.

    Placed at ``where``; returns (0, known rows), or -1, -2 in place of 0 as `half` does.
    """
    for j in range(n):
        memory.refresh[j] = -1
    kind, index, side = ON_INPUT, -1, 0
    return _placed(
        arena, where, node, ball, d, n, known, firsts, kind, index, 0.0, side, np.inf, 0.0, memory
    )


@part
def _placed(  # type: ignore[no-untyped-def]
    arena, where, node, ball, d, n, known, firsts, kind, index, value, side, share, name, memory
):
    groups = len(firsts) - 1
    goals = firsts[groups]
    m, kept = child(node, ball, d, n, known, goals, kind, index, value, side, share, memory)
    if m < 0:
        return -1, 0
    if where + node_size(m, kept, d, goals, groups) > len(arena):
        return -2, 0
    place_child(arena, where, d, m, kept, goals, groups, node, n, name, memory)
    return m, kept


@part
def topmost(stack, top):  # type: ignore[no-untyped-def]
    """A node on the stack: open units, known rows, where it lies, depth, number."""
    return stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3], stack[top, 4]


@part
def push(stack, at, m, kept, where, depth, number):  # type: ignore[no-untyped-def]
    """Put a node on the stack."""
    stack[at, 0], stack[at, 1], stack[at, 2] = m, kept, where
    stack[at, 3], stack[at, 4] = depth, number


@part
def move_down(arena, stack, top, fresh, begin, end):  # type: ignore[no-untyped-def]
    """Let the halves of the topmost node take its place; how many nodes the stack has then."""
    shift = begin - stack[top, 2]
    for i in range(begin, end):
        arena[i - shift] = arena[i]
    for i in range(top, top + fresh):
        for j in range(5):
            stack[i, j] = stack[i + 1, j]
        stack[i, 2] -= shift
    return top + fresh


@part
def middle(low, high):  # type: ignore[no-untyped-def]
    """Where a side is cut; never outside it."""
    return min(max(0.5 * low + 0.5 * high, low), high)


@part
def splits(low, high):  # type: ignore[no-untyped-def]
    """Whether a side has a middle that is not one of its ends."""
    return low < middle(low, high) < high

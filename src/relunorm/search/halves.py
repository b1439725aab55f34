"""Parts of a node, compiled: what both a search and its replay make out of a node."""

from __future__ import annotations

import numpy as np

from relunorm.bounds.kernel import part
from relunorm.bounds.node import (
    FOLDED_ERROR,
    ON_INPUT,
    ON_UNIT,
    child,
    node_size,
    place_child,
)

#: Units of a half are bounded again while that takes at most this many multiplications; of larger
#: ones intervals have to do.
MOST_REFRESH = 1e9


@part
def half(arena, where, node, ball, d, n, known, firsts, kind, index, value, side, memory):  # type: ignore[no-untyped-def]
    """One half of a node, placed at ``where``: (open units, known rows).

    Units is -1 for an empty half and -2 where the arena is full.
    """
    refresh = memory.refresh
    groups = len(firsts) - 1
    goals = firsts[groups]
    dear = float(n) * n * (d + n) > MOST_REFRESH
    for j in range(n):
        refresh[j] = 0 if (kind == ON_INPUT or j > index) and not dear else -1
    m, kept = child(node, ball, d, n, known, goals, kind, index, value, side, FOLDED_ERROR, memory)
    if m < 0:
        return -1, 0
    if where + node_size(m, kept, d, goals, groups) > len(arena):
        return -2, 0
    name = node.units[index] + 1.0 if kind == ON_UNIT else 0.0
    place_child(arena, where, d, m, kept, goals, groups, node, n, name, memory)
    return m, kept


@part
def straightened(arena, where, node, ball, d, n, known, firsts, memory):  # type: ignore[no-untyped-def]
    """A node without open units, every active row folded: what a linear programme can solve.

    Placed at ``where``; returns (0, known rows), or -1, -2 in place of 0 as `_half` does.
    """
    refresh = memory.refresh
    groups = len(firsts) - 1
    goals = firsts[groups]
    for j in range(n):
        refresh[j] = -1
    kind, index, side = np.int64(ON_INPUT), np.int64(-1), np.int64(0)
    m, kept = child(node, ball, d, n, known, goals, kind, index, 0.0, side, np.inf, memory)
    if m < 0:
        return -1, 0
    if where + node_size(m, kept, d, goals, groups) > len(arena):
        return -2, 0
    place_child(arena, where, d, m, kept, goals, groups, node, n, 0.0, memory)
    return m, kept


@part
def middle(low, high):  # type: ignore[no-untyped-def]
    """Where a side is cut; never outside it."""
    return min(max(0.5 * low + 0.5 * high, low), high)


@part
def splits(low, high):  # type: ignore[no-untyped-def]
    """Whether a side has a middle that is not one of its ends."""
    return low < middle(low, high) < high


@part
def wider(node, i, j):  # type: ignore[no-untyped-def]
    """Whether side i of a node's box is longer than side j."""
    return node.hi[i] - node.lo[i] > node.hi[j] - node.lo[j]

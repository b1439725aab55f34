"""The numbers behind a node's bound, as they stand on a tape: written and read here alone.

An entry is its mark, the node's number, the goal group, how many units, known rows and goals there
are; then the names of the units and alpha, the names of the rows and beta, and tau. With another
free number of a node come its lines in `size`, `write` and `load`, and another `VERSION` of
tapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.kernel import compiled, part
from relunorm.bounds.node import ALPHA, BETA, BOUND, HIGH, LOW, NAMES, TAU, UNITS, parts
from relunorm.search.space import Task
from relunorm.search.tape import CLOSED

Array = NDArray[np.float64]


@part
def size(units, known, goals):  # type: ignore[no-untyped-def]
    """Numbers of an entry."""
    return 6 + 2 * units + 2 * known + goals


@part
def write(tape, at, node, m, kept, first, last, q, number, mark):  # type: ignore[no-untyped-def]
    """Write the numbers of a goal group's bound; where the entry ends."""
    tape[at], tape[at + 1], tape[at + 2] = mark, number, q
    tape[at + 3], tape[at + 4], tape[at + 5] = m, kept, last - first
    end = at + size(m, kept, last - first)
    at += 6
    for j in range(m):
        tape[at + j], tape[at + m + j] = node[UNITS][j], node[ALPHA][q, j]
    at += 2 * m
    for r in range(kept):
        tape[at + r], tape[at + kept + r] = node[NAMES][r], node[BETA][q, r]
    at += 2 * kept
    for g in range(first, last):
        tape[at + g - first] = node[TAU][g]
    return end


@part
def load(tape, at, node, n, known, first, last, q):  # type: ignore[no-untyped-def]
    """Take the numbers of an entry into a node; False if they are not allowed."""
    units, rows, goals = int(tape[at + 3]), int(tape[at + 4]), int(tape[at + 5])
    if goals != last - first:
        return False
    at += 6
    for j in range(n):
        node[ALPHA][q, j] = 1.0 if node[HIGH][j] > -node[LOW][j] else 0.0
        for i in range(units):
            if tape[at + i] == node[UNITS][j]:
                node[ALPHA][q, j] = tape[at + units + i]
                break
        if not (0.0 <= node[ALPHA][q, j] <= 1.0):
            return False
    at += 2 * units
    for r in range(known):
        node[BETA][q, r] = 0.0
        for i in range(rows):
            if tape[at + i] == node[NAMES][r]:
                node[BETA][q, r] = tape[at + rows + i]
                break
        if not node[BETA][q, r] >= 0.0:
            return False
    at += 2 * rows
    total = 0.0
    for g in range(first, last):
        node[TAU][g] = tape[at + g - first]
        if not node[TAU][g] >= 0.0:
            return False
        total += node[TAU][g]
    return abs(total - 1.0) <= 1e-9 if last - first > 1 else node[TAU][first] == 1.0


def closing(tasks: Sequence[Task], inputs: int, firsts: NDArray[np.int64]) -> Iterator[Array]:
    """What closes nodes that are open by their own bounds."""
    goals = int(firsts[-1])
    for task in {task.number: task for task in (task.origin or task for task in tasks)}.values():
        m, kept = task.units, task.known
        entries = np.zeros((len(firsts) - 1) * size.py_func(m, kept, goals))
        yield entries[: _close(entries, task.numbers, m, kept, inputs, firsts, task.number)]


@compiled
def _close(tape, numbers, m, kept, d, firsts, number):  # type: ignore[no-untyped-def]
    """Write an entry for every open goal group of a node; where they end."""
    groups = len(firsts) - 1
    node = parts(numbers, np.int64(0), m, kept, d, firsts[groups], groups)
    at = np.int64(0)
    for q in range(groups):
        if node[BOUND][q] > -np.inf:
            at = write(tape, at, node, m, kept, firsts[q], firsts[q + 1], q, number, CLOSED)
    return at

"""The numbers behind a node's bound, as they stand on a tape: written and read here alone.

An entry is its mark, the node's number, the goal group, how many units, known rows and goals there
are; then the names of the units and alpha, the names of the rows and beta, and tau. With another
free number of a node come its lines in `size`, `write`, `load` and `entry`, and another `VERSION`
of tapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.nodes.kernel import part, tangent
from relunorm.bounds.nodes.node import node_of
from relunorm.matrix import Array
from relunorm.search.proofs.tape import CLOSED

if TYPE_CHECKING:
    from relunorm.search.root import Task

#: Numbers of an entry in front of its names; cuts and tightened nodes have no more than these.
HEAD = 6


@part
def size(units, known, goals):  # type: ignore[no-untyped-def]
    """Numbers of an entry."""
    return HEAD + 2 * units + 2 * known + goals


@part
def write(tape, at, node, m, kept, first, last, q, number, mark):  # type: ignore[no-untyped-def]
    """Write the numbers of a goal group's bound; where the entry ends."""
    tape[at], tape[at + 1], tape[at + 2] = mark, number, q
    tape[at + 3], tape[at + 4], tape[at + 5] = m, kept, last - first
    end = at + size(m, kept, last - first)
    at += HEAD
    units, alpha = node.units, node.alpha
    for j in range(m):
        tape[at + j], tape[at + m + j] = units[j], alpha[q, j]
    at += 2 * m
    for r in range(kept):
        tape[at + r], tape[at + kept + r] = node.names[r], node.beta[q, r]
    at += 2 * kept
    for g in range(first, last):
        tape[at + g - first] = node.tau[g]
    return end


@part
def load(tape, at, node, n, known, first, last, q):  # type: ignore[no-untyped-def]
    """Take the numbers of an entry into a node; False if they are not allowed."""
    units, rows, goals = int(tape[at + 3]), int(tape[at + 4]), int(tape[at + 5])
    names, alpha, beta, tau = node.units, node.alpha, node.beta, node.tau
    if goals != last - first:
        return False
    at += HEAD
    for j in range(n):
        alpha[q, j] = tangent(0.0, 1.0, node.low[j], node.high[j])
        for i in range(units):
            if tape[at + i] == names[j]:
                alpha[q, j] = tape[at + units + i]
                break
        if not (0.0 <= alpha[q, j] <= 1.0):
            return False
    at += 2 * units
    for r in range(known):
        beta[q, r] = 0.0
        for i in range(rows):
            if tape[at + i] == node.names[r]:
                beta[q, r] = tape[at + rows + i]
                break
        if not beta[q, r] >= 0.0:
            return False
    at += 2 * rows
    total = 0.0
    for g in range(first, last):
        tau[g] = tape[at + g - first]
        if not tau[g] >= 0.0:
            return False
        total += tau[g]
    return abs(total - 1.0) <= 1e-9 if last - first > 1 else tau[first] == 1.0


def entry(
    number: int, q: int, units: NDArray[Any], alpha: Array, names: Array, beta: Array, tau: Array
) -> Array:
    """The entry of a goal group that is closed, from arrays of its own."""
    head = np.array([CLOSED, number, q, len(units), len(names), len(tau)])
    return np.concatenate([head, units, alpha, names, beta, tau])


def closing(tasks: Sequence[Task], inputs: int, firsts: NDArray[np.int64]) -> Iterator[Array]:
    """What closes nodes that are open by their own bounds."""
    goals, groups = int(firsts[-1]), len(firsts) - 1
    for task in {task.number: task for task in (task.origin or task for task in tasks)}.values():
        m, kept = task.units, task.known
        node = node_of(task.numbers, m, kept, inputs, goals, groups)
        for q in np.flatnonzero(node.bound > -np.inf).tolist():
            first, last = firsts[q : q + 2]
            rest = node.names, node.beta[q], node.tau[first:last]
            yield entry(task.number, q, node.units, node.alpha[q], *rest)

"""A chunk of a search: explore below one open node, compiled, for a number of nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.nodes.form import Form
from relunorm.bounds.nodes.memory import new_memory
from relunorm.bounds.nodes.node import node_size
from relunorm.clock import Clock
from relunorm.matrix import Vector
from relunorm.search import explore as kernel
from relunorm.search.proofs.tape import packed
from relunorm.search.root import STEPS, Task

if TYPE_CHECKING:
    from relunorm.search.engine import Search

#: Length of the tape of one chunk.
TAPE = 1 << 17

#: Nodes that a thread has room for at first, and numbers that they take at most; pages that are not
#: used cost nothing.
ROOM, MOST_ROOM = 64, 1 << 25


class Space:
    """Scratch memory of one thread, with room for some nodes."""

    def __init__(self, form: Form, units: int):
        d, groups, goals = len(form.lo), len(form.firsts) - 1, int(form.firsts[-1])
        self.memory = new_memory(form, units)
        room = node_size(units, form.known + 64, d, goals, groups)
        self.arena = np.zeros(max(min(ROOM * room, MOST_ROOM), 4 * room))
        self.stack = np.zeros((256, 5), np.int64)
        self.tape = np.zeros(0)

    def begin(self, task: Task) -> None:
        """Put a node at the bottom of the stack."""
        while len(task.numbers) > len(self.arena):
            self.grow()
        self.arena[: len(task.numbers)] = task.numbers
        self.stack[0] = task.units, task.known, 0, task.depth, task.number

    def grow(self) -> None:
        """Twice the room for nodes, what is there kept."""
        self.arena = np.concatenate([self.arena, np.zeros(len(self.arena))])
        self.stack = np.concatenate([self.stack, np.zeros_like(self.stack)])


@dataclass
class Found:
    """What a chunk, or a part of the search that ran elsewhere, found.

    Attributes:
        left: nodes that are still open.
        used: nodes that were looked at.
        value, point: the best that was found; -inf where nothing was.
        ceiling: the largest bound that closed a node.
        lost: nodes that could not be settled.
        tape: what happened, in compressed pieces.
        marks: the first number that no node has got.
        learned: what is new in the gains of cuts, where it was learned elsewhere.
    """

    left: list[Task]
    used: int
    value: float
    point: Vector
    ceiling: float
    seconds: float
    lost: int
    tape: list[bytes]
    marks: int
    learned: NDArray[np.float64] | None = None


def explored(
    search: Search,
    task: Task,
    space: Space,
    clock: Clock,
    stop: NDArray[np.uint8],
    budget: int,
    first: int,
) -> Found:
    """Explore below one node, with a budget and numbers of `Search.reserved`."""
    form = search.form
    assert form is not None
    began = clock.elapsed()
    d, groups = len(form.lo), len(form.firsts) - 1
    goals = int(form.firsts[-1])
    # with a target bounds do not depend on points: the best of this chunk is a start for attacks
    before = search.value if search.target == math.inf else -math.inf
    best, point = np.array([before]), np.zeros(d)
    ceiling = np.array([-math.inf])
    marks = np.array([0, first, 0])
    space.begin(task)
    if search.proof is not None and not len(space.tape):
        space.tape = np.zeros(TAPE)
    count, used, tapes = 1, 0, []
    while True:
        why, count, more = kernel.explore(
            search.whole, form.ball, space.arena, space.stack, count, budget - used, search.target,
            search.below, search.tolerance, STEPS, search.theta, form.firsts, best, point, ceiling,
            search.learned, space.tape, marks, space.memory, stop,
        )  # fmt: skip
        used += more
        if why == kernel.FULL:
            space.grow()
        elif why == kernel.TAPE_FULL:
            if marks[0]:
                tapes.append(packed(space.tape[: marks[0]]))
                marks[0] = 0
            else:
                space.tape = np.zeros(2 * len(space.tape))
        else:
            break
    if marks[0]:
        tapes.append(packed(space.tape[: marks[0]]))
    left = []
    for at in range(count):
        units, known, start, depth, number = (int(i) for i in space.stack[at])
        size = node_size(units, known, d, goals, groups)
        numbers = space.arena[start : start + size].copy()
        bound, origin = float(numbers[size - groups :].max()), None
        if bound > task.bound:  # tuned anew, a part may come out above the whole
            bound, origin = task.bound, task.origin or task
        left.append(Task(-bound, number, numbers, units, known, depth, origin))
    value = float(best[0]) if best[0] > before else -math.inf
    return Found(
        left, used, value, form.lift(point), float(ceiling[0]),
        clock.elapsed() - began, int(marks[2]), tapes, int(marks[1]),
    )  # fmt: skip

"""Where nodes lie: scratch memory of a thread, and nodes that wait for their turn."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.form import Form
from relunorm.bounds.memory import new_memory
from relunorm.bounds.node import node_size

Array = NDArray[np.float64]

#: Nodes that a thread has room for at first, and numbers that they take at most; pages that are not
#: used cost nothing.
ROOM, MOST_ROOM = 64, 1 << 25


class Space:
    """Scratch memory of one thread, with room for some nodes."""

    def __init__(self, form: Form, units: int, nodes: int = ROOM):
        d, groups, goals = len(form.lo), len(form.firsts) - 1, int(form.firsts[-1])
        self.memory = new_memory(form, units)
        room = node_size.py_func(units, form.known + 64, d, goals, groups)
        self.arena = np.zeros(max(min(nodes * room, MOST_ROOM), 4 * room))
        self.stack = np.zeros((256, 5), np.int64)
        self.tape = np.zeros(0)

    def grow(self) -> None:
        """Twice the room for nodes, what is there kept."""
        self.arena = np.concatenate([self.arena, np.zeros(len(self.arena))])
        self.stack = np.concatenate([self.stack, np.zeros_like(self.stack)])


@dataclass(order=True)
class Task:
    """A node that waits, the one with the largest bound first.

    ``origin`` is the node above whose bound it has, where its own numbers give a larger one.
    """

    key: float
    number: int
    numbers: Array = field(compare=False)
    units: int = field(compare=False)
    known: int = field(compare=False)
    depth: int = field(compare=False, default=0)
    origin: Task | None = field(compare=False, default=None)

    @property
    def bound(self) -> float:
        return -self.key

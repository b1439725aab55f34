"""Where nodes lie: scratch memory of a thread, and nodes that wait for their turn."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.form import Form
from relunorm.bounds.node import node_size
from relunorm.bounds.programme import MOST_INPUTS, MOST_VARIABLES

Array = NDArray[np.float64]

#: Nodes that a thread has room for at first, and numbers that they take at most; pages that are not
#: used cost nothing.
ROOM, MOST_ROOM = 64, 1 << 25


class Space:
    """Scratch memory of one thread, with room for some nodes."""

    def __init__(self, form: Form, units: int, nodes: int = ROOM):
        d, n, groups = len(form.lo), units, len(form.firsts) - 1
        goals = int(form.firsts[-1])
        known = form.known + n + 1
        width, rows = d + n + 1, n + known + goals + 2

        def floats(*shape: int) -> Array:
            return np.zeros(shape)

        def whole(size: int) -> NDArray[np.int64]:
            return np.zeros(size, np.int64)

        m = n + 1
        tight = (
            floats(width), floats(m), floats(m), floats(d), floats(m), floats(m), floats(m),
            floats(m), floats(m),
        )  # fmt: skip
        scratch = (
            whole(m), whole(m), floats(m, width), floats(m), floats(m), floats(m), floats(m), tight,
            form.jump, form.at_zero,
        )  # fmt: skip
        out = (
            floats(d), floats(d), floats(rows, width), floats(rows), floats(rows), floats(rows),
            floats(m), floats(m), whole(rows), floats(width),
        )  # fmt: skip
        work = (
            floats(width), floats(m), floats(m), floats(d), floats(m), floats(m), floats(width),
            floats(rows), floats(rows), floats(m), floats(rows), floats(goals + 1), floats(d),
            floats(width), floats(width + rows),
        )  # fmt: skip
        # the programme of a node of few units, or of a leaf that has none
        units = max(min(n, MOST_VARIABLES - d), 0)
        many, total = min(d, MOST_INPUTS) + units + 1, 2 * units + known + goals
        lp = (
            floats(total * many), floats(total), floats(many), floats(many), floats(many),
            floats(total), floats(total + units), floats(many * many), floats(many), floats(many),
            floats(many), whole(many), whole(d), np.zeros(1, np.uint8),
        )  # fmt: skip
        self.views = (scratch, out, work, lp, whole(m))
        room = node_size.py_func(n, form.known + 64, d, goals, groups)
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

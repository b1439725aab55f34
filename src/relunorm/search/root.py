"""Open nodes, and the first of a search: the whole domain, bounded, what is stable folded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.best_first import Node
from relunorm.bounds.nodes.child import make_root
from relunorm.bounds.nodes.form import Form
from relunorm.bounds.nodes.memory import new_memory
from relunorm.bounds.nodes.node import node_of, node_size
from relunorm.compiled.groups import group
from relunorm.matrix import Array, Vector
from relunorm.search.folding import Start

#: Steps of descent at a node, and for a goal at the root.
STEPS, ROOT_STEPS = 20, 60

#: With more inputs than this coordinates are not cut.
FEW_INPUTS = 6

#: Multiplications the tuning of the root's units may take. With few inputs boxes get smaller and
#: units are bounded anew; with many they keep what the root found.
ROOT_WORK = {"few": 1e8, "many": 3e10}

#: Multiplications a second that root takes, roughly.
ROOT_SPEED = 2e9


@dataclass(order=True)
class Task(Node):
    """A node of the search.

    ``origin`` is the node above whose bound it has, where its own numbers give a larger one.
    """

    numbers: Array = field(compare=False)
    units: int = field(compare=False)
    known: int = field(compare=False)
    depth: int = field(compare=False, default=0)
    origin: Task | None = field(compare=False, default=None)

    @property
    def weight(self) -> int:
        return len(self.numbers)


@group
class Whole(NamedTuple):
    """The root as a search offers points to it."""

    rows: Array
    const: Vector
    units: int  # that are open
    known: int  # rows
    near: Vector  # how far outside known rows a point may be and still be offered
    sides: Vector  # of the box, without the values of steps
    jump: NDArray[np.int64]  # which coordinates its open units are, and their values at 0
    at_zero: Vector


def whole_node(form: Form, start: Start | None = None) -> Array:
    """The form as a node in which every unit is open, unbounded if nothing is known of it."""
    d, groups = len(form.lo), len(form.firsts) - 1
    goals = int(form.firsts[-1])
    numbers = np.zeros(node_size(form.units, form.known, d, goals, groups))
    node = node_of(numbers, form.units, form.known, d, goals, groups)
    node.lo[:], node.hi[:] = form.lo, form.hi
    node.rows[:], node.const[:], node.err[:] = form.rows, form.const, form.err
    node.mag[:] = 0.0  # children weigh their rows anew
    read = np.arange(1.0, form.units + 1) * (form.rows[: form.units, d:] != 0)
    node.reads[:] = read.max(axis=1, initial=0.0) - 1.0
    node.low[:], node.high[:] = (-np.inf, np.inf) if start is None else (start.low, start.high)
    node.units[:], node.names[:] = form.names, -1.0 - np.arange(form.known)
    for first, last in zip(form.firsts[:-1], form.firsts[1:], strict=True):
        node.tau[first:last] = 1.0 / (last - first)
    node.bound[:] = np.inf
    return numbers


def first_node(
    form: Form, node: Array, steps: int, cut: float, unit_steps: int
) -> tuple[Task | None, Whole]:
    """The root: stable units folded, goals tuned; None if the domain holds no point."""
    d, groups = len(form.lo), len(form.firsts) - 1
    goals = int(form.firsts[-1])
    memory = new_memory(form, form.units)
    memory.refresh[:] = unit_steps
    numbers = np.zeros(len(node))
    units, known = make_root(
        node, form.ball, d, form.units, form.known, form.firsts, float(cut), steps, memory, numbers
    )
    sides = (form.hi - form.lo)[: len(form.free)]
    if units < 0:
        empty = np.zeros(0)
        none = form.jump[:0]
        rows = np.zeros((0, d))
        return None, Whole(rows, empty, 0, 0, empty, sides, none, empty)
    numbers = numbers[: node_size(units, known, d, goals, groups)].copy()
    root = node_of(numbers, units, known, d, goals, groups)
    outer = slice(units, units + known)
    size = np.maximum(np.abs(form.lo), np.abs(form.hi))
    near = 1e-12 * (np.abs(root.rows[outer, :d]) @ size + np.abs(root.const[outer]))
    rows, const = root.rows.copy(), root.const.copy()
    names = root.units.astype(np.intp)
    jumps = form.jump[names], form.at_zero[names]
    whole = Whole(rows, const, int(units), int(known), near, sides, *jumps)
    return Task(-float(root.bound.max()), 0, numbers, int(units), int(known)), whole


def goal_steps(form: Form, seconds: float) -> int:
    """Steps of descent for the goals at the root: fewer of a large form in little time."""
    once = 8.0 * form.rows.size * (len(form.firsts) - 1)
    return int(min(ROOT_STEPS, max(0.3 * seconds * ROOT_SPEED / max(once, 1.0), 1.0)))


def tuning_steps(form: Form, units: int, seconds: float, begun: int) -> int:
    """Steps of descent for the bounds of the root's open units: as many as work and time allow.

    -1 where there is no time for a backward bound of every unit, so that intervals have to do, or
    where it allows no more steps than were begun with.
    """
    d = len(form.lo)
    once = max(4.0 * units * units * (units / 3 + d), 1.0)
    work = ROOT_WORK["few" if d <= FEW_INPUTS else "many"]
    in_time = 0.3 * seconds * ROOT_SPEED / once - 1.0
    steps = int(max(-1.0, min(20.0, work / once, np.ceil(in_time))))
    return steps if steps > begun else -1

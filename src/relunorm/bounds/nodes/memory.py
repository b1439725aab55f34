"""Where the kernels of a search work: a node as it lies in an arena, and one thread's arrays.

All are groups (`relunorm.compiled.groups`), which kernels hand on by address.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.nodes.abreast import Lanes, new_lanes
from relunorm.bounds.nodes.form import Form
from relunorm.compiled.groups import group
from relunorm.matrix import Array

Whole = NDArray[np.int64]

#: Inputs and open units of a node whose programme is solved, together.
MOST_VARIABLES = 128

#: Inputs of a programme without units, at most.
MOST_INPUTS = 2_048

#: Words of the views of a node: see `relunorm.compiled.operations.placed`.
NODE_WORDS = 37


@group
class Node(NamedTuple):
    """A node (`relunorm.bounds.nodes.node`): rows are those of units, known rows, goals."""

    lo: Array
    hi: Array
    rows: Array  # M of the triangular form
    const: Array
    err: Array
    mag: Array
    low: Array  # bounds of the units
    high: Array
    steep: Array  # the lines above them (`relunorm.bounds.nodes.kernel.line_above`)
    rise: Array
    reads: Array  # the last unit that each of them reads, or -1
    units: Array  # their names
    names: Array  # those of the known rows
    alpha: Array  # (groups, units)
    beta: Array  # (groups, known rows)
    tau: Array
    bound: Array  # one a group


@group
class Scratch(NamedTuple):
    """What becomes of the units of a parent, and their rows where they are folded."""

    state: Whole  # 0 open, 1 active, -1 dead
    place: Whole  # new number of an open unit; for an active one, open units before it
    folded: Array
    const: Array
    err: Array
    weight: Array
    rule: Array  # slopes to start with
    jump: Whole  # the coordinate that is the value of a step unit, or -1
    at_zero: Array


@group
class Child(NamedTuple):
    """A child as it is made: as in `Node`, and where its rows come from."""

    lo: Array
    hi: Array
    rows: Array
    const: Array
    err: Array
    mag: Array
    low: Array
    high: Array
    steep: Array
    rise: Array
    reads: Array
    source: Whole
    size: Array  # the largest absolute value of every column


@group
class Work(NamedTuple):
    """For the bound of a goal: see `backward`, `forward` and `tune`."""

    v: Array
    lam: Array
    a: Array
    x: Array
    z: Array
    y: Array
    size: Array
    m1: Array
    m2: Array
    best_a: Array
    best_b: Array
    best_t: Array
    best_x: Array
    score: Array
    rank: Array
    some: Whole  # units that hand something on
    tilt: Array  # slopes of units by inputs


@group
class Programme(NamedTuple):
    """For the linear programme of a node of few units, or of a leaf that has none."""

    rows: Array
    rhs: Array
    cost: Array
    lo: Array
    hi: Array
    scale: Array
    weight: Array
    inverse: Array
    point: Array
    multipliers: Array
    pivot_row: Array
    basis: Whole
    read: Whole
    stop: NDArray[np.uint8]


@group
class Memory(NamedTuple):
    """All arrays of one thread; words for a node, a half of it, and where a child is put."""

    scratch: Scratch
    child: Child
    work: Work
    lanes: Lanes
    programme: Programme
    refresh: Whole
    node: Whole
    half: Whole
    target: Whole


def new_memory(form: Form, units: int) -> Memory:
    """Room for nodes of at most so many units."""
    d, n, goals = len(form.lo), units, int(form.firsts[-1])
    known = form.known + n + 1
    width, rows, m = d + n + 1, n + known + goals + 2, n + 1

    def floats(*sizes: int) -> list[Any]:
        return [np.zeros(size) for size in sizes]

    def whole(size: int) -> Any:
        return np.zeros(size, np.int64)

    states, folded = [whole(m), whole(m)], [np.zeros((m, width)), *floats(m, m, m, m)]
    parts: list[Any] = [*states, *folded, form.jump, form.at_zero]
    scratch = Scratch(*parts)
    corners, matrix = floats(d, d), np.zeros((rows, width))
    ends = [*floats(rows, rows, rows, rows, rows, m, m, m), whole(rows), np.zeros(width)]
    parts = [*corners, matrix, *ends]
    child = Child(*parts)
    sizes = width, m, m, d, m, m, width, rows, rows, m, rows, goals + 1, d, width, width + rows
    parts = [*floats(*sizes), whole(m), np.zeros((m + 2) * d)]
    work = Work(*parts)
    few = max(min(n, MOST_VARIABLES - d), 0)
    many, total = min(d, MOST_INPUTS) + few + 1, 2 * few + known + goals
    sizes = total * many, total, many, many, many, total, total + few, many * many, many, many, many
    stop = np.zeros(1, np.uint8)
    parts = [*floats(*sizes), whole(many), whole(d), stop]
    programme = Programme(*parts)
    words = [whole(NODE_WORDS) for _ in range(3)]
    lanes = new_lanes(d, m, rows)
    return Memory(scratch, child, work, lanes, programme, whole(m), *words)

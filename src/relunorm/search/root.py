"""The first node of a search: the whole domain, its units bounded and what is stable folded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.form import Form
from relunorm.bounds.node import (
    ALPHA,
    BOUND,
    CONST,
    ERR,
    FOLDED_ERROR,
    HI,
    HIGH,
    LO,
    LOW,
    MAG,
    NAMES,
    ON_INPUT,
    ROWS,
    TAU,
    UNITS,
    child,
    node_size,
    parts,
    place_child,
    tune,
)
from relunorm.matrix import Vector
from relunorm.search.folding import Start
from relunorm.search.space import Space, Task

Array = NDArray[np.float64]

#: Steps of descent at a node, and for a goal at the root.
STEPS, ROOT_STEPS = 20, 60

#: With more inputs than this coordinates are not cut.
FEW_INPUTS = 6

#: Multiplications the tuning of the root's units may take. With few inputs boxes get smaller and
#: units are bounded anew; with many they keep what the root found.
ROOT_WORK = {"few": 1e8, "many": 3e10}

#: Multiplications a second that root takes, roughly.
ROOT_SPEED = 2e9


#: See `explore.explore`.
Whole = tuple[Array, Vector, int, int, int, Vector, Vector, NDArray[np.int64], Vector]


def whole_node(form: Form, start: Start | None = None) -> tuple[Array, ...]:
    """The form as a node in which every unit is open, unbounded if nothing is known of it."""
    d, groups = len(form.lo), len(form.firsts) - 1
    goals = int(form.firsts[-1])
    numbers = np.zeros(node_size.py_func(form.units, form.known, d, goals, groups))
    node = parts.py_func(numbers, 0, form.units, form.known, d, goals, groups)
    node[LO][:], node[HI][:] = form.lo, form.hi
    node[ROWS][:], node[CONST][:], node[ERR][:] = form.rows, form.const, form.err
    node[MAG][:] = 0.0  # children weigh their rows anew
    node[LOW][:], node[HIGH][:] = (-np.inf, np.inf) if start is None else (start.low, start.high)
    node[UNITS][:], node[NAMES][:] = form.names, -1.0 - np.arange(form.known)
    for first, last in zip(form.firsts[:-1], form.firsts[1:], strict=True):
        node[TAU][first:last] = 1.0 / (last - first)
    node[BOUND][:] = np.inf
    return node


def first_node(
    form: Form, node: tuple[Array, ...], steps: int, cut: float, unit_steps: int
) -> tuple[Task | None, Whole]:
    """The root: stable units folded, goals tuned; None if the domain holds no point."""
    d, groups = len(form.lo), len(form.firsts) - 1
    goals = int(form.firsts[-1])
    space = Space(form, form.units, 1)
    scratch, out, work, _, refresh = space.views
    refresh[:] = unit_steps
    units, known = child(
        node, form.ball, d, form.units, form.known, goals, ON_INPUT, -1, 0.0, 0, refresh,
        FOLDED_ERROR, scratch, out,
    )  # fmt: skip
    sides = (form.hi - form.lo)[: len(form.free)]
    if units < 0:
        empty = np.zeros(0)
        none = form.jump[:0]
        return None, (np.zeros((0, d)), empty, 0, 0, len(form.jump), empty, sides, none, empty)
    numbers = np.zeros(node_size.py_func(units, known, d, goals, groups))
    place_child(numbers, 0, d, units, known, goals, groups, node, form.units, out, 0.0)
    root = parts.py_func(numbers, 0, units, known, d, goals, groups)
    root[ALPHA][:] = root[HIGH] > -root[LOW]
    for q in range(groups):
        first, last = form.firsts[q], form.firsts[q + 1]
        root[BOUND][q] = tune(
            root, form.ball, d, units, known, first, last, q, cut, steps, True, work
        )
    outer = slice(units, units + known)
    size = np.maximum(np.abs(form.lo), np.abs(form.hi))
    near = 1e-12 * (np.abs(root[ROWS][outer, :d]) @ size + np.abs(root[CONST][outer]))
    rows, const = root[ROWS].copy(), root[CONST].copy()
    names = root[UNITS].astype(np.intp)
    jumps = form.jump[names], form.at_zero[names]
    whole = (rows, const, int(units), int(known), len(form.jump), near, sides, *jumps)
    return Task(-float(root[BOUND].max()), 0, numbers, int(units), int(known)), whole


def goal_steps(form: Form, seconds: float) -> int:
    """Steps of descent for the goals at the root: fewer of a large form in little time."""
    once = 8.0 * form.rows.size * (len(form.firsts) - 1)
    return int(min(ROOT_STEPS, max(0.3 * seconds * ROOT_SPEED / max(once, 1.0), 1.0)))


def tuning_steps(form: Form, seconds: float) -> int:
    """Steps of descent for the bounds of the root's units: as many as work and time allow.

    -1 where there is no time for a backward bound of every unit: intervals have to do.
    """
    n, d = form.units, len(form.lo)
    once = max(4.0 * n * n * (n / 3 + d), 1.0)
    work = ROOT_WORK["few" if d <= FEW_INPUTS else "many"]
    in_time = 0.3 * seconds * ROOT_SPEED / once - 1.0
    return int(max(-1.0, min(20.0, work / once, np.ceil(in_time))))

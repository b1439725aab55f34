"""Branch and bound on the signs of earlier units: exact, and provable without a solver.

A node fixes the signs of some earlier units; its bound is a backward linear bound whose slopes are
tuned for that part of the domain, all nodes of all open sides in one batch. A node whose safe bound
is <= 0 is closed and its slopes are kept: the leaves of the tree are the proof. A node that is not
closed offers the input that maximised its bound as a witness and is split at the unit whose line
costs most there (the idea of Bunel et al., JMLR 2020, with the exact cost in place of a score).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.matrix import Vector
from relunorm.stability.linear import Part, Slopes, linear_upper
from relunorm.stability.lp import Relaxation
from relunorm.stability.problem import Bounds, Kink, Problem
from relunorm.stability.slopes import Proposal, optimize
from relunorm.stability.witness import Witnesses

#: Units tried before a node is split.
CANDIDATES = 8

#: A node with at most this many inputs and open units is solved as a linear programme.
SMALL = 100

#: One decision of a path: layer, unit, and +1 for z >= 0 or -1 for z <= 0.
Decision = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the domain where a side is excluded, and the slopes that show it."""

    path: tuple[Decision, ...]
    tilt: dict[int, NDArray[Any]]
    offset: dict[int, NDArray[Any]]
    multipliers: NDArray[np.float64] | None = None


@dataclass(eq=False)
class Side:
    """One open side and the state of its search.

    Attributes:
        leaves: the closed nodes; a proof once ``open`` is empty.
        bound: the largest safe bound over the leaves.
        done: ``proved``, ``witnessed`` or empty while open.
    """

    unit: int
    sign: float
    leaves: list[Leaf] = field(default_factory=list)
    waiting: int = 0
    bound: float = -np.inf
    done: str = ""


@dataclass(eq=False)
class _Node:
    side: Side
    value: float
    path: tuple[Decision, ...]
    tilt: dict[int, NDArray[Any]]
    offset: dict[int, NDArray[Any]]
    multipliers: NDArray[np.float64] | None


def branch(
    problem: Problem,
    bounds: Bounds,
    witnesses: Witnesses,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    start: Slopes,
    deadline: float,
    nodes: int,
    batch: int = 256,
    iterations: int = 20,
) -> list[Side]:
    """Try to exclude ``signs * z > 0`` for each open side, or to find a witness of it.

    Args:
        start: slopes to begin with, one row a side.
        deadline: stop at this `time.monotonic` value.
        nodes: stop after this many nodes.

    Returns:
        one entry a side; those neither proved nor witnessed stay open.
    """
    sides = [Side(int(u), float(s)) for u, s in zip(units, signs, strict=True)]
    heap = [_root(problem, index, side, start.take([row])) for row, side in enumerate(sides)]
    visited = 0
    while heap and visited < nodes and time.monotonic() < deadline:
        heap.sort(key=lambda node: node.value)
        now, heap = heap[-batch:], heap[:-batch]
        visited += len(now)
        heap += _expand(problem, bounds, witnesses, index, now, iterations)
        _note_witnesses(witnesses, index, sides)
        heap = [node for node in heap if not node.side.done]
    return sides


def _root(problem: Problem, index: int, side: Side, start: Slopes) -> _Node:
    side.waiting = 1
    tilt: dict[int, NDArray[Any]] = {}
    offset: dict[int, NDArray[Any]] = {}
    for layer, rows in start.tilt.items():
        tilt[layer] = rows[0]
        offset[layer] = start.offset[layer][0] if layer in start.offset else np.zeros(rows.shape[1])
    many = np.zeros(problem.reach.rows) if problem.reach.rows else None
    if start.multipliers is not None:
        many = start.multipliers[0]
    return _Node(side, np.inf, (), tilt, offset, many)


def _note_witnesses(witnesses: Witnesses, index: int, sides: list[Side]) -> None:
    for side in sides:
        seen = (
            witnesses.largest[index][side.unit] > 0
            if side.sign > 0
            else witnesses.smallest[index][side.unit] < 0
        )
        if seen:
            side.done = "witnessed"
        elif not side.waiting:
            side.done = "proved"


def _expand(
    problem: Problem,
    bounds: Bounds,
    witnesses: Witnesses,
    index: int,
    nodes: list[_Node],
    iterations: int,
) -> list[_Node]:
    """Bound a batch of nodes; close what is proved, split the rest."""
    units = np.array([node.side.unit for node in nodes])
    signs = np.array([node.side.sign for node in nodes])
    part = part_of(problem, bounds, index, [node.path for node in nodes])
    start = Slopes(
        _stack([n.tilt for n in nodes]),
        _stack([n.offset for n in nodes]),
        np.stack([n.multipliers for n in nodes]) if nodes[0].multipliers is not None else None,
    )
    found = optimize(
        problem, bounds, index, units, signs,
        part=part, start=start, iterations=iterations, goal=0.0,
    )  # fmt: skip
    slopes = found.slopes
    safe = linear_upper(problem, bounds, index, units, signs, slopes, part)
    stuck = np.flatnonzero(safe > 0)
    precise = _solve_small(problem, bounds, index, nodes, part, found, slopes, safe, stuck)
    closed = safe <= 0
    rows = np.flatnonzero(~closed)
    witnesses.add(found.point[rows])
    witnesses.climb_from(index, found.point[rows], units[rows], signs[rows])
    picked = _pick(problem, bounds, index, units, signs, part, slopes, found, rows)
    choice = dict(zip(rows.tolist(), picked, strict=True))
    children: list[_Node] = []
    for row, node in enumerate(nodes):
        tilt = {k: v[row].astype(np.float32) for k, v in slopes.tilt.items()}
        offset = {k: v[row].astype(np.float32) for k, v in slopes.offset.items()}
        many = None if slopes.multipliers is None else slopes.multipliers[row].copy()
        node.side.waiting -= 1
        if closed[row]:
            if row in precise:
                tilt = {k: v[row].copy() for k, v in slopes.tilt.items()}
                offset = {k: v[row].copy() for k, v in slopes.offset.items()}
            node.side.leaves.append(Leaf(node.path, tilt, offset, many))
            node.side.bound = max(node.side.bound, float(safe[row]))
            continue
        layer, unit, cost = choice[row]
        if cost <= 0:
            # Nothing is left to decide: the bound is the truth up to rounding. The side stays open.
            node.side.waiting += 1
            continue
        kink, lam = problem.kinks[layer], found.lam[layer][row, unit]
        for sign in (-1, 1):
            path = (*node.path, (layer, unit, sign))
            mine = {**offset, layer: offset[layer].copy()}
            mine[layer][unit] = inherited(kink, lam, tilt[layer][unit], sign)
            children.append(_Node(node.side, float(safe[row]), path, tilt, mine, many))
        node.side.waiting += 2
    return children


def _solve_small(
    problem: Problem,
    bounds: Bounds,
    index: int,
    nodes: list[_Node],
    part: Part,
    found: Proposal,
    slopes: Slopes,
    safe: Vector,
    rows: NDArray[np.intp],
) -> set[int]:
    """Nodes with few open units are solved exactly: overwrite their slopes, bounds and points.

    Returns the rows that an exact solution closed; their slopes need every bit.
    """
    precise: set[int] = set()
    for row in rows.tolist():
        layers = range(index)
        lower = [part.lower[i][row] if i in part.lower else bounds.lower[i] for i in layers]
        upper = [part.upper[i][row] if i in part.upper else bounds.upper[i] for i in layers]
        free = sum(
            int(np.count_nonzero((lower[i] < 0) & (upper[i] > 0)))
            for i in layers
            if not problem.kinks[i].linear
        )
        if problem.reach.size + free > SMALL:
            continue
        decided: dict[int, Vector] = {}
        for layer, unit, sign in nodes[row].path:
            decided.setdefault(layer, np.zeros(len(lower[layer])))[unit] = sign
        side = nodes[row].side
        best = Relaxation(problem, index, lower, upper, decided).maximize(side.unit, side.sign)
        if best is None:
            continue
        at = np.array([row])
        value = linear_upper(
            problem,
            bounds,
            index,
            at * 0 + side.unit,
            np.array([side.sign]),
            best.slopes,
            part.take(at),
        )[0]
        if value < safe[row]:
            safe[row] = found.value[row] = value
            for layer in best.slopes.tilt:
                slopes.tilt[layer][row] = best.slopes.tilt[layer][0]
                if layer in slopes.offset:
                    slopes.offset[layer][row] = best.slopes.offset[layer][0]
            if slopes.multipliers is not None and best.slopes.multipliers is not None:
                slopes.multipliers[row] = best.slopes.multipliers[0]
            if value <= 0:
                precise.add(row)
        found.point[row] = best.point
        for layer, gap in best.gaps.items():
            if layer in found.score:
                found.score[layer][row] = gap * np.abs(found.lam[layer][row])
    return precise


def part_of(
    problem: Problem, bounds: Bounds, index: int, paths: list[tuple[Decision, ...]]
) -> Part:
    """The bounds that the decisions of each path leave."""
    lower: dict[int, NDArray[np.float64]] = {}
    upper: dict[int, NDArray[np.float64]] = {}
    for layer in range(index):
        kink = problem.kinks[layer]
        if not (kink.linear or kink.step):
            lower[layer] = np.tile(bounds.lower[layer], (len(paths), 1))
            upper[layer] = np.tile(bounds.upper[layer], (len(paths), 1))
    for row, path in enumerate(paths):
        for layer, unit, sign in path:
            if sign > 0:
                lower[layer][row, unit] = max(lower[layer][row, unit], 0.0)
            else:
                upper[layer][row, unit] = min(upper[layer][row, unit], 0.0)
    return Part(lower, upper)


def _pick(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    part: Part,
    slopes: Slopes,
    found: Proposal,
    rows: NDArray[np.intp],
) -> list[tuple[int, int, float]]:
    """Where to split each open node: of a few promising units, the one whose halves bound best.

    Candidates have the largest cost of their line at the relaxed point or the largest intercept;
    both halves of each are bounded with the parent's slopes (De Palma et al., 2021, filter the same
    way).
    """
    layers = sorted(found.score)
    if not len(rows) or not layers:
        return [(0, 0, 0.0)] * len(rows)
    edges = np.cumsum([0] + [found.score[k].shape[1] for k in layers])
    cost = np.concatenate([found.score[k][rows] for k in layers], axis=1)
    intercept = np.concatenate([found.intercept[k][rows] for k in layers], axis=1)
    several = CANDIDATES // 2
    columns = np.concatenate([_largest(cost, several), _largest(intercept, several)], axis=1)
    tries = columns.shape[1]
    layer_of = np.searchsorted(edges, columns, side="right") - 1
    unit_of = columns - edges[layer_of]
    owner = np.repeat(rows, tries * 2)
    sense = np.tile([-1, 1], len(rows) * tries)
    halves = part.take(owner)
    where = np.arange(len(owner))
    flat_layer, flat_unit = np.repeat(layer_of.ravel(), 2), np.repeat(unit_of.ravel(), 2)
    start = slopes.take(owner)
    for k, layer in enumerate(layers):
        if layer not in halves.lower:
            continue
        for sign, side in ((1, halves.lower), (-1, halves.upper)):
            at = where[(flat_layer == k) & (sense == sign)]
            column = flat_unit[at]
            side[layer][at, column] = 0.0
            lam, tilt = found.lam[layer][owner[at], column], start.tilt[layer][at, column]
            start.offset[layer][at, column] = inherited(problem.kinks[layer], lam, tilt, sign)
    value = optimize(
        problem, bounds, index, units[owner], signs[owner],
        part=halves, start=start, iterations=0, goal=None,
    ).value  # fmt: skip
    value = value.reshape(len(rows), tries, 2)
    gain = np.maximum(found.value[rows][:, None, None] - value, 0.0)
    merit = gain.min(axis=2) + 0.1 * gain.max(axis=2)
    open_ = np.take_along_axis(intercept, columns, axis=1) > 0
    merit = np.where(open_, merit + 1e-300, -1.0)
    best = merit.argmax(axis=1)
    take = np.arange(len(rows))
    return [
        (layers[a], int(b), float(c))
        for a, b, c in zip(
            layer_of[take, best], unit_of[take, best], merit[take, best], strict=True
        )
    ]


def inherited(kink: Kink, lam: Any, tilt: Any, sign: int) -> Any:
    """The offset that keeps a tangent's slope when its unit is decided; 0 in place of a chord."""
    keep = lam * kink.gap * (tilt - 1.0 if sign > 0 else tilt)
    return np.where(lam * kink.gap < 0, keep, 0.0)


def _largest(score: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    count = min(count, score.shape[1])
    return np.argpartition(-score, count - 1, axis=1)[:, :count]


def _stack(rows: list[dict[int, NDArray[Any]]]) -> dict[int, NDArray[np.float64]]:
    return {k: np.stack([row[k] for row in rows]).astype(np.float64) for k in rows[0]}

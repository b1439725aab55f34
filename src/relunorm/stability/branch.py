"""Branch and bound on the signs of earlier units: exact, and provable without a solver.

A node fixes the signs of some earlier units; its bound is a backward linear bound whose slopes are
tuned for that part of the domain, all nodes of all open sides in one batch. A node whose safe bound
is <= 0 is closed and its slopes are kept: the leaves of the tree are the proof. A node that is not
closed offers the input that maximised its bound as a witness and is split. Nodes with few inputs
and open units are solved as linear programmes, which makes the method exact: where every sign is
decided, the programme finds the maximum itself.

A node is split where its halves bound best, of a few promising units. Candidates have the largest
cost of their line at the relaxed point (Bunel et al., JMLR 2020, rank by an estimate of it) or the
largest intercept. Both halves of each are bounded with the parent's slopes, all in one batch (De
Palma et al., 2021, filter the same way).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.linear import Part, Slopes, linear_upper
from relunorm.bounds.lp import Relaxation
from relunorm.bounds.problem import Bounds, Kink, Problem
from relunorm.bounds.slopes import Proposal, optimize
from relunorm.clock import NO_LIMIT, Clock
from relunorm.matrix import Vector
from relunorm.stability.witness import Witnesses

#: A node with at most this many inputs and open units is solved as a linear programme.
SMALL = 100

#: Nodes bounded in one batch (fewer in large networks), and descent steps for each.
BATCH = 256
BATCH_DOUBLES = 1 << 21
STEPS = 20

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
        leaves: the closed nodes; a proof once nothing is ``waiting``.
        waiting: nodes not closed.
        done: ``proved``, ``witnessed`` or empty while open.
        visited, queue: nodes bounded, and those to be bounded.
    """

    unit: int
    sign: float
    leaves: list[Leaf] = field(default_factory=list)
    waiting: int = 1
    done: str = ""
    visited: int = 0
    queue: list[_Node] = field(default_factory=list)

    def take(self, count: int) -> list[_Node]:
        """The nodes with the largest bounds, removed from the queue."""
        self.queue.sort(key=lambda node: node.value)
        now, self.queue = self.queue[-count:], self.queue[:-count]
        self.visited += len(now)
        return now


@dataclass(eq=False)
class _Node:
    """A path to be bounded, the slopes to begin with, and its parent's bound."""

    side: Side
    value: float
    start: Leaf


@dataclass(eq=False)
class _Batch:
    """Nodes of one step: where they hold, what was proposed, what it proves."""

    nodes: list[_Node]
    units: NDArray[np.intp]
    signs: Vector
    part: Part
    found: Proposal
    slopes: Slopes
    safe: Vector
    exact: set[int] = field(default_factory=set)

    def leaf(self, row: int) -> Leaf:
        """The node's path with the slopes found; single precision unless it needs every bit."""
        kind = np.float64 if row in self.exact else np.float32
        many = self.slopes.multipliers
        return Leaf(
            self.nodes[row].start.path,
            {k: v[row].astype(kind) for k, v in self.slopes.tilt.items()},
            {k: v[row].astype(kind) for k, v in self.slopes.offset.items()},
            None if many is None else many[row].copy(),
        )


class Branching:
    """The search below one map: what every step needs."""

    def __init__(self, problem: Problem, bounds: Bounds, witnesses: Witnesses, index: int):
        self.problem, self.bounds, self.witnesses, self.index = problem, bounds, witnesses, index
        self.clock = NO_LIMIT

    def run(
        self,
        units: NDArray[np.intp],
        signs: Vector,
        *,
        start: Slopes,
        clock: Clock,
        nodes: int,
    ) -> list[Side]:
        """Try to exclude ``signs * z[units] > 0`` for each side, or to find a witness of it.

        Args:
            start: slopes to begin with, one row a side, tuned already.
            clock: stop at its end.
            nodes: give a side up after this many nodes.

        Returns:
            one entry a side; those neither proved nor witnessed stay open.
        """
        sides = [Side(int(u), float(s)) for u, s in zip(units, signs, strict=True)]
        for row, side in enumerate(sides):
            side.queue.append(_Node(side, np.inf, self._root(start, row)))
        batch = max(1, min(BATCH, BATCH_DOUBLES // sum(self.problem.network.widths)))
        active = sides
        self.clock = clock
        while active and not clock.expired():
            now: list[_Node] = []
            for side in active:
                now += side.take(max(1, batch // len(active)))
            for node in self._step(now):
                node.side.queue.append(node)
            self._note(sides)
            active = [s for s in active if s.queue and not s.done and s.visited < nodes]
        return sides

    def _root(self, start: Slopes, row: int) -> Leaf:
        offset: dict[int, NDArray[Any]] = {}
        for layer, rows in start.tilt.items():
            given = start.offset.get(layer)
            offset[layer] = np.zeros(rows.shape[1]) if given is None else given[row]
        many = np.zeros(self.problem.reach.rows) if self.problem.reach.rows else None
        if start.multipliers is not None:
            many = start.multipliers[row]
        return Leaf((), {k: v[row] for k, v in start.tilt.items()}, offset, many)

    def _note(self, sides: list[Side]) -> None:
        for side in sides:
            if self.witnesses.shows(self.index, side.unit, side.sign):
                side.done = "witnessed"
            elif not side.waiting:
                side.done = "proved"

    def _step(self, nodes: list[_Node]) -> list[_Node]:
        """Bound a batch of nodes; close what is proved, look for witnesses, split the rest."""
        batch = self._bound(nodes)
        for row in np.flatnonzero(batch.safe > 0).tolist():
            if not self.clock.expired():
                self._solve(batch, row)
        rows = np.flatnonzero(batch.safe > 0)
        for row in np.flatnonzero(batch.safe <= 0).tolist():
            nodes[row].side.leaves.append(batch.leaf(row))
            nodes[row].side.waiting -= 1
        points, units, signs = batch.found.point[rows], batch.units[rows], batch.signs[rows]
        self.witnesses.add(points)
        self.witnesses.climb_from(self.index, points, units, signs)
        places = best_splits(
            self.problem, self.bounds, self.index, batch.units, batch.signs,
            batch.part, batch.slopes, batch.found, rows,
        )  # fmt: skip
        children: list[_Node] = []
        for row, place in zip(rows.tolist(), places, strict=True):
            # With nothing left to decide the bound is the truth up to rounding: stay open.
            if place is not None:
                children += self._split(batch, row, *place)
        return children

    def _bound(self, nodes: list[_Node]) -> _Batch:
        units = np.array([node.side.unit for node in nodes])
        signs = np.array([node.side.sign for node in nodes])
        part = part_of(self.problem, self.bounds, self.index, [n.start.path for n in nodes])
        given = [n.start.multipliers for n in nodes if n.start.multipliers is not None]
        start = Slopes(
            _stack([node.start.tilt for node in nodes]),
            _stack([node.start.offset for node in nodes]),
            np.stack(given) if given else None,
        )
        tuned = not any(node.start.path for node in nodes)  # roots begin with good slopes
        found = optimize(
            self.problem, self.bounds, self.index, units, signs,
            part=part, start=start, iterations=0 if tuned else STEPS, goal=0.0,
            clock=self.clock,
        )  # fmt: skip
        safe = linear_upper(self.problem, self.bounds, self.index, units, signs, found.slopes, part)
        return _Batch(nodes, units, signs, part, found, found.slopes, safe)

    def _solve(self, batch: _Batch, row: int) -> None:
        """The relaxation of a small node exactly: overwrite its slopes, bound and point."""
        here = batch.part.take([row])
        layers = range(self.index)
        lower = [here.lower[i][0] if i in here.lower else self.bounds.lower[i] for i in layers]
        upper = [here.upper[i][0] if i in here.upper else self.bounds.upper[i] for i in layers]
        kinked = [i for i in layers if not self.problem.kinks[i].linear]
        free = sum(np.count_nonzero((lower[i] < 0) & (upper[i] > 0)) for i in kinked)
        if self.problem.reach.size + free > SMALL:
            return
        decided: dict[int, Vector] = {}
        for layer, unit, sign in batch.nodes[row].start.path:
            decided.setdefault(layer, np.zeros(len(lower[layer])))[unit] = sign
        unit, sign = int(batch.units[row]), float(batch.signs[row])
        best = Relaxation(self.problem, self.index, lower, upper, decided).maximize(
            unit, sign, self.clock.left_or_none()
        )
        if best is None:
            return
        value = linear_upper(
            self.problem, self.bounds, self.index,
            batch.units[[row]], batch.signs[[row]], best.slopes, here,
        )[0]  # fmt: skip
        if value < batch.safe[row]:
            batch.safe[row] = batch.found.value[row] = value
            batch.exact.add(row)
            for layer in best.slopes.tilt:
                batch.slopes.tilt[layer][row] = best.slopes.tilt[layer][0]
                batch.slopes.offset[layer][row] = best.slopes.offset[layer][0]
            if batch.slopes.multipliers is not None and best.slopes.multipliers is not None:
                batch.slopes.multipliers[row] = best.slopes.multipliers[0]
        batch.found.point[row] = best.point
        for layer, gap in best.gaps.items():
            if layer in batch.found.score:
                batch.found.score[layer][row] = gap * np.abs(batch.found.lam[layer][row])

    def _split(self, batch: _Batch, row: int, layer: int, unit: int) -> list[_Node]:
        """The two halves of a node, which begin with its slopes."""
        side, leaf = batch.nodes[row].side, batch.leaf(row)
        side.waiting += 1
        lam, tilt = batch.found.lam[layer][row, unit], leaf.tilt[layer][unit]
        halves = []
        for sign in (-1, 1):
            offset = {**leaf.offset, layer: leaf.offset[layer].copy()}
            offset[layer][unit] = inherited(self.problem.kinks[layer], lam, tilt, sign)
            path = (*leaf.path, (layer, unit, sign))
            start = Leaf(path, leaf.tilt, offset, leaf.multipliers)
            halves.append(_Node(side, float(batch.safe[row]), start))
        return halves


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


def _stack(rows: list[dict[int, NDArray[Any]]]) -> dict[int, NDArray[np.float64]]:
    return {k: np.stack([row[k] for row in rows]).astype(np.float64) for k in rows[0]}


#: Candidates by cost and as many by intercept.
EACH = 4


def best_splits(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    part: Part,
    slopes: Slopes,
    found: Proposal,
    rows: NDArray[np.intp],
) -> list[tuple[int, int] | None]:
    """For each of ``rows`` the (layer, unit) to split at; None where every sign is decided."""
    layers = [layer for layer in sorted(found.score) if layer in part.lower]
    if not len(rows) or not layers:
        return [None] * len(rows)
    edges = np.cumsum([0] + [found.score[k].shape[1] for k in layers])
    cost = np.concatenate([found.score[k][rows] for k in layers], axis=1)
    intercept = np.concatenate([found.intercept[k][rows] for k in layers], axis=1)
    columns = np.concatenate([_largest(cost), _largest(intercept)], axis=1)
    place = np.searchsorted(edges, columns, side="right") - 1
    unit = columns - edges[place]

    owner = np.repeat(rows, 2 * columns.shape[1])
    sense = np.tile([-1, 1], columns.size)
    halves, start = part.take(owner), slopes.take(owner)
    for k, layer in enumerate(layers):
        for sign, side in ((1, halves.lower), (-1, halves.upper)):
            at = np.flatnonzero((np.repeat(place.ravel(), 2) == k) & (sense == sign))
            column = np.repeat(unit.ravel(), 2)[at]
            side[layer][at, column] = 0.0
            lam, tilt = found.lam[layer][owner[at], column], start.tilt[layer][at, column]
            start.offset[layer][at, column] = inherited(problem.kinks[layer], lam, tilt, sign)
    value = optimize(
        problem, bounds, index, units[owner], signs[owner],
        part=halves, start=start, iterations=0, goal=None,
    ).value.reshape(*columns.shape, 2)  # fmt: skip
    gain = np.maximum(found.value[rows][:, None, None] - value, 0.0)
    merit = gain.min(axis=2) + 0.1 * gain.max(axis=2)
    merit = np.where(np.take_along_axis(intercept, columns, axis=1) > 0, merit, -1.0)
    best = merit.argmax(axis=1)
    return [
        (layers[place[row, k]], int(unit[row, k])) if merit[row, k] >= 0 else None
        for row, k in enumerate(best.tolist())
    ]


def inherited(kink: Kink, lam: Any, tilt: Any, sign: int) -> Any:
    """The offset that keeps a tangent's slope when its unit is decided; 0 in place of a chord."""
    keep = lam * kink.gap * (tilt - 1.0 if sign > 0 else tilt)
    return np.where(lam * kink.gap < 0, keep, 0.0)


def _largest(score: NDArray[Any]) -> NDArray[np.intp]:
    count = min(EACH, score.shape[1])
    return np.argpartition(-score, count - 1, axis=1)[:, :count]

"""Branch and bound on the input box: the exact method when inputs are few.

Every box of a bisection tree gets its own bounds of every layer by the fixed rules (intervals, then
backward linear bounds where the sign is open), all boxes of a batch at once. A side is excluded
once boxes on which its bound is <= 0 cover the domain. The proof is the tree of cuts and, for every
side, the boxes that closed it: the bounds are recomputed on replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.intervals import interval_batch
from relunorm.bounds.linear import Part, linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector
from relunorm.stability.witness import Witnesses, unit_gradient

Array = NDArray[np.float64]

#: Boxes bounded in one batch.
BATCH = 64


@dataclass(eq=False)
class BoxTree:
    """A bisection tree over the domain's box; node 0 is the root.

    Attributes:
        axis, cut: of every node, -1 and 0 for a leaf; the first child has x[axis] <= cut.
        children: node -> the two children.
        closed: (unit, sign) -> nodes on which that side was excluded.
    """

    axis: list[int] = field(default_factory=lambda: [-1])
    cut: list[float] = field(default_factory=lambda: [0.0])
    children: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    closed: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def split(self, node: int, axis: int, cut: float) -> tuple[int, int]:
        """Cut a leaf in two and return the children."""
        first = len(self.axis)
        self.axis[node], self.cut[node], self.children[node] = axis, cut, (first, first + 1)
        self.axis += [-1, -1]
        self.cut += [0.0, 0.0]
        self.children += [(0, 0), (0, 0)]
        return first, first + 1

    def boxes(self, lo: Vector, hi: Vector) -> tuple[Array, Array]:
        """The box of every node, shape (nodes, d).

        Raises:
            InvalidInputError: a cut lies outside its box, or is no number.
        """
        los, his = np.tile(lo, (len(self.axis), 1)), np.tile(hi, (len(self.axis), 1))
        for node, axis in enumerate(self.axis):
            if axis >= 0:
                left, right = self.children[node]
                los[left], his[left] = los[node], his[node]
                los[right], his[right] = los[node], his[node]
                cut = self.cut[node]
                if not los[node, axis] <= cut <= his[node, axis]:
                    raise InvalidInputError(f"node {node} of a split proof is cut outside its box")
                his[left, axis] = los[right, axis] = cut
        return los, his

    @property
    def sound(self) -> bool:
        """Whether the nodes form one tree: all but the root have one parent, which comes first.

        With the same child twice, or one child of two parents, half a box could pass for a whole.
        """
        nodes = len(self.axis)
        if not nodes or not len(self.cut) == len(self.children) == nodes:
            return False
        pairs = [(n, c) for n, axis in enumerate(self.axis) if axis >= 0 for c in self.children[n]]
        below = sorted(child for _, child in pairs)
        return below == list(range(1, nodes)) and all(n < child for n, child in pairs)

    def covered(self, side: tuple[int, int]) -> bool:
        """Whether the boxes that closed a side cover the root."""
        done = set(self.closed.get(side, ()))
        stack = [0]
        while stack:
            node = stack.pop()
            if node in done:
                continue
            if self.axis[node] < 0:
                return False
            stack.extend(self.children[node])
        return True


def box_bounds(
    problem: Problem, bounds: Bounds, index: int, lo: Array, hi: Array
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Bounds of every layer before ``index`` on each box, by the fixed rules.

    Args:
        lo, hi: shape (boxes, d).

    Returns:
        layer -> (boxes, width), lower and upper; never wider than ``bounds``.
    """
    lower: dict[int, Array] = {}
    upper: dict[int, Array] = {}
    low, high = {0: lo}, {0: hi}
    for layer in range(index):
        bottom, top = interval_batch(problem, bounds, layer, low, high)
        bottom = np.maximum(bottom, bounds.lower[layer])
        top = np.minimum(top, bounds.upper[layer])
        kink = problem.kinks[layer]
        box, unit = np.nonzero((bottom < 0) & (top > 0))
        if layer and len(box) and not kink.linear:
            part = Part(
                {k: v[box] for k, v in lower.items()},
                {k: v[box] for k, v in upper.items()},
                lo[box],
                hi[box],
            )
            ones = np.ones(len(box))
            high_side = linear_upper(problem, bounds, layer, unit, ones, part=part)
            low_side = -linear_upper(problem, bounds, layer, unit, -ones, part=part)
            top[box, unit] = np.minimum(top[box, unit], high_side)
            bottom[box, unit] = np.maximum(bottom[box, unit], low_side)
        lower[layer], upper[layer] = bottom, top
        low[layer + 1], high[layer + 1] = kink.image(bottom, top)
    return lower, upper


def side_bounds(
    problem: Problem,
    bounds: Bounds,
    index: int,
    lo: Array,
    hi: Array,
    box: NDArray[np.intp],
    units: NDArray[np.intp],
    signs: Vector,
) -> Vector:
    """Safe upper bounds of signs * z[units] of map ``index``, each on its box."""
    lower, upper = box_bounds(problem, bounds, index, lo, hi)
    part = Part(
        {k: v[box] for k, v in lower.items()},
        {k: v[box] for k, v in upper.items()},
        lo[box],
        hi[box],
    )
    return linear_upper(problem, bounds, index, units, signs, part=part)


def split(
    problem: Problem,
    bounds: Bounds,
    witnesses: Witnesses,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    clock: Clock,
    boxes: int,
) -> tuple[BoxTree, dict[tuple[int, int], float]]:
    """Exclude open sides by bisection of the input box, or find witnesses of them.

    Args:
        clock: stop at its end.
        boxes: stop after this many boxes.

    Returns:
        the tree, and (unit, sign) -> bound for the sides it excludes.
    """
    tree = BoxTree()
    sides = [(int(u), int(s)) for u, s in zip(units, signs, strict=True)]
    worst = dict.fromkeys(sides, -np.inf)
    stack = [(0, problem.reach.lo, problem.reach.hi, set(sides))]
    visited = 0
    while stack and visited < boxes and not clock.expired():
        now, stack = stack[-BATCH:], stack[:-BATCH]
        visited += len(now)
        stack += _bisect(problem, bounds, witnesses, index, now, tree, worst)
    proved = {side: worst[side] for side in sides if tree.covered(side)}
    return tree, proved


_Box = tuple[int, Vector, Vector, set[tuple[int, int]]]


def _bisect(
    problem: Problem,
    bounds: Bounds,
    witnesses: Witnesses,
    index: int,
    now: list[_Box],
    tree: BoxTree,
    worst: dict[tuple[int, int], float],
) -> list[_Box]:
    """Bound a batch of boxes, close what is excluded on them, halve the rest."""
    now = [
        (n, a, b, {s for s in sides if not witnesses.shows(index, *s)}) for n, a, b, sides in now
    ]
    pairs = [(row, side) for row, (_, _, _, sides) in enumerate(now) for side in sorted(sides)]
    if not pairs:
        return []
    lo, hi = np.array([x[1] for x in now]), np.array([x[2] for x in now])
    box = np.array([row for row, _ in pairs])
    unit = np.array([side[0] for _, side in pairs])
    sign = np.array([float(side[1]) for _, side in pairs])
    value = side_bounds(problem, bounds, index, lo, hi, box, unit, sign)
    hardest: dict[int, int] = {}
    for k, (row, side) in enumerate(pairs):
        if value[k] <= 0:
            tree.closed.setdefault(side, []).append(now[row][0])
            worst[side] = max(worst[side], float(value[k]))
            now[row][3].discard(side)
        elif row not in hardest or value[k] > value[hardest[row]]:
            hardest[row] = k
    if not hardest:
        return []
    rows = np.array(sorted(hardest))
    pick = np.array([hardest[row] for row in rows.tolist()])
    middle = lo[rows] / 2 + hi[rows] / 2
    _, gradient = unit_gradient(problem.network, middle, index, unit[pick])
    witnesses.add(middle)
    witnesses.climb_from(index, middle, unit[pick], sign[pick])
    return _halve(problem, now, rows, gradient, tree)


def _halve(
    problem: Problem, now: list[_Box], rows: NDArray[np.intp], gradient: Array, tree: BoxTree
) -> list[_Box]:
    """Cut each box across the side that matters most to its hardest unit and is still long."""
    children: list[_Box] = []
    full = problem.reach.hi - problem.reach.lo
    for row, slope in zip(rows.tolist(), gradient, strict=True):
        node, lo, hi, sides = now[row]
        length = hi - lo
        share = length / np.where(full > 0, full, 1.0)
        weight = np.abs(slope) * length
        merit = share * (0.1 + weight / (weight.max() or 1.0))
        axis = int(np.argmax(merit))
        cut = float(lo[axis] / 2 + hi[axis] / 2)
        if not lo[axis] < cut < hi[axis]:
            continue
        left, right = tree.split(node, axis, cut)
        top, bottom = hi.copy(), lo.copy()
        top[axis] = bottom[axis] = cut
        children += [(left, lo, top, set(sides)), (right, bottom, hi, set(sides))]
    return children

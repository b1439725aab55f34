"""The difference over a box, tightened by cutting the box: the worst part is halved first.

On a smaller box fewer units change sign, so that the slopes are known and errors cancel. The cuts
are the proof: the bounds of the parts are recomputed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.best_first import Parts
from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.problem import Bounds as Reached
from relunorm.bounds.problem import Problem
from relunorm.domain import Box
from relunorm.domain.reach import Reach, reach_of
from relunorm.embedded.proof.distance import Change, Difference, difference
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Network
from relunorm.stability.bound_replay import rule_bounds

#: Halving stops when doubling the parts has gained less than this share.
GAIN = 0.03
#: With at most this many inputs halving goes on to PATIENCE parts whatever it gains.
FEW_INPUTS, PATIENCE = 8, 128


@dataclass(frozen=True)
class Bounds:
    """Bounds of |rows @ (program - network)|, the worst over all parts.

    Attributes:
        on_grid: for inputs that are integers of the program.
        of_floats: for any input of the box, rounded to the nearest integer first.
    """

    on_grid: Vector
    of_floats: Vector

    def worst(self, other: Bounds) -> Bounds:
        """Entry by entry the larger of both."""
        return Bounds(
            np.maximum(self.on_grid, other.on_grid), np.maximum(self.of_floats, other.of_floats)
        )


def bound_part(
    network: Network, change: Change, box: Box, rows: Array, away: bool = False
) -> tuple[Bounds, Difference]:
    """The bounds over one box in one go."""
    problem = Problem(network, reach_of(box))
    last, count = len(network.layers), len(rows)
    both = np.vstack([rows, -rows])
    found = []
    first = difference(problem, change, exact_input=True, away=away)
    second = difference(problem, change, exact_input=False, away=away, bounds=first.bounds)
    for part in (first, second):
        top = part.descend(both)
        low, high = part.error(last)
        plain = np.maximum(rows, 0) @ high - np.maximum(-rows, 0) @ low
        other = np.maximum(-rows, 0) @ high - np.maximum(rows, 0) @ low
        plain, other = (np.nextafter(x * (1 + 1e-12), np.inf) for x in (plain, other))
        size = part.norms.error(last, part.passes.noise[last], rows)
        sides = np.fmin(top[:count], plain), np.fmin(top[count:], other)
        found.append(np.fmin(np.maximum(*sides), size))
    return Bounds(found[0], np.maximum(*found)), second


def cut(
    network: Network,
    change: Change,
    box: Box,
    rows: Array,
    *,
    parts: int,
    goal: float | None = None,
    on_grid: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Bounds, list[Any]]:
    """The bounds over a box, and the cuts that prove them.

    Args:
        rows: combinations of outputs.
        parts: how many boxes, at most.
        goal: a bound that is good enough.
        on_grid: whether that is asked of the program's own inputs, or of all.

    Returns:
        the bounds, and the cuts in preorder: [axis, coordinate] for a box that is halved there,
        None for one that is not.
    """

    def size(part: tuple[Box, Bounds]) -> float:
        return float((part[1].on_grid if on_grid else part[1].of_floats).max())

    def bounded(part: Box) -> tuple[Box, Bounds]:
        return part, bound_part(network, change, part, rows)[0]

    def cut_one(boxes: list[tuple[Box, Bounds]]) -> list[Any] | None:
        here = boxes[0][0]
        axis = _axis(network, here)
        middle = float(here.lo[axis] + (here.hi[axis] - here.lo[axis]) / 2)
        if not here.lo[axis] < middle < here.hi[axis]:
            return None
        return [([axis, middle], *map(bounded, halves(here, axis, middle)))]

    def look() -> None:
        nonlocal before, check, enough
        if progress is not None:
            progress(len(open_), parts)
        if len(open_) == check:
            patient = box.dimension <= FEW_INPUTS and check < PATIENCE
            if open_.bound > (1 - GAIN) * before and not patient:
                enough = np.inf
            before, check = open_.bound, 2 * check

    whole = bounded(box)
    open_ = Parts(size(whole), whole)
    before, check, enough = open_.bound, 4, 0.0 if goal is None else goal
    open_.halve(cut_one, size, lambda: enough, most=parts, then=look)
    return _join([part.what[1] for part in open_]), _preorder(open_.cuts)


def replay_cuts(network: Network, change: Change, box: Box, rows: Array, cuts: list[Any]) -> Bounds:
    """The bounds that stored cuts prove.

    Raises:
        InvalidInputError: the cuts are not those of a tree over the box.
    """
    found: list[Bounds] = []
    stack, place = [box], 0
    while stack:
        here = stack.pop()
        if place >= len(cuts):
            raise InvalidInputError("the cuts of the box end too early")
        node, place = cuts[place], place + 1
        if node is None:
            found.append(bound_part(network, change, here, rows)[0])
            continue
        axis, middle = int(node[0]), float(node[1])
        if not 0 <= axis < here.dimension or not here.lo[axis] <= middle <= here.hi[axis]:
            raise InvalidInputError("a cut lies outside of its box")
        stack += reversed(halves(here, axis, middle))
    if place != len(cuts):
        raise InvalidInputError("there are more cuts than boxes")
    return _join(found)


def halves(box: Box, axis: int, middle: float) -> tuple[Box, Box]:
    """A box cut in two."""
    high, low = box.hi.copy(), box.lo.copy()
    high[axis] = low[axis] = middle
    return Box(box.lo, high), Box(low, box.hi)


def _axis(network: Network, box: Box) -> int:
    """The coordinate along which the outputs move most."""
    slopes = np.abs(network.jacobian(box.center)).max(axis=0)
    width = box.hi - box.lo
    reach = slopes * width
    return int(np.argmax(reach if reach.any() else width))


def _join(found: list[Bounds]) -> Bounds:
    worst = found[0]
    for other in found[1:]:
        worst = worst.worst(other)
    return worst


def _preorder(cuts: list[tuple[int, Any]]) -> list[Any]:
    """Cuts of `Parts` as a certificate has them."""
    made = {number: (k, how) for k, (number, how) in enumerate(cuts)}
    result, stack = [], [0]
    while stack:
        k, how = made.get(stack.pop(), (0, None))
        result.append(how)
        stack += [] if how is None else [2 * k + 2, 2 * k + 1]
    return result


def output_bounds(network: Network, reach: Reach) -> tuple[Vector, Vector, Reached]:
    """Bounds of the outputs, and of all values, by the fixed linear rule: without a solver."""
    problem = Problem(network, reach)
    bounds = Reached(problem)
    lower = upper = np.zeros(0)
    for index in range(len(network.layers) + 1):
        lower, upper = rule_bounds(problem, bounds, index, every=index == len(network.layers))
        if index == 0:  # the rule's intervals are those of the box around the polygon
            rows, ones = np.arange(len(lower)), np.ones(len(lower))
            upper = np.minimum(upper, linear_upper(problem, bounds, 0, rows, ones))
            lower = np.maximum(lower, -linear_upper(problem, bounds, 0, rows, -ones))
        if index < len(network.layers):
            bounds.append(lower, upper)
    return lower, upper, bounds


def apart(network: Network, slope: Array, constant: Vector, reach: Reach) -> Vector:
    """A bound of ``|network(x) - (slope x + constant)|`` for every output, over a reach.

    The numbers of the affine map may be rounded to the nearest floats.
    """
    terms = dict(network.output.terms)
    old = mx.dense(terms[0]) if 0 in terms else np.zeros_like(slope)
    bias = network.output.bias - constant
    rest = network.replace(output=Affine({**terms, 0: old - slope}, bias))
    # what forming these numbers rounded
    size = (np.abs(old) + np.abs(slope)) @ reach.span + np.abs(network.output.bias)
    lost = 2.0**-50 * (size + np.abs(constant)) + 2.0**-1000
    lower, upper, _ = output_bounds(rest, reach)
    return np.nextafter(np.maximum(-lower, upper) + lost, np.inf)

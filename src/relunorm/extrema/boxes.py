"""Branch and bound over boxes of inputs, with the sign tree for boxes that are small enough.

Best first: the box with the largest upper bound is looked at next. Its units are bounded, its
output gets a linear bound; if that does not settle it, the sign tree tries to solve it exactly
within a budget of nodes, and if it cannot, the box is cut in two along the side that matters most.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Ball
from relunorm.domain.base import lengths
from relunorm.extrema.problem import Search
from relunorm.extrema.relaxation import UnitBounds, output_bound, unit_bounds
from relunorm.extrema.tree import solve_box
from relunorm.extrema.window import Window, bounded

Array = NDArray[np.float64]

#: Boxes bounded together, and nodes of the sign tree a box may use before it is cut.
BATCH, BUDGET = 32, 100


@dataclass(frozen=True, eq=False)
class _Box:
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    known: UnitBounds | None = None
    depth: int = 0


def split_boxes(search: Search, max_boxes: int | None = None) -> None:
    """Run until the interval closes, a target decides, or time is up; updates ``search``."""
    domain = search.domain
    window = bounded(search.network, domain)
    box = domain.bounding_box
    heap: list[tuple[float, int, _Box]] = [(-np.inf, 0, _Box(box.lo, box.hi))]
    count, settled = 1, -np.inf
    while heap:
        search.upper = max(search.lower, -heap[0][0], settled)
        search.report()
        if -heap[0][0] <= search.floor or search.decided() or search.out_of_time():
            return
        if max_boxes is not None and count > max_boxes:
            return
        taken = [heapq.heappop(heap) for _ in range(min(BATCH, len(heap)))]
        pending = {id(entry[2]): -entry[0] for entry in taken}
        try:
            rest, done = _process(search, window, taken)
            settled = max(settled, done)
            for bound, part in rest:
                heapq.heappush(heap, (-bound, count, part))
                count += 1
            pending = {}
        finally:  # an interrupt must not lose the boxes in hand: their bounds still hold
            bounds = [-h[0] for h in heap[:1]] + list(pending.values())
            search.upper = max([search.lower, settled, *bounds])
    search.upper = max(search.lower, search.floor, settled)


def _process(
    search: Search, window: Window, taken: list[tuple[float, int, _Box]]
) -> tuple[list[tuple[float, _Box]], float]:
    """Bound some boxes; what is left of them with upper bounds, and the bound of those solved."""
    los = np.array([entry[2].lo for entry in taken])
    his = np.array([entry[2].hi for entry in taken])
    bounds = unit_bounds(
        search.network, los, his, known=_stack([e[2].known for e in taken]), clock=search.clock
    )
    upper, form, constant = output_bound(search.network, bounds, los, his)
    values = np.minimum(upper[:, 0], [-entry[0] for entry in taken])
    search.offer(np.where(form[:, 0] > 0, his, los))
    if isinstance(search.domain, Ball):
        plain = _over_boxes(form[:, 0], constant[:, 0], los, his)
        slack = np.maximum(upper[:, 0] - plain, 0.0)  # for the rounding behind the form
        values = np.minimum(values, slack + _over_ball(search, form[:, 0], constant[:, 0]))
    rest: list[tuple[float, _Box]] = []
    settled = -np.inf
    for i, (_, _, box) in enumerate(taken):
        if values[i] <= search.floor:
            continue
        one = UnitBounds(
            tuple(a[i : i + 1] for a in bounds.lows), tuple(a[i : i + 1] for a in bounds.highs)
        )
        if search.out_of_time() or search.decided():
            rest.append((values[i], box))
            continue
        # Where many kinks meet at the maximum no cut separates them: the budget must grow.
        budget = BUDGET * 2 ** min(box.depth // 4, 40)
        solved, value = solve_box(
            search, window, box.lo, box.hi, one, values[i], budget, search.stop
        )
        if solved:
            settled = max(settled, min(value, values[i]))
        else:
            rest += [(min(value, values[i]), part) for part in _cut(box, form[i, 0], one)]
    search.nodes += len(taken)
    return rest, settled


def _over_boxes(form: Array, constant: Array, los: Array, his: Array) -> Array:
    return np.einsum("nd,nd->n", form, np.where(form > 0, his, los)) + constant


def _over_ball(search: Search, form: Array, constant: Array) -> Array:
    """Upper bounds form . x + constant over the whole ball; offers where they are attained.

    On a box without kinks the form is the network, so this settles a maximum on the sphere, which
    boxes alone only close in on.
    """
    ball = search.domain
    assert isinstance(ball, Ball)
    length = lengths(form)
    unit = np.divide(form, length[:, None], out=np.zeros_like(form), where=length[:, None] > 0)
    search.offer(ball.middle + ball.reach * unit)
    size = np.abs(constant) + np.abs(form) @ (np.abs(ball.middle) + ball.reach)
    rounding = 4.0 * (form.shape[1] + 4) * np.finfo(np.float64).eps
    return constant + form @ ball.middle + length * ball.reach + rounding * size


def _stack(known: list[UnitBounds | None]) -> UnitBounds | None:
    if any(k is None for k in known):
        return None
    given = [k for k in known if k is not None]
    lows = zip(*(k.lows for k in given), strict=True)
    highs = zip(*(k.highs for k in given), strict=True)
    return UnitBounds(tuple(map(np.concatenate, lows)), tuple(map(np.concatenate, highs)))


def _cut(box: _Box, form: NDArray[np.float64], bounds: UnitBounds) -> list[_Box]:
    """Two halves along the side with the largest effect on the bound."""
    width = box.hi - box.lo
    effect = width * (np.abs(form) + 0.05 * float(np.abs(form).max(initial=0.0)) + 1e-300)
    axis = int(np.argmax(effect))
    middle = box.lo[axis] + width[axis] / 2
    left, right = np.array(box.hi), np.array(box.lo)
    left[axis] = right[axis] = middle
    depth = box.depth + 1
    return [_Box(box.lo, left, bounds, depth), _Box(right, box.hi, bounds, depth)]

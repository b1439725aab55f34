"""Bounds of every unit over a whole domain, layer by layer: intervals, then the fixed linear rule.

Sound in real arithmetic whatever the time: units that were not reached keep their intervals. How
many units of every layer the rule has bounded is all that a proof needs to find the same bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.intervals import interval_bounds
from relunorm.bounds.layers.linear import CHUNK_DOUBLES, linear_upper
from relunorm.bounds.layers.lp import relaxation
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.matrix import Vector
from relunorm.network import Network

#: A network on a domain, and bounds of its units, layer by layer.
Around = tuple[Problem, list[tuple[Vector, Vector]]]

#: Units of a layer keep their intervals where the rule would take more multiplications than this.
MOST_WORK = 4e10

#: Multiplications between two looks at the clock.
WORK = 5e8


def layer_bounds(
    network: Network,
    reach: Reach,
    clock: Clock = NO_LIMIT,
    counts: Sequence[int] | None = None,
    *,
    solve: bool = False,
    around: Around | None = None,
) -> tuple[Bounds, tuple[int, ...]]:
    """Bounds of every layer, and how many of its units the linear rule has bounded.

    Args:
        counts: how many units to bound so, layer by layer, to repeat what a clock has cut short.
        solve: whether units that read the input alone are bounded over a polytope by linear
            programmes, whose multipliers are checked; else over the box around it.
        around: what is known of the same network over a domain that holds this one.
    """
    problem = Problem(network, reach) if around is None else around[0].on(reach)
    bounds, done = Bounds(problem), []
    for index in range(len(network.layers)):
        lower, upper = interval_bounds(problem, bounds, index)
        if around is not None:
            low, high = around[1][index]
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        units = np.flatnonzero((lower < 0) & (upper > 0))
        inner = problem.maps[index].sources not in ((), (0,))  # else intervals are as good
        if problem.kinks[index].linear or not (inner or (solve and reach.rows and not index)):
            units = units[:0]
        most = _most(problem, index, len(units)) if counts is None else counts[index]
        if not index and len(units):
            _programmes(problem, bounds, units, lower, upper, clock)
            most = 0
        done.append(_rule(problem, bounds, index, units[:most], lower, upper, clock))
        bounds.append(lower, upper)
    return bounds, tuple(done)


def _most(problem: Problem, index: int, count: int) -> int:
    return count if count * _price(problem, index) <= MOST_WORK else 0


def _price(problem: Problem, index: int) -> float:
    """Multiplications that bounding one unit takes, at most."""
    return 2.0 * sum(a.nnz for a in problem.maps[: index + 1]) + 1.0


def _rule(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    lower: Vector,
    upper: Vector,
    clock: Clock,
) -> int:
    """Tighten some units of a layer while there is time; how many were."""
    room = CHUNK_DOUBLES // (2 * max(problem.network.widths))
    step = max(1, min(room, int(WORK / _price(problem, index))))
    for start in range(0, len(units), step):
        if clock.expired():
            return start
        some = units[start : start + step]
        ones = np.ones(len(some))
        top = linear_upper(problem, bounds, index, np.tile(some, 2), np.concatenate([ones, -ones]))
        upper[some] = np.minimum(upper[some], top[: len(some)])
        lower[some] = np.maximum(lower[some], -top[len(some) :])
    return len(units)


def _programmes(
    problem: Problem,
    bounds: Bounds,
    units: NDArray[np.intp],
    lower: Vector,
    upper: Vector,
    clock: Clock,
) -> None:
    """Tighten units of the first layer over a polytope; a solver's multipliers are only used."""
    model = relaxation(problem, bounds, 0)
    for unit in units.tolist():
        for sign, ends in ((1.0, upper), (-1.0, lower)):
            if clock.expired():
                return
            best = model.maximize(unit, sign, clock.left_or_none())
            if best is not None:
                one, way = np.array([unit]), np.array([sign])
                top = linear_upper(problem, bounds, 0, one, way, best.slopes)[0]
                ends[unit] = sign * min(sign * ends[unit], top)

"""Which units can change sign over a domain: cheap bounds first, dear ones for what is left."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Domain
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.intervals import interval_bounds
from relunorm.stability.linear import linear_upper
from relunorm.stability.problem import Bounds, Problem
from relunorm.stability.reach import reach_of
from relunorm.stability.result import LayerStability, Stability
from relunorm.stability.witness import Witnesses

#: Called with (layer index, layers, units still open in it, what is being tried).
Progress = Callable[[int, int, int, str], None]


def stability(
    network: Network,
    domain: Domain,
    *,
    time_limit: float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    random_state: int = 0,
    milp: bool = True,
) -> Stability:
    """Decide for every unit whether it is dead, always active or unstable over the domain.

    >>> from relunorm import Box
    >>> net = Network.from_weights([[[1.0], [1.0], [1.0]], [[1.0] * 3]], [[1.0, 0.0, -1.0], [0.0]])
    >>> stability(net, Box([-1.0], [1.0])).layers[0].verdict.tolist()
    ['active', 'unstable', 'dead']
    """
    domain.check_dimension(network.input_size)
    began = time.perf_counter()
    rng = np.random.default_rng(random_state)
    problem = Problem(network, reach_of(domain))
    bounds, witnesses = Bounds(problem), Witnesses(problem)
    witnesses.start(512, rng)
    layers: list[LayerStability] = []
    for index, layer in enumerate(network.layers):
        method = np.full(layer.width, "interval", dtype="<U8")
        lower, upper = interval_bounds(problem, bounds, index)
        if index or problem.reach.rows:
            lower, upper = _tighten(problem, bounds, index, lower, upper, method)
        bounds.append(lower, upper)
        if not layer.has_units:
            continue
        units, signs = _open_sides(bounds, witnesses, index)
        witnesses.climb(index, units, signs, 8, rng)
        layers.append(_verdicts(problem, bounds, witnesses, index, method))
        if progress is not None:
            progress(index, len(network.layers), layers[-1].counts["undecided"], "bounds")
    return Stability(
        tuple(layers), repr(domain), time.perf_counter() - began, True, random_state
    )


def _tighten(
    problem: Problem,
    bounds: Bounds,
    index: int,
    lower: Vector,
    upper: Vector,
    method: NDArray[np.str_],
) -> tuple[Vector, Vector]:
    rows = np.flatnonzero((lower < 0) & (upper > 0))
    high = linear_upper(problem, bounds, index, rows, np.ones(len(rows)))
    low = -linear_upper(problem, bounds, index, rows, -np.ones(len(rows)))
    lower[rows], upper[rows] = np.maximum(lower[rows], low), np.minimum(upper[rows], high)
    method[rows[(lower[rows] >= 0) | (upper[rows] <= 0)]] = "linear"
    return lower, upper


def _open_sides(
    bounds: Bounds, witnesses: Witnesses, index: int
) -> tuple[NDArray[np.intp], Vector]:
    """Sides that neither a bound excludes nor a witness shows, of units not already decided."""
    lower, upper = bounds.lower[index], bounds.upper[index]
    free = (lower < 0) & (upper > 0)
    up = np.flatnonzero(free & ~(witnesses.largest[index] > 0))
    down = np.flatnonzero(free & ~(witnesses.smallest[index] < 0))
    return np.concatenate([up, down]), np.repeat([1.0, -1.0], [len(up), len(down)])


def _verdicts(
    problem: Problem,
    bounds: Bounds,
    witnesses: Witnesses,
    index: int,
    method: NDArray[np.str_],
) -> LayerStability:
    layer, kink = problem.network.layers[index], problem.kinks[index]
    lower, upper = bounds.lower[index], bounds.upper[index]
    dead, active = upper <= 0, lower >= 0
    if kink.step:
        dead = dead if kink.at_zero == 0.0 else upper < 0
        active = active if kink.at_zero == 1.0 else lower > 0
    largest, smallest = witnesses.largest[index], witnesses.smallest[index]
    unstable = (largest > 0) & (smallest < 0)
    verdict = np.select(
        [dead, active, unstable], ["dead", "active", "unstable"], default="undecided"
    )
    method = np.where(dead | active, method, np.where(unstable, "witness", "none"))
    margin = np.select(
        [dead, active, unstable], [-upper, lower, np.minimum(largest, -smallest)], default=0.0
    )
    return LayerStability(
        index,
        layer.name,
        str(layer.activation),
        lower,
        upper,
        verdict,
        method,
        margin,
        _points(witnesses, witnesses.at_largest[index], largest > 0),
        _points(witnesses, witnesses.at_smallest[index], smallest < 0),
    )


def _points(
    witnesses: Witnesses, at: NDArray[np.intp], found: NDArray[np.bool_]
) -> NDArray[np.float64]:
    return np.where(found[:, None], witnesses.points[at], np.nan)

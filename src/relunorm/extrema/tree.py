"""The sign tree on one box: exact when it finishes, an upper bound from its open nodes when not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Teller
from relunorm.domain import Ball, Box
from relunorm.domain.base import lengths
from relunorm.extrema import cells
from relunorm.extrema.problem import Search
from relunorm.extrema.relaxation import UnitBounds, output_bound, unit_bounds
from relunorm.extrema.slack import dropped
from relunorm.extrema.window import Window, bounded
from relunorm.network import Network
from relunorm.regions.tree_state import FAILURES, FRAMES, STARTED, State, is_cut_off, new_state

#: Nodes between two looks at the clock.
SLICE = 100


def compile_kernels(tell: Teller) -> None:
    """Compile the search (or load it from the cache), so that no time limit pays for it."""
    tiny = Network.from_weights([[[1.0], [-1.0]], [[-1.0, -1.0]]])  # its bound leaves a gap
    tell.compile("the search of cells", lambda: search_cells(Search(tiny, Box.cube(1)), np.inf))


def search_cells(search: Search, seconds: float) -> bool:
    """Try the sign tree on the whole domain; True when it settled the search."""
    if isinstance(search.domain, Ball):
        return False
    box = search.domain.bounding_box
    lo, hi = box.lo[None], box.hi[None]
    clock = search.clock.part(seconds)
    bounds = unit_bounds(search.network, lo, hi, search.domain, clock=clock)
    upper, form, _ = output_bound(search.network, bounds, lo, hi)
    search.offer(np.where(form[:, 0] > 0, hi, lo))
    search.upper = max(search.lower, float(upper[0, 0]))
    if search.upper <= search.floor:
        return True
    window = bounded(search.network, search.domain)
    with clock.watch() as stop:
        solved, value = solve_box(search, window, box.lo, box.hi, bounds, search.upper, None, stop)
    search.upper = max(search.lower, min(search.upper, value))
    return solved or search.decided()


def solve_box(
    search: Search,
    window: Window,
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    bounds: UnitBounds,
    upper: float,
    budget: int | None,
    stop: NDArray[np.uint8],
) -> tuple[bool, float]:
    """Search the cells of a box: whether it finished, and the upper bound that holds on the box.

    Args:
        window: the coordinates of the whole domain.
        bounds: pre-activation bounds on this box.
        upper: an upper bound that already holds.
        budget: nodes to spend, None for as many as there is time for.
        stop: of `Clock.watch`.
    """
    low, high = (lo - window.shift) / window.scale, (hi - window.shift) / window.scale
    witness = (low + high) / 2
    if isinstance(search.domain, Ball):
        nearest = np.clip(search.domain.center, lo, hi)
        distance = float(lengths((nearest - search.domain.center)[None])[0])
        outside = distance > search.domain.reach * (1 + 1e-12)
        return outside, -np.inf if outside else upper
    if len(window.rhs):
        depth, witness = _deepest(window, low, high)
        if depth < 0:
            outside = depth < -1e-9
            return outside, -np.inf if outside else upper
    state = new_state(window.net, low, high, window.rows, window.rhs, witness[None], stop=stop)
    return _run(search, window, state, bounds, upper, budget)


def _deepest(
    window: Window, lo: NDArray[np.float64], hi: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """The point of the box deepest inside the polytope's half-spaces, and its depth."""
    from scipy.optimize import linprog

    size = len(lo)
    found = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.column_stack([window.rows, np.ones(len(window.rhs))]),
        b_ub=window.rhs,
        bounds=[*zip(lo, hi, strict=True), (None, 1.0)],
    )
    if found.status != 0:
        return -1e-12, (lo + hi) / 2  # not settled: the caller cuts the box
    return float(found.x[-1]), np.asarray(found.x[:-1])


def _run(
    search: Search,
    window: Window,
    state: State,
    bounds: UnitBounds,
    upper: float,
    budget: int | None,
) -> tuple[bool, float]:
    units, dimension = int(window.net.shape[2]), int(window.net.shape[0])
    lb = np.concatenate([*(a[0] for a in bounds.lows), np.zeros(0)])
    ub = np.concatenate([*(a[0] for a in bounds.highs), np.zeros(0)])
    kept = np.full(units + 1, upper)
    record, point = np.zeros(cells.RECORD), np.zeros(dimension)
    record[cells.CEILING] = -np.inf
    scratch = np.zeros(units), np.zeros(dimension)
    finished = False
    while not finished:
        record[cells.BEST], record[cells.IMPROVED] = search.lower, 0.0
        record[cells.FLOOR], record[cells.SLACK] = search.floor, search.slack
        record[cells.TARGET] = search.target if search.decide else np.inf
        left = SLICE if budget is None else budget - int(record[cells.NODES])
        step = min(SLICE, left)
        finished = bool(
            cells.search(window.net, state, lb, ub, kept, record, point, *scratch, step)
        )
        if record[cells.IMPROVED]:
            search.offer((window.scale * point + window.shift)[None])
        spent = budget is not None and record[cells.NODES] >= budget
        if spent or search.decided() or state.work.stop[0] or is_cut_off(state):
            break
    search.nodes += int(record[cells.NODES])
    if state.at[FAILURES] or not state.at[STARTED]:
        return False, upper
    left = float(kept[: int(state.at[FRAMES])].max(initial=-np.inf))
    hidden = dropped(search.network, state.thin)
    search.hidden = max(search.hidden, hidden)
    return finished, max(left, float(record[cells.CEILING])) + hidden

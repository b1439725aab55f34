"""The three engines as searches that stop now and then and can part with work (`work.Work`).

On processes, here or on a cluster, a search divides into independent parts (`work.divided`) that
the network and the domain alone fix. So nothing but these travels: every task divides the search
again, which is cheap, and runs its share of the parts. Put together in their order, the answers are
what one process would have found.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import INTERRUPTED, NO_LIMIT, TIME_LIMIT, Clock, Teller
from relunorm.domain import Box, Domain
from relunorm.network import Network
from relunorm.regions.kernels.pack import Packed
from relunorm.regions.search.window import Window, open_window
from relunorm.regions.search.work import Batch, Budget, CellLimitError, Work, divided, run
from relunorm.sweep.backends import Placement, ambient_jobs
from relunorm.sweep.tasks import WorkerDiedError, spread


def search(
    method: str, network: Network, window: Window, workers: int, budget: Budget
) -> list[Batch]:
    """Every region in the window (unless the budget ends), by one engine."""
    if budget.is_watched:
        compile_engine(method, budget.tell)
    net = window.pack(network, by_columns=method != "tree")
    if not network.layers:
        return [_single(window, method)]
    budget.weights = max(len(net.weights), 1)
    with budget.clock.watch() as stop:
        return run(_started(method, net, window, stop), workers, budget)


def parts(
    method: str, network: Network, window: Window, count: int, stop: NDArray[np.uint8]
) -> list[Work]:
    """A search in about ``count`` parts; with the same arguments, the same parts.

    Args:
        stop: of `Clock.watch`; where it was set meanwhile, the parts are not to be used.
    """
    net = window.pack(network, by_columns=method != "tree")
    return divided(_started(method, net, window, stop), count)


def compile_engine(method: str, tell: Teller) -> None:
    """Compile an engine, or load it, by a search in a tiny network."""

    def tiny() -> None:
        dimension = {"polygons": 2, "cells": 3, "tree": 1}[method]
        net = Network.from_weights([np.eye(dimension), np.ones((1, dimension))])
        search(method, net, open_window(net, Box.cube(dimension)), 1, Budget(NO_LIMIT))

    tell.compile(f"the search for regions by {method}", tiny)


def _started(method: str, net: Packed, window: Window, stop: NDArray[np.uint8]) -> Work:
    engine = {"polygons": PolygonWork, "cells": CellWork, "tree": TreeWork}[method]
    return engine.start(net, window, stop)


def _single(window: Window, method: str) -> Batch:
    """A network without hidden units: one region, the domain."""
    found = Batch(np.zeros((1, 0), np.uint8), window.witnesses[:1])
    if method != "polygons":
        return found
    corners = window.corners
    return found._replace(corners=corners, ptr=np.array([0, len(corners)]))


def _used(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The first entries of a buffer; it is let go where most of it is empty."""
    return array[:count] if 2 * count >= len(array) else array[:count].copy()


def _buffers(net: Packed, size: int, pattern: int) -> tuple[Any, Any]:
    """Room for patterns and points."""
    return np.empty((size, pattern), np.uint8), np.empty((size, int(net.shape[0])))


class PolygonWork(Work):
    """`polygons`: two coordinates."""

    @classmethod
    def start(cls, net: Packed, window: Window, stop: NDArray[np.uint8]) -> Work:
        from relunorm.regions.kernels import polygons

        return cls(polygons, net, polygons.new_search(net, window.corners), stop)

    def _next(self, size: int) -> Batch | None:
        engine, net = self._engine, self._net
        out = engine.new_faces(self._search, size)
        found, status = engine.run(net, self._search, out, self._stop)
        if status == engine.GROW:
            self._search = engine.grown(self._search)
        if not found:
            return None
        ptr = out.ptr[: found + 1]
        bits, points = _used(out.bits, found), _used(out.points, found)
        return Batch(bits, points, _used(out.corners, int(ptr[-1])), ptr)

    def _waiting(self) -> NDArray[np.int64]:
        engine, search = self._engine, self._search
        return search.pieces.entries[: search.at[engine.TOP], engine.DEPTH]

    def hidden(self) -> int:
        return int(self._search.pieces.hidden[0])


class CellWork(Work):
    """`cells`: three to six coordinates."""

    @classmethod
    def start(cls, net: Packed, window: Window, stop: NDArray[np.uint8]) -> Work:
        from relunorm.regions.kernels import cells
        from relunorm.regions.kernels.corners import box_corners, clip_all

        corners, walls = box_corners(window.lo, window.hi)
        if len(window.rhs):
            corners, walls = clip_all(corners, walls, window.rows, window.rhs, 1e-13)
        return cls(cells, net, cells.new_search(net, corners, walls), stop)

    def _next(self, size: int) -> Batch | None:
        engine, net = self._engine, self._net
        patterns, points = _buffers(net, size, int(net.shape[2]))
        found, status = engine.run(net, self._search, patterns, points, self._stop)
        if status == engine.GROW:
            self._search = engine.grown(self._search)
        elif status == engine.TOO_MANY_WALLS:
            raise CellLimitError("a cell has more than 64 walls; use method='tree'")
        if not found:
            return None
        packed = np.packbits(patterns[:found], axis=1)
        return Batch(packed, _used(points, found))

    def _waiting(self) -> NDArray[np.int64]:
        return self._search.entries[: self._search.at[0], self._engine.DEPTH]

    def hidden(self) -> int:
        return int(self._search.at[1])


class TreeWork(Work):
    """`tree`: any number of coordinates."""

    @classmethod
    def start(cls, net: Packed, window: Window, stop: NDArray[np.uint8]) -> Work:
        from relunorm.regions.kernels import tree_state

        w = window
        state = tree_state.new_state(net, w.lo, w.hi, w.rows, w.rhs, w.witnesses, stop=stop)
        return cls(tree_state, net, state, stop)

    def _next(self, size: int) -> Batch | None:
        from relunorm.regions.kernels.tree import run

        buffers = _buffers(self._net, size, (int(self._net.shape[2]) + 7) // 8)
        found = run(self._net, self._search, *buffers)
        return Batch(*(_used(array, found) for array in buffers)) if found else None

    def _waiting(self) -> NDArray[np.int64]:
        engine, at, frames = self._engine, self._search.at, self._search.frames
        if not at[engine.STARTED]:
            return np.zeros(1, np.int64)
        depths = frames[: at[engine.FRAMES], 4]
        # where the time was up on the way to a leaf, that leaf is lost
        return np.append(depths, at[engine.DEPTH]) if at[engine.CUT_OFF] else depths

    def hidden(self) -> int:
        return int(self._search.at[self._engine.HIDDEN])

    def failures(self) -> int:
        """Linear programmes that did not converge."""
        return int(self._search.at[self._engine.FAILURES])


#: Parts of a search, whatever the backend and its workers: the same parts, the same bits.
DIVISION = 64

#: Tasks a worker gets, on average: few, since each divides the search again.
TASKS = 4


@dataclass(frozen=True, eq=False)
class Share:
    """What a task found."""

    batches: dict[int, list[Batch]] = field(default_factory=dict)
    failures: int = 0
    hidden: int = 0
    stopped: bool = False
    beyond_cells: str = ""


@dataclass(frozen=True, eq=False)
class Searcher:
    """A search, ready to travel; called with the jobs to run.

    Attributes:
        clock: when to stop. Clocks of other machines should agree.
    """

    network: Network
    domain: Domain | None
    method: str
    max_regions: int | None
    clock: Clock

    def __call__(self, jobs: Sequence[int]) -> Share:
        """Run some of the jobs."""
        with self.clock.watch() as stop:
            return self._run(jobs, stop)

    def _run(self, jobs: Sequence[int], stop: NDArray[np.uint8]) -> Share:
        if self.clock.expired():
            return Share(stopped=True)
        window = open_window(self.network, self.domain)
        budget = Budget(self.clock, self.max_regions)
        found: dict[int, list[Batch]] = {}
        try:
            every = parts(self.method, self.network, window, DIVISION, stop)
            if self.clock.expired():  # perhaps on the way: these are not everybody's parts
                return Share(stopped=True)
            for job in jobs:
                part = every[job]
                found[job] = part.found
                budget.book(sum(len(b.points) for b in part.found), lambda: 0.0)
                if part.more() and not budget.spent:
                    found[job] = run(part, 1, budget)
                if budget.spent:
                    return Share(found, budget.failures, budget.hidden, stopped=True)
        except CellLimitError as error:
            return Share(beyond_cells=str(error))
        return Share(found, budget.failures, budget.hidden)


def search_far(
    network: Network, domain: Domain | None, method: str, budget: Budget, place: Placement
) -> list[Batch]:
    """Every batch, in the order of one search."""
    with place.entered():
        window = open_window(network, domain)
        with budget.clock.watch() as stop:
            jobs = len(parts(method, network, window, DIVISION, stop))
        searcher = Searcher(network, domain, method, budget.max_regions, budget.clock)
        return _gather(searcher, jobs, budget)


def _gather(searcher: Searcher, jobs: int, budget: Budget) -> list[Batch]:
    kept: dict[int, list[Batch]] = {}
    # Neighbouring jobs are of similar size, so every task takes one here and one there.
    count = min(jobs, TASKS * ambient_jobs())
    tasks = [range(first, jobs, count) for first in range(count)]
    try:
        with closing(spread(searcher, tasks, go_on=lambda: not budget.reason)) as shares:
            for _, share in shares:
                _book(share, kept, jobs, budget)
    except KeyboardInterrupt:
        budget.stop(INTERRUPTED)
    return [batch for job in sorted(kept) for batch in kept[job]]


def _book(
    share: Share | WorkerDiedError, kept: dict[int, list[Batch]], jobs: int, budget: Budget
) -> None:
    if isinstance(share, WorkerDiedError):
        budget.stop("a worker process died")
        return
    if share.beyond_cells:
        raise CellLimitError(share.beyond_cells)
    kept.update(share.batches)
    budget.failures += share.failures
    budget.hidden += share.hidden
    found = sum(len(batch.points) for some in share.batches.values() for batch in some)
    budget.book(found, lambda: len(kept) / jobs)
    if share.stopped and budget.clock.limited:
        budget.stop(TIME_LIMIT)

"""All linear regions of a network on a domain.

A region is a maximal set of constant hidden pattern with non-empty interior (docs/regions.md lists
the other definitions in use). Two inputs: polygons are clipped layer by layer (`polygons`). Three
and four: cells with their corners are (`cells`). Otherwise the sign tree (`tree`) with small
linear programmes. All are exhaustive; which one ran is in the result.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Ball, Domain
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.regions.limits import CellLimitError
from relunorm.regions.pack import Packed
from relunorm.regions.result import Regions
from relunorm.regions.window import Window, open_window
from relunorm.sweep.ambient import ambient_jobs

#: Called with the regions found so far, the seconds spent and the share of the work done.
Progress = Callable[[int, float, float], None]

#: Output forms are stored with the regions up to this many numbers each, else computed on demand.
STORED_MAP = 96
#: Polygons clipped by a layer at a time; bounds memory and the time between looks at the clock.
FACES = 2048
#: Subtrees or groups of faces a worker gets, on average.
SHARES = 16


class Batch(NamedTuple):
    """Some regions, in window coordinates."""

    packed: NDArray[np.uint8]
    points: NDArray[np.float64]
    maps: NDArray[np.float64]
    corners: NDArray[np.float64] | None = None
    ptr: NDArray[np.int64] | None = None  # the corners of region i: ptr[i] to ptr[i + 1]


Job = Callable[[], Iterator[Batch]]


def regions(
    network: Network,
    domain: Domain | None,
    *,
    max_regions: int | None = None,
    time_limit: float | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
    method: str = "auto",
    progress: Progress | None = None,
) -> Regions:
    """List every linear region of the network on a domain, exactly.

    Args:
        network: relu or leaky units, any skips.
        domain: a box, polytope or ball, or None for all of R^d. For a ball, the regions of the
            bounding polytope whose interior meets the open ball; their polytopes are not cut by
            the sphere.
        max_regions: stop once so many are found (the result then says it is partial).
        time_limit: seconds after which to stop, likewise.
        workers: threads; 1 by default, -1 for all cores. The result does not depend on it.
        backend: ``loky``, ``dask`` or ``ray``: subtrees go to ``workers`` processes (all cores if
            omitted) instead of threads; so they do inside a ``joblib.parallel_config`` if neither
            is given. For searches of many seconds: starting processes takes some. Same result.
        scheduler: address of a running Dask scheduler or Ray cluster.
        method: ``auto``, or one of ``polygons`` (two inputs), ``cells`` (up to six), ``tree``.
        progress: called now and then with regions found, seconds spent and the share of the work
            done (in equal parts of the tree, so an estimate).

    Returns:
        the regions, complete unless a limit or Ctrl-C ended the search.

    Exactness: see `tree`. Cost: about 0.5 to 10 microseconds a region.

    >>> from relunorm import Box, Network
    >>> net = Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]])
    >>> found = regions(net, Box.cube(2))
    >>> len(found), found.patterns.tolist()
    (4, [[True, True], [True, False], [False, True], [False, False]])
    """
    started = time.perf_counter()
    network = network.folded()
    window = open_window(network, domain)
    far = backend is not None or scheduler is not None or (workers is None and ambient_jobs() > 1)
    count = _workers(workers)
    chosen = _method(method, window)
    if chosen == "tree":
        _check_memory(window.dimension, network.units)
    net = window.pack(network)
    budget = Budget(started, max_regions, time_limit, progress)

    def search() -> list[list[Batch]]:
        if far:
            from relunorm.regions.distributed import search_far

            return search_far(network, domain, chosen, budget, backend, scheduler, workers)
        return _search(chosen, net, window, count, budget)

    try:
        batches = search()
    except CellLimitError:
        if method != "auto":
            raise
        chosen, budget = "tree", Budget(started, max_regions, time_limit, progress)
        batches = search()
    result = _assemble(network, domain, window, net, batches, budget, chosen)
    if isinstance(domain, Ball):
        result = result.meeting_ball()
    return result


def _check_memory(dimension: int, units: int) -> None:
    from relunorm.regions.tree import check_memory

    check_memory(dimension, units)


def _search(
    method: str, net: Packed, window: Window, workers: int, budget: Budget
) -> list[list[Batch]]:
    return _collect(divided(method, net, window, workers, budget), workers, budget)


def divided(method: str, net: Packed, window: Window, workers: int, budget: Budget) -> list[Job]:
    """The search as a list of independent jobs; with the same arguments, the same list."""
    if int(net.shape[2]) == 0:
        return [lambda: iter([_single(net, window)])]
    make = {"polygons": _polygon_jobs, "tree": _tree_jobs, "cells": _cell_jobs}[method]
    return make(net, window, workers, budget)


def _method(method: str, window: Window) -> str:
    allowed = {"tree": True, "cells": window.dimension <= 6, "polygons": window.dimension == 2}
    allowed["polygons"] &= not window.homogeneous
    if method == "auto":
        if allowed["polygons"]:
            return "polygons"
        cells = window.dimension in (3, 4) and not window.homogeneous and len(window.rhs) <= 24
        return "cells" if cells else "tree"
    if not allowed.get(method, False):
        fitting = ", ".join(name for name, fits in allowed.items() if fits)
        raise InvalidInputError(
            f"method {method!r} does not fit {window.dimension} window coordinates; "
            f"use auto, or one of {fitting}"
        )
    return method


def _workers(workers: int | None) -> int:
    if workers is None:
        return 1
    if workers == -1:
        return os.cpu_count() or 1
    if workers < 1:
        raise InvalidInputError(f"workers is {workers}; expected at least 1, or -1 for all cores")
    return workers


class Budget:
    """What may be spent, what was found, and why the search ended."""

    def __init__(
        self,
        started: float,
        max_regions: int | None,
        time_limit: float | None,
        progress: Progress | None,
    ):
        for name, value in (("max_regions", max_regions), ("time_limit", time_limit)):
            if value is not None and not value > 0:
                raise InvalidInputError(f"{name} is {value}; expected a positive number or None")
        self.started, self.progress = started, progress
        self.max_regions, self.time_limit = max_regions, time_limit
        self.found, self.reason = 0, ""
        self.jobs, self.jobs_done = 1, 0
        self.failures = 0
        self._lock = threading.Lock()
        self._told = started

    def spend(self, count: int) -> bool:
        """Book regions found; whether the search may go on."""
        with self._lock:
            self.found += count
            now = time.perf_counter()
            if self.progress is not None and now - self._told > 0.1:
                self._told = now
                self.progress(self.found, now - self.started, self.jobs_done / self.jobs)
            if self.max_regions is not None and self.found > self.max_regions:
                self.stop(f"max_regions = {self.max_regions}")
            elif self.time_limit is not None and now - self.started > self.time_limit:
                self.stop(f"time_limit = {self.time_limit:g} s")
            return not self.reason

    def stop(self, reason: str) -> None:
        self.reason = self.reason or reason

    @property
    def elapsed(self) -> float:
        """Seconds spent."""
        return time.perf_counter() - self.started

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for reports or for a time limit to act."""
        return self.time_limit is not None or self.progress is not None

    def parts(self, workers: int) -> int:
        """Into how many jobs to divide the work."""
        return SHARES * workers if workers > 1 else (4 * SHARES if self.progress else 1)

    @property
    def batch(self) -> int:
        """How many regions to look for between two looks at the clock."""
        size = 2048 if self.is_watched else 16384
        return size if self.max_regions is None else min(size, self.max_regions + 1)


def _collect(jobs: list[Job], workers: int, budget: Budget) -> list[list[Batch]]:
    """Run the jobs, in order or on threads (the kernels release the interpreter lock)."""
    kept: list[list[Batch]] = [[] for _ in jobs]
    budget.jobs = len(jobs)

    def work(index: int) -> None:
        if budget.reason:
            return
        for batch in jobs[index]():
            kept[index].append(batch)
            if not budget.spend(len(batch.points)):
                return
        budget.jobs_done += 1

    if workers == 1 or len(jobs) == 1:
        try:
            for index in range(len(jobs)):
                work(index)
        except KeyboardInterrupt:
            budget.stop("interrupted")
        return kept
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, index) for index in range(len(jobs))]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            budget.stop("interrupted")
    return kept


def _single(net: Packed, window: Window) -> Batch:
    """A network without hidden units: one region, the domain."""
    k, outputs = window.dimension, int(net.shape[3])
    forms = np.zeros((outputs, k + 1))
    if len(net.weights):
        forms[:, :k] = net.weights.reshape(outputs, k)
    forms[:, k] = net.bias
    return Batch(np.zeros((1, 0), np.uint8), window.witnesses[:1], forms.reshape(1, -1))


def _tree_jobs(net: Packed, window: Window, workers: int, budget: Budget) -> list[Job]:
    from relunorm.regions import tree

    root = tree.new_state(net, window.lo, window.hi, window.rows, window.rhs, window.witnesses)
    parts = budget.parts(workers)
    if parts == 1:
        return [lambda: _run_tree(net, root, budget)]
    units, stop = int(net.shape[2]), 4
    while True:
        stop = min(stop, units)
        roots = []
        state = tree.subtree(net, root, 0)
        while tree.advance(net, state, stop):
            roots.append(tree.subtree(net, state, stop))
        if len(roots) >= parts or stop == units:
            return [lambda state=state: _run_tree(net, state, budget) for state in roots]
        stop += 2


def _run_tree(net: Packed, state, budget: Budget) -> Iterator[Batch]:  # type: ignore[no-untyped-def]
    from relunorm.regions import tree

    d, _, units, outputs = (int(n) for n in net.shape)
    capacity = budget.batch
    numbers = outputs * (d + 1)
    patterns = np.empty((capacity, (units + 7) // 8), np.uint8)
    points = np.empty((capacity, d))
    maps = np.empty((capacity if numbers <= STORED_MAP else 0, numbers))
    while found := tree.run(net, state, patterns, points, maps):
        yield Batch(patterns[:found].copy(), points[:found].copy(), maps[:found].copy())
    budget.failures += int(state.at[tree.FAILURES])


def _cell_jobs(net: Packed, window: Window, workers: int, budget: Budget) -> list[Job]:
    from relunorm.regions import cells
    from relunorm.regions.polygons import transposed

    weights_t = transposed(net)
    cell = cells.clip_all(*cells.box_corners(window.lo, window.hi), window.rows, window.rhs, 1e-13)
    root = cells.new_search(net, *cell)
    parts = budget.parts(workers)
    searches = cells.divide(net, weights_t, root, parts) if parts > 1 else [root]
    return [lambda one=one: _run_cells(net, weights_t, one, budget) for one in searches]


def _run_cells(net: Packed, weights_t, search, budget: Budget) -> Iterator[Batch]:  # type: ignore[no-untyped-def]
    from relunorm.regions import cells

    d, _, units, outputs = (int(n) for n in net.shape)
    capacity, numbers = budget.batch, outputs * (d + 1)
    patterns = np.empty((capacity, units), np.uint8)
    points = np.empty((capacity, d))
    maps = np.empty((capacity if numbers <= STORED_MAP else 0, numbers))
    while True:
        found, status = cells.run(net, weights_t, search, patterns, points, maps)
        if found:
            packed = np.packbits(patterns[:found], axis=1)
            yield Batch(packed, points[:found].copy(), maps[:found].copy())
        if status == cells.GROW:
            search = cells.grown(search)
        elif status == cells.TOO_MANY_WALLS:
            raise CellLimitError("a cell has more than 64 walls; use method='tree'")
        elif not found:
            return


def _polygon_jobs(net: Packed, window: Window, workers: int, budget: Budget) -> list[Job]:
    from relunorm.regions import polygons

    layers = int(net.shape[1])
    weights_t = polygons.transposed(net)
    domain = polygons.one_face(net, _outline(window))
    limit = 64 * workers if workers > 1 or budget.is_watched else 4096
    faces, layer = polygons.refine(net, weights_t, domain, 0, limit)
    count = len(faces.bits)
    shares = 1 if layer == layers else max(SHARES * workers, count // 1024)
    shares = min(shares, count)
    cuts = [count * k // shares for k in range(shares + 1)]

    def run(begin: int, end: int) -> Iterator[Batch]:
        waiting = [(polygons.part(faces, begin, end) if end - begin < count else faces, layer)]
        while waiting:
            some, at = waiting.pop()
            if at < layers:
                some, at = polygons.refine(net, weights_t, some, at, FACES)
            if at == layers:
                yield Batch(some.bits, some.points, some.maps, some.corners, some.ptr)
                continue
            starts = range(0, len(some.bits), FACES // 4)
            parts = [polygons.part(some, k, min(k + FACES // 4, len(some.bits))) for k in starts]
            waiting.extend((part, at) for part in reversed(parts))

    return [lambda a=a, b=b: run(a, b) for a, b in itertools.pairwise(cuts)]


def _outline(window: Window) -> NDArray[np.float64]:
    """The corners of a two-dimensional window, in order."""
    (x0, y0), (x1, y1) = window.lo, window.hi
    corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
    for row, bound in zip(window.rows, window.rhs, strict=True):
        value = corners @ row - bound
        kept = []
        for i in range(len(corners)):
            j = (i + 1) % len(corners)
            if value[i] <= 1e-13:
                kept.append(corners[i])
            if min(value[i], value[j]) < -1e-13 and max(value[i], value[j]) > 1e-13:
                share = value[i] / (value[i] - value[j])
                kept.append(corners[i] + share * (corners[j] - corners[i]))
        corners = np.array(kept)
    return corners


def _assemble(
    network: Network,
    domain: Domain | None,
    window: Window,
    net: Packed,
    batches: list[list[Batch]],
    budget: Budget,
    method: str,
) -> Regions:
    flat = [batch for group in batches for batch in group]
    k, outputs = window.dimension, int(net.shape[3])
    if not flat:
        flat = [
            Batch(
                np.zeros((0, (int(net.shape[2]) + 7) // 8), np.uint8),
                np.zeros((0, k)),
                np.zeros((0, outputs * (k + 1))),
            )
        ]
    limit = budget.max_regions
    packed = _join([b.packed for b in flat], limit)
    points = window.points(_join([b.points for b in flat], limit))
    forms = _join([b.maps for b in flat], limit)
    maps = window.maps(forms, outputs) if len(forms) == len(points) else None
    polygons = None
    if flat[0].corners is not None:
        ptr = _join_ptr([b.ptr for b in flat if b.ptr is not None])[: len(points) + 1]
        corners = _join([b.corners for b in flat if b.corners is not None], int(ptr[-1]))
        polygons = window.points(corners), ptr
    if budget.failures:
        budget.stop(f"{budget.failures} linear programmes did not converge")
    return Regions(
        network,
        domain,
        packed,
        points,
        maps,
        polygons,
        complete=not budget.reason,
        reason=budget.reason,
        method=method,
        seconds=time.perf_counter() - budget.started,
    )


def _join(parts, limit):  # type: ignore[no-untyped-def]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole if limit is None or len(whole) <= limit else whole[:limit]


def _join_ptr(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """One list of offsets for arrays put one behind the other."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(int(part[-1]) for part in parts)])
    shifted = [part[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return np.concatenate([*shifted, ends[-1:]]).astype(np.int64)

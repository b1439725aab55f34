"""All linear regions of a network on a domain.

A region is a maximal set of constant hidden pattern with non-empty interior (docs/regions.md lists
the other definitions in use). Two inputs: polygons are clipped layer by layer (`polygons`). Three
and four: cells with their corners are (`cells`). Otherwise the sign tree (`tree`) with small
linear programmes. All are exhaustive; which one ran is in the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.certain import enclosed
from relunorm.clock import Clock, Listener
from relunorm.errors import InvalidInputError
from relunorm.io.border import Model, Place, accepts
from relunorm.network import Network
from relunorm.regions.balance import balanced, folded
from relunorm.regions.partition import Regions
from relunorm.regions.search.engines import search
from relunorm.regions.search.window import Window, open_window
from relunorm.regions.search.work import Batch, Budget, CellLimitError
from relunorm.sweep.backends import Placement


@accepts("network", domains=("domain",))
def regions(
    network: Model,
    domain: Place | None = None,
    *,
    max_regions: int | None = None,
    time_limit: float | Clock | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
    method: str = "auto",
    progress: Listener | None = None,
) -> Regions:
    """List every linear region of the network on a domain, exactly.

    Args:
        network: relu or leaky units, any skips.
        domain: a box, polytope or ball, or None (the default) for all of R^d. For a ball, the
            regions of the bounding polytope whose interior meets the open ball; their polytopes
            are not cut by the sphere.
        max_regions: stop once so many are found (the result then says it is partial).
        time_limit: seconds after which to stop, likewise; compiling is not counted.
        workers: threads; 1 by default, -1 for all cores. The result does not depend on it.
        backend: ``loky``, or another of docs/sweeps.md: subtrees go to ``workers`` processes (all
            cores if omitted) instead of threads; so they do inside a ``joblib.parallel_config`` if
            neither is given. For searches of many seconds: starting processes takes some.
            Same result.
        scheduler: address of the backend's running cluster.
        method: ``auto``, or one of ``polygons`` (two inputs), ``cells`` (up to six), ``tree``.
        progress: called now and then with a `Progress`: the share of the work done (in equal parts
            of the tree, so an estimate) and the regions ``found``.

    Returns:
        the regions, complete unless a limit or Ctrl-C ended the search.

    Exactness: see `tree`. Cost: about 0.5 to 10 microseconds a region.

    >>> from relunorm import Box, Network
    >>> net = Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]])
    >>> found = regions(net, Box.cube(2))
    >>> len(found), found.patterns.tolist()
    (4, [[True, True], [True, False], [False, True], [False, False]])
    """
    clock = Clock(time_limit)
    network = folded(network)
    window = open_window(network, domain)
    place = Placement(workers, backend, scheduler)
    chosen = _method(method, window)
    if chosen == "tree":
        from relunorm.regions.kernels.tree_state import check_memory

        check_memory(window.dimension, network.units)
    budget = Budget(clock, max_regions, progress)

    def found() -> list[Batch]:
        if place.far and network.layers:
            from relunorm.regions.search.engines import search_far

            return search_far(network, domain, chosen, budget, place)
        return search(chosen, network, window, place.threads, budget)

    try:
        batches = found()
    except CellLimitError:
        if method != "auto":
            raise
        chosen, budget = "tree", Budget(clock, max_regions, progress)
        batches = found()
    result = _assemble(network, window, batches, budget, chosen)
    if domain is not None and domain.as_ball is not None:
        result = result.meeting_ball()
    return result


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


def _assemble(
    network: Network, window: Window, batches: list[Batch], budget: Budget, method: str
) -> Regions:
    limit = budget.max_regions
    if not batches:
        empty = np.zeros((0, (network.units + 7) // 8), np.uint8), np.zeros((0, window.dimension))
        batches = [Batch(*empty)]
    packed = _join([b.packed for b in batches], limit)
    points = window.points(_join([b.points for b in batches], limit))
    polygons = None
    if batches[0].corners is not None:
        ptr = _ends([b.ptr for b in batches if b.ptr is not None], limit)
        corners = _join([b.corners for b in batches if b.corners is not None], int(ptr[-1]))
        polygons = window.points(corners), ptr
    if budget.failures:
        budget.stop(f"{budget.failures} linear programmes did not converge")
    found = Regions(
        network,
        window.domain,
        packed,
        points,
        polygons,
        complete=not budget.reason,
        reason=budget.reason,
        method=method,
        seconds=budget.clock.elapsed(),
        hidden=budget.hidden,
    )
    return _with_their_points(found) if budget.hidden or method == "tree" else found


def _with_their_points(found: Regions) -> Regions:
    """Without the regions whose point has another pattern for certain.

    Where cells too thin for the search lie side by side, it may take one for its neighbour; and the
    tree's linear programmes keep their rows within a tolerance only.
    """
    network, start, keep = balanced(found.network), 0, np.ones(len(found), bool)
    doubtful = np.flatnonzero((network.pattern(found.points) != found.patterns).any(axis=1))
    pre, off = enclosed(network, found.points[doubtful])
    for layer, z, error in zip(network.layers, pre, off, strict=False):
        if layer.has_units:
            active = found.patterns[doubtful, start : start + layer.width]
            keep[doubtful] &= ~((np.abs(z) > error) & ((z > 0) != active)).any(axis=1)
            start += layer.width
    if keep.all():
        return found
    return replace(found.select(keep), hidden=found.hidden + int((~keep).sum()))


def _ends(parts: list[NDArray[np.int64]], limit: int | None) -> NDArray[np.int64]:
    """Where the corners of each region begin, and where the last ones end."""
    whole = parts[0]
    if len(parts) > 1:
        whole = np.concatenate([[0], np.cumsum(np.concatenate([*map(np.diff, parts)]))])
    return whole if limit is None else whole[: limit + 1]


def _join(parts: list[NDArray[Any]], limit: int | None) -> NDArray[Any]:
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole if limit is None or len(whole) <= limit else whole[:limit]

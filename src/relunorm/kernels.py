"""All compiled loops, compiled ahead of their first use: for images and for the impatient.

What is compiled is kept beside the package, or in the user's cache where that cannot be written, so
one run of `warm_up` serves every later process of the same installation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from relunorm.clock import Clock, Listener, Teller


def warm_up(progress: Listener | None = None) -> dict[str, float]:
    """Compile every kernel that questions about networks need, or load it where that was done.

    Args:
        progress: called with a `Progress` before each group of kernels.

    Returns:
        the CPU seconds each group took: about 15 in all the first time on a machine, one or two
        later on.
    """
    tell = Teller(progress, Clock())
    taken = {}
    for number, (name, run) in enumerate(_GROUPS.items()):
        tell(f"compiling {name}", number, len(_GROUPS))
        start = time.process_time()
        run()
        taken[name] = time.process_time() - start
    return taken


def _search() -> None:
    from relunorm.search.engine import warm_up

    warm_up()


def _replay() -> None:
    from relunorm.search.proofs.replay import warm_up

    warm_up()


def _jacobians() -> None:
    from relunorm.lipschitz.search import climb, proof

    climb.compile_kernels(Teller(None, Clock()))
    proof.compile_kernels()


def _differences() -> None:
    from relunorm.bounds.pairs.condensed.kernel import compile_kernels

    compile_kernels()


def _engine(method: str) -> None:
    from relunorm.regions.search.engines import compile_engine

    compile_engine(method, Teller(None, Clock()))


def _outlines() -> None:
    from relunorm.domain import Box
    from relunorm.network import Network
    from relunorm.regions.enumerate import regions

    tiny = Network.from_weights([np.eye(2), np.ones((1, 2))])
    _ = regions(tiny, Box.cube(2), method="tree").polygons


def _one_region() -> None:
    """The walls and corners of one region, and what lies behind its walls."""
    from relunorm.domain import Box
    from relunorm.network import Network
    from relunorm.regions.region import region_at

    tiny = Network.from_weights([np.array([[1.0, 0.3], [-0.2, 1.0]]), np.ones((1, 2))])
    region = region_at(tiny, np.array([0.1, 0.2]), Box.cube(2))
    region.vertices()
    region.neighbors()
    _ = region.inradius


_GROUPS: dict[str, Callable[[], None]] = {
    "the search": _search,
    "the replay of its proofs": _replay,
    "the search for Jacobians": _jacobians,
    "differences of copies": _differences,
    "regions in the plane": partial(_engine, "polygons"),
    "regions in few dimensions": partial(_engine, "cells"),
    "regions in many dimensions": partial(_engine, "tree"),
    "the walls of a region": _one_region,
    "the corners of many regions": _outlines,
}

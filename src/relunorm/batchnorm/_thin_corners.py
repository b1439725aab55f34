"""Where small cells of a large hyperplane arrangement hide: near corners that almost coincide.

k - 1 hyperplanes in general position meet in a ray. Where a further hyperplane passes close to it
without containing it, the k of them enclose a thin simplicial cone, and the cell in its middle lies
inside that cone or is smaller still. Walks hit such cells about as often as their measure says,
which is never; looking for near misses finds them directly. A search, not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm._cone_cut import ON_PLANE

#: Sets of k - 1 hyperplanes looked at; drawn at random where there are more.
MAX_CORNERS = 50_000
#: Operations between two questions whether the time is up, about (an SVD is some k^3 of them).
CHUNK = 8_000_000


def thin_corners(
    lines: NDArray[np.float64],
    count: int,
    rng: np.random.Generator,
    late: Callable[[], bool],
) -> NDArray[np.float64]:
    """A direction (corners, k) inside each of up to ``count`` thin corners, thinnest first; of the
    corners looked at before it is ``late``.
    """
    n, k = lines.shape
    corners, rays = _rays(lines, _corners(n, k - 1, rng), late)
    near = np.abs(rays @ lines.T)
    near[near < ON_PLANE] = np.inf
    np.put_along_axis(near, corners, np.inf, axis=1)
    closest = near.argmin(axis=1)
    # each corner is met once for every hyperplane in it, k times
    order = np.argsort(near[np.arange(len(near)), closest])[: 2 * k * count]
    order = order[np.isfinite(near[order, closest[order]])]
    sets = np.column_stack([corners[order], closest[order]])
    _, first = np.unique(np.sort(sets, axis=1), axis=0, return_index=True)
    edges, size = _edges(lines, sets[first], rays[order[first]])
    return edges[np.argsort(size)[:count]].mean(axis=1)


def _rays(
    lines: NDArray[np.float64], corners: NDArray[np.int64], late: Callable[[], bool]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The corners that are one ray, and that ray."""
    kept, rays = [], []
    count = min(2000, max(1, CHUNK // lines.shape[1] ** 3))
    for low in range(0, len(corners), count):
        some = corners[low : low + count]
        _, singular, vectors = np.linalg.svd(lines[some])
        proper = singular[:, -1] > 1e-9  # else the k - 1 meet in more than a ray
        kept.append(some[proper])
        rays.append(vectors[proper, -1])
        if late():
            break
    return np.concatenate(kept), np.concatenate(rays)


def _corners(n: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if math.comb(n, size) <= MAX_CORNERS:
        return np.array(list(combinations(range(n), size)))
    return np.argpartition(rng.random((MAX_CORNERS, n)), size, axis=1)[:, :size]


def _edges(
    lines: NDArray[np.float64], sets: NDArray[np.int64], rays: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Unit edges (sets, k, k) of the simplicial cones about the rays, and their determinants."""
    normals = lines[sets]
    regular = np.abs(np.linalg.det(normals)) > 1e-200
    edges = np.linalg.inv(normals[regular]).transpose(0, 2, 1)
    edges /= np.linalg.norm(edges, axis=2, keepdims=True)
    edges *= np.where(np.einsum("sij,sj->si", edges, rays[regular]) < 0, -1.0, 1.0)[:, :, None]
    return edges, np.abs(np.linalg.det(edges))

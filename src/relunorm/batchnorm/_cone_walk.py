"""Cells of a hyperplane arrangement beyond three dimensions: found by walking, measured by rays.

From an inner direction v of a cone, the great circle in direction u (a unit vector across v) leaves
it at the angle theta(u) = min_i atan2(v.a_i, -u.a_i) over the inner normals a_i. Cones are
star-shaped about v, so their measure is the mean over u of the integral of sin^(k-2) up to
theta(u), over the whole from 0 to pi: unbiased at any size of cell, where counting random weights
sees small cells never. The hyperplane through which a ray leaves names a neighbour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

if TYPE_CHECKING:
    from relunorm.batchnorm.cells import CellVolumes

#: Rays per cell while collecting cells.
SCOUTS = 48


def walk(
    lines: NDArray[np.float64], samples: int, max_cells: int, rng: np.random.Generator
) -> CellVolumes:
    """Collect cells from random starts, measure them, and measure the smallest again."""
    from relunorm.batchnorm.cells import CellVolumes, cell_count

    count, k = lines.shape
    total = cell_count(count, k) if _general_position(lines) else None
    found: dict[bytes, tuple[NDArray[np.float64], float]] = {}
    queue: list[NDArray[np.float64]] = list(_unit(rng.standard_normal((16, k))))
    goal = min(max_cells, total or max_cells)
    for rays in (SCOUTS, 8 * SCOUTS):
        if rays > SCOUTS and total is not None and len(found) < goal:
            # small facets are hit seldom: look again, harder
            for v, _ in list(found.values()):
                queue += _exits(lines, v, rays, rng)
        _collect(lines, queue, found, goal, rng)
    signs = np.array([np.frombuffer(key, np.int8) for key in found])
    volumes = np.array([volume for _, volume in found.values()])
    smallest = int(np.argmin(volumes))
    center = list(found.values())[smallest][0]
    shares = _shares(lines, center, samples, rng)[0]
    error = float(shares.std(ddof=1) / np.sqrt(samples))
    return CellVolumes(
        float(shares.mean()), error, "estimate", k, count, signs, volumes, smallest, total
    )


def _collect(
    lines: NDArray[np.float64],
    queue: list[NDArray[np.float64]],
    found: dict[bytes, tuple[NDArray[np.float64], float]],
    goal: int,
    rng: np.random.Generator,
) -> None:
    """Empty the queue into ``found``, adding the cells seen on the way; stop at ``goal``."""
    while queue and len(found) < goal:
        v = queue.pop()
        key = _signs(lines, v).tobytes()
        if key not in found:
            v, volume = _scout(lines, v, rng)
            found[key] = (v, volume)
            # the opposite cone is a cell too
            seen = [-v, *_exits(lines, v, SCOUTS, rng)]
            queue += [w for w in seen if _signs(lines, w).tobytes() not in found]


def _scout(
    lines: NDArray[np.float64], v: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], float]:
    """Move v towards the middle of its cell, and measure the cell from there."""
    for _ in range(3):
        shares, u, theta, _ = _shares(lines, v, SCOUTS, rng)
        middle = v * np.cos(theta / 2)[:, None] + u * np.sin(theta / 2)[:, None]
        v = _unit((middle * shares[:, None]).sum(axis=0))
    return v, float(_shares(lines, v, SCOUTS, rng)[0].mean())


def _exits(
    lines: NDArray[np.float64], v: NDArray[np.float64], rays: int, rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """One direction in each neighbouring cell that rays from v run into."""
    _, u, theta, after = _shares(lines, v, rays, rng)
    beyond = (theta + np.minimum(after, np.pi)) / 2
    points = v * np.cos(beyond)[:, None] + u * np.sin(beyond)[:, None]
    keys = np.where(points @ lines.T > 0, 1, -1).astype(np.int8)
    _, first = np.unique(keys, axis=0, return_index=True)
    return list(points[first])


def _shares(
    lines: NDArray[np.float64], v: NDArray[np.float64], samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Per ray: its share of the sphere, direction, the angle where it leaves, and the next
    crossing.
    """
    k = lines.shape[1]
    inner = lines * np.sign(lines @ v)[:, None]
    u = rng.standard_normal((samples, k))
    u = _unit(u - np.outer(u @ v, v))
    exits = np.arctan2((inner @ v)[None, :], -(u @ inner.T))
    nearest = np.partition(exits, 1, axis=1)
    theta, after = nearest[:, 0], nearest[:, 1]
    return _cap(theta, k), u, theta, after


def _cap(theta: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Share of the sphere S^(k-1) within the angle theta of a point."""
    half = 0.5 * betainc((k - 1) / 2, 0.5, np.sin(theta) ** 2)
    return np.where(theta <= np.pi / 2, half, 1 - half)


def _general_position(lines: NDArray[np.float64]) -> bool:
    """Whether any k normals are independent, checked on all or on 2,000 random k-subsets."""
    from itertools import combinations
    from math import comb

    count, k = lines.shape
    if comb(count, k) <= 2000:
        subsets = np.array(list(combinations(range(count), k)))
    else:
        rng = np.random.default_rng(0)
        subsets = np.argsort(rng.random((2000, count)), axis=1)[:, :k]
    return bool(np.linalg.svd(lines[subsets], compute_uv=False)[:, -1].min() > 1e-12)


def _signs(lines: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.where(lines @ w > 0, 1, -1).astype(np.int8)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

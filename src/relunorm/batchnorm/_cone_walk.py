"""Cells of a hyperplane arrangement that is too large to list: found by walking along rays.

From an inner direction v of a cone, the great circle in direction u (a unit vector across v) leaves
it at the angle theta(u) = min_i atan2(v.a_i, -u.a_i) over the inner normals a_i. The hyperplane
through which a ray leaves names a neighbour. Cones are star-shaped about v, so the mean over u of
the integral of sin^(k-2) up to theta(u), over the whole from 0 to pi, is the cone's measure. For a
thin cone nearly all of that mean comes from a few rays: with the rays shot here it falls short by
orders of magnitude more often than not. It ranks cells, small ones first; it does not measure them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

#: Rays per cell while collecting cells.
SCOUTS = 48


def walk(
    lines: NDArray[np.float64],
    max_cells: int,
    starts: NDArray[np.float64],
    rng: np.random.Generator,
    late: Callable[[], bool],
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Sign patterns and rough measures of up to ``max_cells`` cells, from these starts and random
    ones; at least one, and no more once it is ``late``.
    """
    found: dict[bytes, tuple[NDArray[np.float64], float]] = {}
    anywhere = rng.standard_normal((16, lines.shape[1]))
    _visit(lines, _unit(starts), found, max_cells, rng, late)
    queue = list(_unit(anywhere))
    for rays in (SCOUTS, 8 * SCOUTS):
        if rays > SCOUTS and len(found) < max_cells:
            # small facets are hit seldom: look again, harder
            for v, _ in list(found.values()):
                if late():
                    break
                queue += _exits(lines, v, rays, rng)
        _collect(lines, queue, found, max_cells, rng, late)
    signs = np.array([np.frombuffer(key, np.int8) for key in found])
    return signs, np.array([volume for _, volume in found.values()])


def _visit(
    lines: NDArray[np.float64],
    starts: NDArray[np.float64],
    found: dict[bytes, tuple[NDArray[np.float64], float]],
    goal: int,
    rng: np.random.Generator,
    late: Callable[[], bool],
) -> None:
    """The cells of these directions into ``found``, without their neighbours."""
    for v in starts[:goal]:
        if found and late():
            break
        key = cell_signs(lines, v).tobytes()
        if key not in found:
            found[key] = _scout(lines, v, rng)


def _collect(
    lines: NDArray[np.float64],
    queue: list[NDArray[np.float64]],
    found: dict[bytes, tuple[NDArray[np.float64], float]],
    goal: int,
    rng: np.random.Generator,
    late: Callable[[], bool],
) -> None:
    """Empty the queue into ``found``, adding the cells seen on the way; stop at ``goal``."""
    while queue and len(found) < goal and not (found and late()):
        v = queue.pop()
        key = cell_signs(lines, v).tobytes()
        if key not in found:
            v, volume = _scout(lines, v, rng)
            found[key] = (v, volume)
            # the opposite cone is a cell too
            seen = [-v, *_exits(lines, v, SCOUTS, rng)]
            queue += [w for w in seen if cell_signs(lines, w).tobytes() not in found]


def _scout(
    lines: NDArray[np.float64], v: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], float]:
    """Move v towards the middle of its cell, and measure the cell from there."""
    for _ in range(3):
        shares, u, theta, _ = _shares(lines, v, SCOUTS, rng)
        middle = v * np.cos(theta / 2)[:, None] + u * np.sin(theta / 2)[:, None]
        if shares.any():  # else every ray's share is below what floats hold
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


def cell_signs(lines: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.int8]:
    """Sides of the hyperplanes on which directions (..., k) lie."""
    return np.where(w @ lines.T > 0, 1, -1).astype(np.int8)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

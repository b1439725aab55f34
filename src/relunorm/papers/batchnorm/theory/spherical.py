"""The cells that planes through 0 cut out of space: spherical polygons and their solid angles.

All polygons lie end to end in one array, rays in order round each. A plane is placed on all of them
at once: n planes take n passes over at most 4 n^2 rays.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

Rays = NDArray[np.float64]
Sizes = NDArray[np.int64]


def polygons(
    lines: NDArray[np.float64], same: float, stop: Callable[[int, int], bool]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Sign patterns and Gaussian measures of the cells of the planes with normals ``lines``.

    Cuts the eight cones of three independent planes by the other planes, one after the other, until
    ``stop(planes placed, planes)``; signs at planes that were not placed are 0.

    Args:
        same: rays whose product with a normal is below this lie on its plane.
    """
    first = _independent_triple(lines)
    order = [*first, *(i for i in range(len(lines)) if i not in first)]
    corners = np.linalg.inv(lines[first]).T  # corner i lies on the other two planes
    corners /= np.linalg.norm(corners, axis=1, keepdims=True)
    rays = np.concatenate([np.array(s)[:, None] * corners for s in product((1, -1), repeat=3)])
    state = rays, np.full(8, 3)
    placed = 3
    try:
        while placed < len(order) and not stop(placed, len(order)):
            state = _cut(*state, lines[order[placed]], same)
            placed += 1
    except KeyboardInterrupt:
        pass
    rays, sizes = state
    volumes = _solid_angles(rays, sizes) / (4 * np.pi)
    middles = np.add.reduceat(rays, _starts(sizes))
    signs = np.zeros((len(sizes), len(lines)), np.int8)
    for i in order[:placed]:
        signs[:, i] = np.sign(middles @ lines[i])
    return signs, volumes


def _independent_triple(lines: NDArray[np.float64]) -> list[int]:
    from scipy.linalg import qr

    _, _, pivots = qr(lines.T, pivoting=True, mode="economic")  # type: ignore[misc]
    return pivots[:3].tolist()


def _starts(sizes: Sizes) -> Sizes:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]])


def _cut(rays: Rays, sizes: Sizes, normal: NDArray[np.float64], same: float) -> tuple[Rays, Sizes]:
    """The polygons after one more plane: those it misses, and both parts of those it cuts."""
    side = rays @ normal
    side[np.abs(side) < same] = 0.0
    starts = _starts(sizes)
    cut = (np.minimum.reduceat(side, starts) < 0) & (np.maximum.reduceat(side, starts) > 0)
    touched = np.repeat(cut, sizes)
    parts = _halves(rays[touched], sizes[cut], side[touched])
    return (
        np.concatenate([rays[~touched], *(part for part, _ in parts)]),
        np.concatenate([sizes[~cut], *(size for _, size in parts)]),
    )


def _halves(rays: Rays, sizes: Sizes, side: NDArray[np.float64]) -> list[tuple[Rays, Sizes]]:
    """The parts of polygons above and below a plane that cuts each of them.

    Every ray is followed by a place for the crossing on the edge to the next one; each part keeps
    the rays on its side and the crossings, in order.
    """
    if not len(sizes):
        return []
    starts = _starts(sizes)
    following = np.arange(1, len(rays) + 1)
    following[starts + sizes - 1] = starts
    after = side[following]
    crossed = side * after < 0
    crossing = rays * np.abs(after)[:, None] + rays[following] * np.abs(side)[:, None]
    norms = np.linalg.norm(crossing, axis=1, keepdims=True)
    crossing /= np.where(crossed[:, None], norms, 1.0)
    both = np.stack([rays, crossing], axis=1)
    parts = []
    for mine in (side >= 0, side <= 0):
        kept = np.stack([mine, crossed], axis=1)
        parts.append((both[kept], np.add.reduceat(kept.sum(axis=1), starts)))
    return parts


def _solid_angles(rays: Rays, sizes: Sizes) -> NDArray[np.float64]:
    """Of convex polygons by fans of triangles (Van Oosterom & Strackee 1983)."""
    starts = _starts(sizes)
    inner = np.ones(len(rays), bool)
    inner[starts] = inner[starts + sizes - 1] = False
    (j,) = np.nonzero(inner)
    owner = np.repeat(np.arange(len(sizes)), sizes)[j]
    a, b, c = rays[starts[owner]], rays[j], rays[j + 1]
    # det(a, b, c) by differences: of a small triangle the products would cancel
    volume = np.abs(np.einsum("ij,ij->i", np.cross(b - a, c - a), a))
    denominator = 1 + sum(np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (a, c), (b, c)))
    angles = 2 * np.arctan2(volume, denominator)
    return np.bincount(owner, weights=angles, minlength=len(sizes)).astype(np.float64)

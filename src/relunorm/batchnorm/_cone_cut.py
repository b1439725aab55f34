"""Cells of a central hyperplane arrangement with their extreme rays, by the double description.

A pointed cone is held as its extreme rays and, for each, the set of hyperplanes it lies on. Cutting
by one more hyperplane keeps the rays on a side and adds one on every edge that crosses; two rays
span an edge exactly if no third ray lies on all hyperplanes that both lie on (Motzkin et al. 1953;
Fukuda & Prodon 1996). Incidences are carried along, never recomputed from rounded numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

#: A ray nearer to a hyperplane than this (sine of the angle) lies on it.
ON_PLANE = 1e-12
#: A cone with more extreme rays than this is not described.
MAX_RAYS = 600


class TooComplexError(Exception):
    """A cone whose description would be too large; never leaves this package."""


class TooThinError(Exception):
    """A cone without interior after rounding; never leaves this package."""


class TimeUpError(Exception):
    """The time limit has passed; never leaves this package."""


@dataclass(frozen=True, eq=False)
class Cone:
    """Unit extreme rays (m, k), and which of the hyperplanes each lies on (m, lines)."""

    rays: NDArray[np.float64]
    on: NDArray[np.bool_]

    def signs(self, lines: NDArray[np.float64]) -> NDArray[np.int8]:
        """On which side of each hyperplane the cone lies."""
        sides = np.where(self.on, 0.0, self.rays @ lines.T)
        return np.sign(sides[np.abs(sides).argmax(axis=0), np.arange(len(lines))]).astype(np.int8)


def arrangement(lines: NDArray[np.float64], late: Callable[[], bool]) -> list[Cone]:
    """All cells on the positive side of one hyperplane: every cell or its opposite, once each."""
    first, rest = _basis(lines)
    k = len(first)
    cells = [_orthant(lines, first, (1, *signs)) for signs in product((1, -1), repeat=k - 1)]
    for index in rest:
        pieces: list[Cone] = []
        for cell in cells:
            pieces += [piece for piece in cut(cell, lines[index], index) if piece]
            in_time(late)
        cells = pieces
    return cells


def in_time(late: Callable[[], bool]) -> None:
    """Leave a long computation when the time is up."""
    if late():
        raise TimeUpError


def cone_of(lines: NDArray[np.float64], signs: NDArray[np.int8], late: Callable[[], bool]) -> Cone:
    """The cell with these signs, which must have an interior."""
    first, rest = _basis(lines)
    cone = _orthant(lines, first, tuple(int(signs[i]) for i in first))
    for index in rest:
        in_time(late)
        above, below = cut(cone, lines[index], index)
        kept = above if signs[index] > 0 else below
        if kept is None:
            raise TooThinError("the cell is thinner than rounding")
        cone = kept
    return cone


def cut(cone: Cone, normal: NDArray[np.float64], index: int) -> tuple[Cone | None, Cone | None]:
    """The parts of a cone on the positive and on the negative side of a hyperplane."""
    side = cone.rays @ normal
    side[np.abs(side) < ON_PLANE] = 0.0
    on = cone.on.copy()
    on[:, index] = side == 0
    if not (side < 0).any():
        return Cone(cone.rays, on), None
    if not (side > 0).any():
        return None, Cone(cone.rays, on)
    i, j = _edges(cone.on, np.flatnonzero(side > 0), np.flatnonzero(side < 0), cone.rays.shape[1])
    crossing = cone.rays[i] * -side[j, None] + cone.rays[j] * side[i, None]
    crossing /= np.linalg.norm(crossing, axis=1, keepdims=True)
    both = cone.on[i] & cone.on[j]
    both[:, index] = True
    parts = []
    for kept in (side >= 0, side <= 0):
        rays = np.vstack([cone.rays[kept], crossing])
        if len(rays) > MAX_RAYS:
            raise TooComplexError(f"a cell has more than {MAX_RAYS} extreme rays")
        parts.append(Cone(rays, np.vstack([on[kept], both])))
    return parts[0], parts[1]


def _edges(
    on: NDArray[np.bool_], above: NDArray[np.int64], below: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of rays, one from each side, that span an edge."""
    i, j = (a.ravel() for a in np.meshgrid(above, below, indexing="ij"))
    common = on[i] & on[j]
    enough = common.sum(axis=1) >= k - 2
    i, j, common = i[enough], j[enough], common[enough]
    # how many of the common hyperplanes each ray misses: 0 for the two themselves only
    missed = common.astype(np.float32) @ (~on).T.astype(np.float32)
    edge = (missed == 0).sum(axis=1) == 2
    return i[edge], j[edge]


def _basis(lines: NDArray[np.float64]) -> tuple[list[int], list[int]]:
    """k well-conditioned normals, and the others."""
    from scipy.linalg import qr

    pivots = qr(lines.T, pivoting=True, mode="economic")[2].tolist()  # type: ignore[misc]
    k = lines.shape[1]
    return pivots[:k], pivots[k:]


def _orthant(lines: NDArray[np.float64], first: list[int], signs: tuple[int, ...]) -> Cone:
    corners = np.linalg.inv(lines[first]).T  # corner i lies on all the hyperplanes but the i-th
    corners = corners / np.linalg.norm(corners, axis=1, keepdims=True)
    on = np.zeros((len(first), len(lines)), bool)
    on[:, first] = ~np.eye(len(first), dtype=bool)
    return Cone(corners * np.array(signs)[:, None], on)

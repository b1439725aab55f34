"""gamma(X): the smallest cell of the hyperplane arrangement a batch cuts into weight space.

The hyperplanes {w : w.x_i = 0} cut the space of weights into cones; gamma(X) is the smallest
Gaussian measure of a cone with interior (seed 004, Def. 1). It depends on the span of the points
only, so the problem is reduced to its dimension k first. k = 2: arcs of a circle. k = 3: spherical
polygons, areas by Van Oosterom and Strackee (1983). k > 3: an estimate, with an error bar and a
statement of what is in doubt (`relunorm.batchnorm._smallest_cone`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.batchnorm._arguments import generator, points, whole_number
from relunorm.errors import InvalidInputError

#: Directions closer than this (sine of the angle) count as one line.
SAME_LINE = 1e-12


@dataclass(frozen=True)
class Seen:
    """How much of the space of weights the cells found hold: all of it where they were listed, else
    an unbiased estimate with its standard error.
    """

    share: float = 1.0
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class CellVolumes:
    """The cells of an arrangement and their Gaussian measures.

    Attributes:
        gamma: the smallest measure. Exact for k <= 3; beyond, an unbiased estimate of the measure
            of the cell ``smallest`` from samples that took no part in choosing it. That is gamma
            itself unless ``doubt`` says otherwise.
        error: standard error of ``gamma``; 0 when exact, infinite where no cell could be measured
            (``doubt`` says so).
        kind: "exact" or "estimate".
        dimension: k, the dimension of the span.
        hyperplanes: how many different hyperplanes the points give.
        signs: (cells, hyperplanes) the sign pattern of each cell found.
        volumes: measure of each cell found (estimates beyond k = 3); exact ones sum to 1.
        smallest: index of the smallest cell found.
        cells_total: how many cells there are, or None where they were not all listed.
        rivals: cells, a cone and its opposite counted once, whose measures could not be told from
            the smallest one's (three standard errors); 0 when exact.
        seen: the share of all weights that lies in the cells found.
        doubt: why gamma may be smaller than stated; empty if nothing is in doubt.
    """

    gamma: float
    error: float
    kind: Literal["exact", "estimate"]
    dimension: int
    hyperplanes: int
    signs: NDArray[np.int8]
    volumes: NDArray[np.float64]
    smallest: int
    cells_total: int | None
    rivals: int = 0
    seen: Seen = Seen()
    doubt: str = ""

    @property
    def cells(self) -> int:
        """How many cells were found."""
        return len(self.volumes)

    @property
    def coverage(self) -> float:
        """Share of all cells that were found; where they were not listed, a lower bound by Cover's
        (1965) count, which is exact in general position.
        """
        total = self.cells_total or cell_count(self.hyperplanes, self.dimension)
        return self.cells / total

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.gamma/1",
            "gamma": self.gamma,
            "error": self.error if math.isfinite(self.error) else None,
            "kind": self.kind,
            "dimension": self.dimension,
            "hyperplanes": self.hyperplanes,
            "cells": self.cells,
            "cells_total": self.cells_total,
            "coverage": self.coverage,
            "seen": self.seen.share,
            "seen_error": self.seen.error,
            "rivals": self.rivals,
            "doubt": self.doubt,
            "total_volume": float(self.volumes.sum()),
        }

    def __repr__(self) -> str:
        error = f" +- {self.error:.2g}" if self.kind == "estimate" else ""
        total = f" of {self.cells_total}" if self.cells_total is not None else ""
        doubt = ", in doubt" if self.doubt else ""
        return (
            f"CellVolumes(gamma={self.gamma:.6g}{error}, {self.cells}{total} cells, "
            f"{self.kind}{doubt})"
        )


def gamma(
    X: ArrayLike,
    *,
    samples: int = 4000,
    max_cells: int = 2000,
    random_state: int | np.random.Generator | None = 0,
) -> CellVolumes:
    """gamma(X) of Def. 1 for a batch X of shape (n, d), one row per point.

    Exact when the points span at most 3 dimensions. Beyond, an estimate: every cell is listed with
    its extreme rays where there are at most ``max_cells`` of them, and measured by sampling whose
    relative error does not depend on how thin a cell is. Cells that may be the smallest are sampled
    again until one is left or 64 ``samples`` are spent; then that one is measured with fresh
    samples (picking the smallest of noisy values is biased). With more cells, ``max_cells`` of them
    are collected, from the thinnest corners of the arrangement and by walking, and the 128 pairs
    that may be smallest are measured. The estimate is then unbiased for the smallest cell found,
    which is gamma or more; ``coverage`` and ``seen`` say how many cells were found and how much of
    the space they hold, and ``doubt`` says it in words.

    Args:
        samples: samples for the final measurement (beyond 3 dimensions).
        max_cells: list at most this many cells (beyond 3 dimensions).

    For odd n equally spaced points on a circle it is 1/(2n), not the printed 1/n (docs/errata.md):

    >>> t = 2 * np.pi * np.arange(5) / 5
    >>> gamma(np.column_stack([np.cos(t), np.sin(t)]))
    CellVolumes(gamma=0.1, 10 of 10 cells, exact)
    """
    samples = whole_number("samples", samples, 2)
    max_cells = whole_number("max_cells", max_cells, 2)
    lines = distinct_lines(X)
    k = lines.shape[1]
    if k == 1:
        return _exact(np.array([[1], [-1]], np.int8), np.array([0.5, 0.5]), lines)
    if k == 2:
        return _exact(*_arcs(lines), lines)
    if k == 3:
        return _exact(*_polygons(lines), lines)
    from relunorm.batchnorm._smallest_cone import smallest_cone

    return smallest_cone(lines, samples, max_cells, generator(random_state))


def distinct_lines(X: ArrayLike) -> NDArray[np.float64]:
    """Unit normals of the different hyperplanes, in coordinates of the points' span: (lines, k)."""
    X = points(X)
    unit = unit_rows(X[X.any(axis=1)])
    if not len(unit):
        raise InvalidInputError("every point of the batch is 0, so no hyperplane cuts the weights")
    _, singular, vectors = np.linalg.svd(unit, full_matrices=False)
    rank = int(np.count_nonzero(singular > 1e-12 * singular[0]))
    unit = unit @ vectors[:rank].T
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    kept: list[int] = []
    for i in range(len(unit)):
        along = unit[kept] @ unit[i]
        rest = unit[i] - along[:, None] * unit[kept]
        if not (np.linalg.norm(rest, axis=1) < SAME_LINE).any():
            kept.append(i)
    return unit[kept]


def unit_rows(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows over their norms, at any scale that floats hold; rows of 0 stay 0."""
    largest = np.abs(X).max(axis=1, keepdims=True)
    scaled = np.ldexp(X, -np.frexp(largest)[1])
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(norms > 0, norms, 1.0)


def cell_count(hyperplanes: int, dimension: int) -> int:
    """Cells of central hyperplanes in general position: 2 sum_{i<k} C(n-1, i) (Cover 1965).

    >>> cell_count(12, 3)
    134
    """
    return 2 * sum(math.comb(hyperplanes - 1, i) for i in range(dimension))


def _exact(
    signs: NDArray[np.int8], volumes: NDArray[np.float64], lines: NDArray[np.float64]
) -> CellVolumes:
    smallest = int(np.argmin(volumes))
    return CellVolumes(
        float(volumes[smallest]),
        0.0,
        "exact",
        lines.shape[1],
        len(lines),
        signs,
        volumes,
        smallest,
        len(volumes),
    )


def _arcs(lines: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    borders = np.sort((np.arctan2(lines[:, 1], lines[:, 0]) + np.pi / 2) % np.pi)
    borders = np.concatenate([borders, borders + np.pi])
    widths = np.diff(np.append(borders, borders[0] + 2 * np.pi))
    middle = borders + widths / 2
    signs = np.sign(np.column_stack([np.cos(middle), np.sin(middle)]) @ lines.T)
    return signs.astype(np.int8), widths / (2 * np.pi)


def _polygons(lines: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Cut the eight cones of three independent planes by the other planes, one after the other."""
    first = _independent_triple(lines)
    order = [*first, *(i for i in range(len(lines)) if i not in first)]
    corners = np.linalg.inv(lines[first]).T  # corner i lies on the other two planes
    corners /= np.linalg.norm(corners, axis=1, keepdims=True)
    cells = [
        np.array([sa * corners[0], sb * corners[1], sc * corners[2]])
        for sa in (1, -1)
        for sb in (1, -1)
        for sc in (1, -1)
    ]
    for index in order[3:]:
        cells = [piece for cell in cells for piece in _split(cell, lines[index])]
    volumes = np.array([_solid_angle(cell) for cell in cells]) / (4 * np.pi)
    signs = np.sign(np.array([cell.sum(axis=0) for cell in cells]) @ lines.T).astype(np.int8)
    return signs, volumes


def _independent_triple(lines: NDArray[np.float64]) -> list[int]:
    from scipy.linalg import qr

    _, _, pivots = qr(lines.T, pivoting=True, mode="economic")  # type: ignore[misc]
    return pivots[:3].tolist()


def _split(cell: NDArray[np.float64], normal: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The parts of a spherical polygon (rays in order) on the two sides of a plane through 0."""
    side = cell @ normal
    side[np.abs(side) < SAME_LINE] = 0.0
    if (side >= 0).all() or (side <= 0).all():
        return [cell]
    above, below = [], []
    for i in range(len(cell)):
        j = (i + 1) % len(cell)
        if side[i] >= 0:
            above.append(cell[i])
        if side[i] <= 0:
            below.append(cell[i])
        if side[i] * side[j] < 0:
            crossing = cell[i] * abs(side[j]) + cell[j] * abs(side[i])
            crossing /= np.linalg.norm(crossing)
            above.append(crossing)
            below.append(crossing)
    return [np.array(above), np.array(below)]


def _solid_angle(rays: NDArray[np.float64]) -> float:
    """Solid angle of a convex cone by fans of triangles (Van Oosterom & Strackee 1983)."""
    a, b, c = rays[0], rays[1:-1], rays[2:]
    volume = np.abs(np.cross(b, c) @ a)
    denominator = 1 + b @ a + c @ a + np.einsum("ij,ij->i", b, c)
    return float(2 * np.arctan2(volume, denominator).sum())

"""gamma(X): the smallest cell of the hyperplane arrangement a batch cuts into weight space.

The hyperplanes {w : w.x_i = 0} cut the space of weights into cones; gamma(X) is the smallest
Gaussian measure of a cone with interior (seed 004, Def. 1). It depends on the span of the points
only, so the problem is reduced to its dimension k first. k = 2: arcs of a circle. k = 3: spherical
polygons (`relunorm.batchnorm._spherical`). k > 3: an estimate, with an error bar and a
statement of what is in doubt (`relunorm.batchnorm._smallest_cone`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.batchnorm._arguments import generator, points, whole_number
from relunorm.batchnorm._spherical import polygons
from relunorm.clock import Clock, Listener, Teller
from relunorm.errors import InvalidInputError

#: Directions closer than this (sine of the angle) count as one line.
SAME_LINE = 1e-12
#: Proportional points lie within this of one line, by rounding alone.
SAME_POINT = 4 * float(np.finfo(np.float64).eps)


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
        signs: (cells, hyperplanes) the sign pattern of each cell found; 0 at hyperplanes that were
            not placed before a time limit.
        volumes: measure of each cell found; exact ones sum to 1. Beyond k = 3 they are estimates:
            of cells that were measured, from 256 samples or more (a relative error of some per cent
            each; that of ``smallest`` is ``error``); of others, where they were not all listed, a
            rough guess that may be orders of magnitude off; 0 where a time limit left them.
        smallest: index of the smallest cell found.
        cells_total: how many cells there are, or None where they were not all listed.
        rivals: cells, a cone and its opposite counted once, whose measures could not be told from
            the smallest one's (three standard errors); 0 when exact.
        seen: the share of all weights that lies in the cells found.
        doubt: why gamma may be smaller than stated; empty if nothing is in doubt.
        ties: those of the rivals that are equal to the smallest, known without sampling error.
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
    ties: int = 0

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
            "ties": self.ties,
            "doubt": self.doubt,
            "total_volume": float(self.volumes.sum()),
        }

    def __repr__(self) -> str:
        error = f" +- {self.error:.2g}" if self.kind == "estimate" else ""
        total = f" of {self.cells_total}" if self.cells_total is not None else ""
        ties = f", {2 * (self.ties + 1)} of them equally small" if self.ties else ""
        doubt = ", in doubt" if self.doubt else ""
        return (
            f"CellVolumes(gamma={self.gamma:.6g}{error}, {self.cells}{total} cells{ties}, "
            f"{self.kind}{doubt})"
        )


def gamma(
    X: ArrayLike,
    *,
    samples: int = 4000,
    max_cells: int = 2000,
    random_state: int | np.random.Generator | None = 0,
    progress: Listener | None = None,
    time_limit: float | Clock | None = None,
) -> CellVolumes:
    """gamma(X) of Def. 1 for a batch X of shape (n, d), one row per point.

    Exact when the points span at most 3 dimensions. Points within 1e-12 of one line (the sine of
    the angle) count as one; where that is more than rounding of proportional points, ``doubt`` says
    so, the result is no longer called exact, and ``error`` is infinite.

    Beyond 3 dimensions, an estimate: every cell is listed with its extreme rays where there are at
    most ``max_cells`` of them, and measured by sampling whose relative error does not depend on how
    thin a cell is (beyond nine dimensions a simplicial cone as an orthant's probability, unless it
    is too thin for that). Cells that may be the smallest are sampled
    again until one is left or 64 ``samples`` are spent; then that one is measured with fresh
    samples (picking the smallest of noisy values is biased). With more cells, ``max_cells`` of them
    are collected, from the thinnest corners of the arrangement and by walking, and the 128 pairs
    that may be smallest are measured. The estimate is then unbiased for the smallest cell found,
    which is gamma or more; ``coverage`` and ``seen`` say how many cells were found and how much of
    the space they hold, and ``doubt`` says it in words.

    Args:
        samples: samples for the final measurement (beyond 3 dimensions).
        max_cells: list at most this many cells (beyond 3 dimensions).
        progress: called with (hyperplanes placed, all) in 3 dimensions, (cells measured, all)
            beyond.
        time_limit: seconds after which to stop and return what was found, as an interrupt does in
            3 dimensions; ``doubt`` then says what is missing.

    In 3 dimensions n points cost O(n^3) products of vectors: 300 points (89,702 cells) a second or
    two.

    For odd n equally spaced points on a circle it is 1/(2n), not the printed 1/n (docs/errata.md):

    >>> t = 2 * np.pi * np.arange(5) / 5
    >>> gamma(np.column_stack([np.cos(t), np.sin(t)]))
    CellVolumes(gamma=0.1, 10 of 10 cells, exact)
    """
    samples = whole_number("samples", samples, 2)
    max_cells = whole_number("max_cells", max_cells, 2)
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    lines, merged = _lines(X)
    found = _volumes(lines, samples, max_cells, generator(random_state), tell)
    if not merged:
        return found
    # the cell between two such points is at most the wedge between their hyperplanes
    doubt = (
        f"points within {SAME_LINE:g} of a line count as one, and some of them are {merged:.2g} "
        f"apart: taken as different, they have a cell of at most {merged / (2 * math.pi):.2g} "
        "between them"
    )
    doubt = "; ".join(filter(None, (found.doubt, doubt)))
    return replace(found, kind="estimate", error=math.inf, doubt=doubt)


def _volumes(
    lines: NDArray[np.float64],
    samples: int,
    max_cells: int,
    rng: np.random.Generator,
    tell: Teller,
) -> CellVolumes:
    k = lines.shape[1]
    if k == 1:
        return _exact(np.array([[1], [-1]], np.int8), np.array([0.5, 0.5]), lines)
    if k == 2:
        return _exact(*_arcs(lines), lines)
    if k == 3:

        def stop(done: int, total: int) -> bool:
            tell("hyperplanes placed", done, total)
            return tell.clock.expired()

        return _exact(*polygons(lines, SAME_LINE, stop), lines)
    from relunorm.batchnorm._smallest_cone import smallest_cone

    return smallest_cone(lines, samples, max_cells, rng, tell)


def distinct_lines(X: ArrayLike) -> NDArray[np.float64]:
    """Unit normals of the different hyperplanes, in coordinates of the points' span: (lines, k)."""
    return _lines(X)[0]


def _lines(X: ArrayLike) -> tuple[NDArray[np.float64], float]:
    """`distinct_lines`, and the least angle between points counted as one line that is more than
    rounding, or 0.
    """
    X = points(X)
    unit = unit_rows(X[X.any(axis=1)])
    if not len(unit):
        raise InvalidInputError("every point of the batch is 0, so no hyperplane cuts the weights")
    kept: list[int] = []
    merged = []
    for i in range(len(unit)):
        near, far = (np.linalg.norm(unit[kept] + s * unit[i], axis=1) for s in (-1, 1))
        apart = float(np.minimum(near, far).min(initial=2.0))
        if apart >= SAME_LINE:
            kept.append(i)
        elif apart > SAME_POINT:
            merged.append(apart)
    unit = unit[kept]
    _, singular, vectors = np.linalg.svd(unit, full_matrices=False)
    rank = int(np.count_nonzero(singular > 1e-12 * singular[0]))
    unit = unit @ vectors[:rank].T
    return unit / np.linalg.norm(unit, axis=1, keepdims=True), min(merged, default=0.0)


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
    hyperplanes = whole_number("hyperplanes", hyperplanes, 1)
    dimension = whole_number("dimension", dimension, 1)
    return 2 * sum(math.comb(hyperplanes - 1, i) for i in range(dimension))


def _exact(
    signs: NDArray[np.int8], volumes: NDArray[np.float64], lines: NDArray[np.float64]
) -> CellVolumes:
    smallest = int(np.argmin(volumes))
    placed = int(np.count_nonzero(signs.any(axis=0)))
    whole = placed == len(lines)
    doubt = (
        f"stopped after {placed} of {len(lines)} hyperplanes: the others cut the cells further, so "
        "gamma is at most this"
    )
    return CellVolumes(
        float(volumes[smallest]),
        0.0 if whole else math.inf,
        "exact" if whole else "estimate",
        lines.shape[1],
        len(lines),
        signs,
        volumes,
        smallest,
        len(volumes) if whole else None,
        doubt="" if whole else doubt,
    )


def _arcs(lines: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    borders = np.sort((np.arctan2(lines[:, 1], lines[:, 0]) + np.pi / 2) % np.pi)
    borders = np.concatenate([borders, borders + np.pi])
    widths = np.diff(np.append(borders, borders[0] + 2 * np.pi))
    middle = borders + widths / 2
    signs = np.sign(np.column_stack([np.cos(middle), np.sin(middle)]) @ lines.T)
    return signs.astype(np.int8), widths / (2 * np.pi)

"""Exact level sets and decision boundaries: points, segments or polygons, region by region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.regions.geometry.level_pieces import SAME, level_pieces
from relunorm.regions.partition import Regions
from relunorm.regions.search.window import clipped

#: Scores that differ by less than this share of the largest one tie.
TIED = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class LevelSet:
    """{x : network(x)[output] = level} on a domain, as flat pieces.

    Args:
        pieces: points (1-D), segments (2-D) or polygons (3-D): arrays of shape (corners, d).
        owners: the region each piece lies in (on a wall: the first of the two).

    Exact up to rounding. Where the network equals the level on a whole region, only the border of
    such a plateau is listed; where it only touches the level on a wall, that wall is, once.
    """

    pieces: list[Array]
    owners: NDArray[np.int64]
    level: float
    output: int
    dimension: int

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def size(self) -> float:
        """Number of points, total length or total area."""
        if self.dimension == 1:
            return float(len(self.pieces))
        if self.dimension == 2:
            return float(sum(np.linalg.norm(p[1] - p[0]) for p in self.pieces))
        return float(sum(_area(p) for p in self.pieces))

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.level_set/1",
            **entries(self, "level output size pieces owners"),
        }

    def __repr__(self) -> str:
        kind = {1: "points", 2: "segments", 3: "polygons"}[self.dimension]
        return f"LevelSet({len(self):,} {kind} where output {self.output} = {self.level:g})"


def level_set(found: Regions, level: float = 0.0, output: int = 0) -> LevelSet:
    """Where one output of a network of one, two or three inputs takes a value, exactly.

    The boundary of {f = level}: every point where f takes the value except the inside of plateaus,
    each piece once, also where it lies on the wall between two regions (`level_pieces`).

    >>> from relunorm import Box, Network, regions
    >>> absolute = Network.from_weights([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 1.0]]])
    >>> level_set(regions(absolute, Box.cube(2))).size
    2.0
    """
    level = _check(found, level, output)
    pieces, owners = level_pieces(found, level, output)
    return LevelSet(pieces, owners, level, output, found.network.input_size)


def _check(found: Regions, level: float, output: int) -> float:
    d = found.network.input_size
    if d > 3:
        raise InvalidInputError(f"level sets are listed for up to 3 inputs, the network has {d}")
    _check_domain(found, "level sets")
    if not 0 <= output < found.network.output_size:
        raise InvalidInputError(
            f"output {output} of a network with {found.network.output_size} outputs"
        )
    try:
        value = float(level)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise InvalidInputError(f"level is {level!r}; expected a finite number")
    return value


def _check_domain(found: Regions, what: str) -> None:
    """Refuse domains that are unbounded or flat."""
    if found.domain is None:
        raise InvalidInputError(f"{what} need a bounded domain; list the regions on a box")
    flat = np.flatnonzero(found.domain.bounding_box.halfwidth == 0)
    if len(flat):
        raise InvalidInputError(
            f"{what} need a domain with interior; coordinates {flat.tolist()} of {found.domain!r} "
            "have length zero. Use on_plane for a plane, along for a line"
        )


def _area(polygon: Array) -> float:
    fan = polygon[1:] - polygon[0]
    return float(np.linalg.norm(np.cross(fan[:-1], fan[1:]).sum(axis=0)) / 2)


@dataclass(frozen=True, eq=False, repr=False)
class DecisionCells:
    """Where each output is the largest, on a domain of two inputs.

    Args:
        polygons: convex pieces, each inside one region. classes: the largest output on each.
        owners: the region each piece lies in.
        segments: the boundary between pieces of different classes, shape (k, 2, 2), inside regions
            and on the walls between them. pairs: the two classes of each segment.
    """

    polygons: list[Array]
    classes: NDArray[np.int64]
    owners: NDArray[np.int64]
    segments: Array
    pairs: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.decision_cells/1",
            **entries(self, "polygons classes owners segments pairs"),
        }

    def __repr__(self) -> str:
        return f"DecisionCells({len(self.polygons):,} pieces, {len(self.segments):,} segments)"


def decision_cells(found: Regions) -> DecisionCells:
    """The argmax cells of a classifier of two inputs and the boundary between them, exactly."""
    if found.network.input_size != 2:
        raise InvalidInputError(
            f"decision cells are for two inputs, the network has {found.network.input_size}; use "
            "on_plane for a slice"
        )
    _check_domain(found, "decision cells")
    if found.network.output_size < 2:
        raise InvalidInputError("a network of one output has no argmax; use level_set for its sign")
    flat, ptr = found.polygons
    A, c = found.affine()
    owner = np.repeat(np.arange(len(found)), np.diff(ptr))
    scores = np.einsum("nod,nd->no", A[owner], flat) + c[owner]
    noise = _noise(found)
    # The first of those that are the largest up to rounding: equal scores are the first one's.
    best = (scores >= scores.max(axis=1, keepdims=True) - noise).argmax(axis=1)
    low = np.minimum.reduceat(best, ptr[:-1])
    high = np.maximum.reduceat(best, ptr[:-1])
    sizes = np.maximum.reduceat(np.abs(scores).max(axis=1), ptr[:-1])[owner]
    second = np.partition(scores, -2, axis=1)[:, -2]
    tied = np.logical_or.reduceat(scores.max(axis=1) - second <= TIED * sizes, ptr[:-1])
    polygons, classes, owners, segments, pairs = [], [], [], [], []
    walls = _Walls([], [])
    for i in range(len(found)):
        corners = slice(ptr[i], ptr[i + 1])
        polygon, whole = flat[corners], low[i] == high[i]
        if whole and not tied[i]:
            polygons.append(polygon)
            classes.append(int(low[i]))
            owners.append(i)
            continue
        # Affine scores: the largest at every corner is the largest throughout.
        some = _different(scores[corners], noise)
        for k in [int(low[i])] if whole else some:
            cell = polygon if whole else _best_part(polygon, A[i], c[i], k, some, noise)
            if len(cell) < 3 or _flat_area(cell) == 0.0:
                continue
            polygons.append(cell)
            classes.append(k)
            owners.append(i)
            _ties(cell, None if whole else polygon, A[i], c[i], k, some, segments, pairs, walls)
    if walls.edges:
        _match(walls, found.geometry.window.embedding.diagonal(), segments, pairs)
    return DecisionCells(
        polygons,
        np.array(classes, np.int64),
        np.array(owners, np.int64),
        np.array(segments).reshape(-1, 2, 2),
        np.array(pairs, np.int64).reshape(-1, 2),
    )


def _noise(found: Regions) -> float:
    """How far rounding can have moved the difference of two scores on the domain."""
    from relunorm.arithmetic.rounding import roundings

    if found.domain is None:
        return 0.0
    return 2.0 * float(roundings(found.network, found.domain).max())


def _different(scores: Array, noise: float) -> list[int]:
    """The classes of a region without those whose score is that of an earlier one throughout."""
    kept = [0]
    for k in range(1, scores.shape[1]):
        if (np.abs(scores[:, kept] - scores[:, k : k + 1]).max(axis=0) > noise).all():
            kept.append(k)
    return kept


def _best_part(polygon: Array, A: Array, c: Array, k: int, some: list[int], noise: float) -> Array:
    """The part of a polygon where score k is the largest of some that differ."""
    for other in some:
        if other == k or len(polygon) < 3:
            continue
        polygon = clipped(polygon, polygon @ (A[k] - A[other]) + c[k] - c[other], noise)
    return polygon


class _Walls(NamedTuple):
    """Edges of pieces on walls of regions where another class ties: the other side decides."""

    edges: list[Array]
    classes: list[int]


def _ties(
    cell: Array,
    region: Array | None,
    A: Array,
    c: Array,
    k: int,
    some: list[int],
    segments: list[Array],
    pairs: list[list[int]],
    walls: _Walls,
) -> None:
    """Edges of a class's cell where another score ties.

    Those through the region (None: nothing cuts it) are boundary, listed from the smaller class:
    between some classes that differ. On a wall a class that is equal here may be ahead beyond.
    """
    scores = cell @ A.T + c
    gap = np.abs(scores - scores[:, k : k + 1])
    tie = gap <= TIED * float(np.abs(scores).max())
    tie[:, k] = False
    both = tie & np.roll(tie, -1, axis=0)
    for i in np.flatnonzero(both.any(axis=1)):
        edge = np.array([cell[i], cell[(i + 1) % len(cell)]])
        if not (edge[0] != edge[1]).any():
            continue
        tied = [other for other in some if both[i, other]]
        other = _beyond(cell, edge, A, np.array(tied)) if tied else k
        if not _cuts(region, A, c, k, other):
            walls.edges.append(edge)
            walls.classes.append(k)
        elif other > k:
            segments.append(edge)
            pairs.append([k, other])


def _beyond(cell: Array, edge: Array, A: Array, tied: NDArray[np.intp]) -> int:
    """Of the classes that tie on an edge of a cell, the largest just outside: the steepest."""
    along = edge[1] - edge[0]
    out = np.array([along[1], -along[0]])
    if out @ (cell.mean(axis=0) - edge[0]) > 0:
        out = -out
    return int(tied[np.argmax(A[tied] @ out)])


def _cuts(region: Array | None, A: Array, c: Array, k: int, other: int) -> bool:
    """Whether the line where two scores tie goes through the inside of a region."""
    if region is None:
        return False
    value = region @ (A[k] - A[other]) + c[k] - c[other]
    band = 1e-9 * float(np.abs(value).max())
    return bool(value.max() > band and value.min() < -band)


def _match(walls: _Walls, half: Array, segments: list[Array], pairs: list[list[int]]) -> None:
    """List the walls that have different classes on their two sides."""
    from scipy.spatial import KDTree

    middle = np.array([edge.mean(axis=0) for edge in walls.edges]) / half
    for a, b in sorted(KDTree(middle).query_pairs(SAME)):
        pair = sorted((walls.classes[a], walls.classes[b]))
        if pair[0] != pair[1]:
            segments.append(walls.edges[a])
            pairs.append(pair)


def _flat_area(polygon: Array) -> float:
    x, y = (polygon - polygon[0]).T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)

"""Exact level sets and decision boundaries: points, segments or polygons, region by region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Layer, Network
from relunorm.regions.enumerate import regions
from relunorm.regions.result import Regions

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class LevelSet:
    """{x : network(x)[output] = level} on a domain, as flat pieces.

    Args:
        pieces: points (1-D), segments (2-D) or polygons (3-D): arrays of shape (corners, d).
        owners: the region each piece lies in.

    Exact up to rounding. Where the network equals the level on a whole region, that region is not
    listed: it is no boundary.
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
            "level": self.level,
            "output": self.output,
            "size": self.size,
            "pieces": [piece.tolist() for piece in self.pieces],
            "owners": self.owners.tolist(),
        }

    def __repr__(self) -> str:
        kind = {1: "points", 2: "segments", 3: "polygons"}[self.dimension]
        return f"LevelSet({len(self):,} {kind} where output {self.output} = {self.level:g})"


def level_set(found: Regions, level: float = 0.0, output: int = 0) -> LevelSet:
    """Where one output of a network of one, two or three inputs takes a value, exactly.

    Args:
        found: its regions on a box or polytope.
        level: the value. output: which output.
    """
    _check(found, output)
    d = found.network.input_size
    if d == 3:
        return _surface(found, level, output)
    if d == 1:
        corners = [found.vertices(i) for i in range(len(found))]
        ptr = np.concatenate([[0], np.cumsum([len(c) for c in corners])]).astype(np.int64)
        flat = np.concatenate(corners)
    else:
        flat, ptr = _polygons(found)
    A, c = found.affine()
    owner = np.repeat(np.arange(len(found)), np.diff(ptr))
    value = np.einsum("nd,nd->n", A[owner, output], flat) + c[owner, output] - level
    after = np.arange(len(flat)) + 1
    after[ptr[1:] - 1] = ptr[:-1]
    # A corner exactly on the level counts as below, so every polygon has no or two crossings.
    up = value > 0
    cross = np.flatnonzero(up != up[after])
    share = value[cross] / (value[cross] - value[after[cross]])
    points = flat[cross] + share[:, None] * (flat[after[cross]] - flat[cross])
    if d == 1:
        kept = cross[::2] if len(cross) else cross
        points, owner_of = points[::2], owner[kept]
        place, first = np.unique(points.round(14), axis=0, return_index=True)
        return LevelSet(list(place[:, None]), owner_of[first], level, output, 1)
    pairs = points.reshape(-1, 2, d)
    owners = owner[cross[::2]]
    scale = np.abs(flat).max(initial=1.0)
    real = np.linalg.norm(pairs[:, 1] - pairs[:, 0], axis=1) > 1e-12 * scale
    return LevelSet(list(pairs[real]), owners[real], level, output, 2)


def _check(found: Regions, output: int) -> None:
    d = found.network.input_size
    if d > 3:
        raise InvalidInputError(f"level sets are listed for up to 3 inputs, the network has {d}")
    if found.domain is None:
        raise InvalidInputError("level sets need a bounded domain; list the regions on a box")
    if not 0 <= output < found.network.output_size:
        raise InvalidInputError(
            f"output {output} of a network with {found.network.output_size} outputs"
        )


def _polygons(found: Regions) -> tuple[Array, NDArray[np.int64]]:
    if found.stored_polygons is not None:
        return found.stored_polygons
    corners = [found.vertices(i) for i in range(len(found))]
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in corners])]).astype(np.int64)
    return np.concatenate(corners), ptr


def _surface(found: Regions, level: float, output: int) -> LevelSet:
    """Polygons of a level set in 3-D: the regions a further unit f - level would cut."""
    from relunorm.regions.corners import box_corners, clip_all, section

    network, window = found.network, found.geometry.window
    split = regions(_with_level_unit(network, level, output), found.domain)
    bits = split.patterns
    base = found.find(bits[:, :-1])
    both = np.intersect1d(base[bits[:, -1]], base[~bits[:, -1]])
    start = box_corners(window.lo, window.hi)
    pieces, owners = [], []
    for i in both[both >= 0]:
        rows, rhs, _ = found.geometry.rows(found.pattern(int(i)))
        corners, walls = clip_all(*start, rows, rhs, 1e-13)
        A, c = found.affine(int(i))
        inputs = window.points(corners)
        values = inputs @ A[output] + c[output] - level
        size = np.linalg.norm(A[output])
        cut = section(inputs, walls, values, 1e-12 * size * np.abs(inputs).max())
        if len(cut) >= 3:
            pieces.append(_ordered(cut, A[output] / size))
            owners.append(int(i))
    return LevelSet(pieces, np.array(owners, np.int64), level, output, 3)


def _with_level_unit(network: Network, level: float, output: int) -> Network:
    """The network with one more hidden unit, f[output] - level, in a layer of its own."""
    terms = {s: mx.dense(m)[output : output + 1] for s, m in network.output.terms.items()}
    unit = Layer(Affine(terms, network.output.bias[output : output + 1] - level))
    last = Affine({len(network.layers) + 1: np.ones((1, 1))}, np.zeros(1))
    return network.replace(layers=[*network.layers, unit], output=last)


def _ordered(points: Array, normal: Array) -> Array:
    """Corners of a planar convex polygon in order, counter-clockwise seen against the normal."""
    centre = points.mean(axis=0)
    first = np.eye(3)[np.argmin(np.abs(normal))]
    u = np.cross(normal, first)
    u /= np.linalg.norm(u)
    w = np.cross(normal, u)
    angle = np.arctan2((points - centre) @ w, (points - centre) @ u)
    return points[np.argsort(angle)]


def _area(polygon: Array) -> float:
    fan = polygon[1:] - polygon[0]
    return float(np.linalg.norm(np.cross(fan[:-1], fan[1:]).sum(axis=0)) / 2)


@dataclass(frozen=True, eq=False, repr=False)
class DecisionCells:
    """Where each output is the largest, on a domain of two inputs.

    Args:
        polygons: convex pieces, each inside one region. classes: the largest output on each.
        owners: the region each piece lies in.
        segments: the boundary, shape (k, 2, 2). pairs: the two classes that tie on each segment.
    """

    polygons: list[Array]
    classes: NDArray[np.int64]
    owners: NDArray[np.int64]
    segments: Array
    pairs: NDArray[np.int64]

    def area(self, which: int) -> float:
        """The area of a class."""
        return float(
            sum(
                _flat_area(p)
                for p, k in zip(self.polygons, self.classes, strict=True)
                if k == which
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.decision_cells/1",
            "polygons": [p.tolist() for p in self.polygons],
            "classes": self.classes.tolist(),
            "owners": self.owners.tolist(),
            "segments": self.segments.tolist(),
            "pairs": self.pairs.tolist(),
        }

    def __repr__(self) -> str:
        return f"DecisionCells({len(self.polygons):,} pieces, {len(self.segments):,} segments)"


def decision_cells(found: Regions) -> DecisionCells:
    """The argmax cells of a classifier of two inputs and the boundary between them, exactly."""
    if found.network.input_size != 2 or found.domain is None:
        raise InvalidInputError(
            "decision cells are for two inputs on a bounded domain (or a slice)"
        )
    if found.network.output_size < 2:
        raise InvalidInputError("a network of one output has no argmax; use level_set for its sign")
    flat, ptr = _polygons(found)
    A, c = found.affine()
    owner = np.repeat(np.arange(len(found)), np.diff(ptr))
    scores = np.einsum("nod,nd->no", A[owner], flat) + c[owner]
    best = scores.argmax(axis=1)
    low = np.minimum.reduceat(best, ptr[:-1])
    high = np.maximum.reduceat(best, ptr[:-1])
    polygons, classes, owners, segments, pairs = [], [], [], [], []
    for i in range(len(found)):
        polygon = flat[ptr[i] : ptr[i + 1]]
        # Affine scores: the largest at every corner is the largest throughout.
        options = [int(low[i])] if low[i] == high[i] else range(scores.shape[1])
        for k in options:
            cell = polygon if low[i] == high[i] else _best_part(polygon, A[i], c[i], k)
            if len(cell) < 3 or _flat_area(cell) == 0.0:
                continue
            polygons.append(cell)
            classes.append(k)
            owners.append(i)
            if low[i] != high[i]:
                _ties(cell, A[i], c[i], k, segments, pairs)
    return DecisionCells(
        polygons,
        np.array(classes, np.int64),
        np.array(owners, np.int64),
        np.array(segments).reshape(-1, 2, 2),
        np.array(pairs, np.int64).reshape(-1, 2),
    )


def _best_part(polygon: Array, A: Array, c: Array, k: int) -> Array:
    """The part of a polygon where score k is the largest."""
    for other in range(len(c)):
        if other == k or len(polygon) < 3:
            continue
        value = polygon @ (A[k] - A[other]) + c[k] - c[other]
        if (value >= 0).all():
            continue
        kept = []
        for i in range(len(polygon)):
            j = (i + 1) % len(polygon)
            if value[i] >= 0:
                kept.append(polygon[i])
            if (value[i] > 0) != (value[j] > 0) and value[i] != 0 and value[j] != 0:
                share = value[i] / (value[i] - value[j])
                kept.append(polygon[i] + share * (polygon[j] - polygon[i]))
        polygon = np.array(kept).reshape(-1, 2)
    return polygon


def _ties(cell: Array, A: Array, c: Array, k: int, segments: list, pairs: list) -> None:  # type: ignore[type-arg]
    """Edges of a class's cell where another score ties, listed from the smaller class."""
    scores = cell @ A.T + c
    gap = np.abs(scores - scores[:, k : k + 1])
    tie = gap <= 1e-9 * max(float(np.abs(scores).max()), 1e-300)
    for i in range(len(cell)):
        j = (i + 1) % len(cell)
        for other in np.flatnonzero(tie[i] & tie[j]):
            if other > k and np.linalg.norm(cell[j] - cell[i]) > 0:
                segments.append([cell[i], cell[j]])
                pairs.append([k, int(other)])


def _flat_area(polygon: Array) -> float:
    x, y = (polygon - polygon[0]).T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)

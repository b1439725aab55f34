"""From a pattern to its polytope: half-spaces, corners, volume and largest ball, on demand.

Works in window coordinates, where the domain has half-width one, and translates back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import compiling
from relunorm.display.shown import entries
from relunorm.domain import Box
from relunorm.domain.base import lengths
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.geometry import sparse_walls
from relunorm.regions.search.window import Window


@dataclass(frozen=True)
class Wall:
    """Where a half-space comes from: a unit (layer and index within it) or the domain."""

    layer: int
    index: int

    @property
    def is_domain(self) -> bool:
        """Whether the wall is the domain's own."""
        return self.layer < 0

    def __str__(self) -> str:
        return f"domain {self.index}" if self.is_domain else f"unit {self.layer}:{self.index}"


@dataclass(frozen=True, eq=False, repr=False)
class Cell:
    """{x : A x <= b}, every row a facet.

    Rows have unit length. ``walls[k]`` names what makes row k: a unit, or the domain (sides of a
    box are numbered 2 i for the upper and 2 i + 1 for the lower one). ``facet_points[k]`` lies in
    the relative interior of facet k. ``bounded`` is False for a region that reaches infinity.
    ``complete`` is False where a time limit left rows that may be redundant; their facet points are
    NaN.
    """

    A: Array
    b: Array
    walls: tuple[Wall, ...]
    interior_point: Array
    facet_points: Array
    bounded: bool = True
    complete: bool = True

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.A.shape[1]

    def contains(self, points: Any, tolerance: float = 1e-12) -> NDArray[np.bool_]:
        """For every row of ``points`` whether it lies in the cell, up to a distance tolerance."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        return (rows @ self.A.T <= self.b + tolerance).all(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.cell/1",
            **entries(self, "A b"),
            "walls": [str(wall) for wall in self.walls],
            **entries(self, "interior_point bounded complete"),
        }

    def __repr__(self) -> str:
        by_units = sum(not wall.is_domain for wall in self.walls)
        rest = len(self.walls) - by_units
        end = "" if self.bounded else ", unbounded"
        end += "" if self.complete else ", some perhaps redundant"
        walls = f"{by_units} walls of units, {rest} of the domain"
        return f"Cell({self.dimension} dimensions, {walls}{end})"


#: Walls that the clipping of cells can tell apart.
WALLS = 64


class Geometry:
    """What `Regions` and `Region` ask about the shape of single cells."""

    def __init__(self, network: Network, window: Window):
        self.network, self.window = network, window

    @cached_property
    def net(self):  # type: ignore[no-untyped-def]
        """The network in window coordinates."""
        return self.window.pack(self.network)

    @cached_property
    def state(self):  # type: ignore[no-untyped-def]
        """Scratch memory for the compiled functions."""
        from relunorm.regions.kernels.tree_state import new_state

        w = self.window
        return new_state(self.net, w.lo, w.hi, w.rows, w.rhs, w.witnesses)

    @cached_property
    def work(self):  # type: ignore[no-untyped-def]
        """Scratch memory of the simplex."""
        from relunorm.compiled.simplex import workspace

        return workspace(self.window.dimension)

    @cached_property
    def domain_rows(self) -> tuple[Array, Array, tuple[int, ...]]:
        """The domain's own walls in window coordinates, with their numbers."""
        w, k = self.window, self.window.dimension
        if w.homogeneous:
            return np.zeros((0, k)), np.zeros(0), ()
        if w.domain is not None and w.domain.rows:
            A, b = w.domain.sides
            rows = A @ w.embedding
            rhs = b - A @ w.offset
            length = lengths(rows)
            use = np.flatnonzero(length > 0)
            return rows[use] / length[use, None], rhs[use] / length[use], tuple(use.tolist())
        sides = np.concatenate([np.eye(k), -np.eye(k)])
        order = np.arange(2 * k).reshape(2, k).T.ravel()
        free = np.flatnonzero(w.embedding.any(axis=1))
        numbers = [2 * int(i) + s for i in free for s in (0, 1)]
        rows = np.concatenate([sides[order], w.rows])
        rhs = np.concatenate([np.concatenate([w.hi, -w.lo])[order], w.rhs])
        numbers += [2 * len(w.embedding) + i for i in range(len(w.rhs))]
        return rows, rhs, tuple(numbers)

    @property
    def limits(self) -> tuple[Array, Array]:
        """A box around the window, so wide that its sides are never walls of a cell."""
        w = self.window
        return (w.lo, w.hi) if w.homogeneous else (w.lo - 1.0, w.hi + 1.0)

    def rows(self, bits: NDArray[np.bool_]) -> tuple[Array, Array, NDArray[np.int64]]:
        """All half-spaces of a cell; rows of the domain are numbered after all units."""
        from relunorm.regions.kernels.facets import cell_rows

        compiling("the walls of a region")
        rows, rhs, units = cell_rows(self.net, self.state, bits.astype(np.int8))
        more, bounds, _ = self.domain_rows
        names = np.concatenate([units, int(self.net.shape[2]) + np.arange(len(bounds))])
        return np.concatenate([rows, more]), np.concatenate([rhs, bounds]), names

    def to_window(self, point: Array) -> Array:
        """An input in window coordinates."""
        w = self.window
        if w.homogeneous:
            t = np.append(point / w.embedding.diagonal(), 1.0)
            return t / (2 * np.abs(t).max())
        free = w.embedding.any(axis=1)
        return (point - w.offset)[free] / w.embedding[free].max(axis=1)

    def reduced(
        self, bits: NDArray[np.bool_], point: Array
    ) -> tuple[Array, Array, NDArray[np.int64], Array]:
        """The facets of a cell in window coordinates: rows, bounds, names, a point on each."""
        from relunorm.regions.kernels.facets import facet_points

        rows, rhs, names = self.rows(bits)
        at = np.empty_like(rows)
        own, inside = int((names < self.net.shape[2]).sum()), self.to_window(point)
        kept = facet_points(rows, rhs, own, *self.limits, inside, at, self.work)
        return rows[kept], rhs[kept], names[kept], at[kept]

    def cell(self, bits: NDArray[np.bool_], point: Array) -> Cell:
        """The polytope of a pattern, redundant rows removed, in inputs."""
        rows, rhs, names, at = self.reduced(bits, point)
        A, b = self.to_inputs(rows, rhs)
        points = self.window.points(at) if len(at) else np.zeros((0, A.shape[1]))
        walls = tuple(self._wall(int(name)) for name in names)
        return Cell(A, b, walls, point, points, self.is_bounded(rows))

    def beyond(
        self, bits: NDArray[np.bool_], point: Array
    ) -> list[tuple[Wall, NDArray[np.bool_], Array]]:
        """What lies across each facet made by a unit: the wall, the pattern, a point between."""
        _, units, at, _, beyond = self.facets(bits[None], point[None])
        return [
            (self._wall(int(unit)), new.astype(bool), self.window.points(middle[None])[0])
            for unit, middle, new in zip(units, at, beyond, strict=True)
        ]

    def facets(self, patterns: NDArray[np.bool_], points: Array) -> list[Any]:
        """The facets made by units of many cells, from points inside them; see `all_facets`."""
        from relunorm.regions.kernels.facets import all_facets

        compiling("the facets of regions")
        bits, (rows, rhs, _) = patterns.astype(np.int8), self.domain_rows
        inside = np.array([self.to_window(x) for x in points]).reshape(len(points), -1)
        return all_facets(self.net, self.state, bits, inside, rows, rhs, *self.limits, self.work)

    def to_inputs(self, rows: Array, rhs: Array) -> tuple[Array, Array]:
        """Half-spaces in t to half-spaces of unit length in x."""
        w = self.window
        if w.homogeneous:
            A, b = rows[:, :-1] / w.embedding.diagonal(), -rows[:, -1]
        else:
            free = w.embedding.any(axis=1)
            A = np.zeros((len(rows), len(w.embedding)))
            A[:, free] = rows / w.embedding[free].max(axis=1)
            b = rhs + A @ w.offset
        length = lengths(A)
        length[length == 0] = 1.0
        return A / length[:, None], b / length

    def is_bounded(self, rows: Array) -> bool:
        """Whether the cell of these rows is bounded (False only where the domain is all of R^d)."""
        from relunorm.compiled.simplex import FOUND, maximize

        w = self.window
        if not w.homogeneous:
            return True
        # a direction that no row ends reaches a side of the box; rounding alone gets nowhere near
        hi = w.hi.copy()
        hi[-1] = 0.0
        goals = np.concatenate([np.eye(w.dimension)[:-1], -np.eye(w.dimension)[:-1]])
        zero = np.zeros(len(rows))
        return not any(
            maximize(goal, rows, zero, len(rows), w.lo, hi, 0.5, self.work) == FOUND
            for goal in goals
        )

    def _wall(self, name: int) -> Wall:
        units = int(self.net.shape[2])
        if name >= units:
            return Wall(-1, self.domain_rows[2][name - units])
        layer = int(np.searchsorted(self.net.first, name, side="right")) - 1
        return Wall(layer, name - int(self.net.first[layer]))

    def largest_ball(self, bits: NDArray[np.bool_]) -> tuple[float, Array]:
        """Radius and centre of a largest Euclidean ball in the cell, in inputs.

        The radius is infinite for a cell that holds balls of any size. Where the domain is flat in
        some coordinates the ball is, too.
        """
        from relunorm.compiled.simplex import workspace
        from relunorm.regions.kernels.facets import largest_ball

        rows, rhs, _ = self.rows(bits)
        w = self.window
        if w.homogeneous:
            return sparse_walls.largest_ball(*self.to_inputs(rows, rhs))
        free = w.embedding.any(axis=1)
        half = w.embedding[free].max(axis=1)
        unit = half.max()
        reach = lengths(rows * (unit / half))
        radius, t = largest_ball(rows, rhs, reach, *self.limits, workspace(w.dimension + 1))
        return float(radius * unit), self.window.points(t[None])[0]

    def corners(self, bits: NDArray[np.bool_], point: Array) -> Array:
        """The vertices of a cell, in inputs."""
        from relunorm.regions.kernels.corners import box_corners, clip_all

        compiling("the corners of a region")
        w = self.window
        if w.homogeneous:
            return self._corners_in_space(bits, point)
        if w.dimension > 12:
            raise InvalidInputError(
                f"vertices are listed up to 12 dimensions, the domain has {w.dimension}"
            )
        rows, rhs, _, _ = self.reduced(bits, point)
        if len(rhs) + 2 * w.dimension > WALLS:  # the clipping keeps a corner's walls in one word
            centre = self.to_window(self.largest_ball(bits)[1])
            return w.points(_corners_by_duality(rows, rhs, centre))
        start = box_corners(w.lo, w.hi)
        corners, _ = clip_all(*start, rows, rhs, 1e-13)
        return w.points(corners)

    @property
    def is_planar(self) -> bool:
        """Whether cells are polygons, and all of them bounded."""
        return self.window.dimension == 2 and not self.window.homogeneous

    def outlines(self, packed: NDArray[np.uint8]) -> tuple[Array, NDArray[np.int64]]:
        """The corners of many polygons, in inputs, and where each one's begin; see `outlines`."""
        from relunorm.regions.kernels.outlines import outlines

        compiling("the corners of regions")
        w = self.window
        corners, ptr = outlines(w.pack(self.network, by_columns=True), packed, w.corners)
        return w.points(corners), ptr

    def _corners_in_space(self, bits: NDArray[np.bool_], point: Array) -> Array:
        """Vertices of a possibly unbounded cell: those of a huge box cut by it, off the box."""
        from relunorm.regions.kernels.corners import box_corners, clip_all

        rows, rhs, _, _ = self.reduced(bits, point)
        A, b = self.to_inputs(rows, rhs)
        slack = b - A @ point
        scale = float(max(slack.max(initial=0.0), self.window.embedding[0, 0])) * 1e6
        d = len(point)
        box = Box.cube(d)
        corners, _ = clip_all(*box_corners(box.lo, box.hi), A, slack / scale, 1e-16)
        near = np.abs(corners).max(axis=1, initial=0.0) < 1 - 1e-6
        found = corners[near] * scale + point
        return self._polish(found, A, b)

    @staticmethod
    def _polish(corners: Array, A: Array, b: Array) -> Array:
        """Solve for each corner from the walls it lies on."""
        out = []
        for corner in corners:
            gap = np.abs(b - A @ corner)
            on = gap <= max(1e-6, 10 * float(np.sort(gap)[min(len(corner), len(gap)) - 1]))
            out.append(np.linalg.lstsq(A[on], b[on], rcond=None)[0])
        return np.array(out).reshape(len(out), A.shape[1])


def _corners_by_duality(rows: Array, rhs: Array, inside: Array) -> Array:
    """The vertices of {rows . t <= rhs}, bounded, as facets of the hull of its dual points."""
    from scipy.spatial import HalfspaceIntersection, QhullError

    try:
        found = HalfspaceIntersection(np.column_stack([rows, -rhs]), inside).intersections
    except QhullError as error:
        raise InvalidInputError(
            f"the vertices of a cell with {len(rhs)} walls were not found: it is too thin ({error})"
        ) from None
    # Where more walls than coordinates meet, a vertex comes up once for every simplex of them.
    _, first = np.unique(np.round(found, 11), axis=0, return_index=True)
    return found[np.sort(first)]


def hull_volume(corners: Array) -> float:
    """Volume of the convex hull of corners; exact up to rounding, also for slivers.

    The corners are first mapped to a round shape, by their extents (inputs differ in units) and
    then by their own principal axes, since Qhull refuses flat input.
    """
    from scipy.spatial import ConvexHull

    n, d = corners.shape
    if n <= d:
        return 0.0
    if d == 1:
        return float(np.ptp(corners))
    extents = np.ptp(corners, axis=0)
    if not extents.all():
        return 0.0
    centred = (corners - corners.mean(axis=0)) / extents
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    if spread[-1] <= 1e-14 * spread[0]:
        return 0.0
    round_shape = centred @ axes.T / spread
    return float(ConvexHull(round_shape).volume * np.prod(spread) * np.prod(extents))

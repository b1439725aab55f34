"""The regions of a network on a domain, as data: patterns, affine maps, shapes, neighbours."""

from __future__ import annotations

import io
import json
import operator
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.domain.documents import domain_from_dict
from relunorm.errors import InvalidInputError
from relunorm.io.archive import decode, encode
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.geometry import locate as relations
from relunorm.regions.geometry.polytopes import Cell, Geometry, hull_volume
from relunorm.regions.kernels.outlines import taken
from relunorm.regions.kernels.pack import ROUNDING, affine_maps
from relunorm.regions.search.window import depth_in_ball, open_window, point_in_ball

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: What a file of regions calls itself, and what it says of the search.
SCHEMA = "relunorm.regions.file/3"
KEPT = ("complete", "reason", "method", "hidden", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class Regions(Shown):
    """Every region found: maximal sets of constant hidden pattern with non-empty interior.

    Args:
        network: the network, linear stages multiplied out.
        domain: where it was searched; None is all of R^d.
        packed: patterns as ``np.packbits`` writes them, one row a region.
        points: a strictly interior point of each region, shape (n, d); for a ball, inside it, too.
        complete: whether the search ended by itself; if not, ``reason`` says what ended it.
        method: the engine that ran. seconds: how long, by the clock.
        hidden: how often a unit got one sign on a cell and took the other by more than rounding but
            less than the tolerance (1e-10 of the domain): cells that thin are not listed. 0 means
            that no cell was left out that rounding can tell from a wall; otherwise a smaller domain
            shows them.
    """

    network: Network
    domain: Domain | None
    packed: NDArray[np.uint8]
    points: Array
    stored_polygons: tuple[Array, NDArray[np.int64]] | None = None
    complete: bool = True
    reason: str = ""
    method: str = ""
    seconds: float = 0.0
    hidden: int = 0

    def __len__(self) -> int:
        return len(self.packed)

    def plot(self, ax: Axes | None = None) -> Figure:
        """The polygons of two inputs, or the graph of one; returns the figure."""
        from relunorm.regions.views.plot import plot_line, plot_regions

        if self.network.input_size == 1 and self.domain is not None:
            return plot_line(self.network, self.domain.bounding_box, ax=ax)
        if self.network.input_size > 2:
            raise InvalidInputError(
                f"a picture of regions needs two inputs, the network has {self.network.input_size};"
                " rn.on_plane gives the regions of a plane"
            )
        return plot_regions(self, ax=ax)

    def number(self, i: int) -> int:
        """A region's number counted from 0; negative ones count from the end, as in a list."""
        try:
            given = operator.index(i)
        except TypeError:
            raise InvalidInputError(f"region {i!r}: expected a whole number") from None
        n = len(self)
        if not -n <= given < n:
            raise InvalidInputError(
                f"region {given} does not exist; there are {n}"
                + (f", numbered 0 to {n - 1}" if n else "")
            )
        return given % n

    @cached_property
    def patterns(self) -> NDArray[np.bool_]:
        """Which units are active, shape (n, units). A unit that vanishes on a region is not."""
        return np.unpackbits(self.packed, axis=1, count=self.network.units).view(bool)

    def pattern(self, i: int) -> NDArray[np.bool_]:
        """The pattern of region i."""
        return np.unpackbits(self.packed[self.number(i)], count=self.network.units).view(bool)

    def affine(self, i: int | None = None) -> tuple[Array, Array]:
        """(A, c) with network(x) = A x + c on region i, eq. (10); all of them without i.

        Returns:
            A of shape (outputs, d) and c of shape (outputs,), with a leading axis without i.
        """
        if i is None:
            return self._maps
        if "_maps" in self.__dict__:
            A, c = self._maps
            return A[self.number(i)], c[self.number(i)]
        A, c = affine_maps(self.network, self.pattern(i)[None])
        return A[0], c[0]

    @cached_property
    def _maps(self) -> tuple[Array, Array]:
        return affine_maps(self.network, self.patterns)

    def interior_point(self, i: int) -> Array:
        """A strictly interior point of region i."""
        return self.points[self.number(i)]

    @cached_property
    def geometry(self) -> Geometry:
        """The machinery behind polytope, vertices, volume and inradius."""
        return Geometry(self.network, open_window(self.network, self.domain))

    def polytope(self, i: int) -> Cell:
        """Region i as {A x <= b}, redundant rows removed, each row named after its unit."""
        return self.geometry.cell(self.pattern(i), self.interior_point(i))

    def vertices(self, i: int) -> Array:
        """The corners of region i, in order around it in two dimensions.

        For a region of R^d that reaches infinity: the corners it has.
        """
        i = self.number(i)
        if self.stored_polygons is not None or "polygons" in self.__dict__:
            corners, ptr = self.polygons
            return corners[ptr[i] : ptr[i + 1]]
        return self._corners(i)

    def _corners(self, i: int) -> Array:
        corners = self.geometry.corners(self.pattern(i), self.points[i])
        return _around(corners) if corners.shape[1] == 2 else corners

    @cached_property
    def polygons(self) -> tuple[Array, NDArray[np.int64]]:
        """The corners of all regions in one array, and where each region's begin (and all end).

        Of two inputs in order around each region. What the search did not keep is computed for all
        regions at once where the domain is a part of the plane, else region by region.
        """
        if self.stored_polygons is not None:
            return self.stored_polygons
        if self.geometry.is_planar:
            corners, ptr = self.geometry.outlines(self.packed)
            if np.diff(ptr).all():
                return corners, ptr
            # Rounding may take a region that is hardly wider than the tolerance for none.
            parts = np.split(corners, ptr[1:-1])
        else:
            parts = [np.zeros((0, self.network.input_size))] * len(self)
        parts = [part if len(part) else self._corners(i) for i, part in enumerate(parts)]
        ptr = np.cumsum([0, *map(len, parts)]).astype(np.int64)
        return np.concatenate([np.zeros((0, self.network.input_size)), *parts]), ptr

    def volume(self, i: int | None = None) -> Any:
        """The volume of region i, or of all; infinite where a region reaches infinity.

        A domain with sides of length zero has volume zero; its regions are measured in the
        remaining coordinates.
        """
        if i is None:
            if self.stored_polygons is not None or self.geometry.is_planar:
                return _areas(*self.polygons, self._free)
            return np.array([self.volume(k) for k in range(len(self))])
        if self.domain is None and not self.is_bounded(i):
            return np.inf
        return hull_volume(self.vertices(i)[:, self._free])

    @property
    def _free(self) -> NDArray[np.intp]:
        if self.domain is None:
            return np.arange(self.network.input_size)
        return np.flatnonzero(self.domain.bounding_box.halfwidth > 0)

    def inradius(self, i: int) -> float:
        """Radius of a largest ball inside region i; infinite if it holds balls of any size."""
        return self.geometry.largest_ball(self.pattern(i))[0]

    def is_bounded(self, i: int) -> bool:
        """Whether region i is bounded; False only where the domain is all of R^d."""
        i = self.number(i)
        if self.domain is not None:
            return True
        return self.geometry.is_bounded(self.geometry.rows(self.pattern(i))[0])

    @cached_property
    def _index(self) -> relations.PatternIndex:
        return relations.PatternIndex(self.packed)

    def find(self, patterns: ArrayLike) -> NDArray[np.int64]:
        """Numbers of the regions with these patterns (rows of bool); -1 where there is none."""
        rows = np.atleast_2d(np.asarray(patterns, dtype=bool))
        if rows.shape[1] != self.network.units:
            raise InvalidInputError(
                f"patterns have {rows.shape[1]} bits, the network has {self.network.units} units"
            )
        return self._index.find(np.packbits(rows, axis=1))

    def locate(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """Numbers of the regions that hold the rows of ``inputs``; -1 outside the domain.

        A point on a wall goes to one of the regions that touch it. In a partial result, points of
        regions not found are -1, too.
        """
        return relations.locate(self, np.atleast_2d(np.asarray(inputs, dtype=np.float64)))

    def adjacency(self) -> sp.csr_array:
        """Which regions share a facet: a symmetric sparse bool matrix.

        Facets come from linear programmes and the region beyond each is looked up just across it:
        patterns that differ in one bit need not touch, since later layers fold (docs/errata.md).
        """
        return relations.adjacency(self)

    def layer(self, k: int) -> tuple[Regions, NDArray[np.int64]]:
        """The coarser partition after k layers, and for every region the coarse one holding it.

        Prop. 3, with Theta_k the configurations of M_{k+1}: the network of the result ends in the
        pre-activations of layer k + 1, which are affine on its regions.
        """
        layers = len(self.network.layers)
        if not 0 <= k <= layers:
            raise InvalidInputError(f"layer {k} of a network with {layers} hidden layers")
        ahead = self.network.output if k == layers else self.network.layers[k].affine
        network = self.network.replace(layers=self.network.layers[:k], output=ahead)
        bits = self.patterns[:, : network.units]
        packed = np.packbits(bits, axis=1)
        if not network.units:
            first, parents = np.zeros(min(1, len(self)), np.intp), np.zeros(len(self), np.intp)
        else:
            _, first, parents = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        shown = {"packed": packed[first], "points": self.points[first], "stored_polygons": None}
        coarse = replace(self, network=network, **shown, seconds=0.0)
        return coarse, parents.ravel().astype(np.int64)

    def merge_equal(self, tolerance: float = 1e-9) -> NDArray[np.int64]:
        """Labels of the connected unions of regions on which the network is one affine map.

        Neighbouring regions with equal (A, c), up to ``tolerance`` relative to their size, get one
        label; the number of labels counts "linear regions" in the sense of maximal affine pieces.
        """
        return relations.merge_equal(self, tolerance)

    def meeting_ball(self) -> Regions:
        """Only the regions whose interior meets the ball that is the domain, with points in it.

        Those that reach less than 1e-10 of the radius into it, but more than rounding, are counted
        as hidden.
        """
        ball = None if self.domain is None else self.domain.as_ball
        if ball is None:
            raise InvalidInputError(f"the domain is {self.domain!r}, not a ball")
        inside = ball.contains(self.points, -1e-9 * ball.reach) if len(self) else np.zeros(0, bool)
        points, hidden = self.points.copy(), self.hidden
        noise = ROUNDING * (1.0 + float(np.linalg.norm(ball.middle)) / (ball.reach or 1.0))
        for i in np.flatnonzero(~inside):
            rows, rhs, _ = self.geometry.rows(self.pattern(int(i)))
            sides = self.geometry.to_inputs(rows, rhs)
            found = point_in_ball(*sides, ball, points[i])
            if found is not None:
                inside[i], points[i] = True, found
            else:
                hidden += depth_in_ball(*sides, ball)[0] > noise
        return replace(self, points=points, hidden=int(hidden)).select(inside)

    def select(self, which: ArrayLike) -> Regions:
        """The regions a mask or a list of numbers picks."""
        index = np.arange(len(self))[np.asarray(which)]
        polygons = self.stored_polygons
        if polygons is not None:
            polygons = taken(*polygons, index)
        return replace(
            self, packed=self.packed[index], points=self.points[index], stored_polygons=polygons
        )

    def save(self, path: str | Path) -> None:
        """Write everything to an npz file; `load_regions` reads it."""
        network, arrays = encode(self.network, "float64")
        arrays["packed"], arrays["points"] = self.packed, self.points
        if self.stored_polygons is not None:
            arrays["corners"], arrays["corner_ptr"] = self.stored_polygons
        header = {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in KEPT},
            "domain": None if self.domain is None else self.domain.to_dict(),
            "network": network,
            "origin": self.network.origin,
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        try:
            Path(path).write_bytes(buffer.getvalue())
        except OSError as error:
            raise InvalidInputError(
                f"{path} cannot be written: {error.strerror or error}"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Counts and how they were found, JSON-safe; the arrays go to npz with `save`."""
        layers = [len(self.layer(k)[0]) for k in range(1, len(self.network.layers) + 1)]
        return {
            "schema": "relunorm.regions/1",
            "network": self.network.digest,
            "of": self.network.head.of,
            "domain": repr(self.domain) if self.domain is not None else "all",
            "regions": len(self),
            **entries(self, "complete reason method hidden seconds"),
            "regions_per_layer": layers,
        }

    def __repr__(self) -> str:
        where = "R^d" if self.domain is None else repr(self.domain)
        state = "" if self.complete else f", partial: {self.reason}"
        if self.hidden:
            state += ", cells thinner than 1e-10 of it left out"
        return f"Regions({len(self):,} on {where}, {self.method}, {self.seconds:.3g} s{state})"


def _around(corners: Array) -> Array:
    """Corners of a polygon in order; a region between parallel walls has none."""
    if not len(corners):
        return corners
    centre = corners.mean(axis=0)
    return corners[np.argsort(np.arctan2(*(corners - centre).T[::-1]))]


def _areas(corners: Array, ptr: NDArray[np.int64], free: NDArray[np.intp]) -> Array:
    """Shoelace formula around each polygon's first corner."""
    if len(ptr) == 1:
        return np.zeros(0)
    sizes = np.diff(ptr)
    flat = corners[:, free] - np.repeat(corners[ptr[:-1]][:, free], sizes, axis=0)
    after = np.arange(len(flat)) + 1
    after[ptr[1:] - 1] = ptr[:-1]
    x, y = flat.T
    return np.abs(np.add.reduceat(x * y[after] - x[after] * y, ptr[:-1])) / 2


def load_regions(path: str | Path) -> Regions:
    """Read what `Regions.save` wrote."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays["header"]))
        if header["schema"] != SCHEMA:
            raise InvalidInputError(f"{path}: schema {header['schema']!r} is not known")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, EOFError, TypeError, BadZipFile, zlib.error) as error:
        raise InvalidInputError(
            f"{path} is not a file of regions ({error}); write one with Regions.save"
        ) from None
    domain = header["domain"]
    return Regions(
        decode(header["network"], arrays.__getitem__, header["origin"]),
        None if domain is None else domain_from_dict(domain, str(path)),
        arrays["packed"],
        arrays["points"],
        (arrays["corners"], arrays["corner_ptr"]) if "corners" in arrays else None,
        **{name: header[name] for name in KEPT},
    )

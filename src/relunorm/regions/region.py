"""The linear region that holds a point (seed 003, section 3): configuration, map, polytope."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arithmetic.rounding import absolute
from relunorm.clock import Clock, Listener, Teller
from relunorm.display.shown import Shown
from relunorm.domain import Ball, Domain
from relunorm.domain.base import lengths, short
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.network.patterns import forms_under, slopes_under
from relunorm.regions.balance import balanced, folded
from relunorm.regions.geometry import sparse_walls
from relunorm.regions.geometry.atoms import Atoms, atoms_of
from relunorm.regions.geometry.locate import pattern_beyond
from relunorm.regions.geometry.polytopes import Cell, Geometry, Wall
from relunorm.regions.kernels.pack import ROUNDING, affine_maps, check_units
from relunorm.regions.search.window import open_window, point_in_ball

#: Above this many inputs, polytopes are computed by a general solver.
COMPILED_UP_TO = 24

#: A solver is not asked which of more rows than inputs are facets beyond so many rows times inputs.
FACET_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Region(Shown):
    """A maximal set of constant hidden pattern, and the affine map the network is on it.

    Args:
        network: the network, linear stages multiplied out.
        pattern: which units are active, shape (units,).
        x: the point asked for; it lies in the region or on its boundary.
        domain: what the region is cut with; None is all of R^d. A ball cuts by a polytope around
            it, so polytope, vertices and inradius are not cut by the sphere; the interior point
            lies inside the ball.
    """

    network: Network
    pattern: NDArray[np.bool_]
    x: Array
    domain: Domain | None = None

    @cached_property
    def configuration(self) -> tuple[NDArray[np.bool_], ...]:
        """theta, layer by layer."""
        cuts = np.cumsum([layer.width for layer in self.network.layers])
        return tuple(np.split(self.pattern, cuts[:-1])) if len(cuts) else ()

    @cached_property
    def supports(self) -> tuple[NDArray[np.intp], ...]:
        """spt theta_k: the active units of each layer."""
        return tuple(np.flatnonzero(theta) for theta in self.configuration)

    @cached_property
    def affine(self) -> tuple[Array, Array]:
        """(A, c) with network(x) = A x + c on the region, eq. (10)."""
        A, c = affine_maps(self.network, self.pattern[None])
        return A[0], c[0]

    @cached_property
    def polytope(self) -> Cell:
        """{x : A x <= b} with every row a facet, named after the unit that makes it.

        Costs about one small linear programme per unit; for large inputs with more units than
        inputs, one programme of a general solver each (some 20 ms with 1,000 units and 64 inputs;
        `reduced_polytope` takes a time limit). Where those would be thousands over a thousand
        inputs (`FACET_ENTRIES`) it is refused.
        """
        return self.reduced_polytope()

    def reduced_polytope(
        self, time_limit: float | Clock | None = None, progress: Listener | None = None
    ) -> Cell:
        """`polytope`, for at most so many seconds: rows not looked at by then stay.

        The cell is the same set; its ``complete`` says whether all redundant rows were removed.

        Args:
            time_limit: seconds, None for no limit. Up to `COMPILED_UP_TO` inputs none is needed.
            progress: called with a `Progress` of the rows looked at.
        """
        clock = Clock(time_limit)
        if self.network.input_size <= COMPILED_UP_TO:
            return self._geometry.cell(self.pattern, self.interior_point)
        return self._large_cell(clock, Teller(progress, clock))

    @cached_property
    def _ball(self) -> tuple[float, Array]:
        if self.network.input_size <= COMPILED_UP_TO:
            radius, centre = self._geometry.largest_ball(self.pattern)
        else:
            A, b, _ = self._rows
            radius, centre = sparse_walls.largest_ball(A, b) if len(b) else (np.inf, self.x)
        if radius == np.inf:
            # Any point well inside serves: one step along the way to larger and larger balls.
            centre = self._deep_point()
        return radius, centre

    def _deep_point(self) -> Array:
        A, b, _ = self._rows
        if not len(b):
            return self.x
        reach = 1.0 + np.abs(b - A @ self.x).max()
        d = len(self.x)
        box = np.concatenate([np.eye(d), -np.eye(d)])
        limits = np.concatenate([self.x + reach, reach - self.x])
        return sparse_walls.largest_ball(np.concatenate([A, box]), np.concatenate([b, limits]))[1]

    @property
    def _round_domain(self) -> Ball | None:
        return None if self.domain is None else self.domain.as_ball

    @property
    def inradius(self) -> float:
        """Radius of a largest ball inside; infinite if the region holds balls of any size."""
        return self._ball[0]

    @cached_property
    def interior_point(self) -> Array:
        """The centre of a largest ball inside (of some ball, where there is no largest).

        With a ball as the domain, that point or one on the way to it, inside the ball.
        """
        centre, ball = self._ball[1], self._round_domain
        if ball is None or ball.contains(centre)[0]:
            return centre
        A, b, _ = self._rows
        found = point_in_ball(A, b, ball, centre)
        if found is None:
            raise InvalidDomainError(
                f"the region at {short(self.x)} meets {self.domain!r} in less than 1e-10 of its "
                "radius: it has no interior point there. Choose x inside the ball"
            )
        return found

    @property
    def is_bounded(self) -> bool:
        """Whether the region is bounded."""
        return self.polytope.bounded

    def vertices(self) -> Array:
        """The corners of the region, up to twelve inputs."""
        if self.network.input_size > 12:
            raise InvalidInputError(
                f"vertices are listed up to 12 inputs, the network has {self.network.input_size}"
            )
        return self._geometry.corners(self.pattern, self.interior_point)

    def neighbors(self) -> list[tuple[Wall, Region]]:
        """The regions across the facets, each with the wall between.

        The wall's unit flips, and with it every unit that vanishes on the whole wall.
        """
        if self.network.input_size <= COMPILED_UP_TO:
            across = self._geometry.beyond(self.pattern, self.interior_point)
        else:
            across = self._beyond_large()
        return [
            (wall, Region(self.network, bits, middle, self.domain)) for wall, bits, middle in across
        ]

    def atoms(self) -> Atoms:
        """The rank-one atoms of the linear part and their coefficients (Theorem 5)."""
        return atoms_of(self)

    @cached_property
    def _geometry(self) -> Geometry:
        return Geometry(self.network, open_window(self.network, self.domain))

    @cached_property
    def _rows(self) -> tuple[Array, Array, list[Wall]]:
        """All half-spaces of unit length, in inputs, without the constant forms."""
        G, g = unit_forms(self.network, self.pattern)
        length = lengths(G)
        names = [
            Wall(k, i) for k, layer in enumerate(self.network.layers) for i in range(layer.width)
        ]
        use = np.flatnonzero(length > 0)
        sign = np.where(self.pattern[use], -1.0, 1.0) / length[use]
        rows, bounds = [G[use] * sign[:, None]], [-g[use] * sign]
        walls = [names[i] for i in use]
        if self.domain is not None:
            if self.domain.rows:
                A, b = self.domain.sides
                size = lengths(A)
                rows.append(A / size[:, None])
                bounds.append(b / size)
                walls += [Wall(-1, i) for i in range(len(size))]
            else:
                eye, box = np.eye(self.network.input_size), self.domain.bounding_box
                rows += [eye, -eye]
                bounds += [box.hi, -box.lo]
                walls += [Wall(-1, 2 * i + s) for s in (0, 1) for i in range(len(eye))]
        return np.concatenate(rows), np.concatenate(bounds), walls

    def _large_cell(self, clock: Clock, tell: Teller) -> Cell:
        units, size = self.network.units, self.network.input_size
        if units > size and units * size > FACET_ENTRIES:
            raise InvalidInputError(
                f"which of {units:,} units make walls would take as many linear programmes over "
                f"{size:,} inputs; pattern, configuration and affine are there without them. Look "
                "at the region on a plane (relunorm.on_plane) or along a line (relunorm.along)"
            )
        A, b, walls = self._rows
        own = sum(not wall.is_domain for wall in walls)
        inside = self._point_inside(clock.part(share=0.5))
        kept, at, complete = sparse_walls.facet_rows(A, b, inside, own, clock, tell)
        named = tuple(wall for wall, keep in zip(walls, kept, strict=True) if keep)
        bounded = self.domain is not None or sparse_walls.is_bounded(A[kept])
        return Cell(A[kept], b[kept], named, inside, at[kept], bounded, complete)

    def _point_inside(self, clock: Clock) -> Array:
        """`interior_point` or, where the clock ends the search for it, the point asked about."""
        if not clock.limited or "_ball" in self.__dict__:
            return self.interior_point
        A, b, _ = self._rows
        radius, centre = sparse_walls.largest_ball(A, b, clock) if len(b) else (np.inf, self.x)
        if np.isfinite(radius) and self._round_domain is None:
            return centre
        if (A @ self.x < b).all():
            return self.x
        return self.interior_point

    def _beyond_large(self) -> list[tuple[Wall, NDArray[np.bool_], Array]]:
        """What lies across each facet, read an infinitely small step across the facet's middle."""
        cell = self.polytope
        own = [k for k, wall in enumerate(cell.walls) if not wall.is_domain]
        beyond = pattern_beyond(self.network, cell.facet_points[own], cell.A[own])
        first = np.cumsum([0, *(layer.width for layer in self.network.layers)])
        for k, bits in zip(own, beyond, strict=True):
            if (bits == self.pattern).all():  # rounding left the point on this side of the wall
                wall = cell.walls[k]
                bits[first[wall.layer] + wall.index] ^= True
        return [
            (cell.walls[k], bits, cell.facet_points[k]) for k, bits in zip(own, beyond, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        A, c = self.affine
        return {
            "schema": "relunorm.region/1",
            "network": self.network.digest,
            "of": self.network.head.of,
            "x": self.x.tolist(),
            "configuration": [theta.astype(int).tolist() for theta in self.configuration],
            "active": [len(support) for support in self.supports],
            "A": A.tolist(),
            "c": c.tolist(),
        }

    def __repr__(self) -> str:
        active = ", ".join(f"{theta.sum()}/{len(theta)}" for theta in self.configuration)
        return f"Region(active units per layer: {active or 'none'})"


@accepts("network", domains=("domain",))
def region_at(network: Model, x: ArrayLike, domain: Place | None = None) -> Region:
    """The linear region that holds x.

    Where x lies on walls, one of the regions that touch it (the one an infinitely small step
    towards the domain's centre, or in a fixed generic direction, leads into).

    Args:
        network: relu or leaky units, any skips.
        x: one input.
        domain: a box or polytope to cut the region with; a ball cuts by a polytope around it (see
            `Region`); None leaves the region as it is in R^d.

    Exactness: the configuration and the map are exact up to float64 rounding.

    >>> from relunorm import Network
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> region = region_at(net, [-3.0])
    >>> region.pattern.tolist(), region.affine[0].tolist(), str(region.polytope.walls[0])
    ([False, True], [[-1.0]], 'unit 0:1')
    """
    network = folded(network)
    check_units(network)
    point = np.asarray(x, dtype=np.float64)
    if point.size != network.input_size:
        raise InvalidInputError(
            f"x has shape {point.shape}, expected one input of {network.input_size} numbers"
        )
    point = point.ravel()
    if not np.isfinite(point).all():
        raise InvalidInputError("x holds NaN or infinite entries")
    direction = np.random.default_rng(0).standard_normal(len(point))
    if domain is not None:
        domain.check_dimension(network.input_size)
        if not domain.flat_sided and domain.as_ball is None:
            raise InvalidDomainError(f"{domain!r}: region_at cuts with a box, polytope or ball")
        if not domain.contains(point, 1e-9 * domain.bounding_box.radius)[0]:
            raise InvalidInputError(f"x lies outside {domain!r}")
        width = domain.bounding_box.halfwidth
        direction = domain.center - point + 1e-3 * width * direction
    return Region(network, pattern_beyond(network, point[None], direction)[0], point, domain)


def unit_forms(network: Network, bits: NDArray[np.bool_]) -> tuple[Array, Array]:
    """(G, g): pre-activation_i(x) = G_i . x + g_i, times a power of two, under the pattern bits.

    The power of two is 1 in networks of ordinary size (`balanced`).

    Args:
        network: without linear stages.
        bits: shape (units,).

    Returns:
        G of shape (units, d) and g of shape (units,). Gradients that are only rounding are zero.
        Dense: units times d numbers; products use the stored (dense or sparse) matrices.
    """
    network = balanced(network)
    d = network.input_size
    sizes, rates = [np.zeros(d)], [np.ones(d)]  # of the constants, of the gradients
    kept = [np.zeros((0, d + 1))]
    slopes, forms = slopes_under(network.layers, bits), forms_under(network, bits)
    for layer, slope, form in zip(network.layers, slopes, forms, strict=False):
        G, g = form[:, :-1], form[:, -1]
        size = absolute(layer.affine, sizes)
        rate = absolute(layer.affine, rates, constant=False)
        flat = lengths(G) <= ROUNDING * rate
        none = flat & (np.abs(g) <= ROUNDING * (size + rate))
        kept.append(form.copy())
        kept[-1][flat, :-1] = kept[-1][none, -1] = 0.0
        sizes.append(np.where(none, size, np.abs(g)) * np.abs(slope))
        rates.append(np.where(flat, rate, np.abs(G).sum(axis=1)) * np.abs(slope))
    found = np.concatenate(kept)
    return found[:, :-1], found[:, -1]

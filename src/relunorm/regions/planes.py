"""The regions on a plane through a high-dimensional input space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.display.shown import Shown, entries
from relunorm.domain import Box, Domain, Polytope
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.io.border import Model, Place, accepts, as_rectangle
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.balance import folded, restricted
from relunorm.regions.enumerate import regions
from relunorm.regions.kernels.pack import packed_size
from relunorm.regions.partition import Regions
from relunorm.regions.search.window import clipped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: The copy of the weights that the search makes may take this many bytes.
PACKED_LIMIT = 4 << 30

#: Tangents that stand for a circle.
TANGENTS = 64


@dataclass(frozen=True, eq=False, repr=False)
class Slice(Shown):
    """A network on the plane x = origin + s u + t v, and its regions there.

    ``regions`` is a list like any other, of the network of two inputs (s, t); ``embed`` leads from
    (s, t) to inputs of the whole network, and ``coordinates`` back. ``marks`` are inputs with a
    name, ``classes`` what the outputs of a classifier stand for: both for the picture.
    """

    regions: Regions
    origin: Array
    u: Array
    v: Array
    marks: tuple[tuple[str, Array], ...] = ()
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.regions)

    def plot(self, ax: Axes | None = None) -> Figure:
        """The polygons on the plane, a classifier's by class, with marks; returns the figure."""
        from relunorm.regions.views.plot import plot_regions

        return plot_regions(self, ax=ax)

    def coordinates(self, inputs: ArrayLike) -> Array:
        """Rows (s, t) of inputs; of one beside the plane, those of the point nearest to it."""
        rows = np.atleast_2d(np.asarray(inputs, dtype=np.float64)) - self.origin
        return np.linalg.lstsq(np.stack([self.u, self.v]).T, rows.T)[0].T

    def embed(self, coordinates: ArrayLike) -> Array:
        """Inputs for rows (s, t)."""
        st = np.atleast_2d(np.asarray(coordinates, dtype=np.float64))
        return self.origin + st @ np.stack([self.u, self.v])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.slice/1",
            **entries(self, "origin u v regions classes"),
            "marks": [{"name": name, "at": at.tolist()} for name, at in self.marks],
        }

    def __repr__(self) -> str:
        return f"Slice({self.regions!r})"


@accepts("network", domains=("domain",))
def on_plane(
    network: Model,
    origin: ArrayLike,
    u: ArrayLike,
    v: ArrayLike,
    bounds: Box | Sequence[Any] = (-1.0, 1.0, -1.0, 1.0),
    domain: Place | None = None,
    marks: Mapping[str, ArrayLike] | None = None,
    **options: Any,
) -> Slice:
    """The regions of a network on a plane: exact polygons.

    Args:
        origin, u, v: inputs; the plane is origin + s u + t v.
        bounds: (s from, s to, t from, t to), or the same as two pairs, or a box of two coordinates.
        domain: only the part of the plane in this domain; a ball counts as 64 of its tangents.
        marks: inputs to mark in the picture, by what they are called.
        options: as for `regions` (max_regions, time_limit, workers, progress).

    >>> import numpy as np
    >>> from relunorm import Network
    >>> net = Network.from_weights([np.eye(3), np.ones((1, 3))])
    >>> len(on_plane(net, [0, 0, 0], [1, 0, 0], [0, 1, 1]))
    4
    """
    network = folded(network)
    size = network.input_size
    given = (("origin", origin), ("u", u), ("v", v))
    rows = [_one_input(name, vector, size) for name, vector in given]
    if np.linalg.matrix_rank(np.stack(rows[1:])) < 2:
        raise InvalidInputError("u and v are parallel; a plane needs two directions")
    need = 8 * sum(
        packed_size(matrix)
        for affine in network.maps
        for source, matrix in affine.terms.items()
        if source
    )
    if need > PACKED_LIMIT:
        raise InvalidInputError(
            f"clipping copies the weights, here {need / 2**30:.1f} GiB; use along for lines"
        )
    basis, seen = np.stack(rows[1:]).T, as_rectangle(bounds)
    where = seen if domain is None else part_on_plane(domain, rows[0], basis, seen)
    found = regions(restrict(network, basis, rows[0]), where, **options)
    named = tuple((name, _one_input(name, mark, size)) for name, mark in (marks or {}).items())
    classes = network.head.class_names(network.output_shape)
    return Slice(found, rows[0], rows[1], rows[2], named, classes)


def _one_input(name: str, values: ArrayLike, size: int) -> Array:
    row = np.asarray(values, dtype=np.float64).ravel()
    if len(row) != size or not np.isfinite(row).all():
        raise InvalidInputError(f"{name} is not one finite input of {size} numbers")
    return row


def part_on_plane(domain: Domain, origin: Array, basis: Array, seen: Box) -> Box | Polytope:
    """The part of a domain on the plane origin + basis @ (s, t), in (s, t), as far as it is seen.

    The rectangle itself where all of it is in the domain.
    """
    A, b, noise = _sides_on_plane(domain, origin, basis)
    (left, low), (right, high) = seen.lo, seen.hi
    corners = np.array([[left, low], [right, low], [right, high], [left, high]])
    cuts = []
    for k in range(len(b)):
        slack = b[k] - corners @ A[k]
        if len(corners) and slack.min() < -noise[k]:
            cuts.append(k)
            corners = clipped(corners, slack, noise[k])
    if not cuts:
        return seen
    if np.linalg.matrix_rank((corners - corners[:1]) / seen.halfwidth, tol=1e-9) < 2:
        raise InvalidDomainError(
            f"the plane, as far as it is seen, has no part with an area in {domain!r}; choose a "
            "larger domain, or none to see all of it"
        )
    square = np.concatenate([np.eye(2), -np.eye(2)])
    ends = np.concatenate([seen.hi, -seen.lo])
    return Polytope(np.concatenate([A[cuts], square]), np.concatenate([b[cuts], ends]))


def _sides_on_plane(domain: Domain, origin: Array, basis: Array) -> tuple[Array, Array, Array]:
    """A, b with A (s, t) <= b on a domain's part of a plane, and the rounding of each row."""
    ball = domain.as_ball
    if ball is not None:
        turn, length = np.linalg.qr(basis)
        away = ball.middle - origin
        middle = turn.T @ away
        room = ball.reach**2 - np.sum((away - turn @ middle) ** 2)
        angle = np.arange(TANGENTS) * (2 * np.pi / TANGENTS)
        out = np.column_stack([np.cos(angle), np.sin(angle)])
        # A plane that misses the ball has no room: the half-planes contradict each other.
        radius = np.sqrt(room) if room > 0 else -1.0
        b = out @ middle + radius
        return out @ length, b, 2.0**-50 * (abs(b) + ball.reach)
    if not domain.flat_sided:
        raise InvalidDomainError(
            f"{type(domain).__name__} is not a domain regions can be listed on; use Box, Polytope, "
            "Ball or None"
        )
    A, b = domain.sides
    return A @ basis, b - A @ origin, 2.0**-50 * (abs(b) + abs(A) @ abs(origin))


def restrict(network: Network, embedding: Array, offset: Array) -> Network:
    """The network on a plane, t -> network(embedding @ t + offset), without its head."""
    return restricted(network, embedding, offset).without_head()

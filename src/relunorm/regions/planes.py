"""The regions on a plane through a high-dimensional input space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.display.shown import Shown, entries
from relunorm.domain import Box
from relunorm.errors import InvalidInputError
from relunorm.io.border import Model, accepts, as_rectangle
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.balance import balanced
from relunorm.regions.enumerate import regions
from relunorm.regions.kernels.pack import packed_size
from relunorm.regions.partition import Regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: The copy of the weights that the search makes may take this many bytes.
PACKED_LIMIT = 4 << 30


@dataclass(frozen=True, eq=False, repr=False)
class Slice(Shown):
    """A network on the plane x = origin + s u + t v, and its regions there.

    ``regions`` is a list like any other, of the network of two inputs (s, t); ``embed`` leads from
    (s, t) to inputs of the whole network.
    """

    regions: Regions
    origin: Array
    u: Array
    v: Array

    def __len__(self) -> int:
        return len(self.regions)

    def plot(self, ax: Axes | None = None) -> Figure:
        """The polygons on the plane; returns the figure."""
        return self.regions.plot(ax)

    def embed(self, coordinates: ArrayLike) -> Array:
        """Inputs for rows (s, t)."""
        st = np.atleast_2d(np.asarray(coordinates, dtype=np.float64))
        return self.origin + st @ np.stack([self.u, self.v])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {"schema": "relunorm.slice/1", **entries(self, "origin u v regions")}

    def __repr__(self) -> str:
        return f"Slice({self.regions!r})"


@accepts("network")
def on_plane(
    network: Model,
    origin: ArrayLike,
    u: ArrayLike,
    v: ArrayLike,
    bounds: Box | Sequence[Any] = (-1.0, 1.0, -1.0, 1.0),
    **options: Any,
) -> Slice:
    """The regions of a network on a plane: exact polygons.

    Args:
        origin, u, v: inputs; the plane is origin + s u + t v.
        bounds: (s from, s to, t from, t to), or the same as two pairs, or a box of two coordinates.
        options: as for `regions` (max_regions, time_limit, workers, progress).

    >>> import numpy as np
    >>> from relunorm import Network
    >>> net = Network.from_weights([np.eye(3), np.ones((1, 3))])
    >>> len(on_plane(net, [0, 0, 0], [1, 0, 0], [0, 1, 1]))
    4
    """
    network = network.folded()
    size = network.input_size
    rows = []
    for name, vector in (("origin", origin), ("u", u), ("v", v)):
        row = np.asarray(vector, dtype=np.float64).ravel()
        if len(row) != size or not np.isfinite(row).all():
            raise InvalidInputError(f"{name} is not one finite input of {size} numbers")
        rows.append(row)
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
    found = regions(
        restrict(balanced(network), np.stack(rows[1:]).T, rows[0]), as_rectangle(bounds), **options
    )
    return Slice(found, *rows)


def restrict(network: Network, embedding: Array, offset: Array) -> Network:
    """The network on a plane, t -> network(embedding @ t + offset), without its head."""
    return network.restricted(embedding, offset).without_head()

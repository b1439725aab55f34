"""Relations between points, patterns and regions: which holds a point, which touch, which are one.

Rounding makes the sign of a pre-activation that vanishes meaningless, and many points of interest
(corners, facets, data on a grid) lie on walls. `pattern_beyond` therefore looks at x + e d for an
infinitely small e: signs of values first, of directional derivatives where values vanish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.balance import balanced
from relunorm.regions.kernels.pack import ROUNDING

if TYPE_CHECKING:
    from relunorm.regions.partition import Regions

#: Values below this share of what was summed up for them count as zero on a wall.
ON_WALL = 64 * ROUNDING


def pattern_beyond(network: Network, points: Array, directions: Array) -> NDArray[np.bool_]:
    """The pattern at x + e d for infinitely small e > 0, row by row.

    Returns:
        shape (n, units). A unit that vanishes at x and along d has bit 0.
    """
    network = balanced(network)
    directions = np.broadcast_to(directions, points.shape)
    values: list[Any] = [np.asarray(points, dtype=np.float64)]
    slopes: list[Any] = [np.asarray(directions, dtype=np.float64)]
    value_size, slope_size = [np.abs(values[0])], [np.abs(slopes[0])]
    bits = []
    for layer in network.layers:
        z, dz = layer.affine(values), layer.affine.linear(slopes)
        absolute = layer.affine.absolute()
        size, dsize = absolute(value_size), absolute.linear(slope_size)
        flat = np.abs(z) <= ON_WALL * size
        moving = np.abs(dz) > ON_WALL * dsize
        bit = np.where(flat, moving & (dz > 0), z > 0)
        bits.append(bit)
        below, above = layer.activation.slopes
        slope = np.where(bit, above, below)
        values.append(np.where(flat, 0.0, z) * slope)
        slopes.append(np.where(moving, dz, 0.0) * slope)
        # The size of what was added up, so that a value that is all rounding stays that.
        value_size.append(np.where(flat, size, np.abs(z)) * np.abs(slope))
        slope_size.append(np.where(moving, np.abs(dz), dsize) * np.abs(slope))
    return np.concatenate(bits, axis=1) if bits else np.zeros((len(points), 0), bool)


class PatternIndex:
    """Which region has a given pattern: a sorted list of packed bits."""

    def __init__(self, packed: NDArray[np.uint8]):
        keys = _keys(packed)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def find(self, packed: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Region numbers of packed patterns; -1 where there is none."""
        if not len(self._sorted):
            return np.full(len(packed), -1, np.int64)
        keys = _keys(packed)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1).astype(np.int64)


def _keys(packed: NDArray[np.uint8]) -> NDArray[Any]:
    """Rows of bytes as single comparable items (a byte in front, so that none is empty)."""
    padded = np.zeros((len(packed), packed.shape[1] + 1), np.uint8)
    padded[:, 1:] = packed
    padded[:, 0] = 1
    return padded.view(np.dtype((np.void, padded.shape[1]))).ravel()


#: Directions tried for points on walls, from the first generic one on.
TRIES = 12

#: Regions whose facets are looked at together; bounds memory.
CHUNK = 4096


def locate(found: Regions, inputs: Array) -> NDArray[np.int64]:
    """See `Regions.locate`."""
    d = found.network.input_size
    if inputs.ndim != 2 or inputs.shape[1] != d:
        raise InvalidInputError(f"inputs have shape {inputs.shape}, expected (n, {d})")
    where = np.full(len(inputs), -1, np.int64)
    todo = np.arange(len(inputs))
    if found.domain is not None:
        todo = todo[found.domain.contains(inputs, 1e-9 * found.domain.bounding_box.radius)]
    rng = np.random.default_rng(0)
    centre = np.zeros(d) if found.domain is None else found.domain.center
    free = np.ones(d) if found.domain is None else found.domain.bounding_box.halfwidth
    for attempt in range(TRIES):
        if not len(todo):
            break
        # Inwards first, slightly turned, so that points on the domain's boundary look inside.
        turn = rng.standard_normal(d) * free * (0.0 if found.domain is None else 1e-3 * 4**attempt)
        step = centre - inputs[todo] + turn
        if found.domain is None:
            step = np.broadcast_to(rng.standard_normal(d), (len(todo), d))
        bits = pattern_beyond(found.network, inputs[todo], step)
        where[todo] = found.find(bits)
        todo = todo[where[todo] < 0]
    return where


class Facets(NamedTuple):
    """Facets made by units, one a row: seen from region ``owner``, outwards."""

    owner: NDArray[np.int64]
    unit: NDArray[np.int64]
    at: Array  # a point on the facet, in inputs
    outward: Array  # the unit normal, in inputs
    beyond: NDArray[np.bool_]  # the pattern across


def facets(found: Regions, start: int = 0, stop: int | None = None) -> Facets:
    """All facets made by units of the regions ``start`` to ``stop``."""
    geometry, window = found.geometry, found.geometry.window
    some = slice(start, stop)
    owner, unit, at, normal, beyond = geometry.facets(found.patterns[some], found.points[some])
    outward, _ = geometry.to_inputs(normal, np.zeros(len(normal)))
    where = window.points(at) if len(at) else np.zeros((0, outward.shape[1]))
    return Facets(owner + start, unit, where, outward, beyond.astype(bool))


def adjacency(found: Regions) -> sp.csr_array:
    """See `Regions.adjacency`."""
    n = len(found)
    owners, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, n, CHUNK):
        part = facets(found, start, start + CHUNK)
        owners.append(part.owner)
        others.append(found.find(part.beyond))
    owner, beyond = np.concatenate(owners), np.concatenate(others)
    some = (beyond >= 0) & (beyond != owner)
    pairs = np.ones(int(some.sum()), bool)
    graph = sp.csr_array((pairs, (owner[some], beyond[some])), shape=(n, n))
    return sp.csr_array((graph + graph.T) > 0)


def merge_equal(found: Regions, tolerance: float) -> NDArray[np.int64]:
    """See `Regions.merge_equal`."""
    A, c = found.affine()
    graph = sp.coo_array(found.adjacency())
    i, j = graph.coords
    gap = np.abs(A[i] - A[j]).max(axis=(1, 2), initial=0.0)
    shift = np.abs(c[i] - c[j]).max(axis=1, initial=0.0)
    size = np.abs(A).max(initial=0.0), np.abs(c).max(initial=0.0)
    same = (gap <= tolerance * (size[0] or 1.0)) & (shift <= tolerance * (max(size) or 1.0))
    kept = sp.csr_array((np.ones(int(same.sum()), bool), (i[same], j[same])), shape=graph.shape)
    _, labels = sp.csgraph.connected_components(kept, directed=False)
    return labels.astype(np.int64)

"""From points to patterns to region numbers, also on walls.

Rounding makes the sign of a pre-activation that vanishes meaningless, and many points of interest
(corners, facets, data on a grid) lie on walls. `pattern_beyond` therefore looks at x + e d for an
infinitely small e: signs of values first, of directional derivatives where values vanish.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.network import Affine, Network
from relunorm.regions.balance import balanced
from relunorm.regions.kernels.tolerance import ROUNDING

#: Values below this share of what was summed up for them count as zero on a wall.
ON_WALL = 64 * ROUNDING


def pattern_beyond(
    network: Network, points: NDArray[np.float64], directions: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """The pattern at x + e d for infinitely small e > 0, row by row.

    Args:
        network: without linear stages.
        points: shape (n, d).
        directions: shape (n, d) or (d,).

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
        z, dz = layer.affine(values), _linear(layer.affine, slopes)
        size, dsize = _sizes(layer.affine, value_size), _sizes(layer.affine, slope_size, False)
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


def _linear(affine: Affine, slopes: list[Any]) -> NDArray[np.float64]:
    total = np.zeros((len(slopes[0]), affine.size))
    for source, matrix in affine.terms.items():
        total += slopes[source] @ matrix.T
    return total


def _sizes(affine: Affine, sizes: list[Any], constant: bool = True) -> NDArray[np.float64]:
    total = np.zeros((len(sizes[0]), affine.size))
    for source, matrix in affine.terms.items():
        total += sizes[source] @ (abs(matrix) if sp.issparse(matrix) else np.abs(matrix)).T
    return total + np.abs(affine.bias) if constant else total


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

"""Intervals of every entry of the Jacobian over a domain, from bounds on the units alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

Array = NDArray[np.float64]

#: Half the distance from 1 to the next float.
ROUNDOFF = 2.0**-53


def jacobian_interval(
    network: Network, bounds: Sequence[tuple[Vector, Vector]]
) -> tuple[Array, Array]:
    """Lower and upper bounds (outputs, inputs) on the Jacobian of every region.

    Backwards from the outputs: a unit whose sign is known has its slope, any other one the whole
    interval of its slopes; products and sums are rounded outward. Sound, and loose where many units
    change sign. Where a unit is 0 on a whole region its slope does not matter.

    Args:
        network: relu or leaky units.
        bounds: of the pre-activations, layer by layer; those of linear stages do not matter.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> low, high = jacobian_interval(net, [(np.array([-1.0, -2.0]), np.array([2.0, 1.0]))])
    >>> bool(abs(low[0, 0] + 1) < 1e-12 and abs(high[0, 0] - 1) < 1e-12)
    True
    """
    outputs = network.output_size
    widths = [network.input_size, *(layer.width for layer in network.layers)]
    low = [np.zeros((outputs, width)) for width in widths]
    high = [np.zeros((outputs, width)) for width in widths]
    one = np.eye(outputs)
    _pull(network.output, one, one, low, high)
    for index in range(len(network.layers) - 1, -1, -1):
        layer, (lo, hi) = network.layers[index], bounds[index]
        below, above = layer.activation.slopes
        first = np.where(lo >= 0, above, np.where(hi <= 0, below, min(below, above)))
        last = np.where(lo >= 0, above, np.where(hi <= 0, below, max(below, above)))
        ends = np.array([g * s for g in (low[index + 1], high[index + 1]) for s in (first, last)])
        lost = 2 * ROUNDOFF * np.abs(ends).max(axis=0)
        least, most = ends.min(axis=0), ends.max(axis=0)
        least = np.where(least >= 0, np.maximum(least - lost, 0.0), least - lost)
        most = np.where(most <= 0, np.minimum(most + lost, 0.0), most + lost)
        _pull(layer.affine, least, most, low, high)
    return low[0], high[0]


def _pull(affine: Affine, low: Array, high: Array, lows: list[Array], highs: list[Array]) -> None:
    """Add intervals times the rows of a map to the intervals of what it reads."""
    for source, matrix in affine.terms.items():
        dense = mx.dense(matrix)
        up, down = np.maximum(dense, 0.0), np.minimum(dense, 0.0)
        size = np.maximum(np.abs(low), np.abs(high)) @ np.abs(dense)
        before = np.maximum(np.abs(lows[source]), np.abs(highs[source]))
        lost = 4 * (len(dense) + 4) * ROUNDOFF * (size + before)
        # A sum without negative terms is not negative, however it is rounded.
        rising = (lows[source] >= 0) & (np.minimum(low, 0) @ up + np.maximum(high, 0) @ down == 0)
        falling = (highs[source] <= 0) & (np.maximum(high, 0) @ up + np.minimum(low, 0) @ down == 0)
        least = lows[source] + low @ up + high @ down - lost
        most = highs[source] + high @ up + low @ down + lost
        lows[source] = np.where(rising, np.maximum(least, 0.0), least)
        highs[source] = np.where(falling, np.minimum(most, 0.0), most)

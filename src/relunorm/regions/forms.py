"""Every unit's pre-activation as an affine form of the input, under one pattern."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain.base import lengths
from relunorm.network import Network
from relunorm.regions.balance import balanced
from relunorm.regions.tolerance import ROUNDING

Array = NDArray[np.float64]


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
    values: list[tuple[Array | None, Array]] = [(None, np.zeros(d))]
    sizes, rates = [np.zeros(d)], [np.ones(d)]  # of the constants, of the gradients
    kept_G, kept_g, begin = [], [], 0
    for layer in network.layers:
        G, g = np.zeros((layer.width, d)), layer.affine.bias.copy()
        size, rate = np.abs(g), np.zeros(layer.width)
        for source, matrix in layer.affine.terms.items():
            inner, shift = values[source]
            G += mx.dense(matrix) if inner is None else matrix @ inner
            g += matrix @ shift
            rate += abs(matrix) @ rates[source]
            size += abs(matrix) @ sizes[source]
        flat = lengths(G) <= ROUNDING * rate
        none = flat & (np.abs(g) <= ROUNDING * (size + rate))
        below, above = layer.activation.slopes
        slope = np.where(bits[begin : begin + layer.width], above, below)
        begin += layer.width
        kept_G.append(np.where(flat[:, None], 0.0, G))
        kept_g.append(np.where(none, 0.0, g))
        values.append((G * slope[:, None], g * slope))
        sizes.append(np.where(none, size, np.abs(g)) * np.abs(slope))
        rates.append(np.where(flat, rate, np.abs(G).sum(axis=1)) * np.abs(slope))
    if not kept_G:
        return np.zeros((0, d)), np.zeros(0)
    return np.concatenate(kept_G), np.concatenate(kept_g)

"""Form ``pow2``: every scale a power of two, so that no output bit changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

#: Binary exponents a scaled weight may have: the normal numbers of float32.
NORMAL = (-126, 127)

#: Factors beyond 2 to this are not used: their inverses would overflow.
LARGEST = 1000


def pow2(network: Network) -> Network:
    """Divide every hidden row by the power of two that brings its largest entry into [1/2, 1).

    Multiplying by a power of two is exact in binary floating point, and every matrix is stored as
    it was (a dense product sums in another order than a sparse one), so every output has the same
    bits as before, in float64 and in float32 alike, as long as no number on the way leaves the
    normal range. A unit whose weights, or those of whose readers, would leave that of float32 is
    left as it is.

    >>> net = pow2(Network.from_weights([[[3.0]], [[1.0]]], [[5.0], [0.0]]))
    >>> net.layers[0].affine.terms[0].item(), net.output.terms[1].item()
    (0.75, 4.0)
    """
    worth: dict[int, Vector] = {}
    layers = []
    for k, layer in enumerate(network.layers):
        affine = _read(layer.affine, worth)
        if layer.has_units:  # a linear stage has none; scaling it would change nothing
            factor = _factors(affine, *_columns(network, k + 1))
            affine = _divided(affine, factor)
            if layer.activation.kind != "step":
                worth[k + 1] = factor
        layers.append(replace(layer, affine=affine))
    return network.replace(layers=layers, output=_read(network.output, worth))


def _read(affine: Affine, worth: dict[int, Vector]) -> Affine:
    """The map with every value's columns multiplied by what its units were divided by."""
    terms = {
        k: mx.scale_columns(matrix, worth[k]) if k in worth else matrix
        for k, matrix in affine.terms.items()
    }
    return Affine(terms, affine.bias)


def _divided(affine: Affine, factor: Vector) -> Affine:
    terms = {k: mx.scale_rows(matrix, 1 / factor) for k, matrix in affine.terms.items()}
    return Affine(terms, affine.bias / factor)


def _factors(affine: Affine, least_read: Vector, most_read: Vector) -> Vector:
    least, most = _extremes(affine)
    exponent = np.where(np.isfinite(most), np.floor(np.nan_to_num(most, neginf=0.0)) + 1, 0.0)
    low = np.where(np.isfinite(least), least - exponent, 0.0)
    bias = np.log2(np.abs(affine.bias), out=np.zeros(affine.size), where=affine.bias != 0)
    moved = bias - np.where(affine.bias != 0, exponent, 0.0)
    # readers may be rescaled themselves by 2^60 either way before their entries leave the range
    safe = (np.minimum(low, moved) >= NORMAL[0]) & (moved < NORMAL[1])
    safe &= (least_read + exponent >= NORMAL[0] + 60) & (most_read + exponent < NORMAL[1] - 60)
    safe &= np.abs(exponent) <= LARGEST  # the factor and its inverse are normal numbers
    return 2.0 ** np.where(safe, exponent, 0.0)


def _extremes(affine: Affine) -> tuple[Vector, Vector]:
    """log2 of the smallest and largest non-zero magnitude of every row (inf, -inf if none)."""
    least, most = np.full(affine.size, np.inf), np.full(affine.size, -np.inf)
    for matrix in affine.terms.values():
        low, high = _logs(matrix)
        least, most = np.minimum(least, low), np.maximum(most, high)
    return least, most


def _columns(network: Network, value: int) -> tuple[Vector, Vector]:
    """The same for the columns through which a value is read; 0 where nothing reads it."""
    size = network.widths[value]
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    for affine in network.maps:
        if value in affine.terms:
            low, high = _logs(affine.terms[value].T)
            least, most = np.minimum(least, low), np.maximum(most, high)
    return np.where(np.isinf(least), 0.0, least), np.where(np.isinf(most), 0.0, most)


def _logs(matrix: Any) -> tuple[Vector, Vector]:
    entries: Any = sp.csr_array(matrix)
    rows = np.repeat(np.arange(entries.shape[0]), np.diff(entries.indptr))
    used = entries.data != 0
    logs = np.log2(np.abs(entries.data[used]))
    least, most = np.full(entries.shape[0], np.inf), np.full(entries.shape[0], -np.inf)
    np.minimum.at(least, rows[used], logs)
    np.maximum.at(most, rows[used], logs)
    return least, most

"""How far a float32 or float64 evaluation of a network can be from its exact value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from relunorm.forms.outward import Range, up
from relunorm.matrix import Vector
from relunorm.network import Affine, Network
from relunorm.stability.reach import Reach

#: Unit roundoff and the smallest normal number.
PRECISION = {"float32": (2.0**-24, 2.0**-126), "float64": (2.0**-53, 2.0**-1022)}


def evaluation_error(
    network: Network,
    ranges: Sequence[Range],
    reach: Reach,
    dtype: Literal["float32", "float64"],
) -> Vector:
    """A bound on |computed - exact| for every output, over the whole domain.

    Sums may be taken in any order. For float32 weights and inputs are rounded first, and that
    counts too. Per layer, with e the bound on what it reads and y the size of the values,

        e' = |W| e + g (|W| (y + e) + |b|),    g = gamma(terms + 2) + the rounding of W.

    A sound bound, usually far from tight.

    Args:
        ranges: sound pre-activation bounds, per layer.
    """
    unit, least = PRECISION[dtype]
    narrow = dtype == "float32"
    size = np.maximum(np.abs(reach.lo), np.abs(reach.hi))
    sizes, errors = [size], [unit * size + least if narrow else np.zeros(len(size))]
    for layer, span in zip(network.layers, ranges, strict=True):
        error = _map_error(layer.affine, sizes, errors, unit, least, narrow)
        below, above = layer.activation.slopes
        value = span.after(layer.activation).largest
        if layer.activation.kind == "step":
            crosses = (span.lo <= error) & (span.hi >= -error)
            error = np.where(crosses, max(1.0, abs(layer.activation.at_zero)), 0.0)
        else:
            error = max(abs(below), abs(above)) * error
            if layer.activation.kind == "leaky":
                error = error + 2 * unit * (value + error) + least
        sizes.append(value)
        errors.append(up(error, 8))
    return _map_error(network.output, sizes, errors, unit, least, narrow)


def _map_error(
    affine: Affine,
    sizes: Sequence[Vector],
    errors: Sequence[Vector],
    unit: float,
    least: float,
    narrow: bool,
) -> Vector:
    count = 2 + sum(m.shape[1] for m in affine.terms.values())
    if count * unit >= 0.5:
        return np.full(affine.size, np.inf)
    share = count * unit / (1 - count * unit) + (2 * unit if narrow else 0.0)
    carried, volume = np.zeros(affine.size), np.abs(affine.bias)
    for source, matrix in affine.terms.items():
        weight = abs(matrix)
        carried = carried + weight @ errors[source]
        volume = volume + weight @ (sizes[source] + errors[source])
    return up((1 + 2 * share) * carried + share * volume + count * least, count)

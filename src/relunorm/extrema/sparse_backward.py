"""Backward linear bounds on units of convolutional networks: coefficients stay sparse.

What `relaxation.backward` does for many boxes and dense rows, for one box and rows that reach a few
values each. A row becomes dense only when its receptive field has grown to a share of the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import Clock
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

#: Coefficients of so many entries, were they dense, are substituted at a time.
CHUNK = 1 << 21


def tightened(
    network: Network,
    affine: Affine,
    units: NDArray[np.intp],
    relaxed: Sequence[Any],
    box: tuple[Vector, Vector],
    slack: float,
    clock: Clock,
) -> tuple[NDArray[np.intp], Vector, Vector]:
    """Bounds on some units of a layer over one box, for as many as the clock leaves time for.

    Args:
        affine: the layer's map.
        relaxed: a `relaxation.Lines` for each earlier layer.
        slack: the share of the magnitudes by which a bound is moved outward.

    Returns:
        the units that were bounded, and their least and largest pre-activations.
    """
    step = max(1, CHUNK // (2 * max(network.widths)))
    lows, highs, done = [], [], 0
    for start in range(0, len(units), step):
        if clock.expired():
            break
        chosen = units[start : start + step]
        rows = {source: sp.csr_array(m[chosen]) for source, m in affine.terms.items()}
        both: dict[int, Any] = {k: sp.vstack([m, -m], format="csr") for k, m in rows.items()}
        bias = affine.bias[chosen]
        top = _upper(network, both, np.concatenate([bias, -bias]), relaxed, box, slack)
        highs.append(top[: len(chosen)])
        lows.append(-top[len(chosen) :])
        done += len(chosen)
    empty = np.zeros(0)
    return units[:done], np.concatenate([empty, *lows]), np.concatenate([empty, *highs])


def _upper(
    network: Network,
    held: dict[int, Any],
    constant: Vector,
    relaxed: Sequence[Any],
    box: tuple[Vector, Vector],
    slack: float,
) -> Vector:
    """Upper bounds on rows over values, by substituting lines back to the input."""
    weight = np.abs(constant)
    for index in range(len(network.layers) - 1, -1, -1):
        given = held.pop(index + 1, None)
        if given is None:
            continue
        slope, shift = _through(mx.compact(given), relaxed[index])
        affine = network.layers[index].affine
        constant = constant + shift + slope @ affine.bias
        weight += np.abs(shift) + abs(slope) @ np.abs(affine.bias)
        for source, matrix in affine.terms.items():
            part = slope @ matrix
            held[source] = mx.add(held[source], part) if source in held else part
    if 0 not in held:
        return constant + 100 * slack * weight
    center, half = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    form, size = held[0], abs(held[0])
    swing = size @ half
    bulk = weight + swing + size @ np.abs(center)
    return form @ center + swing + constant + 100 * slack * bulk


def _through(given: Any, line: Any) -> tuple[Any, Vector]:
    """Coefficients on values to coefficients on pre-activations, and the constant that adds."""
    upper, lower = line.upper_slope[0], line.lower_slope[0]
    if not sp.issparse(given):
        positive, negative = np.maximum(given, 0.0), np.minimum(given, 0.0)
        shift = positive @ line.upper_shift[0] + negative @ line.lower_shift[0]
        return positive * upper + negative * lower, shift
    data, at = given.data, given.indices
    slope = data * np.where(data > 0, upper[at], lower[at])
    shift = data * np.where(data > 0, line.upper_shift[0][at], line.lower_shift[0][at])
    parts = [
        sp.csr_array((entries, at, given.indptr), shape=given.shape) for entries in (slope, shift)
    ]
    return parts[0], np.asarray(parts[1].sum(axis=1)).ravel()

"""Two paired networks in flat arrays, as kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, gamma
from relunorm.compiled.groups import group
from relunorm.difference.pair import Pair

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@group
class Flat(NamedTuple):
    """Both networks in arrays: maps by target and source, one after the other."""

    start: Whole  # (layers + 2,), the first row of every map among all of them
    below: Array  # (layers,), slopes on the left of 0
    target: Whole  # (blocks,), which map
    source: Whole  # reads which layer (0 is the input)
    offset: Whole  # and where
    W: Array  # the numbers of all blocks, row by row
    V: Array
    D: Array
    b: Array  # (rows,)
    c: Array
    shift: Array  # c - b
    rounding: float  # what a sum of sizes 1 can be off by
    tiny: float  # more than underflow can lose


def flatten(pair: Pair) -> Flat:
    """Two paired networks in arrays."""
    blocks = [(k, s) for k, affine in enumerate(pair.maps) for s in affine.W]
    lengths = [pair.maps[k].W[s].size for k, s in blocks]
    W, V, D = (
        np.concatenate([np.empty(0), *(getattr(pair.maps[k], name)[s].ravel() for k, s in blocks)])
        for name in "WVD"
    )
    return Flat(
        np.cumsum([0, *(affine.size for affine in pair.maps)], dtype=np.int64),
        np.array(pair.below, dtype=np.float64),
        np.array([k for k, _ in blocks], dtype=np.int64),
        np.array([s for _, s in blocks], dtype=np.int64),
        np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        W,
        V,
        D,
        np.concatenate([affine.b for affine in pair.maps]),
        np.concatenate([affine.c for affine in pair.maps]),
        np.concatenate([affine.shift for affine in pair.maps]),
        gamma(pair.operations * (len(pair.maps) + 2) + 4),
        TINY,
    )

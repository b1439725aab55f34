"""Units that repeat another one: the same boundary and side, up to a positive factor."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.dying.diagnosis.unit_entries import UnitEntries
from relunorm.network import Affine


def duplicate_units(affine: Affine, units: UnitEntries) -> NDArray[np.int64]:
    """For every unit an earlier one that it repeats at all positions, or -1.

    Entries that are constant 0, as at a border, are equal; a unit of nothing else is no duplicate.
    """
    found, zero = _duplicates(affine)
    kind = np.where(found >= 0, found, np.arange(len(found)))
    kind[zero] = -1
    first: dict[bytes, int] = {}
    repeats = np.full(len(units.positions), -1, dtype=np.int64)
    for unit, entries in enumerate(units.entries()):
        if not zero[entries].all():
            earlier = first.setdefault(kind[entries].tobytes(), unit)
            repeats[unit] = earlier if earlier != unit else -1
    return repeats


def duplicates(affine: Affine, tolerance: float = 1e-10) -> NDArray[np.int64]:
    """For every row, an earlier row that is a positive multiple of it (bias included), or -1.

    Rows are scaled to length 1 and sorted by a random projection, which leaves runs of rows with
    nearly the same one. Each is compared in full with the first row of its run; those that differ
    form the runs of the next round. So a thousand copies cost one comparison each, and the whole is
    near-linear in the size of the matrix. Rows of zeros are never duplicates.
    """
    return _duplicates(affine, tolerance)[0]


def _duplicates(
    affine: Affine, tolerance: float = 1e-10
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The earlier rows, and which rows are zero."""
    blocks = [sp.csr_array(m) for m in affine.terms.values()]
    table = sp.csr_array(sp.hstack([*blocks, sp.csr_array(affine.bias[:, None])]))
    for length in (_largest, _euclidean):  # the first one keeps the squares of the second finite
        size = length(table)
        table = mx.scale_rows(table, 1 / np.where(size > 0, size, 1.0))
    shadow = table @ np.random.default_rng(0).standard_normal(table.shape[1])
    reach = tolerance * np.sqrt(table.shape[1]) * 4
    found = np.full(affine.size, -1, dtype=np.int64)
    left = np.flatnonzero(size)
    left = left[np.argsort(shadow[left], kind="stable")]
    while len(left):
        starts = np.flatnonzero(np.diff(shadow[left], prepend=-np.inf) > reach)
        first = np.repeat(np.minimum.reduceat(left, starts), np.diff(starts, append=len(left)))
        left, first = left[left != first], first[left != first]
        same = _largest(table[left] - table[first]) <= tolerance
        found[left[same]] = first[same]
        left = left[~same]
    return found, size == 0


def _largest(table: Any) -> NDArray[np.float64]:
    """max |entry| of every row."""
    if not table.shape[0]:
        return np.zeros(0)
    return np.asarray(abs(table).max(axis=1).todense()).ravel()


def _euclidean(table: Any) -> NDArray[np.float64]:
    return np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())

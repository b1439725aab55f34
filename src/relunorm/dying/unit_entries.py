"""The entries of a layer taken together as the units of the model it was read from.

A channel of a convolution, or a feature of a sequence, is one unit: its positions are so many more
samples of it, as for `DeadUnitMonitor`. The reader of the model recorded which entry is whose
(`Layer.unit_of`); without a record every entry is a unit. Units repeat one another where all
their entries do: the same boundary and side, up to a positive factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.network import Affine, Layer


@dataclass(frozen=True)
class UnitEntries:
    """Which entries of a layer belong to which unit.

    >>> two = UnitEntries(np.array([0, 0, 1, 1, -1]))
    >>> two.all_of(np.array([True, True, True, False, False])).tolist()
    [True, False]
    """

    unit_of: NDArray[np.int64]

    @classmethod
    def of_layer(cls, layer: Layer) -> UnitEntries:
        """As the reader recorded it."""
        return cls(np.arange(layer.width) if layer.unit_of is None else layer.unit_of)

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """How many entries each unit has."""
        return np.bincount(self.unit_of[self.unit_of >= 0])

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """The entries unit by unit; within one in their own order."""
        order = np.argsort(self.unit_of, kind="stable")
        return order[np.count_nonzero(self.unit_of < 0) :]

    def count_of(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Per unit, at how many of its entries the mask is set."""
        own = self.unit_of >= 0
        return np.bincount(self.unit_of[own & mask], minlength=len(self.positions))

    def all_of(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Per unit, whether the mask is set at all of its entries."""
        return self.count_of(mask) == self.positions

    def entries(self) -> list[NDArray[np.intp]]:
        """The entries of each unit."""
        return np.split(self._order, np.cumsum(self.positions)[:-1])

    def samples(self, rows: NDArray[Any]) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
        """Columns of samples for some units at a time, those with as many positions together."""
        starts = np.cumsum(self.positions) - self.positions
        for size in np.unique(self.positions[self.positions > 0]):
            units = np.flatnonzero(self.positions == size)
            picked = self._order[starts[units] + np.arange(size)[:, None]]
            yield units, rows[:, picked].reshape(-1, len(units))


def duplicate_units(affine: Affine, units: UnitEntries) -> NDArray[np.int64]:
    """For every unit an earlier one that it repeats at all positions, or -1.

    Entries that are constant 0, as at a border, are equal; a unit of nothing else is no duplicate.
    """
    found, zero = duplicates(affine)
    kind = np.where(found >= 0, found, np.arange(len(found)))
    kind[zero] = -1
    first: dict[bytes, int] = {}
    repeats = np.full(len(units.positions), -1, dtype=np.int64)
    for unit, entries in enumerate(units.entries()):
        if not zero[entries].all():
            earlier = first.setdefault(kind[entries].tobytes(), unit)
            repeats[unit] = earlier if earlier != unit else -1
    return repeats


def duplicates(
    affine: Affine, tolerance: float = 1e-10
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every row, an earlier row that is a positive multiple of it (bias included), or -1; and
    which rows are zero, which never are duplicates.

    Rows are scaled to length 1 and sorted by a random projection, which leaves runs of rows with
    nearly the same one. Each is compared in full with the first row of its run; those that differ
    form the runs of the next round. So a thousand copies cost one comparison each, and the whole is
    near-linear in the size of the matrix.
    """
    blocks = [sp.csr_array(m) for m in affine.terms.values()]
    table: Any = sp.csr_array(sp.hstack([*blocks, sp.csr_array(affine.bias[:, None])]))
    for length in (_largest, _euclidean):  # the first one keeps the squares of the second finite
        size = length(table)
        table: Any = mx.scale_rows(table, 1 / np.where(size > 0, size, 1.0))
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

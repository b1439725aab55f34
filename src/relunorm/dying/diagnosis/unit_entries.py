"""The entries of a layer taken together as the units of the model it was read from.

A channel of a convolution, or a feature of a sequence, is one unit: its positions are so many more
samples of it, as for `DeadUnitMonitor`. The reader of the model recorded which entry is whose
(`Layer.unit_of`); without a record every entry is a unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.network import Layer


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
        """Columns of samples for some units at a time, those with as many positions together.

        Args:
            rows: shape (n, entries).

        Yields:
            units, and an array of shape (n * positions, len(units)).
        """
        starts = np.cumsum(self.positions) - self.positions
        for size in np.unique(self.positions[self.positions > 0]):
            units = np.flatnonzero(self.positions == size)
            if size == 1 and len(units) == rows.shape[1]:
                yield units, rows[:, self._order] if (np.diff(self._order) < 0).any() else rows
                continue
            picked = self._order[starts[units] + np.arange(size)[:, None]]
            yield units, rows[:, picked].reshape(-1, len(units))

"""Equal points of a batch taken once: what a layer does to one, it does to the other.

A deep random network tears points apart that differ by rounding, and rounding differs between two
copies of a point. Merged, with their number as a weight in the statistics of the batch, they stay
equal at every depth without a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EqualPoints:
    """Which of n points are equal.

    Attributes:
        first: the first of each group of equal points, in the order of the batch.
        group: (n,) the group of each point.
        counts: how many points each group has, as floats.
    """

    first: NDArray[np.intp]
    group: NDArray[np.intp]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> EqualPoints:
        """Group the rows of an array that are equal in every entry.

        >>> EqualPoints.of(np.array([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0]])).counts
        array([2., 1.])
        """
        # 0.0 and -0.0 are one number
        _, first, group, counts = np.unique(
            rows + 0.0, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(first[order], place[group.reshape(-1)], counts[order].astype(np.float64))

    @property
    def merged(self) -> bool:
        """Whether any two points are equal."""
        return len(self.first) < len(self.group)

    def expand(self, array: NDArray[np.float64], *axes: int) -> NDArray[np.float64]:
        """An array with one entry per group along these axes, with one entry per point."""
        for axis in axes if self.merged else ():
            array = np.take(array, self.group, axis=axis)
        return array

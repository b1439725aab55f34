"""A column of text, such as names of classes, as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def is_label(cell: str) -> bool:
    """Whether a cell holds something: empty ones and nan are missing values."""
    return cell.strip().lower() not in ("", "nan")


@dataclass
class Labels:
    """Numbers for the labels of one column, in the order they are met.

    >>> labels = Labels("kind")
    >>> codes = labels.numbers(["oak", "ash", "oak"])
    >>> labels.sort(codes)
    (array([1., 0., 1.]), ('ash', 'oak'))
    """

    column: str
    seen: dict[str, int] = field(default_factory=dict)

    def number(self, cell: str) -> float:
        """The label's number; a missing value is an error as anywhere else."""
        label = cell.strip()
        if not is_label(label):
            raise ValueError(f"{cell!r} is no label")
        return float(self.seen.setdefault(label, len(self.seen)))

    def numbers(self, cells: Iterable[str]) -> NDArray[np.float64]:
        """The number of each label."""
        return np.array([self.number(cell) for cell in cells])

    def sort(self, y: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """The column with the labels numbered in sorted order, and the labels."""
        order = np.argsort(list(self.seen))  # order[k]: the number, as met, of the k-th label
        return np.argsort(order)[y.astype(np.intp)].astype(np.float64), tuple(sorted(self.seen))

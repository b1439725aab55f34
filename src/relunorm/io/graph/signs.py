"""Functions of a sign, which formats without a step activation write one with.

What depends on the sign of z alone is three numbers: where z < 0, where z = 0, where z > 0. So
relu(s) + v (1 - |s|) with s = sign(z) is 0, v and 1, and one step again, with no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relunorm.network.layer import Activation


@dataclass(frozen=True)
class Signs:
    """The values where something is negative, zero and positive, and the name of its layer.

    >>> s = Signs(-1.0, 0.0, 1.0)
    >>> size = s.through(Activation("relu")).scaled(2.0).plus(s.scaled(-1.0))
    >>> size.below, size.at, size.above
    (1.0, 0.0, 1.0)
    >>> Signs(0.0, 0.3, 1.0).steps()
    [(0.3, 1.0)]
    """

    below: float
    at: float
    above: float
    name: str = ""

    def scaled(self, factor: float) -> Signs:
        """All of it times a number."""
        return self._with(self._array * factor)

    def shifted(self, constant: float) -> Signs:
        """All of it plus a number."""
        return self._with(self._array + constant)

    def plus(self, other: Signs) -> Signs:
        """The sum with another function of the same sign."""
        return self._with(self._array + other._array)

    def through(self, activation: Activation) -> Signs:
        """What an activation makes of it."""
        return self._with(activation.apply_(self._array))

    def steps(self) -> list[tuple[float, float]]:
        """Step units by their value at 0, each with its weight; ``below`` is the constant."""
        low, high = self.at - self.below, self.above - self.at
        if (self.below, self.above) == (0.0, 1.0):
            return [(self.at, 1.0)]
        if low == high:
            return [(0.5, self.above - self.below)]
        return [(at, weight) for at, weight in ((0.0, high), (1.0, low)) if weight]

    @property
    def _array(self) -> np.ndarray:
        return np.array([self.below, self.at, self.above])

    def _with(self, values: np.ndarray) -> Signs:
        below, at, above = values.tolist()
        return replace(self, below=below, at=at, above=above)

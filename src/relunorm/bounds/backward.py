"""The one walk down a network: a linear bound of targets, pulled back from value to value.

Targets are at most ``value + sum over k of on[k] @ v_k``, a row each, v_k being the values of a
network and v_0 its input. From the last layer down, coefficients on act(z) are replaced by slopes
on z, which is the relaxation and the business of whoever walks; slopes on z = sum of W v + b are
replaced here by coefficients on the values that z reads. A layer may read any earlier value, so
coefficients on a value wait until everything behind it is replaced.

Numbers may be of any kind: rows dense or sparse, in double or single precision, or in fractions.
Of two networks side by side the differences d_k are values, too, and stand under ``~k``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import matmul
from typing import Any, TypeAlias

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic.floats import rounded_up, slack
from relunorm.matrix import Vector

Times: TypeAlias = Callable[[Any, Any], Any]


class LinearBound:
    """A linear bound on its way down to the input.

    Args:
        value: what does not depend on values any more.
        on: coefficients by value.
        times: products of slopes and the matrices of maps.
        size: what was added up so far, in absolute values. Whoever walks adds to it, and to
            ``lost`` what underflow can hide, where `safe` is asked for at the end.
    """

    def __init__(self, value: Any, on: dict[int, Any], times: Times = matmul, size: Any = 0.0):
        self.value, self.on, self.size, self.lost, self._times = value, on, size, 0.0, times

    def layers(self, index: int, first: int = 0) -> Iterator[tuple[int, Any]]:
        """From map ``index`` down to ``first``: every layer that counts, and the coefficients on
        its values, which are taken away."""
        for layer in range(index - 1, first - 1, -1):
            if layer + 1 in self.on:
                yield layer, self.on.pop(layer + 1)

    def pull(self, a: Any, bias: Any, terms: Mapping[int, Any], rest: Any = None) -> None:
        """Replace ``a @ z + rest`` by what z = sum of terms[k] v_k + bias reads."""
        self.value = self.value + (a @ bias if rest is None else rest + a @ bias)
        for source, matrix in terms.items():
            below = self._times(a, matrix)
            self.on[source] = mx.add(self.on[source], below) if source in self.on else below

    def safe(self, operations: int) -> Vector:
        """The value, at least what it is in real arithmetic after so many roundings."""
        result = rounded_up(self.value, slack(self.size, operations) + self.lost)
        return np.where(np.isnan(result), np.inf, result)

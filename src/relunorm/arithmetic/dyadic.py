"""Floats without rounding: integers times a power of two.

Every float is one, and so is every sum and product of floats; Python's integers hold them all.
About ten times as fast as `fractions.Fraction`, which looks for common divisors at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.matrix import Matrix

#: Bits of a float64's significand.
BITS = 53

#: A vector of Python's own numbers, whole ones or fractions.
Objects: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dyadic:
    """The vector ``whole * 2**exponent``, where ``whole`` holds Python integers."""

    whole: Objects
    exponent: int

    def shifted(self, exponent: int) -> Objects:
        """The integers of the same numbers over a smaller, or the same, exponent."""
        return self.whole << (self.exponent - exponent)

    def __add__(self, other: Dyadic) -> Dyadic:
        least = min(self.exponent, other.exponent)
        return Dyadic(self.shifted(least) + other.shifted(least), least)

    def __sub__(self, other: Dyadic) -> Dyadic:
        return self + Dyadic(-other.whole, other.exponent)

    def dot(self, other: Dyadic) -> Dyadic:
        """The scalar product, as a vector of one entry."""
        total = sum((self.whole * other.whole).tolist())
        return Dyadic(np.array([total], dtype=object), self.exponent + other.exponent)

    def fractions(self, denominator: int = 1) -> list[Fraction]:
        """The entries, divided by a whole number."""
        if self.exponent >= 0:
            return [Fraction(int(n) << self.exponent, denominator) for n in self.whole]
        return [Fraction(int(n), denominator << -self.exponent) for n in self.whole]


def dyadic(values: ArrayLike) -> Dyadic:
    """A vector of finite floats as it is.

    >>> x = dyadic([0.1, 0.2]).fractions()
    >>> x == [Fraction(0.1), Fraction(0.2)]
    True
    """
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64).ravel())
    whole = np.ldexp(mantissa, BITS).astype(np.int64)
    used = whole != 0
    least = int(exponent[used].min()) if used.any() else BITS
    shift = np.where(used, exponent - least, 0)
    return Dyadic(whole.astype(object) << shift.astype(object), least - BITS)


def product(matrix: Matrix, vector: Dyadic) -> Dyadic:
    """``matrix @ vector`` for a matrix of floats, dense or sparse."""
    ends, columns, values = mx.csr_parts(matrix)
    entries = dyadic(values)
    terms = (entries.whole * vector.whole[columns]).tolist()
    stops = ends.tolist()
    sums = [sum(terms[a:b]) for a, b in pairwise(stops)]
    return Dyadic(objects(sums), entries.exponent + vector.exponent)


def objects(numbers: Sequence[Any]) -> Objects:
    """Python's numbers as a vector that keeps them as they are."""
    array = np.empty(len(numbers), dtype=object)
    array[:] = numbers
    return array


def fractions(values: ArrayLike) -> Objects:
    """Finite floats as a vector of fractions."""
    return objects([Fraction(x) for x in np.asarray(values, dtype=np.float64).ravel().tolist()])

"""What float64 arithmetic can be wrong by, so that every bound here holds in real arithmetic.

A sum of n products computed in any order, with or without fused multiply-add, differs from the
true value by at most ``gamma(n) * sum |x_i| |y_i|`` with gamma(n) = n u / (1 - n u), u = 2^-53,
plus what underflow can lose (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 3.1). Each routine here adds up such magnitudes and widens its result once, at the end.
"""

from __future__ import annotations

import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNIT = 2.0**-53

#: The smallest positive float: what one product can lose to underflow, at most.
SMALLEST = 2.0**-1074

#: More than any number of underflowing products can lose, less than any bound that matters.
TINY = 2.0**-960


def gamma(operations: int) -> float:
    """A factor that covers ``operations`` roundings and the rounding of the magnitude itself.

    Twice the textbook value: the magnitude it multiplies is computed in floating point too.
    """
    return 2.0 * operations * UNIT / (1.0 - 2.0 * operations * UNIT)


def up(values: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    """Non-negative sums of so many terms, rounded up."""
    return values * (1 + 2 * gamma(terms + 4)) + TINY


def slack(magnitude: NDArray[np.float64], operations: int) -> NDArray[np.float64]:
    """How far a sum with these magnitudes and this many roundings can be from the true value."""
    return gamma(operations + 4) * magnitude + TINY


def rounded_up(value: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """A float at least ``value + error``, the sum taken in real arithmetic."""
    return np.nextafter(value + error, np.inf)


def rounded_down(value: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """A float at most ``value - error``, the difference taken in real arithmetic."""
    return np.nextafter(value - error, -np.inf)


def float_above(value: Fraction) -> float:
    """The smallest float that is at least a rational number; inf where there is none.

    >>> float_above(Fraction(1, 10)) >= Fraction(1, 10), float_above(Fraction(0))
    (True, 0.0)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_below(value: Fraction) -> float:
    """The largest float that is at most a rational number; -inf where there is none.

    >>> float_below(Fraction(1, 10)) <= Fraction(1, 10), float_below(Fraction(1, 10**400))
    (True, 0.0)
    """
    return -float_above(-value) + 0.0


def root_above(square: Fraction) -> float:
    """A float at least the square root of a rational number, and hardly more.

    >>> root_above(Fraction(25, 4)), root_above(Fraction(1, 2**2000)) == 2.0**-1000
    (2.5, True)
    """
    shift = square.denominator.bit_length() // 2 + 64
    whole = math.ceil(square * 4**shift)
    root = math.isqrt(whole)
    return float_above(Fraction(root + (root * root < whole), 2**shift))


def scaled_up(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded up: inf above float64, and 0 only for 0.

    >>> scaled_up(1.5, 2), scaled_up(1.0, 2000), scaled_up(1.0, -2000)
    (6.0, inf, 5e-324)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        less = np.ldexp(scaled, -exponent) < value
    return float(np.nextafter(scaled, np.inf) if less else scaled)


def scaled_down(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded down: above float64 the largest number it has.

    >>> scaled_down(1.5, 2), scaled_down(1.0, 2000), scaled_down(1.0, -2000)
    (6.0, 1.7976931348623157e+308, 0.0)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        more = np.ldexp(scaled, -exponent) > value or (np.isinf(scaled) and np.isfinite(value))
    return float(np.nextafter(scaled, 0.0) if more else scaled)


def grain(values: NDArray[np.float64], axis: int | None = None) -> NDArray[np.float64]:
    """The largest power of two that divides every number (inf where all are 0).

    Products and sums of numbers with grains g and h are multiples of g h; while they stay below
    2^53 g h every one of them is a float, so that no rounding happens at all.

    >>> float(grain(np.array([0.75, 2.0, 0.0])))
    0.25
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    with np.errstate(under="ignore"):
        low = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    low = np.where(values == 0, np.inf, low)
    return low.min(axis=axis, initial=np.inf)


def at_most(value: float, digits: int = 4) -> str:
    """A bound in so many digits, rounded up so that it still holds.

    >>> at_most(0.12341), at_most(2 / 3, 3), at_least(2 / 3, 3)
    ('0.1235', '0.667', '0.666')
    """
    return _shown(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 4) -> str:
    """What was found in so many digits, rounded down."""
    return _shown(value, digits, ROUND_FLOOR)


def _shown(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    shown = Context(prec=digits, rounding=rounding).create_decimal_from_float(float(value))
    return f"{float(shown):.{digits}g}"

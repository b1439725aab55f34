"""The one relaxation: lines above and below an activation on an interval l <= z <= u.

On one side of an open unit the line through both ends bounds it, the chord; on the other any line
through the kink with a slope between its sides does, a tangent. Which tangent is a choice: `tilt`
in [0, 1] places it, and the fixed rule takes the side that reaches further.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from relunorm.matrix import Array, Vector
from relunorm.network import Activation

#: Of floats in kernels: what a product can lose, relatively and to underflow.
EPS, TINY = 2.220446049250313e-16, 1e-300

# The next three are arithmetic on single numbers: `kernel` compiles them, and fractions stay exact.


def chord(below: Any, above: Any, low: Any, high: Any) -> Any:
    """Slope of the line through both ends of a unit with these slopes, low < 0 < high."""
    return (above * high - below * low) / (high - low)


def tangent(below: Any, above: Any, low: Any, high: Any) -> Any:
    """The fixed rule: the slope of the side that reaches further."""
    return above if high > -low else below


def relu_chord(low: Any, high: Any) -> Any:
    """Slope and shift of a line above max(z, 0) on [low, high], low < 0 < high, in floats.

    Any slope in [0, 1] will do; the shift is what it needs at the worse end, up to a rounding of
    s * high, which bounds cover with those of z itself.
    """
    s = high / (high - low)
    s = min(max(s, 0.0), 1.0)
    return s, max(-s * low, high - s * high) * (1.0 + 4.0 * EPS) + TINY


def relu_rise(s: Any, low: Any, high: Any) -> Any:
    """The shift that a line of slope s, 0 <= s <= 1, needs above max(z, 0), rounded up."""
    return max(-s * low, (1.0 - s) * high) * (1.0 + 4.0 * EPS) + TINY


@dataclass(frozen=True)
class Kink:
    """An activation as bounding sees it: slope below and above 0, and a jump for a step.

    ``act(z) = below * z`` for z < 0, ``above * z`` for z > 0; a step is 0, at_zero, 1 instead.
    """

    below: Any
    above: Any
    step: bool
    at_zero: Any = 0.0

    @classmethod
    def of(cls, activation: Activation) -> Kink:
        """Of the units of a layer."""
        return cls(*activation.slopes, activation.kind == "step", activation.at_zero)

    @property
    def exact(self) -> Kink:
        """The same in fractions: lines over ends that are fractions, too, are not rounded."""
        below, above, at_zero = (Fraction(float(x)) for x in (self.below, self.above, self.at_zero))
        return Kink(below, above, self.step, at_zero)

    @property
    def linear(self) -> bool:
        """No kink at all: an identity stage, or a leaky unit of slope 1."""
        return not self.step and self.below == self.above

    @property
    def gap(self) -> Any:
        """above - below: positive for a convex kink, negative for a concave one."""
        return self.above - self.below

    def image(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """The range of act over [lower, upper]; products round outwards."""
        if self.step:
            values = [
                np.where(upper > 0, 1.0, -np.inf),
                np.where(lower < 0, 0.0, -np.inf),
                np.where((lower <= 0) & (upper >= 0), self.at_zero, -np.inf),
            ]
            lows = [np.where(np.isinf(v), np.inf, v) for v in values]
            return np.minimum.reduce(lows), np.maximum.reduce(values)
        ends = [self._at(lower), self._at(upper)]
        lows = highs = ends
        if self.below not in (0.0, 1.0, -1.0):  # a product that underflows to 0 is no 0
            sharp = [lower == 0, upper == 0]
            lows, highs = (
                [np.where(s, e, np.nextafter(e, way)) for s, e in zip(sharp, ends, strict=True)]
                for way in (-np.inf, np.inf)
            )
        inside = (lower < 0) & (upper > 0)
        low, high = np.minimum(*lows), np.maximum(*highs)
        return (
            np.where(inside, np.minimum(low, 0.0), low),
            np.where(inside, np.maximum(high, 0.0), high),
        )

    def _at(self, z: Vector) -> Vector:
        return np.where(z > 0, self.above * z, self.below * z)


def slope(
    kink: Kink,
    lam: Array,
    lower: Array,
    upper: Array,
    tilt: Array | None = None,
    offset: Array | None = None,
) -> Array:
    """The slope a of each unit: chord where lam * act is convex, tangent between where concave."""
    if kink.linear:
        a = lam * kink.above
    elif kink.step:
        a = np.zeros_like(lam)
    else:
        share = default_tilt(lower, upper) if tilt is None else fixed_sides(tilt, lower, upper)
        line = kink.below + share * kink.gap
        a = lam * np.where(lam * kink.gap > 0, chord_slope(kink, lower, upper), line)
    return a if offset is None else a + offset


def chord_slope(kink: Kink, lower: Array, upper: Array) -> Array:
    """`chord` of every unit, or the only side there is."""
    top, bottom = np.maximum(upper, 0.0), np.minimum(lower, 0.0)
    width = top - bottom
    share = np.where(width > 0, top / np.where(width > 0, width, 1.0), 0.0)
    return kink.below + fixed_sides(share, lower, upper) * kink.gap


def fixed_sides(share: Array, lower: Array, upper: Array) -> Array:
    """``share`` where the sign is open, 1 where z >= 0 and 0 where z <= 0 for sure."""
    zero, one = _zero_one(lower)
    return np.where(upper <= 0, zero, np.where(lower >= 0, one, share))


def _zero_one(like: Array) -> tuple[Any, Any]:
    """0 and 1: whole for fractions, which a float would round, else floats, which need no cast."""
    return (0, 1) if like.dtype.kind == "O" else (0.0, 1.0)


def default_tilt(lower: Array, upper: Array) -> Array:
    """`tangent` of every unit, as a share of the way between its sides; the only side there is."""
    return (upper > -lower).astype(upper.dtype)


def remainder(kink: Kink, lam: Array, a: Array, lower: Array, upper: Array) -> Array:
    """c = max over [l, u] of lam * act(z) - a z: at an end or at the kink."""
    if kink.linear:
        rest = lam * kink.above - a
        return np.maximum(rest * lower, rest * upper)
    zero, _ = _zero_one(lower)
    if kink.step:
        left, right = np.minimum(upper, zero), np.maximum(lower, zero)
        ends = [
            np.where(lower < 0, np.maximum(-a * lower, -a * left), -np.inf),
            np.where(upper > 0, lam + np.maximum(-a * right, -a * upper), -np.inf),
            np.where((lower <= 0) & (upper >= 0), lam * kink.at_zero, -np.inf),
        ]
        return np.maximum.reduce(ends)
    left, right = lam * kink.below - a, lam * kink.above - a
    at_lower = np.where(lower < 0, left, right) * lower
    at_upper = np.where(upper > 0, right, left) * upper
    ends = np.maximum(at_lower, at_upper)
    return np.where((lower < 0) & (upper > 0), np.maximum(ends, zero), ends)


@dataclass(frozen=True, eq=False)
class Lines:
    """``below * z + drop <= act(z) <= above * z + rise`` for every unit, by the fixed rule."""

    above: Vector
    rise: Vector
    below: Vector
    drop: Vector


def lines(kink: Kink, lower: Vector, upper: Vector) -> Lines:
    """The lines of units over their intervals."""
    one = np.ones_like(lower)
    above, below = slope(kink, one, lower, upper), -slope(kink, -one, lower, upper)
    rise = remainder(kink, one, above, lower, upper)
    return Lines(above, rise, below, -remainder(kink, -one, -below, lower, upper))

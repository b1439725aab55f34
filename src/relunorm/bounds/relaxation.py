"""The one relaxation: lines above and below an activation on an interval l <= z <= u.

On one side of an open unit the line through both ends bounds it, the chord; on the other any line
through the kink with a slope between its sides does, a tangent. Which tangent is a choice: `tilt`
in [0, 1] places it, and the fixed rule takes the side that reaches further.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relunorm.matrix import Array, Vector


@dataclass(frozen=True)
class Kink:
    """An activation as bounding sees it: slope below and above 0, and a jump for a step.

    ``act(z) = below * z`` for z < 0, ``above * z`` for z > 0; a step is 0, at_zero, 1 instead.
    """

    below: float
    above: float
    step: bool
    at_zero: float = 0.0

    @property
    def linear(self) -> bool:
        """No kink at all: an identity stage, or a leaky unit of slope 1."""
        return not self.step and self.below == self.above

    @property
    def gap(self) -> float:
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
        chord = chord_slope(kink, lower, upper)
        share = default_tilt(lower, upper) if tilt is None else tilt
        tangent = kink.below + fixed_sides(share, lower, upper) * kink.gap
        a = lam * np.where(lam * kink.gap > 0, chord, tangent)
    return a if offset is None else a + offset


def chord_slope(kink: Kink, lower: Array, upper: Array) -> Array:
    """Slope of the line through (l, act(l)) and (u, act(u)), or of the only side there is."""
    top, bottom = np.maximum(upper, 0.0), np.minimum(lower, 0.0)
    width = top - bottom
    share = np.where(width > 0, top / np.where(width > 0, width, 1.0), 0.0)
    return kink.below + fixed_sides(share, lower, upper) * kink.gap


def fixed_sides(share: Array, lower: Array, upper: Array) -> Array:
    """``share`` where the sign is open, 1 where z >= 0 and 0 where z <= 0 for sure."""
    return np.where(upper <= 0, 0.0, np.where(lower >= 0, 1.0, share))


def default_tilt(lower: Array, upper: Array) -> Array:
    """The fixed rule: the tangent of the side that reaches further."""
    return np.where(upper > -lower, 1.0, 0.0)


def remainder(kink: Kink, lam: Array, a: Array, lower: Array, upper: Array) -> Array:
    """c = max over [l, u] of lam * act(z) - a z: at an end or at the kink."""
    if kink.linear:
        rest = lam * kink.above - a
        return np.maximum(rest * lower, rest * upper)
    if kink.step:
        ends = [
            np.where(lower < 0, np.maximum(-a * lower, -a * np.minimum(upper, 0.0)), -np.inf),
            np.where(upper > 0, lam + np.maximum(-a * np.maximum(lower, 0.0), -a * upper), -np.inf),
            np.where((lower <= 0) & (upper >= 0), lam * kink.at_zero, -np.inf),
        ]
        return np.maximum.reduce(ends)
    left, right = lam * kink.below - a, lam * kink.above - a
    at_lower = np.where(lower < 0, left, right) * lower
    at_upper = np.where(upper > 0, right, left) * upper
    ends = np.maximum(at_lower, at_upper)
    return np.where((lower < 0) & (upper > 0), np.maximum(ends, 0.0), ends)


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

"""Convex polygons in rational numbers, and linear bounds over them and over boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.bounds.linear import linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.domain import Box
from relunorm.domain.reach import Reach
from relunorm.matrix import Vector
from relunorm.network import Affine, Network
from relunorm.stability.bound_replay import rule_bounds

Point = tuple[Fraction, Fraction]
#: Corners in order; none for the empty set.
Polygon = list[Point]


def rectangle(low: Sequence[Any], high: Sequence[Any]) -> Polygon:
    """The corners of a box with two sides."""
    (a, b), (c, d) = ([Fraction(v) for v in ends] for ends in (low, high))
    return [(a, b), (c, b), (c, d), (a, d)]


def clip(polygon: Polygon, normal: Sequence[int], offset: Fraction | int) -> Polygon:
    """The part with ``normal . p >= offset``, exactly (Sutherland and Hodgman, 1974)."""
    result: Polygon = []
    heights = [normal[0] * p[0] + normal[1] * p[1] - offset for p in polygon]
    for k, (p, h) in enumerate(zip(polygon, heights, strict=True)):
        q, other = polygon[k - 1], heights[k - 1]
        if (h >= 0) != (other >= 0):
            share = other / (other - h)
            result.append((q[0] + share * (p[0] - q[0]), q[1] + share * (p[1] - q[1])))
        if h >= 0:
            result.append(p)
    return list(dict.fromkeys(result))


@dataclass(frozen=True, eq=False)
class PolygonReach(Reach):
    """A polygon as the bounds see it: its corners, each rounded to the nearest floats."""

    corners: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def operations(self) -> int:
        """Roundings in one value of `support_upper`, those of the corners included."""
        return 2 * self.size + 16

    def support_upper(self, rows: Any, multipliers: Any = None) -> tuple[Vector, Vector]:
        """max c.x over the corners for every row c, and the magnitude its error scales with."""
        del multipliers
        return (rows @ self.corners.T).max(axis=1), np.abs(rows) @ self.span


def reach_of_polygon(polygon: Polygon, powers: Sequence[int]) -> PolygonReach:
    """The reach of a polygon whose coordinates are in units of 2^-power."""
    units = [Fraction(2) ** -int(power) for power in powers]
    corners = np.array([[float(p[0] * units[0]), float(p[1] * units[1])] for p in polygon])
    lo = np.nextafter(corners.min(axis=0), -np.inf)
    hi = np.nextafter(corners.max(axis=0), np.inf)
    return PolygonReach(Box(lo, hi), lo, hi, None, corners)


def output_bounds(network: Network, reach: Reach) -> tuple[Vector, Vector, Bounds]:
    """Bounds of the outputs, and of all values, by the fixed linear rule: without a solver."""
    problem = Problem(network, reach)
    bounds = Bounds(problem)
    for index in range(len(network.layers) + 1):
        lower, upper = rule_bounds(problem, bounds, index, every=index == len(network.layers))
        if index == 0:  # the rule's intervals are those of the box around the polygon
            rows, ones = np.arange(len(lower)), np.ones(len(lower))
            upper = np.minimum(upper, linear_upper(problem, bounds, 0, rows, ones))
            lower = np.maximum(lower, -linear_upper(problem, bounds, 0, rows, -ones))
        if index < len(network.layers):
            bounds.append(lower, upper)
    return lower, upper, bounds


def apart(network: Network, slope: NDArray[np.float64], constant: Vector, reach: Reach) -> Vector:
    """A bound of ``|network(x) - (slope x + constant)|`` for every output, over a reach.

    The numbers of the affine map may be rounded to the nearest floats.
    """
    terms = dict(network.output.terms)
    old = mx.dense(terms[0]) if 0 in terms else np.zeros_like(slope)
    bias = network.output.bias - constant
    rest = network.replace(output=Affine({**terms, 0: old - slope}, bias))
    # what forming these numbers rounded
    size = (np.abs(old) + np.abs(slope)) @ reach.span + np.abs(network.output.bias)
    lost = 2.0**-50 * (size + np.abs(constant)) + 2.0**-1000
    lower, upper, _ = output_bounds(rest, reach)
    return np.nextafter(np.maximum(-lower, upper) + lost, np.inf)

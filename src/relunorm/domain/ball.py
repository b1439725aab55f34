"""Euclidean balls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain.base import (
    LARGEST,
    UNDERFLOW,
    Domain,
    RandomState,
    check_count,
    ends_outward,
    lengths,
    rounding,
    short,
    vector,
)
from relunorm.domain.box import Box
from relunorm.dyadic import dyadic
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector


@dataclass(frozen=True, eq=False, init=False)
class Ball(Domain):
    """All x within ``reach`` of ``middle``, in the Euclidean norm.

    Note the two radii: ``Ball(center, radius).reach`` is the ball's own radius, while ``.radius``
    is X_B = sup |x|, as for every domain. They agree for a ball around 0.
    """

    middle: Vector
    reach: float

    def __init__(self, center: ArrayLike, radius: float):
        try:
            reach = float(radius)
        except (TypeError, ValueError):
            raise InvalidDomainError(f"the radius is {radius!r}, expected one number") from None
        if not (0 <= reach <= LARGEST):
            raise InvalidDomainError(
                f"the ball has radius {reach:g}, expected one between 0 and {LARGEST:g}"
            )
        object.__setattr__(self, "middle", vector(center, "the centre"))
        object.__setattr__(self, "reach", reach)

    @property
    def dimension(self) -> int:
        return len(self.middle)

    @property
    def center(self) -> Vector:
        return self.middle

    @cached_property
    def bounding_box(self) -> Box:
        return Box(*ends_outward(self.middle, self.reach))

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> NDArray[np.float64]:
        along = self._directions(directions)
        norms = np.linalg.norm(along, axis=1, keepdims=True)
        step = along / np.where(norms > 0, norms, 1.0)
        return self.middle + self.reach * (1 - 1e-12) * step

    @property
    def numbers(self) -> tuple[NDArray[np.float64], ...]:
        return self.middle, np.array([self.reach])

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        mid = rows @ self.middle
        swing = self.reach * lengths(rows)
        return mid - swing, mid + swing

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        return lengths(rows - self.middle) <= self.reach + tolerance

    def _holds(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """|x - middle|^2 <= reach^2, in whole numbers where lengths in float64 are too close."""
        far, unsure = lengths(rows - self.middle), rounding(self.dimension)
        inside = far * (1 + unsure) + UNDERFLOW < self.reach
        reach = dyadic([self.reach])
        for i in np.flatnonzero(~inside & ~(far * (1 - unsure) - UNDERFLOW > self.reach)):
            shift = dyadic(rows[i]) - dyadic(self.middle)
            inside[i] = (reach.dot(reach) - shift.dot(shift)).whole[0] >= 0
        return inside

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        count = check_count(count)
        rng = np.random.default_rng(random_state)
        steps = rng.standard_normal((count, self.dimension))
        size = np.linalg.norm(steps, axis=1, keepdims=True)
        shrink = rng.random((count, 1)) ** (1 / self.dimension)
        return self.middle + self.reach * shrink * steps / np.maximum(size, 1e-300)

    @property
    def radius(self) -> float:
        return float(lengths(self.middle[None])[0] + self.reach)

    def __repr__(self) -> str:
        return f"Ball({short(self.middle)}, {self.reach:g})"

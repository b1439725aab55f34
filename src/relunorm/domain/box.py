"""Boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain.base import (
    Domain,
    RandomState,
    check_count,
    lengths,
    numbers,
    short,
    sign,
    vector,
)
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """All x with lo <= x <= hi, coordinate by coordinate. A side may have length zero.

    >>> Box([-1, 0], [1, 2]).support([1.0, 1.0])
    (array([-1.]), array([3.]))
    """

    kind: ClassVar = "box"
    fields: ClassVar = {"lo": 1, "hi": 1}

    lo: Vector
    hi: Vector

    def __post_init__(self) -> None:
        lo, hi = vector(self.lo, "lo"), vector(self.hi, "hi")
        if lo.shape != hi.shape:
            raise InvalidDomainError(f"lo has {len(lo)} coordinates and hi has {len(hi)}")
        if wrong := np.flatnonzero(lo > hi).tolist():
            i = wrong[0]
            raise InvalidDomainError(
                f"the box is empty: lo > hi at coordinate {i} ({lo[i]:g} > {hi[i]:g})"
            )
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)

    @classmethod
    def cube(cls, dimension: int, lo: float = -1.0, hi: float = 1.0) -> Box:
        """The box [lo, hi]^dimension."""
        if not isinstance(dimension, int | np.integer) or dimension < 1:
            raise InvalidDomainError(f"dimension {dimension!r}, expected a whole number >= 1")
        return cls(np.full(dimension, float(lo)), np.full(dimension, float(hi)))

    @classmethod
    def around(cls, points: ArrayLike, margin: float = 0.0) -> Box:
        """The smallest box around data, each side widened by ``margin`` times its length.

        Args:
            points: shape (n, d), or (n, *shape) for images, flattened in C order.
        """
        dense = getattr(points, "toarray", lambda: points)()  # of scipy.sparse
        rows = numbers(dense, "the data")
        if rows.ndim < 2 or not rows.size:
            raise InvalidDomainError(
                f"data of shape {rows.shape}: expected (n, d), both at least 1"
            )
        rows = rows.reshape(len(rows), -1)
        if not np.isfinite(rows).all():
            raise InvalidDomainError("the data holds NaN or infinite entries")
        lo, hi = rows.min(axis=0), rows.max(axis=0)
        return cls(lo - margin * (hi - lo), hi + margin * (hi - lo))

    @property
    def dimension(self) -> int:
        return len(self.lo)

    @property
    def center(self) -> Vector:
        return self.lo + self.halfwidth

    @property
    def halfwidth(self) -> Vector:
        """Half the length of each side."""
        return self.hi / 2 - self.lo / 2

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> NDArray[np.float64]:
        rows, along = self._points(points), self._directions(directions)
        return np.where(along > 0, self.hi, np.where(along < 0, self.lo, rows))

    def maximizer(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(rows > 0, self.hi, np.where(rows < 0, self.lo, self.center))

    def project(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(points, self.lo, self.hi)

    def ascent(
        self, points: NDArray[np.float64], gradient: NDArray[np.float64], half: Vector
    ) -> NDArray[np.float64]:
        return half * np.sign(gradient)

    def extreme_points(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Corners; how many of its sides are low ones is random too."""
        high = rng.random((count, self.dimension)) < rng.random((count, 1))
        return np.where(high, self.hi, self.lo)

    def _nudged(self, near: NDArray[np.float32]) -> NDArray[np.float32]:
        near = np.where(near > self.hi, np.nextafter(near, np.float32(-np.inf)), near)
        return np.where(near < self.lo, np.nextafter(near, np.float32(np.inf)), near)

    @property
    def as_box(self) -> Box:
        return self

    @property
    def flat_sided(self) -> bool:
        return True

    @property
    def rational(self) -> bool:
        return True

    def end_signs(self, row: Mapping[int, Fraction], bias: Fraction) -> tuple[int, int]:
        low = high = bias
        for i, w in row.items():
            if w:
                a, b = w * Fraction(float(self.lo[i])), w * Fraction(float(self.hi[i]))
                low, high = low + min(a, b), high + max(a, b)
        return sign(low), sign(high)

    def outer_ends(self) -> tuple[Vector, Vector]:
        return self.lo, self.hi

    @property
    def numbers(self) -> tuple[NDArray[np.float64], ...]:
        return self.lo, self.hi

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        up, down = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
        return up @ self.lo + down @ self.hi, up @ self.hi + down @ self.lo

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        inside = (rows >= self.lo - tolerance) & (rows <= self.hi + tolerance)
        return np.all(inside, axis=1)

    def _holds(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.all((rows >= self.lo) & (rows <= self.hi), axis=1)

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        count = check_count(count)
        rng = np.random.default_rng(random_state)
        points = self.lo + rng.random((count, self.dimension)) * (2 * self.halfwidth)
        return np.clip(points, self.lo, self.hi)

    @property
    def radius(self) -> float:
        return float(lengths(np.maximum(np.abs(self.lo), np.abs(self.hi))[None])[0])

    @cached_property
    def bounding_box(self) -> Box:
        return self

    def __repr__(self) -> str:
        if np.ptp(self.lo) == 0 and np.ptp(self.hi) == 0:
            return f"Box([{self.lo[0]:g}, {self.hi[0]:g}]^{self.dimension})"
        return f"Box({short(self.lo)}, {short(self.hi)})"

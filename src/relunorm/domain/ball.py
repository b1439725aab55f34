"""Balls: Euclidean ones, and those of the norms 2 and 1 within a box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arithmetic.dyadic import Dyadic, dyadic
from relunorm.arithmetic.floats import SMALLEST, rounded_down, rounded_up
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
    sign,
    vector,
)
from relunorm.domain.box import Box
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector

Array = NDArray[np.float64]

ZERO = Fraction(0)


@dataclass(frozen=True, eq=False, init=False)
class Around(Domain):
    """A domain around a point: what balls of every norm share."""

    middle: Vector
    reach: float

    def outer_ends(self) -> tuple[Vector, Vector]:
        reach = np.full(self.dimension, self.reach)
        return rounded_down(self.middle, reach), rounded_up(self.middle, reach)

    def _place(self, center: ArrayLike, radius: float) -> None:
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
        """The middle; where it lies on a side of a ball's box it is not an interior point."""
        return self.middle

    def _lengths(self, steps: Array) -> Vector:
        """The norm of every row."""
        return lengths(steps)

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> Array:
        far = self.maximizer(self._directions(directions))
        return self.middle + (1 - 1e-12) * (far - self.middle)

    def project(self, points: Array) -> Array:
        step = points - self.middle
        length = self._lengths(step)[:, None]
        share = np.divide(self.reach, length, out=np.ones_like(length), where=length > 0)
        return self.middle + step * np.minimum(1.0, share)

    def _exactly_near(self, shift: Dyadic, reach: Dyadic) -> bool:
        return (reach.dot(reach) - shift.dot(shift)).whole[0] >= 0

    def _near(self, rows: Array) -> NDArray[np.bool_]:
        """|x - middle| <= reach, in whole numbers where float64 is too close to tell."""
        far, unsure = self._lengths(rows - self.middle), rounding(self.dimension)
        inside = far * (1 + unsure) + UNDERFLOW < self.reach
        reach, middle = dyadic([self.reach]), dyadic(self.middle)
        for i in np.flatnonzero(~inside & ~(far * (1 - unsure) - UNDERFLOW > self.reach)):
            inside[i] = self._exactly_near(dyadic(rows[i]) - middle, reach)
        return inside


@dataclass(frozen=True, eq=False, init=False)
class Ball(Around):
    """All x within ``reach`` of ``middle``, in the Euclidean norm.

    Note the two radii: ``Ball(center, radius).reach`` is the ball's own radius, while ``.radius``
    is X_B = sup |x|, as for every domain. They agree for a ball around 0.
    """

    kind: ClassVar = "ball"
    fields: ClassVar = {"center": 1, "radius": 0}

    def __init__(self, center: ArrayLike, radius: float):
        self._place(center, radius)

    @property
    def as_ball(self) -> Ball:
        return self

    @property
    def norm_bound(self) -> tuple[Vector, float, int]:
        return self.middle, self.reach, 2

    @property
    def rational(self) -> bool:
        return True

    def end_signs(self, row: Mapping[int, Fraction], bias: Fraction) -> tuple[int, int]:
        middle = bias + sum((w * Fraction(float(self.middle[i])) for i, w in row.items()), ZERO)
        swing = Fraction(self.reach) ** 2 * sum((w * w for w in row.values()), ZERO)
        gap, side = middle * middle - swing, sign(middle)  # middle -+ sqrt(swing), without the root
        if gap > 0:
            return side, side
        return (-1, 1) if gap < 0 else (min(side, 0), max(side, 0))

    @cached_property
    def bounding_box(self) -> Box:
        return Box(*ends_outward(self.middle, self.reach))

    def maximizer(self, rows: Array) -> Array:
        length = lengths(rows)[:, None]
        return self.middle + self.reach * rows / np.where(length > 0, length, 1.0)

    @property
    def numbers(self) -> tuple[Vector, float]:
        return self.middle, self.reach

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        mid = rows @ self.middle
        swing = self.reach * lengths(rows)
        return mid - swing, mid + swing

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        return lengths(rows - self.middle) <= self.reach + tolerance

    def _holds(self, rows: Array) -> NDArray[np.bool_]:
        return self._near(rows)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
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


@dataclass(frozen=True, eq=False, init=False)
class NormBall(Around):
    """All x of a box within ``reach`` of ``middle``, a point of the box, in the norm 2 or 1.

    >>> ball = NormBall([0.0, 0.0], 1.0, 1, Box([-1, -0.25], [1, 0.25]))
    >>> ball.support([1.0, 2.0])  # a quarter upwards, the rest of the way to the right
    (array([-1.25]), array([1.25]))
    """

    kind: ClassVar = "norm-ball"
    fields: ClassVar = {"center": 1, "radius": 0, "norm": 0, "lo": 1, "hi": 1}

    norm: int
    box: Box

    def __init__(self, center: ArrayLike, radius: float, norm: int, box: Box):
        if norm not in (1, 2):
            raise InvalidDomainError(f"the norm of a ball is {norm!r}, expected 1 or 2")
        self._place(center, radius)
        box.check_dimension(self.dimension, "the centre")
        if not box.holds(self.middle)[0]:
            raise InvalidDomainError("the centre of the ball lies outside of its box")
        object.__setattr__(self, "norm", int(norm))
        object.__setattr__(self, "box", box)

    @cached_property
    def bounding_box(self) -> Box:
        low, high = ends_outward(self.middle, self.reach)
        return Box(np.maximum(low, self.box.lo), np.minimum(high, self.box.hi))

    def outer_ends(self) -> tuple[Vector, Vector]:
        lo, hi = super().outer_ends()
        return np.maximum(lo, self.box.lo), np.minimum(hi, self.box.hi)

    @property
    def norm_bound(self) -> tuple[Vector, float, int]:
        return self.middle, self.reach, self.norm

    def ascent(self, points: Array, gradient: Array, half: Vector) -> Array:
        """To where the gradient alone would lead."""
        return self.maximizer(gradient) - points

    def _nudged(self, near: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.box._nudged(near)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> NormBall:
        center, radius, norm, lo, hi = cls._read(document)
        return cls(center, radius, norm, Box(lo, hi))

    @property
    def numbers(self) -> tuple[Vector, float, int, Vector, Vector]:
        return self.middle, self.reach, self.norm, self.box.lo, self.box.hi

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        low = np.einsum("nd,nd->n", rows, self.maximizer(-rows))
        return low, np.einsum("nd,nd->n", rows, self.maximizer(rows))

    def maximizer(self, rows: Array) -> Array:
        room = np.where(rows > 0, self.box.hi - self.middle, self.middle - self.box.lo)
        size = np.abs(rows)
        if self.norm == 1:  # the largest weights first, until the radius is used up
            order = np.argsort(-size, axis=1, kind="stable")
            taken = np.where(size > 0, room, 0.0)
            used = np.cumsum(np.take_along_axis(taken, order, axis=1), axis=1)
            before = used - np.take_along_axis(taken, order, axis=1)
            part = np.clip(self.reach - before, 0.0, np.take_along_axis(taken, order, axis=1))
            step = np.empty_like(rows)
            np.put_along_axis(step, order, part, axis=1)
        else:
            step = self.reach * _clipped_ascent(size, room / max(self.reach, SMALLEST))
        return np.clip(self.middle + np.sign(rows) * step, self.box.lo, self.box.hi)

    def project(self, points: Array) -> Array:
        return super().project(np.clip(points, self.box.lo, self.box.hi))

    def _lengths(self, steps: Array) -> Vector:
        return lengths(steps) if self.norm == 2 else np.abs(steps).sum(axis=1)

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        near = self._lengths(rows - self.middle) <= self.reach + tolerance
        return near & self.box.contains(rows, tolerance)

    def _exactly_near(self, shift: Dyadic, reach: Dyadic) -> bool:
        if self.norm == 2:
            return super()._exactly_near(shift, reach)
        total = dyadic([0.0])
        for number in np.abs(shift.whole).tolist():
            total = total + Dyadic(np.array([number], dtype=object), shift.exponent)
        return (reach - total).whole[0] >= 0

    def _holds(self, rows: Array) -> NDArray[np.bool_]:
        return self._near(rows) & self.box.holds(rows)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Points of the ball around the middle, drawn into the box; not uniform."""
        rng = np.random.default_rng(random_state)
        shape = (check_count(count), self.dimension)
        steps = rng.standard_normal(shape) if self.norm == 2 else rng.laplace(size=shape)
        size = np.maximum(self._lengths(steps), 1e-300)[:, None]
        shrink = rng.random((count, 1)) ** (1 / self.dimension)
        return self.project(self.middle + self.reach * shrink * steps / size)

    @property
    def radius(self) -> float:
        """An upper bound on sup |x|: the smaller one of the ball's and the box's."""
        return min(float(lengths(self.middle[None])[0] + self.reach), self.bounding_box.radius)

    def __repr__(self) -> str:
        return f"NormBall({short(self.middle)}, {self.reach:g}, norm {self.norm})"


def _clipped_ascent(size: Array, room: Array) -> Array:
    """For every row the step min(t size, room) of length one, or ``room`` where that is shorter.

    Entries meet their room in the order of room / size. With those before the k-th at their room,
    t^2 = (1 - their squares) / (the squares of the other sizes) if that is before the k-th meets
    its own.
    """
    room = np.minimum(room, 1.0)  # no step is longer
    share = size / np.maximum(size.max(axis=1, keepdims=True), SMALLEST)
    share = np.where(share > 1e-150, share, 0.0)  # squares do not underflow
    ends = np.divide(room, share, out=np.full_like(room, np.inf), where=share > 0)
    order = np.argsort(ends, axis=1, kind="stable")
    ends, squares, shares = (
        np.take_along_axis(entries, order, axis=1) for entries in (ends, room**2, share**2)
    )
    full = np.cumsum(squares, axis=1) - squares  # used by those before
    rest = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    left = np.maximum(1.0 - full, 0.0)
    t = np.sqrt(np.divide(left, rest, out=np.full_like(left, np.inf), where=rest > 0))
    t[:, 1:] = np.maximum(t[:, 1:], ends[:, :-1])  # where rounding left nothing
    first = np.argmax(np.concatenate([t <= ends, np.ones((len(t), 1), bool)], axis=1), axis=1)
    t = np.take_along_axis(np.pad(t, ((0, 0), (0, 1)), constant_values=np.inf), first[:, None], 1)
    with np.errstate(invalid="ignore"):
        step = np.where(share > 0, np.minimum(t * share, room), 0.0)
    return step / np.maximum(lengths(step)[:, None], 1.0)

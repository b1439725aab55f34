"""The domain as the bounds see it: an outer box and a safe support function.

`Domain.support` rounds as any float computation does, and a polytope's comes from a linear
programme that is right to a tolerance only. Here every number is on the safe side: a box and a ball
in closed form with the rounding added, a polytope by weak duality, where any multipliers y >= 0
prove

    max over A x <= b, x in the box of c.x  <=  y.b + max over the box of (c - A' y).x .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain.base import Domain, lengths
from relunorm.domain.polytope import box_duals, ends_by_duality
from relunorm.matrix import Vector

Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Reach:
    """An outer box [lo, hi] of a domain, and what else bounds it.

    Args:
        domain: the domain itself.
        lo, hi: a box that surely holds it.
        box_duals: for a polytope, the multipliers that prove the box: rows for +x_i, then -x_i.
    """

    domain: Domain
    lo: Vector
    hi: Vector
    box_duals: NDArray[np.float64] | None = None

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.lo)

    @property
    def rows(self) -> int:
        """How many inequalities there are besides the box."""
        return self.domain.rows

    @property
    def operations(self) -> int:
        """Roundings in one value of `support_upper`, at most."""
        return 2 * self.size + 2 * self.rows + 8

    def maximizer(self, rows: Rows) -> NDArray[np.float64]:
        """For every row c the point of the outer box (of the ball itself) where c.x is largest."""
        ball = self.domain.as_ball
        if ball is not None:
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            return ball.middle + ball.reach * rows / np.where(norms > 0, norms, 1.0)
        return np.where(rows > 0, self.hi, self.lo)

    def support_upper(self, rows: Rows, multipliers: Rows | None = None) -> tuple[Vector, Vector]:
        """max c.x for every row c, computed in floats, and the magnitude its error scales with.

        Args:
            rows: shape (k, d).
            multipliers: y >= 0 for a polytope, shape (k, inequalities); zero if omitted.
        """
        value, magnitude = np.zeros(len(rows)), np.zeros(len(rows))
        if multipliers is not None and self.rows:
            A, b = self.domain.half_spaces
            value += multipliers @ b
            magnitude += multipliers @ (np.abs(b) + np.abs(A) @ self.span)
            rows = rows - multipliers @ A
        top = np.maximum(rows * self.lo, rows * self.hi).sum(axis=1)
        weight = np.abs(rows) @ self.span
        ball = self.domain.as_ball
        if ball is not None:
            mid, reach = ball.middle, ball.reach
            norm = lengths(rows)
            top = rows @ mid + reach * norm
            weight = weight + np.abs(rows) @ np.abs(mid) + reach * norm
        return value + top, magnitude + weight

    @property
    def span(self) -> Vector:
        """max |x_i| over the outer box."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))


def reach_of(domain: Domain, duals: ArrayLike | None = None) -> Reach:
    """The safe view of a domain.

    Args:
        duals: the multipliers that prove a polytope's box, to replay it without a solver.
    """
    if not domain.only_rows:
        return Reach(domain, *domain.outer_ends())
    A, b = domain.half_spaces
    proof = box_duals(A, b) if duals is None else np.asarray(duals, dtype=np.float64)
    return Reach(domain, *ends_by_duality(A, b, proof), proof)

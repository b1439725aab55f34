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
from numpy.typing import NDArray

from relunorm.arithmetic.floats import gamma, rounded_down, rounded_up
from relunorm.domain import Ball, Box, Domain, NormBall, Polytope
from relunorm.domain.base import lengths
from relunorm.errors import InvalidDomainError
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
        return len(self.domain.b) if isinstance(self.domain, Polytope) else 0

    @property
    def operations(self) -> int:
        """Roundings in one value of `support_upper`, at most."""
        return 2 * self.size + 2 * self.rows + 8

    def maximizer(self, rows: Rows) -> NDArray[np.float64]:
        """For every row c the point of the outer box (of the ball itself) where c.x is largest."""
        if isinstance(self.domain, Ball):
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            step = self.domain.reach * rows / np.where(norms > 0, norms, 1.0)
            return self.domain.middle + step
        return np.where(rows > 0, self.hi, self.lo)

    def support_upper(self, rows: Rows, multipliers: Rows | None = None) -> tuple[Vector, Vector]:
        """max c.x for every row c, computed in floats, and the magnitude its error scales with.

        Args:
            rows: shape (k, d).
            multipliers: y >= 0 for a polytope, shape (k, inequalities); zero if omitted.
        """
        value, magnitude = np.zeros(len(rows)), np.zeros(len(rows))
        if multipliers is not None and isinstance(self.domain, Polytope):
            A, b = self.domain.A, self.domain.b
            value += multipliers @ b
            magnitude += multipliers @ (np.abs(b) + np.abs(A) @ self.span)
            rows = rows - multipliers @ A
        top = np.maximum(rows * self.lo, rows * self.hi).sum(axis=1)
        weight = np.abs(rows) @ self.span
        if isinstance(self.domain, Ball):
            mid, reach = self.domain.middle, self.domain.reach
            norm = lengths(rows)
            top = rows @ mid + reach * norm
            weight = weight + np.abs(rows) @ np.abs(mid) + reach * norm
        return value + top, magnitude + weight

    @property
    def span(self) -> Vector:
        """max |x_i| over the outer box."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))


def reach_of(domain: Domain, box_duals: NDArray[np.float64] | None = None) -> Reach:
    """The safe view of a domain.

    Args:
        box_duals: the multipliers that prove a polytope's box, to replay it without a solver.
    """
    if isinstance(domain, Box):
        return Reach(domain, domain.lo, domain.hi)
    if isinstance(domain, Ball):
        mid, reach = domain.middle, np.full(domain.dimension, domain.reach)
        return Reach(domain, rounded_down(mid, reach), rounded_up(mid, reach))
    if isinstance(domain, NormBall):
        mid, reach = domain.middle, np.full(domain.dimension, domain.reach)
        lo, hi = rounded_down(mid, reach), rounded_up(mid, reach)
        return Reach(domain, np.maximum(lo, domain.box.lo), np.minimum(hi, domain.box.hi))
    if isinstance(domain, Polytope):
        duals = polytope_duals(domain) if box_duals is None else np.asarray(box_duals)
        lo, hi = _polytope_box(domain, duals)
        return Reach(domain, lo, hi, duals)
    raise InvalidDomainError(
        f"a domain of type {type(domain).__name__} has no safe support function here; "
        "use a Box, a Ball or a Polytope"
    )


def polytope_duals(domain: Polytope) -> NDArray[np.float64]:
    """Multipliers that bound every +x_i and -x_i, from one linear programme each."""
    from scipy.optimize import linprog

    d, duals = domain.dimension, []
    for cost in np.vstack([np.eye(d), -np.eye(d)]):
        found = linprog(-cost, A_ub=domain.A, b_ub=domain.b, bounds=(None, None), method="highs")
        if found.status != 0:
            raise InvalidDomainError(f"the polytope could not be bounded ({found.message.strip()})")
        duals.append(np.maximum(-np.asarray(found.ineqlin.marginals), 0.0))
    return np.array(duals)


def _polytope_box(domain: Polytope, duals: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """A box around A x <= b by weak duality.

    With r_i = e_i - A' y_i the rest that the multipliers leave and H = max |x|_inf,
    x_i <= y_i.b + |r_i|_1 H, hence H <= max y_i.b / (1 - max |r_i|_1): the polytope is bounded and
    so is each coordinate, whatever the solver's tolerance was.
    """
    A, b, d = domain.A, domain.b, domain.dimension
    if duals.shape != (2 * d, len(b)) or not (duals >= 0).all():
        raise InvalidDomainError(
            f"the multipliers of the polytope's box have shape {duals.shape} or negative entries; "
            f"expected {(2 * d, len(b))}, all >= 0"
        )
    g = gamma(len(b) + d + 8)
    rest = np.abs(np.vstack([np.eye(d), -np.eye(d)]) - duals @ A) + g * (1.0 + duals @ np.abs(A))
    share = rest.sum(axis=1) * (1 + g)
    value = duals @ b + g * (duals @ np.abs(b))
    if not share.max() < 0.5:
        raise InvalidDomainError(
            "the polytope is too badly conditioned to be bounded safely; rescale its rows"
        )
    size = max(value.max(), 0.0) / (1.0 - share.max()) * (1 + g)
    tops = rounded_up(value, share * size * (1 + g))
    return -tops[d:], tops[:d]

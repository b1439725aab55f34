"""Bounded polytopes, through linear programmes in well-scaled coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arithmetic.dyadic import dyadic
from relunorm.arithmetic.floats import gamma, rounded_up
from relunorm.best_first import Part, Parts
from relunorm.domain.base import (
    UNDERFLOW,
    Domain,
    RandomState,
    check_count,
    lengths,
    rounding,
    vector,
)
from relunorm.domain.box import Box
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector, frozen

#: HiGHS drops coefficients below 1e-9; with unit rows no entry that small may matter.
DROPPED = 1e-9

#: In scaled coordinates a polytope thinner than this counts as flat.
FLAT = 1e-8

_TIGHT: dict[str, Any] = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


@dataclass(frozen=True, eq=False)
class Polytope(Domain):
    """All x with A x <= b: a bounded, non-empty polytope, which is checked by linear programmes.

    The support function is exact up to the solver's tolerance: 1e-9 relative to the polytope's
    extent, in coordinates scaled so that rows and sides have length about one.
    """

    kind: ClassVar = "polytope"
    fields: ClassVar = {"A": 2, "b": 1}
    only_rows: ClassVar = True

    A: NDArray[np.float64]
    b: Vector

    def __post_init__(self) -> None:
        try:
            A = np.atleast_2d(np.array(self.A, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InvalidDomainError(f"A is not a matrix of numbers: {error}") from None
        b = vector(self.b, "b")
        if A.ndim != 2 or A.shape[0] != len(b) or not A.size:
            raise InvalidDomainError(
                f"A has shape {A.shape} and b has {len(b)} entries; expected (rows, d) and rows"
            )
        vector(A.ravel(), "A")
        object.__setattr__(self, "A", frozen(A))
        object.__setattr__(self, "b", b)
        _ = self._scaled  # raises when empty or unbounded

    @property
    def dimension(self) -> int:
        return self.A.shape[1]

    @cached_property
    def _scaled(self) -> _Scaled:
        return _scale(self.A, self.b)

    @cached_property
    def bounding_box(self) -> Box:
        lo, hi = self.support(np.eye(self.dimension))
        return Box(lo, np.maximum(lo, hi))

    def far_points(self, points: ArrayLike, directions: ArrayLike) -> NDArray[np.float64]:
        rows, along = self._points(points), self._directions(directions)
        rates = along @ self.A.T
        room = np.maximum(self.b - rows @ self.A.T, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.where(rates > 0, room / rates, np.inf).min(axis=1)
        far = np.where(np.isfinite(far), far * (1 - 1e-9), 0.0)
        return rows + far[:, None] * along

    def maximizer(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        rows = rows / np.where(largest > 0, largest, 1.0)  # only the direction counts
        return np.array([self._minimize(-row)[1] if row.any() else self.center for row in rows])

    def project(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        step = points - self.center
        rates, slack = step @ self.A.T, np.maximum(self.b - self.A @ self.center, 0.0)
        share = np.divide(slack, rates, out=np.ones_like(rates), where=rates > slack)
        return self.center + share.min(axis=1, initial=1.0)[:, None] * step

    @cached_property
    def half_spaces(self) -> tuple[NDArray[np.float64], Vector]:
        return self.A, self.b

    @property
    def flat_sided(self) -> bool:
        return True

    def outer_ends(self) -> tuple[Vector, Vector]:
        return ends_by_duality(self.A, self.b, box_duals(self.A, self.b))

    @property
    def numbers(self) -> tuple[NDArray[np.float64], ...]:
        return self.A, self.b

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        lo = np.array([self._minimize(row)[0] for row in rows])
        hi = np.array([-self._minimize(-row)[0] for row in rows])
        return lo, hi

    def _minimize(self, cost: Vector, box: Box | None = None) -> tuple[float, Vector]:
        """Minimum and minimiser of cost.x, over the part inside ``box`` when given.

        An empty part gives (inf, centre of the box).
        """
        scaled = self._scaled
        ends: Any = (None, None)
        if box is not None:
            ends = np.column_stack([scaled.inward(box.lo), scaled.inward(box.hi)])
        found = scaled.minimize(cost * scaled.size, ends)
        if found is None:
            return np.inf, self.center if box is None else box.center
        x = scaled.outward(found)
        return float(cost @ x), x

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        return np.all(rows @ self.A.T <= self.b + tolerance * lengths(self.A), axis=1)

    def _holds(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """A x <= b, in whole numbers for the inequalities that float64 leaves open."""
        room = self.b - rows @ self.A.T
        size = np.abs(rows) @ np.abs(self.A).T + np.abs(self.b)
        unsure = ~(np.abs(room) > rounding(self.dimension) * size + UNDERFLOW)
        inside = np.all(unsure | (room > 0), axis=1)
        for i in np.flatnonzero(inside & unsure.any(axis=1)):
            x = dyadic(rows[i])
            inside[i] = all(
                (dyadic([self.b[k]]) - dyadic(self.A[k]).dot(x)).whole[0] >= 0
                for k in np.flatnonzero(unsure[i])
            )
        return inside

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        """Points by hit-and-run from an interior point: uniform in the limit, dependent.

        A flat polytope is sampled inside the plane it lies in.
        """
        count = check_count(count)
        rng = np.random.default_rng(random_state)
        scaled, (middle, plane, free) = self._scaled, self._interior
        chains = np.repeat(middle[None], min(count, 256), axis=0)
        burn, kept = 20 + 5 * self.dimension, []
        while len(kept) * len(chains) < count:
            for _ in range(burn):
                steps = rng.standard_normal((len(chains), plane.shape[1])) @ plane.T
                chains = _hit_and_run(scaled.A[free], scaled.b[free], chains, steps, rng)
            burn = self.dimension
            kept.append(scaled.outward(chains))
        return np.concatenate(kept)[:count] if kept else np.empty((0, self.dimension))

    @cached_property
    def _interior(self) -> tuple[Vector, NDArray[np.float64], NDArray[np.bool_]]:
        """A point of the relative interior, directions that span it, and the rows that bound it."""
        scaled = self._scaled
        every = np.ones(len(scaled.b), dtype=bool)
        middle, depth = scaled.deepest(every)
        plane = np.eye(self.dimension)
        if depth > FLAT:
            return middle, plane, every
        slack = np.array([b + scaled.value(row) for row, b in zip(scaled.A, scaled.b, strict=True)])
        free = slack > FLAT
        _, sizes, axes = np.linalg.svd(scaled.A[~free])
        rank = int((sizes > FLAT).sum())
        middle, _ = scaled.deepest(free)
        return middle, axes[rank:].T, free

    @cached_property
    def center(self) -> Vector:  # type: ignore[override]
        """The middle of a largest inscribed ball, in scaled coordinates."""
        return frozen(self._scaled.outward(self._interior[0]))

    @cached_property
    def radius(self) -> float:  # type: ignore[override]
        """sup |x|, to 1e-9 relative, from above.

        Maximising a convex function is a search: branch and bound over boxes, with the chord bound
        x_i^2 <= (l_i + u_i) x_i - l_i u_i turned into a linear programme. Worst case exponential
        in d; after 20,000 boxes the best upper bound so far is returned (still sound).
        """
        best = 0.0

        def bounded(box: Box) -> tuple[float, tuple[Box, Vector]]:
            nonlocal best
            value, x = self._minimize(-(box.lo + box.hi), box)
            best = best if value == np.inf else max(best, float(x @ x))
            return -value - float(box.lo @ box.hi), (box, x)

        open_ = Parts(*bounded(self.bounding_box))

        def branch(taken: list[Part[tuple[Box, Vector]]]) -> bool:
            box, x = taken[0].what
            axis = int(np.argmax((box.hi - x) * (x - box.lo)))
            cut = np.array(box.hi), np.array(box.lo)
            cut[0][axis] = cut[1][axis] = np.clip(x[axis], box.lo[axis], box.hi[axis])
            for half in (Box(box.lo, cut[0]), Box(cut[1], box.hi)):
                bound, what = bounded(half)
                if bound > -np.inf:
                    open_.push(bound, what)
            return True

        def settled() -> bool:
            return open_.bound <= best * (1 + 2e-9) or open_.made > 20_000

        open_.run(open_.take, branch, settled)
        return float(np.sqrt(max(best, open_.bound)))

    def __repr__(self) -> str:
        return f"Polytope({len(self.b)} rows, dimension {self.dimension})"


def box_duals(A: NDArray[np.float64], b: Vector) -> NDArray[np.float64]:
    """Multipliers that bound every +x_i and -x_i, from one linear programme each.

    Where the numbers as they are give none that do, they are scaled first.
    """
    from scipy.optimize import linprog

    costs, duals = np.vstack([np.eye(A.shape[1]), -np.eye(A.shape[1])]), []
    for cost in costs:
        found = linprog(-cost, A_ub=A, b_ub=b, bounds=(None, None), method="highs")
        if found.status != 0:
            return _scaled_duals(A, b, costs)
        duals.append(np.maximum(-np.asarray(found.ineqlin.marginals), 0.0))
    rest = np.abs(costs - np.array(duals) @ A).sum(axis=1).max()
    return np.array(duals) if rest < 1e-6 else _scaled_duals(A, b, costs)


def _scaled_duals(
    A: NDArray[np.float64], b: Vector, costs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The same in well-scaled coordinates: row k of those is size * A[k] / norms[k]."""
    scaled = _scale(A, b)
    full = np.abs(A).max(axis=1) > 0
    norms, duals = lengths(A[full] * scaled.size), np.zeros((len(costs), len(b)))
    for cost, row in zip(costs, duals, strict=True):
        found = scaled.solve(-cost, scaled.A, (None, None))
        if found.status != 0:
            raise InvalidDomainError(f"the polytope could not be bounded ({found.message.strip()})")
        multipliers = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0)
        row[full] = (scaled.size @ np.abs(cost)) * multipliers / norms
    return duals


def ends_by_duality(
    A: NDArray[np.float64], b: Vector, duals: NDArray[np.float64]
) -> tuple[Vector, Vector]:
    """A box around A x <= b by weak duality.

    With r_i = e_i - A' y_i the rest that the multipliers leave and H = max |x|_inf,
    x_i <= y_i.b + |r_i|_1 H, hence H <= max y_i.b / (1 - max |r_i|_1): the polytope is bounded and
    so is each coordinate, whatever the solver's tolerance was.
    """
    d = A.shape[1]
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


@dataclass(frozen=True)
class _Scaled:
    """A u <= b with unit rows, where x = middle + size * u; b may be off by ``rounded``."""

    A: NDArray[np.float64]
    b: Vector
    middle: Vector
    size: Vector
    rounded: Vector

    def outward(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.middle + self.size * u

    def inward(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (x - self.middle) / self.size

    def solve(self, cost: Vector, A: NDArray[np.float64], ends: Any) -> Any:
        """What the solver says of A u <= b.

        Of a polytope without interior rounding may leave nothing, and presolving calls others
        empty too. So where nothing is found, b is rounded up and the solver asked without it.
        """
        from scipy.optimize import linprog

        found = linprog(cost, A_ub=A, b_ub=self.b, bounds=ends, options=_TIGHT)
        if found.status != 0:
            b, options = self.b + self.rounded, _TIGHT | {"presolve": False}
            found = linprog(cost, A_ub=A, b_ub=b, bounds=ends, options=options)
        return found

    def minimize(self, cost: Vector, ends: Any = (None, None)) -> Vector | None:
        """A minimiser of cost.u; None when nothing is feasible and ``ends`` were given."""
        found = self.solve(cost / (np.abs(cost).max() or 1.0), self.A, ends)
        if found.status == 0:
            return np.asarray(found.x)
        if found.status == 2 and not isinstance(ends, tuple):
            return None
        reason = {2: "is empty", 3: "is unbounded"}.get(found.status, "could not be bounded")
        raise InvalidDomainError(f"the polytope {reason} ({found.message.strip()})")

    def value(self, cost: Vector) -> float:
        """The maximum of -cost.u: how far the polytope reaches against ``cost``."""
        found = self.minimize(cost)
        return -float(cost @ found) if found is not None else -np.inf

    def deepest(self, rows: NDArray[np.bool_]) -> tuple[Vector, float]:
        """A point furthest inside the chosen rows, and how far it is."""
        A = np.column_stack([self.A, rows.astype(np.float64)])
        cost = np.append(np.zeros(A.shape[1] - 1), -1.0)
        ends = [(None, None)] * (A.shape[1] - 1) + [(0.0, 2.0)]
        found = self.solve(cost, A, ends)
        if found.status != 0:
            raise InvalidDomainError(f"the polytope has no interior ({found.message.strip()})")
        return np.asarray(found.x[:-1]), float(found.x[-1])


def _scale(A: NDArray[np.float64], b: Vector) -> _Scaled:
    """Coordinates in which rows have length one and the polytope about the size of a unit box."""
    full = np.abs(A).max(axis=1) > 0
    if (b[~full] < 0).any():
        raise InvalidDomainError("the polytope is empty: a row of zeros asks for 0 <= a negative")
    A, b = A[full], b[full]
    if not len(A):
        raise InvalidDomainError("the polytope is unbounded: it has no rows")
    size = _equilibrated(A)
    middle = np.zeros(A.shape[1])
    for _ in range(4):
        rows = A * size
        norms = lengths(rows)
        shifted, lost = (part / norms for part in _seen_from(middle, A, b))
        unit = rows / norms[:, None]
        far = np.abs(shifted).max() or 1.0
        scaled = _Scaled(unit, shifted / far, middle, size * far, lost / far)
        ends = np.array([[-scaled.value(e), scaled.value(-e)] for e in np.eye(len(middle))])
        half = (ends[:, 1] - ends[:, 0]) / 2
        lost = (np.abs(unit) > 0) & (np.abs(unit) < DROPPED)
        middle = scaled.outward(ends.mean(axis=1))
        least = max(FLAT * half.max(), scaled.rounded.max()) or FLAT  # no zooming into rounding
        size = scaled.size * np.maximum(half, least)
        if not lost.any() and 0.01 < half.max() < 100:
            break
    rows = A * size
    norms = lengths(rows)
    shifted, lost = (part / norms for part in _seen_from(middle, A, b))
    return _Scaled(rows / norms[:, None], shifted, middle, size, lost)


def _seen_from(middle: Vector, A: NDArray[np.float64], b: Vector) -> tuple[Vector, Vector]:
    """b - A middle, and how far its rounding can be off."""
    size = np.abs(A) @ np.abs(middle) + np.abs(b)
    return b - A @ middle, rounding(len(middle)) * size


def _equilibrated(A: NDArray[np.float64]) -> Vector:
    """Column factors after a few rounds of scaling rows and columns to largest entry one."""
    size = np.ones(A.shape[1])
    for _ in range(4):
        rows = np.abs(A * size)
        rows = rows / rows.max(axis=1, keepdims=True)
        size = size / np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    return size


def _hit_and_run(
    A: NDArray[np.float64],
    b: Vector,
    points: NDArray[np.float64],
    steps: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Each point moved to a uniform place on its chord in the given direction."""
    rates = steps @ A.T
    slack = np.maximum(b - points @ A.T, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = slack / rates
    far = np.where(rates > 0, reach, np.inf).min(axis=1, initial=np.inf)
    near = np.where(rates < 0, reach, -np.inf).max(axis=1, initial=-np.inf)
    far, near = (np.where(np.isfinite(end), end, 0.0) for end in (far, near))
    t = near + rng.random(len(points)) * (far - near)
    return points + t[:, None] * steps

"""Where inputs live: box, ball or polytope, each with its exact support function.

``domain.support(W)`` gives, for every row w of W, the minimum and maximum of w.x over the domain:
in closed form for a box and a ball, by one linear programme a side for a polytope. Everything
that needs "what can reach this unit" asks here.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.matrix import Vector, frozen

RandomState = int | np.random.Generator | None


class Domain(ABC):
    """A bounded, non-empty, closed convex set of inputs."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        """Minimum and maximum of w.x over the domain, for every row w.

        Args:
            directions: shape (k, d), or (d,) for one.

        Returns:
            two vectors of length k.
        """

    @abstractmethod
    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        """For every row of ``points`` whether it lies in the domain, up to a distance tolerance."""

    @abstractmethod
    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        """``count`` points of the domain, uniform for a box and a ball."""

    @property
    @abstractmethod
    def center(self) -> Vector:
        """A point of the domain, in its relative interior."""

    @property
    @abstractmethod
    def radius(self) -> float:
        """X_B = sup |x| over the domain (seed 001, eq. 2.9)."""

    @cached_property
    def bounding_box(self) -> Box:
        """The smallest box around the domain."""
        lo, hi = self.support(np.eye(self.dimension))
        return Box(lo, hi)

    def check_dimension(self, dimension: int, what: str = "the network") -> None:
        """Raise `InvalidDomainError` unless the domain has this many coordinates."""
        if self.dimension != dimension:
            raise InvalidDomainError(
                f"the domain has {self.dimension} coordinates, but {what} has {dimension} inputs"
            )

    def _directions(self, directions: ArrayLike) -> NDArray[np.float64]:
        rows = np.atleast_2d(np.asarray(directions, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InvalidInputError(
                f"directions have shape {np.shape(directions)}, expected (k, {self.dimension})"
            )
        return rows

    def _points(self, points: ArrayLike) -> NDArray[np.float64]:
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InvalidInputError(
                f"points have shape {np.shape(points)}, expected (n, {self.dimension})"
            )
        return rows


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """All x with lo <= x <= hi, coordinate by coordinate. A side may have length zero.

    >>> Box([-1, 0], [1, 2]).support([1.0, 1.0])
    (array([-1.]), array([3.]))
    """

    lo: Vector
    hi: Vector

    def __post_init__(self) -> None:
        lo, hi = _vector(self.lo, "lo"), _vector(self.hi, "hi")
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
        return cls(np.full(dimension, float(lo)), np.full(dimension, float(hi)))

    @classmethod
    def around(cls, points: ArrayLike, margin: float = 0.0) -> Box:
        """The smallest box around data, each side widened by ``margin`` times its length.

        Args:
            points: shape (n, d), or (n, *shape) for images, flattened in C order.
        """
        rows = np.asarray(points, dtype=np.float64)
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

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        up, down = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
        return up @ self.lo + down @ self.hi, up @ self.hi + down @ self.lo

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        inside = (rows >= self.lo - tolerance) & (rows <= self.hi + tolerance)
        return np.all(inside, axis=1)

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        rng = np.random.default_rng(random_state)
        points = self.lo + rng.random((count, self.dimension)) * (2 * self.halfwidth)
        return np.clip(points, self.lo, self.hi)

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(np.maximum(np.abs(self.lo), np.abs(self.hi))))

    @cached_property
    def bounding_box(self) -> Box:
        return self

    def __repr__(self) -> str:
        if np.ptp(self.lo) == 0 and np.ptp(self.hi) == 0:
            return f"Box([{self.lo[0]:g}, {self.hi[0]:g}]^{self.dimension})"
        return f"Box({_short(self.lo)}, {_short(self.hi)})"


@dataclass(frozen=True, eq=False, init=False)
class Ball(Domain):
    """All x within ``reach`` of ``middle``, in the Euclidean norm.

    Note the two radii: ``Ball(center, radius).reach`` is the ball's own radius, while ``.radius``
    is X_B = sup |x|, as for every domain. They agree for a ball around 0.
    """

    middle: Vector
    reach: float

    def __init__(self, center: ArrayLike, radius: float):
        reach = float(radius)
        if not (np.isfinite(reach) and reach >= 0):
            raise InvalidDomainError(f"the ball has radius {reach:g}, expected a number >= 0")
        object.__setattr__(self, "middle", _vector(center, "the centre"))
        object.__setattr__(self, "reach", reach)

    @property
    def dimension(self) -> int:
        return len(self.middle)

    @property
    def center(self) -> Vector:
        return self.middle

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        mid = rows @ self.middle
        swing = self.reach * np.linalg.norm(rows, axis=1)
        return mid - swing, mid + swing

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        return np.linalg.norm(rows - self.middle, axis=1) <= self.reach + tolerance

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        rng = np.random.default_rng(random_state)
        steps = rng.standard_normal((count, self.dimension))
        lengths = np.linalg.norm(steps, axis=1, keepdims=True)
        shrink = rng.random((count, 1)) ** (1 / self.dimension)
        return self.middle + self.reach * shrink * steps / np.maximum(lengths, 1e-300)

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(self.middle) + self.reach)

    def __repr__(self) -> str:
        return f"Ball({_short(self.middle)}, {self.reach:g})"


@dataclass(frozen=True, eq=False)
class Polytope(Domain):
    """All x with A x <= b: a bounded, non-empty polytope, which is checked by linear programmes.

    The support function is exact up to the solver's tolerance (1e-9 relative to the data).
    """

    A: NDArray[np.float64]
    b: Vector

    def __post_init__(self) -> None:
        A = np.atleast_2d(np.asarray(self.A, dtype=np.float64)).copy()
        b = _vector(self.b, "b")
        if A.ndim != 2 or A.shape[0] != len(b) or not A.size:
            raise InvalidDomainError(
                f"A has shape {A.shape} and b has {len(b)} entries; expected (rows, d) and rows"
            )
        if not np.isfinite(A).all():
            raise InvalidDomainError("A holds NaN or infinite entries")
        object.__setattr__(self, "A", frozen(A))
        object.__setattr__(self, "b", b)
        _ = self.bounding_box  # raises when empty or unbounded

    @property
    def dimension(self) -> int:
        return self.A.shape[1]

    def support(self, directions: ArrayLike) -> tuple[Vector, Vector]:
        rows = self._directions(directions)
        lo = np.array([self._minimize(row)[0] for row in rows])
        hi = np.array([-self._minimize(-row)[0] for row in rows])
        return lo, hi

    def _minimize(self, cost: Vector, box: Box | None = None) -> tuple[float, Vector]:
        """Minimum and minimiser of cost.x, over the part inside ``box`` when given.

        An empty part gives (inf, centre of the box).
        """
        from scipy.optimize import linprog

        bounds: Any = (None, None) if box is None else np.column_stack([box.lo, box.hi])
        scale = float(np.abs(cost).max()) or 1.0
        found = linprog(cost / scale, A_ub=self.A, b_ub=self.b, bounds=bounds, method="highs")
        if found.status == 0:
            return float(found.fun * scale), np.asarray(found.x)
        if box is not None and found.status == 2:
            return np.inf, box.center
        reason = {2: "is empty", 3: "is unbounded"}.get(found.status, "could not be bounded")
        raise InvalidDomainError(f"the polytope {reason} ({found.message.strip()})")

    def contains(self, points: ArrayLike, tolerance: float = 0.0) -> NDArray[np.bool_]:
        rows = self._points(points)
        slack = tolerance * np.linalg.norm(self.A, axis=1)
        return (rows @ self.A.T <= self.b + slack).all(axis=1)

    def sample(self, count: int, random_state: RandomState = None) -> NDArray[np.float64]:
        """Points by hit-and-run from the Chebyshev centre: uniform in the limit, dependent."""
        rng = np.random.default_rng(random_state)
        chains = np.repeat(self.center[None], min(count, 256), axis=0)
        burn, kept = 20 + 5 * self.dimension, []
        while len(kept) * len(chains) < count:
            for _ in range(burn):
                chains = self._hit_and_run(chains, rng)
            burn = self.dimension
            kept.append(chains)
        return np.concatenate(kept)[:count] if kept else np.empty((0, self.dimension))

    def _hit_and_run(
        self, points: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        steps = rng.standard_normal(points.shape)
        rates = steps @ self.A.T
        slack = np.maximum(self.b - points @ self.A.T, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = slack / rates
        far = np.where(rates > 0, reach, np.inf).min(axis=1)
        near = np.where(rates < 0, reach, -np.inf).max(axis=1)
        t = near + rng.random(len(points)) * (far - near)
        return points + np.where(np.isfinite(t), t, 0.0)[:, None] * steps

    @cached_property
    def center(self) -> Vector:  # type: ignore[override]
        """The Chebyshev centre: the middle of a largest inscribed ball."""
        from scipy.optimize import linprog

        norms = np.linalg.norm(self.A, axis=1)
        cost = np.append(np.zeros(self.dimension), -1.0)
        bounds = [(None, None)] * self.dimension + [(0, None)]
        found = linprog(cost, A_ub=np.column_stack([self.A, norms]), b_ub=self.b, bounds=bounds)
        if found.status != 0:
            raise InvalidDomainError(f"the polytope has no centre ({found.message.strip()})")
        return np.asarray(found.x[:-1])

    @cached_property
    def radius(self) -> float:  # type: ignore[override]
        """sup |x|, to 1e-9 relative, from above.

        Maximising a convex function is a search: branch and bound over boxes, with the chord bound
        x_i^2 <= (l_i + u_i) x_i - l_i u_i turned into a linear programme. Worst case exponential
        in d; after 20,000 boxes the best upper bound so far is returned (still sound).
        """
        best, heap, count = 0.0, [], 0
        box = self.bounding_box

        def push(box: Box) -> None:
            nonlocal best, count
            value, x = self._minimize(-(box.lo + box.hi), box)
            if value == np.inf:
                return
            best = max(best, float(x @ x))
            heapq.heappush(heap, (value + float(box.lo @ box.hi), count, box, x))
            count += 1

        push(box)
        while heap:
            bound, _, box, x = heapq.heappop(heap)
            if -bound <= best * (1 + 2e-9) or count > 20_000:
                best = max(best, -bound)
                break
            gaps = (box.hi - x) * (x - box.lo)
            axis = int(np.argmax(gaps))
            cut = np.array(box.hi), np.array(box.lo)
            cut[0][axis] = cut[1][axis] = x[axis]
            push(Box(box.lo, cut[0]))
            push(Box(cut[1], box.hi))
        return float(np.sqrt(best))

    def __repr__(self) -> str:
        return f"Polytope({len(self.b)} rows, dimension {self.dimension})"


def _vector(values: ArrayLike, what: str) -> Vector:
    try:
        array = np.atleast_1d(np.array(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidDomainError(f"{what} is not a list of numbers: {error}") from None
    if array.ndim != 1 or not array.size:
        raise InvalidDomainError(f"{what} has shape {array.shape}, expected a non-empty vector")
    if not np.isfinite(array).all():
        raise InvalidDomainError(f"{what} holds NaN or infinite entries")
    return frozen(array)


def _short(vector: Vector) -> str:
    shown = ", ".join(f"{v:g}" for v in vector[:6])
    return f"[{shown}{', ...' if len(vector) > 6 else ''}]"

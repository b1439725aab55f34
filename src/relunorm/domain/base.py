"""What every domain offers, and the checks they share.

A new domain is one class in one file: the abstract members here, and a name in `KINDS` of
``relunorm.domain``. Nobody outside asks for its type. What has a faster or a sharper way for some
domains asks for what that way needs (`Domain.as_box`, `as_ball`, `half_spaces`, `flat_sided`,
`end_signs`), and takes the box of `outer_ends` around all others: sound, but loose.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import real_numbers
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.matrix import Vector, frozen

if TYPE_CHECKING:
    from relunorm.domain.ball import Ball
    from relunorm.domain.box import Box

RandomState: TypeAlias = "int | np.random.Generator | None"

#: Coordinates beyond this are refused: their squares would overflow.
LARGEST = 1e100

#: More than any number of products can lose to underflow.
UNDERFLOW = 2.0**-960


class Domain(ABC):
    """A bounded, non-empty, closed convex set of inputs."""

    #: The word for it in files and on the command line; the names of its numbers there and how
    #: many axes each has.
    kind: ClassVar[str]
    fields: ClassVar[Mapping[str, int]]

    #: Whether `half_spaces` alone are the domain. What proves its box is then written into every
    #: certificate; all other domains know their box.
    only_rows: ClassVar[bool] = False

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
        """For every row of ``points`` whether it lies in the domain, up to a distance tolerance.

        Computed in float64 and rounded as such: `holds` decides without rounding.
        """

    def holds(self, points: ArrayLike) -> NDArray[np.bool_]:
        """For every row of ``points`` whether it lies in the domain, in real arithmetic.

        Exact for every float: what float64 cannot tell is computed in whole numbers. A point that
        is to count as a counterexample has to pass this test, never `contains`.

        >>> from relunorm.domain import Polytope
        >>> line = Polytope([[1, 1], [-1, -1], [-1, 0], [0, -1]], [0.5, -0.5, 0, 0])  # x + y = 1/2
        >>> points = [[0.25, 0.25], [0.15378, 0.34622]]  # the second is off by 5.6e-17
        >>> line.contains(points), line.holds(points)
        (array([ True,  True]), array([ True, False]))
        """
        rows = self._points(points)
        inside = np.zeros(len(rows), dtype=bool)
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        if len(finite):
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                inside[finite] = self._holds(rows[finite])
        return inside

    @abstractmethod
    def _holds(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """`holds` for finite points."""

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

    @abstractmethod
    def far_points(self, points: ArrayLike, directions: ArrayLike) -> NDArray[np.float64]:
        """From each point a point of the domain far along its direction, in float64.

        The maximiser of the direction over a box or a ball, the far end of the ray in a polytope.
        """

    @abstractmethod
    def maximizer(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """For every row c a point of the domain where c.x is largest, up to rounding."""

    @abstractmethod
    def project(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points of the domain near the given ones, up to rounding: clipped to a box, else drawn
        to the centre."""

    @abstractmethod
    def outer_ends(self) -> tuple[Vector, Vector]:
        """The ends of a box that holds the domain, in real arithmetic; they are sides of it where
        it is `flat_sided`."""

    @property
    @abstractmethod
    def numbers(self) -> tuple[Any, ...]:
        """What `fields` names: all that tells this domain from others of its kind."""

    def to_dict(self) -> dict[str, Any]:
        """Kind and `fields`, JSON-safe; every float64 survives the round trip."""
        numbers = [np.asarray(part).tolist() for part in self.numbers]
        return {"kind": self.kind, **dict(zip(self.fields, numbers, strict=True))}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Domain:
        """The domain of a document, or of the arrays of a file, by the names in `fields`."""
        return cls(*cls._read(document))

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> list[Any]:
        """The numbers of a document; of an array with one entry that one."""
        found = []
        for name, axes in cls.fields.items():
            value = document[name]
            if not axes and np.size(value) != 1:
                raise InvalidDomainError(
                    f"the {name} has {np.size(value)} entries, expected one number"
                )
            one = not axes and isinstance(value, np.ndarray)
            found.append(np.ravel(value)[0].item() if one else value)
        return found

    @property
    def as_box(self) -> Box | None:
        """The domain itself where it is a box."""
        return None

    @property
    def as_ball(self) -> Ball | None:
        """The domain itself where it is a Euclidean ball."""
        return None

    @cached_property
    def half_spaces(self) -> tuple[NDArray[np.float64], Vector]:
        """(A, b): the domain lies in the box of `outer_ends` and in A x <= b. No rows for most."""
        return np.zeros((0, self.dimension)), np.zeros(0)

    @cached_property
    def sides(self) -> tuple[NDArray[np.float64], Vector]:
        """(A, b): A x <= b is all that box and `half_spaces` say of the domain."""
        if self.only_rows:
            return self.half_spaces
        (A, b), (lo, hi), eye = self.half_spaces, self.outer_ends(), np.eye(self.dimension)
        return np.concatenate([eye, -eye, A]), np.concatenate([hi, -lo, b])

    @property
    def rows(self) -> int:
        """How many `half_spaces` there are."""
        return len(self.half_spaces[1])

    @property
    def norm_bound(self) -> tuple[Vector, float, int] | None:
        """(m, r, p): with the box around it, the domain lies in |x - m|_p <= r."""
        return None

    @property
    def flat_sided(self) -> bool:
        """Whether the domain is the box of `outer_ends`, cut by `half_spaces` and nothing else."""
        return False

    @property
    def rational(self) -> bool:
        """Whether `end_signs` knows the answer."""
        return False

    def end_signs(self, row: Mapping[int, Fraction], bias: Fraction) -> tuple[int, int]:
        """The signs of the minimum and of the maximum of row.x + bias, without rounding."""
        raise InvalidDomainError(
            f"rational arithmetic needs a box, a ball or no domain; {self!r} has a support "
            "function that is computed in floats"
        )

    def ascent(
        self, points: NDArray[np.float64], gradient: NDArray[np.float64], half: Vector
    ) -> NDArray[np.float64]:
        """A step uphill from every point, as long as ``half`` says of each coordinate."""
        length = lengths(gradient * half)[:, None]
        return np.divide(
            half * half * gradient, length, out=np.zeros_like(gradient), where=length > 0
        )

    def extreme_points(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Random points on the boundary or near it."""
        inside = self.sample(count, rng)
        return self.far_points(inside, rng.standard_normal(inside.shape))

    def in_single(self, point: Vector) -> Vector | None:
        """The point in single precision, if there is one of the domain beside it."""
        tries = [point]
        if not self.flat_sided:  # what rounding may add to the distance is taken off
            tries += [point + share * (self.center - point) for share in (1e-7, 1e-6, 1e-5)]
        for x in tries:
            with np.errstate(over="ignore"):
                rounded = self._nudged(x.astype(np.float32)).astype(np.float64)
            if np.isfinite(rounded).all() and self.holds(rounded)[0]:
                return rounded
        return None

    def _nudged(self, near: NDArray[np.float32]) -> NDArray[np.float32]:
        """The point moved by one place where rounding took it over a side."""
        return near

    @cached_property
    def digest(self) -> str:
        """sha256 of the kind and the numbers, as hex; the text of a domain shows only a few digits.

        >>> from relunorm.domain import Box
        >>> Box([0.0], [1.0]).digest == Box([-0.0], [1.0]).digest != Box([0.0], [2.0]).digest
        True
        """
        parts = [np.atleast_1d(np.asarray(part, dtype=np.float64)) for part in self.numbers]
        h = hashlib.sha256(repr((type(self).__name__, [p.shape for p in parts])).encode())
        for part in parts:
            h.update(np.ascontiguousarray(part + 0.0).data)  # -0.0 is 0.0
        return h.hexdigest()

    @cached_property
    def bounding_box(self) -> Box:
        """A box around the domain; the smallest one, up to rounding, around a polytope."""
        from relunorm.domain.box import Box

        return Box(*self.outer_ends())

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


def lengths(rows: NDArray[Any]) -> Vector:
    """Euclidean lengths of rows, without overflow or underflow of the squares."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    return largest[:, 0] * np.linalg.norm(scaled, axis=1)


def rounding(operations: int) -> float:
    """A share of the magnitudes that covers the rounding of so many operations, generously."""
    return 4.0 * (operations + 4) * 2.0**-53


def check_count(count: int) -> int:
    """A number of samples."""
    if not isinstance(count, int | np.integer) or count < 0:
        raise InvalidInputError(f"{count!r} samples were asked for, expected a whole number >= 0")
    return int(count)


def numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Real numbers that users gave for a domain, copied."""
    try:
        return np.array(real_numbers(what, values), dtype=np.float64)
    except InvalidInputError as error:
        raise InvalidDomainError(str(error)) from None


def vector(values: ArrayLike, what: str) -> Vector:
    """A read-only vector of finite, not absurdly large numbers."""
    array = np.atleast_1d(numbers(values, what))
    if array.ndim != 1 or not array.size:
        raise InvalidDomainError(f"{what} has shape {array.shape}, expected a non-empty vector")
    if not np.isfinite(array).all():
        raise InvalidDomainError(f"{what} holds NaN or infinite entries")
    if np.abs(array).max() > LARGEST:
        raise InvalidDomainError(
            f"{what} holds entries beyond {LARGEST:g}, too large to compute with"
        )
    return frozen(array)


def short(vector: Vector) -> str:
    """The first entries, for a repr."""
    shown = ", ".join(f"{v:g}" for v in vector[:6])
    return f"[{shown}{', ...' if len(vector) > 6 else ''}]"


def sign(value: Fraction) -> int:
    """-1, 0 or 1."""
    return (value > 0) - (value < 0)


def ends_outward(middle: Vector, reach: float) -> tuple[Vector, Vector]:
    """middle - reach and middle + reach, rounded away from the middle unless they are exact.

    >>> low, high = ends_outward(np.array([1.0]), 1e-20)
    >>> bool(low[0] < 1.0 < high[0])
    True
    """
    ends = []
    for side in (-1.0, 1.0):
        end = middle + side * reach
        step = end - middle
        lost = (middle - (end - step)) + (side * reach - step)  # end + lost is exact
        ends.append(np.where(side * lost > 0, np.nextafter(end, side * np.inf), end))
    return ends[0], ends[1]

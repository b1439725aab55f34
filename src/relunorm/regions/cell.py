"""One region as a polytope: half-spaces with the unit that makes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Wall:
    """Where a half-space comes from: a unit (layer and index within it) or the domain."""

    layer: int
    index: int

    @property
    def is_domain(self) -> bool:
        """Whether the wall is the domain's own."""
        return self.layer < 0

    def __str__(self) -> str:
        return f"domain {self.index}" if self.is_domain else f"unit {self.layer}:{self.index}"


@dataclass(frozen=True, eq=False, repr=False)
class Cell:
    """{x : A x <= b}, every row a facet.

    Rows have unit length. ``walls[k]`` names what makes row k: a unit, or the domain (sides of a
    box are numbered 2 i for the upper and 2 i + 1 for the lower one). ``facet_points[k]`` lies in
    the relative interior of facet k. ``bounded`` is False for a region that reaches infinity.
    ``complete`` is False where a time limit left rows that may be redundant; their facet points are
    NaN.
    """

    A: Array
    b: Array
    walls: tuple[Wall, ...]
    interior_point: Array
    facet_points: Array
    bounded: bool = True
    complete: bool = True

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.A.shape[1]

    def contains(self, points: Any, tolerance: float = 1e-12) -> NDArray[np.bool_]:
        """For every row of ``points`` whether it lies in the cell, up to a distance tolerance."""
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
        return (rows @ self.A.T <= self.b + tolerance).all(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.cell/1",
            "A": self.A.tolist(),
            "b": self.b.tolist(),
            "walls": [str(wall) for wall in self.walls],
            "interior_point": self.interior_point.tolist(),
            "bounded": self.bounded,
            "complete": self.complete,
        }

    def __repr__(self) -> str:
        by_units = sum(not wall.is_domain for wall in self.walls)
        rest = len(self.walls) - by_units
        end = "" if self.bounded else ", unbounded"
        end += "" if self.complete else ", some perhaps redundant"
        walls = f"{by_units} walls of units, {rest} of the domain"
        return f"Cell({self.dimension} dimensions, {walls}{end})"

"""Random domains, each with the cells between which it lies."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from exact_oracle import Cell, box_cell, hull_cell, polytope_cell

from fuzzing.nets import ON_PLANE
from relunorm import Ball, Box, Domain, Network, Polytope

Rng = np.random.Generator

#: Corners of the polygons between which a disc is held.
CORNERS = 24


@dataclass(frozen=True)
class Place:
    """A domain and two exact cells: inner <= domain <= outer, equal unless it is a ball."""

    domain: Domain
    inner: Cell
    outer: Cell
    free: tuple[int, ...]

    @property
    def exact(self) -> bool:
        return self.inner is self.outer

    @property
    def flat(self) -> bool:
        """Whether it has no interior."""
        return len(self.free) < self.inner.parameters or len(self.inner.corners) == 1


def box(lo: np.ndarray, hi: np.ndarray) -> Place:
    cell = box_cell(lo, hi)
    return Place(Box(lo, hi), cell, cell, tuple(int(i) for i in np.flatnonzero(hi > lo)))


def place(rng: Rng, d: int, *, balls: bool = True, flat: bool = True, scales: bool = True) -> Place:
    """A domain of d inputs: boxes mostly, polytopes and balls, flat and tiny ones among them."""
    draw = rng.random()
    size = float(10.0 ** rng.integers(-6, 7)) if scales and rng.random() < 0.2 else 1.0
    middle = rng.normal(size=d) * size if rng.random() < 0.3 else np.zeros(d)
    if draw < 0.2 and d > 1:
        return _polytope(rng, d, size, flat)
    if balls and 0.2 <= draw < 0.32 and d < 3:
        return ball(rng, middle, size)
    lo, hi = middle - size, middle + size
    style = rng.random()
    if style < 0.2:
        lo, hi = middle - size * rng.random(d), middle + size * rng.random(d)
    elif style < 0.3:
        lo, hi = np.zeros(d) * size, np.ones(d) * size
    if flat and rng.random() < 0.12:
        side = int(rng.integers(d))
        hi = hi.copy()
        hi[side] = lo[side]
    return box(lo, hi)


def place_for(rng: Rng, net: Network, **allowed: bool) -> Place:
    """A domain for a network; one that is meant for a flat polytope mostly gets it."""
    if net.origin == ON_PLANE and rng.random() < 0.6:
        return _segment()
    return place(rng, net.input_size, **allowed)


def ball(rng: Rng, middle: np.ndarray, size: float) -> Place:
    """A ball in one or two inputs, tiny ones often; a disc lies between two polygons."""
    radius = float(size * rng.choice([1.0, 0.5, 1e-3, 1e-6, 1e-9, 1e-12]))
    if len(middle) == 1:
        c, r = Fraction(float(middle[0])), Fraction(radius)
        cell = hull_cell([[c - r], [c + r]])
        return Place(Ball(middle, radius), cell, cell, (0,))
    cells = disc([Fraction(float(x)) for x in middle], Fraction(radius))
    return Place(Ball(middle, radius), *cells, (0, 1))


def disc(centre: list[Fraction], radius: Fraction) -> tuple[Cell, Cell]:
    """A polygon within the disc and one around it."""
    turns = 2 * np.pi * np.arange(CORNERS) / CORNERS
    circle = []
    for turn in turns:  # rational points of the unit circle, by half angles
        t = Fraction(float(np.tan(turn / 2))).limit_denominator(1 << 20)
        circle.append(((1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)))
    stretch = 1 / Fraction(float(np.cos(np.pi / CORNERS) * 0.999))
    inner, outer = (
        hull_cell(
            [[c + factor * radius * x for c, x in zip(centre, p, strict=True)] for p in circle]
        )
        for factor in (Fraction(1), stretch)
    )
    return inner, outer


def _polytope(rng: Rng, d: int, size: float, flat: bool) -> Place:
    """A cube with corners cut off, its rows as they are or scaled and repeated; or a flat one."""
    if flat and rng.random() < 0.4:
        if rng.random() < 0.4:
            return _point(rng, d)
        return _segment() if d == 2 else _slice(rng, d, size)
    sides = np.concatenate([np.eye(d), -np.eye(d)])
    extra = rng.normal(size=(int(rng.integers(1, 4)), d))
    if rng.random() < 0.5:
        extra = np.round(extra * 2) / 2
    A = np.concatenate([sides, extra[np.abs(extra).max(axis=1) > 0]])
    b = np.concatenate([np.ones(2 * d), rng.uniform(0.1, 1.0, len(A) - 2 * d)]) * size
    if rng.random() < 0.3:
        again = rng.integers(len(b), size=len(b) + 2)
        scales = 2.0 ** rng.integers(-40, 41, len(b) + len(again))
        A = np.concatenate([A, A[again]]) * scales[:, None]
        b = np.concatenate([b, b[again]]) * scales
    return _from_rows(A, b, tuple(range(d)))


def _point(rng: Rng, d: int) -> Place:
    """A cube where another half space touches it in a corner: one point, by rows of no pair."""
    corner, signs = rng.integers(-20, 21, d) / 8.0, rng.choice([-1.0, 1.0], d)
    own = np.eye(d) * signs
    A = np.concatenate([own, -own, [-signs * rng.integers(1, 5, d) / 2.0]])
    b = A @ corner  # exact: short numbers
    b[d : 2 * d] += rng.integers(1, 9, d)
    return _from_rows(A, b, ())


def _segment() -> Place:
    """A piece of x + y = 1/2 whose ends are no binary fractions."""
    A = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, -1.0]])
    return _from_rows(A, np.array([0.24, 0.37, -0.13, -0.26, 0.5, -0.5]), (0,))


def _slice(rng: Rng, d: int, size: float) -> Place:
    """The cube where a.x = c, for a of small integers or of any numbers."""
    normal = rng.integers(1, 3, d).astype(float) if rng.random() < 0.7 else rng.normal(size=d)
    offset = size * float(rng.choice([0.0, 0.25, 0.5]))
    if offset > size * float(np.abs(normal).sum()):
        offset = 0.0  # the plane misses the cube
    A = np.concatenate([np.eye(d), -np.eye(d), [normal, -normal]])
    b = np.concatenate([np.full(2 * d, size), [offset, -offset]])
    return _from_rows(A, b, tuple(range(d - 1)))


def _from_rows(A: np.ndarray, b: np.ndarray, free: tuple[int, ...]) -> Place:
    cell = polytope_cell(A, b)
    assert cell is not None
    return Place(Polytope(A, b), cell, cell, free)

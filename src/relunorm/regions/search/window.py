"""The coordinates a search works in: x = E t + o with t in a small box, cut by a few rows.

- Box: t in [-1, 1]^k; sides of length zero drop out (regions are then relative to the box).
- Polytope: its bounding box as above, and its own rows.
- Ball: its bounding box and tangent rows. That is a polytope around the ball; which of its regions
  meet the ball is checked afterwards (`point_in_ball`).
- None, all of R^d: homogeneous coordinates. x = scale t / s with (t, s) in [-1, 1]^d x [0, 1]
  turns every region into a cone with its tip at 0, and a cone meets the box, however far away the
  region lies. Exact, and no box has to be guessed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.domain import Ball, Box, Domain
from relunorm.domain.base import lengths
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Array
from relunorm.network import Affine, Network
from relunorm.regions.balance import Exponents, balanced, balanced_for, exponents_of
from relunorm.regions.kernels.pack import TOLERANCE, Packed, pack

#: Weights of networks that keep what they were packed to.
KEPT_WEIGHTS = 1 << 16


@dataclass(frozen=True, eq=False)
class Window:
    """A search domain in its own coordinates; ``rows . t <= rhs`` have unit length."""

    matrix: Array | None  # the embedding E; None where ``scale`` says all
    offset: Array
    lo: Array
    hi: Array
    rows: Array
    rhs: Array
    domain: Domain | None
    start: Array  # a point strictly inside
    homogeneous: bool = False
    scale: Array | None = None  # where x = scale * t + offset

    @property
    def dimension(self) -> int:
        """Coordinates of t (one more than of x in homogeneous coordinates)."""
        return len(self.lo)

    @cached_property
    def embedding(self) -> Array:
        """E, with x = E t + offset."""
        if self.matrix is not None:
            return self.matrix
        return np.diag(self.scale)  # type: ignore[arg-type]

    @cached_property
    def witnesses(self) -> Array:
        """Points of the window: the start, and where the axes through it leave the window."""
        steps = np.concatenate([np.eye(self.dimension), -np.eye(self.dimension)])
        with np.errstate(divide="ignore", invalid="ignore"):
            walls = np.concatenate([steps, self.rows])
            slack = np.concatenate([self.hi, -self.lo, self.rhs]) - walls @ self.start
            rates = steps @ walls.T
            reach = np.where(rates > 1e-14, np.maximum(slack, 0.0) / rates, np.inf).min(axis=1)
        return np.concatenate([self.start[None], self.start + 0.999 * reach[:, None] * steps])

    @cached_property
    def corners(self) -> Array:
        """The corners of a window of two coordinates, in order."""
        corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        for row, bound in zip(self.rows, self.rhs, strict=True):
            corners = clipped(corners, bound - corners @ row, 1e-13)
        return corners

    def pack(self, network: Network, by_columns: bool = False) -> Packed:
        """The network in the window's coordinates, brought to size; see `pack.pack`.

        A small network keeps the last one, for there are many questions about one box.
        """
        if self.scale is None:
            return self._packed(network, by_columns)
        about = by_columns, self.scale.tobytes(), self.offset.tobytes()
        last = network.__dict__.get("packed")
        if last is not None and last[0] == about:
            return last[1]
        found = self._packed(network, by_columns)
        if len(found.weights) <= KEPT_WEIGHTS:
            network.__dict__["packed"] = about, found
        return found

    def _packed(self, network: Network, by_columns: bool) -> Packed:
        if self.homogeneous:
            lifted = balanced(homogenized(balanced(network), self.embedding))
            return pack(lifted, None, None, by_columns, sparse=True)
        units, embedding, offset = self._units, self.matrix, self.offset
        embedding = self.scale if embedding is None else embedding
        if units is None:
            return pack(balanced(network), embedding, offset, by_columns, sparse=True)
        per_row = units if self.matrix is None else units[:, None]
        embedding, offset = np.ldexp(embedding, -per_row), np.ldexp(offset, -units)  # type: ignore[arg-type]
        return pack(balanced_for(network, units), embedding, offset, by_columns, sparse=True)

    @cached_property
    def _units(self) -> Exponents | None:
        """Powers of two that the inputs are counted in; None: ones."""
        half = self.embedding.max(axis=1) if self.scale is None else self.scale
        return None if self.homogeneous else exponents_of(half, self.offset)

    def points(self, t: Array) -> Array:
        """Window coordinates to inputs."""
        if self.homogeneous:
            return t[:, :-1] @ self.embedding.T / t[:, -1:]
        if self._is_plain:
            return t
        x = t @ self.embedding.T if self.scale is None else t * self.scale
        x += self.offset
        return x

    @cached_property
    def _is_plain(self) -> bool:
        """Whether the window's coordinates are the inputs."""
        scale = [] if self.scale is None else self.scale.tolist()
        return scale == [1.0] * len(self.offset) and not any(self.offset.tolist())


def open_window(network: Network, domain: Domain | None) -> Window:
    """The window of a domain; `InvalidDomainError` when it has no interior to speak of."""
    if domain is None:
        return _whole_space(network)
    domain.check_dimension(network.input_size)
    if domain.flat_sided:
        window = _box_window(domain.bounding_box, domain, *domain.half_spaces)
        if domain.rows:
            _check_interior(window, domain)
        return window
    if domain.as_ball is not None:
        rows = _tangents(domain.dimension)
        _, top = domain.support(rows) if len(rows) else ((), np.zeros(0))
        return _box_window(domain.bounding_box, domain, rows, np.asarray(top))
    raise InvalidDomainError(
        f"{type(domain).__name__} is not a domain regions can be listed on; use Box, Polytope, "
        "Ball or None"
    )


def _box_window(box: Box, domain: Domain, A: Array, b: Array) -> Window:
    half = box.halfwidth
    offset = box.lo + half
    free = half.nonzero()[0]
    if not len(free):
        raise InvalidDomainError("the domain is a single point; region_at answers for a point")
    d, k = len(half), len(free)
    start, hi = np.zeros(k), np.ones(k)
    matrix, scale = (None, half) if k == d else (np.diag(half)[:, free], None)
    if not len(b):
        return Window(matrix, offset, -hi, hi, A[:, :k], b, domain, start, scale=scale)
    rows, rhs = A[:, free] * half[free], b - A @ offset
    length = lengths(rows)
    cuts = np.abs(rows).sum(axis=1) > rhs * (1 + 1e-12) + 1e-14 * np.abs(b)
    use = np.flatnonzero((length > 0) & cuts)
    rows, rhs = rows[use] / length[use, None], rhs[use] / length[use]
    if domain.flat_sided:
        start = (domain.center - offset)[free] / half[free]
    return Window(matrix, offset, -hi, hi, rows, rhs, domain, start, scale=scale)


def clipped(polygon: Array, value: Array, noise: float) -> Array:
    """The part of a convex polygon where an affine function is not negative."""
    value = np.where(np.abs(value) <= noise, 0.0, value)
    if (value >= 0).all():
        return polygon
    kept = []
    for i in range(len(polygon)):
        j = (i + 1) % len(polygon)
        if value[i] >= 0:
            kept.append(polygon[i])
        if (value[i] > 0) != (value[j] > 0) and value[i] != 0 and value[j] != 0:
            share = value[i] / (value[i] - value[j])
            kept.append(polygon[i] + share * (polygon[j] - polygon[i]))
    return np.array(kept).reshape(-1, 2)


def _check_interior(window: Window, domain: Domain) -> None:
    slack = np.min(window.rhs - window.rows @ window.start, initial=1.0)
    A, b = domain.sides
    room = b - A @ domain.center
    lost = np.abs(b) + np.abs(A) @ np.abs(domain.center)
    rounded_away = (room <= (domain.dimension + 2) * 2.0**-53 * lost).any()
    if slack < 1e-9 or rounded_away:
        why = f"its largest ball has radius {max(slack, 0):.1e} of its half-width"
        if slack >= 1e-9:
            why = "it is as thin as the rounding of its sides"
        raise InvalidDomainError(
            f"{domain!r} has no interior ({why}); regions need one. Use on_plane for a flat domain."
        )


def _tangents(dimension: int) -> Array:
    """Directions of tangent planes that trim the bounding box towards a ball."""
    if dimension == 1:
        return np.zeros((0, 1))
    if dimension == 2:
        angle = np.arange(64) * (2 * np.pi / 64)
        rows = np.column_stack([np.cos(angle), np.sin(angle)])
        return rows[np.arange(64) % 16 != 0]
    rows = []
    for i, j in itertools.combinations(range(dimension), 2):
        for a, b in itertools.product((1, -1), repeat=2):
            row = np.zeros(dimension)
            row[i], row[j] = a, b
            rows.append(row / np.sqrt(2))
    if dimension <= 5:
        corners = np.array(list(itertools.product((1.0, -1.0), repeat=dimension)))
        rows.extend(corners / np.sqrt(dimension))
    return np.array(rows)


def _whole_space(network: Network) -> Window:
    d = network.input_size
    ratios = []
    for affine in balanced(network).maps:
        if 0 in affine.terms:
            length = lengths(mx.dense(affine.terms[0]))
            some = (length > 0) & (affine.bias != 0)
            ratios.extend((np.abs(affine.bias[some]) / length[some]).tolist())
    scale = float(np.median(ratios)) if ratios else 1.0
    lo, hi = np.append(-np.ones(d), 0.0), np.ones(d + 1)
    start = np.append(np.zeros(d), 0.5)
    none = np.zeros((0, d + 1)), np.zeros(0)
    return Window(scale * np.eye(d), np.zeros(d), lo, hi, *none, None, start, homogeneous=True)


def homogenized(network: Network, embedding: Array) -> Network:
    """(t, s) -> the network's forms times s: biases become weights of one more input."""
    d = network.input_size

    def lift(affine: Affine) -> Affine:
        terms: dict[int, Any] = dict(affine.terms)
        first = mx.dense(terms[0]) @ embedding if 0 in terms else np.zeros((affine.size, d))
        terms[0] = np.column_stack([first, affine.bias])
        return Affine(terms, np.zeros(affine.size))

    layers = [type(x)(lift(x.affine), x.activation, x.name, x.shape) for x in network.layers]
    return Network(layers, lift(network.output), input_shape=d + 1)


def depth_in_ball(rows: Array, rhs: Array, ball: Ball) -> tuple[float, Array]:
    """How far {rows . x <= rhs} reaches into a ball, in radii, and its point nearest to the centre.

    Not positive where they do not meet; the point is relative to the centre, in radii, too.
    """
    scale = ball.reach or 1.0
    length = lengths(rows)
    near = _nearest(rows / length[:, None], (rhs - rows @ ball.middle) / length / scale)
    if near is None:
        return -np.inf, ball.middle
    return 1.0 - float(np.linalg.norm(near)), near


def point_in_ball(rows: Array, rhs: Array, ball: Ball, inside: Array) -> Array | None:
    """A point in the interior of {rows . x <= rhs} and in the open ball.

    Half of what the ball leaves of the segment from the polyhedron's point nearest to the centre to
    an interior point. None where the polyhedron reaches less than 1e-10 of the radius into the
    ball.
    """
    scale = ball.reach or 1.0
    depth, near = depth_in_ball(rows, rhs, ball)
    if depth <= TOLERANCE:
        return None
    step = (inside - ball.middle) / scale - near
    # |near + share step| = 1 at the positive root; the constant term is negative.
    a, b, c = step @ step, near @ step, near @ near - 1.0
    share = 1.0 if a == 0.0 else (-c) / (b + np.sqrt(b * b - a * c))
    return ball.middle + scale * (near + 0.5 * min(share, 1.0) * step)


def _nearest(rows: Array, slack: Array) -> Array | None:
    """The point of {rows . z <= slack} nearest to 0, None if there is none.

    Least-distance programming by one non-negative least-squares problem (Lawson and Hanson 1974,
    ch. 23).
    """
    from scipy.optimize import nnls

    if (slack >= 0).all():
        return np.zeros(rows.shape[1])
    # min |z| with G z >= h for G = -rows, h = -slack.
    stacked = np.vstack([-rows.T, -slack])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    weights, _ = nnls(stacked, target)
    residual = stacked @ weights - target
    if abs(residual[-1]) < 1e-14:
        return None
    return -residual[:-1] / residual[-1]

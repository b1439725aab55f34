"""A network on a domain as one triangular form: what the compiled bounds start from.

Layers, skips, linear stages and leaky units all become rows over (x, y): the coordinates of the
domain that vary, then max(z, 0) of every unit in order. Where that takes sums of products, a row
carries a bound on their rounding, so the form stands for the network in real arithmetic.

The value of a step unit is a coordinate of its own, behind those of the domain: between 0 and 1,
and fixed where the sign of its unit is (`relunorm.bounds.node`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.kernel import EPS, TINY
from relunorm.domain import Ball, Domain, NormBall, Polytope
from relunorm.domain.reach import Reach
from relunorm.matrix import Vector
from relunorm.network import Activation, Affine, Network

Array = NDArray[np.float64]

#: Goals are computed with one rounding an entry while they take at most this many products.
MOST_EXACT = 1 << 21

#: Forms with more entries than this are not made: 64 MB, some 2,500 units.
MOST_ENTRIES = 1 << 23


@dataclass(frozen=True, eq=False)
class Form:
    """Rows over (x, y) with constants and error bounds: units, known rows, goals.

    Args:
        rows, const, err: the rows, (units + known + goals, d + units).
        units: how many of them are units.
        known: how many rows behind them are known to be >= 0 on the domain.
        firsts: goal group q has the goals firsts[q] to firsts[q + 1].
        lo, hi: the box of the free coordinates.
        ball: empty, or centre, radius and norm in the free coordinates.
        free: which input coordinates vary.
        fixed: a whole input with the others filled in.
        jump: per unit the coordinate that is its value, for a step; -1 for others.
        at_zero: per unit the value of a step at 0, which is 0 or 1.
        origin: per unit which one of the network's it is.
    """

    rows: Array
    const: Vector
    err: Vector
    units: int
    known: int
    firsts: NDArray[np.int64]
    lo: Vector
    hi: Vector
    ball: Vector
    free: NDArray[np.intp]
    fixed: Vector
    jump: NDArray[np.int64]
    at_zero: Vector
    origin: NDArray[np.intp]

    def lift(self, x: Vector) -> Vector:
        """A whole input from its free coordinates."""
        full = self.fixed.copy()
        full[self.free] = x[: len(self.free)]
        return full


@dataclass(frozen=True, eq=False)
class _Value:
    """A vector as rows over (x, y), with a bound on what rounding hid."""

    rows: Array
    const: Vector
    err: Vector
    plain: bool  # every row is one variable as it is: products with it do not round


def fits(network: Network) -> bool:
    """Whether the form of a network is small enough to be made."""
    units = sum(layer.width for layer in network.layers if layer.has_units)
    return (units + network.output_size) * (units + network.input_size) <= MOST_ENTRIES


def triangular(network: Network, reach: Reach, groups: Sequence[tuple[Array, Vector]]) -> Form:
    """The form of ``network`` on a domain with goals rhs - A f for every group (A, rhs)."""
    domain = reach.domain
    free = np.flatnonzero(reach.lo < reach.hi)
    if not len(free):  # a single point: one coordinate stays, or there is nothing to search
        free = np.arange(1)
    fixed = np.array(reach.lo)
    fixed[free] = 0.0
    builder = _Builder(network, reach, free, fixed)
    output = builder.output()
    A = np.concatenate([np.atleast_2d(group[0]) for group in groups])
    rhs = np.concatenate([np.atleast_1d(group[1]) for group in groups])
    goals = builder.combined(-A, rhs, output)
    known = builder.sides(domain)
    parts = [*builder.units, known, goals]
    sizes = [len(np.atleast_1d(group[1])) for group in groups]
    ball = np.zeros(0)
    if isinstance(domain, Ball):
        ball = np.concatenate([domain.middle[free], [domain.reach, 2.0]])
    elif isinstance(domain, NormBall):
        ball = np.concatenate([domain.middle[free], [domain.reach, float(domain.norm)]])
    return Form(
        np.ascontiguousarray(np.concatenate([p.rows for p in parts])),
        np.concatenate([p.const for p in parts]),
        np.concatenate([p.err for p in parts]),
        len(builder.top),
        len(known.const),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        builder.lo,
        builder.hi,
        ball,
        free,
        fixed,
        builder.jump,
        builder.at_zero,
        builder.origin,
    )


def _copies(activation: Activation) -> list[tuple[float, float]]:
    """The units of a form that make up one of a network: weight, and value at 0 for steps.

    A step that is a at 0 is (1 - a) [z > 0] + a [z >= 0].
    """
    a = float(activation.at_zero)
    if activation.kind != "step":
        return [(1.0, math.nan)]
    return [(1.0, a)] if a in (0.0, 1.0) else [(1.0 - a, 0.0), (a, 1.0)]


class _Builder:
    """Goes through the layers once; keeps the rows of the units and a bound on every variable."""

    def __init__(self, network: Network, reach: Reach, free: NDArray[np.intp], fixed: Vector):
        self.network = network
        origin, ends, done = [np.zeros(0, np.intp)], [np.zeros(0)], 0
        for layer in network.layers:
            if layer.has_units:
                for _, at_zero in _copies(layer.activation):
                    origin.append(done + np.arange(layer.width))
                    ends.append(np.full(layer.width, at_zero))
                done += layer.width
        self.origin, self.at_zero = np.concatenate(origin), np.concatenate(ends)
        jumps = ~np.isnan(self.at_zero)
        count, extra = len(jumps), int(jumps.sum())
        self.jump = np.where(jumps, len(free) + np.cumsum(jumps) - 1, -1)
        lo = np.concatenate([reach.lo[free], np.zeros(extra)])
        hi = np.concatenate([reach.hi[free], np.ones(extra)])
        self.inputs, self.width = len(lo), len(lo) + count
        self.lo, self.hi = lo, hi
        self.largest = np.zeros(self.width)  # of every variable
        self.largest[: self.inputs] = np.maximum(np.abs(lo), np.abs(hi))
        self.top = np.zeros(count)
        self.units: list[_Value] = []
        start = np.zeros((network.input_size, self.width))
        start[free, np.arange(len(free))] = 1.0
        self.values = [_Value(start, fixed.copy(), np.zeros(network.input_size), True)]

    def output(self) -> _Value:
        """The output, after all layers."""
        done = 0
        for layer in self.network.layers:
            z = self.affine(layer.affine)
            if not layer.has_units:
                self.values.append(z)
                continue
            step = layer.activation.kind == "step"
            value = None
            for weight, _ in _copies(layer.activation):
                part = slice(done, done + layer.width)
                columns = slice(self.inputs + done, self.inputs + done + layer.width)
                done += layer.width
                self.units.append(z)
                self.top[part] = self.highest(z)
                self.largest[columns] = self.top[part]
                if step:
                    value = self.jumped(weight, self.jump[part], value)
                else:
                    value = self.activated(layer.activation.slopes, z, columns)
            assert value is not None
            self.values.append(value)
        return self.affine(self.network.output)

    def affine(self, affine: Affine) -> _Value:
        """A map of values as rows."""
        rows = np.zeros((affine.size, self.width))
        const, err = affine.bias.copy(), np.zeros(affine.size)
        weight, shifted, exact = np.abs(affine.bias), False, True
        used = np.zeros(self.width, dtype=bool)
        for source, matrix in affine.terms.items():
            value = self.values[source]
            rows += np.asarray(matrix @ value.rows)
            const += matrix @ value.const
            positive = abs(matrix)
            err += positive @ value.err
            reach = np.abs(value.rows) @ self.largest
            weight = weight + positive @ (reach + np.abs(value.const))
            shifted |= bool(value.const.any())
            columns = value.rows.any(axis=0)
            exact &= value.plain and not (used & columns).any()
            used |= columns
        if shifted or not exact:
            err = err * (1 + 8 * EPS) + self.rounding(weight)
        return _Value(rows, const, err, False)

    def rounding(self, weight: Vector) -> Vector:
        """What sums of products of this total magnitude may lose."""
        terms = 2 * max(self.network.widths) + 2 * len(self.network.layers) + 16
        return (2.0 * terms * EPS) * weight + TINY

    def highest(self, z: _Value) -> Vector:
        """Upper bounds by intervals, at least 0."""
        x, y = z.rows[:, : self.inputs], z.rows[:, self.inputs :]
        top = np.maximum(x, 0) @ self.hi + np.minimum(x, 0) @ self.lo + np.maximum(y, 0) @ self.top
        size = np.abs(z.rows) @ self.largest + np.abs(z.const)
        return np.maximum(top + z.const + z.err + self.rounding(size), 0.0)

    def activated(self, slopes: tuple[float, float], z: _Value, columns: slice) -> _Value:
        """below * z + (above - below) * max(z, 0)."""
        below, above = slopes
        own = np.zeros_like(z.rows)
        own[np.arange(len(own)), np.arange(columns.start, columns.stop)] = above - below
        if below == 0.0:
            return _Value(own, np.zeros(len(own)), np.zeros(len(own)), above == 1.0)
        size = np.abs(z.rows) @ self.largest + np.abs(z.const) + self.largest[columns]
        lost = 8 * EPS * (abs(below) + abs(above)) * size + TINY
        return _Value(below * z.rows + own, below * z.const, abs(below) * z.err + lost, False)

    def jumped(self, weight: float, columns: NDArray[np.int64], more: _Value | None) -> _Value:
        """The coordinates that are the values of steps times a weight, and ``more``."""
        own, none = np.zeros((len(columns), self.width)), np.zeros(len(columns))
        own[np.arange(len(own)), columns] = weight
        if more is None:
            return _Value(own, none, none, weight == 1.0)
        return _Value(own + more.rows, none, none + 8 * EPS * (1.0 + abs(weight)), False)

    def combined(self, left: Array, right: Vector, value: _Value) -> _Value:
        """left @ value + right; rounded once per entry where the value itself is exact."""
        entries = left.size * self.width
        if not value.err.any() and entries <= MOST_EXACT and np.abs(left).max(initial=0) < 1e100:
            rows = _rounded_once(left, value.rows)
            const = _rounded_once(
                np.column_stack([left, right]), np.append(value.const, 1.0)[:, None]
            )[:, 0]
            # what that may lose is inside the allowance for using the row
            return _Value(rows, const, np.zeros(len(const)), False)
        positive = np.abs(left)
        size = positive @ (np.abs(value.rows) @ self.largest + np.abs(value.const)) + np.abs(right)
        err = (positive @ value.err) * (1 + 8 * EPS) + self.rounding(size)
        return _Value(left @ value.rows, left @ value.const + right, err, False)

    def sides(self, domain: Domain) -> _Value:
        """b - A x >= 0 for a polytope."""
        if not isinstance(domain, Polytope):
            return _Value(np.zeros((0, self.width)), np.zeros(0), np.zeros(0), False)
        return self.combined(-domain.A, domain.b, self.values[0])


def _rounded_once(left: Array, right: Array) -> Array:
    """left @ right, every entry the float nearest to the exact sum of products."""
    result = np.zeros((len(left), right.shape[1]))
    for i, row in enumerate(left):
        used = np.flatnonzero(row)
        if len(used) == 1 and abs(row[used[0]]) == 1.0:
            result[i] = row[used[0]] * right[used[0]]
            continue
        for k in np.flatnonzero(right[used].any(axis=0)):
            product, rest = _two_product(row[used], right[used, k])
            result[i, k] = math.fsum([*product.tolist(), *rest.tolist()])
    return result


def _two_product(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """a * b as a float and what it lost (Dekker 1971, Veltkamp's splitting)."""

    def split(x: Vector) -> tuple[Vector, Vector]:
        c = 134217729.0 * x
        high = c - (c - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl

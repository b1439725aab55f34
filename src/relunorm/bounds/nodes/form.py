"""A network on a domain as one triangular form: what the compiled bounds start from.

Layers, skips, linear stages and leaky units all become rows over (x, y): the coordinates of the
domain that vary, then max(z, 0) of every unit in order. Where that takes sums of products, a row
carries a bound on their rounding, so the form stands for the network in real arithmetic.

The value of a step unit is a coordinate of its own, behind those of the domain: between 0 and 1,
and fixed where the sign of its unit is (`relunorm.bounds.nodes.node`).

A network too large for that is folded on the way, given bounds of its units: those that keep their
sign on the domain become part of the rows that read them, and only the others are units of the
form. Rows stay sparse until they are those of a unit or a goal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.bounds.nodes.kernel import EPS, TINY
from relunorm.bounds.problem import Bounds, Group
from relunorm.domain import Domain
from relunorm.domain.reach import Reach
from relunorm.matrix import Array, Vector
from relunorm.network import Activation, Affine, Network

#: Goals are computed with one rounding an entry while they take at most this many products.
MOST_EXACT = 1 << 21

#: Forms with more entries than this are not made: 64 MB, some 2,500 units.
MOST_ENTRIES = 1 << 23

#: Entries of the rows of a whole layer, where they are folded, at most.
MOST_FOLDED = 1 << 25


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
        names: per unit its number among all of the network, folded ones too; a step that is
            neither 0 nor 1 at 0 has two.
        jump: per name the coordinate that is the unit's value, for a step; -1 for others.
        at_zero: per name the value of a step at 0, which is 0 or 1.
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
    names: NDArray[np.intp]
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
    """A vector as rows over (x, y), with a bound on what rounding hid; sparse where folded."""

    rows: Any
    const: Vector
    err: Vector
    plain: bool  # every row is one variable as it is: products with it do not round


def fits(network: Network, bounds: Bounds | None = None) -> bool:
    """Whether the form of a network, folded by the given bounds, is small enough to be made."""
    units = sum(len(kept) for kept in _kept(network, bounds))
    return (units + network.output_size) * (units + network.input_size) <= MOST_ENTRIES


def _kept(network: Network, bounds: Bounds | None) -> list[NDArray[np.intp]]:
    """Per layer the units that a form has: all, or those whose sign is open; none of a stage."""
    kept = []
    for index, layer in enumerate(network.layers):
        mask = np.full(layer.width, layer.has_units)
        if bounds is not None and layer.activation.kind == "step":
            mask &= (bounds.lower[index] <= 0) & (bounds.upper[index] >= 0)
        elif bounds is not None:
            mask &= bounds.bent(index)
        kept.append(np.flatnonzero(mask))
    return kept


class TooLarge(Exception):
    """A network whose rows, folded, take too much room."""


def triangular(
    network: Network,
    reach: Reach,
    groups: Sequence[Group],
    bounds: Bounds | None = None,
) -> Form:
    """The form of ``network`` on a domain with goals rhs - A f for every group (A, rhs).

    Args:
        bounds: of every layer on the domain; units that keep their sign are folded.

    Raises:
        TooLarge: there is no room to fold a layer.
    """
    domain = reach.domain
    free = np.flatnonzero(reach.lo < reach.hi)
    if not len(free):  # a single point: one coordinate stays, or there is nothing to search
        free = np.arange(1)
    fixed = np.array(reach.lo)
    fixed[free] = 0.0
    builder = _Builder(network, reach, free, fixed, bounds)
    output = builder.output()
    A = np.concatenate([np.atleast_2d(group[0]) for group in groups])
    rhs = np.concatenate([np.atleast_1d(group[1]) for group in groups])
    goals = builder.combined(-A, rhs, output)
    known = builder.sides(domain)
    parts = [*builder.units, known, goals]
    sizes = [len(np.atleast_1d(group[1])) for group in groups]
    ball = np.zeros(0)
    if domain.norm_bound is not None:
        middle, radius, norm = domain.norm_bound
        ball = np.array([*middle[free], radius, norm], dtype=np.float64)
    return Form(
        np.ascontiguousarray(np.concatenate([mx.dense(p.rows) for p in parts])),
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
        builder.names,
        builder.jump,
        builder.at_zero,
        builder.origin[builder.names],
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

    def __init__(
        self,
        network: Network,
        reach: Reach,
        free: NDArray[np.intp],
        fixed: Vector,
        bounds: Bounds | None,
    ):
        self.network, self.bounds, self.kept = network, bounds, _kept(network, bounds)
        origin, ends, names = [np.zeros(0, np.intp)], [np.zeros(0)], [np.zeros(0, np.intp)]
        done = named = 0
        for layer, kept in zip(network.layers, self.kept, strict=True):
            if layer.has_units:
                for _, at_zero in _copies(layer.activation):
                    origin.append(done + np.arange(layer.width))
                    ends.append(np.full(layer.width, at_zero))
                    names.append(named + kept)
                    named += layer.width
                done += layer.width
        self.names = np.concatenate(names)
        self.origin, self.at_zero = np.concatenate(origin), np.concatenate(ends)
        jumps = ~np.isnan(self.at_zero[self.names])
        count, extra = len(jumps), int(jumps.sum())
        self.jump = np.full(named, -1)
        self.jump[self.names[jumps]] = len(free) + np.arange(extra)
        lo = np.concatenate([reach.lo[free], np.zeros(extra)])
        hi = np.concatenate([reach.hi[free], np.ones(extra)])
        self.inputs, self.width = len(lo), len(lo) + count
        self.lo, self.hi = lo, hi
        self.largest = np.zeros(self.width)  # of every variable
        self.largest[: self.inputs] = np.maximum(np.abs(lo), np.abs(hi))
        self.top = np.zeros(count)
        self.units: list[_Value] = []
        start = self.placed(free, np.arange(len(free)), network.input_size)
        self.values = [_Value(start, fixed.copy(), np.zeros(network.input_size), True)]

    def placed(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], size: int, weight: float = 1.0
    ) -> Any:
        """``size`` rows, some of which are one variable times a weight; the others are 0."""
        if self.bounds is not None:
            entries = np.full(len(rows), weight), (rows, columns)
            return sp.csr_array(entries, shape=(size, self.width))
        own = np.zeros((size, self.width))
        own[rows, columns] = weight
        return own

    def output(self) -> _Value:
        """The output, after all layers."""
        done = 0
        for index, layer in enumerate(self.network.layers):
            z = self.affine(layer.affine)
            if not layer.has_units:
                self.values.append(z)
                continue
            kept, value = self.kept[index], None
            own = _Value(mx.dense(z.rows[kept]), z.const[kept], z.err[kept], False)
            for weight, _ in _copies(layer.activation):
                part = slice(done, done + len(kept))
                columns = slice(self.inputs + part.start, self.inputs + part.stop)
                done += len(kept)
                self.units.append(own)
                self.top[part] = self.highest(own, index)
                self.largest[columns] = self.top[part]
                if layer.activation.kind == "step":
                    value = self.jumped(weight, self.jump[self.names[part]], index, value)
                else:
                    value = self.activated(layer.activation.slopes, z, columns, index)
            assert value is not None
            self.values.append(value)
        return self.affine(self.network.output)

    def affine(self, affine: Affine) -> _Value:
        """A map of values as rows."""
        rows: Any = None
        const, err = affine.bias.copy(), np.zeros(affine.size)
        weight, shifted, exact = np.abs(affine.bias), False, True
        used, terms = np.zeros(self.width, dtype=bool), 16
        for source, matrix in affine.terms.items():
            value = self.values[source]
            terms += mx.longest_row(matrix) + 2
            if self.bounds is not None and mx.product_size(matrix, value.rows) > MOST_FOLDED:
                raise TooLarge
            part = matrix @ value.rows
            rows = mx.compact(part) if rows is None else mx.compact(mx.add(rows, part))
            const += matrix @ value.const
            positive = abs(matrix)
            err += positive @ value.err
            reach = abs(value.rows) @ self.largest
            weight = weight + positive @ (reach + np.abs(value.const))
            shifted |= bool(value.const.any())
            columns = _columns(value.rows)
            exact &= value.plain and not (used & columns).any()
            used |= columns
        if rows is None:
            rows = np.zeros((affine.size, self.width))
        if shifted or not exact:
            err = err * (1 + 8 * EPS) + self.rounding(weight, terms)
        return _Value(rows, const, err, False)

    def rounding(self, weight: Vector, terms: int = 0) -> Vector:
        """What sums of so many products of this total magnitude may lose; of any row if 0."""
        terms = terms or 2 * max(self.network.widths) + 2 * len(self.network.layers) + 16
        return (2.0 * terms * EPS) * weight + TINY

    def highest(self, z: _Value, index: int) -> Vector:
        """Upper bounds of units, at least 0: those given, or by intervals."""
        if self.bounds is not None:
            return np.maximum(self.bounds.upper[index][self.kept[index]], 0.0)
        x, y = z.rows[:, : self.inputs], z.rows[:, self.inputs :]
        top = np.maximum(x, 0) @ self.hi + np.minimum(x, 0) @ self.lo + np.maximum(y, 0) @ self.top
        size = np.abs(z.rows) @ self.largest + np.abs(z.const)
        return np.maximum(top + z.const + z.err + self.rounding(size), 0.0)

    def activated(
        self, slopes: tuple[float, float], z: _Value, columns: slice, index: int
    ) -> _Value:
        """below * z + (above - below) * max(z, 0); units that are folded are on one side."""
        below, above = slopes
        kept = self.kept[index]
        places = np.arange(columns.start, columns.stop)
        own = self.placed(kept, places, len(z.const), above - below)
        if self.bounds is None:
            line = np.full(len(z.const), below)
        else:
            line = np.where(self.bounds.lower[index] >= 0, above, below)
            line[kept] = below
        if not line.any():
            none = np.zeros(len(z.const))
            return _Value(own, none, none, above == 1.0)
        largest = np.zeros(len(z.const))
        largest[kept] = self.largest[columns]
        size = abs(z.rows) @ self.largest + np.abs(z.const) + largest
        rounds = (line != 0.0) & (line != 1.0) | (largest > 0) & (line != 0.0)
        lost = np.where(rounds, 8 * EPS * (abs(below) + abs(above)) * size + TINY, 0.0)
        rows = mx.add(mx.scale_rows(z.rows, line), own)
        return _Value(rows, line * z.const, np.abs(line) * z.err + lost, False)

    def jumped(
        self, weight: float, columns: NDArray[np.int64], index: int, more: _Value | None
    ) -> _Value:
        """The coordinates that are the values of steps times a weight, and ``more``.

        Steps that are folded are 0 or 1 everywhere.
        """
        kept, width = self.kept[index], self.network.layers[index].width
        own, none = self.placed(kept, columns, width, weight), np.zeros(width)
        if more is not None:
            return _Value(own + more.rows, more.const, none + 8 * EPS * (1.0 + abs(weight)), False)
        const = none
        if self.bounds is not None:
            const = (self.bounds.lower[index] > 0).astype(np.float64)
        return _Value(own, const, none, weight == 1.0)

    def combined(self, left: Array, right: Vector, value: _Value) -> _Value:
        """left @ value + right; rounded once per entry where the value itself is exact."""
        value = _Value(mx.dense(value.rows), value.const, value.err, value.plain)
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
        A, b = domain.half_spaces
        if not len(b):
            return _Value(np.zeros((0, self.width)), np.zeros(0), np.zeros(0), False)
        return self.combined(-A, b, self.values[0])


def _columns(rows: Any) -> NDArray[np.bool_]:
    """The variables that some row reads."""
    if not sp.issparse(rows):
        return rows.any(axis=0)
    used = np.zeros(rows.shape[1], dtype=bool)
    used[rows.indices] = True
    return used


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

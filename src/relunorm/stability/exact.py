"""The fixed linear rule in rational arithmetic, for rows whose bound is 0 up to rounding.

Floating point with its error added cannot say that a maximum is exactly 0 (a unit that reads
relu(x) - x where x >= 0, say). Rational arithmetic can, and such rows are few.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.domain import Box, Polytope
from relunorm.matrix import Matrix
from relunorm.network import Affine
from relunorm.stability.linear import chord_slope, default_tilt, fixed_sides
from relunorm.stability.problem import Bounds, Kink, Problem

#: Rows are left alone when the maps below them have more entries than this.
MOST_ENTRIES = 100_000

Row = dict[int, Fraction]


def exact_upper(problem: Problem, bounds: Bounds, index: int, row: int, sign: int) -> float:
    """The bound of `linear_upper` by the fixed rule, exact, then rounded up; inf if not tried."""
    if not isinstance(problem.reach.domain, Box | Polytope):
        return np.inf
    if sum(mx.nnz(m) for a in problem.maps[:index] for m in a.terms.values()) > MOST_ENTRIES:
        return np.inf
    total = sign * _fraction(problem.maps[index].bias[row])
    pending: dict[int, Row] = {}
    _pull(problem.maps[index], {row: Fraction(sign)}, pending)
    for layer in range(index - 1, -1, -1):
        lam = pending.pop(layer + 1, {})
        kink, affine = problem.kinks[layer], problem.maps[layer]
        lower, upper = bounds.lower[layer], bounds.upper[layer]
        slopes: Row = {}
        for j, coefficient in lam.items():
            a = coefficient * _line(kink, coefficient, lower[j], upper[j])
            ends = {lower[j], upper[j]} | ({0.0} if lower[j] < 0 < upper[j] else set())
            total += max(_rest(kink, coefficient, a, z, lower[j], upper[j]) for z in ends)
            total += a * _fraction(affine.bias[j])
            slopes[j] = a
        _pull(affine, slopes, pending)
    lo, hi = problem.reach.lo, problem.reach.hi
    for j, c in pending.get(0, {}).items():
        total += c * _fraction(hi[j] if c > 0 else lo[j])
    value = float(total)
    return value if Fraction(value) >= total else float(np.nextafter(value, np.inf))


def _fraction(value: float) -> Fraction:
    return Fraction(float(value))


def _line(kink: Kink, lam: Fraction, lower: float, upper: float) -> Fraction:
    """The rule's slope, as any number of the right size will do."""
    if kink.linear:
        return Fraction(kink.above)
    if kink.step:
        return Fraction(0)
    one, two = np.array([lower]), np.array([upper])
    if lam * Fraction(kink.gap) > 0:
        return _fraction(chord_slope(kink, one, two)[0])
    share = fixed_sides(default_tilt(one, two), one, two)[0]
    return _fraction(kink.above if share == 1.0 else kink.below)


def _rest(kink: Kink, lam: Fraction, a: Fraction, z: float, lower: float, upper: float) -> Fraction:
    """lam * act(z) - a z at one candidate; at a step's jump the larger of its values."""
    point = Fraction(z)
    if not kink.step:
        side = kink.above if z > 0 or (z == 0 and lower >= 0) else kink.below
        return lam * Fraction(side) * point - a * point
    values = [1.0] if z > 0 else [0.0] if z < 0 else [kink.at_zero]
    if z == 0:
        values += ([0.0] if lower < 0 else []) + ([1.0] if upper > 0 else [])
    return max(lam * Fraction(v) for v in values) - a * point


def _pull(affine: Affine, slopes: Row, pending: dict[int, Row]) -> None:
    """Add slopes @ matrix to the coefficients of every source; zeros are dropped."""
    for source, matrix in affine.terms.items():
        row = pending.setdefault(source, {})
        for i, a in slopes.items():
            if a:
                for j, weight in _entries(matrix, i):
                    total = row.get(j, 0) + a * Fraction(weight)
                    if total:
                        row[j] = total
                    else:
                        row.pop(j, None)


def _entries(matrix: Matrix, row: int) -> list[tuple[int, float]]:
    if sp.issparse(matrix):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        return list(zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True))
    columns = np.flatnonzero(matrix[row])
    return list(zip(columns.tolist(), matrix[row, columns].tolist(), strict=True))

"""Backward linear bounds in fractions: what rounding would leave open, they settle."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, lcm

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic import dyadic
from relunorm.arithmetic.dyadic import Dyadic, Objects, fractions, objects
from relunorm.arithmetic.floats import float_above
from relunorm.bounds.backward import LinearBound
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import Kink, remainder, slope
from relunorm.matrix import Matrix
from relunorm.network import Affine

#: Rows are left alone when the maps below them have more entries than this.
MOST_ENTRIES = 100_000


def product(row: Objects, matrix: Matrix) -> Objects:
    """``row @ matrix`` for a matrix of floats, dense or sparse, over one denominator."""
    over = lcm(*(x.denominator for x in row))
    whole = Dyadic(objects([x.numerator * (over // x.denominator) for x in row]), 0)
    return objects(dyadic.product(matrix.T, whole).fractions(over))


def exact_upper(problem: Problem, bounds: Bounds, index: int, row: int, sign: int) -> float:
    """The bound of `linear_upper` by the fixed rule, exact, then rounded up; inf if not tried."""
    entries = sum(a.nnz for a in problem.maps[:index])
    if not problem.reach.domain.flat_sided or entries > MOST_ENTRIES:
        return inf
    affine = problem.maps[index]
    on = {s: fractions(sign * mx.dense(m[[row]])) for s, m in affine.terms.items()}
    walk = LinearBound(Fraction(float(sign * affine.bias[row])), on, product)
    for layer, lam in walk.layers(index):
        used = np.flatnonzero(lam)
        lam, affine, kink = lam[used], problem.maps[layer], problem.kinks[layer]
        lower, upper = bounds.lower[layer][used], bounds.upper[layer][used]
        # rounded slopes will do, and denominators stay powers of two
        a = abs(lam) * fractions(slope(kink, np.where(lam > 0, 1.0, -1.0), lower, upper))
        rest = remainder(kink.exact, lam, a, fractions(lower), fractions(upper)).sum()
        terms = {s: m[used] for s, m in affine.terms.items()}
        walk.pull(a, fractions(affine.bias[used]), terms, rest)
    if 0 in walk.on:
        ends = np.where(walk.on[0] > 0, problem.reach.hi, problem.reach.lo)
        walk.value += walk.on[0] @ fractions(ends)
    return float_above(walk.value)


def exact_bound(
    maps: Sequence[Affine],
    kinks: Sequence[Kink],
    ends: Sequence[tuple[Objects, Objects]],
    row: Sequence[Fraction],
) -> LinearBound:
    """A bound of ``row @ f``, pulled back through the last layers of a network.

    Args:
        kinks: of all layers, in fractions.
        ends: of the pre-activations of these layers.
    """
    count = len(kinks)
    walk = LinearBound(Fraction(0), {}, product)
    walk.pull(objects(row), fractions(maps[-1].bias), maps[-1].terms)
    for layer, lam in walk.layers(count, count - len(ends)):
        lower, upper = ends[layer - count]
        a = slope(kinks[layer], lam, lower, upper)
        rest = remainder(kinks[layer], lam, a, lower, upper).sum()
        walk.pull(a, fractions(maps[layer].bias), maps[layer].terms, rest)
    return walk

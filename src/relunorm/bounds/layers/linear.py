"""Backward linear bounds: an upper bound of sign * z from any choice of slopes.

For a row of coefficients lam on the values act(z) of a layer with l <= z <= u, and ANY slope a,

    lam * act(z)  <=  a z + c,    c = max over z in {l, 0, u} of lam * act(z) - a z,

because the difference is affine on either side of the kink. Substituting from the layer below the
target down to the input leaves an affine function of the input, whose maximum over the domain is
known. This is the Lagrangian dual of the layered problem (Dvijotham et al., UAI 2018): every choice
of slopes is sound, the optimal ones give the value of the triangle relaxation, the fixed rule of
`default_tilt` gives CROWN (Zhang et al., NeurIPS 2018). So a proof is nothing but the slopes.

Slopes are written with two numbers per unit, a = lam+ * chord + lam- * tilted + offset: ``tilt`` in
[0, 1] places the slope between the two sides of the kink where a tangent is needed, ``offset`` adds
a multiplier for l <= z <= u itself.

Rows of a convolution stay sparse on the way down, while they follow the fixed rule, until what they
read has grown to a share of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.floats import SMALLEST
from relunorm.bounds.backward import LinearBound
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import Kink, remainder, slope
from relunorm.clock import NO_LIMIT, Clock
from relunorm.matrix import Array, Matrix, Vector

#: Backward passes hold at most this many doubles per array at a time.
CHUNK_DOUBLES = 1 << 22


@dataclass(frozen=True, eq=False)
class Slopes:
    """The free choices of a backward pass, one row per target.

    Args:
        tilt: layer -> (rows, width), entries in [0, 1]; layers left out follow the fixed rule.
        offset: layer -> (rows, width), any numbers; zero where left out.
        multipliers: (rows, inequalities) >= 0 on a polytope's rows; zero where left out.
    """

    tilt: dict[int, Array] = field(default_factory=dict)
    offset: dict[int, Array] = field(default_factory=dict)
    multipliers: Array | None = None

    def take(self, rows: NDArray[np.intp] | list[int] | slice) -> Slopes:
        """The choices of some of the targets."""
        return Slopes(
            {k: v[rows] for k, v in self.tilt.items()},
            {k: v[rows] for k, v in self.offset.items()},
            None if self.multipliers is None else self.multipliers[rows],
        )


BY_RULE = Slopes()


def linear_upper(
    problem: Problem,
    bounds: Bounds,
    index: int,
    rows: NDArray[np.intp],
    signs: Vector,
    slopes: Slopes = BY_RULE,
    clock: Clock = NO_LIMIT,
) -> Vector:
    """A sound upper bound of ``signs * z[rows]`` of map ``index``, in real arithmetic.

    Args:
        rows: which pre-activations, one target each (a row may appear more than once).
        signs: +1 for the maximum, -1 for minus the minimum.
        slopes: the choices that prove the bound; the fixed rule where left out.
        clock: rows not reached before its end get infinity.

    Cost: one product per earlier layer, as a forward pass of ``len(rows)`` points.
    """
    result = np.full(len(rows), np.inf)
    step = max(1, CHUNK_DOUBLES // max(problem.network.widths))
    for start in range(0, len(rows), step):
        if clock.expired():
            break
        take = slice(start, start + step)
        result[take] = _descend(problem, bounds, index, rows[take], signs[take], slopes.take(take))
    return result


def _descend(
    problem: Problem,
    bounds: Bounds,
    index: int,
    rows: NDArray[np.intp],
    signs: Vector,
    slopes: Slopes,
) -> Vector:
    affine = problem.maps[index]
    bias = affine.bias[rows]
    on = {s: mx.scale_rows(matrix[rows], signs) for s, matrix in affine.terms.items()}
    walk = LinearBound(signs * bias, on, size=np.abs(bias))
    for source, lam in on.items():
        walk.size = walk.size + abs(lam) @ bounds.span(source)
    for layer, lam in walk.layers(index):
        affine = problem.maps[layer]
        a, rest = _through(problem.kinks[layer], mx.compact(lam), bounds, layer, slopes)
        size = abs(a)
        reach = np.maximum(np.abs(bounds.lower[layer]), np.abs(bounds.upper[layer]))
        walk.size = walk.size + size @ (reach + np.abs(affine.bias))
        walk.size += abs(lam) @ bounds.span(layer + 1)
        for source, matrix in problem.absolute[layer].items():
            span = bounds.span(source)
            walk.size += size @ (matrix @ span)
            walk.lost += matrix.shape[0] * SMALLEST * float(span[np.isfinite(span)].sum())
        walk.pull(a, affine.bias, affine.terms, rest)
    if 0 in walk.on:
        top, weight = problem.reach.support_upper(mx.dense(walk.on[0]), slopes.multipliers)
        walk.value, walk.size = walk.value + top, walk.size + weight
    return walk.safe(problem.operations)


def _through(
    kink: Kink, lam: Matrix, bounds: Bounds, layer: int, slopes: Slopes
) -> tuple[Matrix, Vector]:
    """Coefficients on values to slopes on pre-activations, and what that leaves, row by row."""
    lower, upper = bounds.lower[layer], bounds.upper[layer]
    tilt, offset = slopes.tilt.get(layer), slopes.offset.get(layer)
    if sp.issparse(lam) and tilt is None and offset is None:
        at = lam.indices
        a = slope(kink, lam.data, lower[at], upper[at])
        rest = remainder(kink, lam.data, a, lower[at], upper[at])
        a, rest = (sp.csr_array((x, at, lam.indptr), shape=lam.shape) for x in (a, rest))
        return a, np.asarray(rest.sum(axis=1)).ravel()
    lam = mx.dense(lam)
    a = slope(kink, lam, lower, upper, tilt, offset)
    return a, remainder(kink, lam, a, lower, upper).sum(axis=1)

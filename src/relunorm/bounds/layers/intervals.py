"""Interval bounds of a layer's pre-activations from the bounds of the values it reads.

    sum over sources of W+ low + W- high + b  <=  z  <=  sum of W+ high + W- low + b

In floating point with the rounding added, and in rational arithmetic for rows whose bound comes so
close to 0 that rounding alone would leave the sign open.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, float_above, grain, rounded_down, rounded_up, slack
from relunorm.bounds.problem import Bounds, Problem
from relunorm.domain.base import lengths
from relunorm.matrix import Matrix, Vector, row_entries, row_maxima


def interval_bounds(problem: Problem, bounds: Bounds, index: int) -> tuple[Vector, Vector]:
    """Sound bounds of map ``index`` (the layer's pre-activations; the output for the last).

    Over a box these are exact at a first layer up to rounding, and exact in sign: a maximum that
    is 0 comes out as 0.
    """
    affine = problem.maps[index]
    lower, upper = affine.bias.copy(), affine.bias.copy()
    magnitude = np.abs(affine.bias)
    ball = problem.reach.domain.as_ball
    for source, matrix in affine.terms.items():
        magnitude = magnitude + problem.absolute[index][source] @ bounds.span(source)
        if source == 0 and ball is not None:
            middle, swing = matrix @ ball.middle, ball.reach * _row_norms(matrix)
            lower += middle - swing
            upper += middle + swing
            magnitude = magnitude + swing
            continue
        up, down = signed_parts(matrix)
        low, high = bounds.low[source], bounds.high[source]
        lower += up @ low + down @ high
        upper += up @ high + down @ low
    error = slack(magnitude, problem.operations)
    sure = _no_rounding(problem, bounds, index, magnitude)
    bottom = np.where(sure, lower, rounded_down(lower, error))
    top = np.where(sure, upper, rounded_up(upper, error))
    bottom = np.where(np.isnan(bottom), -np.inf, bottom)
    top = np.where(np.isnan(top), np.inf, top)
    near = np.where(np.isfinite(error), error, -np.inf)
    for row in np.flatnonzero((bottom < 0) & (lower >= -near)).tolist():
        bottom[row] = max(bottom[row], -_exact_upper(problem, bounds, index, row, -1))
    for row in np.flatnonzero((top > 0) & (upper <= near)).tolist():
        top[row] = min(top[row], _exact_upper(problem, bounds, index, row, 1))
    return bottom, top


def _no_rounding(
    problem: Problem, bounds: Bounds, index: int, magnitude: Vector
) -> NDArray[np.bool_]:
    """Rows in which every product and partial sum is a float: their bounds need no widening."""
    if problem.reach.domain.as_ball is not None:
        return np.zeros(len(magnitude), dtype=bool)
    step = problem.grains[index]["bias"]
    for source in problem.maps[index].terms:
        ends = grain(np.concatenate([bounds.low[source], bounds.high[source]]))
        step = np.minimum(step, problem.grains[index][source] * ends)
    step = np.where(np.isinf(step), 1.0, step)
    return (magnitude < 2.0**52 * step) & (step > TINY)


def signed_parts(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The positive and the negative part of a matrix."""
    if sp.issparse(matrix):
        return matrix.maximum(0.0), matrix.minimum(0.0)
    return np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)


def _exact_upper(problem: Problem, bounds: Bounds, index: int, row: int, sign: int) -> float:
    """max of sign * z over the intervals in rational arithmetic, rounded up (0 stays 0).

    Over a ball only the sign is settled: w.m + b + r|w| <= 0 iff
    w.m + b <= 0 and (w.m + b)^2 >= r^2 |w|^2.
    """
    affine = problem.maps[index]
    total = sign * Fraction(float(affine.bias[row]))
    squares = Fraction(0)
    ball = problem.reach.domain.as_ball
    for source, matrix in affine.terms.items():
        columns, weights = row_entries(matrix, row)
        for j, weight in zip(columns.tolist(), weights.tolist(), strict=True):
            w = sign * Fraction(weight)
            if source == 0 and ball is not None:
                total += w * Fraction(float(ball.middle[j]))
                squares += w * w
            else:
                end = bounds.high[source] if w > 0 else bounds.low[source]
                total += w * Fraction(float(end[j]))
    if ball is not None and squares:
        swing = Fraction(ball.reach) ** 2 * squares
        return 0.0 if total <= 0 and total * total >= swing else np.inf
    return float_above(total)


def _row_norms(matrix: Matrix) -> Vector:
    if sp.issparse(matrix):
        size = row_maxima(matrix)
        unit = np.where(size > 0, size, 1.0)  # squares underflow early
        scaled = matrix.multiply(1 / unit[:, None]).tocsr()
        return unit * np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    return lengths(matrix)

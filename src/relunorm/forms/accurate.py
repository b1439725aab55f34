"""Matrix products in doubled precision, whose result does not depend on the order of summation.

Every product is split into its rounded value and its error, every sum likewise, and the errors are
added up beside the sum (Ogita, Rump and Oishi, Accurate sum and dot product, 2005, Algorithm 5.3).
The result is the exact sum rounded to float64 unless it lies within about 2^-104 (relative to the
sum of magnitudes) of a rounding boundary, so permuting, splitting or padding the summed units
leaves it bit for bit the same. Only elementwise operations are used, never a BLAS call, whose
rounding depends on where a row sits in the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.matrix import Matrix, Vector

#: A sum below this share of what was summed counts as 0 where parameters are rounded anyway.
NOISE = 2.0**-46

#: Entries of the rows of both factors that are worked on at a time.
BLOCK = 1 << 22

_SPLIT = 134217729.0  # 2^27 + 1


def product(left: Matrix, right: Matrix, clock: Clock = NO_LIMIT) -> Matrix:
    """``left @ right`` in doubled precision, rounded once.

    Costs about twenty elementwise operations per scalar product; meant for matrices of a few
    hundred rows. Raises `TimeLimitError` when the clock runs out.

    >>> product(np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1)))
    array([[1.]])
    """
    if mx.is_identity(right):
        return left
    b: Any = sp.csr_array(right)  # scipy's stubs lack shapes and dtypes
    step = max(1, BLOCK // max(1, sum(b.shape)))
    blocks = [_block(left[k : k + step], b, clock) for k in range(0, left.shape[0], step)]
    if sp.issparse(right):
        size = left.shape[0] * b.shape[1]
        if sum(map(np.count_nonzero, blocks)) <= mx.DENSE_ABOVE * size:
            return mx.as_matrix(sp.vstack([sp.csr_array(block) for block in blocks], "csr"))
    return np.concatenate(blocks)


def _block(left: Matrix, b: Any, clock: Clock) -> NDArray[np.float64]:
    """`product` for some rows, dense."""
    a = mx.dense(left)
    high = np.zeros((a.shape[0], b.shape[1]))
    low = np.zeros_like(high)
    for turn, k in enumerate(np.flatnonzero(a.any(axis=0)).tolist()):
        if turn % 16 == 0:
            clock.check()
        span = slice(b.indptr[k], b.indptr[k + 1])
        columns, entries = b.indices[span], b.data[span]
        if not len(columns):
            continue
        active = np.flatnonzero(a[:, k])
        where = np.ix_(active, columns)
        term, term_error = _two_product(a[active, k][:, None], entries[None, :])
        total, sum_error = _two_sum(high[where], term)
        high[where] = total
        low[where] += term_error + sum_error
    return high + low


def tidy_product(left: Matrix, right: Matrix) -> Matrix:
    """`product` with entries set to 0 that are rounding noise of the numbers they were summed from.

    What copies rescaled in floating point leave of a sum that is 0 in the original.

    >>> tidy_product(np.array([[0.1, 0.3, -0.1 - 1e-17 - 0.3]]), np.ones((3, 1)))
    array([[0.]])
    """
    result = product(left, right)
    size = np.abs(mx.dense(left)) @ np.abs(mx.dense(right))
    noise = np.abs(mx.dense(result)) <= NOISE * size
    if sp.issparse(result):
        return mx.as_matrix(sp.csr_array(np.where(noise, 0.0, mx.dense(result))))
    return np.where(noise, 0.0, result)


def row_sums(matrix: NDArray[np.float64]) -> Vector:
    """The sum of every row in doubled precision, rounded once."""
    return mx.dense(product(matrix, np.ones((matrix.shape[1], 1)))).ravel()


def _two_sum(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _two_product(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    value = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = a_low * b_low - (((value - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return value, error


def _halves(a: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    spread = _SPLIT * a
    high = spread - (spread - a)
    return high, a - high

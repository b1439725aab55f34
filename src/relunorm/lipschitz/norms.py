"""Operator norms p -> p, rounded up so that a product of them is a true upper bound.

Dense matrices go through LAPACK with a margin for its rounding. Sparse ones (convolutions) get
their largest singular value from Lanczos, which errs from below, and then a proof: a Cholesky
factorisation of c I - A A^T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.arithmetic.floats import scaled_up
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector

#: Unit roundoff of float64.
ROUNDOFF = 2.0**-53

#: Exponents of largest entries that need no scaling.
ORDINARY = 100

#: A Gram matrix with at most this many rows is factorised to prove a sparse spectral norm.
GRAM_ROWS = 4096

#: Multiplications a rough bound may spend on a product (a tenth of a second or less).
ROUGH_WORK = 2e7

#: Operations a second that factorisations make on one core; only to judge whether time will do.
FLOPS = 1e10


#: The norms by how they are written; one that is no p has a number below 0. A further one also
#: needs its part of every function here that takes a norm, and of the compiled bounds in
#: `lipschitz.search.steepest`; without it they refuse.
NORMS = {"1": 1.0, "2": 2.0, "inf": np.inf}


def as_norm(norm: Any) -> float:
    """1.0, 2.0 or inf from what a caller wrote (also the strings '1', '2', 'inf')."""
    try:
        value = NORMS[norm] if isinstance(norm, str) and norm in NORMS else float(norm)
    except (TypeError, ValueError):
        value = np.nan
    if value not in NORMS.values():
        *most, last = NORMS
        raise InvalidInputError(f"norm {norm!r} is not known; use {', '.join(most)} or {last}")
    return value


def written(norm: float) -> str:
    """A norm as `NORMS` has it.

    >>> written(2.0)
    '2'
    """
    return next(name for name, value in NORMS.items() if value == norm)


def _summed(norm: float) -> int:
    """The axis of a matrix along which the norm sums sizes, to take the largest sum."""
    if norm not in (1.0, np.inf):
        raise InvalidInputError(f"the norm {norm:g} of a matrix is not known")
    return 0 if norm == 1.0 else 1


class Deadline:
    """When norms should be known.

    Attributes:
        rough: how many norms were bounded roughly because finding them would have taken longer.
    """

    def __init__(self, clock: Clock):
        self.clock, self.rough = clock, 0

    def allows(self, seconds: float) -> bool:
        """Whether there is time for work of so many seconds; counts it as left out if not."""
        enough = not self.clock.expired() and seconds <= self.clock.left()
        self.rough += not enough
        return enough


def operator_norm(matrix: Any, norm: float, deadline: Deadline | None = None) -> float:
    """max |A x|_p / |x|_p for p = 1, 2 or inf: a sound upper bound, tight to rounding.

    For a sparse matrix with more than `GRAM_ROWS` rows and columns and p = 2 the bound is that of
    |A|, which may be loose by a factor. A spectral norm that cannot be had before the deadline is
    bounded by `_rough_spectral`.

    >>> row = np.array([[3.0, -4.0]])
    >>> [round(operator_norm(row, p), 9) for p in (1.0, 2.0, np.inf)]
    [4.0, 5.0, 7.0]
    """
    if min(matrix.shape) == 0:
        return 0.0
    if norm == 2.0:
        enough = deadline is None or deadline.allows(_seconds(matrix))
        return _in_range(_spectral if enough else _rough_spectral, matrix)
    sums = abs(matrix).sum(axis=_summed(norm))
    return round_up(float(np.max(sums)), sum(matrix.shape))


def operator_norms(batch: Array, norm: float) -> Vector:
    """The norms of a batch of dense matrices (n, rows, columns), to rounding (not rounded up)."""
    if norm == 2.0 and batch.shape[1] == 1:
        return np.sqrt(np.einsum("nrc,nrc->n", batch, batch))
    if norm == 2.0:
        return np.linalg.norm(batch, 2, axis=(1, 2))
    return np.abs(batch).sum(axis=1 + _summed(norm)).max(axis=1)


def of_errors(sizes: Array, norm: float) -> float:
    """The norm of a matrix with entries up to ``sizes``, to rounding, or more."""
    if norm == 2.0:
        return float(np.linalg.norm(sizes))
    return float(operator_norms(sizes[None], norm)[0])


def matrix_size(errors: Array, norm: float) -> float:
    """The norm of a matrix of errors, or of any matrix with these sums of rows."""
    sums = [float(errors.sum(axis=axis).max()) for axis in (0, 1)]
    size = float(np.sqrt(sums[0] * sums[1])) if norm == 2.0 else sums[_summed(norm)]
    if errors.shape[1] == 1:
        return round_up(float(errors.sum()), len(errors))
    return round_up(size, sum(errors.shape))


def from_l2(norm: float, inputs: int, outputs: int) -> tuple[float, str]:
    """A factor by which the norm can exceed the spectral one, and how to call it.

    |J|_1 <= sqrt(outputs) |J|_2 and |J|_inf <= sqrt(inputs) |J|_2.
    """
    if norm == 2.0:
        return 1.0, ""
    size = (outputs, inputs)[_summed(norm)]
    return round_up(float(np.sqrt(size)), 2), f"l2 bound times sqrt({size})"


def round_up(value: float, terms: int) -> float:
    """``value`` plus the rounding that ``terms`` floating-point operations can have cost it."""
    return value * (1.0 + 2.0 * (terms + 1) * ROUNDOFF)


def _seconds(matrix: Any) -> float:
    """About how long `_spectral` takes: two factorisations of a Gram matrix, or an SVD."""
    small, large = sorted(matrix.shape)
    if small == 1 or (sp.issparse(matrix) and small > GRAM_ROWS):
        return 0.0
    work = small**3 if sp.issparse(matrix) else 4.0 * small * small * large
    return work / FLOPS


def _in_range(bound: Callable[[Any], float], matrix: Any) -> float:
    """A bound on the norm of a matrix from one of ordinary size: fourth powers leave float64."""
    largest = float(abs(matrix).max())
    exponent = int(np.frexp(largest)[1])
    if abs(exponent) <= ORDINARY or largest == 0.0:
        return bound(matrix)
    size = math.ldexp(1.0, -exponent // 2), math.ldexp(1.0, -exponent - (-exponent // 2))
    return scaled_up(bound(matrix * size[0] * size[1]), exponent)


def _spectral(matrix: Any) -> float:
    rows, columns = matrix.shape
    if not sp.issparse(matrix):
        if rows == 1 or columns == 1:
            return round_up(float(np.linalg.norm(matrix)), rows * columns)
        return round_up(float(np.linalg.norm(matrix, 2)), 8 * max(rows, columns))
    if not matrix.nnz:
        return 0.0
    if min(rows, columns) > GRAM_ROWS:
        return nonnegative_spectral_bound(abs(matrix))
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    return _proved_root(gram)


def _proved_root(gram: Any) -> float:
    """The square root of some c for which c I - gram passed a Cholesky factorisation."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    size = gram.shape[0]
    guess = float(abs(gram).sum(axis=1).max())  # the row-sum norm, an upper bound
    if size > 2:
        start = np.random.default_rng(0).random(size)
        try:
            lanczos: Any = eigsh(gram, 1, v0=start, return_eigenvectors=False)
            guess = min(guess, float(lanczos[0]))
        except ArpackNoConvergence:
            pass  # the row-sum norm is a bound already; the proof below starts from it
    dense = mx.dense(gram)
    growth = 1e-12 * size
    while not is_positive_definite(np.diag(np.full(size, guess * (1 + growth))) - dense):
        growth *= 4
    return round_up(float(np.sqrt(guess * (1 + growth))), 8 * size)


def is_positive_definite(matrix: Array) -> bool:
    """Proof that a symmetric matrix is positive definite, rounding included.

    A Cholesky factorisation that runs through on A - s I in floating point proves A positive
    definite when s is at least (n + 2) u tr(A) up to higher order (Rump 2006, "Verification of
    positive definiteness", Theorem 2.3). Rows and columns are first scaled by powers of two, which
    is exact. A False answer proves nothing.
    """
    diagonal = np.diagonal(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return False
    scale = np.exp2(-np.round(np.log2(diagonal) / 2))
    scaled = matrix * scale[:, None] * scale
    size = len(matrix)
    scaled[np.diag_indices(size)] -= 2.0 * (size + 3) * ROUNDOFF * float(np.trace(scaled))
    try:
        sl.cholesky(scaled, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _rough_spectral(matrix: Any, squarings: int = 2) -> float:
    """A sound bound without a factorisation: |A|^2 = |A A^T|, bounded by absolute values.

    Signs cancel within the product, so each squaring is tighter. A product that is computed in
    floating point is off by at most k u |A| |A|^T entry by entry, k the length of its sums (Higham
    2002, section 3.5).
    """
    bound = nonnegative_spectral_bound(abs(matrix))
    rows, columns = matrix.shape
    factor = mx.as_matrix(matrix if rows <= columns else matrix.T)
    other = mx.as_matrix(factor.T)
    if not squarings or _product_work(factor) > ROUGH_WORK:
        return bound
    error = 2.0 * (factor.shape[1] + 2) * ROUNDOFF * bound * bound
    square = _rough_spectral(mx.matmul(factor, other), squarings - 1) + error
    return min(bound, round_up(float(np.sqrt(square)), 4))


def _product_work(matrix: Any) -> float:
    """Multiplications in A A^T; those of dense matrices count a sixteenth."""
    rows, columns = matrix.shape
    if not sp.issparse(matrix):
        return rows * rows * columns / 16
    return float((np.bincount(matrix.indices, minlength=columns).astype(float) ** 2).sum())


def nonnegative_spectral_bound(matrix: Any) -> float:
    """A sound bound on the spectral norm of an entrywise non-negative matrix B.

    Collatz-Wielandt: for any positive v the largest ratio (B^T B v)_i / v_i is at least the
    spectral radius of B^T B. v comes from power iteration with a small positive part added.
    """
    vector = np.ones(matrix.shape[1])
    best = np.inf
    for _ in range(30):
        image = matrix.T @ (matrix @ vector)
        top = float(image.max())
        if top == 0.0:
            return 0.0
        best = min(best, float((image / vector).max()))
        vector = image / top + 1e-9
    return round_up(float(np.sqrt(best)), 4 * sum(matrix.shape))

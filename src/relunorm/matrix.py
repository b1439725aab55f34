"""The few matrix operations that must work alike on dense and sparse weights.

A weight matrix is either a C-contiguous ``float64`` array or a canonical ``float64`` CSR array
(convolutions are sparse). Everything here is exact up to the rounding of the products themselves.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.errors import InvalidNetworkError, UnsupportedFormatError

Array: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = Array
#: ``NDArray[np.float64] | sp.csr_array``; scipy ships no types, so checkers see Any.
Matrix: TypeAlias = Any

#: Above this share of non-zero entries a sparse matrix is stored dense.
DENSE_ABOVE = 0.25


def as_matrix(matrix: Any) -> Matrix:
    """A dense C-contiguous or a canonical CSR ``float64`` matrix, copied only where needed."""
    if sp.issparse(matrix):
        return _canonical(sp.csr_array(as_floats(matrix)))
    return np.ascontiguousarray(as_floats(matrix))


def as_floats(numbers: Any, what: str = "the weights") -> Any:
    """Numbers of a network in ``float64``, dense or sparse."""
    try:
        found = numbers if sp.issparse(numbers) else np.asarray(numbers)
        if found.dtype.kind != "c":
            return found.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise InvalidNetworkError(f"{what} are no array of numbers: {error}") from None
    raise InvalidNetworkError(f"{what} hold complex numbers; networks here compute with real ones")


def frozen(matrix: Any) -> Any:
    """Mark the arrays behind a matrix or vector as read-only and return it."""
    if sp.issparse(matrix):
        for part in (matrix.data, matrix.indices, matrix.indptr):
            part.setflags(write=False)
    else:
        matrix.setflags(write=False)
    return matrix


def is_frozen(matrix: Any) -> bool:
    """Whether nobody can write into the matrix through this handle."""
    parts = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
    return not any(part.flags.writeable for part in parts)


def narrowed(array: NDArray[Any], dtype: Any, what: str) -> NDArray[Any]:
    """Floating-point numbers in another type; raises where one does not fit."""
    with np.errstate(over="ignore"):
        converted = np.asarray(array).astype(dtype)
    if not np.isfinite(converted).all():
        raise UnsupportedFormatError(
            f"{what}: a number of size {np.abs(array).max():.3g} does not fit {np.dtype(dtype)}; "
            "write float64"
        )
    return converted


def entries(matrix: Matrix) -> Vector:
    """The stored entries: all of a dense matrix, the non-zero pattern of a sparse one."""
    return matrix.data if sp.issparse(matrix) else matrix


def nnz(matrix: Matrix) -> int:
    """How many entries are stored."""
    return int(entries(matrix).size)


def longest_row(matrix: Matrix) -> int:
    """The most entries that a row stores."""
    if sp.issparse(matrix):
        return int(np.diff(matrix.indptr).max(initial=0))
    return matrix.shape[1]


def row_counts(matrix: Matrix) -> Vector:
    """How many entries of each row are not 0."""
    if sp.issparse(matrix):
        return np.diff(sp.csr_array(matrix).indptr).astype(np.float64)
    return np.count_nonzero(matrix, axis=1).astype(np.float64)


def column_counts(matrix: Matrix) -> NDArray[np.intp]:
    """How many entries of each column are not 0."""
    if sp.issparse(matrix):
        return np.bincount(matrix.indices[matrix.data != 0], minlength=matrix.shape[1])
    return np.count_nonzero(matrix, axis=0)


def row_maxima(matrix: Matrix) -> Vector:
    """The largest absolute entry of each row; 0 where it has none."""
    if not min(matrix.shape):
        return np.zeros(matrix.shape[0])
    return dense(abs(matrix).max(axis=1)).ravel()


def row_entries(matrix: Matrix, row: int) -> tuple[NDArray[np.intp], Vector]:
    """Columns and values of the entries of one row that are not 0."""
    if sp.issparse(matrix):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        return matrix.indices[part], matrix.data[part]
    columns = np.flatnonzero(matrix[row])
    return columns, matrix[row, columns]


def triples(matrix: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
    """Row, column and value of every entry that is not 0."""
    ends, columns, values = csr_parts(matrix)
    return np.repeat(np.arange(len(ends) - 1), np.diff(ends)), columns, values


def csr_parts(matrix: Matrix) -> tuple[NDArray[Any], NDArray[Any], Vector]:
    """Row ends, columns and values of the nonzero entries, as canonical CSR has them.

    The same for one matrix however it is stored; a dense one takes no detour by way of triples,
    which cost ten times as much.
    """
    if sp.issparse(matrix):
        sparse: Any = _canonical(sp.csr_array(matrix))
        return sparse.indptr, sparse.indices, sparse.data
    filled = matrix != 0
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(filled, axis=1))])
    if ends[-1] == matrix.size:
        rows, columns = matrix.shape
        return ends, np.tile(np.arange(columns), rows), matrix.ravel()
    return ends, np.nonzero(filled)[1], matrix[filled]


def dense(matrix: Matrix) -> NDArray[np.float64]:
    """The matrix as a dense array (the same object when it already is one)."""
    return matrix.toarray() if sp.issparse(matrix) else matrix


def compact(matrix: Matrix) -> Matrix:
    """Store a sparse matrix dense where that is smaller; dense matrices stay as they are."""
    if sp.issparse(matrix) and matrix.nnz > DENSE_ABOVE * matrix.shape[0] * matrix.shape[1]:
        return matrix.toarray()
    return matrix


def matmul(left: Matrix, right: Matrix) -> Matrix:
    """The product; sparse when both factors are."""
    product = left @ right
    return _canonical(product) if sp.issparse(product) else np.ascontiguousarray(product)


def add(left: Matrix, right: Matrix) -> Matrix:
    """The sum; dense as soon as one of the two is."""
    if sp.issparse(left) != sp.issparse(right):
        return dense(left) + dense(right)
    total = left + right
    return _canonical(total) if sp.issparse(total) else total


def scale_rows(matrix: Matrix, factors: Vector) -> Matrix:
    """``diag(factors) @ matrix``."""
    if sp.issparse(matrix):
        data = matrix.data * np.repeat(factors, np.diff(matrix.indptr))
        return _canonical(sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape))
    return matrix * factors[:, None]


def scale_columns(matrix: Matrix, factors: Vector) -> Matrix:
    """``matrix @ diag(factors)``."""
    if sp.issparse(matrix):
        data = matrix.data * factors[matrix.indices]
        return _canonical(sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape))
    return matrix * factors


def identity(size: int) -> sp.csr_array:
    """The sparse identity."""
    return selection(np.arange(size), size)


def is_identity(matrix: Matrix) -> bool:
    """Whether a sparse matrix is the identity (a dense one is never asked to be)."""
    rows, columns = matrix.shape
    return (
        sp.issparse(matrix)
        and rows == columns == matrix.nnz
        and bool((matrix.data == 1).all())
        and bool((matrix.indices == np.arange(rows)).all())
    )


def selection(columns: NDArray[np.intp], size: int) -> sp.csr_array:
    """The 0/1 matrix whose row i picks entry ``columns[i]`` of a vector of length ``size``."""
    rows = len(columns)
    return sp.csr_array(
        (np.ones(rows), np.asarray(columns, dtype=np.int64), np.arange(rows + 1)),
        shape=(rows, size),
    )


def product_size(left: Matrix, right: Matrix) -> int:
    """An upper bound on ``nnz(left @ right)`` that costs no product."""
    rows, columns = left.shape[0], right.shape[1]
    if not (sp.issparse(left) and sp.issparse(right)):
        return rows * columns
    per_column = np.bincount(left.indices, minlength=left.shape[1])
    return int(min(per_column @ np.diff(right.indptr), rows * columns))


def same(left: Matrix, right: Matrix) -> bool:
    """Equal entry for entry, whatever the storage."""
    if left.shape != right.shape:
        return False
    if sp.issparse(left) or sp.issparse(right):
        difference = sp.csr_array(left) - sp.csr_array(right)
        return not np.any(difference.data)
    return bool(np.array_equal(left, right))


def is_canonical(matrix: sp.csr_array) -> bool:
    """Whether it holds floats with sorted indices, no duplicates and no explicit zeros."""
    fits = matrix.dtype == np.float64 and matrix.has_canonical_format
    return bool(fits and (not matrix.nnz or matrix.data.all()))


def _canonical(matrix: sp.csr_array) -> sp.csr_array:
    """Sorted indices, summed duplicates, no explicit zeros; the argument is left as it was."""
    if not matrix.has_canonical_format or (matrix.nnz and not matrix.data.all()):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix

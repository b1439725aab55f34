"""Refusing a rewrite whose numbers leave the range of float64, where scaling cannot be undone.

relu(z) = s relu(z / s) holds in floating point only while neither side underflows or overflows.
A weight that silently becomes 0 is another function as soon as a later weight is large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.matrix import Matrix, Vector
from relunorm.network import Affine

#: A product below this may have lost digits to underflow.
LEAST = 2.0**-969

#: In a row with an entry of at least this size a lost product does not count: it is smaller by
#: 2^-600, far below the rounding of the row.
VISIBLE = 2.0**-369


def losing_rows(left: Matrix, right: Matrix) -> NDArray[np.bool_]:
    """Rows of ``left @ right`` with an entry all of whose products underflow, or nearly so.

    Costs nothing but two minima unless tiny numbers meet.
    """
    if _least(left) * _least(right) >= LEAST or _moves(left) or _moves(right):
        return np.zeros(left.shape[0], dtype=bool)
    size: Any = mx.dense(mx.matmul(abs(left), abs(right)))
    touched = mx.dense(mx.matmul(_pattern(left), _pattern(right))) > 0
    return np.asarray((touched & (size < LEAST)).any(axis=1))


def check_rows(affine: Affine, losing: NDArray[np.bool_], place: str) -> None:
    """Raise if the map overflowed, or a row lost to underflow something it can feel."""
    if not (np.isfinite(affine.bias).all() and all(map(_finite, affine.terms.values()))):
        raise _out_of_range(place, "overflow")
    if losing.any() and (row_sizes(affine)[losing] < VISIBLE).any():
        raise _out_of_range(place, "underflow")


def check_scaling(before: Affine, after: Affine, place: str) -> None:
    """Raise unless every row that was scaled could be scaled back."""
    losing = np.zeros(before.size, dtype=bool)
    pairs = [(before.terms[k], after.terms[k]) for k in before.terms]
    for old, new in pairs:
        if _least(new) < 2.0**-1022 or mx.nnz(old) != mx.nnz(new):
            faded = (mx.dense(old) != 0) & (np.abs(mx.dense(new)) < 2.0**-1022)
            losing |= faded.any(axis=1)
    losing |= (before.bias != 0) & (np.abs(after.bias) < 2.0**-1022)
    check_rows(after, losing, place)


def row_sizes(affine: Affine) -> Vector:
    """The largest magnitude in every row, the bias included."""
    largest = np.abs(affine.bias)
    for matrix in affine.terms.values():
        if min(matrix.shape):
            size: Any = abs(matrix).max(axis=1)
            largest = np.maximum(largest, mx.dense(size).ravel())
    return largest


def _least(matrix: Matrix) -> float:
    """The smallest non-zero magnitude; inf if there is none."""
    size = np.abs(mx.entries(matrix))
    return float(size.min(initial=np.inf, where=size > 0))


def _moves(matrix: Matrix) -> bool:
    """Whether all entries are -1, 0 or 1: such a product rounds nothing away."""
    size = np.abs(mx.entries(matrix))
    return bool(((size == 0) | (size == 1)).all())


def _pattern(matrix: Matrix) -> Matrix:
    return mx.as_matrix((matrix != 0).astype(np.float64))


def _finite(matrix: Matrix) -> bool:
    return bool(np.isfinite(mx.entries(matrix)).all())


def _out_of_range(place: str, what: str) -> InvalidNetworkError:
    return InvalidNetworkError(
        f"{place}: rewriting it would {what}, the products of its weights with those before or "
        "after it leave the range of float64. Rescale the layers so that their weights are of "
        "similar size, or set weights that do not matter to 0"
    )

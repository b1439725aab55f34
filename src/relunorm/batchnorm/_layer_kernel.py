"""Compiled passes over a layer's activations (n, width): normalize and respond, inner products.

Neurons are taken in blocks whose columns stay in the fastest memory, so that a layer is read once
from the slower one. Rows are handed on as slices: an index that may be negative would keep the
compiler from vector instructions.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

#: Neurons normalized at once.
BLOCK = 256
#: More points than this are multiplied by BLAS, which is slower for few.
FEW = 32
FAST = {"contract", "reassoc", "nsz"}


@numba.njit(cache=True, fastmath=FAST)
def _add(total, count, row):  # pragma: no cover
    for k in range(len(row)):
        total[k] += count * row[k]


@numba.njit(cache=True, fastmath=FAST)
def _add_squares(total, count, mean, row):  # pragma: no cover
    for k in range(len(row)):
        apart = row[k] - mean[k]
        total[k] += count * apart * apart


@numba.njit(cache=True, fastmath=FAST)
def _respond(row, mean, factor, slope):  # pragma: no cover
    for k in range(len(row)):
        y = (row[k] - mean[k]) * factor[k]
        row[k] = max(y, 0.0) + slope * min(y, 0.0)


@numba.njit(cache=True, fastmath=FAST, error_model="numpy")
def normalize_and_respond(z, counts, slope, recenter, rescale, about_mean):  # pragma: no cover
    """Batch normalization over axis 0 and the (leaky) ReLU, in place.

    ``counts``: how many points of the batch each row stands for. ``about_mean``: rescaling divides
    by the deviation about the mean, otherwise by the root mean square. A neuron whose statistic is
    0 responds with 0.
    """
    rows, width = z.shape
    n = counts.sum()
    means, factors = np.empty(BLOCK), np.empty(BLOCK)
    for low in range(0, width, BLOCK):
        high = min(width, low + BLOCK)
        mean, factor = means[: high - low], factors[: high - low]
        mean[:] = 0.0
        if recenter or (rescale and about_mean):
            for i in range(rows):
                _add(mean, counts[i], z[i, low:high])
            for k in range(len(mean)):
                mean[k] /= n
        factor[:] = 0.0 if rescale else 1.0
        if rescale:
            for i in range(rows):
                _add_squares(factor, counts[i], mean, z[i, low:high])
            for k in range(len(factor)):
                factor[k] = math.sqrt(n / factor[k]) if factor[k] > 0 else 0.0
        if not recenter:
            mean[:] = 0.0
        for i in range(rows):
            _respond(z[i, low:high], mean, factor, slope)


@numba.njit(cache=True, fastmath=FAST)
def _four_products(p, q, r, s):  # pragma: no cover
    """Four sums from four rows, so that a number read is used twice."""
    pr = ps = qr = qs = 0.0
    for k in range(len(p)):
        pr += p[k] * r[k]
        ps += p[k] * s[k]
        qr += q[k] * r[k]
        qs += q[k] * s[k]
    return pr, ps, qr, qs


@numba.njit(cache=True)
def _products_of_few(state, gram):  # pragma: no cover
    last = len(state) - 1
    for i in range(0, last + 1, 2):
        below = min(i + 1, last)  # the last row of an odd number stands for two
        for j in range(0, i + 1, 2):
            right = min(j + 1, last)
            pr, ps, qr, qs = _four_products(state[i], state[below], state[j], state[right])
            gram[i, j] = gram[j, i] = pr
            gram[i, right] = gram[right, i] = ps
            gram[below, j] = gram[j, below] = qr
            gram[below, right] = gram[right, below] = qs


def inner_products(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """X X' of the rows of a contiguous array, half of the products made.

    >>> inner_products(np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]))
    array([[ 5., 11.,  2.],
           [11., 25.,  4.],
           [ 2.,  4.,  1.]])
    """
    if len(state) > FEW:
        return state @ state.T  # BLAS, a symmetric product
    gram = np.empty((len(state), len(state)))
    _products_of_few(state, gram)
    return gram

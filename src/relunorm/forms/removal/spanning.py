"""As few units as possible for what a set of linear units of one layer contributes.

Units that never bend over the domain contribute M T Z v to their readers: v what reaches the
layer, Z their rows, T their slopes, M the readers' columns. If the rows have rank r, r of the units
carry all others. If M has the smaller rank, r mixtures do; a mixture is kept from bending by a bias
that makes it non-negative over the box of v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range, span
from relunorm.forms.rewrite import dense_rows, rows
from relunorm.matrix import Vector
from relunorm.network import Affine

#: Singular directions below this share of the largest count as dependent.
RANK = 1e-10
#: A factorisation is used only if it reproduces the matrix to this share.
EXACT = 1e-13


@dataclass(frozen=True)
class Carriers:
    """Units that stand for a set of linear ones.

    Attributes:
        affine: the rows of the carriers.
        spread: what the old units are worth to their readers is ``spread @ carriers + constant``.
        constant: see above.
        survivors: per carrier which old unit it is, -1 for a mixture.
    """

    affine: Affine
    spread: NDArray[np.float64]
    constant: Vector
    survivors: NDArray[np.intp]


def carriers(
    linear: Affine,
    slope: Vector,
    readers: Sequence[NDArray[np.float64]],
    boxes: Sequence[Range],
    reach: Reach | None,
    mixed: NDArray[np.bool_],
) -> Carriers:
    """The fewest units that carry linear units y = slope z (slope not 0).

    Args:
        linear: the rows of the units.
        readers: the columns through which later maps read them.
        boxes: ranges of the values the rows read.
        mixed: which units are mixtures made before. What they read may have been rewritten since,
            so their biases are set anew.
    """
    made = _fewest(linear, slope, readers, boxes, reach)
    again = np.flatnonzero((made.survivors >= 0) & mixed[made.survivors])
    if not len(again) or reach is None:
        return made
    bare = Affine(made.affine.terms, np.zeros(made.affine.size))
    bias = made.affine.bias.copy()
    bias[again] = -span(bare, boxes, reach).lo[again]
    constant = made.constant + made.spread @ (made.affine.bias - bias)
    return Carriers(Affine(bare.terms, bias), made.spread, constant, made.survivors)


def _fewest(
    linear: Affine,
    slope: Vector,
    readers: Sequence[NDArray[np.float64]],
    boxes: Sequence[Range],
    reach: Reach | None,
) -> Carriers:
    count = linear.size
    by_rows = _independent(dense_rows(linear).T)
    mixing = np.vstack(readers) * slope if readers else np.zeros((1, count))
    by_readers = _independent(mixing) if reach is not None else None
    if (
        reach is not None
        and by_readers is not None
        and len(by_readers[0]) < min(count, len(by_rows[0]) if by_rows is not None else count)
    ):
        return _mixtures(linear, slope, *by_readers, boxes, reach)
    if by_rows is not None and len(by_rows[0]) < count:
        return _pivots(linear, slope, *by_rows)
    return Carriers(linear, np.eye(count), np.zeros(count), np.arange(count))


def _independent(
    matrix: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64]] | None:
    """Columns p and coefficients X with matrix = matrix[:, p] X, X[:, p] = I; None if it is not."""
    from scipy.linalg import qr, solve_triangular

    size = np.abs(matrix).max(initial=0.0)
    if size == 0:
        return np.empty(0, dtype=np.intp), np.zeros((0, matrix.shape[1]))
    factors: Any = qr(matrix / size, mode="economic", pivoting=True)
    _, r, order = factors
    diagonal = np.abs(np.diag(r))
    rank = int((diagonal > RANK * diagonal[0]).sum())
    coefficients = np.zeros((rank, matrix.shape[1]))
    coefficients[:, order[:rank]] = np.eye(rank)
    coefficients[:, order[rank:]] = solve_triangular(r[:rank, :rank], r[:rank, rank:])
    coefficients[np.abs(coefficients) < 2.0**-50] = 0.0
    pivots = np.asarray(order[:rank], dtype=np.intp)
    off = np.abs(matrix[:, pivots] @ coefficients - matrix).max()
    return (pivots, coefficients) if off <= EXACT * size * max(matrix.shape) else None


def _pivots(
    linear: Affine, slope: Vector, pivots: NDArray[np.intp], coefficients: NDArray[np.float64]
) -> Carriers:
    kept = rows(linear, pivots)
    spread = (coefficients.T * slope[:, None]) / slope[pivots]
    constant = slope * (linear.bias - coefficients.T @ kept.bias)
    spread[pivots], constant[pivots] = np.eye(len(pivots)), 0.0
    return Carriers(kept, spread, constant, pivots)


def _mixtures(
    linear: Affine,
    slope: Vector,
    pivots: NDArray[np.intp],
    coefficients: NDArray[np.float64],
    boxes: Sequence[Range],
    reach: Reach,
) -> Carriers:
    terms = {k: np.asarray(coefficients @ m) for k, m in linear.terms.items()}
    mixed = Affine(terms, np.zeros(len(pivots)))
    alone = np.count_nonzero(coefficients, axis=1) == 1
    bias = np.where(alone, linear.bias[pivots], -span(mixed, boxes, reach).lo)
    spread = np.zeros((linear.size, len(pivots)))
    spread[pivots, np.arange(len(pivots))] = np.where(alone, 1.0, slope[pivots])
    constant = np.zeros(linear.size)
    constant[pivots] = np.where(alone, 0.0, slope[pivots] * (coefficients @ linear.bias - bias))
    return Carriers(Affine(terms, bias), spread, constant, np.where(alone, pivots, -1))

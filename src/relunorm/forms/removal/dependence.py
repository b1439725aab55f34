"""Which rows of a layer depend on others: multiples of one another, or spanned by a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range, span
from relunorm.forms.rewrite import dense_rows, rows
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Affine

#: Rows of l1 norm 1 count as equal when no entry differs by more than this.
TOLERANCE = 2.0**-43


@dataclass(frozen=True)
class Groups:
    """Row i equals ``factor[i]`` times row ``leader[i]``; a leader leads itself with factor 1."""

    leader: NDArray[np.intp]
    factor: Vector


def proportional(
    affine: Affine, *, opposite: bool, tolerance: float = TOLERANCE, relative: float = 0.0
) -> Groups:
    """Group the rows (weights and bias together) of a map that are multiples of one another.

    Args:
        opposite: whether negative multiples count too.
        tolerance: on entries of rows of l1 norm 1; 0 asks for equality after division.
        relative: the same as a share of the row's largest entry; the larger of the two counts.

    The leader of a group points to the standard side (`orientation`) if one does, and is the
    largest of those in lexicographic order: the choice does not depend on the order of the units.
    Cost: a product with a vector and a sort; only rows that may be multiples are made dense.

    >>> affine = Affine({0: np.array([[1.0], [2.0], [-1.0]])}, np.zeros(3))
    >>> groups = proportional(affine, opposite=True)
    >>> groups.leader.tolist(), groups.factor.tolist()
    ([0, 0, 0], [1.0, 2.0, -1.0])
    """
    table = _side_by_side(affine)
    norms = np.asarray(abs(table).sum(axis=1)).ravel()
    leader, factor = np.arange(affine.size), np.ones(affine.size)
    live = np.flatnonzero(norms > 0)
    if len(live) < 2:
        return Groups(leader, factor)
    rng = np.random.default_rng(0)
    sign = _orientation(table)[live] if opposite else np.ones(len(live))
    with np.errstate(over="ignore", invalid="ignore"):
        key = (sign / norms[live]) * (table[live] @ rng.uniform(-1, 1, table.shape[1]))
    key = np.where(np.isfinite(key), key, 0.0)
    order = np.argsort(key, kind="stable")
    size = max(tolerance, relative)
    for start, stop in _runs(key[order], size * table.shape[1] + 1e-15):
        members = order[start:stop]
        block = mx.dense(table[live[members]])
        oriented = block / norms[live[members], None] * sign[members, None]
        # rows that tie after division may still differ in their last bits: scale by powers of two
        raw = np.ldexp(block * sign[members, None], -np.frexp(norms[live[members]])[1][:, None])
        near = np.maximum(tolerance, relative * np.abs(oriented).max(axis=1))
        for group in _split(oriented, np.arange(len(members)), near):
            head = _first(np.hstack([oriented, raw]), sign[members], group)
            units, lead = live[members[group]], live[members[head]]
            leader[units] = lead
            ratio = sign[members[group]] * sign[members[head]] * norms[units] / norms[lead]
            factor[units] = np.where(group == head, 1.0, ratio)
    return Groups(leader, factor)


def _side_by_side(affine: Affine) -> Matrix:
    """Weights and bias in one table, sparse where all the weights are."""
    parts = list(affine.terms.values())
    if not parts or not all(map(sp.issparse, parts)):
        return np.column_stack([dense_rows(affine), affine.bias])
    return mx.as_matrix(sp.hstack([*parts, sp.csr_array(affine.bias[:, None])], format="csr"))


def _orientation(table: Matrix) -> Vector:
    """`orientation` of the rows of a table that may be sparse."""
    if not sp.issparse(table):
        return orientation(table)
    result = np.zeros(table.shape[0])
    full = np.flatnonzero(np.diff(table.indptr))
    starts = table.indptr[full]
    size = np.abs(table.data)
    largest = np.repeat(np.maximum.reduceat(size, starts), np.diff(table.indptr)[full])
    place = np.where(size >= 0.5 * largest, np.arange(len(size)), len(size))
    result[full] = np.sign(table.data[np.minimum.reduceat(place, starts)])
    return result


def orientation(rows: Array) -> Vector:
    """+1 or -1 per row so that its first entry of at least half the largest is positive.

    "The first non-zero entry" would flip on rounding noise; this rule does not unless two entries
    tie, and then `proportional` merely misses an opposite pair.
    """
    size = np.abs(rows)
    first = (size >= 0.5 * size.max(axis=1, keepdims=True)).argmax(axis=1)
    return np.sign(rows[np.arange(len(rows)), first])


def _runs(keys: Vector, reach: float) -> list[tuple[int, int]]:
    """Stretches of at least two sorted keys whose neighbours lie within ``reach``."""
    breaks = np.flatnonzero(np.diff(keys) > reach) + 1
    edges = np.concatenate([[0], breaks, [len(keys)]])
    return [(int(a), int(b)) for a, b in pairwise(edges) if b - a > 1]


def _split(rows: Array, members: NDArray[np.intp], near: Vector) -> list[NDArray[np.intp]]:
    """Groups of members that agree entry by entry with the group's first member."""
    groups, rest = [], members
    while len(rest) > 1:
        close = np.abs(rows[rest] - rows[rest[0]]).max(axis=1) <= near[rest[0]]
        if close.sum() > 1:
            groups.append(rest[close])
        rest = rest[~close]
    return groups


def _first(rows: Array, sign: Vector, group: NDArray[np.intp]) -> int:
    """The largest of the rows that point to the standard side, the first of equal ones."""
    table = rows[group]
    keys = table[:, (table != table[0]).any(axis=0)]  # equal columns decide nothing
    order = np.lexsort((-group, *keys.T[::-1], sign[group]))
    return int(group[order[-1]])


#: Singular directions below this share of the largest count as dependent.
RANK = 1e-10
#: A factorisation is used only if it reproduces the matrix to this share.
EXACT = 1e-13


@dataclass(frozen=True)
class Carriers:
    """Units that stand for a set of linear ones.

    Attributes:
        spread: what the old units are worth to their readers is ``spread @ carriers + constant``.
        survivors: per carrier which old unit it is, -1 for a mixture.
    """

    affine: Affine
    spread: Array
    constant: Vector
    survivors: NDArray[np.intp]


def carriers(
    linear: Affine,
    slope: Vector,
    readers: Sequence[Array],
    boxes: Sequence[Range],
    reach: Reach | None,
    mixed: NDArray[np.bool_],
) -> Carriers:
    """The fewest units that carry linear units y = slope z (slope not 0).

    Units that never bend over the domain contribute M T Z v to their readers: v what reaches the
    layer, Z their rows, T their slopes, M the readers' columns. If the rows have rank r, r of the
    units carry all others. If M has the smaller rank, r mixtures do; a mixture is kept from bending
    by a bias that makes it non-negative over the box of v.

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
    readers: Sequence[Array],
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


def _independent(matrix: Array) -> tuple[NDArray[np.intp], Array] | None:
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
    linear: Affine, slope: Vector, pivots: NDArray[np.intp], coefficients: Array
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
    coefficients: Array,
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

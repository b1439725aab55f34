"""Which rows of a layer are multiples of one another, of either sign."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from relunorm.forms.rewrite import dense_rows
from relunorm.matrix import Vector
from relunorm.network import Affine

#: Rows of l1 norm 1 count as equal when no entry differs by more than this.
TOLERANCE = 2.0**-43


@dataclass(frozen=True)
class Groups:
    """Row i equals ``factor[i]`` times row ``leader[i]``; a leader leads itself with factor 1.

    Attributes:
        leader: index of the row that stands for this one.
        factor: positive for a multiple, negative for an opposite one.
    """

    leader: NDArray[np.intp]
    factor: Vector


def proportional(affine: Affine, *, opposite: bool, tolerance: float = TOLERANCE) -> Groups:
    """Group the rows (weights and bias together) of a map that are multiples of one another.

    Args:
        opposite: whether negative multiples count too.
        tolerance: on entries of rows of l1 norm 1; 0 asks for equality after division.

    The leader of a group points to the standard side (`orientation`) if one does, and is the
    largest of those in lexicographic order: the choice does not depend on the order of the units.
    Cost: a sort of the rows.

    >>> affine = Affine({0: np.array([[1.0], [2.0], [-1.0]])}, np.zeros(3))
    >>> groups = proportional(affine, opposite=True)
    >>> groups.leader.tolist(), groups.factor.tolist()
    ([0, 0, 0], [1.0, 2.0, -1.0])
    """
    table = np.column_stack([dense_rows(affine), affine.bias])
    norms = np.abs(table).sum(axis=1)
    units = np.arange(len(table))
    leader, factor = units.copy(), np.ones(len(table))
    live = np.flatnonzero(norms > 0)
    if len(live) < 2:
        return Groups(leader, factor)
    scaled = table[live] / norms[live, None]
    sign = orientation(scaled) if opposite else np.ones(len(live))
    oriented = scaled * sign[:, None]
    # rows that tie after division may still differ in their last bits: scale by powers of two
    raw = np.ldexp(table[live] * sign[:, None], -np.frexp(norms[live])[1][:, None])
    rng = np.random.default_rng(0)
    key = oriented @ rng.uniform(-1, 1, table.shape[1])
    order = np.argsort(key, kind="stable")
    reach = tolerance * table.shape[1] + 1e-15
    for start, stop in _runs(key[order], reach):
        members = order[start:stop]
        for group in _split(oriented, members, tolerance):
            head = _first(np.hstack([oriented, raw]), sign, group)
            leader[live[group]] = live[head]
            ratio = sign[group] * sign[head] * norms[live[group]] / norms[live[head]]
            factor[live[group]] = np.where(group == head, 1.0, ratio)
    return Groups(leader, factor)


def orientation(rows: NDArray[np.float64]) -> Vector:
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


def _split(
    rows: NDArray[np.float64], members: NDArray[np.intp], tolerance: float
) -> list[NDArray[np.intp]]:
    """Groups of members that agree entry by entry with the group's first member."""
    groups, rest = [], members
    while len(rest) > 1:
        close = np.abs(rows[rest] - rows[rest[0]]).max(axis=1) <= tolerance
        if close.sum() > 1:
            groups.append(rest[close])
        rest = rest[~close]
    return groups


def _first(rows: NDArray[np.float64], sign: Vector, group: NDArray[np.intp]) -> int:
    """The largest of the rows that point to the standard side, the first of equal ones."""
    order = np.lexsort((-group, *rows[group].T[::-1], sign[group]))
    return int(group[order[-1]])

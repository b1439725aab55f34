"""Corners of convex polytopes and the walls they lie on: cutting by a half-space; compiled.

A polytope is the list of its corners, each with the set of walls it lies on as bits of a word. A
cut keeps the corners on one side; the new corners are the crossings of edges, and two corners span
an edge when they share d - 1 walls and no third corner lies on all of these (double description:
Motzkin et al. 1953, Fukuda and Prodon 1996). A wall without corners frees its bit.

    corners, walls = box_corners(lo, hi)                          # (n, d) and (n,)
    corners, walls = clip_all(corners, walls, rows, rhs, 1e-12)   # of {rows . t <= rhs} in the box
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.jit import inner, kernel, kernel_part
from relunorm.matrix import Array


def box_corners(lo: Array, hi: Array) -> tuple[Array, NDArray[np.uint64]]:
    """The corners of a box; side i is wall 2 i above and 2 i + 1 below."""
    sides = list(itertools.product((0, 1), repeat=len(lo)))
    corners = np.array([[hi[i] if s else lo[i] for i, s in enumerate(row)] for row in sides])
    walls = [sum(1 << (2 * i + (0 if s else 1)) for i, s in enumerate(row)) for row in sides]
    return corners, np.array(walls, np.uint64)


@inner
def _at_least(word, count):  # type: ignore[no-untyped-def]
    """Whether at least ``count`` bits are set."""
    one = np.uint64(1)
    for _ in range(count - 1):
        word &= word - one
    return count == 0 or word != np.uint64(0)


@inner
def _adjacent(walls, begin, count, p, q, d):  # type: ignore[no-untyped-def]
    """Whether two corners span an edge."""
    common = walls[p] & walls[q]
    if not _at_least(common, d - 1):
        return False
    if not _at_least(walls[p], d + 1) or not _at_least(walls[q], d + 1):
        return True  # a simple corner: any d - 1 of its walls meet in one edge
    for w in range(begin, begin + count):
        if w != p and w != q and walls[w] & common == common:
            return False
    return True


@kernel_part
def clip(corners, walls, begin, count, values, edge, bit, to, side):  # type: ignore[no-untyped-def]
    """Write the part with side * value >= 0 behind ``to``; returns its number of corners."""
    d = corners.shape[1]
    made = to
    for v in range(count):
        if side * values[v] >= -edge:
            for k in range(d):
                corners[made, k] = corners[begin + v, k]
            walls[made] = walls[begin + v]
            if abs(values[v]) <= edge:
                walls[made] |= bit
            made += 1
    return made - to


@kernel_part
def cross(corners, walls, begin, count, values, edge, bit, to):  # type: ignore[no-untyped-def]
    """Write the crossings of edges behind ``to``; returns how many."""
    d = corners.shape[1]
    made = to
    for p in range(count):
        if values[p] <= edge:
            continue
        for q in range(count):
            if values[q] >= -edge or not _adjacent(walls, begin, count, begin + p, begin + q, d):
                continue
            share = values[p] / (values[p] - values[q])
            for k in range(d):
                start = corners[begin + p, k]
                corners[made, k] = start + share * (corners[begin + q, k] - start)
            walls[made] = (walls[begin + p] & walls[begin + q]) | bit
            made += 1
    return made - to


@inner
def free_bit(walls, begin, count):  # type: ignore[no-untyped-def]
    """The lowest bit no corner uses; 0 when there is none."""
    taken = np.uint64(0)
    for v in range(begin, begin + count):
        taken |= walls[v]
    free = ~taken
    return free & (~free + np.uint64(1))


def clip_all(
    corners: Array, walls: NDArray[np.uint64], rows: Array, rhs: Array, tolerance: float
) -> tuple[Array, NDArray[np.uint64]]:
    """Corners and walls of the part of a cell with rows . t <= rhs (no corners: it is empty)."""
    rows, rhs = np.ascontiguousarray(rows), np.ascontiguousarray(rhs)
    done, count = 0, len(walls)
    while True:
        space, tags = _room(corners, walls, 4 * needed(count))
        values = np.empty(len(tags))
        done, count = clip_rows(space, tags, values, count, rows, rhs, done, tolerance)
        corners, walls = space[:count].copy(), tags[:count].copy()
        if done == len(rhs):
            return corners, walls


def section(corners: Array, walls: NDArray[np.uint64], values: Array, edge: float) -> Array:
    """Corners of the cell's section by the plane where ``values`` (affine, at corners) vanish."""
    count = len(walls)
    space, tags = _room(corners, walls, needed(count))
    made = cut_through(space, tags, np.ascontiguousarray(values), count, edge)
    return space[count : count + made].copy()


def _room(corners: Array, walls: NDArray[np.uint64], size: int) -> tuple[Array, NDArray[np.uint64]]:
    """Corners and walls, with room behind them."""
    space, tags = np.zeros((size, corners.shape[1])), np.zeros(size, np.uint64)
    space[: len(walls)], tags[: len(walls)] = corners, walls
    return space, tags


@kernel_part
def needed(count):  # type: ignore[no-untyped-def]
    """Places that so many corners and those of a part of their cell take."""
    return 2 * count + count * count // 4 + 8


@kernel
def clip_rows(space, tags, values, count, rows, rhs, first, tolerance):  # type: ignore[no-untyped-def]
    """Clip by rows from ``first`` on, until there is no room; which row is next, and corners."""
    d = space.shape[1]
    for r in range(first, len(rhs)):
        if needed(count) > len(tags):
            return r, count
        low, high = np.inf, -np.inf
        for v in range(count):
            values[v] = rhs[r]
            for k in range(d):
                values[v] -= rows[r, k] * space[v, k]
            low, high = min(low, values[v]), max(high, values[v])
        if low >= -tolerance:
            continue
        bit = free_bit(tags, 0, count)
        if bit == np.uint64(0):
            return len(rhs), 0
        made = clip(space, tags, 0, count, values, tolerance, bit, count, 1.0)
        made += cross(space, tags, 0, count, values, tolerance, bit, count + made)
        for v in range(made):
            tags[v] = tags[count + v]
            for k in range(d):
                space[v, k] = space[count + v, k]
        count = made
        if high <= tolerance:
            return len(rhs), 0
    return len(rhs), count


@kernel
def cut_through(space, tags, values, count, edge):  # type: ignore[no-untyped-def]
    """Write the corners of a `section` behind those of the cell; returns how many."""
    made = cross(space, tags, 0, count, values, edge, np.uint64(0), count)
    for v in range(count):
        if abs(values[v]) <= edge:
            for k in range(space.shape[1]):
                space[count + made, k] = space[v, k]
            made += 1
    return made

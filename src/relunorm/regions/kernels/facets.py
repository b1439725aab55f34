"""The walls of a cell: which rows matter, a point on each facet, the largest ball inside; compiled.

A row is a facet when, with the row taken away, the cell reaches beyond it. The programme that
shows this ends in a point x beyond the wall; the segment from an interior point to x crosses the
wall at a point in the facet's relative interior. One programme a row, nothing else.

Redundant rows are dropped one after the other, so of several equal rows exactly one is kept: the
domain's, if it is one of them, since nothing lies across it.

The pattern across a facet is not read off at a point, which rounding may have left on the wrong
side: the wall's own unit flips, with every unit whose form vanishes on the whole wall.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.simplex import FOUND, maximize
from relunorm.matrix import Array
from relunorm.regions.kernels.pack import TOLERANCE
from relunorm.regions.kernels.tree_state import start_layer


def cell_rows(net: Any, state: Any, bits: NDArray[np.int8]) -> tuple[Array, Array, Any]:
    """The half-spaces of a pattern: rows . t <= rhs, and the unit each row comes from."""
    d, units = int(net.shape[0]), int(net.shape[2])
    rows, rhs, names = np.empty((units, d)), np.empty(units), np.empty(units, np.int64)
    count = fill_rows(net, state, bits, rows, rhs, names)
    return rows[:count], rhs[:count], names[:count]


@kernel
def fill_rows(net, state, bits, rows, rhs, names):  # type: ignore[no-untyped-def]
    """Write the rows of `cell_rows`; how many there are."""
    d, layers, units = net.shape[0], net.shape[1], net.shape[2]
    for u in range(units):
        state.bits[u] = bits[u]
    count = 0
    for layer in range(layers):
        start_layer(net, state, layer)
        for u in range(net.first[layer], net.first[layer + 1]):
            scale = state.scale[u]
            if scale == 0.0:
                continue
            sign = -scale if bits[u] else scale
            for k in range(d):
                rows[count, k] = sign * state.forms[u, k]
            rhs[count] = -sign * state.forms[u, d]
            names[count] = u
            count += 1
    return count


@kernel_part
def beyond_wall(net, state, own, unit, row, bound, new, flat):  # type: ignore[no-untyped-def]
    """The pattern across the facet row . t = bound that a unit makes; fills ``new``.

    By continuity a unit that does not vanish on the wall keeps its sign. One that does (its form is
    a multiple of the wall's, to the tolerance of the search, or zero) gets the sign of the slope
    its form has beyond the wall, which later layers only know once the earlier ones are crossed.

    Args:
        own: forms, scales, tolerances and bits of the units, as `fill_rows` has just left them.
        flat: room for a truth value of every unit.
    """
    forms, scale, tolerance, bits = own
    d, layers, units = net.shape[0], net.shape[1], net.shape[2]
    alone = True
    for i in range(units):
        new[i] = bits[i]
        limit = tolerance[i]
        if scale[i] == 0.0:
            gap = abs(forms[i, d])
        else:
            limit = max(limit, tolerance[unit])
            slope = 0.0
            for k in range(d):
                slope += forms[i, k] * row[k]
            sign = scale[i] if slope > 0.0 else -scale[i]
            gap = abs(sign * forms[i, d] + bound)
            for k in range(d):
                gap += abs(sign * forms[i, k] - row[k])
        flat[i] = i == unit or gap <= limit
        alone &= i == unit or not flat[i]
    if alone:
        new[unit] = 1 - bits[unit]
        return
    for layer in range(layers):
        start_layer(net, state, layer)
        for i in range(net.first[layer], net.first[layer + 1]):
            if flat[i]:
                slope = 0.0
                for k in range(d):
                    slope += state.forms[i, k] * row[k]
                new[i] = 1 if slope * state.scale[i] > 0.0 else 0
            state.bits[i] = new[i]


def facet_points(
    rows: Array, rhs: Array, units: int, lo: Array, hi: Array, inside: Array, at: Array, work: Any
) -> NDArray[np.bool_]:
    """Which rows are facets of {rows . t <= rhs, lo <= t <= hi}; fills ``at`` with points on them.

    Args:
        units: the rows of units come first, so many; the others are the domain's.
        inside: a strictly interior point.
        at: (rows, d), filled for facets.

    Returns:
        bool per row.
    """
    m = len(rows)
    kept, done = np.ones(m, np.bool_), np.zeros(m, np.bool_)
    room = np.empty_like(rows), np.empty(m), np.empty(m), np.empty(m)
    find_facets(rows, rhs, units, lo, hi, inside, at, work, kept, done, room)
    return kept


@kernel
def find_facets(rows, rhs, units, lo, hi, inside, at, work, kept, done, room):  # type: ignore[no-untyped-def]
    """Take rows that are no facets out of ``kept``; see `facet_points`."""
    m, d = rows.shape
    others, bounds, slack, rank = room
    # The far rows first: they are the likeliest to be redundant, and each one gone is cheaper.
    for r in range(m):
        slack[r] = rhs[r]
        for k in range(d):
            slack[r] -= rows[r, k] * inside[k]
        rank[r] = slack[r]
    # A unit before the domain's own wall in the same place: the one that is left stays a facet.
    for r in range(units):
        rank[r] += 2.0 * TOLERANCE
    for _ in range(m):
        r = -1
        for k in range(m):
            if not done[k] and (r < 0 or rank[k] > rank[r]):
                r = k
        done[r] = True
        count = 0
        for k in range(m):
            if kept[k] and k != r:
                bounds[count] = rhs[k]
                for i in range(d):
                    others[count, i] = rows[k, i]
                count += 1
        stop = rhs[r] + TOLERANCE
        status = maximize(rows[r], others, bounds, count, lo, hi, stop, work)
        if status != FOUND:
            kept[r] = False
            continue
        value = 0.0
        for k in range(d):
            value += rows[r, k] * work.x[k]
        share = slack[r] / (slack[r] + value - rhs[r])
        for k in range(d):
            at[r, k] = inside[k] + share * (work.x[k] - inside[k])


def all_facets(
    net: Any, state: Any, patterns: Any, points: Array, rows0: Array, rhs0: Array, lo: Any, hi: Any,
    work: Any,
) -> list[Any]:  # fmt: skip
    """Facets made by units: their region, unit, point, outward normal and the pattern beyond."""
    (n, d), units = points.shape, int(net.shape[2])
    most = units + len(rhs0)
    room = np.empty((most, d)), np.empty(most), np.empty(most), np.empty(most)
    cell = np.empty((most, d)), np.empty(most), np.empty((most, d)), np.empty(units, np.int64)
    flags = np.empty(most, np.bool_), np.empty(most, np.bool_), np.empty(units, np.bool_)
    own = np.empty((units, d + 1)), np.empty(units), np.empty(units), np.empty(units, np.int8)
    shapes = (np.int64,), (np.int64,), (float, d), (float, d), (np.int8, units)
    pieces, done = [], 0
    while True:
        size = 8 * n + units
        found = tuple(np.empty((size, *shape), kind) for kind, *shape in shapes)
        done, count = list_facets(
            net, state, patterns, points, rows0, rhs0, lo, hi, work, done, room, cell, flags, own,
            found,
        )  # fmt: skip
        pieces.append([array[:count].copy() for array in found])
        if done == n:
            return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


@kernel
def list_facets(net, state, patterns, points, rows0, rhs0, lo, hi, work, first, room, cell, flags,
                own, found):  # type: ignore[no-untyped-def]  # fmt: skip
    """Facets of regions from ``first`` on, until there is no room; which is next, and how many."""
    n, d = points.shape
    m0, most, count = len(rhs0), net.shape[2], 0
    rows, rhs, at, units = cell
    kept, done, flat = flags
    forms, scale, tolerance, bits = own
    owner, name, where, normal, beyond = found
    for i in range(first, n):
        m = fill_rows(net, state, patterns[i], rows, rhs, units)
        if count + m > len(owner):
            return i, count
        for u in range(most):
            scale[u], tolerance[u], bits[u] = state.scale[u], state.tolerance[u], state.bits[u]
            for k in range(d + 1):
                forms[u, k] = state.forms[u, k]
        for r in range(m0):
            rhs[m + r] = rhs0[r]
            for k in range(d):
                rows[m + r, k] = rows0[r, k]
        for r in range(m + m0):
            kept[r], done[r] = True, False
        find_facets(rows[: m + m0], rhs, m, lo, hi, points[i], at, work, kept, done, room)
        for r in range(m):
            if kept[r]:
                owner[count], name[count] = i, units[r]
                for k in range(d):
                    where[count, k], normal[count, k] = at[r, k], rows[r, k]
                beyond_wall(net, state, own, units[r], rows[r], rhs[r], beyond[count], flat)
                count += 1
    return n, count


def largest_ball(
    rows: Array, rhs: Array, reach: Array, lo: Array, hi: Array, work: Any
) -> tuple[float, Array]:
    """Radius and centre of a largest ball in {rows . t <= rhs}: one programme in d + 1 variables.

    Args:
        reach: per row, how far the row's value changes over a ball of radius one.
        work: of `simplex.workspace(d + 1)`.
    """
    m, d = rows.shape
    length = np.sqrt(1.0 + reach * reach)
    lifted = np.concatenate([rows, reach[:, None]], axis=1) / length[:, None]
    farthest = reach[reach > 0.0].min(initial=np.inf)
    goal = np.zeros(d + 1)
    goal[d] = 1.0
    lows, highs = np.append(lo, 0.0), np.append(hi, 2.0 * d / farthest)
    status = maximize(goal, lifted, rhs / length, m, lows, highs, 0.0, work)
    return (float(work.x[d]) if status == FOUND else 0.0), work.x[:d].copy()

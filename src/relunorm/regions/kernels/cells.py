"""Regions in three to six dimensions with the corners of every cell; compiled, depth first.

A cell is the list of its corners, each with the set of walls it lies on (`corners`). A unit cuts
the cell when its form changes sign among the corners, so no linear programme is needed.

Called as `polygons`, with the domain's corners and their walls from `corners`.

Exactness: as in `tree`. Corners within the tolerance of a wall lie on it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import copied, group, longer
from relunorm.compiled.jit import inner, kernel, kernel_part
from relunorm.matrix import Array
from relunorm.regions.kernels.columns import Columns, new_columns, start_layer
from relunorm.regions.kernels.corners import clip, cross, free_bit
from relunorm.regions.kernels.pack import Packed
from relunorm.regions.kernels.pack import quiet as _quiet

#: Returned by `run` when the stacks are too small (call `grown`) or more than 64 walls are needed.
GROW, TOO_MANY_WALLS = -1, -2

# Columns of Search.entries.
CORNERS, COUNT, LAYER, LIST, LENGTH, UNIT, BIT, DEPTH = range(8)


quiet = inner(_quiet)


@group
class Search(NamedTuple):
    """Where a search stands."""

    corners: Array
    walls: NDArray[np.uint64]
    values: Array  # scratch: a form at the corners
    entries: NDArray[np.int64]  # the stack of cells
    lists: NDArray[np.int64]  # units that may cut them
    columns: Columns
    low: Array  # scratch: a layer's forms on a cell
    high: Array
    value: Array
    at: NDArray[np.int64]  # entries on the stack; how often a thin side was left out


def new_search(net: Packed, corners: Array, walls: NDArray[np.uint64]) -> Search:
    """A search at the root: the cell with these corners."""
    d, layers, units, _ = net.shape.tolist()
    widest = int(np.diff(net.first[: layers + 1]).max())
    room = 4096 + 8 * len(walls) + 64 * units
    search = Search(
        np.empty((room, d)),
        np.empty(room, np.uint64),
        np.empty(room),
        np.empty((units + 3, 8), np.int64),
        np.empty((units + 3) * (widest + 1), np.int64),
        new_columns(net),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.array([1, 0]),
    )
    search.corners[: len(walls)], search.walls[: len(walls)] = corners, walls
    search.entries[0] = (0, len(walls), -1, 0, 0, -1, 0, 0)
    return search


def grown(search: Search) -> Search:
    """The same search with stacks twice as large."""
    corners, walls, values = map(longer, search[:3])
    return search._replace(corners=corners, walls=walls, values=values)


def split_off(search: Search) -> Search | None:
    """Part with what the search would come to last, as a search of its own; None: too little."""
    top = int(search.at[0])
    if top < 2:
        return None
    other = copied(search)
    other.at[:] = 1, 0
    search.entries[: top - 1] = search.entries[1:top].copy()
    search.at[0] = top - 1
    return other


@inner
def _move(corners, walls, start, to, count):  # type: ignore[no-untyped-def]
    for v in range(count):
        walls[to + v] = walls[start + v]
        for k in range(corners.shape[1]):
            corners[to + v, k] = corners[start + v, k]


@kernel_part
def _find_cutting(net, search, layer, va, n, out):  # type: ignore[no-untyped-def]
    """Units of the layer that cut the cell, listed from ``out``; the others get their bits."""
    begin, end = net.first[layer], net.first[layer + 1]
    width = end - begin
    forms, band, bits = search.columns.forms, search.columns.band, search.columns.bits
    flat = search.columns.flat
    low, high, value = search.low, search.high, search.value
    d = len(forms) - 1
    for v in range(va, va + n):
        row = forms[d, begin:end]
        for i in range(width):
            value[i] = row[i]
        for k in range(d):
            p, row = search.corners[v, k], forms[k, begin:end]
            for i in range(width):
                value[i] += row[i] * p
        if v == va:
            for i in range(width):
                low[i] = high[i] = value[i]
        else:
            for i in range(width):
                low[i] = min(low[i], value[i])
                high[i] = max(high[i], value[i])
    cuts = 0
    for i in range(width):
        edge = band[begin + i]
        if high[i] > edge and low[i] < -edge:
            search.lists[out + cuts] = begin + i
            cuts += 1
        else:
            bits[begin + i] = _side(flat[begin + i], low[i], high[i], edge)
            if low[i] < 0.0 < high[i]:
                _note_hidden(search, begin + i, low[i], high[i])
    return cuts


@inner
def _note_hidden(search, unit, low, high):  # type: ignore[no-untyped-def]
    """Count a unit that gets one sign on the cell but takes the other by more than rounding."""
    d, flat = len(search.columns.forms) - 1, search.columns.flat[unit]
    if not flat and min(high, -low) > quiet(d) * search.columns.size[unit]:
        search.at[1] += 1


@inner
def _side(flat, low, high, edge):  # type: ignore[no-untyped-def]
    """The bit of a unit that does not cut: plus, minus, or the larger part of a sliver."""
    if high > edge:
        return 1
    if low < -edge or flat:
        return 0
    return 1 if high + low > 0.0 else 0


@kernel_part
def _still_cutting(search, va, n, la, length):  # type: ignore[no-untyped-def]
    """Keep the listed units that cut the cell; returns how many."""
    forms, corners = search.columns.forms, search.corners
    d, kept = len(forms) - 1, la
    for k in range(la, la + length):
        u = search.lists[k]
        low, high = np.inf, -np.inf
        edge = search.columns.band[u]
        for v in range(va, va + n):
            value = forms[d, u]
            for j in range(d):
                value += forms[j, u] * corners[v, j]
            low, high = min(low, value), max(high, value)
        if high > edge and low < -edge:
            search.lists[kept] = u
            kept += 1
        else:
            search.columns.bits[u] = _side(search.columns.flat[u], low, high, edge)
            if low < 0.0 < high:
                _note_hidden(search, u, low, high)
    return kept - la


@kernel_part
def _split(search, entry, unit):  # type: ignore[no-untyped-def]
    """Replace the top cell by its two parts; 0, GROW or TOO_MANY_WALLS."""
    corners, walls, values = search.corners, search.walls, search.values
    forms, edge = search.columns.forms, search.columns.band[unit]
    va, n = entry[CORNERS], entry[COUNT]
    d = corners.shape[1]
    above = 0
    for v in range(n):
        value = forms[d, unit]
        for k in range(d):
            value += forms[k, unit] * corners[va + v, k]
        values[v] = value
        above += value > edge
    need = va + 4 * n + 2 * above * (n - above) + 8
    if need > len(walls):
        return GROW
    bit = free_bit(walls, va, n)
    if bit == np.uint64(0):
        return TOO_MANY_WALLS
    # Behind the cell: crossings, minus side, plus side; then the two parts move to the front.
    a = va + n
    crossings = cross(corners, walls, va, n, values, edge, bit, a)
    b = a + crossings
    minus = clip(corners, walls, va, n, values, edge, bit, b, -1.0)
    c = b + minus
    plus = clip(corners, walls, va, n, values, edge, bit, c, 1.0)
    _move(corners, walls, a, c + plus, crossings)
    # [crossings, minus | plus, crossings]: the minus part may list its crossings first.
    shift = n
    _move(corners, walls, a, va, crossings + minus)
    _move(corners, walls, c, c - shift, plus + crossings)
    la, rest = entry[LIST], entry[LENGTH] - 1
    other = search.entries[search.at[0]]
    other[CORNERS], other[COUNT], other[LAYER] = c - shift, plus + crossings, entry[LAYER]
    for k in range(rest):
        search.lists[la + k] = search.lists[la + k + 1]
    for k in range(rest):
        search.lists[la + rest + k] = search.lists[la + k]
    other[LIST], other[LENGTH], other[UNIT], other[BIT] = la + rest, rest, unit, 1
    entry[COUNT], entry[LENGTH], entry[UNIT], entry[BIT] = crossings + minus, rest, unit, 0
    entry[DEPTH] += 1
    other[DEPTH] = entry[DEPTH]
    search.at[0] += 1
    return 0


@kernel
def run(net, search, patterns, points, stop):  # type: ignore[no-untyped-def]
    """Go on until the buffers are full or the search is done; how many leaves were written.

    Args:
        patterns: uint8 (capacity, units), one byte a bit.
        points: (capacity, d), filled with the mean of the corners.
        stop: of `Clock.watch`: ends the run; call again to go on.

    Returns:
        leaves written and a status: 0, GROW or TOO_MANY_WALLS (with leaves written before it).
    """
    units = net.shape[2]
    found, capacity = 0, len(patterns)
    while search.at[0] and found < capacity and not stop[0]:
        entry = search.entries[search.at[0] - 1]
        va, n = entry[CORNERS], entry[COUNT]
        if _decide(net, search, entry):
            status = _split(search, entry, search.lists[entry[LIST]])
            if status:
                return found, status
            continue
        for u in range(units):
            patterns[found, u] = search.columns.bits[u]
        _write_leaf(search, va, n, points[found])
        found += 1
        search.at[0] -= 1
    return found, 0


@kernel_part
def _decide(net, search, entry):  # type: ignore[no-untyped-def]
    """Decide units on the top cell until one cuts it; False when none is left (a region)."""
    va, n = entry[CORNERS], entry[COUNT]
    if entry[UNIT] >= 0:
        search.columns.bits[entry[UNIT]] = entry[BIT]
        entry[LENGTH] = _still_cutting(search, va, n, entry[LIST], entry[LENGTH])
    while entry[LENGTH] == 0 and entry[LAYER] + 1 < net.shape[1]:
        entry[LAYER] += 1
        start_layer(net, search.columns, entry[LAYER])
        entry[LENGTH] = _find_cutting(net, search, entry[LAYER], va, n, entry[LIST])
        entry[UNIT] = -1
    return entry[LENGTH] > 0


@inner
def _write_leaf(search, va, n, point):  # type: ignore[no-untyped-def]
    for k in range(len(point)):
        total = 0.0
        for v in range(va, va + n):
            total += search.corners[v, k]
        point[k] = total / n

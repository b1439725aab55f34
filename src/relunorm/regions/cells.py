"""Regions in three to six dimensions with the corners of every cell; compiled, depth first.

A cell is the list of its corners, each with the set of walls it lies on as bits of a word. A unit
cuts the cell when its form changes sign among the corners, so no linear programme is needed. The
two parts keep the corners on their side; the new corners are the crossings of edges, and two
corners span an edge when they share d - 1 walls and no third corner lies on all of these (double
description: Motzkin et al. 1953, Fukuda and Prodon 1996). A wall without corners frees its bit.

How to call it::

    cell = box_corners(lo, hi)                        # corners (n, d) and walls (n,)
    cell = clip_all(cell[0], cell[1], rows, rhs, 1e-12)   # corners of {rows . t <= rhs} in the box
    state = new_search(net, corners, walls)
    found = run(net, weights_t, state, patterns, points, maps)   # as `tree.run`; GROW: see `grown`

Exactness: as in `tree`. Corners within the tolerance of a wall lie on it.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.regions.jit import allocating, inner, kernel
from relunorm.regions.limits import CellLimitError
from relunorm.regions.pack import Packed
from relunorm.regions.tree import ROUNDING, TOLERANCE

#: Returned by `run` when the stacks are too small (call `grown`) or more than 64 walls are needed.
GROW, TOO_MANY_WALLS = -1, -2

#: Columns added to and taken from a layer's forms before they are computed afresh.
REFRESH = 32

# Columns of State.entries.
CORNERS, COUNT, LAYER, LIST, LENGTH, UNIT, BIT = range(7)


class Search(NamedTuple):
    """Where a search stands."""

    corners: NDArray[np.float64]
    walls: NDArray[np.uint64]
    entries: NDArray[np.int64]
    lists: NDArray[np.int64]
    bits: NDArray[np.uint8]
    used: NDArray[np.uint8]  # the bits a layer's forms were computed with
    age: NDArray[np.int64]  # per layer: columns exchanged since, -1 if its forms are not valid
    forms: NDArray[np.float64]  # (d + 1, units + outputs)
    size: NDArray[np.float64]
    band: NDArray[np.float64]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    value: NDArray[np.float64]
    at: NDArray[np.int64]  # entries on the stack


def box_corners(
    lo: NDArray[np.float64], hi: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """The corners of a box; side i is wall 2 i above and 2 i + 1 below."""
    sides = list(itertools.product((0, 1), repeat=len(lo)))
    corners = np.array([[hi[i] if s else lo[i] for i, s in enumerate(row)] for row in sides])
    walls = [sum(1 << (2 * i + (0 if s else 1)) for i, s in enumerate(row)) for row in sides]
    return corners, np.array(walls, np.uint64)


def new_search(net: Packed, corners: NDArray[np.float64], walls: NDArray[np.uint64]) -> Search:
    """A search at the root: the cell with these corners."""
    d, layers, units, outputs = (int(n) for n in net.shape)
    widest = int(np.diff(net.first[: layers + 1]).max())
    room = 4096 + 8 * len(walls) + 64 * units
    search = Search(
        np.zeros((room, d)),
        np.zeros(room, np.uint64),
        np.zeros((units + 3, 7), np.int64),
        np.zeros((units + 3) * (widest + 1), np.int64),
        np.zeros(units, np.uint8),
        np.zeros(units * 2, np.uint8),
        np.full(layers + 1, -1, np.int64),
        np.zeros((d + 1, units + outputs)),
        np.zeros(units + outputs),
        np.zeros(units + outputs),
        np.zeros(room),
        np.zeros(widest),
        np.zeros(widest),
        np.zeros(widest),
        np.array([1], np.int64),
    )
    search.corners[: len(walls)], search.walls[: len(walls)] = corners, walls
    search.entries[0] = (0, len(walls), -1, 0, 0, -1, 0)
    return search


def grown(search: Search) -> Search:
    """The same search with stacks twice as large."""
    return search._replace(
        corners=np.concatenate([search.corners, np.zeros_like(search.corners)]),
        walls=np.concatenate([search.walls, np.zeros_like(search.walls)]),
        values=np.concatenate([search.values, np.zeros_like(search.values)]),
    )


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


@kernel
def _clip(corners, walls, begin, count, values, edge, bit, to, side):  # type: ignore[no-untyped-def]
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


@kernel
def _cross(corners, walls, begin, count, values, edge, bit, to):  # type: ignore[no-untyped-def]
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
def _move(corners, walls, start, to, count):  # type: ignore[no-untyped-def]
    for v in range(count):
        walls[to + v] = walls[start + v]
        for k in range(corners.shape[1]):
            corners[to + v, k] = corners[start + v, k]


@inner
def _free_bit(walls, begin, count):  # type: ignore[no-untyped-def]
    """The lowest bit no corner uses; 0 when there is none."""
    taken = np.uint64(0)
    for v in range(begin, begin + count):
        taken |= walls[v]
    free = ~taken
    return free & (~free + np.uint64(1))


@allocating
def clip_all(corners, walls, rows, rhs, tolerance):  # type: ignore[no-untyped-def]
    """Corners and walls of the part of a cell with rows . t <= rhs (no corners: it is empty)."""
    d = corners.shape[1]
    count = len(walls)
    for r in range(len(rhs)):
        room = count + count * count // 4 + 8
        values, low, high = np.empty(count), np.inf, -np.inf
        for v in range(count):
            values[v] = rhs[r]
            for k in range(d):
                values[v] -= rows[r, k] * corners[v, k]
            low, high = min(low, values[v]), max(high, values[v])
        if low >= -tolerance:
            continue
        space, tags = np.empty((count + room, d)), np.empty(count + room, np.uint64)
        for v in range(count):
            tags[v] = walls[v]
            for k in range(d):
                space[v, k] = corners[v, k]
        bit = _free_bit(tags, 0, count)
        if bit == np.uint64(0):
            return space[:0], tags[:0]
        made = _clip(space, tags, 0, count, values, tolerance, bit, count, 1.0)
        made += _cross(space, tags, 0, count, values, tolerance, bit, count + made)
        corners, walls = space[count : count + made].copy(), tags[count : count + made].copy()
        count = made
        if high <= tolerance:
            return corners[:0], walls[:0]
    return corners, walls


@allocating
def section(corners, walls, values, edge):  # type: ignore[no-untyped-def]
    """Corners of the cell's section by the plane where ``values`` (affine, at corners) vanish."""
    count, d = corners.shape
    space = np.empty((2 * count + count * count // 4 + 8, d))
    tags = np.zeros(len(space), np.uint64)
    for v in range(count):
        tags[v] = walls[v]
        for k in range(d):
            space[v, k] = corners[v, k]
    made = _cross(space, tags, 0, count, values, edge, np.uint64(0), count)
    for v in range(count):
        if abs(values[v]) <= edge:
            for k in range(d):
                space[count + made, k] = corners[v, k]
            made += 1
    return space[count : count + made].copy()


@kernel
def _start_layer(net, weights_t, search, layer):  # type: ignore[no-untyped-def]
    """The forms of a layer's units under the current bits, afresh or by exchanging columns."""
    forms, size, bits = search.forms, search.size, search.bits
    d = len(forms) - 1
    begin, end = net.first[layer], net.first[layer + 1]
    if not _exchange_columns(net, weights_t, search, layer):
        width = end - begin
        for i in range(begin, end):
            for k in range(d):
                forms[k, i] = 0.0
            forms[d, i] = net.bias[i]
            size[i] = net.size0[i]
        for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
            start, source = net.start[term], net.source[term] - 1
            if source < 0:
                for k in range(d):
                    for i in range(width):
                        w = weights_t[start + k * width + i]
                        forms[k, begin + i] += w
                        size[begin + i] += abs(w)
                continue
            for u in range(net.first[source], net.first[source + 1]):
                slope = net.slopes[source, bits[u]]
                if slope != 0.0:
                    at = start + (u - net.first[source]) * width
                    _add_column(weights_t, at, begin, end, forms, size, u, slope)
        for u in range(net.first[layer - 1] if layer else begin, begin):
            search.used[u] = bits[u]
        search.age[layer] = 0
    for k in range(layer + 1, len(search.age)):
        search.age[k] = -1
    for i in range(begin, end):
        square = 0.0
        for k in range(d):
            square += forms[k, i] * forms[k, i]
        length, noise = np.sqrt(square), ROUNDING * size[i]
        if length <= noise:
            for k in range(d):
                forms[k, i] = 0.0
        search.band[i] = max(TOLERANCE * length, noise)


@kernel
def _exchange_columns(net, weights_t, search, layer):  # type: ignore[no-untyped-def]
    """Update valid forms by the columns of the bits that changed in the layer before."""
    if layer == 0 or search.age[layer] < 0 or search.age[layer] >= REFRESH:
        return False
    source = layer - 1
    begin, end = net.first[layer], net.first[layer + 1]
    for u in range(net.first[source], net.first[source + 1]):
        if search.bits[u] == search.used[u]:
            continue
        step = net.slopes[source, search.bits[u]] - net.slopes[source, search.used[u]]
        search.used[u] = search.bits[u]
        search.age[layer] += 1
        for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
            if net.source[term] == layer:
                at = net.start[term] + (u - net.first[source]) * (end - begin)
                _add_column(weights_t, at, begin, end, search.forms, search.size, u, step)
    return True


@kernel
def _add_column(weights_t, at, begin, end, forms, size, unit, slope):  # type: ignore[no-untyped-def]
    width = end - begin
    column = weights_t[at : at + width]
    for k in range(len(forms)):
        a = slope * forms[k, unit]
        row = forms[k, begin:end]
        for i in range(width):
            row[i] += column[i] * a
    weight = abs(slope) * size[unit]
    sizes = size[begin:end]
    for i in range(width):
        sizes[i] += abs(column[i]) * weight


@kernel
def _find_cutting(net, search, layer, va, n, out):  # type: ignore[no-untyped-def]
    """Units of the layer that cut the cell, listed from ``out``; the others get their bits."""
    begin, end = net.first[layer], net.first[layer + 1]
    width = end - begin
    d = len(search.forms) - 1
    low, high, value, forms = search.low, search.high, search.value, search.forms
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
        edge = search.band[begin + i]
        if high[i] > edge and low[i] < -edge:
            search.lists[out + cuts] = begin + i
            cuts += 1
        else:
            search.bits[begin + i] = _side(forms, begin + i, low[i], high[i], edge)
    return cuts


@inner
def _side(forms, unit, low, high, edge):  # type: ignore[no-untyped-def]
    """The bit of a unit that does not cut: plus, minus, or the larger part of a sliver."""
    if high > edge:
        return 1
    if low < -edge:
        return 0
    for k in range(len(forms) - 1):
        if forms[k, unit] != 0.0:
            return 1 if high + low > 0.0 else 0
    return 0


@kernel
def _still_cutting(search, va, n, la, length):  # type: ignore[no-untyped-def]
    """Keep the listed units that cut the cell; returns how many."""
    forms, corners = search.forms, search.corners
    d, kept = len(forms) - 1, la
    for k in range(la, la + length):
        u = search.lists[k]
        low, high = np.inf, -np.inf
        edge = search.band[u]
        for v in range(va, va + n):
            value = forms[d, u]
            for j in range(d):
                value += forms[j, u] * corners[v, j]
            low, high = min(low, value), max(high, value)
        if high > edge and low < -edge:
            search.lists[kept] = u
            kept += 1
        else:
            search.bits[u] = _side(forms, u, low, high, edge)
    return kept - la


@kernel
def _split(search, entry, unit):  # type: ignore[no-untyped-def]
    """Replace the top cell by its two parts; 0, GROW or TOO_MANY_WALLS."""
    corners, walls, values = search.corners, search.walls, search.values
    va, n = entry[CORNERS], entry[COUNT]
    d = corners.shape[1]
    above = 0
    for v in range(n):
        value = search.forms[d, unit]
        for k in range(d):
            value += search.forms[k, unit] * corners[va + v, k]
        values[v] = value
        above += value > search.band[unit]
    need = va + 4 * n + 2 * above * (n - above) + 8
    if need > len(walls):
        return GROW
    bit = _free_bit(walls, va, n)
    if bit == np.uint64(0):
        return TOO_MANY_WALLS
    edge = search.band[unit]
    # Behind the cell: crossings, minus side, plus side; then the two parts move to the front.
    a = va + n
    crossings = _cross(corners, walls, va, n, values, edge, bit, a)
    b = a + crossings
    minus = _clip(corners, walls, va, n, values, edge, bit, b, -1.0)
    c = b + minus
    plus = _clip(corners, walls, va, n, values, edge, bit, c, 1.0)
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
    search.at[0] += 1
    return 0


@kernel
def run(net, weights_t, search, patterns, points, maps):  # type: ignore[no-untyped-def]
    """Go on until the buffers are full or the search is done; how many leaves were written.

    Args:
        patterns: uint8 (capacity, units), one byte a bit.
        points: (capacity, d), filled with the mean of the corners.
        maps: (capacity, outputs * (d + 1)); capacity 0 skips them.

    Returns:
        leaves written and a status: 0, GROW or TOO_MANY_WALLS (with leaves written before it).
    """
    units = net.shape[2]
    found, capacity = 0, len(patterns)
    while search.at[0] and found < capacity:
        entry = search.entries[search.at[0] - 1]
        va, n = entry[CORNERS], entry[COUNT]
        if _decide(net, weights_t, search, entry):
            status = _split(search, entry, search.lists[entry[LIST]])
            if status:
                return found, status
            continue
        for u in range(units):
            patterns[found, u] = search.bits[u]
        _write_leaf(net, search, va, n, points[found])
        if len(maps):
            _output(net, search, maps[found])
        found += 1
        search.at[0] -= 1
    return found, 0


@kernel
def _decide(net, weights_t, search, entry):  # type: ignore[no-untyped-def]
    """Decide units on the top cell until one cuts it; False when none is left (a region)."""
    va, n = entry[CORNERS], entry[COUNT]
    if entry[UNIT] >= 0:
        search.bits[entry[UNIT]] = entry[BIT]
        entry[LENGTH] = _still_cutting(search, va, n, entry[LIST], entry[LENGTH])
    while entry[LENGTH] == 0 and entry[LAYER] + 1 < net.shape[1]:
        entry[LAYER] += 1
        _start_layer(net, weights_t, search, entry[LAYER])
        entry[LENGTH] = _find_cutting(net, search, entry[LAYER], va, n, entry[LIST])
        entry[UNIT] = -1
    return entry[LENGTH] > 0


@kernel
def _step(net, weights_t, search):  # type: ignore[no-untyped-def]
    """Split the top cell once; 0, GROW or TOO_MANY_WALLS. A region stays as it is."""
    entry = search.entries[search.at[0] - 1]
    if _decide(net, weights_t, search, entry):
        return _split(search, entry, search.lists[entry[LIST]])
    return 0


def divide(net: Packed, weights_t: NDArray[np.float64], search: Search, parts: int) -> list[Search]:
    """Searches that do what ``search`` would, in its order: at least ``parts`` if it can."""
    searches, before = [search], 0
    while before < len(searches) < parts:
        before, halves = len(searches), []
        for one in searches:
            while (status := _step(net, weights_t, one)) == GROW:
                one = grown(one)
            if status == TOO_MANY_WALLS:
                raise CellLimitError("a cell has more than 64 walls")
            if one.at[0] == 2:
                other = Search(*(array.copy() for array in one))
                other.entries[0] = other.entries[1]
                other.at[0] = one.at[0] = 1
                halves.append(other)
            halves.append(one)
        searches = halves
    return searches


@inner
def _write_leaf(net, search, va, n, point):  # type: ignore[no-untyped-def]
    for k in range(len(point)):
        total = 0.0
        for v in range(va, va + n):
            total += search.corners[v, k]
        point[k] = total / n


@kernel
def _output(net, search, out):  # type: ignore[no-untyped-def]
    """The output's forms under the current bits."""
    layers, outputs, d = net.shape[1], net.shape[3], net.shape[0]
    for o in range(outputs):
        to = out[o * (d + 1) : (o + 1) * (d + 1)]
        for k in range(d):
            to[k] = 0.0
        to[d] = net.bias[net.shape[2] + o]
        for term in range(net.term_ptr[layers], net.term_ptr[layers + 1]):
            start, source = net.start[term], net.source[term] - 1
            if source < 0:
                for k in range(d):
                    to[k] += net.weights[start + d * o + k]
                continue
            first, width = net.first[source], net.first[source + 1] - net.first[source]
            at = start + o * width
            for j in range(width):
                w = net.weights[at + j] * net.slopes[source, search.bits[first + j]]
                if w != 0.0:
                    for k in range(d + 1):
                        to[k] += w * search.forms[k, first + j]

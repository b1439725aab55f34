"""Convex polygons cut by the units of a layer, as lists of shared corners; compiled.

A piece is a list of corner numbers. For the layer at work on it, every corner knows by two bits a
unit on which side of the unit's line it lies, or that it is within the tolerance of it (neither
bit). So a unit cuts a piece when both its bits occur among the corners, and a form is evaluated
once a corner, not once a piece. A new corner is looked at only for the units that still cut the
piece it was made in; the others have their sign from the larger piece, whatever rounding says.

Sets of units are words: unit i of a layer is bit 63 - i % 64 of word i // 64. The most significant
bit comes first, as in `np.packbits`, and the first unit of a set is the number of leading zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import group
from relunorm.compiled.jit import inner
from relunorm.compiled.operations import leading_zeros
from relunorm.matrix import Array
from relunorm.regions.kernels.pack import quiet

#: Units a word holds.
WORD = 64


@inner
def bit_of(index):  # type: ignore[no-untyped-def]
    """The word with only unit ``index`` (below 64) in it."""
    return np.uint64(0x8000000000000000) >> np.uint64(index)


# Columns of Pieces.entries: where the list of corners starts, how many, how many corner numbers
# are taken, the layer at work, cuts on the way to the piece.
LOOP, COUNT, POOL, LAYER, DEPTH = range(5)


#: See `quiet`.
QUIET = quiet(2)


@group
class Pieces(NamedTuple):
    """A stack of pieces, and the corners they share."""

    corners: Array  # (room, 2)
    sides: NDArray[np.uint64]  # (2, layers * words, room): plus and minus, by layer and word
    loops: NDArray[np.int32]  # lists of corner numbers, one behind the other
    entries: NDArray[np.int64]
    open: NDArray[np.uint64]  # (pieces, 2, words): units that may cut; units known to be plus
    hidden: NDArray[np.int64]  # how often a side thinner than the tolerance was left out


@inner
def look(net, columns, pieces, top):  # type: ignore[no-untyped-def]
    """A layer's units on a piece: sides of its corners; what cuts it, and what is plus on it."""
    corners, loops, entry = pieces.corners, pieces.loops, pieces.entries[top]
    loop, count, layer = entry[LOOP], entry[COUNT], entry[LAYER]
    begin, end = net.first[layer], net.first[layer + 1]
    words = pieces.open.shape[2]
    for w in range(words):
        a, b = min(begin + WORD * w, end), min(begin + WORD * w + WORD, end)
        row, above, below = layer * words + w, np.uint64(0), np.uint64(0)
        clear = ~np.uint64(0)  # units no corner is within the tolerance of
        for v in range(count):
            corner = loops[loop + v]
            plus, minus = _sides(columns, a, b, corners[corner, 0], corners[corner, 1])
            pieces.sides[0, row, corner], pieces.sides[1, row, corner] = plus, minus
            above |= plus
            below |= minus
            clear &= plus | minus
        pieces.open[top, 0, w], pieces.open[top, 1, w] = above & below, above & ~below
        every = ~(~np.uint64(0) >> np.uint64(b - a)) if b - a < WORD else ~np.uint64(0)
        _slivers(net, columns, pieces, top, w, every & ~(above | below))
        _note_hidden(net, columns, pieces, top, w, every & ~clear & ~(above & below))


@inner
def _sides(columns, begin, end, x, y):  # type: ignore[no-untyped-def]
    """The words of the units that are plus and minus at a point."""
    forms = columns.forms
    fx, fy, fc = forms[0, begin:end], forms[1, begin:end], forms[2, begin:end]
    band, none = columns.band[begin:end], np.uint64(0)
    plus, minus = none, none
    for i in range(end - begin):
        value = fx[i] * x + fy[i] * y + fc[i]
        bit = bit_of(i)
        plus |= bit if value > band[i] else none
        minus |= bit if value < -band[i] else none
    return plus, minus


@inner
def sort_out(net, columns, pieces, top):  # type: ignore[no-untyped-def]
    """Keep the units that cut the top piece; a word with one of them in it, or -1."""
    loops, entry = pieces.loops, pieces.entries[top]
    loop, count, layer = entry[LOOP], entry[COUNT], entry[LAYER]
    words = pieces.open.shape[2]
    for w in range(words):
        open_ = pieces.open[top, 0, w]
        if not open_:
            continue
        row, above, below = layer * words + w, np.uint64(0), np.uint64(0)
        clear = ~np.uint64(0)
        for v in range(count):
            corner = loops[loop + v]
            plus, minus = pieces.sides[0, row, corner], pieces.sides[1, row, corner]
            above |= plus
            below |= minus
            clear &= plus | minus
        cutting = open_ & above & below
        pieces.open[top, 0, w] = cutting
        pieces.open[top, 1, w] |= (open_ ^ cutting) & above
        _slivers(net, columns, pieces, top, w, open_ & ~(above | below))
        _note_hidden(net, columns, pieces, top, w, (open_ ^ cutting) & ~clear)
        if cutting:
            return w
    return -1


@inner
def _slivers(net, columns, pieces, top, w, units):  # type: ignore[no-untyped-def]
    """The piece lies within the tolerance of these units' lines: the side of its larger part.

    A unit that vanishes on the piece is not plus.
    """
    forms, entry = columns.forms, pieces.entries[top]
    while units:
        c = leading_zeros(units)
        units ^= bit_of(c)
        u = net.first[entry[LAYER]] + WORD * w + c
        low, high = _range(forms, pieces, entry, u)
        if low + high > 0.0 and not columns.flat[u]:
            pieces.open[top, 1, w] |= bit_of(c)


@inner
def _range(forms, pieces, entry, unit):  # type: ignore[no-untyped-def]
    """The least and the largest value of a unit's form at the corners of a piece."""
    low, high = np.inf, -np.inf
    for v in range(entry[LOOP], entry[LOOP] + entry[COUNT]):
        corner = pieces.loops[v]
        value = forms[0, unit] * pieces.corners[corner, 0]
        value += forms[1, unit] * pieces.corners[corner, 1]
        low, high = min(low, value + forms[2, unit]), max(high, value + forms[2, unit])
    return low, high


@inner
def _note_hidden(net, columns, pieces, top, w, units):  # type: ignore[no-untyped-def]
    """Count the units that get one sign on the piece but take the other by more than rounding."""
    forms, entry = columns.forms, pieces.entries[top]
    while units:
        c = leading_zeros(units)
        units ^= bit_of(c)
        u = net.first[entry[LAYER]] + WORD * w + c
        if not columns.flat[u]:
            low, high = _range(forms, pieces, entry, u)
            if min(high, -low) > QUIET * columns.size[u]:
                pieces.hidden[0] += 1


@inner
def cut(net, columns, pieces, top, w):  # type: ignore[no-untyped-def]
    """Replace the top piece by its minus side and, on top, its plus side; False: no room.

    A crossing is interpolated from the positive end.
    """
    if top + 2 > len(pieces.entries):
        return False
    entry, other, loops = pieces.entries[top], pieces.entries[top + 1], pieces.loops
    loop, count, layer, made = entry[LOOP], entry[COUNT], entry[LAYER], entry[POOL]
    if loop + 3 * count + 6 > len(loops) or made + 2 > len(pieces.corners):
        return False
    words = pieces.open.shape[2]
    c = leading_zeros(pieces.open[top, 0, w])
    bit, row, u = bit_of(c), layer * words + w, net.first[layer] + WORD * w + c
    plus, minus = pieces.sides[0, row], pieces.sides[1, row]
    below = loop + count
    above = below + count + 2
    low, high = below, above
    corner = loops[loop]
    for v in range(count):
        after = loops[loop + v + 1] if v + 1 < count else loops[loop]
        if not plus[corner] & bit:
            loops[low] = corner
            low += 1
        if not minus[corner] & bit:
            loops[high] = corner
            high += 1
        rising = minus[corner] & plus[after] & bit
        # A line crosses a convex polygon twice; rounding must not make it more.
        if (rising or plus[corner] & minus[after] & bit) and made < entry[POOL] + 2:
            start, end = (after, corner) if rising else (corner, after)
            _cross(columns, pieces, u, start, end, made)
            _look_again(net, columns, pieces, top, made)
            plus[made] &= ~bit
            minus[made] &= ~bit
            loops[low] = loops[high] = made
            low += 1
            high += 1
            made += 1
        corner = after
    for k in range(words):
        pieces.open[top + 1, 0, k] = pieces.open[top, 0, k]
        pieces.open[top + 1, 1, k] = pieces.open[top, 1, k]
    pieces.open[top, 0, w] ^= bit
    pieces.open[top + 1, 0, w] ^= bit
    pieces.open[top + 1, 1, w] |= bit
    entry[DEPTH] += 1
    entry[LOOP], entry[COUNT], entry[POOL] = below, low - below, made
    other[LOOP], other[COUNT], other[POOL], other[LAYER] = above, high - above, made, layer
    other[DEPTH] = entry[DEPTH]
    return True


@inner
def _cross(columns, pieces, unit, start, end, to):  # type: ignore[no-untyped-def]
    """Where the unit's line crosses the edge, as corner number ``to``."""
    forms, corners = columns.forms, pieces.corners
    fx, fy, fc = forms[0, unit], forms[1, unit], forms[2, unit]
    x, y = corners[start, 0], corners[start, 1]
    dx, dy = corners[end, 0] - x, corners[end, 1] - y
    p = fx * x + fy * y + fc
    q = fx * corners[end, 0] + fy * corners[end, 1] + fc
    share = p / (p - q)
    corners[to, 0], corners[to, 1] = x + share * dx, y + share * dy


@inner
def _look_again(net, columns, pieces, top, corner):  # type: ignore[no-untyped-def]
    """The sides of a new corner, for the units that may still cut the piece."""
    forms, band = columns.forms, columns.band
    layer, words = pieces.entries[top, LAYER], pieces.open.shape[2]
    x, y = pieces.corners[corner, 0], pieces.corners[corner, 1]
    for w in range(words):
        left, plus, minus = pieces.open[top, 0, w], np.uint64(0), np.uint64(0)
        while left:
            c = leading_zeros(left)
            bit = bit_of(c)
            left ^= bit
            u = net.first[layer] + WORD * w + c
            value = forms[0, u] * x + forms[1, u] * y + forms[2, u]
            plus |= bit if value > band[u] else np.uint64(0)
            minus |= bit if value < -band[u] else np.uint64(0)
        pieces.sides[0, layer * words + w, corner] = plus
        pieces.sides[1, layer * words + w, corner] = minus

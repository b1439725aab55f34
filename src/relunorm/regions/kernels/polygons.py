"""All regions of a network of two inputs: convex polygons, cut depth first; compiled.

A face of the partition after k layers is a convex polygon and a pattern. On it the next layer's
pre-activations are affine; only units whose sign differs between corners can cut it. The face is
cut by one of those, both parts keep the units that still cut them, and so on down to pieces that
no unit cuts: faces of the next layer, or regions. No graph, no linear programme; memory is
O(depth). Corners know their side of every unit as bits of words (`polygon_cuts`), so whether a
unit cuts a piece is a matter of two words a corner.

How to call it (window coordinates, ``net`` from `pack.pack` by columns)::

    search = new_search(net, corners)              # of the domain, in order
    found, status = run(net, search, out, stop)    # fills ``out``; GROW: `grown(search)`
    search.at[TOP] > 0                             # whether there may be more

Exactness: as in `tree`; a unit cuts a face when its scaled form exceeds its tolerance at one corner
and falls below minus that at another, which is the same criterion. A part that is long enough for
that and no wider than the rounding of its corners is not written: no region need be there.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import copied, group, longer
from relunorm.compiled.jit import inner, kernel
from relunorm.matrix import Array
from relunorm.regions.kernels.columns import Columns, new_columns, start_layer
from relunorm.regions.kernels.pack import Packed
from relunorm.regions.kernels.polygon_cuts import (
    COUNT,
    LAYER,
    LOOP,
    WORD,
    Pieces,
    bit_of,
    cut,
    leading_zeros,
    look,
    sort_out,
)
from relunorm.regions.kernels.polygon_cuts import DEPTH as DEPTH

#: Returned by `run` when the stack is too small.
GROW = 1
#: Rounding of a corner in the window, whose half-width is one.
CORNER = 4 * float(np.finfo(np.float64).eps)
#: Cuts on the way to a piece that there is room for at first. A path may have one a unit, but in
#: wide networks far fewer meet any piece.
FIRST_DEPTH = 1024

# Entries of Search.at: pieces on the stack, whether the top piece is new to its layer.
TOP, FRESH = range(2)


@group
class Faces(NamedTuple):
    """Polygons: face f has the corners ``ptr[f]`` to ``ptr[f + 1]`` and the bits ``bits[f]``."""

    corners: Array
    ptr: NDArray[np.int64]
    points: Array  # the mean of each face's corners
    bits: NDArray[np.uint8]  # as np.packbits writes them, one row a face


@group
class Search(NamedTuple):
    """Where a search stands."""

    pieces: Pieces
    columns: Columns
    packed: NDArray[np.uint8]  # the bits as np.packbits writes them
    words: NDArray[np.uint64]  # (layers, words): the bits as words
    at: NDArray[np.int64]
    thin: Array  # pieces of at most this width are slivers


def new_search(net: Packed, corners: Array) -> Search:
    """A search at the root: the polygon with these corners."""
    _, layers, units, _ = net.shape.tolist()
    first = net.first.tolist()
    widest = max(b - a for a, b in pairwise(first[: layers + 1]))
    count, words = len(corners), (widest + WORD - 1) // WORD
    # A path through the tree cuts at most once a unit, and a cut makes at most two corners.
    depth = min(units, FIRST_DEPTH)
    room = count + 2 * depth
    pieces = Pieces(
        np.empty((room, 2)),
        np.empty((2, layers * words, room), np.uint64),
        np.empty(16 * depth + 4 * room, np.int32),
        np.empty((depth + 2, 5), np.int64),
        np.empty((depth + 2, 2, words), np.uint64),
        np.zeros(1, np.int64),
    )
    pieces.corners[:count] = corners
    pieces.loops[:count] = np.arange(count)
    pieces.entries[0] = 0, count, count, 0, 0
    return Search(
        pieces,
        new_columns(net),
        np.zeros((units + 7) // 8, np.uint8),
        np.zeros((layers, words), np.uint64),
        np.array([1, 1]),
        np.array([CORNER * min(1.0, _width(corners))]),
    )


def _width(corners: Array) -> float:
    """Twice the area of a polygon over its length."""
    sides = (corners - corners[0]).tolist()
    area = abs(sum(x * v - u * y for (x, y), (u, v) in pairwise(sides)))
    return area / max(math.hypot(*side) for side in sides)


def new_faces(search: Search, size: int) -> Faces:
    """Room for ``size`` regions."""
    most = len(search.pieces.corners)  # more than any polygon has, so that one always fits
    return Faces(
        np.empty((4 * size + most, 2)),
        np.zeros(size + 1, np.int64),
        np.empty((size, 2)),
        np.empty((size, len(search.packed)), np.uint8),
    )


def grown(search: Search) -> Search:
    """The same search with stacks twice as large."""
    p = search.pieces
    pieces = p._replace(
        corners=longer(p.corners),
        sides=longer(p.sides, 2),
        loops=longer(p.loops),
        entries=longer(p.entries),
        open=longer(p.open),
    )
    return search._replace(pieces=pieces)


def split_off(search: Search) -> Search | None:
    """Part with what the search would come to last, as a search of its own; None: too little."""
    if search.at[TOP] < 2:
        return None
    other = copied(search)
    other.at[TOP], other.at[FRESH] = 1, 0
    other.pieces.hidden[0] = 0
    top = int(search.at[TOP])
    for array in (search.pieces.entries, search.pieces.open):
        array[: top - 1] = array[1:top].copy()
    search.at[TOP] = top - 1
    return other


@kernel
def run(net, search, out, stop):  # type: ignore[no-untyped-def]
    """Go on until ``out`` is full or the search is done; regions written and 0 or GROW.

    It also ends when ``stop`` (of `Clock.watch`) is set; call again to go on.
    """
    at, entries = search.at, search.pieces.entries
    found = 0
    while at[TOP] and found < len(out.bits) and not stop[0]:
        top = at[TOP] - 1
        layer = entries[top, LAYER]
        if at[FRESH]:
            at[FRESH] = 0
            start_layer(net, search.columns, layer)
            look(net, search.columns, search.pieces, top)
        word = sort_out(net, search.columns, search.pieces, top)
        if word >= 0:
            if not cut(net, search.columns, search.pieces, top, word):
                return found, GROW
            at[TOP] += 1
        elif layer + 1 < net.shape[1]:
            _commit(net, search, layer)
            entries[top, LAYER] = layer + 1
            at[FRESH] = 1
        elif out.ptr[found] + entries[top, COUNT] > len(out.corners):
            break
        else:
            _commit(net, search, layer)
            if not _is_sliver(search, entries[top]):
                _write(search, entries[top], out, found)
                found += 1
            at[TOP] -= 1
    return found, 0


@inner
def _commit(net, search, layer):  # type: ignore[no-untyped-def]
    """Make the units known to be plus on the top piece the layer's current bits."""
    begin, plus = net.first[layer], search.pieces.open[search.at[TOP] - 1, 1]
    for w in range(len(plus)):
        changed = plus[w] ^ search.words[layer, w]
        search.words[layer, w] = plus[w]
        while changed:
            c = leading_zeros(changed)
            changed ^= bit_of(c)
            u = begin + WORD * w + c
            search.columns.bits[u] ^= 1
            search.packed[u >> 3] ^= 128 >> (u & 7)


@inner
def _is_sliver(search, entry):  # type: ignore[no-untyped-def]
    """Whether the top piece is as thin as the rounding of its corners."""
    corners, loops = search.pieces.corners, search.pieces.loops
    first = loops[entry[LOOP]]
    x, y, area, far = 0.0, 0.0, 0.0, 0.0
    for v in range(1, entry[COUNT]):
        corner = loops[entry[LOOP] + v]
        dx, dy = corners[corner, 0] - corners[first, 0], corners[corner, 1] - corners[first, 1]
        area += x * dy - dx * y
        far = max(far, dx * dx + dy * dy)
        x, y = dx, dy
    return abs(area) <= search.thin[0] * np.sqrt(far)


@inner
def _write(search, entry, out, face):  # type: ignore[no-untyped-def]
    """Write the top piece, which nothing cuts any more, to place ``face`` of ``out``."""
    pieces = search.pieces
    loop, count, to = entry[LOOP], entry[COUNT], out.ptr[face]
    x, y = 0.0, 0.0
    for v in range(count):
        corner = pieces.loops[loop + v]
        px, py = pieces.corners[corner, 0], pieces.corners[corner, 1]
        out.corners[to + v, 0], out.corners[to + v, 1] = px, py
        x += px
        y += py
    out.points[face, 0], out.points[face, 1] = x / count, y / count
    out.ptr[face + 1] = to + count
    for k in range(len(search.packed)):
        out.bits[face, k] = search.packed[k]

"""The polygons of a list of patterns of two inputs, one behind the other; compiled.

What a pattern leaves of the window is the window cut by its units' half-planes, layer by layer. In
the order of their bits, patterns that agree on the first layers stand side by side and share what
these leave, so each layer is cut once for every pattern of the layers up to it, as in a search; but
nothing is searched. A unit cuts where `polygons` says it does, by the same forms and bands.

    corners, ptr = outlines(net, packed, window.corners)    # net from `pack.pack` by columns
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import group
from relunorm.compiled.jit import inner, kernel
from relunorm.matrix import Array
from relunorm.regions.kernels.columns import Columns, new_columns, start_layer
from relunorm.regions.kernels.pack import Packed

# Entries of Clipping.at.
PATTERNS, CORNERS = range(2)


@group
class Clipping(NamedTuple):
    """What the layers of the last pattern left of the window."""

    columns: Columns
    left: Array  # (layers + 1, room, 2): corners, after so many layers
    counts: NDArray[np.int64]  # how many of them
    spare: Array  # (room, 2)
    values: Array
    at: NDArray[np.int64]  # patterns so far, and corners written before this call


def outlines(
    net: Packed, packed: NDArray[np.uint8], window: Array
) -> tuple[Array, NDArray[np.int64]]:
    """The corners of each pattern's polygon, in order, and where they begin; in window coordinates.

    A pattern that does not meet the window, or by less than the tolerance, has none.

    Args:
        packed: the patterns as ``np.packbits`` writes them, one row each.
        window: the corners of the window, in order.
    """
    n, width = packed.shape
    if not width or not n:  # no units, so that every pattern is the window
        return np.tile(window, (n, 1)), len(window) * np.arange(n + 1)
    order = np.argsort(np.ascontiguousarray(packed).view(f"S{width}").ravel(), kind="stable")
    rows, clipping = packed[order], _begin(net, window)
    ptr, parts, done = np.zeros(n + 1, np.int64), [], 0
    while done < n:
        room = np.empty((6 * (n - done) + len(clipping.spare), 2))
        before, done = done, clip(net, clipping, rows, room, ptr)
        parts.append(room[: ptr[done] - ptr[before]])
        clipping.at[CORNERS] = ptr[done]
    return taken(np.concatenate(parts), ptr, np.argsort(order))


def taken(
    corners: Array, ptr: NDArray[np.int64], index: NDArray[np.intp]
) -> tuple[Array, NDArray[np.int64]]:
    """The polygons of these numbers, in their order."""
    sizes = np.diff(ptr)[index]
    new = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return corners[np.arange(new[-1]) + np.repeat(ptr[index] - new[:-1], sizes)], new


def _begin(net: Packed, corners: Array) -> Clipping:
    """Nothing done: the window with these corners."""
    _, layers, units, _ = net.shape.tolist()
    room = len(corners) + units + 2  # a half-plane takes a corner away at least and makes two
    left = np.empty((layers + 1, room, 2))
    left[0, : len(corners)] = corners
    counts = np.zeros(layers + 1, np.int64)
    counts[0] = len(corners)
    rest = np.empty((room, 2)), np.empty(room), np.zeros(2, np.int64)
    return Clipping(new_columns(net), left, counts, *rest)


@kernel
def clip(net, clipping, packed, corners, ptr):  # type: ignore[no-untyped-def]
    """Go on with the sorted patterns until there is no room for another; how many are done.

    Polygon i has the corners ``ptr[i]`` to ``ptr[i + 1]``, none if the pattern misses the window.
    """
    layers, room = net.shape[1], len(clipping.spare)
    i = clipping.at[PATTERNS]
    while i < len(packed) and ptr[i] - clipping.at[CORNERS] + room <= len(corners):
        first = _first_change(net, clipping.columns, packed[i]) if i else 0
        for layer in range(first, layers):
            if (layer > first or i == 0) and clipping.counts[layer]:
                start_layer(net, clipping.columns, layer)
            _read(net, clipping.columns, packed[i], layer)
            _clip_layer(net, clipping, layer)
        count, to = clipping.counts[layers], ptr[i] - clipping.at[CORNERS]
        for v in range(count):
            corners[to + v, 0] = clipping.left[layers, v, 0]
            corners[to + v, 1] = clipping.left[layers, v, 1]
        ptr[i + 1] = ptr[i] + count
        i += 1
    clipping.at[PATTERNS] = i
    return i


@inner
def _bit(pattern, unit):  # type: ignore[no-untyped-def]
    """Whether a unit is active in a packed pattern: 0 or 1."""
    return (pattern[unit >> 3] >> (7 - (unit & 7))) & 1


@inner
def _first_change(net, columns, pattern):  # type: ignore[no-untyped-def]
    """The first layer in which a pattern differs from the last one."""
    layers = net.shape[1]
    for layer in range(layers):
        for u in range(net.first[layer], net.first[layer + 1]):
            if _bit(pattern, u) != columns.bits[u]:
                return layer
    return layers


@inner
def _read(net, columns, pattern, layer):  # type: ignore[no-untyped-def]
    """Take over a layer's bits."""
    for u in range(net.first[layer], net.first[layer + 1]):
        columns.bits[u] = _bit(pattern, u)


@inner
def _clip_layer(net, clipping, layer):  # type: ignore[no-untyped-def]
    """What a layer's bits leave of what the layers before it left."""
    columns, values, spare = clipping.columns, clipping.values, clipping.spare
    now = clipping.left[layer + 1]
    count = clipping.counts[layer]
    for v in range(count):
        now[v, 0], now[v, 1] = clipping.left[layer, v, 0], clipping.left[layer, v, 1]
    for u in range(net.first[layer], net.first[layer + 1]):
        side = 1.0 if columns.bits[u] else -1.0
        fx, fy, fc = columns.forms[0, u], columns.forms[1, u], columns.forms[2, u]
        low, high = np.inf, -np.inf
        for v in range(count):
            values[v] = side * (fx * now[v, 0] + fy * now[v, 1] + fc)
            low, high = min(low, values[v]), max(high, values[v])
        band = columns.band[u]
        if low < -band:
            count = _cut(now, values, spare, count, band) if high > band else 0
    clipping.counts[layer + 1] = count


@inner
def _cut(now, values, spare, count, band):  # type: ignore[no-untyped-def]
    """Keep the part of a polygon where the values are not below the band; corners left.

    A crossing is interpolated from the positive end.
    """
    made, crossings = 0, 0
    for v in range(count):
        after = v + 1 if v + 1 < count else 0
        if values[v] >= -band:
            spare[made, 0], spare[made, 1] = now[v, 0], now[v, 1]
            made += 1
        falling = values[v] > band and values[after] < -band
        rising = values[v] < -band and values[after] > band
        # A line crosses a convex polygon twice; rounding must not make it more.
        if (falling or rising) and crossings < 2:
            start, end = (v, after) if falling else (after, v)
            share = values[start] / (values[start] - values[end])
            spare[made, 0] = now[start, 0] + share * (now[end, 0] - now[start, 0])
            spare[made, 1] = now[start, 1] + share * (now[end, 1] - now[start, 1])
            made += 1
            crossings += 1
    for v in range(made):
        now[v, 0], now[v, 1] = spare[v, 0], spare[v, 1]
    return made

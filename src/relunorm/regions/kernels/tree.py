"""The sign tree: all activation patterns of a network on a polytope, depth first, compiled.

Units are decided one after the other, in layer order. The state is the path from the root: one
bit per decided unit, one half-space per unit that really splits its cell, the affine forms of the
layers entered so far and a few points known to lie in the cell (witnesses). No queue, no visited
set: memory is O(depth). A unit's sign is possible on a cell when the form, scaled to unit
gradient, exceeds its tolerance somewhere in the cell; witnesses usually show that at once, and
otherwise one small linear programme decides (`simplex.maximize`). A proof that a sign is absent
rests on a few of the cell's walls; it is remembered as a clause ("with these bits, unit u is never
plus") and serves every later cell with the same bits below the same layer.

How to call it (``net`` from `pack.pack`, everything in the window's coordinates)::

    state = new_state(net, lo, hi, rows, rhs, witnesses)   # `tree_state`; rows have unit length
    found = run(net, state, patterns, points)              # leaves; again and again, until it is 0

After `start_layer` the form of unit i is ``state.forms[i, :d] . t + state.forms[i, d]``. The
current cell is ``state.rows[:m] . t <= state.rhs[:m]`` with ``m = state.at[ROWS]``, inside the box.

Exactness: decisions are exact for every cell that holds points farther than the tolerance from the
walls in question; the tolerance of unit i is ``max(TOLERANCE, its rounding error)`` as a distance,
relative to a box of half-width one. A form whose gradient is nothing but rounding is constant.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import inner, kernel, kernel_part
from relunorm.compiled.simplex import FAILED, FOUND, STOPPED, maximize
from relunorm.regions.kernels.pack import TOLERANCE
from relunorm.regions.kernels.tree_state import (
    CUT_OFF,
    DEPTH,
    FAILURES,
    FRAMES,
    POINTS,
    POINTS_START,
    ROWS,
    STARTED,
    layer_of,
    signs,
    start_layer,
)


@inner
def _mean(points, base, count, out):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = 0.0
    for p in range(base, base + count):
        for k in range(len(out)):
            out[k] += points[p, k]
    for k in range(len(out)):
        out[k] /= count


@inner
def _set_bit(state, unit, bit):  # type: ignore[no-untyped-def]
    state.bits[unit] = bit
    mask = np.uint8(128 >> (unit & 7))
    if bit:
        state.packed[unit >> 3] |= mask
    else:
        state.packed[unit >> 3] &= np.uint8(255) ^ mask


@kernel_part
def _descend(state, unit, code):  # type: ignore[no-untyped-def]
    """Decide the unit after `signs`; with code 3 push a frame and take the plus side."""
    if code != 3:
        _set_bit(state, unit, 1 if code == 2 else 0)
        return
    at = state.at
    frame = state.frames[at[FRAMES]]
    frame[0], frame[1] = unit, at[ROWS]
    at[DEPTH] += 1
    frame[2], frame[3], frame[4] = at[POINTS_START], at[POINTS], at[DEPTH]
    at[FRAMES] += 1
    _take(state, unit, 1)


@inner
def _take(state, unit, bit):  # type: ignore[no-untyped-def]
    """Enter the child where the unit has this bit: one more row, and the witnesses on its side."""
    at, points, values, scale = state.at, state.points, state.values, state.scale[unit]
    d = len(state.row)
    sign = -1.0 if bit else 1.0
    m = at[ROWS]
    for k in range(d):
        state.rows[m, k] = sign * state.forms[unit, k] * scale
    state.rhs[m] = -sign * state.forms[unit, d] * scale
    state.row_bit[m] = 2 * unit + bit
    at[ROWS] = m + 1
    base, count = at[POINTS_START], at[POINTS]
    to, kept, room = base + count, 1, len(values) - 2
    _enter(points, values, base, count, to, -sign, state.tolerance[unit])
    for p in range(count):
        if sign * values[p] <= 0.0 and kept < room:
            for k in range(d):
                points[to + kept, k] = points[base + p, k]
            kept += 1
    # Where segments between witnesses of opposite sides cross the new wall: points of both.
    q = count - 1
    for p in range(count):
        if kept >= room:
            break
        if values[p] <= state.tolerance[unit]:
            continue
        tried = 0
        while tried < count and values[q] >= -state.tolerance[unit]:
            q = q - 1 if q else count - 1
            tried += 1
        if tried == count:
            break
        share = values[p] / (values[p] - values[q])
        for k in range(d):
            points[to + kept, k] = points[base + p, k] + share * (
                points[base + q, k] - points[base + p, k]
            )
        kept += 1
        q = q - 1 if q else count - 1
    at[POINTS_START], at[POINTS] = to, kept
    _set_bit(state, unit, bit)


@inner
def _enter(points, values, base, count, to, side, tolerance):  # type: ignore[no-untyped-def]
    """The first witness of a child, strictly inside it because its parent's first one is.

    That one itself where it lies on the child's side; else a point between it and the farthest
    witness on that side, half-way from the wall.
    """
    d = points.shape[1]
    far = 0
    for p in range(1, count):
        if side * values[p] > side * values[far]:
            far = p
    share = 0.0
    start, end = side * values[0], side * values[far]
    if start <= tolerance:
        share = 0.5 + 0.5 * max(-start, 0.0) / (end - start)
    for k in range(d):
        first = points[base, k]
        points[to, k] = first + share * (points[base + far, k] - first)


@kernel_part
def _backtrack(state):  # type: ignore[no-untyped-def]
    """Take the other side of the last split; its unit, or -1 when none is left."""
    at = state.at
    if at[FRAMES] == 0:
        return -1
    at[FRAMES] -= 1
    frame = state.frames[at[FRAMES]]
    unit = frame[0]
    at[ROWS], at[POINTS_START], at[POINTS] = frame[1], frame[2], frame[3]
    at[DEPTH] = frame[4]
    d, scale = len(state.row), state.scale[unit]
    for p in range(at[POINTS]):
        value = state.forms[unit, d]
        for k in range(d):
            value += state.forms[unit, k] * state.points[at[POINTS_START] + p, k]
        state.values[p] = value * scale
    _take(state, unit, 0)
    return unit


@kernel_part
def _interior_point(state, x):  # type: ignore[no-untyped-def]
    """A strictly interior point of the current cell: between the first witness and the mean.

    The first witness is strictly inside by construction (`_enter`). Where rounding has eaten its
    distance from a wall, one programme finds a point away from that wall.
    """
    at = state.at
    d = len(x)
    base = at[POINTS_START]
    _mean(state.points, base, at[POINTS], x)
    for k in range(d):
        x[k] = 0.5 * (x[k] + state.points[base, k])
    for m in range(at[ROWS]):
        slack = state.rhs[m]
        for k in range(d):
            slack -= state.rows[m, k] * x[k]
        if slack <= TOLERANCE / 2:
            for k in range(d):
                state.row[k] = -state.rows[m, k]
            _pull_inside(state, -state.rhs[m], x)
    for k in range(d):
        if x[k] >= state.hi[k] - TOLERANCE / 2 or x[k] <= state.lo[k] + TOLERANCE / 2:
            upper = x[k] >= state.hi[k] - TOLERANCE / 2
            for j in range(d):
                state.row[j] = 0.0
            state.row[k] = -1.0 if upper else 1.0
            _pull_inside(state, -state.hi[k] if upper else state.lo[k], x)


@inner
def _pull_inside(state, stop, x):  # type: ignore[no-untyped-def]
    status = maximize(
        state.row, state.rows, state.rhs, state.at[ROWS], state.lo, state.hi, stop, state.work
    )
    if status == FOUND:
        for k in range(len(x)):
            x[k] += (state.work.x[k] - x[k]) * 0.25
    elif status == STOPPED:
        state.at[CUT_OFF] = 1
    elif status == FAILED:
        state.at[FAILURES] += 1


@kernel
def run(net, state, patterns, points):  # type: ignore[no-untyped-def]
    """Go on with the search until the buffers are full or the tree is done.

    Args:
        patterns: uint8 (capacity, bytes), filled with packed bits.
        points: (capacity, d), filled with interior points.

    Returns:
        how many leaves were written; when the time is up (``state.work.stop``), those found so far.
    """
    at = state.at
    units = net.shape[2]
    capacity, found = len(patterns), 0
    if at[STARTED] == 2:
        return 0
    unit = 0
    while found < capacity and not at[CUT_OFF]:
        if at[STARTED]:
            unit = _backtrack(state) + 1
            if unit == 0:
                at[STARTED] = 2
                break
        at[STARTED] = 1
        layer = layer_of(net.first, unit)
        while unit < units:
            if unit == net.first[layer]:
                start_layer(net, state, layer)
            code = signs(net, state, unit)
            if code == 0 or state.work.stop[0]:
                at[CUT_OFF] = 1
                return found
            _descend(state, unit, code)
            unit += 1
            if unit == net.first[layer + 1]:
                layer += 1
        for b in range(patterns.shape[1]):
            patterns[found, b] = state.packed[b]
        _interior_point(state, points[found])
        if at[CUT_OFF]:
            return found
        found += 1
    return found

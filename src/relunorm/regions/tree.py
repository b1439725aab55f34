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

    state = new_state(net, lo, hi, rows, rhs, witnesses)   # rows: further half-spaces, unit length
    found = run(net, state, patterns, points, maps)        # fills the buffers, returns how many
                                                           # leaves; 0 when the tree is done
                                                           # call again to go on where it stopped

or, for a search of one's own (branch and bound), the steps `run` is made of::

    start_layer(net, state, layer)     affine forms of a layer's units on the current cell
    signs(net, state, unit)            1 only minus, 2 only plus, 3 both are possible on the cell
    descend(net, state, unit, code)    decide the unit; a split pushes a frame and takes one side
    backtrack(net, state)              pop the last frame, take its other side; its unit, or -1
    interior_point(net, state, x)      a strictly interior point of the current cell

After `start_layer` the form of unit i is ``state.forms[i, :d] . t + state.forms[i, d]``. The
current cell is ``state.rows[:m] . t <= state.rhs[:m]`` with ``m = state.at[ROWS]``, inside the box.

Exactness: decisions are exact for every cell that holds points farther than the tolerance from the
walls in question; the tolerance of unit i is ``max(TOLERANCE, its rounding error)`` as a distance,
relative to a box of half-width one. A form whose gradient is nothing but rounding is constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.regions.jit import inner, kernel
from relunorm.regions.pack import Packed
from relunorm.regions.simplex import ABSENT, FAILED, FOUND, Workspace, maximize, workspace

#: A sign must be taken this far from the unit's hyperplane to count, in half-widths of the box.
TOLERANCE = 1e-10
#: Rounding of a sum, relative to the sum of its absolute terms.
ROUNDING = 32 * 2.0**-52

#: Clauses remembered per unit and side.
CLAUSES = 16
#: Bytes of address space a search may take (far fewer are touched); beyond, it would never end.
MEMORY = 64 * 2**30

# Entries of State.at.
UNIT, ROWS, POINTS_START, POINTS, FRAMES, STARTED, LAYER, FAILURES, NODES = range(9)


class State(NamedTuple):
    """Where a search stands; see the head of the file."""

    bits: NDArray[np.int8]
    packed: NDArray[np.uint8]  # the bits as np.packbits writes them
    forms: NDArray[np.float64]  # (units + outputs, d + 1)
    size: NDArray[np.float64]  # sum of absolute entries of a form
    scale: NDArray[np.float64]  # 1 / |gradient|, 0 for a constant form
    tolerance: NDArray[np.float64]
    rows: NDArray[np.float64]
    rhs: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    points: NDArray[np.float64]  # the stack of witness sets
    values: NDArray[np.float64]  # a form's values at the current witnesses
    row: NDArray[np.float64]  # scratch: one scaled gradient
    frames: NDArray[np.int64]  # unit, rows, start and number of witnesses, side still to do
    at: NDArray[np.int64]
    live: NDArray[np.int64]  # scratch: units with non-zero slope
    row_bit: NDArray[np.int64]  # what made a row: 2 * unit + bit, -1 for the domain
    clauses: NDArray[np.int64]  # (units, 2, CLAUSES, d): per side the bits that exclude it
    clause_size: NDArray[np.int64]  # (units, 2, CLAUSES)
    learned: NDArray[np.int64]  # (units, 2): clauses learned since the layer started
    work: Workspace


def new_state(
    net: Packed,
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    rows: NDArray[np.float64],
    rhs: NDArray[np.float64],
    witnesses: NDArray[np.float64],
    keep: int = 0,
) -> State:
    """A search at the root: the cell is the box ``lo .. hi`` cut by ``rows . t <= rhs``.

    Args:
        witnesses: shape (k, d), points of the cell; the first one strictly inside it.
        keep: witnesses kept per cell; by default 2 d + 8.
    """
    d, _, units, _ = (int(n) for n in net.shape)
    check_memory(d, units)
    keep = max(keep or 2 * d + 8, len(witnesses) + 2)
    try:
        state = _empty_state(net, lo, hi, len(rhs), keep)
    except MemoryError:
        raise _too_large(d, units) from None
    state.rows[: len(rhs)], state.rhs[: len(rhs)] = rows, rhs
    state.points[: len(witnesses)] = witnesses
    state.at[ROWS], state.at[POINTS], state.at[LAYER] = len(rhs), len(witnesses), -1
    return state


def check_memory(dimension: int, units: int) -> None:
    """Refuse searches whose state would not fit: witnesses and clauses take most of it."""
    if _state_bytes(dimension, units) > MEMORY:
        raise _too_large(dimension, units)


def _state_bytes(dimension: int, units: int) -> int:
    return 8 * units * dimension * (2 * dimension + 8 + 2 * CLAUSES)


def _too_large(dimension: int, units: int) -> InvalidInputError:
    return InvalidInputError(
        f"a search over {dimension} inputs and {units} units would need "
        f"{_state_bytes(dimension, units) / 2**30:,.0f} GiB: its regions cannot be listed. Look at "
        "them along a line (relunorm.along) or on a plane (relunorm.on_plane), at a point "
        "(relunorm.region_at), or in a box with few sides of positive length"
    )


def _empty_state(
    net: Packed, lo: NDArray[np.float64], hi: NDArray[np.float64], given: int, keep: int
) -> State:
    d, _, units, outputs = (int(n) for n in net.shape)
    total, depth = units + outputs, given + units
    return State(
        np.zeros(units, np.int8),
        np.zeros((units + 7) // 8, np.uint8),
        np.zeros((total, d + 1)),
        np.zeros(total),
        np.zeros(total),
        np.zeros(total),
        np.zeros((depth + 1, d)),
        np.zeros(depth + 1),
        np.ascontiguousarray(lo, dtype=np.float64),
        np.ascontiguousarray(hi, dtype=np.float64),
        np.zeros(((units + 2) * keep, d)),
        np.zeros(keep),
        np.zeros(d),
        np.zeros((units + 1, 5), np.int64),
        np.zeros(9, np.int64),
        np.zeros(max(int(np.diff(net.first).max()), 1), np.int64),
        np.full(depth + 1, -1, np.int64),
        np.zeros((units, 2, CLAUSES, d), np.int64),
        np.zeros((units, 2, CLAUSES), np.int64),
        np.zeros((units, 2), np.int64),
        workspace(d),
    )


@kernel
def layer_of(first, unit):  # type: ignore[no-untyped-def]
    """The layer a unit belongs to."""
    layer = 0
    while first[layer + 1] <= unit:
        layer += 1
    return layer


@kernel
def start_layer(net, state, layer):  # type: ignore[no-untyped-def]
    """The affine forms of a layer's units on the current cell, scaled gradients and tolerances."""
    forms, size = state.forms, state.size
    d = forms.shape[1] - 1
    begin, end = net.first[layer], net.first[layer + 1]
    for i in range(begin, end):
        for k in range(d):
            forms[i, k] = 0.0
        forms[i, d] = net.bias[i]
        size[i] = net.size0[i]
    for i in range(begin, min(end, len(state.bits))):
        state.learned[i, 0] = state.learned[i, 1] = 0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        if net.source[term] == 0:
            _add_input(net, state, begin, end, net.start[term])
        else:
            _add_layer(net, state, begin, end, net.start[term], net.source[term] - 1)
    for i in range(begin, end):
        square, total = 0.0, abs(forms[i, d])
        for k in range(d):
            square += forms[i, k] * forms[i, k]
            total += abs(forms[i, k])
        noise = ROUNDING * size[i]
        length = np.sqrt(square)
        if length <= noise:
            for k in range(d):
                forms[i, k] = 0.0
            state.scale[i], state.tolerance[i] = 0.0, noise
        else:
            state.scale[i] = 1.0 / length
            state.tolerance[i] = max(TOLERANCE, noise / length)
        size[i] = total


@inner
def _add_input(net, state, begin, end, start):  # type: ignore[no-untyped-def]
    forms, size = state.forms, state.size
    d = forms.shape[1] - 1
    for i in range(begin, end):
        for k in range(d):
            w = net.weights[start + (i - begin) * d + k]
            forms[i, k] += w
            size[i] += abs(w)


@inner
def _add_layer(net, state, begin, end, start, source):  # type: ignore[no-untyped-def]
    forms, size, live = state.forms, state.size, state.live
    d = forms.shape[1] - 1
    first, width = net.first[source], net.first[source + 1] - net.first[source]
    count = 0
    for j in range(width):
        if net.slopes[source, state.bits[first + j]] != 0.0:
            live[count] = j
            count += 1
    for i in range(begin, end):
        at = start + (i - begin) * width
        for c in range(count):
            j = live[c]
            w = net.weights[at + j] * net.slopes[source, state.bits[first + j]]
            for k in range(d + 1):
                forms[i, k] += w * forms[first + j, k]
            size[i] += abs(w) * size[first + j]


@kernel
def signs(net, state, unit):  # type: ignore[no-untyped-def]
    """Which signs the unit takes on the current cell: 1 minus, 2 plus, 3 both.

    With 3, ``state.values`` holds the scaled form at the witnesses of the cell.
    """
    at, scale, tolerance = state.at, state.scale[unit], state.tolerance[unit]
    d = len(state.row)
    if scale == 0.0:
        return 2 if state.forms[unit, d] > tolerance else 1
    g, values = state.row, state.values
    for k in range(d):
        g[k] = state.forms[unit, k] * scale
    c = state.forms[unit, d] * scale
    minus, plus = False, False
    base = at[POINTS_START]
    at[POINTS] = min(at[POINTS], len(values) - 2)  # room for one maximiser a side
    for p in range(at[POINTS]):
        value = c
        for k in range(d):
            value += g[k] * state.points[base + p, k]
        values[p] = value
        plus |= value > tolerance
        minus |= value < -tolerance
    at[NODES] += 1
    if not plus and not _excluded(state, unit, 1):
        plus = _reach(state, unit, 1, c, tolerance)
    if not minus and not _excluded(state, unit, 0):
        for k in range(d):
            g[k] = -g[k]
        minus = _reach(state, unit, 0, -c, tolerance)
        for k in range(d):
            g[k] = -g[k]
        if minus:
            values[at[POINTS] - 1] = -values[at[POINTS] - 1]
    if plus and minus:
        return 3
    if plus or minus:
        return 2 if plus else 1
    # The whole cell is within the tolerance of the hyperplane: a sliver, kept whole on the side
    # where its middle lies.
    return 2 if values[0] > 0.0 else 1


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
def _excluded(state, unit, side):  # type: ignore[no-untyped-def]
    """Whether a remembered clause rules the side out on the current cell."""
    for c in range(min(state.learned[unit, side], CLAUSES)):
        holds = True
        for k in range(state.clause_size[unit, side, c]):
            literal = state.clauses[unit, side, c, k]
            if state.bits[literal >> 1] != literal & 1:
                holds = False
                break
        if holds:
            return True
    return False


@inner
def _learn(state, unit, side):  # type: ignore[no-untyped-def]
    """Remember which walls the last proof of absence rests on: those with a multiplier."""
    slot = state.learned[unit, side] % CLAUSES
    state.learned[unit, side] += 1
    size = 0
    for k in range(len(state.row)):
        row = state.work.basis[k]
        if row >= 0 and state.row_bit[row] >= 0 and state.work.multipliers[k] > 0.0:
            state.clauses[unit, side, slot, size] = state.row_bit[row]
            size += 1
    state.clause_size[unit, side, slot] = size


@inner
def _reach(state, unit, side, c, tolerance):  # type: ignore[no-untyped-def]
    """Whether row.t + c exceeds the tolerance in the cell; the maximiser becomes a witness."""
    at = state.at
    status = maximize(
        state.row, state.rows, state.rhs, at[ROWS], state.lo, state.hi, tolerance - c, state.work
    )
    if status == FAILED:
        at[FAILURES] += 1
    if status == ABSENT:
        _learn(state, unit, side)
    if status != FOUND:
        return False
    slot = at[POINTS]
    at[POINTS] += 1
    value = c
    for k in range(len(state.row)):
        state.points[at[POINTS_START] + slot, k] = state.work.x[k]
        value += state.row[k] * state.work.x[k]
    state.values[slot] = value
    return True


@inner
def _set_bit(state, unit, bit):  # type: ignore[no-untyped-def]
    state.bits[unit] = bit
    mask = np.uint8(128 >> (unit & 7))
    if bit:
        state.packed[unit >> 3] |= mask
    else:
        state.packed[unit >> 3] &= np.uint8(255) ^ mask


@kernel
def descend(net, state, unit, code):  # type: ignore[no-untyped-def]
    """Decide the unit after `signs`; with code 3 push a frame and take the plus side."""
    if code != 3:
        _set_bit(state, unit, 1 if code == 2 else 0)
        return
    at = state.at
    frame = state.frames[at[FRAMES]]
    frame[0], frame[1] = unit, at[ROWS]
    frame[2], frame[3], frame[4] = at[POINTS_START], at[POINTS], 0
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


@kernel
def backtrack(net, state):  # type: ignore[no-untyped-def]
    """Take the other side of the last split; its unit, or -1 when none is left."""
    at = state.at
    if at[FRAMES] == 0:
        return -1
    at[FRAMES] -= 1
    frame = state.frames[at[FRAMES]]
    unit = frame[0]
    at[ROWS], at[POINTS_START], at[POINTS] = frame[1], frame[2], frame[3]
    d, scale = len(state.row), state.scale[unit]
    for p in range(at[POINTS]):
        value = state.forms[unit, d]
        for k in range(d):
            value += state.forms[unit, k] * state.points[at[POINTS_START] + p, k]
        state.values[p] = value * scale
    _take(state, unit, 0)
    return unit


@kernel
def interior_point(net, state, x):  # type: ignore[no-untyped-def]
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
    elif status == FAILED:
        state.at[FAILURES] += 1


@kernel
def run(net, state, patterns, points, maps):  # type: ignore[no-untyped-def]
    """Go on with the search until the buffers are full or the tree is done.

    Args:
        patterns: uint8 (capacity, bytes), filled with packed bits.
        points: (capacity, d), filled with interior points.
        maps: (capacity, outputs * (d + 1)), filled with output forms; capacity 0 skips them.

    Returns:
        how many leaves were written.
    """
    at = state.at
    units, layers = net.shape[2], net.shape[1]
    capacity, found = len(patterns), 0
    if at[STARTED] == 2:
        return 0
    unit = at[UNIT]
    while found < capacity:
        if at[STARTED]:
            unit = backtrack(net, state) + 1
            if unit == 0:
                at[STARTED] = 2
                break
        at[STARTED] = 1
        layer = layer_of(net.first, unit)
        while unit < units:
            if unit == net.first[layer]:
                start_layer(net, state, layer)
            descend(net, state, unit, signs(net, state, unit))
            unit += 1
            if unit == net.first[layer + 1]:
                layer += 1
        for b in range(patterns.shape[1]):
            patterns[found, b] = state.packed[b]
        interior_point(net, state, points[found])
        if len(maps):
            start_layer(net, state, layers)
            _write_map(net, state, maps[found])
        found += 1
    return found


@inner
def _write_map(net, state, out):  # type: ignore[no-untyped-def]
    units, d = net.shape[2], net.shape[0]
    for o in range(net.shape[3]):
        for k in range(d + 1):
            out[o * (d + 1) + k] = state.forms[units + o, k]


@kernel
def advance(net, state, stop):  # type: ignore[no-untyped-def]
    """Go on to the next node at depth ``stop`` (a number of decided units); False when done.

    The state then is the root of a subtree, ready to be copied by `subtree`.
    """
    at = state.at
    if at[STARTED] == 2:
        return False
    unit = at[UNIT]
    if at[STARTED]:
        unit = backtrack(net, state) + 1
        if unit == 0:
            at[STARTED] = 2
            return False
    at[STARTED] = 1
    layer = layer_of(net.first, unit)
    while unit < stop:
        if unit == net.first[layer]:
            start_layer(net, state, layer)
        descend(net, state, unit, signs(net, state, unit))
        unit += 1
        if unit == net.first[layer + 1]:
            layer += 1
    return True


def subtree(net: Packed, state: State, stop: int) -> State:
    """A search of its own below the node that `advance` reached."""
    m, start, count = (int(state.at[k]) for k in (ROWS, POINTS_START, POINTS))
    here = state.points[start : start + count]
    child = new_state(net, state.lo, state.hi, state.rows[:m], state.rhs[:m], here)
    for mine, theirs in (
        (child.bits, state.bits),
        (child.packed, state.packed),
        (child.forms, state.forms),
        (child.size, state.size),
        (child.scale, state.scale),
        (child.tolerance, state.tolerance),
    ):
        mine[...] = theirs
    child.row_bit[:m] = state.row_bit[:m]
    child.at[UNIT] = stop
    return child

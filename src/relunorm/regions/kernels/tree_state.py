"""The current cell of the sign tree: its arrays, parting with work, and signs of units; compiled.

The affine forms of a layer's units on the cell, and for one unit the answer: witnesses usually
show both signs at once, else clauses remembered from earlier proofs or one small linear programme
decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import copied, group
from relunorm.compiled.jit import inner, kernel_part
from relunorm.compiled.simplex import ABSENT, FAILED, FOUND, STOPPED, Workspace, maximize, workspace
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.regions.kernels.pack import ROUNDING, TOLERANCE, Packed
from relunorm.regions.kernels.pack import quiet as _quiet

quiet = inner(_quiet)

#: Below this a sum of squares has lost digits; what is itself below is taken for 0.
FAINT = 2.0**-960
#: Clauses remembered per unit and side.
CLAUSES = 16
#: Bytes of address space a search may take (far fewer are touched); beyond, it would never end.
MEMORY = 64 * 2**30

# Entries of State.at.
ROWS, POINTS_START, POINTS, FRAMES, STARTED, FAILURES, DEPTH, HIDDEN, CUT_OFF = range(9)


@group
class State(NamedTuple):
    """Where a search stands; see `tree`."""

    bits: NDArray[np.int8]
    packed: NDArray[np.uint8]  # the bits as np.packbits writes them
    forms: Array  # (units + outputs, d + 1)
    size: Array  # sum of |gradient|; what was added up if that is 0
    scale: Array  # 1 / |gradient|, 0 for a constant form
    tolerance: Array
    rows: Array
    rhs: Array
    lo: Array
    hi: Array
    points: Array  # the stack of witness sets
    values: Array  # a form's values at the current witnesses
    row: Array  # scratch: one scaled gradient
    frames: NDArray[np.int64]  # unit, rows, start and number of witnesses, depth of what is to do
    at: NDArray[np.int64]
    live: NDArray[np.int64]  # scratch: units with non-zero slope
    row_bit: NDArray[np.int64]  # what made a row: 2 * unit + bit, -1 for the domain
    clauses: NDArray[np.int64]  # (units, 2, CLAUSES, d): per side the bits that exclude it
    clause_size: NDArray[np.int64]  # (units, 2, CLAUSES)
    learned: NDArray[np.int64]  # (units, 2): clauses learned since the layer started
    quiet: Array  # how far rounding alone takes a scaled form past zero
    work: Workspace


def new_state(
    net: Packed,
    lo: Array,
    hi: Array,
    rows: Array,
    rhs: Array,
    witnesses: Array,
    stop: NDArray[np.uint8] | None = None,
) -> State:
    """A search at the root: the cell is the box ``lo .. hi`` cut by ``rows . t <= rhs``.

    Args:
        witnesses: shape (k, d), points of the cell; the first one strictly inside it.
        stop: of `Clock.watch`: ends the search wherever it is (`CUT_OFF`).
    """
    d, _, units, _ = (int(n) for n in net.shape)
    check_memory(d, units)
    keep = max(2 * d + 8, len(witnesses) + 2)  # witnesses kept per cell
    try:
        state = _empty_state(net, lo, hi, len(rhs), keep, stop)
    except MemoryError:
        raise _too_large(d, units) from None
    state.rows[: len(rhs)], state.rhs[: len(rhs)] = rows, rhs
    state.points[: len(witnesses)] = witnesses
    state.at[ROWS], state.at[POINTS] = len(rhs), len(witnesses)
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
    net: Packed, lo: Array, hi: Array, given: int, keep: int, stop: NDArray[np.uint8] | None
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
        np.zeros(total),
        workspace(d, stop),
    )


def split_off(state: State) -> State | None:
    """Part with what the search would come to last, as a search of its own; None: too little.

    That is the other side of the first split on the path. What the state holds about the layers
    up to that split is the same for both sides, so a copy can go on from there.
    """
    frames = int(state.at[FRAMES])
    if state.at[STARTED] != 1 or frames < 1:
        return None
    other = copied(state)
    other = other._replace(work=other.work._replace(stop=state.work.stop))  # one clock for all
    other.at[FRAMES] = 1
    other.at[FAILURES] = other.at[HIDDEN] = 0
    state.frames[: frames - 1] = state.frames[1:frames].copy()
    state.at[FRAMES] = frames - 1
    return other


@kernel_part
def layer_of(first, unit):  # type: ignore[no-untyped-def]
    """The layer a unit belongs to."""
    layer = 0
    while first[layer + 1] <= unit:
        layer += 1
    return layer


@kernel_part
def start_layer(net, state, layer):  # type: ignore[no-untyped-def]
    """The affine forms of a layer's units on the current cell, scaled gradients and tolerances.

    The rounding of a form follows from the absolute values of what was added up on this cell: the
    gradient's and, in ``quiet`` for the time being, the constant's. A gradient is off by the
    rounding of its own terms, however large the constant beside it. One that is nothing else makes
    the unit constant (its scale is 0), but stays in the form: it is what later layers read.
    """
    forms, size, constant = state.forms, state.size, state.quiet
    d = forms.shape[1] - 1
    begin, end = net.first[layer], net.first[layer + 1]
    for i in range(begin, end):
        for k in range(d):
            forms[i, k] = 0.0
        forms[i, d] = net.bias[i]
        size[i], constant[i] = 0.0, net.size0[i]
    for i in range(begin, min(end, len(state.bits))):
        state.learned[i, 0] = state.learned[i, 1] = 0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        if net.source[term] == 0:
            _add_input(net, state, begin, end, net.start[term])
        elif net.start[term] < 0:
            _add_sparse(net, state, begin, end, -net.start[term] - 1, net.source[term] - 1)
        else:
            _add_layer(net, state, begin, end, net.start[term], net.source[term] - 1)
    ulps = quiet(d)
    for i in range(begin, end):
        square, total = 0.0, 0.0
        for k in range(d):
            square += forms[i, k] * forms[i, k]
            total += abs(forms[i, k])
        whole = size[i] + constant[i]
        noise = ROUNDING * whole
        length = np.sqrt(square)
        if square < FAINT and total > FAINT:  # squares underflow before what they are of
            square = 0.0
            for k in range(d):
                square += (forms[i, k] / total) * (forms[i, k] / total)
            length = total * np.sqrt(square)
        if length <= ROUNDING * size[i]:
            state.scale[i], state.tolerance[i] = 0.0, noise
        else:
            state.scale[i] = 1.0 / length
            state.tolerance[i] = max(TOLERANCE, noise / length)
            state.quiet[i] = ulps * whole / length
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
    forms, size, live, constant = state.forms, state.size, state.live, state.quiet
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
            constant[i] += abs(w) * abs(forms[first + j, d])


@kernel_part  # not inlined: it would take registers from the dense loops
def _add_sparse(net, state, begin, end, at, source):  # type: ignore[no-untyped-def]
    """As `_add_layer`, with the entries of a sparse matrix (`pack.Packed`)."""
    forms, size, constant, index = state.forms, state.size, state.quiet, net.start
    d = forms.shape[1] - 1
    first, columns = net.first[source], index[at]
    for i in range(begin, end):
        for p in range(index[at + 1 + i - begin], index[at + 2 + i - begin]):
            j = first + index[columns + p]
            w = net.weights[p] * net.slopes[source, state.bits[j]]
            if w != 0.0:
                for k in range(forms.shape[1]):
                    forms[i, k] += w * forms[j, k]
                size[i] += abs(w) * size[j]
                constant[i] += abs(w) * abs(forms[j, d])


@kernel_part
def signs(net, state, unit):  # type: ignore[no-untyped-def]
    """Which signs the unit takes on the current cell: 1 minus, 2 plus, 3 both, 0 not known.

    0 only when the time was up (``state.at[CUT_OFF]``); the state is then of no further use.

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
    for side in range(1, -1, -1):
        if (plus if side else minus) or _excluded(state, unit, side):
            continue
        reached = _reach(state, unit, side, c, tolerance)
        plus, minus = plus or (reached and side == 1), minus or (reached and side == 0)
    if at[CUT_OFF]:
        return 0
    if plus and minus:
        return 3
    if plus or minus:
        return 2 if plus else 1
    # The whole cell is within the tolerance of the hyperplane: a sliver, kept whole on the side
    # where its middle lies.
    return 2 if values[0] > 0.0 else 1


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
    """Whether row.t + c takes this side's sign in the cell; a point that shows it is a witness."""
    at, row, sign = state.at, state.row, 1.0 if side else -1.0
    d = len(row)
    for k in range(d):
        row[k] *= sign
    stop = tolerance - sign * c
    status = maximize(row, state.rows, state.rhs, at[ROWS], state.lo, state.hi, stop, state.work)
    top = sign * c  # the bound the programme ended with
    for k in range(d):
        top += row[k] * state.work.x[k]
        row[k] *= sign
    if status == STOPPED:
        at[CUT_OFF] = 1
        return False
    if status == FAILED:
        at[FAILURES] += 1
    if status == ABSENT:
        _learn(state, unit, side)
    if status != FOUND and top > state.quiet[unit]:
        at[HIDDEN] += 1
    if status != FOUND:
        return False
    slot = at[POINTS]
    at[POINTS] += 1
    value = c
    for k in range(d):
        state.points[at[POINTS_START] + slot, k] = state.work.x[k]
        value += row[k] * state.work.x[k]
    state.values[slot] = value
    return True

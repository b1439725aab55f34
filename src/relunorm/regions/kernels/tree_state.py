"""The state of a depth-first search of the sign tree: its arrays, and parting with work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import group
from relunorm.compiled.simplex import Workspace, workspace
from relunorm.errors import InvalidInputError
from relunorm.regions.kernels.pack import Packed

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
    forms: NDArray[np.float64]  # (units + outputs, d + 1)
    size: NDArray[np.float64]  # sum of |gradient|; what was added up if that is 0
    scale: NDArray[np.float64]  # 1 / |gradient|, 0 for a constant form
    tolerance: NDArray[np.float64]
    rows: NDArray[np.float64]
    rhs: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    points: NDArray[np.float64]  # the stack of witness sets
    values: NDArray[np.float64]  # a form's values at the current witnesses
    row: NDArray[np.float64]  # scratch: one scaled gradient
    frames: NDArray[np.int64]  # unit, rows, start and number of witnesses, depth of what is to do
    at: NDArray[np.int64]
    live: NDArray[np.int64]  # scratch: units with non-zero slope
    row_bit: NDArray[np.int64]  # what made a row: 2 * unit + bit, -1 for the domain
    clauses: NDArray[np.int64]  # (units, 2, CLAUSES, d): per side the bits that exclude it
    clause_size: NDArray[np.int64]  # (units, 2, CLAUSES)
    learned: NDArray[np.int64]  # (units, 2): clauses learned since the layer started
    quiet: NDArray[np.float64]  # how far rounding alone takes a scaled form past zero
    work: Workspace


def new_state(
    net: Packed,
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    rows: NDArray[np.float64],
    rhs: NDArray[np.float64],
    witnesses: NDArray[np.float64],
    stop: NDArray[np.uint8] | None = None,
) -> State:
    """A search at the root: the cell is the box ``lo .. hi`` cut by ``rows . t <= rhs``.

    Args:
        witnesses: shape (k, d), points of the cell; the first one strictly inside it.
        stop: of `Clock.watch`: ends the search wherever it is (`is_cut_off`).
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
    net: Packed,
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    given: int,
    keep: int,
    stop: NDArray[np.uint8] | None,
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


def give(state: State) -> State | None:
    """Part with what the search would come to last, as a search of its own; None: too little.

    That is the other side of the first split on the path. What the state holds about the layers
    up to that split is the same for both sides, so a copy can go on from there.
    """
    frames = int(state.at[FRAMES])
    if state.at[STARTED] != 1 or frames < 1:
        return None
    stop = state.work.stop  # one clock for all
    work = Workspace._make((*(array.copy() for array in state.work[:-1]), stop))
    other = State._make((*(array.copy() for array in state[:-1]), work))
    other.at[FRAMES] = 1
    other.at[FAILURES] = other.at[HIDDEN] = 0
    state.frames[: frames - 1] = state.frames[1:frames].copy()
    state.at[FRAMES] = frames - 1
    return other


def is_done(state: State) -> bool:
    """Whether every leaf has been found."""
    if is_cut_off(state):
        return False
    return bool(state.at[STARTED] == 2 or (state.at[STARTED] == 1 and state.at[FRAMES] == 0))


def is_cut_off(state: State) -> bool:
    """Whether the time was up on the way to a leaf: that leaf is lost, and so is the state."""
    return bool(state.at[CUT_OFF])


def remaining(state: State) -> float:
    """The share of the whole tree still to be searched, every split counted as halves."""
    if state.at[STARTED] == 0:
        return 1.0
    return float((0.5 ** state.frames[: int(state.at[FRAMES]), 4]).sum())


def failures(state: State) -> int:
    """Linear programmes that did not converge."""
    return int(state.at[FAILURES])


def hidden(state: State) -> int:
    """How often a side of a unit was left out that a cell reaches by less than the tolerance."""
    return int(state.at[HIDDEN])

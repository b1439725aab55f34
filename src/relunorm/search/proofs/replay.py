"""Replaying a search: the same nodes, bounded once each with the numbers on the tape.

Nothing is searched and nothing is solved: a node's bound is a sum of products with the error of
its rounding added (`relunorm.bounds`), every goal group of the root must be closed in every part
that the cuts leave, and both halves of a cut must be there unless a half is shown to be empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.nodes.child import ON_INPUT, ON_UNIT
from relunorm.bounds.nodes.form import Form, triangular
from relunorm.bounds.nodes.kernel import compiled, part
from relunorm.bounds.nodes.node import bound_of, node_size, parts
from relunorm.bounds.nodes.tighten import tighten
from relunorm.domain import Box
from relunorm.domain.reach import reach_of
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.search.chunk import Space
from relunorm.search.folding import Folded, Start, proved_goals
from relunorm.search.halves import half, move_down, push, straightened, topmost
from relunorm.search.proofs.entries import HEAD, load, size
from relunorm.search.proofs.tape import CLOSED, CUT, FOLDED, TIGHTENED, VERSION, BrokenTape
from relunorm.search.root import first_node, whole_node

#: What `_walk` says.
HOLDS, FAILS, NO_ROOM = 0, 1, 2

#: Why a replay fails.
REASONS = (
    "",
    "a part is neither closed nor cut",
    "a half that the proof calls empty is not",
    "a half is missing",
    "a unit is cut that is not open there",
    "a coordinate is cut outside its side",
    "a closed group has numbers that are not allowed",
    "a bound is not below what the proof claims",
    "units are bounded for a goal that does not stand alone, or above what the proof claims",
)


@dataclass(frozen=True)
class Replayed:
    """What a replay found: whether it went through, the largest bound, and why not."""

    holds: bool
    upper: float
    nodes: int
    reason: str


@dataclass(frozen=True)
class Record:
    """The tape, sorted: cuts by the number of their node, tightened nodes and closed groups too."""

    cut_number: Array
    cuts: Array  # name, value, left, right
    tight_number: Array
    tight: Array  # the cut-off, and the first and last goal row that reach it
    closed_number: Array
    closed_at: NDArray[np.int64]
    tape: Array


def record(pieces: Iterable[Array]) -> Record:
    """Read a tape once, checking its shape."""
    tape = np.concatenate([np.zeros(0), *pieces])
    if not len(tape) or tape[0] != VERSION:
        found = f"is of version {tape[0]:g}" if len(tape) else "has no version"
        raise BrokenTape(f"it {found}, and only {VERSION:g} is read here; make the proof again")
    if not np.isfinite(tape).all():
        raise BrokenTape("it holds NaN or infinite entries")
    found = _entries(tape)
    if found is None:
        raise BrokenTape("an entry is cut short or has an unknown mark")
    cuts, tight, closed = found
    numbers = tape[closed + 1] if len(closed) else np.zeros(0)
    order = np.argsort(numbers, kind="stable")
    return Record(
        *_table(tape, cuts, "a part is cut twice"),
        *_table(tape, tight, "a part is tightened twice"),
        numbers[order],
        closed[order],
        tape,
    )


def _table(tape: Array, at: NDArray[np.int64], twice: str) -> tuple[Array, Array]:
    """Entries that are a head alone by the number of their node, and the four behind it."""
    table = np.array([tape[i + 1 : i + HEAD] for i in at]).reshape(-1, HEAD - 1)
    table = table[np.argsort(table[:, 0], kind="stable")]
    if (np.diff(table[:, 0]) == 0).any():
        raise BrokenTape(twice)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1:])


def _entries(tape: Array) -> tuple[NDArray[np.int64], ...] | None:
    """Where cuts, tightened nodes and closed groups begin; None for what no search writes."""
    at = 1
    found: dict[float, list[int]] = {CUT: [], TIGHTENED: [], CLOSED: []}
    while at < len(tape):
        mark = CLOSED if tape[at] == FOLDED else float(tape[at])
        if mark not in found or at + HEAD > len(tape):
            return None
        found[mark].append(at)
        counts = [int(v) for v in tape[at + 3 : at + HEAD]] if mark == CLOSED else []
        if min(counts, default=0) < 0:
            return None
        at += size(*counts) if counts else HEAD
        if at > len(tape):
            return None
    return tuple(np.array(places, dtype=np.int64) for places in found.values())


def replay(
    form: Form,
    steps: int,
    pieces: Iterable[Array],
    limit: float,
    strict: bool,
    start: Start | None = None,
) -> Replayed:
    """Walk through the tree on the tape.

    Args:
        steps: descent steps of the root's units, as the search took them.
        limit: what every bound has to stay below (``strict``) or at.
        start: what the search was given, if anything.
    """
    found = record(pieces)
    task, whole = first_node(form, whole_node(form, start), 0, -np.inf, steps)
    if task is None:
        return Replayed(True, -np.inf, 0, "")
    space = Space(form, whole.units)
    result, never = np.zeros(3), np.zeros(1, np.uint8)
    result[0] = -np.inf
    while True:
        space.begin(task)
        why = _walk(
            form.ball, form.firsts, space.arena, space.stack, 1, found.cut_number, found.cuts,
            found.tight_number, found.tight, found.closed_number, found.closed_at, found.tape,
            limit, strict, space.memory, never, result,
        )  # fmt: skip
        if why != NO_ROOM:
            break
        space.grow()
        result[:] = -np.inf, 0, 0
    return Replayed(why == HOLDS, float(result[0]), int(result[1]), REASONS[int(result[2])])


def replay_whole(folded: Folded, pieces: Iterable[Array], limit: float, strict: bool) -> Replayed:
    """The same where nothing was cut: every group is bounded on the whole domain."""
    found = record(pieces)
    upper = proved_goals(folded, found.tape, found.closed_at)
    holds = upper < limit or (upper == limit and not strict)
    return Replayed(holds, upper, 1, "" if holds else REASONS[7])


def warm_up() -> None:
    """Compile or load the kernels, on one unit."""
    tiny = Network.from_weights([[[1.0]], [[1.0]]])
    goal = (-np.eye(1), np.zeros(1))
    replay(triangular(tiny, reach_of(Box.cube(1)), [goal]), 0, [np.array([VERSION])], 0.0, True)


@part
def _find(sorted_numbers, number):  # type: ignore[no-untyped-def]
    """The first place of a number, or -1."""
    at, end = 0, len(sorted_numbers)
    while at < end:
        middle = (at + end) // 2
        if sorted_numbers[middle] < number:
            at = middle + 1
        else:
            end = middle
    if at < len(sorted_numbers) and sorted_numbers[at] == number:
        return at
    return -1


@part
def _alone(node, firsts, first, last):  # type: ignore[no-untyped-def]
    """Whether goal rows first to last are those of a group, and every other one is closed."""
    found = False
    for q in range(len(firsts) - 1):
        if firsts[q] == first and firsts[q + 1] == last:
            found = True
        elif node.bound[q] > -np.inf:
            return False
    return found


@compiled
def _walk(  # type: ignore[no-untyped-def]
    ball, firsts, arena, stack, count, cut_number, cuts, tight_number, tight, closed_number,
    closed_at, tape, limit, strict, memory, never, result,
):  # fmt: skip
    """Every part is closed or cut. result: the largest bound, nodes, the number of the reason."""
    work = memory.work
    x = work.x
    groups = len(firsts) - 1
    goals = firsts[groups]
    d = len(x)
    while count > 0:
        top = count - 1
        n, known, at, _, number = topmost(stack, top)
        node = parts(memory.node, arena, at, n, known, d, goals, groups)
        result[1] += 1.0
        here = _find(tight_number, float(number))
        if here >= 0:
            cut, first, last = tight[here, 0], int(tight[here, 1]), int(tight[here, 2])
            if last > first and not (_alone(node, firsts, first, last) and cut <= limit):
                result[2] = 8.0
                return FAILS
            if last > first:
                result[0] = max(result[0], cut)
            last, tried = max(first, last), int(tight[here, 3])
            changed, _ = tighten(node, ball, d, n, known, first, last, cut, tried, never, memory)
            if changed < 0:
                count = top
                continue
        here = _find(closed_number, float(number))
        while here >= 0 and here < len(closed_number) and closed_number[here] == number:
            entry = closed_at[here]
            here += 1
            q = int(tape[entry + 2])
            if q < 0 or q >= groups or tape[entry + 2] != q:
                result[2] = 6.0
                return FAILS
            m, kept, part = n, known, node
            if tape[entry] == FOLDED:
                begin = at + node_size(n, known, d, goals, groups)
                m, kept = straightened(arena, begin, node, ball, d, n, known, firsts, memory)
                if m == -2:
                    return NO_ROOM
                if m == -1:
                    node.bound[q] = -np.inf  # nothing is feasible
                    continue
                part = parts(memory.half, arena, begin, m, kept, d, goals, groups)
            if not load(tape, entry, part, m, kept, firsts[q], firsts[q + 1], q):
                result[2] = 6.0
                return FAILS
            first, last = firsts[q], firsts[q + 1]
            value = bound_of(part, ball, d, m, kept, first, last, q, work, x)
            if not (value < limit or (value == limit and not strict)):
                result[2] = 7.0
                result[0] = value
                return FAILS
            result[0] = max(result[0], value)
            node.bound[q] = -np.inf
        left = 0
        for q in range(groups):
            if node.bound[q] > -np.inf:
                left += 1
        if left == 0:
            count = top
            continue
        here = _find(cut_number, float(number))
        if here < 0:
            begin = at + node_size(n, known, d, goals, groups)
            m, kept = straightened(arena, begin, node, ball, d, n, known, firsts, memory)
            if m == -2:
                return NO_ROOM
            if m == -1:
                count = top  # nothing is feasible
                continue
            result[2] = 1.0
            return FAILS
        name, value = cuts[here, 0], cuts[here, 1]
        kind, index = ON_UNIT, -1
        if name < 0.0:
            kind, index = ON_INPUT, int(-1.0 - name)
            if index >= d or not (node.lo[index] <= value <= node.hi[index]):
                result[2] = 5.0
                return FAILS
        else:
            for j in range(n):
                if node.units[j] == name:
                    index = j
        if index < 0:
            result[2] = 4.0
            return FAILS
        begin = at + node_size(n, known, d, goals, groups)
        where, fresh = begin, 0
        for side in range(2):
            m, kept = half(
                arena, where, node, ball, d, n, known, firsts, kind, index, value, side, memory
            )
            if m == -2 or top + 3 >= len(stack):
                return NO_ROOM
            if m < 0:
                continue
            if cuts[here, 2 + side] < 0.0:
                result[2] = 2.0
                return FAILS
            fresh += 1
            push(stack, top + fresh, m, kept, where, 0, int(cuts[here, 2 + side]))
            where += node_size(m, kept, d, goals, groups)
        count = move_down(arena, stack, top, fresh, begin, where)
    return HOLDS

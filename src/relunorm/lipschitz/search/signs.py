"""Branch and bound over signs of units, compiled: the kernel of `slopes`, which says what it does.

The kernel comes back to Python where it is full, where it has a point that may be better, and where
a side of a unit is only touched. It goes on where it was: the node on top has a stage. In the first
ones linear programmes over the cell of a node decide signs: how far units reach on it.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.simplex import ABSENT, EMPTY, FEASIBLE, FOUND, STOPPED, pivot_row, violated
from relunorm.lipschitz.search.cells import (
    COUNT,
    CUTS,
    EXACT,
    FORMS,
    LOW,
    NOTHING,
    OUTPUT,
    REACH,
    SHUT,
    SPLIT,
    WALLS,
    aim,
    decide,
    dual_bound,
    keep,
    put,
    put_multipliers,
    put_sign,
    steepness,
    walls,
)
from relunorm.lipschitz.search.programmes import (
    beyond,
    cut_off,
    divide,
    middle,
    over_cell,
    reach_of,
    remember,
)
from relunorm.lipschitz.search.splits import halve, is_low, split

#: How far beyond a kink, in half-widths of the box, a cell must reach to enter the other side.
INSIDE = 1e-9
#: Bounds of a unit are taken over when they are narrower by this share.
NARROWER = 0.1
#: Numbers of the tape, which has single precision, are at most this.
LARGEST = 3e38

# What a run of the search ended with.
DONE, IMPROVED, ASK, FULL, CUT_OFF, CLOSED, ON = range(7)
# Entries of the record: the best slope, what is added to it, the bound of cells that stay open, how
# far the node on top has come, where in that stage, corners added up, unit and side asked about,
# whether a side may be empty, whether regions that floats can enter do not count.
BEST, SLACK, FLOOR, STAGE, RESUME, CORNERS, UNIT, SIDE, DOUBT, LISTED = range(10)
# Stages of a node.
START, REACHING, DEEPER, SPLITTING, LEAF, LEFT = range(6)


@kernel
def explore(net, nodes, place, record, point, signs, gains, tape, used, room):  # type: ignore[no-untyped-def]
    """Search on: DONE, IMPROVED (maybe, at ``point``), ASK, FULL or CUT_OFF."""
    whole = nodes.whole
    while whole[COUNT] > 0:
        if nodes.work.stop[0]:
            return CUT_OFF
        top = whole[COUNT] - 1
        bits = nodes.bits[top]
        limit = max(record[BEST] + record[SLACK], record[FLOOR])
        code = ON
        if record[STAGE] == START:
            if used[0] + room > len(tape):
                return FULL
            code = _begin(net, nodes, place, record, limit, tape, used)
        if code == ON and record[STAGE] == REACHING:
            code = reaches(net, nodes, place, record, tape, used)
        if code == ON and record[STAGE] == DEEPER:
            code = deeper(net, nodes, place, record, tape, used)
        if code == ON and record[STAGE] == SPLITTING:
            value = slope_at(net, nodes, place, nodes.goal[1], signs)
            improved = value > record[BEST]
            if improved:
                _copy(nodes.goal[1], point)
            unit = split(net, nodes, bits, place, gains, limit, tape, used)
            keep(nodes, top, steepness(net, bits, nodes, place))
            if unit == -1 or nodes.kept[top] <= limit:
                code = shut(nodes, tape, used)
            elif unit >= 0 and _is_low(net, nodes, bits, place, limit, tape, used):
                code = CLOSED
            elif unit >= 0:
                first = 1 if gains[1, unit] >= gains[0, unit] else 0
                put_sign(tape, used, SPLIT, unit, first)
                halve(net, nodes, place, unit, first)
                divide(nodes, unit, first)
                record[STAGE] = START
            elif unit == -3:
                record[STAGE] = START
            else:
                record[STAGE], record[RESUME], record[CORNERS] = LEAF, -1.0, 0.0
                record[DOUBT] = 0.0
            if improved:
                record[STAGE] = START if code == CLOSED else record[STAGE]
                return IMPROVED
        if code == ON and record[STAGE] == LEAF:
            code = _enter(net, nodes, place, record, tape, used)
            if code == ON:
                record[STAGE] = LEFT
                value = slope_at(net, nodes, place, nodes.goal[1], signs)
                if value > record[BEST]:
                    _copy(nodes.goal[1], point)
                    return IMPROVED
        if code == ON and record[STAGE] == LEFT:
            # a region that is as steep as the best seen, or one that nobody can enter
            if nodes.kept[top] > limit and (record[DOUBT] or not record[LISTED]):
                record[FLOOR] = nodes.kept[top]
            code = shut(nodes, tape, used)
        if code == CLOSED:
            record[STAGE] = START
        elif code != ON:
            return code
    return DONE


@kernel_part
def _copy(source, target):  # type: ignore[no-untyped-def]
    for k in range(len(target)):
        target[k] = source[k]


@kernel_part
def shut(nodes, tape, used):  # type: ignore[no-untyped-def]
    """Close the top node by its bound."""
    put(tape, used, SHUT)
    nodes.whole[COUNT] -= 1
    return CLOSED


@kernel_part
def _is_low(net, nodes, bits, place, limit, tape, used):  # type: ignore[no-untyped-def]
    """Close the top node where bounds on a derivative alone do."""
    below = np.float64(np.float32(limit - 1e-7 * abs(limit)))  # as on the tape
    if not -LARGEST <= below <= min(limit, LARGEST):  # beyond single precision, either way
        return False
    if place.goal[OUTPUT] < 0.0 or not is_low(net, nodes, bits, place, below):
        return False
    put(tape, used, LOW)
    put(tape, used, below)
    nodes.whole[COUNT] -= 1
    return True


@kernel_part
def _begin(net, nodes, place, record, limit, tape, used):  # type: ignore[no-untyped-def]
    top = nodes.whole[COUNT] - 1
    if nodes.kept[top] <= limit:
        return shut(nodes, tape, used)
    if not form(net, nodes, place, tape, used):
        return CLOSED
    keep(nodes, top, steepness(net, nodes.bits[top], nodes, place))
    if nodes.kept[top] <= limit:
        return shut(nodes, tape, used)
    cut_off(nodes, place)
    record[STAGE], record[RESUME] = REACHING, 0.0
    return ON


@kernel_part
def slope_at(net, nodes, place, t, signs):  # type: ignore[no-untyped-def]
    """The slope at a point, as computed; NaN where a unit is at its kink."""
    d, z = net.shape[0], nodes.memory[0]
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            at, row = net.bias[i], i - net.first[q]
            for term in range(net.term_ptr[q], net.term_ptr[q + 1]):
                source = net.source[term]
                if source == 0:
                    for k in range(d):
                        at += net.weights[net.start[term] + row * d + k] * t[k]
                    continue
                offset = net.first[source - 1]
                width = net.first[source] - offset
                for j in range(offset, offset + width):
                    at += net.weights[net.start[term] + row * width + j - offset] * z[j]
            if abs(at) <= 2.0 * place.margin * nodes.size[i]:
                return np.nan
            signs[i] = 1 if at > 0.0 else 0
            z[i] = net.slopes[q, signs[i]] * at
    exact = nodes.whole[EXACT]
    nodes.whole[EXACT] = -1
    value = steepness(net, signs, nodes, place)
    nodes.whole[EXACT] = exact
    return value


@kernel_part
def _enter(net, nodes, place, record, tape, used):  # type: ignore[no-untyped-def]
    """A point inside the cell, all signs decided, in goal[1]; ASK for a side that may be empty."""
    d, goal, mean, work = net.shape[0], nodes.goal[0], nodes.goal[1], nodes.work
    if record[RESUME] < 0.0:
        if not form(net, nodes, place, tape, used):
            return CLOSED
        record[RESUME] = place.given
        for k in range(d):
            mean[k] = 0.0
    m, bits = nodes.whole[WALLS], nodes.bits[nodes.whole[COUNT] - 1]
    for at in range(int(record[RESUME]), m + 2 * d):
        record[RESUME] = at
        for k in range(d):  # away from a wall, then along the axes
            goal[k] = -nodes.rows[at, k] if at < m else 0.0
        if at >= m:
            goal[(at - m) // 2] = 1.0 if (at - m) % 2 else -1.0
        status = over_cell(nodes, place)
        if status == STOPPED:
            return CUT_OFF
        if status == EMPTY and prove_empty(nodes, place, tape, used):
            return CLOSED
        if status != FOUND:
            continue
        room = nodes.rhs[at] if at < m else np.inf
        for k in range(d):
            room += goal[k] * work.x[k]
            mean[k] += work.x[k]
        record[CORNERS] += 1.0
        if room <= INSIDE:
            record[UNIT], record[SIDE] = nodes.owner[at], bits[nodes.owner[at]]
            return ASK
    if record[CORNERS] > 0.0:
        for k in range(d):
            mean[k] /= record[CORNERS]
    return ON


@kernel_part
def reaches(net, nodes, place, record, tape, used):  # type: ignore[no-untyped-def]
    """How far the units of the first open layer reach on the cell; a point of it in goal[1]."""
    d, q, top = net.shape[0], nodes.whole[EXACT], nodes.whole[COUNT] - 1
    bits, low, high = nodes.bits[top], nodes.low[top], nodes.high[top]
    goal, work = nodes.goal[0], nodes.work
    begin = net.first[q] if q < net.shape[1] else 0
    units = net.first[q + 1] - begin if q < net.shape[1] else 0
    for at in range(int(record[RESUME]), 2 * units):
        i, side = begin + at // 2, at % 2
        if bits[i] >= 0:
            continue
        constant = aim(net, nodes, i, side)
        square, off = 0.0, place.margin * nodes.size[i]
        for k in range(d):
            square += goal[k] * goal[k]
        least = INSIDE * np.sqrt(square) + 4.0 * off
        old = high[i] if side else -low[i]
        worth = old - NARROWER * (high[i] - low[i])
        if beyond(nodes, max(least, worth) - constant):
            continue  # a corner shows that a programme would not help
        status = reach_of(nodes, place, i, side, -np.inf)
        record[RESUME] = at
        if status == STOPPED:
            return CUT_OFF
        if status == EMPTY and prove_empty(nodes, place, tape, used):
            return CLOSED
        if status != FOUND:
            continue
        reach = constant
        for k in range(d):
            reach += goal[k] * work.x[k]
        remember(nodes)
        count = _multipliers(nodes)
        value = dual_bound(nodes, place, constant + off, count)
        if value <= 0.0 or value < worth:
            put_sign(tape, used, REACH, i, side)
            put_multipliers(nodes, tape, used, count)
            tighten(bits, low, high, i, side, value)
        if bits[i] < 0 and reach <= least:
            record[UNIT], record[SIDE] = i, side
            return ASK
    if nodes.found[top] == 0:
        for k in range(d):
            goal[k] = 0.0
        status = over_cell(nodes, place)
        if status == STOPPED:
            return CUT_OFF
        if status == EMPTY and prove_empty(nodes, place, tape, used):
            return CLOSED
        remember(nodes)
    middle(nodes)
    record[STAGE], record[RESUME] = DEEPER, 0.0
    return ON


@kernel_part
def deeper(net, nodes, place, record, tape, used):  # type: ignore[no-untyped-def]
    """Decide signs of later layers that the cell leaves no choice."""
    d, q = net.shape[0], nodes.whole[EXACT]
    top = nodes.whole[COUNT] - 1
    bits, low, high = nodes.bits[top], nodes.low[top], nodes.high[top]
    goal, mean = nodes.goal[0], nodes.goal[1]
    record[STAGE] = SPLITTING
    if q + 1 >= net.shape[1]:
        return ON
    if not form(net, nodes, place, tape, used):
        return CLOSED
    cut_off(nodes, place)
    for i in range(net.first[q + 1], net.shape[2]):
        for side in range(2):
            if bits[i] >= 0:
                break
            constant = aim(net, nodes, i, side) + place.margin * nodes.size[i]
            here = constant
            for k in range(d):
                here += goal[k] * mean[k]
            if here > 0.0 or beyond(nodes, -constant):
                continue
            stop = -constant - 1e-12 * nodes.size[i]
            status = reach_of(nodes, place, i, side, stop)
            if status == STOPPED:
                return CUT_OFF
            if status == EMPTY and prove_empty(nodes, place, tape, used):
                return CLOSED
            if status == FOUND:
                remember(nodes)
            if status == ABSENT:
                count = _multipliers(nodes)
                value = dual_bound(nodes, place, constant, count)
                if value <= 0.0:
                    put_sign(tape, used, REACH, i, side)
                    put_multipliers(nodes, tape, used, count)
                    tighten(bits, low, high, i, side, value)
    return ON


@kernel_part
def tighten(bits, low, high, i, side, value):  # type: ignore[no-untyped-def]
    """Take over a bound of a unit (side 1) or of its negative."""
    if side:
        high[i] = min(high[i], value)
    else:
        low[i] = max(low[i], -value)
    decide(bits, low, high, i)


@kernel_part
def form(net, nodes, place, tape, used):  # type: ignore[no-untyped-def]
    """Forms and walls of the top node; False where it is empty, and off the stack."""
    put(tape, used, FORMS)
    if walls(net, nodes, place):
        return True
    nodes.whole[COUNT] -= 1
    return False


@kernel_part
def _multipliers(nodes):  # type: ignore[no-untyped-def]
    """Walls with multipliers after a programme."""
    count = 0
    for j in range(len(nodes.work.basis)):
        if 0 <= nodes.work.basis[j] < nodes.whole[WALLS] and nodes.work.multipliers[j] > 0.0:
            nodes.picks[count] = nodes.work.basis[j]
            weight = min(nodes.work.multipliers[j], LARGEST)
            nodes.weights[count] = np.float32(weight)  # as on the tape
            count += 1
    return count


@kernel_part
def prove_empty(nodes, place, tape, used):  # type: ignore[no-untyped-def]
    """Whether walls contradict each other for certain, after a programme said so."""
    work, m = nodes.work, nodes.whole[WALLS]
    row, _ = violated(
        nodes.rows, nodes.rhs, m + nodes.whole[CUTS], place.lo, place.hi, work.x, FEASIBLE, False
    )
    pivot_row(nodes.rows, row, work.inverse, work.pivot_row)
    count = 0
    if 0 <= row < m:
        nodes.picks[0], nodes.weights[0], count = row, 1.0, 1
    for j in range(len(work.basis)):
        if 0 <= work.basis[j] < m and work.pivot_row[j] < 0.0 and count < len(nodes.picks):
            nodes.picks[count] = work.basis[j]
            nodes.weights[count] = np.float32(min(-work.pivot_row[j], LARGEST))
            count += 1
    for k in range(len(place.lo)):
        nodes.goal[0, k] = 0.0
    if not dual_bound(nodes, place, 0.0, count) < 0.0:
        return False
    put(tape, used, NOTHING)
    put_multipliers(nodes, tape, used, count)
    nodes.whole[COUNT] -= 1
    return True

"""Branch and bound over signs of units, compiled: the kernel of `slopes`, which says what it does.

The kernel comes back to Python where it is full, where it has a point that may be better, and where
a side of a unit is only touched. It goes on where it was: the node on top has a stage.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.simplex import EMPTY, FOUND, STOPPED
from relunorm.lipschitz.search.cells import COUNT, EXACT, OUTPUT, WALLS, keep, steepness
from relunorm.lipschitz.search.corners import cut_off, divide
from relunorm.lipschitz.search.lookahead import is_low
from relunorm.lipschitz.search.marks import (
    ASK,
    BEST,
    CLOSED,
    CORNERS,
    CUT_OFF,
    DEEPER,
    DONE,
    DOUBT,
    FLOOR,
    FULL,
    IMPROVED,
    LEAF,
    LEFT,
    LISTED,
    LOW,
    ON,
    REACHING,
    RESUME,
    SHUT,
    SIDE,
    SLACK,
    SPLIT,
    SPLITTING,
    STAGE,
    START,
    UNIT,
    put,
    put_sign,
)
from relunorm.lipschitz.search.programmes import over_cell
from relunorm.lipschitz.search.reaches import INSIDE, contradict, deeper, form, reaches
from relunorm.lipschitz.search.splits import halve, split


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
        if status == EMPTY and contradict(nodes, place, tape, used):
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

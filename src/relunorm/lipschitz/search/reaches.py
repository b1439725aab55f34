"""What linear programmes over its cell decide of a node, compiled: how far units reach on it."""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel_part
from relunorm.compiled.simplex import ABSENT, EMPTY, FEASIBLE, FOUND, STOPPED, pivot_row, violated
from relunorm.lipschitz.search.cells import (
    COUNT,
    CUTS,
    EXACT,
    WALLS,
    aim,
    decide,
    dual_bound,
    walls,
)
from relunorm.lipschitz.search.corners import beyond, cut_off, middle, remember
from relunorm.lipschitz.search.marks import (
    ASK,
    CLOSED,
    CUT_OFF,
    DEEPER,
    FORMS,
    NOTHING,
    ON,
    REACH,
    RESUME,
    SIDE,
    SPLITTING,
    STAGE,
    UNIT,
    put,
    put_multipliers,
    put_sign,
)
from relunorm.lipschitz.search.programmes import over_cell, reach_of

#: How far beyond a kink, in half-widths of the box, a cell must reach to enter the other side.
INSIDE = 1e-9
#: Bounds of a unit are taken over when they are narrower by this share.
NARROWER = 0.1


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
        if status == EMPTY and contradict(nodes, place, tape, used):
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
            narrow(bits, low, high, i, side, value)
        if bits[i] < 0 and reach <= least:
            record[UNIT], record[SIDE] = i, side
            return ASK
    if nodes.found[top] == 0:
        for k in range(d):
            goal[k] = 0.0
        status = over_cell(nodes, place)
        if status == STOPPED:
            return CUT_OFF
        if status == EMPTY and contradict(nodes, place, tape, used):
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
            if status == EMPTY and contradict(nodes, place, tape, used):
                return CLOSED
            if status == FOUND:
                remember(nodes)
            if status == ABSENT:
                count = _multipliers(nodes)
                value = dual_bound(nodes, place, constant, count)
                if value <= 0.0:
                    put_sign(tape, used, REACH, i, side)
                    put_multipliers(nodes, tape, used, count)
                    narrow(bits, low, high, i, side, value)
    return ON


@kernel_part
def narrow(bits, low, high, i, side, value):  # type: ignore[no-untyped-def]
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
            nodes.weights[count] = np.float32(nodes.work.multipliers[j])  # as on the tape
            count += 1
    return count


@kernel_part
def contradict(nodes, place, tape, used):  # type: ignore[no-untyped-def]
    """Whether walls contradict each other for certain, after a programme said so."""
    work, m = nodes.work, nodes.whole[WALLS]
    row, _ = violated(
        nodes.rows,
        nodes.rhs,
        m + nodes.whole[CUTS],
        place.lo,
        place.hi,
        work.x,
        FEASIBLE,
        np.bool_(False),
    )
    pivot_row(nodes.rows, row, work.inverse, work.pivot_row)
    count = 0
    if 0 <= row < m:
        nodes.picks[0], nodes.weights[0], count = row, 1.0, 1
    for j in range(len(work.basis)):
        if 0 <= work.basis[j] < m and work.pivot_row[j] < 0.0 and count < len(nodes.picks):
            nodes.picks[count] = work.basis[j]
            nodes.weights[count] = np.float32(-work.pivot_row[j])
            count += 1
    for k in range(len(place.lo)):
        nodes.goal[0, k] = 0.0
    if not dual_bound(nodes, place, 0.0, count) < 0.0:
        return False
    put(tape, used, NOTHING)
    put_multipliers(nodes, tape, used, count)
    nodes.whole[COUNT] -= 1
    return True

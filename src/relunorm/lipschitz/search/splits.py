"""At which unit a node is split, and what bounds on a derivative alone say before, compiled.

Signs that a bound decides; and whether no choice of signs of the first open layer (`is_low`) has a
bound above a limit, whatever the cell is: a search without any linear programme, a hundred times
cheaper a node than one that asks which signs a cell leaves.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel_part
from relunorm.lipschitz.search.cells import (
    COUNT,
    EXACT,
    NEED,
    OPEN,
    OUTPUT,
    first_open,
    keep,
    put_sign,
    steepness,
)

#: A sign is tried where the bound exceeds the limit by at most so many times what it can change,
#: roughly; and so many units of the first open layer at which to split.
PULL, LOOKS = 1.2, 6

#: Bounds that `is_low` computes at most.
MOST_BOUNDS = 200


@kernel_part
def split(net, nodes, bits, place, gains, limit, tape, used):  # type: ignore[no-untyped-def]
    """Decide signs without which the bound is not above the limit; the unit to split at.

    Returns -1 where no sign is left to a unit, -2 where all are decided, -3 where forms are needed.
    """
    if place.goal[OUTPUT] < 0.0:
        return _widest(net, nodes, bits, place)
    excess = steepness(net, bits, nodes, place) - limit
    pulls = nodes.memory[5]
    for q in range(net.shape[1]):
        jump = abs(net.slopes[q, 1] - net.slopes[q, 0])
        for i in range(net.first[q], net.first[q + 1]):
            size = max(abs(nodes.memory[0, i]), abs(nodes.memory[1, i]))
            pulls[i] = abs(nodes.memory[4, i]) * size * jump if bits[i] < 0 else -1.0
            gains[0, i] = np.nan
    for i in range(net.shape[2]):
        if PULL * pulls[i] >= excess and _try(net, nodes, bits, place, gains, i, limit, tape, used):
            return -1
    first = first_open(net, bits)
    if first == net.shape[1]:
        return -2
    unit, least = -1, np.inf
    for _ in range(LOOKS):
        i = -1
        for j in range(net.first[first], net.first[first + 1]):
            if bits[j] < 0 and pulls[j] >= 0.0 and (i < 0 or pulls[j] > pulls[i]):
                i = j
        if i < 0:
            break
        pulls[i] = -1.0
        if np.isnan(gains[0, i]):
            if _try(net, nodes, bits, place, gains, i, limit, tape, used):
                return -1
            if bits[i] >= 0:
                continue
        one, other = gains[0, i] - limit, gains[1, i] - limit
        score = one * other + 1e-3 * (one + other) * max(one, other)
        if unit < 0 or score < least:
            unit, least = i, score
    return unit if unit >= 0 else -3


@kernel_part
def _try(net, nodes, bits, place, gains, i, limit, tape, used):  # type: ignore[no-untyped-def]
    """Bounds with a unit decided; decide it where one side is not above the limit.

    True where neither is.
    """
    for side in range(2):
        if bits[i] >= 0:
            break
        bits[i] = side
        gains[side, i] = steepness(net, bits, nodes, place)
        bits[i] = OPEN
        if gains[side, i] <= limit:
            bits[i] = 1 - side
            put_sign(tape, used, NEED, i, 1 - side)
            if steepness(net, bits, nodes, place) <= limit:
                return True
    return False


@kernel_part
def _widest(net, nodes, bits, place):  # type: ignore[no-untyped-def]
    """The unit of the first open layer that may change a norm most; see `split`."""
    first = first_open(net, bits)
    if first == net.shape[1]:
        return -2
    if first > nodes.whole[EXACT]:
        return -3
    steepness(net, bits, nodes, place)
    unit, most = -1, -1.0
    for i in range(net.first[first], net.first[first + 1]):
        if bits[i] < 0 and nodes.memory[2, i] > most:
            unit, most = i, nodes.memory[2, i]
    return unit


@kernel_part
def halve(net, nodes, place, unit, first):  # type: ignore[no-untyped-def]
    """Put two nodes in the place of the top one, the ``first`` side of a unit on top."""
    top = nodes.whole[COUNT] - 1
    for i in range(net.shape[2]):
        nodes.bits[top + 1, i] = nodes.bits[top, i]
        nodes.low[top + 1, i], nodes.high[top + 1, i] = nodes.low[top, i], nodes.high[top, i]
    nodes.bits[top + 1, unit], nodes.bits[top, unit] = first, 1 - first
    nodes.kept[top + 1] = nodes.kept[top]
    for at in range(top, top + 2):
        keep(nodes, at, steepness(net, nodes.bits[at], nodes, place))
    nodes.whole[COUNT] += 1


@kernel_part
def is_low(net, nodes, bits, place, limit):  # type: ignore[no-untyped-def]
    """Whether no choice of signs of the first open layer has a bound above a limit."""
    path, depth, layer = nodes.memory[6], 0, first_open(net, bits)
    low = False
    for _ in range(MOST_BOUNDS):
        if not steepness(net, bits, nodes, place) <= limit:
            unit = _strongest(net, nodes, bits, layer)
            if unit < 0:
                break
            # the steeper side first: if it stays above the limit, that is all there is to know
            gain = nodes.memory[4, unit] * (nodes.memory[0, unit] + nodes.memory[1, unit])
            rising = net.slopes[layer, 1] > net.slopes[layer, 0]
            bits[unit] = 1 if (gain > 0.0) == rising else 0
            path[depth] = 2.0 * unit
            depth += 1
            continue
        while depth > 0 and int(path[depth - 1]) % 2 == 1:
            depth -= 1
            bits[int(path[depth]) // 2] = OPEN
        if depth == 0:
            low = True
            break
        path[depth - 1] += 1.0
        unit = int(path[depth - 1]) // 2
        bits[unit] = 1 - bits[unit]
    for p in range(depth):
        bits[int(path[p]) // 2] = OPEN
    return low


@kernel_part
def _strongest(net, nodes, bits, layer):  # type: ignore[no-untyped-def]
    """The open unit of a layer that may change the bound most; -1 if there is none."""
    unit, most = -1, -1.0
    if layer < net.shape[1]:
        for i in range(net.first[layer], net.first[layer + 1]):
            size = max(abs(nodes.memory[0, i]), abs(nodes.memory[1, i]))
            pull = abs(nodes.memory[4, i]) * size
            if bits[i] < 0 and pull > most:
                unit, most = i, pull
    return unit

"""Whether bounds on a derivative alone close a node, whatever its cell is, compiled.

A search through the signs of the first open layer without any linear programme: a hundred times
cheaper a node than one that asks which signs a cell leaves.
"""

from __future__ import annotations

from relunorm.compiled.jit import kernel_part
from relunorm.lipschitz.search.cells import OPEN, first_open, steepness

#: Bounds that are computed at most.
MOST_BOUNDS = 200


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
        while depth > 0 and path[depth - 1] % 2.0 == 1.0:
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

"""From a region to steeper neighbours, across one facet at a time, compiled.

The derivative is linear in the slope of each unit, so that one pass over the network tells for all
of them what a change of sign would gain. Whether the cell behind has an interior is asked of those
that gain only, the best first, by one linear programme.
"""

from __future__ import annotations

import numpy as np

from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.simplex import FOUND
from relunorm.domain import Box
from relunorm.lipschitz.search import slopes
from relunorm.lipschitz.search.cells import EXACT, WALLS, aim, new_nodes, steepness, walls
from relunorm.lipschitz.search.programmes import middle, over_cell, remember
from relunorm.lipschitz.search.signs import INSIDE, slope_at
from relunorm.lipschitz.search.slopes import new_place
from relunorm.lipschitz.search.windows import Window, bounded
from relunorm.matrix import Vector
from relunorm.network import Network


def compile_kernels(tell: Teller) -> None:
    """Compile the search and the ways up (or load them), so that no time limit pays for it."""
    slopes.compile_kernels(tell)
    network = Network.from_weights([[[1.0]], [[1.0]]])
    climb = Climb(bounded(network, Box.cube(1)), (0, 0, 1.0), 1e-14)
    tell.compile("ways up to steep regions", lambda: climb(np.full(1, 0.5), NO_LIMIT))


class Climb:
    """Ways up to regions that are steeper than all their neighbours.

    Args:
        window: where.
        goal: output, coordinate of the window and sign, for a derivative along that coordinate.
        margin: of `cells.margin_of`.
    """

    def __init__(self, window: Window, goal: tuple[int, int, float], margin: float):
        self._window = window
        self._nodes, self._place = new_nodes(window), new_place(window, goal, margin)

    def __call__(self, x: Vector, clock: Clock) -> Vector | None:
        """A point inside the region that a way up from x ends in; None from a kink."""
        window, signs = self._window, np.zeros(int(self._window.net.shape[2]), np.int8)
        t = np.clip((x - window.shift) / window.scale, window.lo, window.hi)
        with clock.watch() as stop:
            nodes = self._nodes._replace(work=self._nodes.work._replace(stop=stop))
            found = _climb(window.net, nodes, self._place, t, signs)
        return window.to_input(self._nodes.goal[1]) if found else None


@kernel
def _climb(net, nodes, place, point, signs):  # type: ignore[no-untyped-def]
    """Go up from a point; a point at the top is put into goal[1]. False where there is none."""
    if np.isnan(slope_at(net, nodes, place, point, signs)):
        return False
    for i in range(net.shape[2]):
        nodes.bits[0, i] = signs[i]
    nodes.whole[EXACT] = net.shape[1]
    while _step(net, nodes, place):
        pass
    if not walls(net, nodes, place):
        return False
    d, m, goal = net.shape[0], nodes.whole[WALLS], nodes.goal[0]
    nodes.found[0] = 0
    for at in range(m):  # away from every wall
        for k in range(d):
            goal[k] = -nodes.rows[at, k]
        if over_cell(nodes, place) == FOUND:
            remember(nodes)
    if nodes.found[0] == 0:
        return False
    middle(nodes)
    return True


@kernel_part
def _step(net, nodes, place):  # type: ignore[no-untyped-def]
    """Change the sign that gains most of those that can change; False if there is none."""
    bits, gains = nodes.bits[0], nodes.memory[5]
    here = steepness(net, bits, nodes, place)
    for q in range(net.shape[1]):
        jump = net.slopes[q, 1] - net.slopes[q, 0]
        for i in range(net.first[q], net.first[q + 1]):
            gain = nodes.memory[4, i] * nodes.memory[0, i] * jump
            gains[i] = -gain if bits[i] else gain
    while True:
        unit, most = -1, 1e-9 * abs(here)
        for i in range(net.shape[2]):
            if gains[i] > most:
                unit, most = i, gains[i]
        if unit < 0 or nodes.work.stop[0]:
            return False
        bits[unit] = 1 - bits[unit]
        if _enters(net, nodes, place, unit):
            return True
        bits[unit], gains[unit] = 1 - bits[unit], 0.0


@kernel_part
def _enters(net, nodes, place, unit):  # type: ignore[no-untyped-def]
    """Whether the cell of all signs has points off the kink of a unit."""
    goal, work = nodes.goal[0], nodes.work
    if not walls(net, nodes, place):
        return False
    reach, square = aim(net, nodes, unit, np.int64(nodes.bits[0, unit])), 0.0
    if over_cell(nodes, place) != FOUND:
        return False
    for k in range(net.shape[0]):
        reach += goal[k] * work.x[k]
        square += goal[k] * goal[k]
    return reach > INSIDE * np.sqrt(square)

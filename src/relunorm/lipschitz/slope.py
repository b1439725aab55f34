"""The largest derivative of one output along one input, by branch and bound over signs of units.

A node is a set of decided signs. Three things follow from it, each without deciding the rest:

- a bound on the derivative: forwards, unit by unit, an interval of the derivative of every
  pre-activation; backwards, lines above (slope of the unit) x (its derivative), as in Lagrangian
  bounds of networks, so that all readers of a unit see the same one;
- an outer cell: affine forms below and above every pre-activation (a unit of either sign lies
  between two lines), of which each decided sign makes a wall; linear programmes over it say which
  signs are left to other units, and how far those of the first open layer reach;
- signs without which the bound would not exceed the best derivative seen.

What follows is decided too, and makes walls in turn, so that signs of later layers cut the cell
before those of the first are known. Then the first open layer is split at the unit that lowers the
bound most. Walls are moved outward by more than rounding, so every region keeps a leaf: what is
pruned is pruned for certain. A leaf whose cell has no interior by that measure leaves the search in
doubt, and `branch` has to answer (kinks of several units that meet, regions thinner than 1e-9).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.compiled.jit import inner, kernel, kernel_part
from relunorm.compiled.simplex import ABSENT, EMPTY, FOUND, STOPPED, Workspace, maximize, workspace
from relunorm.domain import Box
from relunorm.lipschitz.steepest import steepest
from relunorm.lipschitz.windows import Window, bounded
from relunorm.matrix import Vector
from relunorm.network import Network

Array = NDArray[np.float64]

#: By how much walls are moved outward, relative to what is added up for a unit: above all rounding.
MARGIN = 1e-11
#: How far inside its walls, in half-widths of the box, a cell must reach to count as a region.
INSIDE = 1e-9
#: A node is left when its bound exceeds the best derivative by at most this share of the reach.
CLOSE = 1e-10
#: What rounding can add to a bound, as a share of all paths.
ROUNDED = 1e-12
#: A sign that is not decided.
OPEN = -1

# What a run of the search ended with, and entries of Nodes.record.
MORE, DONE, IMPROVED, DOUBT, CUT_OFF = range(5)
BEST, SLACK = range(2)


def compile_kernels(tell: Teller) -> None:
    """Compile the search (or load it from the cache), so that no time limit pays for it."""
    tiny = bounded(Network.from_weights([[[1.0]], [[1.0]]]), Box.cube(1))
    search = Slope(tiny, 0, 0, 1.0, 1.0, 1.0)
    tell.compile("the search for slopes", lambda: search.run(-np.inf, NO_LIMIT))


class Nodes(NamedTuple):
    """The stack of nodes, deepest last, and memory for looking at one."""

    count: NDArray[np.int64]  # nodes on the stack
    bits: NDArray[np.int8]  # (depth, units)
    low: Array  # (depth, units): bounds of the pre-activations
    high: Array
    kept: Array  # (depth,): a bound on the derivative
    record: Array
    point: Array  # where the best derivative was found
    forms: Array  # (4, units, d + 1): below and above pre-activations, then activations
    size: Array  # (units,): sums of absolute values
    rows: Array
    rhs: Array
    slopes: Array  # (2, units)
    rates: Array  # (5, units): see `rise`
    gains: Array  # (2, units): bounds with a unit decided
    goal: Array
    work: Workspace


class Slope:
    """A search for the largest sign * d f_i / d t_j over a window; t_j is the window's coordinate.

    Args:
        window: of a bounded domain. With leaky units whose slope is not between 0 and 1 the search
            is in doubt from the start.
        output, axis: i and j.
        sign: 1 or -1.
        reach: some bound on the absolute derivative.
        paths: the sum of absolute values over all paths from j to i.

    Attributes:
        bound: above all values, in exact arithmetic.
        finished: whether nothing is left to search.
        in_doubt: whether a region may be too thin to be seen; then ``bound`` may stay above.
    """

    def __init__(
        self, window: Window, output: int, axis: int, sign: float, reach: float, paths: float
    ):
        self._net, self._goal = window.net, (output, axis, sign)
        d, _, units, _ = (int(n) for n in window.net.shape)
        depth, given = units + 2, len(window.rhs)
        self._nodes = nodes = Nodes(
            np.ones(1, np.int64),
            np.zeros((depth, units), np.int8),  # touched as deep as the search goes
            np.zeros((depth, units)),
            np.zeros((depth, units)),
            np.zeros(depth),
            np.array([-np.inf, CLOSE * reach]),
            np.zeros(d),
            np.zeros((4, units, d + 1)),
            np.zeros(units),
            np.zeros((given + units + 1, d)),
            np.zeros(given + units + 1),
            np.zeros((2, units)),
            np.zeros((5, units)),
            np.zeros((2, units)),
            np.zeros((2, d)),
            workspace(d),
        )
        nodes.bits[0], nodes.low[0], nodes.high[0], nodes.kept[0] = OPEN, -np.inf, np.inf, np.inf
        nodes.rows[:given], nodes.rhs[:given] = window.rows, window.rhs
        self._window, self._given, self._rounded = window, given, ROUNDED * paths
        self.bound, self.finished = np.inf, False
        below, above = window.net.slopes.T
        self.in_doubt = not ((below >= 0.0) & (below <= above)).all()

    def run(self, known: float, clock: Clock) -> list[Vector]:
        """Go on until all is searched, in doubt or out of time, for more than ``known``.

        Returns:
            inputs at which larger and larger values were found.
        """
        nodes, window = self._nodes, self._window
        nodes.record[BEST] = max(nodes.record[BEST], known)
        found: list[Vector] = []
        with clock.watch() as stop:
            nodes = nodes._replace(work=nodes.work._replace(stop=stop))
            state = IMPROVED
            while state == IMPROVED and not clock.expired():
                state = _search(
                    self._net, nodes, *self._goal, window.lo, window.hi, np.int64(self._given)
                )
                if state == IMPROVED:
                    x = window.to_input(nodes.point)
                    assert x is not None
                    found.append(x)
        self.finished, self.in_doubt = state == DONE, state == DOUBT
        open_nodes = nodes.kept[: int(nodes.count[0])].max(initial=-np.inf)
        best = nodes.record[BEST] + nodes.record[SLACK]
        self.bound = float(max(best, open_nodes)) + self._rounded
        return found


@kernel
def _search(net, nodes, output, axis, sign, lo, hi, given):  # type: ignore[no-untyped-def]
    """Search on: DONE, IMPROVED (by ``nodes.point``), DOUBT or CUT_OFF."""
    count, record = nodes.count, nodes.record
    while count[0] > 0:
        if nodes.work.stop[0]:
            return CUT_OFF
        top = count[0] - 1
        bits, low, high = nodes.bits[top], nodes.low[top], nodes.high[top]
        limit = record[BEST] + record[SLACK]
        if nodes.kept[top] <= limit:
            count[0] -= 1
            continue
        nodes.kept[top] = min(nodes.kept[top], rise(net, bits, nodes, output, axis, sign))
        if nodes.kept[top] <= limit or not _fits(net, nodes, bits, low, high, lo, hi, given):
            if nodes.work.stop[0]:
                return CUT_OFF
            count[0] -= 1
            continue
        improved = False
        value = sign * _slope_at(net, nodes, output, axis, nodes.goal[1])
        if value > record[BEST]:
            record[BEST], improved = value, True
            for k in range(len(lo)):
                nodes.point[k] = nodes.goal[1, k]
            limit = value + record[SLACK]
        unit = _split(net, nodes, bits, output, axis, sign, limit)
        nodes.kept[top] = min(nodes.kept[top], rise(net, bits, nodes, output, axis, sign))
        if unit == -1 or nodes.kept[top] <= limit:
            count[0] -= 1
        elif unit >= 0:
            first = 1 if nodes.gains[1, unit] >= nodes.gains[0, unit] else 0
            for i in range(len(bits)):
                nodes.bits[top + 1, i] = bits[i]
                nodes.low[top + 1, i], nodes.high[top + 1, i] = low[i], high[i]
            nodes.bits[top + 1, unit], bits[unit] = first, 1 - first
            nodes.kept[top + 1] = min(nodes.kept[top], nodes.gains[first, unit])
            nodes.kept[top] = min(nodes.kept[top], nodes.gains[1 - first, unit])
            count[0] += 1
        else:  # every sign is decided
            code = _enter(net, nodes, bits, low, high, lo, hi, given)
            if code == STOPPED:
                return CUT_OFF
            if code == FOUND:
                value = sign * _slope_at(net, nodes, output, axis, nodes.goal[1])
                if value > record[BEST]:
                    record[BEST], improved = value, True
                    for k in range(len(lo)):
                        nodes.point[k] = nodes.goal[1, k]
            if code != EMPTY and nodes.kept[top] > record[BEST] + record[SLACK]:
                return DOUBT
            count[0] -= 1
        if improved:
            return IMPROVED
    return DONE


@kernel_part
def rise(net, bits, nodes, output, axis, sign):  # type: ignore[no-untyped-def]
    """A bound on the derivative, for the decided signs."""
    slopes = nodes.slopes
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            if bits[i] >= 0:
                slopes[0, i] = slopes[1, i] = net.slopes[q, bits[i]]
            else:
                slopes[0, i], slopes[1, i] = net.slopes[q, 0], net.slopes[q, 1]
    return steepest(net, slopes, output, axis, sign, nodes.rates)


@kernel_part
def _fits(net, nodes, bits, low, high, lo, hi, given):  # type: ignore[no-untyped-def]
    """Decide signs that the outer cell leaves no choice; False where the cell is empty.

    Leaves a point of the cell, inside where its corners differ, in ``nodes.goal[1]``.
    """
    d, units = net.shape[0], net.shape[2]
    m = _walls(net, nodes, bits, low, high, lo, hi, given, np.int64(0))
    if m < 0:
        return False
    first = _first_open(net, bits)
    goal, mean, work = nodes.goal[0], nodes.goal[1], nodes.work
    corners = 0
    for k in range(d):
        goal[k] = mean[k] = 0.0
    for i in range(net.first[first], net.first[first + 1] if first < net.shape[1] else units):
        if bits[i] >= 0:
            continue
        for side in range(2):
            form = nodes.forms[side, i]  # exact: both are the same
            s = 1.0 if side else -1.0
            for k in range(d):
                goal[k] = s * form[k]
            status = maximize(goal, nodes.rows, nodes.rhs, m, lo, hi, -np.inf, work)
            if status in (EMPTY, STOPPED):
                return False
            if status != FOUND:
                continue
            value = s * form[d]
            for k in range(d):
                value += goal[k] * work.x[k]
                mean[k] += work.x[k]
            corners += 1
            value += MARGIN * nodes.size[i]
            if side:
                high[i] = min(high[i], value)
            else:
                low[i] = max(low[i], -value)
        if high[i] < 0.0:
            bits[i] = 0
        elif low[i] > 0.0:
            bits[i] = 1
    if corners == 0:
        status = maximize(mean, nodes.rows, nodes.rhs, m, lo, hi, -np.inf, work)
        if status in (EMPTY, STOPPED):
            return False
        corners = 1
        for k in range(d):
            mean[k] = work.x[k]
    for k in range(d):
        mean[k] /= corners
    if first + 1 >= net.shape[1]:
        return True
    m = _walls(net, nodes, bits, low, high, lo, hi, given, np.int64(0))
    if m < 0:
        return False
    for i in range(net.first[first + 1], units):
        for side in range(2):
            if bits[i] >= 0:
                break
            form = nodes.forms[side, i]
            s = 1.0 if side else -1.0
            constant = s * form[d] + MARGIN * nodes.size[i]
            here = constant
            for k in range(d):
                goal[k] = s * form[k]
                here += goal[k] * mean[k]
            if here <= 0.0:
                status = maximize(goal, nodes.rows, nodes.rhs, m, lo, hi, -constant, work)
                if status in (EMPTY, STOPPED):
                    return False
                if status == ABSENT:
                    bits[i] = 1 - side
    return True


@inner
def _first_open(net, bits):  # type: ignore[no-untyped-def]
    """The first layer with a sign not decided; the number of layers if there is none."""
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            if bits[i] < 0:
                return q
    return net.shape[1]


@kernel_part
def _walls(net, nodes, bits, low, high, lo, hi, given, inward):  # type: ignore[no-untyped-def]
    """Forms of all units on the node and a wall for each decided sign; how many rows there are.

    Returns -1 where a decided sign is impossible. Walls are moved outward by the margin, or
    ``inward`` by as much as makes a region.
    """
    d, m = net.shape[0], given
    forms, size = nodes.forms, nodes.size
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            _add_up(net, nodes, q, i)
            margin = MARGIN * size[i]
            if bits[i] < 0:
                least = forms[0, i, d] - margin
                most = forms[1, i, d] + margin
                for k in range(d):
                    w = forms[0, i, k]
                    least += w * (lo[k] if w > 0.0 else hi[k])
                    w = forms[1, i, k]
                    most += w * (hi[k] if w > 0.0 else lo[k])
                low[i], high[i] = max(low[i], least), min(high[i], most)
                if low[i] > 0.0:
                    bits[i] = 1
                elif high[i] < 0.0:
                    bits[i] = 0
            else:
                side = np.int64(bits[i])
                s = -1.0 if side else 1.0
                square = 0.0
                for k in range(d):
                    square += forms[side, i, k] * forms[side, i, k]
                length = np.sqrt(square)
                room = -s * forms[side, i, d]
                if length <= MARGIN * size[i]:
                    for k in range(d):
                        room += abs(forms[side, i, k])
                    if room + margin < 0.0:
                        return -1
                else:
                    for k in range(d):
                        nodes.rows[m, k] = s * forms[side, i, k] / length
                    move = -max(INSIDE, 4.0 * margin / length) if inward else margin / length
                    nodes.rhs[m] = room / length + move
                    m += 1
            _pass_on(net, nodes, q, i, bits[i], low[i], high[i])
    return m


@inner
def _add_up(net, nodes, layer, i):  # type: ignore[no-untyped-def]
    """The forms below and above a pre-activation, from those of the activations it reads."""
    d, forms, size = net.shape[0], nodes.forms, nodes.size
    for k in range(d):
        forms[0, i, k] = forms[1, i, k] = 0.0
    forms[0, i, d] = forms[1, i, d] = net.bias[i]
    size[i] = net.size0[i]
    row = i - net.first[layer]
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            for k in range(d):
                w = net.weights[net.start[term] + row * d + k]
                forms[0, i, k] += w
                forms[1, i, k] += w
                size[i] += abs(w)
            continue
        offset = net.first[source - 1]
        width = net.first[source] - offset
        for j in range(offset, offset + width):
            w = net.weights[net.start[term] + row * width + j - offset]
            below, above = (2, 3) if w > 0.0 else (3, 2)
            for k in range(d + 1):
                forms[0, i, k] += w * forms[below, j, k]
                forms[1, i, k] += w * forms[above, j, k]
            size[i] += abs(w) * size[j]


@inner
def _pass_on(net, nodes, q, i, bit, low, high):  # type: ignore[no-untyped-def]
    """The forms below and above an activation: lines through its corner, and the chord."""
    d, forms = net.shape[0], nodes.forms
    below, above = net.slopes[q, 0], net.slopes[q, 1]
    lower = upper = above if bit == 1 else below
    shift = 0.0
    if bit < 0:
        margin = MARGIN * nodes.size[i]
        least, most = min(low - margin, -margin), max(high + margin, margin)
        lower = above if most > -least else below
        if most - least > 0.0:
            upper = (above * most - below * least) / (most - least)
        else:
            upper = above
        shift = (above - upper) * most
    for k in range(d + 1):
        forms[2, i, k], forms[3, i, k] = lower * forms[0, i, k], upper * forms[1, i, k]
    forms[3, i, d] += shift


@kernel_part
def _split(net, nodes, bits, output, axis, sign, limit):  # type: ignore[no-untyped-def]
    """Decide signs without which the bound is not above the limit; the unit to split at.

    Returns -1 where no sign is left to a unit, -2 where all are decided.
    """
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            for side in range(2):
                if bits[i] >= 0:
                    break
                bits[i] = side
                nodes.gains[side, i] = rise(net, bits, nodes, output, axis, sign)
                bits[i] = OPEN
                if nodes.gains[side, i] <= limit:
                    bits[i] = 1 - side
                    if rise(net, bits, nodes, output, axis, sign) <= limit:
                        return -1
    first = _first_open(net, bits)
    if first == net.shape[1]:
        return -2
    unit, least = -1, np.inf
    for i in range(net.first[first], net.first[first + 1]):
        if bits[i] < 0:
            one, other = nodes.gains[0, i] - limit, nodes.gains[1, i] - limit
            score = one * other + 1e-3 * (one + other) * max(one, other)
            if unit < 0 or score < least:
                unit, least = i, score
    return unit


@kernel_part
def _slope_at(net, nodes, output, axis, t):  # type: ignore[no-untyped-def]
    """The derivative at a point, as computed; NaN where a unit is at its kink."""
    d, z, v = net.shape[0], nodes.rates[0], nodes.rates[1]
    value = 0.0
    for q in range(net.shape[1] + 1):
        begin, end = net.first[q], net.first[q + 1]
        if q == net.shape[1]:
            begin, end = begin + output, begin + output + 1
        for i in range(begin, end):
            at, rate = net.bias[i], 0.0
            row = i - net.first[q]
            for term in range(net.term_ptr[q], net.term_ptr[q + 1]):
                source = net.source[term]
                if source == 0:
                    for k in range(d):
                        at += net.weights[net.start[term] + row * d + k] * t[k]
                    rate += net.weights[net.start[term] + row * d + axis]
                    continue
                offset = net.first[source - 1]
                width = net.first[source] - offset
                for j in range(offset, offset + width):
                    w = net.weights[net.start[term] + row * width + j - offset]
                    at += w * z[j]
                    rate += w * v[j]
            if q == net.shape[1]:
                value = rate
            elif abs(at) <= 2.0 * MARGIN * nodes.size[i]:
                return np.nan
            else:
                slope = net.slopes[q, 1] if at > 0.0 else net.slopes[q, 0]
                z[i], v[i] = slope * at, slope * rate
    return value


@kernel_part
def _enter(net, nodes, bits, low, high, lo, hi, given):  # type: ignore[no-untyped-def]
    """A point inside the region with these signs, in ``nodes.goal[1]``.

    FOUND, EMPTY where there is no such region, ABSENT where there may be a thin one, or STOPPED.
    """
    goal, point, work = nodes.goal[0], nodes.goal[1], nodes.work
    m = _walls(net, nodes, bits, low, high, lo, hi, given, np.int64(1))
    if m < 0:
        return EMPTY
    corners = 0
    for k in range(len(goal)):
        point[k] = 0.0
    for at in range(2 * len(goal)):
        for k in range(len(goal)):
            goal[k] = 0.0
        goal[at // 2] = 1.0 if at % 2 else -1.0
        status = maximize(goal, nodes.rows, nodes.rhs, m, lo, hi, -np.inf, work)
        if status == STOPPED:
            return STOPPED
        if status != FOUND:
            break
        corners += 1
        for k in range(len(goal)):
            point[k] += work.x[k]
    if corners == 2 * len(goal):
        for k in range(len(goal)):
            point[k] /= corners
        return FOUND
    m = _walls(net, nodes, bits, low, high, lo, hi, given, np.int64(0))
    if m < 0:
        return EMPTY
    status = maximize(goal, nodes.rows, nodes.rhs, m, lo, hi, -np.inf, work)
    return status if status in (EMPTY, STOPPED) else ABSENT

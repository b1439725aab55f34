"""Cells of decided signs, compiled: what a search for slopes and the replay of its proof share.

On a window t -> network a node is a set of decided signs. Forwards, affine forms of t below and
above every pre-activation (a unit of either sign lies between two lines) make a wall of each
decided sign. Any multipliers >= 0 of the walls bound a form on the cell between them: the walls
times their multipliers and what is left over the box or the ball of the domain (`dual_bound`).
`steepness` bounds the slope.

Rounding. A number of a form is a sum over paths of products of weights, computed twice: when stable
units were folded into the network, and here. So it is off by at most ``margin`` times ``size``, the
sum of the absolute values of these products, where margin counts the roundings on a path
(`margin_of`; Higham 2002, section 3.1). Forms, walls and bounds are moved outward by that.

What a search takes for true it writes to a tape, mark by mark, which a replay reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.bounds import relaxation
from relunorm.compiled.groups import group
from relunorm.compiled.jit import inner, kernel_part
from relunorm.compiled.simplex import Workspace, workspace
from relunorm.extrema.localize import Local
from relunorm.lipschitz.search.steepest import steepest, steepest_norm
from relunorm.lipschitz.search.windows import Window
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.kernels.pack import Packed

#: A sign that is not decided.
OPEN = -1

#: No wall, of those that a programme rests on.
NO_WALL = -1

#: Corners of a cell that are kept.
MOST_CORNERS = 64

#: Half-spaces around a ball in the programmes of a node.
MOST_CUTS = 160

EPS = 2.0**-52
TINY = 2.0**-960

# Entries of a goal: output (-1: a norm of the whole Jacobian), axis, sign, norm.
OUTPUT, AXIS, SIGN, NORM = range(4)

# Entries of Nodes.whole: nodes on the stack, walls, the last layer whose forms are exact, whether
# all forms were made at once, half-spaces around a ball that stand behind the walls.
COUNT, WALLS, EXACT, MADE, CUTS = range(5)

#: Marks on the tape: none, forms and walls, a bound of a unit, no point, a sign that is needed, two
#: halves, a bound that closes, a side that is empty in rational arithmetic, a limit that no bound
#: with further signs exceeds.
NO_MARK, FORMS, REACH, NOTHING, NEED, SPLIT, SHUT, TOUCH, LOW = (float(k) for k in range(9))


@group
class Nodes(NamedTuple):
    """The stack of nodes, deepest last, and memory for looking at one."""

    whole: NDArray[np.int64]
    bits: NDArray[np.int8]  # (depth, units)
    shown: NDArray[np.int8]  # (units,): those that the forms were made for
    low: Array  # (depth, units): bounds of the pre-activations
    high: Array
    kept: Array  # (depth,): a bound on the slope
    forms: Array  # (4, units, d + 1): below and above pre-activations, then activations
    size: Array  # (units,): sums of absolute values
    rows: Array  # walls: rows[k] . t <= rhs[k]
    rhs: Array
    owner: NDArray[np.int64]  # the unit of a wall; -1 for sides of the domain
    wall: NDArray[np.int64]  # (units,): the wall of a unit; -1 if it has none
    bases: NDArray[np.int64]  # (2 units, d): walls that the last programmes rested on
    slopes: Array  # (2, units)
    memory: Array  # (7, units)
    jacobian: Array  # (2, outputs, d)
    goal: Array  # (3, d): a form to bound, a point, a remainder
    corners: Array  # (depth, some, d): points between the walls (`corners`)
    found: NDArray[np.int64]  # (depth,): how many
    picks: NDArray[np.int64]  # walls with multipliers
    weights: Array
    work: Workspace


@group
class Place(NamedTuple):
    """What a search is about: a network in a window, the slopes asked for, and the rounding."""

    lo: Array
    hi: Array
    given: np.int64  # walls of the domain
    margin: float
    goal: Array
    rates: Array
    columns: Array  # the weights of the network, every matrix column by column
    ball: Array  # (3, d): its centre, its radius by coordinates, and how far the centre is off
    norm: float  # of the ball: 1 or 2; 0 for none
    far: float  # how far it lies from 0, at least 1


def new_nodes(window: Window) -> Nodes:
    """The root alone."""
    d, _, units, outputs = (int(n) for n in window.net.shape)
    depth, given = units + 2, len(window.rhs)
    most = given + units + 1 + (MOST_CUTS if window.ball is not None else 0)
    nodes = Nodes(
        np.array([1, 0, 0, 0, 0]),
        np.zeros((depth, units), np.int8),  # touched as deep as the search goes
        np.full(units, OPEN, np.int8),
        np.zeros((depth, units)),
        np.zeros((depth, units)),
        np.zeros(depth),
        np.zeros((4, units, d + 1)),
        _sizes(window.net),
        np.zeros((most, d)),
        np.zeros(most),
        np.full(most, -1),
        np.full(units, -1),
        np.full((2 * units, d), NO_WALL),
        np.zeros((2, units)),
        np.zeros((7, units)),
        np.zeros((2, outputs, d)),
        np.zeros((3, d)),
        np.zeros((depth, MOST_CORNERS, d)),
        np.zeros(depth, np.int64),
        np.zeros(d + 1, np.int64),
        np.zeros(d + 1),
        workspace(d),
    )
    nodes.bits[0], nodes.low[0], nodes.high[0], nodes.kept[0] = OPEN, -np.inf, np.inf, np.inf
    nodes.rows[:given], nodes.rhs[:given] = window.rows, window.rhs
    return nodes


def _sizes(net: Packed) -> Array:
    """For every unit the sum over paths of absolute values, t being at most 1."""
    d, layers = int(net.shape[0]), int(net.shape[1])
    sizes = [np.ones(d)]
    for q in range(layers):
        begin, end = int(net.first[q]), int(net.first[q + 1])
        size = net.size0[begin:end].copy()
        for term in range(int(net.term_ptr[q]), int(net.term_ptr[q + 1])):
            below = sizes[int(net.source[term])]
            start = int(net.start[term])
            matrix = net.weights[start : start + (end - begin) * len(below)]
            size += np.abs(matrix.reshape(end - begin, len(below))) @ below
        sizes.append(size * max(1.0, *np.abs(net.slopes[q])))
    steep = [max(1.0, *np.abs(slopes)) for slopes in net.slopes]
    parts = [size / by for size, by in zip(sizes[1:], steep, strict=True)]
    return np.concatenate([np.zeros(0), *parts]) * (1 + 2.0**-20)


def margin_of(local: Local) -> float:
    """Roundings on the longest path, twice: of folding, and of forms on a node."""
    networks: list[Network] = [local.original, local.network]
    rows = [sum(mx.longest_row(m) for m in a.terms.values()) for n in networks for a in n.maps]
    return 2.0 * EPS * sum(row + 8 for row in rows)


@kernel_part
def walls(net, nodes, place):  # type: ignore[no-untyped-def]
    """Forms of all units on the top node and a wall for each decided sign; False where it is empty.

    Bounds of open units are narrowed to what their forms reach, which may decide them.
    """
    d, m = net.shape[0], place.given
    top = nodes.whole[COUNT] - 1
    bits, low, high = nodes.bits[top], nodes.low[top], nodes.high[top]
    forms, shown = nodes.forms, nodes.shown
    # whether forms are as they were made before, and whether all units below are decided
    same, exact = nodes.whole[MADE] == 1, True
    nodes.whole[MADE] = 0
    for q in range(net.shape[1]):
        before, decided = same, exact
        for i in range(net.first[q], net.first[q + 1]):
            if not before:
                _add_up(net, nodes, bits, q, i, decided)
            off, nodes.wall[i] = place.margin * nodes.size[i], -1
            if bits[i] < 0:
                least, most = forms[0, i, d] - off, forms[1, i, d] + off
                for k in range(d):
                    w = forms[0, i, k]
                    least += w * (place.lo[k] if w > 0.0 else place.hi[k])
                    w = forms[1, i, k]
                    most += w * (place.hi[k] if w > 0.0 else place.lo[k])
                if place.norm > 0.0:
                    least = max(least, forms[0, i, d] - off - in_ball(forms[0, i], -1.0, place))
                    most = min(most, forms[1, i, d] + off + in_ball(forms[1, i], 1.0, place))
                low[i], high[i] = max(low[i], least), min(high[i], most)
                decide(bits, low, high, i)
            else:
                side = np.int64(bits[i])
                s = -1.0 if side else 1.0
                square, reach = 0.0, 0.0
                for k in range(d):
                    square += forms[side, i, k] * forms[side, i, k]
                    reach += abs(forms[side, i, k]) * max(-place.lo[k], place.hi[k])
                length = np.sqrt(square)
                room = off - s * forms[side, i, d]
                if length <= off:
                    if room + reach < 0.0:
                        return False
                else:
                    for k in range(d):
                        nodes.rows[m, k] = s * forms[side, i, k] / length
                    nodes.rhs[m], nodes.owner[m], nodes.wall[i] = room / length, i, m
                    m += 1
            if not before or bits[i] < 0 or bits[i] != shown[i]:
                _pass_on(net, nodes, q, i, bits[i], low[i], high[i])
                same = False
            exact = exact and bits[i] >= 0
            shown[i] = bits[i]
    nodes.whole[WALLS], nodes.whole[MADE], nodes.whole[CUTS] = m, 1, 0
    nodes.whole[EXACT] = first_open(net, bits)
    return True


@inner
def keep(nodes, at, value):  # type: ignore[no-untyped-def]
    """Lower the bound of a node; what is not a number lowers nothing."""
    if value < nodes.kept[at]:
        nodes.kept[at] = value


@inner
def decide(bits, low, high, i):  # type: ignore[no-untyped-def]
    """Decide a unit whose bounds leave it one sign (at 0 on a whole region its slope is idle)."""
    if low[i] >= 0.0:
        bits[i] = 1
    elif high[i] <= 0.0:
        bits[i] = 0


@inner
def first_open(net, bits):  # type: ignore[no-untyped-def]
    """The first layer with a sign not decided; the number of layers if there is none."""
    for q in range(net.shape[1]):
        for i in range(net.first[q], net.first[q + 1]):
            if bits[i] < 0:
                return q
    return net.shape[1]


@inner
def _add_up(net, nodes, bits, layer, i, exact):  # type: ignore[no-untyped-def]
    """The forms below and above a pre-activation, from those of the activations it reads.

    Both are one where all units of earlier layers are decided.
    """
    d, forms = net.shape[0], nodes.forms
    below, above = forms[0, i], forms[1, i]
    for k in range(d):
        below[k] = above[k] = 0.0
    below[d] = above[d] = net.bias[i]
    row = i - net.first[layer]
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            for k in range(d):
                w = net.weights[net.start[term] + row * d + k]
                below[k] += w
                above[k] += w
            continue
        offset = net.first[source - 1]
        begin = net.start[term] + row * (net.first[source] - offset) - offset
        for j in range(offset, net.first[source]):
            if bits[j] >= 0 and net.slopes[source - 1, bits[j]] == 0.0:
                continue
            w = net.weights[begin + j]
            first, last = (2, 3) if w > 0.0 else (3, 2)
            for k in range(d + 1):
                below[k] += w * forms[first, j, k]
            if not exact:
                for k in range(d + 1):
                    above[k] += w * forms[last, j, k]
    if exact:
        for k in range(d + 1):
            above[k] = below[k]


_chord, _tangent = inner(relaxation.chord), inner(relaxation.tangent)


@inner
def _pass_on(net, nodes, q, i, bit, low, high):  # type: ignore[no-untyped-def]
    """The forms below and above an activation: a line through its corner, and the chord."""
    d, forms = net.shape[0], nodes.forms
    a, b = net.slopes[q, 0], net.slopes[q, 1]
    lower = upper = b if bit == 1 else a
    down, up = 0.0, 0.0
    if bit < 0:
        least, most = min(low, 0.0), max(high, 0.0)
        through = _tangent(a, b, least, most)
        chord = _chord(a, b, least, most) if most > least else b
        if a <= b:
            lower, upper = through, chord
            up = max((b - chord) * most, (a - chord) * least)
        else:
            lower, upper = chord, through
            down = min((b - chord) * most, (a - chord) * least)
    for k in range(d + 1):
        forms[2, i, k] = lower * forms[0 if lower >= 0.0 else 1, i, k]
        forms[3, i, k] = upper * forms[1 if upper >= 0.0 else 0, i, k]
    forms[2, i, d] += down
    forms[3, i, d] += up


@kernel_part
def aim(net, nodes, unit, side):  # type: ignore[no-untyped-def]
    """Put the form above a unit's pre-activation (side 1) or its negative; the constant."""
    d = net.shape[0]
    s = 1.0 if side else -1.0
    for k in range(d):
        nodes.goal[0, k] = s * nodes.forms[side, unit, k]
    return s * nodes.forms[side, unit, d]


@kernel_part
def in_ball(form, sign, place):  # type: ignore[no-untyped-def]
    """The most that sign times the gradient of a form takes on the ball of a place, rounded up."""
    total, most, square, size = 0.0, 0.0, 0.0, 0.0
    for k in range(len(place.lo)):
        w = sign * form[k]
        swing = abs(w) * place.ball[1, k]
        total += w * place.ball[0, k] + abs(w) * place.ball[2, k]
        most, square = max(most, swing), square + swing * swing
        size += abs(w)
    total += np.sqrt(square) if place.norm == 2.0 else most
    return total + (4.0 * len(place.lo) + 16.0) * EPS * size * place.far + TINY


@kernel_part
def dual_bound(nodes, place, constant, count):  # type: ignore[no-untyped-def]
    """Bound ``constant`` + goal . t on the cell by ``count`` multipliers, rounded up."""
    form, left = nodes.goal[0], nodes.goal[2]
    d = len(form)
    total, size = constant, abs(constant)
    for k in range(d):
        left[k] = form[k]
        size += abs(form[k])
    for p in range(count):
        row, w = nodes.picks[p], nodes.weights[p]
        total += w * nodes.rhs[row]
        size += w * abs(nodes.rhs[row])
        for k in range(d):
            left[k] -= w * nodes.rows[row, k]
            size += w * abs(nodes.rows[row, k])
    rest, more = 0.0, (2.0 * (count + d) + 16.0) * EPS * size
    for k in range(d):
        rest += left[k] * (place.hi[k] if left[k] > 0.0 else place.lo[k])
    if place.norm > 0.0:
        curved = in_ball(left, 1.0, place) + more * (place.far - 1.0)
        rest = min(rest, curved)
    return total + rest + more + TINY


@kernel_part
def steepness(net, bits, nodes, place):  # type: ignore[no-untyped-def]
    """A bound on the slope asked for, for the decided signs; rounded as sums are."""
    slopes, goal = nodes.slopes, place.goal
    for q in range(net.shape[1]):
        least = min(net.slopes[q, 0], net.slopes[q, 1])
        most = max(net.slopes[q, 0], net.slopes[q, 1])
        for i in range(net.first[q], net.first[q + 1]):
            if bits[i] >= 0:
                slopes[0, i] = slopes[1, i] = net.slopes[q, bits[i]]
            else:
                slopes[0, i], slopes[1, i] = least, most
    if goal[OUTPUT] >= 0.0:
        output, axis = np.int64(goal[OUTPUT]), np.int64(goal[AXIS])
        return steepest(net, place.columns, slopes, output, axis, goal[SIGN], nodes.memory)
    exact = nodes.whole[EXACT]
    return steepest_norm(
        net, slopes, nodes.forms[0], exact, place.rates, goal[NORM], nodes.memory, nodes.jacobian
    )


@kernel_part
def put(tape, used, value):  # type: ignore[no-untyped-def]
    """Write a number."""
    tape[used[0]] = value
    used[0] += 1


@kernel_part
def put_sign(tape, used, mark, unit, side):  # type: ignore[no-untyped-def]
    """Write a mark, a unit and one of its sides."""
    at = used[0]
    tape[at], tape[at + 1], tape[at + 2] = mark, unit, side
    used[0] = at + 3


@kernel_part
def put_multipliers(nodes, tape, used, count):  # type: ignore[no-untyped-def]
    at = used[0]
    tape[at] = count
    for p in range(count):
        tape[at + 1 + p], tape[at + 1 + count + p] = nodes.picks[p], nodes.weights[p]
    used[0] = at + 1 + 2 * count

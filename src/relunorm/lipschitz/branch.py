"""Exact constants by branch and bound on the sign tree.

Units are decided in layer order, each decision checked by a linear programme on the cell
(`regions.tree`). At a node the Jacobian is J = (undecided rest) x (affine forms decided so far):
every undecided unit contributes an interval of slopes, the interval product bounds |J| entry by
entry and hence its norm, and a node whose bound is not above the best norm seen is left. A leaf
is a region with its Jacobian. Without the bound this is enumeration. For one output along one input
the derivative is also bounded by `steepest`, which is far tighter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock, Listener, Teller
from relunorm.compiled.jit import inner, kernel, kernel_part
from relunorm.domain import Box, Domain
from relunorm.lipschitz.contacts import Contacts
from relunorm.lipschitz.search import at_point
from relunorm.lipschitz.steepest import steepest
from relunorm.lipschitz.windows import Window, windows
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.regions.kernels.tree import (
    backtrack,
    descend,
    interior_point,
    layer_of,
    signs,
    start_layer,
)
from relunorm.regions.kernels.tree_signs import CLEAR, form_range
from relunorm.regions.kernels.tree_state import (
    CUT_OFF,
    FAILURES,
    FRAMES,
    HIDDEN,
    NEAR,
    ROWS,
    STARTED,
    is_cut_off,
)

METHOD = "branch and bound"

#: A node is left when its bound is at most this factor times the best norm seen.
CLOSE = 1 + 1e-10

#: Multiplications, about, between two looks at the clock (some hundredths of a second).
SLICE = 3e7

#: Rounds of turning rows at most, and the cosine below which two are at a right angle.
MOST_SWEEPS, RIGHT_ANGLE = 40, 1e-15

# Entries of a search's record: the best norm, whether a leaf improved on it, where a slice ended on
# its way down (the next unit plus one, 0: at the end of a path) with the bound there, whether to
# end at contacts (2: not at the one where it stands), whether leaves leave the best norm as it is.
BEST, IMPROVED, UNIT, BOUND, HEED, HOLD = range(6)


def compile_kernels(tell: Teller) -> None:
    """Compile the search (or load it from the cache), so that no time limit pays for it."""
    tiny = Network.from_weights([[[1.0]], [[1.0]]])
    tell.compile("the search for Jacobians", lambda: _branch_and_bound(tiny, None, 2.0, None))


def branch_and_bound(
    network: Network,
    domain: Domain | None = None,
    norm: float = 2.0,
    start: tuple[float, Vector] | None = None,
    time_limit: float | Clock | None = None,
    progress: Listener | None = None,
    contacts: Contacts | None = None,
) -> tuple[float, Vector, float, bool]:
    """The Lipschitz constant as (lower, witness, upper, finished).

    Finished means the tree is done: then lower and upper agree to 1e-10 relative (for a ball only
    if the maximising region of its bounding box meets the ball). Otherwise ``upper`` is the largest
    bound of a node not yet searched. It is infinite where cells thinner than the tolerance were
    left out (docs/regions.md), or may have been, finished or not: their Jacobians are not known.
    Otherwise it holds for every region, those too thin for float64 included: where a cell touches a
    side of a unit that it does not enter, rational arithmetic says whether that side is empty
    (`contacts`). Worst case exponential in the units that change sign.

    Args:
        network: relu or leaky units, without linear stages; fold stable units first (`localize`).
        start: a lower bound and its point, to prune with.
        time_limit: seconds or a clock.
        progress: called with a `Progress` a few times a second; its facts are ``lower``, ``upper``.
        contacts: of the network that was folded; by default this one is as it was given.
    """
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    compile_kernels(tell)
    return _branch_and_bound(network, domain, norm, start, clock, tell, contacts)


def _branch_and_bound(
    network: Network,
    domain: Domain | None,
    norm: float,
    start: tuple[float, Vector] | None,
    clock: Clock = NO_LIMIT,
    tell: Teller | None = None,
    contacts: Contacts | None = None,
) -> tuple[float, Vector, float, bool]:
    contacts = contacts or Contacts.of(network, domain)
    best, witness = start if start is not None else (0.0, np.zeros(network.input_size))
    upper, done = best, True
    with clock.watch() as stop:
        for window in windows(network, domain):
            if clock.expired():
                return best, witness, np.inf, False
            search = _Search(window, norm, best, stop, contacts)
            while search.goes_on():
                x = search.point()
                if x is not None and isinstance(domain, Box):
                    x = np.clip(x, domain.lo, domain.hi)
                if x is not None and (domain is None or domain.contains(x)[0]):
                    value = at_point(network, x, norm, domain)
                    if value > best:
                        best, witness = value, x
                if tell is not None:
                    bound = search.so_far()
                    text = f"between {best:.6g} and {bound:.6g}"
                    tell(text, at_once=False, lower=best, upper=bound)
            upper, done = max(upper, search.bound()), done and search.is_done()
    return best, witness, max(upper, best), done


def is_complete(
    network: Network,
    domain: Domain | None,
    norm: float,
    best: float,
    clock: Clock,
    contacts: Contacts,
) -> bool:
    """Whether every region whose Jacobian may be larger than ``best`` is one that float64 sees.

    What a list of regions leaves out, and what makes its largest norm a bound.
    """
    with clock.watch() as stop:
        for window in windows(network, domain):
            search = _Search(window, norm, best, stop, contacts)
            search.record[HOLD] = 1.0
            while search.goes_on():
                pass
            if not (search.is_done() and np.isfinite(search.bound())):
                return False
    return True


class Steepest:
    """The largest sum of |J| times a window's rates over the regions of a scalar network.

    Attributes:
        bound: above all of them; infinite where cells were left out, or before the first `run`.
    """

    def __init__(self, window: Window, contacts: Contacts):
        self._search = _Search(window, np.inf, 0.0, np.zeros(1, np.uint8), contacts)
        self.bound = np.inf

    @property
    def finished(self) -> bool:
        """Whether the tree is done."""
        return self._search.finished

    @property
    def stuck(self) -> bool:
        """Whether `run` can do nothing more."""
        return self.finished or is_cut_off(self._search.state)

    def run(self, known: float, clock: Clock) -> list[Vector]:
        """Go on until the tree is done or the time is up, leaving out what is not above ``known``.

        Returns:
            inputs at which larger and larger values were found.
        """
        search = self._search
        search.record[BEST] = max(search.record[BEST], known)
        found: list[Vector] = []
        while not clock.expired() and search.goes_on():
            x = search.point()
            if x is not None:
                found.append(x)
        self.bound = search.bound()
        return found


class _Search:
    """A search of one window, slice by slice."""

    def __init__(
        self, window: Window, norm: float, best: float, stop: NDArray[np.uint8], contacts: Contacts
    ):
        self.norm, self.stop, self.contacts = norm, stop, contacts
        self.window = window = contacts.seen_through(window)
        self.state = window.state(stop)
        units = int(window.net.shape[2])
        outputs, dimension = int(window.net.shape[3]), int(window.net.shape[0])
        self.kept = np.full(units + 1, np.inf)
        self.record = np.array([best, 0.0, 0.0, np.inf, 1.0, 0.0])
        self.place = np.zeros(dimension)
        tally = np.zeros((int(window.net.shape[1]) + 1, 2), np.int64)
        self.work = np.zeros((7, units)), np.zeros((2, outputs, dimension)), tally
        self.finished = False

    def goes_on(self) -> bool:
        """Search one slice; False where there was none to search."""
        if self.finished or self.stop[0] or is_cut_off(self.state):
            return False
        record, window = self.record, self.window
        record[IMPROVED] = 0.0
        where = window.net, self.state, window.rates, self.norm
        done = _search(*where, self.kept, record, self.place, *self.work, SLICE)
        self.finished = bool(done)
        if record[HEED] == 1.0 and self.state.at[NEAR]:
            reach = float(window.scale[0]) if window.homogeneous else None
            clear = self.contacts.judge(self.state, window.lo, window.hi, reach)
            record[HEED] = 2.0 if clear else 0.0
        return True

    def point(self) -> Vector | None:
        """An input at which the last slice found a larger norm."""
        return self.window.to_input(self.place) if self.record[IMPROVED] else None

    def is_done(self) -> bool:
        """Whether the tree is done."""
        return self.finished and not self.state.at[FAILURES]

    def so_far(self) -> float:
        """A bound on the norms of the regions that float64 sees."""
        frames = int(self.state.at[FRAMES])
        bound = max(self.record[BEST] * CLOSE, self.kept[:frames].max(initial=0.0))
        if self.record[UNIT]:
            bound = max(bound, self.record[BOUND])
        begun = self.finished or self.state.at[STARTED]
        return float(bound) if begun else np.inf

    def bound(self) -> float:
        """A bound on all norms; infinite where cells were left out."""
        at = self.state.at
        left_out = at[FAILURES] or at[HIDDEN] or self.record[HEED] == 0.0
        return np.inf if left_out else self.so_far()


@kernel
def _search(net, state, rates, norm, kept, record, point, g, jac, tally, budget):  # type: ignore[no-untyped-def]
    """Search on for about ``budget`` multiplications; 1 when the tree is done.

    A slice ends anywhere on its way down, and the next one goes on from there. It also ends when a
    leaf improved the record, so that its point can be checked, and at a contact, so that it can be.
    """
    at = state.at
    units, layers, d = net.shape[2], net.shape[1], net.shape[0]
    whole = float(len(net.weights) + units * (d + 1))
    spent = 0.0
    while spent <= budget:
        unit, bound = int(record[UNIT]) - 1, record[BOUND]
        if unit < 0:
            unit = 0
            if at[STARTED]:
                while at[FRAMES] and kept[at[FRAMES] - 1] <= record[BEST] * CLOSE:
                    at[FRAMES] -= 1
                unit = backtrack(net, state) + 1
                if unit == 0:
                    return 1
            at[STARTED] = 1
            bound = kept[at[FRAMES]]
        record[UNIT] = 0.0
        layer = layer_of(net.first, unit) if unit < units else layers
        left, fresh = False, True
        while unit < units:
            if spent > budget:
                record[UNIT], record[BOUND] = unit + 1, bound
                return 0
            if unit == net.first[layer]:
                start_layer(net, state, layer)
                spent += (d + 1.0) * whole / layers
                fresh = True
            code = signs(net, state, unit)
            if code == 0 or state.work.stop[0]:  # the time is up: the cell keeps the bound it has
                at[CUT_OFF] = 1
                record[UNIT], record[BOUND] = unit + 1, bound
                return 0
            if record[HEED] == 2.0:
                at[NEAR], record[HEED] = 0, 1.0
            spent += 8.0 * (d + 1) * (d + at[ROWS])
            if (code == 3 or fresh) and _worthwhile(tally[layer]):
                bound = min(bound, _bound(net, state, layer, unit, rates, norm, g, jac))
                spent += 4.0 * net.shape[3] * whole
                fresh = False
                if bound <= record[BEST] * CLOSE:
                    tally[layer, 1] += 1
                    left = True
                    break
            if at[NEAR] and record[HEED] == 1.0:
                record[UNIT], record[BOUND] = unit + 1, bound
                return 0
            if code == 3:
                kept[at[FRAMES]] = bound
            descend(net, state, unit, code)
            unit += 1
            if unit == net.first[layer + 1]:
                layer += 1
        if left:
            continue
        start_layer(net, state, layers)
        spent += (d + 1.0) * whole
        value = _leaf(net, state, rates, norm, jac)
        if value > record[BEST] and record[HOLD] == 0.0:
            record[BEST], record[IMPROVED] = value, 1.0
            interior_point(net, state, point)
            return 0  # a point cut off by the clock still lies in the cell: it is checked
    return 0


@inner
def _worthwhile(tally):  # type: ignore[no-untyped-def]
    """Whether to bound a node of a layer: always at first, rarely where it has hardly ever pruned.

    Any answer is correct; a bound costs as much as several linear programmes.
    """
    tally[0] += 1
    return tally[0] < 64 or tally[1] * 16 >= tally[0] or tally[0] % 64 == 0


@kernel_part
def _leaf(net, state, rates, norm, jac):  # type: ignore[no-untyped-def]
    """The norm of the Jacobian of a region whose output forms are in the state."""
    units, d = net.shape[2], net.shape[0]
    spectral = norm == 2.0 and net.shape[3] > 1
    for o in range(net.shape[3]):
        for k in range(d):
            value = state.forms[units + o, k] * rates[k]
            jac[0, o, k] = value if spectral else abs(value)
    if not spectral:
        return _norm(jac[0], norm)
    if net.shape[3] > d:  # as many rows to turn as the shorter side has
        return _largest_singular_value(jac[0].T)
    return _largest_singular_value(jac[0])


@kernel_part
def _largest_singular_value(rows):  # type: ignore[no-untyped-def]
    """The spectral norm of a matrix, which is overwritten.

    Pairs of rows are turned until all are at right angles to one another; then the longest row is
    as long as the largest singular value (one-sided Jacobi rotations, Hestenes 1958).
    """
    n, d = rows.shape
    unit = 0.0
    for p in range(n):
        for k in range(d):
            unit = max(unit, abs(rows[p, k]))
    if unit == 0.0:
        return 0.0
    for p in range(n):
        for k in range(d):
            rows[p, k] /= unit
    for _ in range(MOST_SWEEPS):
        turned = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                a, b, c = 0.0, 0.0, 0.0
                for k in range(d):
                    a += rows[p, k] * rows[p, k]
                    b += rows[q, k] * rows[q, k]
                    c += rows[p, k] * rows[q, k]
                if abs(c) <= RIGHT_ANGLE * np.sqrt(a) * np.sqrt(b):
                    continue
                turned = True
                ratio = (b - a) / (2.0 * c)
                tangent = 1.0 / (abs(ratio) + np.sqrt(1.0 + ratio * ratio))
                tangent = tangent if ratio >= 0.0 else -tangent
                cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
                for k in range(d):
                    x, y = rows[p, k], rows[q, k]
                    rows[p, k] = cosine * (x - tangent * y)
                    rows[q, k] = cosine * (y + tangent * x)
        if not turned:
            break
    longest = 0.0
    for p in range(n):
        square = 0.0
        for k in range(d):
            square += rows[p, k] * rows[p, k]
        longest = max(longest, square)
    return unit * np.sqrt(longest)


@kernel_part
def _norm(size, norm):  # type: ignore[no-untyped-def]
    """The operator norm of a non-negative matrix, or for 2 with several rows a bound on it."""
    columns, rows, square = 0.0, 0.0, 0.0
    for k in range(size.shape[1]):
        total = 0.0
        for o in range(size.shape[0]):
            total += size[o, k]
        columns = max(columns, total)
    for o in range(size.shape[0]):
        total, squares = 0.0, 0.0
        for k in range(size.shape[1]):
            total += size[o, k]
            squares += size[o, k] * size[o, k]
        rows = max(rows, total)
        square += squares
    if norm == 1.0:
        return columns
    if norm == 2.0:
        return min(np.sqrt(square), np.sqrt(rows * columns)) if len(size) > 1 else np.sqrt(square)
    return rows


@kernel_part
def _bound(net, state, layer, unit, rates, norm, g, jac):  # type: ignore[no-untyped-def]
    """A bound on the norm of every Jacobian in the cell; layers up to ``layer`` have their forms.

    Units before ``unit`` are decided. Those of the started layer after it get the slopes their
    form takes on the box; all later ones every slope they have.
    """
    d, layers, outputs = net.shape[0], net.shape[1], net.shape[3]
    units = net.shape[2]
    for o in range(outputs):
        for i in range(units):
            g[0, i], g[1, i] = 0.0, 0.0
        for k in range(d):
            jac[0, o, k], jac[1, o, k] = 0.0, 0.0
        lo, hi = jac[0, o], jac[1, o]
        _pull(net, layers, o, 1.0, 1.0, g, lo, hi)
        for q in range(layers - 1, layer, -1):
            low, high = _both(net, q)
            for i in range(net.first[q], net.first[q + 1]):
                if g[0, i] != 0.0 or g[1, i] != 0.0:
                    a, b = _times(g[0, i], g[1, i], low, high)
                    _pull(net, q, i - net.first[q], a, b, g, lo, hi)
        for q in range(layer + 1):
            for i in range(net.first[q], net.first[q + 1]):
                if g[0, i] == 0.0 and g[1, i] == 0.0:
                    continue
                low, high = _slopes(net, state, q, i, unit)
                a, b = _times(g[0, i], g[1, i], low, high)
                for k in range(d):
                    w = state.forms[i, k]
                    lo[k] += w * a if w > 0 else w * b
                    hi[k] += w * b if w > 0 else w * a
    for o in range(outputs):
        for k in range(d):
            jac[0, o, k] = max(abs(jac[0, o, k]), abs(jac[1, o, k])) * rates[k]
    bound = _norm(jac[0], norm)
    moving, axis = 0, 0
    for k in range(d):
        if rates[k] != 0.0:
            moving, axis = moving + 1, k
    if outputs == 1 and moving == 1:
        slopes, memory, most = g[:2], g[2:7], 0.0
        for q in range(layers):
            for i in range(net.first[q], net.first[q + 1]):
                both = _slopes(net, state, q, i, unit) if q <= layer else _both(net, q)
                slopes[0, i], slopes[1, i] = both
        for sign in (1.0, -1.0):
            most = max(most, steepest(net, slopes, np.int64(0), axis, sign, memory))
        bound = min(bound, most * abs(rates[axis]))
    return bound


@kernel_part
def _slopes(net, state, q, i, unit):  # type: ignore[no-untyped-def]
    """The slopes a unit with a known form can have on the cell."""
    if i < unit:
        slope = net.slopes[q, state.bits[i]]
        return slope, slope
    low, high = form_range(state, i)
    noise = state.tolerance[i] if state.scale[i] == 0.0 else state.quiet[i] / state.scale[i]
    if low > CLEAR * noise:
        return net.slopes[q, 1], net.slopes[q, 1]
    if high < -CLEAR * noise:
        return net.slopes[q, 0], net.slopes[q, 0]
    return _both(net, q)


@inner
def _both(net, q):  # type: ignore[no-untyped-def]
    """The smaller and the larger slope of a layer's units."""
    return min(net.slopes[q, 0], net.slopes[q, 1]), max(net.slopes[q, 0], net.slopes[q, 1])


@inner
def _times(a, b, low, high):  # type: ignore[no-untyped-def]
    """The interval [a, b] times [low, high]."""
    w, x, y, z = a * low, a * high, b * low, b * high
    return min(w, x, y, z), max(w, x, y, z)


@kernel_part
def _pull(net, layer, row, a, b, g, lo, hi):  # type: ignore[no-untyped-def]
    """Add [a, b] times a row of a layer's matrices to the intervals of its sources."""
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            width, offset = net.shape[0], 0
            down, up = lo, hi
        else:
            offset = net.first[source - 1]
            width = net.first[source] - offset
            down, up = g[0], g[1]
        begin = net.start[term] + row * width
        for j in range(width):
            w = net.weights[begin + j]
            if w > 0.0:
                down[offset + j] += w * a
                up[offset + j] += w * b
            elif w < 0.0:
                down[offset + j] += w * b
                up[offset + j] += w * a

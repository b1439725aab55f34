"""The largest slope of a network on a window, by branch and bound over signs of units.

The slope is a derivative of one output along one coordinate, or a norm of the whole Jacobian. A
node is a set of decided signs (`cells`). Signs follow from it without being decided:

- linear programmes over its cell say how far the units of the first open layer reach, and which
  signs are left to units of later layers;
- a sign without which the bound on the slope is not above the best slope seen is decided, too.

What follows makes walls in turn, so that signs of later layers cut the cell before those of the
first are known. Then the first open layer is split at the unit that lowers the bound most.

Everything that is taken for true is written to a tape, with the multipliers that show it, and
`proof` replays the tape. Where a cell only touches a side of a unit, floats cannot tell whether a
region lies there; that question goes to rational arithmetic (`contacts`). A cell of which neither
can tell that it is empty, nor a point inside of it be found, keeps its bound: the bound of the
search is then above the best slope seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Box
from relunorm.extrema.localize import localize
from relunorm.lipschitz.search.cells import (
    COUNT,
    EXACT,
    NO_MARK,
    OUTPUT,
    SHUT,
    TOUCH,
    Nodes,
    Place,
    new_nodes,
)
from relunorm.lipschitz.search.contacts import Contacts
from relunorm.lipschitz.search.signs import (
    ASK,
    BEST,
    DOUBT,
    FLOOR,
    FULL,
    IMPROVED,
    LISTED,
    RESUME,
    SIDE,
    SLACK,
    STAGE,
    START,
    UNIT,
    explore,
)
from relunorm.lipschitz.search.windows import Window, bounded
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.search.proofs.tape import Tape

#: A node is left when its bound exceeds the best slope by at most this share of the largest one.
CLOSE = 1e-10
#: A ball that lies farther than this from its box, in half-widths, is left to the box.
FARTHEST = 1e100
#: Numbers of a tape in memory.
TAPE = 1 << 16


def compile_kernels(tell: Teller) -> None:
    """Compile the search (or load it from the cache), so that no time limit pays for it."""
    network, box = Network.from_weights([[[1.0]], [[1.0]]]), Box.cube(1)
    contacts = Contacts(localize(network, box))
    search = Slopes(bounded(network, box), (0, 0, 1.0), 1e-14, 1.0, contacts, lambda x: -np.inf)
    tell.compile("the search for slopes", lambda: search.run(-np.inf, NO_LIMIT))


class Slopes:
    """A search for the largest slope over a window.

    Args:
        window: where.
        goal: output, coordinate of the window and sign, for a derivative along that coordinate; or
            1, 2 or inf, for the norm of the Jacobian in inputs.
        margin: of `cells.margin_of`.
        reach: some bound on the slope.
        contacts: what decides about sides that are only touched.
        check: the slope at an input for certain, -inf where there is none.
        listed: whether regions with a point inside do not count, for they are known. There is no
            proof of that.
        target: what is not steeper than this is left out, and the bound is not below it. A search
            for more than the largest slope ends much sooner, and finds steep points on its way.

    Attributes:
        best: the largest slope that `check` confirmed, or that was known.
        finished: whether nothing is left to search.
        tape: everything that was taken for true, as `proof` replays it.
    """

    def __init__(
        self,
        window: Window,
        goal: tuple[int, int, float] | float,
        margin: float,
        reach: float,
        contacts: Contacts,
        check: Callable[[Vector], float],
        listed: bool = False,
        target: float = -np.inf,
    ):
        self._window = window = contacts.seen_through(window)
        self._contacts, self._check, self._reach = contacts, check, reach
        self.target = target
        self._nodes, self.place = new_nodes(window), new_place(window, goal, margin)
        d, units = len(window.lo), int(window.net.shape[2])
        self._room = units * (4 * (2 * d + 6) + 2 * (d + 3) + 6) + 8 * d + 64
        self._buffer = np.zeros(0)
        self._used = np.zeros(1, np.int64)
        self._record = np.zeros(10)
        self._record[LISTED] = listed
        self._record[BEST], self._record[FLOOR] = -np.inf, target
        self._point, self._signs = np.zeros(d), np.zeros(units, np.int8)
        self._gains = np.zeros((2, units))
        self.tape = Tape(later=True)

    @property
    def best(self) -> float:
        return float(self._record[BEST])

    @property
    def finished(self) -> bool:
        return not self._nodes.whole[COUNT]

    @property
    def bound(self) -> float:
        """Above all slopes, as computed."""
        record, nodes = self._record, self._nodes
        waiting = nodes.kept[: int(nodes.whole[COUNT])].max(initial=-np.inf)
        return float(max(record[BEST] + record[SLACK], record[FLOOR], waiting))

    def proof(self) -> Tape:
        """The tape, what is still open left at its bound; the search is over then."""
        rest = [SHUT] * int(self._nodes.whole[COUNT])
        self._write(np.concatenate([self._buffer[: int(self._used[0])], rest]))
        return self.tape

    def _write(self, numbers: Array) -> None:
        """Numbers of single precision, an even number of them, which two by two are the tape's."""
        self.tape.write(
            np.append(numbers, [NO_MARK] * (len(numbers) % 2)).astype(np.float32).view(float)
        )
        self._used[0] = 0

    def run(self, known: float, clock: Clock) -> None:
        """Go on until all is searched or out of time, for more than ``known``."""
        record, nodes, window = self._record, self._nodes, self._window
        if not len(self._buffer):
            self._buffer = np.zeros(max(TAPE, 2 * self._room))
        self._raise(known)
        with clock.watch() as stop:
            nodes = nodes._replace(work=nodes.work._replace(stop=stop))
            while not (self.finished or clock.expired()):
                state = explore(
                    window.net, nodes, self.place, record, self._point, self._signs, self._gains,
                    self._buffer, self._used, np.int64(self._room),
                )  # fmt: skip
                if state == FULL:
                    self._write(self._buffer[: int(self._used[0])])
                elif state == IMPROVED:
                    x = window.to_input(self._point)
                    self._raise(-np.inf if x is None else self._check(x))
                elif state == ASK:
                    self._ask()
                else:
                    break

    def _raise(self, value: float) -> None:
        record = self._record
        record[BEST] = max(record[BEST], value)
        size = self._reach if self.place.goal[OUTPUT] >= 0.0 else max(record[BEST], 0.0)
        record[SLACK] = CLOSE * size

    def _ask(self) -> None:
        """Settle in rational arithmetic whether a side that the top node touches is empty."""
        record, nodes, used = self._record, self._nodes, self._used
        top, unit, side = (int(nodes.whole[COUNT]) - 1, int(record[UNIT]), int(record[SIDE]))
        basis = nodes.work.basis.tolist()
        record[RESUME] += 1
        if not is_empty(self._contacts, self._window, nodes, unit, side, basis):
            record[DOUBT] = 1.0
            return
        entry = [TOUCH, unit, side, *basis]
        self._buffer[used[0] : used[0] + len(entry)] = entry
        used[0] += len(entry)
        if nodes.bits[top, unit] == side:
            nodes.whole[COUNT] -= 1
            record[STAGE] = START
        else:
            nodes.bits[top, unit] = 1 - side


def new_place(window: Window, goal: tuple[int, int, float] | float, margin: float) -> Place:
    """What kernels need to know of the question."""
    entries = (*goal, 2.0) if isinstance(goal, tuple) else (-1.0, 0.0, 1.0, goal)
    lo, hi = window.lo, window.hi
    if not window.homogeneous:  # the centre and the half-widths are rounded
        off = 2.0**-50 * (1.0 + np.abs(window.shift) / window.scale) * (hi > lo)
        lo, hi = lo - off, hi + off
    given = np.int64(len(window.rhs))
    question = np.array(entries, dtype=float), window.rates, window.columns
    return Place(lo, hi, given, margin, *question, *_ball(window))


def _ball(window: Window) -> tuple[Array, float, float]:
    """The ball of a window in its coordinates, rounded outward: see `Place`."""
    ball = np.zeros((3, len(window.lo)))
    if window.ball is None or window.homogeneous:
        return ball, 0.0, 1.0
    middle, radius, norm = window.ball
    with np.errstate(over="ignore", invalid="ignore"):
        ball[0] = (middle - window.shift) / window.scale
        ball[1] = radius / window.scale * (1.0 + 2.0**-50)
        ball[2] = 2.0**-50 * (np.abs(middle) + np.abs(window.shift)) / window.scale
        far = float(max(1.0, np.abs(ball).sum(axis=0).max()))
    return (ball, float(norm), far) if far < FARTHEST else (np.zeros_like(ball), 0.0, 1.0)


def is_empty(
    contacts: Contacts, window: Window, nodes: Nodes, unit: int, side: int, basis: list[int]
) -> bool:
    """Whether no region of the top node lies on a side of a unit, in rational arithmetic."""
    bits = nodes.bits[int(nodes.whole[COUNT]) - 1]
    exact = int(window.net.first[min(int(nodes.whole[EXACT]), int(window.net.shape[1]) - 1) + 1])
    sides = []
    for row in basis:
        owner = int(nodes.owner[row]) if row >= 0 else -1
        if owner >= exact:
            return False  # its form is not that of the unit
        sides.append((row, 2 * owner + int(bits[owner]) if owner >= 0 else -1))
    reach = float(window.scale[0]) if window.homogeneous else None
    return unit < exact and contacts.excludes(
        unit, side, bits, sides, (window.lo, window.hi, reach), bool(bits[unit] == side)
    )

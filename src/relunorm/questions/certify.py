"""`certify`: is the answer the same for every input nearby, and how far does that go?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.bounds.problem import Group
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Interrupts, Listener, Teller
from relunorm.domain import Box, Domain
from relunorm.errors import InvalidInputError
from relunorm.extrema.decide import decide_any
from relunorm.extrema.searched import ROUNDING
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.questions.neighbourhood import attack_all, quick_radius
from relunorm.questions.robustness import Robustness, RowRobustness, RowVerdict
from relunorm.questions.rows import Rows, is_real
from relunorm.search.engine import warm_up
from relunorm.sweep.backends import Placement

#: Doublings of the radius in the search for a first adversarial input.
DOUBLINGS = 60
#: So many of them are attacked at once.
TOGETHER = 12
#: Rows that are attacked together.
ATTACKED = 64
#: Units from which on a search may well end with nothing proved.
MANY_UNITS = 500
#: Why there is no upper end where no range is valid and time is left.
NO_ATTACK = "safe at every radius that was tried"


@accepts("model", domains=("valid",), data="x")
def certify(
    model: Model,
    x: ArrayLike,
    radius: float | ArrayLike | None = None,
    norm: float | str = "inf",
    label: ArrayLike | None = None,
    *,
    scale: ArrayLike | None = None,
    delta: float | None = None,
    valid: Place | None = None,
    time_limit: float | Clock | None = 60.0,
    tolerance: float = 0.01,
    random_state: int = 0,
    progress: Listener | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
) -> Robustness:
    """Whether a network answers the same for every valid input within a radius of given ones.

    With several outputs the answer is the largest one, with one output its sign (class 1 where it
    is positive), and a tie counts as another answer. With ``delta`` the network is a regression,
    whose outputs have to stay within ``delta``.

    ``robust`` is proved in real arithmetic. ``attacked`` comes with an input that lies within the
    radius and the valid range and changes the answer, in real arithmetic too, and in single
    precision where there is such an input beside it.

    Args:
        model: a `Network`, or anything `load` reads.
        x: one input or rows of them, (n, d) or n times the input's own shape.
        radius: how far inputs may move, one number or one for each input; None for the largest safe
            radius of each row, by bisection.
        norm: inf, 2 or 1: how distances are measured.
        label: the right class of each row: its number (with one output also -1 and 1), or its name
            (text, one-hot, or any numbers), matched to the outputs by what the model says of its
            classes, else by asking the rows; ``classes_from`` of the result says which. With
            ``delta`` the right outputs. By default what the model itself says.
        scale: one length for each input, such as its standard deviation, in which radii are
            measured: input i moves by up to ``radius * scale[i]``, and not at all where that is 0.
            For the norm inf. A radius for each input is the radius 1 in the scale of these numbers.
        valid: the range of valid inputs: a box in any form that a domain takes, such as (0, 1);
            neighbourhoods are clipped.
        time_limit: wall seconds for all rows together, compiling not counted; what one row leaves
            over the later ones get, and then those still undecided, the hardest last.
        tolerance: relative width of the interval at which the bisection stops.
        random_state: seed of the attacks.
        progress: called with a `Progress` for each row.
        workers, backend, scheduler: threads, or processes here or on a cluster, that search side by
            side, as for `maximize`.

    A row with NaN, outside the valid range or with a label the model does not have is ``invalid``;
    the others are answered. Ctrl-C ends the work: the rows decided by then are returned, the others
    are ``unknown``, and ``stopped`` says so.

    >>> from relunorm.network import Network
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])  # |x| - 1
    >>> certify(net, [[3.0]], radius=1.5).rows[0].verdict
    'robust'
    >>> low, high = certify(net, [[3.0]]).rows[0].radius
    >>> low <= 2.0 <= high and high - low <= 0.02
    True
    """
    if np.ndim(radius):  # type: ignore[arg-type]
        if scale is not None:
            raise InvalidInputError("a radius for each input has its scale; pass one of the two")
        radius, scale = 1.0, radius
    clock = Clock(time_limit)
    place = Placement(workers, backend, scheduler)
    asked = Rows(model, x, norm, label, delta, valid, scale)
    job = _Job(asked, radius, tolerance, random_state, place)
    tell = Teller(progress, clock)
    tell.compile("the search", warm_up)
    found: dict[int, RowRobustness] = dict(asked.invalid)
    with job.interrupts, place.entered(), suppress(KeyboardInterrupt):
        _answer(job, found, clock, tell)
    stopped = INTERRUPTED if job.interrupts.seen or len(found) < len(asked) else ""
    if stopped and not any(row.decided for row in found.values()):
        raise KeyboardInterrupt  # there is nothing to keep
    if stopped and not clock.expired():  # only shares of the time had run out
        for row, known in found.items():
            if known.reason == TIME_LIMIT:
                found[row] = replace(known, reason=INTERRUPTED)
    rows = tuple(found.get(row) or job.undecided(row, stopped) for row in range(len(asked)))
    names = () if asked.classes is None else asked.classes.names
    source = "" if asked.classes is None else asked.classes.source
    of = job.network.head.of
    units = () if asked.scale is None else tuple(asked.scale.tolist())
    return Robustness(
        rows, asked.norm, job.radius, clock.elapsed(), names, source, of, stopped, units
    )


def _answer(job: _Job, found: dict[int, RowRobustness], clock: Clock, tell: Teller) -> None:
    """Answer one row after the other into ``found``, until an interrupt."""
    for row in job.wrong(clock):
        found[row.row] = row
    rest = [row for row in range(len(job.rows)) if row not in found]
    if job.radius is not None and rest:
        tell("attacking")
        for row in job.attacked(rest, clock):
            found[row.row] = row
        rest = [row for row in rest if row not in found]
    for place, row in enumerate(rest):
        tell("certifying", len(job.rows) - len(rest) + place, len(job.rows), at_once=False)
        if clock.expired():
            found[row] = job.undecided(row, TIME_LIMIT)
        else:
            found[row] = job.answer(row, clock.part(share=1 / (len(rest) - place)))
    # what the others left over is for those that ran out of their share, the hardest last
    late = [row for row in rest if found[row].reason == TIME_LIMIT]
    for place, row in enumerate(sorted(late, key=lambda row: found[row].nodes)):
        if clock.expired():
            break
        tell("certifying", len(job.rows) - len(late) + place, len(job.rows), at_once=False)
        before = found[row]
        seconds = max(clock.left() / (len(late) - place), 2 * before.seconds)
        again = job.answer(row, clock.part(seconds), before)
        effort = before.nodes + again.nodes, before.seconds + again.seconds
        found[row] = replace(again, nodes=effort[0], seconds=effort[1])


class _Job:
    """The rows, and how they are searched."""

    def __init__(
        self, rows: Rows, radius: Any, tolerance: float, random_state: int, place: Placement
    ):
        far = rows.largest_radius()
        if radius is not None and not (is_real(radius) and 0 <= radius <= far):
            raise InvalidInputError(
                f"radius is {radius!r}, expected a number of at least 0 and at most {far:g}"
            )
        if not (is_real(tolerance) and 0 < tolerance < 1):
            raise InvalidInputError(f"tolerance is {tolerance!r}, expected one between 0 and 1")
        self.rows, self.network = rows, rows.network
        self.radius: Any = radius
        self.tolerance, self.random_state, self.place = tolerance, random_state, place
        self.stopped = ""  # why the last search did
        self.interrupts = Interrupts()

    def wrong(self, clock: Clock) -> Iterator[RowRobustness]:
        """Rows whose answer is wrong, or too close to tell, at the input itself."""
        rows = self.rows
        for row, (x, outputs) in enumerate(zip(rows.x, rows.outputs, strict=True)):
            near = -1e-9 * max(1.0, np.abs(outputs).max())
            if row in rows.invalid or rows.wrongness(row, outputs) < near:
                continue
            if clock.expired():
                return
            point = rows.adversarial(row, Box(x, x), x)
            if point is not None:
                yield self._attacked(row, point, correct=False)

    def attacked(self, rows: Sequence[int], clock: Clock) -> Iterator[RowRobustness]:
        """Rows for which one attack on many of them finds an adversarial input."""
        for first in range(0, len(rows), ATTACKED):
            some = rows[first : first + ATTACKED]
            places = [self.rows.around(row, self.radius).inner for row in some]
            groups = [self.rows.groups[row] for row in some]
            for row, point in self._attack(some, places, groups, clock):
                yield self._attacked(row, point)
            if clock.expired():
                return

    def _attack(
        self,
        rows: Sequence[int],
        places: Sequence[Domain],
        groups: Sequence[Sequence[Group]],
        clock: Clock,
    ) -> Iterator[tuple[int, Vector]]:
        """The rows, each in its place, for which one attack on all finds an adversarial input."""
        points = attack_all(self.network, places, groups, self.random_state, clock)
        late = False
        for row, place, point in zip(rows, places, points, strict=True):
            if self.rows.wrongness(row, self.network(point)) >= 0.0:
                if late:
                    return
                late = clock.expired()  # of what was found by then, one more is made certain
                sure = self.rows.adversarial(row, place, point)
                if sure is not None:
                    yield row, sure

    def _attacked(
        self, row: int, point: Vector, *, correct: bool = True, **more: Any
    ) -> RowRobustness:
        far = self.rows.distance(row, point)
        with np.errstate(over="ignore"):
            single = bool(np.array_equal(point, point.astype(np.float32).astype(np.float64)))
        low = more.pop("low", 0.0)
        return RowRobustness(
            row, "attacked", self.rows.label(row), correct, (low, far), point, self.network(point),
            single, **more,
        )  # fmt: skip

    def answer(self, row: int, clock: Clock, before: RowRobustness | None = None) -> RowRobustness:
        """What is found of a row in the time of the clock, after what was found ``before``."""
        if self.interrupts.seen:  # a search that was under way has caught it
            raise KeyboardInterrupt
        return self.largest(row, clock, before) if self.radius is None else self.at(row, clock)

    def undecided(self, row: int, reason: str, low: float = 0.0, **effort: Any) -> RowRobustness:
        """The row where nothing more is known than that it is safe up to ``low``."""
        ends, label = (low, math.inf), self.rows.label(row)
        return RowRobustness(row, "unknown", label, True, ends, reason=reason, **effort)

    def _why(self, clock: Clock) -> str:
        """Why the last search, on this clock, found nothing."""
        if self.interrupts.seen:
            return INTERRUPTED
        return TIME_LIMIT if clock.expired() else self.stopped or ROUNDING

    def at(self, row: int, clock: Clock) -> RowRobustness:
        """The verdict at the radius asked for."""
        verdict, point, nodes = self._decide(row, self.radius, clock)
        effort = {"nodes": nodes, "seconds": clock.elapsed()}
        if verdict == "attacked" and point is not None:
            return self._attacked(row, point, **effort)
        if verdict == "unknown":
            return self.undecided(row, self._why(clock), **effort)
        ends = self.radius, math.inf
        return RowRobustness(row, "robust", self.rows.label(row), True, ends, **effort)

    def _decide(
        self, row: int, radius: float, clock: Clock
    ) -> tuple[RowVerdict, Vector | None, int]:
        place = self.rows.around(row, radius)
        found = decide_any(
            self.network, place.outer, self.rows.groups[row], clock, self.random_state, None,
            self.place, 0,
        )  # fmt: skip
        self.stopped = found.stopped
        if found.verdict == "proved":
            return "robust", None, found.nodes
        if found.verdict == "counterexample":
            point = self.rows.adversarial(row, place.inner, found.point)
            if point is not None:
                return "attacked", point, found.nodes
        return "unknown", None, found.nodes

    def largest(self, row: int, clock: Clock, before: RowRobustness | None = None) -> RowRobustness:
        """The largest safe radius, between what is proved and what is attacked.

        Every adversarial input moves the upper end to its distance, every proof the lower end.
        """
        nodes = 0
        if before is None and clock.expired():
            return self.undecided(row, TIME_LIMIT)
        if before is not None and before.adversarial is not None:
            point, high, everything = before.adversarial, before.radius[1], self.rows.reach(row)
        else:
            point, high, everything = self._first_attack(row, clock)
        known = 0.0 if before is None else before.radius[0]
        low, undecided, why = known or self._quick(row, high, clock), math.inf, TIME_LIMIT
        guess = high if point is None else 0.5 * (low + high)
        while not clock.expired() and not self.interrupts.seen:
            part = clock.part(share=0.5)
            verdict, found, more = self._decide(row, guess, part)
            nodes += more
            if verdict == "attacked" and found is not None:
                point, high = found, min(guess, self.rows.distance(row, found))
            elif verdict == "robust":
                low = math.inf if guess >= everything else guess
                why = NO_ATTACK if low == high else why
            else:  # what is below may still be proved
                undecided, why = guess, self._why(part)
            top = min(high, undecided)
            if top - low <= self.tolerance * top or low == high:
                break
            guess = 0.5 * (low + top)
        effort = {"nodes": nodes, "seconds": clock.elapsed()}
        if point is not None:
            closed = high - low <= self.tolerance * high
            why = INTERRUPTED if self.interrupts.seen else TIME_LIMIT if clock.expired() else why
            return self._attacked(row, point, low=low, reason="" if closed else why, **effort)
        if low < math.inf:
            return self.undecided(row, why, low, **effort)
        return RowRobustness(row, "robust", self.rows.label(row), True, (low, low), **effort)

    def _quick(self, row: int, most: float, clock: Clock) -> float:
        """A safe radius that linear bounds alone prove; 0 where they prove none.

        Small networks do without: searching them takes no longer.
        """
        if self.network.units < MANY_UNITS or not math.isfinite(most):
            return 0.0
        part, groups = clock.part(share=0.3), self.rows.groups[row]
        return quick_radius(
            self.network, groups, lambda radius: self.rows.around(row, radius).outer, most, part
        )

    def _first_attack(self, row: int, clock: Clock) -> tuple[Vector | None, float, float]:
        """An adversarial input from the smallest of doubling radii that gives one, and how far.

        Also the radius that reaches every valid input.
        """
        rows, everything = self.rows, self.rows.reach(row)
        limit = min(everything, rows.largest_radius())
        sizes = np.abs(rows.x[row])
        if rows.scale is not None:
            sizes = sizes[rows.scale > 0] / rows.scale[rows.scale > 0]
        radius = min(max(1e-3 * float(sizes.max(initial=0.0)), 1e-6), limit)
        for _ in range(DOUBLINGS // TOGETHER):
            radii = [min(radius * 2.0**k, limit) for k in range(TOGETHER)]
            places = [rows.around(row, r).inner for r in radii]
            groups = [rows.groups[row]] * TOGETHER
            for _, point in self._attack([row] * TOGETHER, places, groups, clock):
                return point, rows.distance(row, point), everything
            radius = radii[-1]
            if radius >= limit or clock.expired():
                break
            radius = min(2.0 * radius, limit)
        return None, radius, everything

"""`certify`: is the answer the same for every input nearby, and how far does that go?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Interrupts, Listener, Teller
from relunorm.domain import Box, Domain
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.extrema.maximize import checked, decide_any
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.questions.classes import Classes, label_numbers
from relunorm.questions.neighbourhood import (
    Group,
    attack_all,
    distance,
    neighbourhood,
    wrong_outputs,
)
from relunorm.questions.quick_radius import quick_radius
from relunorm.questions.robustness import Robustness, RowRobustness, RowVerdict
from relunorm.search.engine import warm_up
from relunorm.sweep.ambient import Placement

Array = NDArray[np.float64]

#: Doublings of the radius in the search for a first adversarial input.
DOUBLINGS = 60
#: So many of them are attacked at once.
TOGETHER = 12
#: Rows that are attacked together.
ATTACKED = 64
#: Units from which on a search may well end with nothing proved.
MANY_UNITS = 500
#: Why a search can end without an answer before its time is up.
ROUNDING = "too close to another answer for the rounding of float64"


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
        time_limit: wall seconds for all rows together; what one row leaves over the later ones
            get, and then the rows that were still undecided, the hardest last.
        tolerance: relative width of the interval at which the bisection stops.
        random_state: seed of the attacks.
        progress: called with a `Progress` for each row.
        workers, backend, scheduler: threads, or processes here or on a cluster, that search side by
            side, as for `maximize`.

    A row with NaN, outside the valid range or with a label the model does not have is ``invalid``;
    the others are answered. Ctrl-C ends the work: the rows decided by then are returned, the others
    are ``unknown``, and ``stopped`` says so.

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
    place = Placement(workers, backend, scheduler)
    job = _Job(model, x, radius, norm, label, delta, valid, tolerance, random_state, place, scale)
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    tell.compile("the search", warm_up)
    found: dict[int, RowRobustness] = dict(job.invalid)
    with job.interrupts, place.entered(), suppress(KeyboardInterrupt):
        _answer(job, found, clock, tell)
    stopped = INTERRUPTED if job.interrupts.seen or len(found) < len(job.x) else ""
    if stopped and not any(row.decided for row in found.values()):
        raise KeyboardInterrupt  # there is nothing to keep
    rows = tuple(found.get(row) or job.undecided(row, stopped) for row in range(len(job.x)))
    names = () if job.classes is None else job.classes.names
    source = "" if job.classes is None else job.classes.source
    of = job.network.head.of
    units = () if job.scale is None else tuple(job.scale.tolist())
    return Robustness(
        rows, job.norm, job.radius, clock.elapsed(), names, source, of, stopped, units
    )


def _answer(job: _Job, found: dict[int, RowRobustness], clock: Clock, tell: Teller) -> None:
    """Answer one row after the other into ``found``, until an interrupt."""
    for row in job.wrong(clock):
        found[row.row] = row
    rest = [row for row in range(len(job.x)) if row not in found]
    if job.radius is not None and rest:
        tell("attacking")
        for row in job.attacked(rest, clock):
            found[row.row] = row
        rest = [row for row in rest if row not in found]
    for place, row in enumerate(rest):
        tell("certifying", len(job.x) - len(rest) + place, len(job.x), at_once=False)
        if clock.expired():
            found[row] = job.undecided(row, TIME_LIMIT)
        else:
            found[row] = job.answer(row, clock.part(share=1 / (len(rest) - place)))
    # what the others left over is for those that ran out of their share, the hardest last
    late = [row for row in rest if found[row].reason == TIME_LIMIT]
    for place, row in enumerate(sorted(late, key=lambda row: found[row].nodes)):
        if clock.expired():
            break
        tell("certifying", len(job.x) - len(late) + place, len(job.x), at_once=False)
        before = found[row]
        share = max(1 / (len(late) - place), min(1.0, 2 * before.seconds / clock.left()))
        again = job.answer(row, clock.part(share=share))
        better = again.verdict != "unknown" or again.radius[0] >= before.radius[0]
        effort = before.nodes + again.nodes, before.seconds + again.seconds
        found[row] = replace(again if better else before, nodes=effort[0], seconds=effort[1])


class _Job:
    """The rows with their goals, checked."""

    def __init__(
        self,
        network: Network,
        x: ArrayLike,
        radius: Any,
        norm: float | str,
        label: ArrayLike | None,
        delta: float | None,
        valid: Domain | None,
        tolerance: float,
        random_state: int,
        place: Placement,
        scale: ArrayLike | None,
    ):
        self.network, self.delta, self.tolerance = network, delta, tolerance
        self.random_state, self.place = random_state, place
        self.stopped = ""  # why the last search did
        self.interrupts = Interrupts()
        self.x = _rows(network, x)
        self.norm = _norm(norm)
        self.scale = None if scale is None else _scale(scale, network.input_size, self.norm)
        self.radius: float | None = radius
        if radius is not None and not (_real(radius) and 0 <= radius < math.inf):
            raise InvalidInputError(f"radius is {radius!r}, expected a number of at least 0")
        if delta is not None and not (_real(delta) and 0 < delta < math.inf):
            raise InvalidInputError(f"delta is {delta!r}, expected a number above 0")
        if not (_real(tolerance) and 0 < tolerance < 1):
            raise InvalidInputError(f"tolerance is {tolerance!r}, expected one between 0 and 1")
        self.valid = _valid(valid)
        self.invalid: dict[int, RowRobustness] = {}
        for row, values in enumerate(self.x):
            if reason := self._fault(values):
                self.invalid[row] = RowRobustness(row, "invalid", reason=f"row {row}: {reason}")
        finite = np.isfinite(self.x).all(axis=1, keepdims=True)
        usable = np.where(finite, self.x, 0.0)
        self.outputs = network(usable)
        self.classes: Classes | None = None
        if delta is None and not network.head.decides_plainly(self.outputs.shape[1]):
            raise InvalidInputError(
                f"a model that ends in {network.head.label} does not decide by its largest output, "
                "or by the sign of one; ask about what comes before with network.without_head(), "
                "or pass delta for how far outputs may move"
            )
        self.labels = self._labels(label)
        rows = range(len(self.x))
        self.groups: list[list[Group]] = [self._goals(row, surely=False) for row in rows]
        self.surely: list[list[Group]] = [self._goals(row, surely=True) for row in rows]

    def _fault(self, values: Vector) -> str:
        """What is wrong with an input, or nothing."""
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            return f"input {bad[0]} is {values[bad[0]]}, expected a finite number"
        if self.valid is None:
            return ""
        out = np.flatnonzero((values < self.valid.lo) | (values > self.valid.hi))
        if not len(out):
            return ""
        i = int(out[0])
        return (
            f"input {i} is {values[i]:g}, outside of the valid range "
            f"[{self.valid.lo[i]:g}, {self.valid.hi[i]:g}]"
        )

    def _labels(self, label: Any) -> Array:
        """The class of every row, or its outputs for a regression; marks rows without."""
        n, count = self.outputs.shape
        if label is None:
            if self.delta is not None:
                return self.outputs
            if count > 1 and [step.kind for step in self.network.head.steps[:1]] == ["sigmoid"]:
                raise InvalidInputError(
                    f"the model ends in a sigmoid on each of {count} outputs and may give several "
                    "answers at once; pass label, the class of each row, if the largest output is "
                    "its answer, or delta for how far outputs may move"
                )
            own = self.outputs.argmax(axis=1) if count > 1 else self.outputs[:, 0] > 0
            return own.astype(np.float64)
        told = np.atleast_1d(np.asarray(label))
        if self.delta is None:
            label, self.classes = label_numbers(label, self.network.head, self.outputs)
        given = np.atleast_1d(np.asarray(label, dtype=np.float64))
        if self.delta is not None:
            if given.size != n * count:
                raise InvalidInputError(
                    f"label has shape {np.shape(label)}, expected ({n}, {count}): outputs"
                )
            given = given.reshape(n, count)
            for row in np.flatnonzero(~np.isfinite(given).all(axis=1)).tolist():
                reason = f"row {row}: the right output is not a finite number"
                self.invalid.setdefault(row, RowRobustness(row, "invalid", reason=reason))
            return np.nan_to_num(given)
        if given.shape != (n,):
            raise InvalidInputError(
                f"label has shape {np.shape(label)}, expected ({n},): one class for each row"
            )
        classes = max(count, 2)
        named = f"0 to {classes - 1}"
        if self.classes is not None and self.classes.source == "model":
            named = ", ".join(self.classes.names)
        for row in np.flatnonzero(~np.isin(given, np.arange(classes))).tolist():
            shown = f"{told[row]:g}" if told.dtype.kind in "fiub" else repr(str(told[row]))
            reason = f"row {row}: label {shown}, but the model has classes {named}"
            self.invalid.setdefault(row, RowRobustness(row, "invalid", reason=reason))
        return np.where(np.isin(given, np.arange(classes)), given, 0.0)

    def _goals(self, row: int, *, surely: bool) -> list[Group]:
        label = None if self.delta is not None else int(self.labels[row])
        value = self.outputs[row] if self.delta is None else self.labels[row]
        return wrong_outputs(self.network, label, value, self.delta, surely=surely)

    def _label(self, row: int) -> int | None:
        return None if self.delta is not None else int(self.labels[row])

    def wrong(self, clock: Clock) -> Iterator[RowRobustness]:
        """Rows whose answer is wrong, or too close to tell, at the input itself."""
        for row in range(len(self.x)):
            nearest = max(float((b - A @ self.outputs[row]).min()) for A, b in self.groups[row])
            if row in self.invalid or nearest < -1e-9 * max(1.0, np.abs(self.outputs[row]).max()):
                continue
            if clock.expired():
                return
            point = checked(
                self.network, self.surely[row], Box(self.x[row], self.x[row]), self.x[row]
            )
            if point is not None and point[1] >= 0.0:
                yield self._attacked(row, point[0], correct=False)

    def attacked(self, rows: Sequence[int], clock: Clock) -> Iterator[RowRobustness]:
        """Rows for which one attack on many of them finds an adversarial input."""
        for first in range(0, len(rows), ATTACKED):
            yield from self._attack(rows[first : first + ATTACKED], clock)

    def _attack(self, rows: Sequence[int], clock: Clock) -> Iterator[RowRobustness]:
        assert self.radius is not None
        if clock.expired():
            return
        places = [
            neighbourhood(self.x[r], self.radius, self.norm, self.valid, self.scale) for r in rows
        ]
        points = attack_all(
            self.network,
            [p.inner for p in places],
            [self.groups[r] for r in rows],
            self.random_state,
        )
        for row, place, point in zip(rows, places, points, strict=True):
            if clock.expired():
                return
            value = max(float((b - A @ self.network(point)).min()) for A, b in self.groups[row])
            if value >= 0.0:
                sure = checked(self.network, self.surely[row], place.inner, point)
                if sure is not None and sure[1] >= 0.0:
                    yield self._attacked(row, sure[0])

    def _attacked(
        self, row: int, point: Vector, *, correct: bool = True, **more: Any
    ) -> RowRobustness:
        far = distance(self.x[row], point, self.norm, self.scale)
        single = bool(np.array_equal(point, point.astype(np.float32).astype(np.float64)))
        low = more.pop("low", 0.0)
        return RowRobustness(
            row, "attacked", self._label(row), correct, (low, far), point, self.network(point),
            single, **more,
        )  # fmt: skip

    def answer(self, row: int, clock: Clock) -> RowRobustness:
        """What is found of a row in the time of the clock."""
        if self.interrupts.seen:  # a search that was under way has caught it
            raise KeyboardInterrupt
        return self.largest(row, clock) if self.radius is None else self.at(row, clock)

    def undecided(self, row: int, reason: str, low: float = 0.0, **effort: Any) -> RowRobustness:
        """The row where nothing more is known than that it is safe up to ``low``."""
        ends, label = (low, math.inf), self._label(row)
        return RowRobustness(row, "unknown", label, True, ends, reason=reason, **effort)

    def _why(self, clock: Clock) -> str:
        """Why the last search, on this clock, found nothing."""
        if self.interrupts.seen:
            return INTERRUPTED
        return TIME_LIMIT if clock.expired() else self.stopped or ROUNDING

    def at(self, row: int, clock: Clock) -> RowRobustness:
        """The verdict at the radius asked for."""
        assert self.radius is not None
        verdict, point, nodes = self._decide(row, self.radius, clock, attacks=0)
        effort = {"nodes": nodes, "seconds": clock.elapsed()}
        if verdict == "attacked" and point is not None:
            return self._attacked(row, point, **effort)
        if verdict == "unknown":
            return self.undecided(row, self._why(clock), **effort)
        ends = self.radius, math.inf
        return RowRobustness(row, "robust", self._label(row), True, ends, **effort)

    def _decide(
        self, row: int, radius: float, clock: Clock, attacks: int
    ) -> tuple[RowVerdict, Vector | None, int]:
        place = neighbourhood(self.x[row], radius, self.norm, self.valid, self.scale)
        found = decide_any(
            self.network, place.outer, self.groups[row], clock, self.random_state, None,
            self.place, attacks,
        )  # fmt: skip
        self.stopped = found.stopped
        if found.verdict == "proved":
            return "robust", None, found.nodes
        if found.verdict == "counterexample":
            sure = checked(self.network, self.surely[row], place.inner, found.point)
            if sure is not None and sure[1] >= 0.0:
                return "attacked", sure[0], found.nodes
        return "unknown", None, found.nodes

    def largest(self, row: int, clock: Clock) -> RowRobustness:
        """The largest safe radius, between what is proved and what is attacked.

        Every adversarial input moves the upper end to its distance, every proof the lower end.
        """
        nodes = 0
        if clock.expired():
            return self.undecided(row, TIME_LIMIT)
        point, high, everything = self._first_attack(row, clock)
        low, undecided, why = self._quick(row, high, clock), math.inf, TIME_LIMIT
        guess = high if point is None else 0.5 * (low + high)
        while not clock.expired() and not self.interrupts.seen:
            part = clock.part(share=0.5)
            verdict, found, more = self._decide(row, guess, part, attacks=0)
            nodes += more
            if verdict == "attacked" and found is not None:
                far = distance(self.x[row], found, self.norm, self.scale)
                point, high = found, min(guess, far)
            elif verdict == "robust":
                low = math.inf if guess >= everything else guess
            else:  # what is below may still be proved
                undecided, why = guess, self._why(part)
            top = min(high, undecided)
            if top - low <= self.tolerance * top or low == high:
                break
            guess = 0.5 * (low + top)
        effort = {"nodes": nodes, "seconds": clock.elapsed()}
        if point is not None:
            return self._attacked(row, point, low=low, **effort)
        if low < math.inf:
            return self.undecided(row, why, low, **effort)
        return RowRobustness(row, "robust", self._label(row), True, (low, low), **effort)

    def _quick(self, row: int, most: float, clock: Clock) -> float:
        """A safe radius that linear bounds alone prove; 0 where they prove none.

        Small networks do without: searching them takes no longer.
        """
        if self.network.units < MANY_UNITS or not math.isfinite(most):
            return 0.0

        def around(radius: float) -> Domain:
            return neighbourhood(self.x[row], radius, self.norm, self.valid, self.scale).outer

        return quick_radius(self.network, self.groups[row], around, most, clock.part(share=0.3))

    def _first_attack(self, row: int, clock: Clock) -> tuple[Vector | None, float, float]:
        """An adversarial input from the smallest of doubling radii that gives one, and how far.

        Also the radius that reaches every valid input.
        """
        x, groups, surely = self.x[row], self.groups[row], self.surely[row]
        sizes = np.abs(x)
        if self.scale is not None:
            sizes = sizes[self.scale > 0] / self.scale[self.scale > 0]
        size = max(1e-3 * float(sizes.max(initial=0.0)), 1e-6)
        limit = math.inf
        if self.valid is not None:
            limit = distance_to_corner(x, self.valid, self.norm, self.scale)
        radius = min(size, limit)
        for _ in range(DOUBLINGS // TOGETHER):
            radii = [min(radius * 2.0**k, limit) for k in range(TOGETHER)]
            places = [neighbourhood(x, r, self.norm, self.valid, self.scale).inner for r in radii]
            points = attack_all(self.network, places, [groups] * TOGETHER, self.random_state)
            for place, point in zip(places, points, strict=True):
                value = max(float((b - A @ self.network(point)).min()) for A, b in groups)
                sure = checked(self.network, surely, place, point) if value >= 0.0 else None
                if sure is not None and sure[1] >= 0.0:
                    return sure[0], distance(x, sure[0], self.norm, self.scale), limit
            radius = radii[-1]
            if radius >= limit or clock.expired():
                break
            radius = min(2.0 * radius, limit)
        return None, radius, limit


def distance_to_corner(x: Vector, box: Box, norm: float, scale: Vector | None = None) -> float:
    """How far the furthest point of a box is from x, rounded up."""
    corner = np.where(box.hi - x > x - box.lo, box.hi, box.lo)
    return distance(x, corner, norm, scale) * (1 + 1e-12)


def _rows(network: Network, x: ArrayLike) -> Array:
    try:
        given = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"x is not an array of numbers: {error}") from None
    if given.ndim == 1 and given.shape == (network.input_size,):
        given = given[None]
    rows = given.reshape(len(given), -1) if given.ndim > 1 and given.size else given
    if rows.ndim != 2 or rows.shape[1] != network.input_size:
        raise InvalidInputError(
            f"x has shape {np.shape(x)}, expected rows of {network.input_size} inputs"
        )
    return rows


def _norm(norm: float | str) -> float:
    known = {"inf": math.inf, "2": 2.0, "1": 1.0}
    found = known.get(str(norm).lower().removesuffix(".0"))
    if found is None:
        raise InvalidInputError(f"norm is {norm!r}, expected inf, 2 or 1")
    return found


def _scale(scale: ArrayLike, inputs: int, norm: float) -> Vector:
    try:
        given = np.asarray(scale, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"scale is not an array of numbers: {error}") from None
    if len(given) != inputs or not (np.isfinite(given) & (given >= 0)).all() or not given.any():
        raise InvalidInputError(
            f"a radius or a scale for each input is {inputs} numbers of at least 0, not all of "
            f"them 0; given are {len(given)}"
        )
    if norm != math.inf:
        raise InvalidInputError("a radius or a scale for each input needs the norm inf")
    return given


def _valid(valid: Domain | None) -> Box | None:
    box = None if valid is None else valid.as_box
    if valid is not None and box is None:
        raise InvalidDomainError(f"valid is {valid!r}, expected a box")
    return box


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)

"""Maxima of small networks in rational arithmetic: no rounding anywhere, ties included.

The signs of the units are decided one after the other, layer by layer, on a polytope of inputs.
Where every unit before an affine map has a sign, the map is linear there, and one linear programme
in fractions says which of its units can change sign. A part is left out when a bound on what it can
reach, a backward linear bound in fractions (lines through the ends of each unit's range, maximised
over the part by another programme), is not above the best value found. A programme is guessed in
floats and then finished by a dual simplex in fractions, which as a rule has nothing left to do.

Cost: exponential in the units that change sign, some milliseconds a part. It serves networks of a
few dozen units and a few inputs, and to settle what floats leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic.certain import exact_output
from relunorm.arithmetic.dyadic import Objects, fractions, objects
from relunorm.bounds.layers.exact import exact_bound
from relunorm.bounds.problem import Group
from relunorm.bounds.relaxation import Kink
from relunorm.clock import Clock
from relunorm.domain import Box, Domain
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector
from relunorm.network import Affine, Network
from relunorm.search.rational.programme import ONE, ZERO, Form, Place, Row, combined, dot, solve


@dataclass(frozen=True)
class Found:
    """The largest value of some group of goals and a point that has it; None on an empty domain.

    ``parts`` counts the polytopes looked at, ``complete`` is False where a limit ended it.
    """

    value: Fraction | None
    point: tuple[Fraction, ...]
    parts: int
    complete: bool


def largest(
    network: Network,
    domain: Domain,
    groups: Sequence[Group],
    clock: Clock,
    target: Fraction | None = None,
    start: Vector | None = None,
    parts: int | None = None,
) -> Found:
    """The maximum over a domain of the largest of min_i (b - A f)_i, one for every group (A, b).

    Args:
        domain: a box or a polytope.
        target: a value that ends the search when it is reached.
        start: a point of the domain, as good as one is known.
        parts: give up after this many.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[0.1, 0.1]]])  # 0.1 |x|
    >>> found = largest(net, Box([-3.0], [2.0]), [(-np.eye(1), np.zeros(1))], Clock(None))
    >>> found.value == 3 * Fraction(0.1)
    True
    """
    search = _Search(network, groups, clock, target, parts)
    if start is not None:
        search.offer(start)
    place = place_of(domain)
    forms = [[_unit(place, k) for k in range(len(place.lo))]]
    complete = search.reached or search.explore(place, forms)
    return Found(search.best, search.point, search.parts, complete)


def place_of(domain: Domain) -> Place:
    """A domain with flat sides, as it is."""
    if not domain.flat_sided:
        raise InvalidDomainError(
            f"{domain!r} has curved sides; rational arithmetic needs a Box or a Polytope"
        )
    A, b = domain.half_spaces
    rows, rhs = [fractions(row).tolist() for row in A], fractions(b).tolist()
    if domain.only_rows:
        return _bounded(rows, rhs, domain.bounding_box)
    lo, hi = domain.outer_ends()
    return Place(fractions(lo).tolist(), fractions(hi).tolist(), tuple(rows), tuple(rhs))


def _bounded(rows: list[Row], rhs: Row, box: Box) -> Place:
    """A polytope with the box around it, which floats guess: a wider one must not touch it."""
    lo, hi = fractions(box.lo).tolist(), fractions(box.hi).tolist()
    wide = [abs(a) + abs(b) + 1 for a, b in zip(lo, hi, strict=True)]
    lo = [a - w for a, w in zip(lo, wide, strict=True)]
    hi = [b + w for b, w in zip(hi, wide, strict=True)]
    place = Place(lo, hi, tuple(rows), tuple(rhs))
    ends: list[Row] = []
    for sign in (-1, 1):
        side = []
        for k in range(len(lo)):
            found = solve([Fraction(sign * (i == k)) for i in range(len(lo))], place)
            if found is None:
                return place  # empty
            side.append(sign * found[0])
        ends.append(side)
    if any(a <= b for a, b in zip(ends[0], lo, strict=True)) or any(
        a >= b for a, b in zip(ends[1], hi, strict=True)
    ):
        raise InvalidDomainError(
            "the polytope is not bounded by the box that floats find around it"
        )
    return Place(ends[0], ends[1], place.rows, place.rhs)


class _Search:
    """Depth first over the signs of units; keeps the best value and its point."""

    def __init__(
        self,
        network: Network,
        groups: Sequence[Group],
        clock: Clock,
        target: Fraction | None,
        most: int | None,
    ):
        network.check_continuous("a maximum may not exist")
        self.network, self.clock, self.target, self.most = network, clock, target, most
        self.maps = tuple(network.maps)
        self.entries = [_entries(affine) for affine in self.maps]
        self.kinks = [Kink.of(layer.activation).exact for layer in network.layers]
        self.goals = [
            [
                (fractions(-row).tolist(), Fraction(float(end)))
                for row, end in zip(A, b, strict=True)
            ]
            for A, b in groups
        ]
        self.best: Fraction | None = None
        self.point: tuple[Fraction, ...] = ()
        self.parts = 0

    @property
    def reached(self) -> bool:
        return self.target is not None and self.best is not None and self.best >= self.target

    def offer(self, point: Vector) -> None:
        """Begin with the value at a point."""
        outputs = exact_output(self.network, point)
        values = (min(dot(row, outputs) + end for row, end in goals) for goals in self.goals)
        self.best, self.point = max(values), tuple(fractions(point))

    def explore(self, place: Place, forms: list[list[Form]]) -> bool:
        """Look at a part whose first values are known as forms of the input; False if stopped."""
        if self.clock.expired() or self.parts == self.most:
            return False
        self.parts += 1
        while len(forms) <= len(self.network.layers):
            index = len(forms) - 1
            z = _pulled(self.entries[index], forms)
            if not self.network.layers[index].has_units:
                forms = [*forms, z]
                continue
            ends = self._ranges(place, z)
            if ends is None:
                return True  # no input is left
            bent = [j for j, (low, high) in enumerate(ends) if low < 0 < high]
            if bent:
                if not self._promising(place, forms, ends):
                    return True
                j = max(bent, key=lambda i: min(-ends[i][0], ends[i][1]))
                minus = [-w for w in z[j].row]
                sides = [place.cut(z[j].row, -z[j].const), place.cut(minus, z[j].const)]
                if ends[j][1] > -ends[j][0]:
                    sides.reverse()
                return all(self.reached or self.explore(side, forms) for side in sides)
            below = self.kinks[index].below
            forms = [*forms, [_bent(f, below, low) for f, (low, _) in zip(z, ends, strict=True)]]
        self._finish(place, _pulled(self.entries[-1], forms))
        return True

    def _ranges(self, place: Place, z: list[Form]) -> list[tuple[Fraction, Fraction]] | None:
        """Ranges of forms over a part, as sharp as their signs ask; None if the part is empty."""
        ends = []
        for form in z:
            low, high = place.outer(form)
            if low < 0 < high and place.rows:
                top = solve(form.row, place)
                bottom = solve([-w for w in form.row], place)
                if top is None or bottom is None:
                    return None
                low, high = form.const - bottom[0], form.const + top[0]
            ends.append((low, high))
        return ends

    def _promising(
        self, place: Place, forms: list[list[Form]], ends: list[tuple[Fraction, Fraction]]
    ) -> bool:
        """Whether some group may rise above the best value on a part."""
        if self.best is None:
            return solve([ZERO] * len(place.lo), place) is not None
        boxes = self._boxes(place, forms, ends)
        for goals in self.goals:
            low_enough = False
            for row, end in goals:
                form = self._above(row, forms, boxes)
                top = solve(form.row, place)
                if top is None:
                    return False
                if form.const + end + top[0] <= self.best:
                    low_enough = True
                    break
            if not low_enough:
                return True
        return False

    def _boxes(
        self, place: Place, forms: list[list[Form]], ends: list[tuple[Fraction, Fraction]]
    ) -> list[tuple[Objects, Objects]]:
        """Ranges of pre-activations from the first open layer on, by intervals."""
        values = [[place.outer(form) for form in layer] for layer in forms]
        found = [ends]
        for index in range(len(forms) - 1, len(self.network.layers)):
            if index >= len(forms):
                found.append(_interval(self.entries[index], values))
            values.append([_image(self.kinks[index], low, high) for low, high in found[-1]])
        return [(objects([a for a, _ in layer]), objects([b for _, b in layer])) for layer in found]

    def _above(
        self, row: Row, forms: list[list[Form]], ends: list[tuple[Objects, Objects]]
    ) -> Form:
        """A form of the input that is nowhere below a goal, given the ranges of its units."""
        bound = exact_bound(self.maps, self.kinks, ends, row)
        on = bound.on.items()
        weights = (pair for k, some in on for pair in zip(some, forms[k], strict=True))
        return combined(weights, bound.value, len(forms[0]))

    def _finish(self, place: Place, outputs: list[Form]) -> None:
        """A part on which the network is affine: one programme a group."""
        for goals in self.goals:
            size = len(place.lo)
            forms = [combined(zip(row, outputs, strict=True), end, size) for row, end in goals]
            found = _least(forms, place)
            if found is not None and (self.best is None or found[0] > self.best):
                self.best, self.point = found[0], tuple(found[1])


def _least(forms: list[Form], place: Place) -> tuple[Fraction, Row] | None:
    """The maximum of the smallest of some forms over a place."""
    if len(forms) == 1:
        found = solve(forms[0].row, place)
        return None if found is None else (found[0] + forms[0].const, found[1])
    ends = [place.outer(form) for form in forms]
    rows = [[*row, ZERO] for row in place.rows]
    rhs = list(place.rhs)
    for form in forms:  # t <= form
        rows.append([*(-w for w in form.row), ONE])
        rhs.append(form.const)
    wide = Place(
        [*place.lo, min(low for low, _ in ends) - 1],
        [*place.hi, max(high for _, high in ends) + 1],
        tuple(rows),
        tuple(rhs),
    )
    found = solve([*([ZERO] * len(place.lo)), ONE], wide)
    return None if found is None else (found[0], found[1][:-1])


def _image(kink: Kink, low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """Range of a unit over an interval."""
    values = [z * (kink.above if z > 0 else kink.below) for z in (low, high)]
    if low < 0 < high:
        values.append(ZERO)
    return min(values), max(values)


def _bent(form: Form, slope: Fraction, low: Fraction) -> Form:
    """A unit that keeps its sign."""
    return form if low >= 0 else form.times(slope)


Entries = tuple[list[dict[int, list[tuple[int, Fraction]]]], Row]


def _entries(affine: Affine) -> Entries:
    """An affine map: for every row the entries that are not 0, by source; the bias."""
    rows: list[dict[int, list[tuple[int, Fraction]]]] = [{} for _ in affine.bias]
    for source, matrix in affine.terms.items():
        dense = mx.dense(matrix)
        for j, k in zip(*np.nonzero(dense), strict=True):
            rows[j].setdefault(source, []).append((int(k), Fraction(float(dense[j, k]))))
    return rows, fractions(affine.bias).tolist()


def _pulled(entries: Entries, forms: list[list[Form]]) -> list[Form]:
    """An affine map of forms."""
    found = []
    for terms, const in zip(*entries, strict=True):
        weights = ((w, forms[source][k]) for source, some in terms.items() for k, w in some)
        found.append(combined(weights, const, len(forms[0])))
    return found


def _interval(
    entries: Entries, values: list[list[tuple[Fraction, Fraction]]]
) -> list[tuple[Fraction, Fraction]]:
    """An affine map of intervals."""
    found = []
    for terms, const in zip(*entries, strict=True):
        low = high = const
        for source, some in terms.items():
            for k, w in some:
                a, b = values[source][k]
                low, high = low + w * (a if w > 0 else b), high + w * (b if w > 0 else a)
        found.append((low, high))
    return found


def _unit(place: Place, k: int) -> Form:
    return Form([ONE if i == k else ZERO for i in range(len(place.lo))], ZERO)

"""How far a program can be from the network it was made from, over a box of inputs.

Let v be the values of the network in real arithmetic and v + d those of the program. The program
multiplies by V = W + D where the network has W, so that its pre-activation z + e obeys

    e = V d + D v + (c - b) + t,        d' = act(z + e) - act(z) + r,

t and r being what the program rounds before and after the activation: a pair of networks, one of
which rounds. The backward bounds of such pairs (`relunorm.bounds.pairs.linear`) are tightened here
by intervals, by norms (`euclidean`) and by what is known of the program's numbers, layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import rounded_down, rounded_up, slack
from relunorm.bounds.intervals import interval_bounds, signed_parts
from relunorm.bounds.linear import linear_upper
from relunorm.bounds.pairs.linear import Ends, LayerBounds, PairedBounds, largest
from relunorm.bounds.pairs.pair import PairedMap
from relunorm.bounds.problem import Bounds, Problem
from relunorm.embedded.proof.euclidean import Norms
from relunorm.lipschitz.norms import operator_norm
from relunorm.matrix import Vector
from relunorm.network.layer import Affine

Array = NDArray[np.float64]


class Rounding(ABC):
    """What the difference needs to know of a program besides its weights: what it rounds."""

    @property
    @abstractmethod
    def input_error(self) -> Vector:
        """How far an input can be from the number it stands for."""

    @abstractmethod
    def before(self, index: int, spans: list[Vector]) -> Vector:
        """|t|, at most, per row of map ``index``; spans are the sizes of the program's values."""

    @abstractmethod
    def after(self, index: int, lower: Vector, upper: Vector) -> Vector:
        """|r|, at most, per unit of layer ``index``, its pre-activation in [lower, upper]."""

    def hull(self, value: int) -> Ends | None:
        """Proved ends of the program's value k, where they are known."""
        del value
        return None


class Change:
    """A program beside the network it came from, map by map."""

    def __init__(self, program: Rounding):
        self.program = program
        self.maps: list[PairedMap] = []
        self._norms: dict[tuple[int, int], tuple[float, float]] = {}

    def add(self, network: Affine, program: Affine) -> None:
        """Take the next map of both."""
        terms = {s: network.terms[s] for s in program.terms}
        self.maps.append(PairedMap.of(terms, dict(program.terms), network.bias, program.bias))

    def truncate(self, maps: int) -> None:
        """Forget all but the first maps."""
        del self.maps[maps:]
        self._norms = {place: pair for place, pair in self._norms.items() if place[0] < maps}

    def norms(self, index: int, source: int) -> tuple[float, float]:
        """Upper bounds of the largest singular values of V and D."""
        if (index, source) not in self._norms:
            both = self.maps[index].V[source], self.maps[index].D[source]
            self._norms[index, source] = operator_norm(both[0], 2.0), operator_norm(both[1], 2.0)
        return self._norms[index, source]


class Difference:
    """Sound bounds of e and d, layer by layer, over the box of a `Problem`.

    Attributes:
        margins: per step layer how far from 0 a pre-activation has to be for both to agree.
    """

    def __init__(
        self,
        problem: Problem,
        change: Change,
        *,
        exact_input: bool,
        away: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self.problem, self.change, self.away = problem, change, away
        self.bounds = Bounds(problem) if bounds is None else bounds
        wide = change.program.input_error
        self.wide = np.zeros_like(wide) if exact_input else wide
        self._operations = 2 * problem.operations + 8 * len(problem.maps) + 16
        apart = None if exact_input else wide
        self.passes = PairedBounds(change.maps, problem.reach, self._operations, apart)
        self.margins: list[Vector | None] = []
        self.norms = Norms(problem, change, self.bounds, self.wide)

    def gap(self, value: int) -> Ends:
        """The ends of d of value k."""
        return self.passes.layers[value - 1].d if value else (-self.wide, self.wide)

    def spans(self) -> list[Vector]:
        """The size of every value of the program so far."""
        result = []
        for k in range(len(self.passes.layers) + 1):
            size = self.bounds.span(k) + largest(self.gap(k))
            hull = self.change.program.hull(k)
            if hull is not None:
                size = np.minimum(size, largest(hull))
            result.append(np.nextafter(size, np.inf))
        return result

    def error(self, index: int) -> Ends:
        """Bounds of e of map ``index``: intervals, one backward pass, and Euclidean norms."""
        before = self._open(index)
        low, high = self._interval(index, before)
        if index:
            found, _ = self.passes.bound(0.0, 1.0)
            low = np.maximum(low, -found[len(low) :])
            high = np.minimum(high, found[: len(high)])
        size = self.norms.error(index, before)
        low, high = np.fmax(low, -size), np.fmin(high, size)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def _open(self, index: int) -> Vector:
        """The rounding before the activation, asked for once."""
        noise = self.passes.noise
        if len(noise) == index:
            noise.append(self.change.program.before(index, self.spans()))
        return noise[index]

    def advance(self, index: int, error: Ends) -> None:
        """Take layer ``index`` with the bounds of its e."""
        self.own(index)
        z, kink = (self.bounds.lower[index], self.bounds.upper[index]), self.problem.kinks[index]
        y = np.nextafter(z[0] + error[0], -np.inf), np.nextafter(z[1] + error[1], np.inf)
        rest = self.change.program.after(index, *y)
        known = self._jump(index, z, y, error, rest) if kink.step else None
        self.margins.append(None if known is None else known[2])
        known = None if known is None else known[:2]
        hull = self.change.program.hull(index + 1)
        if hull is not None and not (kink.step and self.away):
            low, high = self.bounds.low[index + 1], self.bounds.high[index + 1]
            inside = np.nextafter(hull[0] - high, -np.inf), np.nextafter(hull[1] - low, np.inf)
            known = inside if known is None else _meet(known, inside)
        noise = np.zeros_like(rest) if kink.step else rest
        layer = LayerBounds(kink, z, error, y, noise, known, joint=False)
        self.passes.layers.append(layer)
        self.norms.advance(index, error, layer.d, layer.rounding, self.passes.noise[index])

    def _jump(
        self, index: int, z: Ends, y: Ends, error: Ends, rest: Vector
    ) -> tuple[Vector, Vector, Vector]:
        """d of step units: 0 where both are on the same side, else up to a whole jump; margins."""
        same = (z[0] > 0) & (y[0] > 0) | (z[1] < 0) & (y[1] < 0)
        margin = np.where(same, 0.0, np.nextafter(np.maximum(-error[0], error[1]), np.inf))
        level = self.problem.kinks[index].at_zero
        jump = max(1.0, abs(level), abs(1.0 - level))
        gap = np.where(same | self.away, 0.0, np.nextafter(jump + rest, np.inf))
        return -gap, gap, margin

    def own(self, index: int) -> None:
        """The network's own bounds of one more layer: intervals, then one backward pass."""
        if len(self.bounds.lower) > index:
            return
        lower, upper = interval_bounds(self.problem, self.bounds, index)
        size = len(lower)
        if index:
            rows, signs = np.tile(np.arange(size), 2), np.repeat([1.0, -1.0], size)
            found = linear_upper(self.problem, self.bounds, index, rows, signs)
            lower, upper = np.maximum(lower, -found[size:]), np.minimum(upper, found[:size])
        self.bounds.append(lower, upper)

    def _interval(self, index: int, before: Vector) -> Ends:
        """e by interval arithmetic alone."""
        affine = self.change.maps[index]
        low, high = affine.shift - before, affine.shift + before
        size = np.abs(affine.shift) + before
        for source in affine.W:
            for part, ends in (
                (affine.V[source], self.gap(source)),
                (affine.D[source], (self.bounds.low[source], self.bounds.high[source])),
            ):
                up, down = signed_parts(part)
                low = low + up @ ends[0] + down @ ends[1]
                high = high + up @ ends[1] + down @ ends[0]
                size = size + abs(part) @ largest(ends)
        error = np.where(size > 0, slack(size, self._operations), 0.0)
        exact = size == 0
        low, high = rounded_down(low, error), rounded_up(high, error)
        return np.where(exact, 0.0, low), np.where(exact, 0.0, high)

    def descend(self, rows: Array) -> Vector:
        """A sound upper bound of ``rows @ e`` of the outputs, for every row."""
        self._open(len(self.problem.network.layers))
        return self.passes.rows(None, rows)[0]


def difference(
    problem: Problem,
    change: Change,
    *,
    exact_input: bool,
    away: bool = False,
    bounds: Bounds | None = None,
) -> Difference:
    """The bounds of every layer's e and d, ready for `Difference.descend` of the output.

    Args:
        exact_input: whether inputs are the program's own, or real numbers that it rounds first.
        away: leave out inputs at which a step unit of both is on different sides.
        bounds: of the network's own values over this box, if at hand.
    """
    found = Difference(problem, change, exact_input=exact_input, away=away, bounds=bounds)
    for index in range(len(problem.network.layers)):
        found.advance(index, found.error(index))
    return found


def _meet(first: Ends, second: Ends) -> Ends:
    return np.maximum(first[0], second[0]), np.minimum(first[1], second[1])

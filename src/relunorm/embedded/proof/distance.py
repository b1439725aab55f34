"""How far a program can be from the network it was made from, over a box of inputs.

Let v be the values of the network in real arithmetic and v + d those of the program. The program
multiplies by V = W + D where the network has W, so that its pre-activation z + e obeys

    e = V d + D v + (c - b) + t,        d' = act(z + e) - act(z) + r,

t and r being what the program rounds before and after the activation: a pair of networks, one of
which rounds. The backward bounds of such pairs (`relunorm.bounds.pairs.linear`) are tightened here
by intervals, by norms (`Norms`) and by what is known of the program's numbers, layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm.arithmetic.floats import TINY, gamma, rounded_down, rounded_up, slack
from relunorm.bounds.layers.intervals import interval_bounds, signed_parts
from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.pairs.linear import Ends, LayerBounds, PairedBounds, largest
from relunorm.bounds.pairs.pair import PairedMap
from relunorm.bounds.problem import Bounds, Problem
from relunorm.lipschitz.norms import operator_norm
from relunorm.matrix import Array, Vector
from relunorm.network.layer import Affine


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


class Norms:
    """Bounds of |d_k| and of |v_k - c_k|, value by value, in the Euclidean norm.

    With any fixed point c_k of every layer,

        |e|  <=  sum_s |V_s| |d_s| + |D_s| |v_s - c_s|  +  |sum_s D_s c_s + c - b| + |t|,
        |d'| <=  (largest slope) |e| + |r|,

    matrices measured by their largest singular value. Bounds of single entries let every unit be at
    its worst at once, so they grow with the sum of a row's weights; these grow with a singular
    value, which in a layer of 128 units is several times smaller. A single entry of e follows from
    the norm of its row (Cauchy-Schwarz).

    Sound in real arithmetic: the norms of matrices are rounded up (`relunorm.lipschitz.norms`), and
    everything else here is a sum of sizes, widened by what such a sum can have lost.

    Attributes:
        center: c_k.
        radius: how far v_k can be from it.
        gap: how large d_k can be.
    """

    def __init__(self, problem: Problem, change: Change, bounds: Bounds, wide: Vector):
        self.problem, self.change, self.bounds = problem, change, bounds
        self.share = 1.0 + gamma(4 * problem.operations + 64)
        low, high = bounds.low[0], bounds.high[0]
        self.center = [low + (high - low) / 2]
        self.radius = [self._around(0)]
        self.gap = [self._size(wide)]

    def error(self, index: int, before: Vector, rows: Array | None = None) -> Vector:
        """A bound of every |e_i| of a map, or of every entry of |rows @ e|."""
        affine = self.change.maps[index]
        total = before if rows is None else np.abs(rows) @ before
        for source, matrix in affine.V.items():
            moved = affine.D[source]
            half = self._half(source)
            sizes = affine.V_size[source], affine.D_size[source]
            if rows is not None:
                rounded = gamma(rows.shape[1] + 4) * self._rows(np.abs(rows) @ sizes[0])
                total = total + rounded * self.gap[source]
                matrix, moved = rows @ matrix, rows @ moved
                sizes = sizes[0], np.abs(rows) @ sizes[1]
            total = total + self._rows(matrix) * self.gap[source]
            alone = sizes[1] @ half
            total = total + np.minimum(self._rows(moved) * self.radius[source], alone)
        fixed, lost = self._fixed(index)
        if rows is None:
            total = total + np.abs(fixed) + lost
        else:
            size = np.abs(rows) @ (np.abs(fixed) + lost)
            total = total + np.abs(rows @ fixed) + np.abs(rows) @ lost
            total = total + gamma(rows.shape[1] + 4) * size
        return self._up(total)

    def advance(self, index: int, error: Ends, gap: Ends, rest: Vector, before: Vector) -> None:
        """Take layer ``index``: what single entries allow, and what the norms of maps allow."""
        kink = self.problem.kinks[index]
        single = self._size(np.maximum(np.abs(gap[0]), np.abs(gap[1])))
        low, high = self.bounds.low[index + 1], self.bounds.high[index + 1]
        if kink.step:
            self.center.append(low + (high - low) / 2)
            self.radius.append(self._around(index + 1))
            self.gap.append(single)
            return
        steepest = max(abs(kink.below), abs(kink.above))
        whole = self._whole(index, before)
        whole = min(whole, self._size(np.maximum(np.abs(error[0]), np.abs(error[1]))))
        self.gap.append(_least(single, self._up(steepest * whole + self._size(rest))))
        z, lost = self._middle(index)
        center = np.where(z > 0, kink.above * z, kink.below * z)
        self.center.append(center)
        far = steepest * (self._moved(index) + self._size(lost)) + self._size(2.0**-52 * center)
        self.radius.append(_least(self._around(index + 1), self._up(far)))

    def _whole(self, index: int, before: Vector) -> float:
        """|e| of a map by the norms of its matrices."""
        total = self._size(before)
        for source, size in self.change.maps[index].D_size.items():
            ours, moved = self.change.norms(index, source)
            alone = size @ self._half(source)
            total += ours * self.gap[source]
            total += _least(moved * self.radius[source], self._size(alone))
        fixed, lost = self._fixed(index)
        return self._up(total + self._size(np.abs(fixed) + lost))

    def _moved(self, index: int) -> float:
        """How far z of a map can be from its value at the centers; |W| <= |V| + |D|."""
        parts = (
            sum(self.change.norms(index, source)) * self.radius[source]
            for source in self.change.maps[index].W
        )
        return self._up(sum(parts, 0.0))

    def _fixed(self, index: int) -> tuple[Vector, Vector]:
        """``sum_s D_s c_s + c - b`` and what computing it can have lost."""
        affine = self.change.maps[index]
        fixed, size = affine.shift, np.abs(affine.shift)
        for source, moved in affine.D.items():
            center = self.center[source]
            fixed = fixed + moved @ center
            size = size + affine.D_size[source] @ np.abs(center)
        return fixed, self._lost(size)

    def _middle(self, index: int) -> tuple[Vector, Vector]:
        """z at the centers, and what computing it can have lost."""
        affine = self.problem.maps[index]
        z, size = affine.bias, np.abs(affine.bias)
        for source, matrix in affine.terms.items():
            z = z + matrix @ self.center[source]
            size = size + self.problem.absolute[index][source] @ np.abs(self.center[source])
        return z, self._lost(size)

    def _lost(self, size: Vector) -> Vector:
        return gamma(2 * self.problem.operations + 16) * size + TINY

    def _half(self, value: int) -> Vector:
        """How far each entry of v_k can be from c_k."""
        low, high = self.bounds.low[value], self.bounds.high[value]
        center = self.center[value]
        return np.maximum(np.maximum(high - center, center - low), 0.0)

    def _around(self, value: int) -> float:
        return self._size(self._half(value))

    def _rows(self, matrix: Any) -> Vector:
        """The norm of every row."""
        squares = matrix.multiply(matrix) if sp.issparse(matrix) else matrix * matrix
        return self._up(np.sqrt(np.asarray(squares.sum(axis=1)).ravel() + TINY))

    def _size(self, entries: Vector) -> float:
        return float(self._up(np.sqrt(np.sum(entries * entries) + TINY)))

    def _up(self, value: Any) -> Any:
        """Widened by what a sum of sizes can have lost."""
        return np.nextafter(value * self.share, np.inf)


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


def _least(first: float, second: float) -> float:
    """The smaller of two bounds; one that is not a number is none."""
    return min(b if b == b else float("inf") for b in (first, second))

"""How far a program can be from the network it was made from, over a box of inputs.

Let v be the values of the network in real arithmetic and v + d those of the program. The program
multiplies by W' = W + D where the network has W, so that its pre-activation z + e obeys

    e = W' d + D v + (b' - b) + t,        d' = act(z + e) - act(z) + r,

t and r being what the program rounds before and after the activation. For any slope between the
two sides of the activation, act(z + e) - act(z) is that slope times e, hence for every g

    B (act(z + e) - act(z))  <=  g e + max over the ends of e of max(B lo e, B hi e) - g e .

Substituting from a target down to the input leaves a function that is affine in the input and in
d at the input: v by the backward linear bounds of `relunorm.bounds.linear`, d by the line above,
both at once, so that errors of weights cancel where they cancel in the network. (The idea of
bounding the difference and not both networks: Paulsen, Wang and Wang, ReluDiff, ICSE 2020.)

Sound in real arithmetic: magnitudes are summed beside every value and the result is widened by what
their roundings can amount to (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.floats import SMALLEST, rounded_down, rounded_up, slack
from relunorm.bounds.intervals import interval_bounds
from relunorm.bounds.linear import CHUNK_DOUBLES, linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import remainder, slope
from relunorm.embedded.proof.euclidean import Norms
from relunorm.lipschitz.norms import operator_norm
from relunorm.matrix import Matrix, Vector
from relunorm.network.layer import Affine

Array = NDArray[np.float64]
#: Lower and upper ends, entry by entry.
Ends = tuple[Vector, Vector]


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
    """A program beside the network it came from, map by map: what it multiplies by, what moved."""

    def __init__(self, program: Rounding):
        self.program = program
        self.bias: list[Vector] = []
        self.matrix: list[dict[int, Matrix]] = []
        self.moved: list[dict[int, Matrix]] = []
        self.matrix_size: list[dict[int, Matrix]] = []
        self.moved_size: list[dict[int, Matrix]] = []
        self._norms: dict[tuple[int, int], tuple[float, float]] = {}

    def add(self, network: Affine, program: Affine) -> None:
        """Take the next map of both."""
        moved = {s: _minus(m, network.terms[s]) for s, m in program.terms.items()}
        self.bias.append(program.bias - network.bias)
        self.matrix.append(dict(program.terms))
        self.moved.append(moved)
        self.matrix_size.append({s: abs(m) for s, m in program.terms.items()})
        self.moved_size.append({s: abs(m) for s, m in moved.items()})

    def truncate(self, maps: int) -> None:
        """Forget all but the first maps."""
        lists = (self.bias, self.matrix, self.moved, self.matrix_size, self.moved_size)
        for entries in lists:
            del entries[maps:]
        self._norms = {place: pair for place, pair in self._norms.items() if place[0] < maps}

    def norms(self, index: int, source: int) -> tuple[float, float]:
        """Upper bounds of the largest singular values of W' and of what it moved by."""
        if (index, source) not in self._norms:
            both = self.matrix[index][source], self.moved[index][source]
            self._norms[index, source] = operator_norm(both[0], 2.0), operator_norm(both[1], 2.0)
        return self._norms[index, source]


class Difference:
    """Sound bounds of e and d, layer by layer, over the box of a `Problem`.

    Attributes:
        bounds: of the network's own pre-activations and values.
        error_lower, error_upper: of e, per layer.
        gap_low, gap_high: of d, per value, the input first.
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
        wide = np.zeros_like(wide) if exact_input else wide
        self.error_lower: list[Vector] = []
        self.error_upper: list[Vector] = []
        self.gap_low, self.gap_high = [-wide], [wide]
        self.rounding: list[Vector] = []
        self.before: list[Vector] = []
        self.margins: list[Vector | None] = []
        self.norms = Norms(problem, change, self.bounds, wide)

    def gap(self, value: int) -> Vector:
        """max |d| of value k, entry by entry."""
        return np.maximum(np.abs(self.gap_low[value]), np.abs(self.gap_high[value]))

    def spans(self) -> list[Vector]:
        """The size of every value of the program so far."""
        result = []
        for k in range(len(self.gap_low)):
            size = self.bounds.span(k) + self.gap(k)
            hull = self.change.program.hull(k)
            if hull is not None:
                size = np.minimum(size, np.maximum(np.abs(hull[0]), np.abs(hull[1])))
            result.append(np.nextafter(size, np.inf))
        return result

    def error(self, index: int) -> Ends:
        """Bounds of e of map ``index``: intervals, one backward pass, and Euclidean norms."""
        self._open(index)
        low, high = self._interval(index)
        size = self.problem.maps[index].size
        step = max(1, CHUNK_DOUBLES // (2 * max(self.problem.network.widths)))
        for start in range(0, size if index else 0, step):
            take = slice(start, start + step)
            rows = np.eye(min(step, size - start), size, start)
            found = self.descend(index, np.vstack([rows, -rows]))
            low[take] = np.maximum(low[take], -found[len(rows) :])
            high[take] = np.minimum(high[take], found[: len(rows)])
        size = self.norms.error(index, self.before[index])
        low, high = np.fmax(low, -size), np.fmin(high, size)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def _open(self, index: int) -> None:
        """Ask for the rounding before the activation, once."""
        if len(self.before) == index:
            self.before.append(self.change.program.before(index, self.spans()))

    def advance(self, index: int, error: Ends) -> None:
        """Take layer ``index`` with the bounds of its e."""
        self._network(index)
        lower, upper = self.bounds.lower[index], self.bounds.upper[index]
        self.error_lower.append(error[0])
        self.error_upper.append(error[1])
        shifted = np.nextafter(lower + error[0], -np.inf), np.nextafter(upper + error[1], np.inf)
        rest = self.change.program.after(index, *shifted)
        if self.problem.kinks[index].step:
            low, high = self._jump(index, rest, *error)
        else:
            low, high = self._moved(index, rest, *error)
        hull = self.change.program.hull(index + 1)
        if hull is not None and not (self.problem.kinks[index].step and self.away):
            value_low, value_high = self.bounds.low[index + 1], self.bounds.high[index + 1]
            low = np.maximum(low, np.nextafter(hull[0] - value_high, -np.inf))
            high = np.minimum(high, np.nextafter(hull[1] - value_low, np.inf))
        self.gap_low.append(low)
        self.gap_high.append(high)
        self.norms.advance(index, error, (low, high), self.rounding[index], self.before[index])

    def _moved(self, index: int, rest: Vector, low: Vector, high: Vector) -> Ends:
        """d of units without a jump: a slope times e, and the rounding after it."""
        upper, kink = self.bounds.upper[index], self.problem.kinks[index]
        # a relu that is off in both gives 0, which no rounding changes
        off = (upper <= 0) & (np.nextafter(upper + high, np.inf) <= 0) & (kink.below == 0)
        rest = np.where(off, 0.0, rest)
        self.rounding.append(rest)
        self.margins.append(None)
        ends = [s * e for s in self._slopes(index) for e in (low, high)]
        gap_low, gap_high = np.minimum.reduce(ends) - rest, np.maximum.reduce(ends) + rest
        gap_low = np.where(np.isnan(gap_low), -np.inf, gap_low)
        gap_high = np.where(np.isnan(gap_high), np.inf, gap_high)
        exact = off | ((low == 0) & (high == 0) & (rest == 0))
        return (
            np.where(exact, 0.0, np.nextafter(gap_low, -np.inf)),
            np.where(exact, 0.0, np.nextafter(gap_high, np.inf)),
        )

    def _jump(self, index: int, rest: Vector, low: Vector, high: Vector) -> Ends:
        """d of step units: 0 where both are on the same side, else up to a whole jump."""
        lower, upper = self.bounds.lower[index], self.bounds.upper[index]
        above = (lower > 0) & (np.nextafter(lower + low, -np.inf) > 0)
        below = (upper < 0) & (np.nextafter(upper + high, np.inf) < 0)
        same = above | below
        margin = np.where(same, 0.0, np.nextafter(np.maximum(-low, high), np.inf))
        self.margins.append(margin)
        level = self.problem.kinks[index].at_zero
        jump = max(1.0, abs(level), abs(1.0 - level))
        gap = np.where(same | self.away, 0.0, np.nextafter(jump + rest, np.inf))
        self.rounding.append(np.zeros(len(low)))
        return -gap, gap

    def _network(self, index: int) -> None:
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

    def _slopes(self, index: int) -> tuple[Vector, Vector]:
        """The smallest and largest slope a difference of layer ``index`` can meet."""
        kink = self.problem.kinks[index]
        lower, upper = self.bounds.lower[index], self.bounds.upper[index]
        low, high = self.error_lower[index], self.error_upper[index]
        above = (lower >= 0) & (np.nextafter(lower + low, -np.inf) >= 0)
        below = (upper <= 0) & (np.nextafter(upper + high, np.inf) <= 0)
        least, most = min(kink.below, kink.above), max(kink.below, kink.above)
        slow = np.where(above, kink.above, np.where(below, kink.below, least))
        fast = np.where(above, kink.above, np.where(below, kink.below, most))
        return slow, fast

    def _interval(self, index: int) -> Ends:
        """e by interval arithmetic alone."""
        change, before = self.change, self.before[index]
        low, high = change.bias[index] - before, change.bias[index] + before
        size = np.abs(change.bias[index]) + before
        for source, matrix in change.matrix[index].items():
            for part, ends in (
                (matrix, (self.gap_low[source], self.gap_high[source])),
                (change.moved[index][source], (self.bounds.low[source], self.bounds.high[source])),
            ):
                up, down = _parts(part)
                low = low + up @ ends[0] + down @ ends[1]
                high = high + up @ ends[1] + down @ ends[0]
                size = size + abs(part) @ np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        error = np.where(size > 0, slack(size, self._operations), 0.0)
        exact = size == 0
        low, high = rounded_down(low, error), rounded_up(high, error)
        return np.where(exact, 0.0, low), np.where(exact, 0.0, high)

    @property
    def _operations(self) -> int:
        return 2 * self.problem.operations + 8 * len(self.problem.maps) + 16

    def descend(self, index: int, rows: Array) -> Vector:
        """A sound upper bound of ``rows @ e`` of map ``index``, for every row.

        Cost: as two backward passes of `relunorm.bounds.linear`.
        """
        self._open(index)
        change, bounds = self.change, self.bounds
        size = np.abs(rows)
        value = rows @ change.bias[index] + size @ self.before[index]
        magnitude = size @ (np.abs(change.bias[index]) + self.before[index])
        on_value: dict[int, Array] = {}  # coefficients of v
        on_gap: dict[int, Array] = {}  # coefficients of d
        lost = 0.0
        for source, matrix in change.matrix[index].items():
            on_gap[source] = np.asarray(rows @ matrix)
            on_value[source] = np.asarray(rows @ change.moved[index][source])
            lost += self._underflow(index, source)
            magnitude = magnitude + size @ self._reach(index, source)
        for layer in range(index - 1, -1, -1):
            A, B = on_value.pop(layer + 1, None), on_gap.pop(layer + 1, None)
            if A is None or B is None:
                continue
            kink, affine = self.problem.kinks[layer], self.problem.maps[layer]
            lower, upper = bounds.lower[layer], bounds.upper[layer]
            a = slope(kink, A, lower, upper)
            value += remainder(kink, A, a, lower, upper).sum(axis=1) + a @ affine.bias
            g, rest = self._line(layer, B)
            value += rest.sum(axis=1) + g @ change.bias[layer]
            value += np.abs(g) @ self.before[layer]
            reach = np.maximum(np.abs(lower), np.abs(upper))
            errors = np.maximum(np.abs(self.error_lower[layer]), np.abs(self.error_upper[layer]))
            magnitude = magnitude + np.abs(a) @ (reach + np.abs(affine.bias))
            magnitude += np.abs(A) @ bounds.span(layer + 1)
            magnitude += np.abs(g) @ (errors + np.abs(change.bias[layer]) + self.before[layer])
            magnitude += np.abs(B) @ (self.gap(layer + 1) + errors + self.rounding[layer])
            for source, matrix in affine.terms.items():
                below = a @ matrix + g @ change.moved[layer][source]
                on_value[source] = on_value[source] + below if source in on_value else below
                gaps = g @ change.matrix[layer][source]
                on_gap[source] = on_gap[source] + gaps if source in on_gap else gaps
                weight = self.problem.absolute[layer][source] @ bounds.span(source)
                magnitude += np.abs(a) @ weight + np.abs(g) @ self._reach(layer, source)
                lost += self._underflow(layer, source)
        if 0 in on_value:
            top, weight = self.problem.reach.support_upper(on_value[0])
            value, magnitude = value + top, magnitude + weight
        if 0 in on_gap:
            low, high = self.gap_low[0], self.gap_high[0]
            value = value + np.maximum(on_gap[0] * low, on_gap[0] * high).sum(axis=1)
            magnitude = magnitude + np.abs(on_gap[0]) @ self.gap(0)
        result = rounded_up(value, slack(magnitude, self._operations) + lost)
        return np.where(np.isnan(result), np.inf, result)

    def _line(self, layer: int, B: Array) -> tuple[Array, Array]:
        """g and the constant with ``B d' <= g e + constant``, rounding after the unit included."""
        if self.problem.kinks[layer].step:
            rest = np.maximum(B * self.gap_low[layer + 1], B * self.gap_high[layer + 1])
            return np.zeros_like(B), rest
        slow, fast = self._slopes(layer)
        low, high = self.error_lower[layer], self.error_upper[layer]
        at_low = np.maximum(B * slow * low, B * fast * low)
        at_high = np.maximum(B * slow * high, B * fast * high)
        width = high - low
        open_ = (slow != fast) & (width > 0)
        chord = (at_high - at_low) / np.where(width > 0, width, 1.0)
        g = np.where(open_, chord, B * fast)
        rest = np.maximum(at_low - g * low, at_high - g * high)
        rest = np.where(slow == fast, 0.0, rest)
        rest = rest + np.abs(B) * self.rounding[layer]
        # the box of d itself, where it is narrower than the line
        flat = np.maximum(B * self.gap_low[layer + 1], B * self.gap_high[layer + 1])
        useless = flat <= 0
        return np.where(useless, 0.0, g), np.where(useless, flat, rest)

    def _reach(self, index: int, source: int) -> Vector:
        """The sizes summed up in one row of e from one source."""
        change = self.change
        return change.matrix_size[index][source] @ self.gap(source) + change.moved_size[index][
            source
        ] @ self.bounds.span(source)

    def _underflow(self, index: int, source: int) -> float:
        span = self.bounds.span(source)
        finite = float(span[np.isfinite(span)].sum()) + float(self.gap(source).sum())
        return 2 * self.problem.maps[index].size * SMALLEST * finite


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


def _minus(program: Matrix, network: Matrix) -> Matrix:
    """What a matrix moved by; rounding to nearest makes every entry exact (Sterbenz)."""
    if type(program) is type(network):
        return mx.as_matrix(program - network)
    return mx.dense(program) - mx.dense(network)


def _parts(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The positive and the negative part of a matrix."""
    if isinstance(matrix, np.ndarray):
        return np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    return matrix.maximum(0.0), matrix.minimum(0.0)

"""The triangle relaxation as a linear programme, and its multipliers as slopes.

Variables are the inputs and the values v of the units whose sign is open; every other value is an
affine function of them. An open relu unit gives v >= z, v >= 0 and v <= u (z - l) / (u - l) (for
any kink: the two sides and the chord), a polytope its rows. One HiGHS model serves every target of
a layer: only the objective changes, so the last basis is a warm start. The answer of the solver is
not believed: its multipliers become `Slopes`, and `linear_upper` says what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.bounds.backward import LinearBound
from relunorm.bounds.layers.highs import maximization
from relunorm.bounds.layers.linear import Slopes
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import chord_slope, default_tilt, fixed_sides, slope
from relunorm.matrix import Array, Vector
from relunorm.network import Affine

#: The tightest feasibility tolerance HiGHS is asked for.
TOLERANCE = 1e-9

#: A ray that proves infeasibility is stretched by this before it becomes slopes.
RAY = 1e3


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer of one linear programme.

    Attributes:
        value: the maximum of the relaxation, to the solver's tolerance; -inf if infeasible.
        point: the input part of the maximiser.
        slopes: one row of slopes made from the multipliers.
    """

    value: float
    point: Vector
    slopes: Slopes


@dataclass(frozen=True, eq=False)
class _Rows:
    """Inequalities of one kind for some units of a layer, low <= matrix @ variables <= high.

    ``slope`` says how they read z: the row is v - slope * z for a line.
    """

    kind: str
    layer: int
    units: NDArray[np.intp]
    slope: Vector
    matrix: Array
    low: Vector
    high: Vector


class Relaxation:
    """The triangle relaxation below map ``index``, for given bounds.

    Args:
        lower, upper: bounds of every earlier layer.
    """

    def __init__(self, problem: Problem, index: int, lower: list[Vector], upper: list[Vector]):
        self.problem, self.index = problem, index
        self.lower, self.upper = lower, upper
        self.free = [self._free(layer) for layer in range(index)]
        self.places = np.cumsum([problem.reach.size] + [len(f) for f in self.free])
        self.columns = int(self.places[-1])
        self.preactivations: list[tuple[Array, Vector]] = []
        inputs = np.eye(problem.reach.size, self.columns)
        self.values: list[tuple[Array, Vector]] = [(inputs, np.zeros(problem.reach.size))]
        self.rows: list[_Rows] = []
        for layer in range(index):
            self._add_layer(layer)
        self._add_domain()
        self.solver = self._solver()

    def _free(self, layer: int) -> NDArray[np.intp]:
        if self.problem.kinks[layer].linear:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero((self.lower[layer] < 0) & (self.upper[layer] > 0))

    def _express(self, affine: Affine) -> tuple[Array, Vector]:
        """An affine map of values, written in the variables."""
        matrix, constant = np.zeros((affine.size, self.columns)), affine.bias.copy()
        for source, weights in affine.terms.items():
            inner, offset = self.values[source]
            matrix += weights @ inner
            constant += weights @ offset
        return matrix, constant

    def _add_layer(self, layer: int) -> None:
        matrix, constant = self._express(self.problem.maps[layer])
        self.preactivations.append((matrix, constant))
        kink, units = self.problem.kinks[layer], self.free[layer]
        side = fixed_sides(np.zeros(len(constant)), self.lower[layer], self.upper[layer])
        line = kink.below + side * kink.gap
        value, offset = line[:, None] * matrix, line * constant
        if kink.step:
            offset = side
        own = np.zeros((len(units), self.columns))
        own[np.arange(len(units)), self.places[layer] + np.arange(len(units))] = 1.0
        value[units], offset[units] = own, 0.0
        self.values.append((value, offset))
        if len(units) and not kink.step:
            self._add_lines(layer, own)

    def _add_lines(self, layer: int, own: Array) -> None:
        """v against the two sides of the kink and the chord."""
        kink, units = self.problem.kinks[layer], self.free[layer]
        z, constant = (part[units] for part in self.preactivations[layer])
        lower, upper = self.lower[layer][units], self.upper[layer][units]
        chord, none = chord_slope(kink, lower, upper), np.full(len(units), np.inf)
        lines = (
            ("chord", chord, (kink.below - chord) * lower),
            ("side", np.full(len(units), kink.above), np.zeros(len(units))),
            ("side", np.full(len(units), kink.below), np.zeros(len(units))),
        )
        for name, steep, rest in lines:
            limit = steep * constant + rest
            below = (name == "chord") == (kink.gap > 0)
            low, high = (-none, limit) if below else (limit, none)
            self.rows.append(_Rows(name, layer, units, steep, own - steep[:, None] * z, low, high))

    def _add_domain(self) -> None:
        A, b = self.problem.reach.domain.half_spaces
        if len(b):
            matrix = np.zeros((len(b), self.columns))
            matrix[:, : A.shape[1]] = A
            none = np.full(len(b), -np.inf)
            self.rows.append(_Rows("domain", -1, np.arange(len(b)), b, matrix, none, b))

    def _solver(self) -> Any:
        low, high = [self.problem.reach.lo], [self.problem.reach.hi]
        for layer, units in enumerate(self.free):
            ends = self.problem.kinks[layer].image(self.lower[layer], self.upper[layer])
            low.append(ends[0][units])
            high.append(ends[1][units])
        nothing = np.empty((0, self.columns))
        solver = maximization(
            (np.concatenate(low), np.concatenate(high)),
            np.concatenate([nothing, *(rows.matrix for rows in self.rows)]),
            (
                np.concatenate([np.empty(0), *(rows.low for rows in self.rows)]),
                np.concatenate([np.empty(0), *(rows.high for rows in self.rows)]),
            ),
            primal_feasibility_tolerance=TOLERANCE,
            dual_feasibility_tolerance=TOLERANCE,
        )
        solver.HandleUserInterrupt = True
        return solver

    def maximize(self, unit: int, sign: float, time_limit: float | None = None) -> Optimum | None:
        """Maximise sign * z[unit]; None when the solver gave up."""
        import highspy

        affine = self.problem.maps[self.index]
        row = {s: mx.dense(m[[unit]]) for s, m in affine.terms.items()}
        matrix, constant = self._express(Affine(row, affine.bias[[unit]]))
        self.solver.changeColsCost(self.columns, np.arange(self.columns), sign * matrix[0])
        if time_limit is not None:
            spent = self.solver.getRunTime()
            self.solver.setOptionValue("time_limit", spent + max(time_limit, 1e-3))
        self.solver.run()
        status = self.solver.getModelStatus()
        reach = self.problem.reach
        if status == highspy.HighsModelStatus.kInfeasible:
            answer, found, ray = self.solver.getDualRay()
            if answer != highspy.HighsStatus.kOk or not found:
                return None
            slopes = self._slopes(unit, sign, RAY * np.asarray(ray))
            return Optimum(-np.inf, reach.lo / 2 + reach.hi / 2, slopes)
        if status != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.solver.getSolution()
        value = self.solver.getInfo().objective_function_value + sign * constant[0]
        variables = np.asarray(solution.col_value)
        point = np.clip(variables[: reach.size], reach.lo, reach.hi)
        slopes = self._slopes(unit, sign, np.asarray(solution.row_dual))
        return Optimum(float(value), point, slopes)

    def _slopes(self, unit: int, sign: float, duals: Vector) -> Slopes:
        """Multipliers as slopes: a line's multiplier times its slope."""
        wanted = [np.zeros(len(lower)) for lower in self.lower]
        multipliers, place = None, 0
        for rows in self.rows:
            mu = duals[place : place + len(rows.units)]
            place += len(rows.units)
            if rows.kind == "domain":
                multipliers = np.maximum(mu, 0.0)[None]
            else:
                wanted[rows.layer][rows.units] += mu * rows.slope
        return self._unroll(unit, sign, wanted, multipliers)

    def _unroll(
        self, unit: int, sign: float, wanted: list[Vector], multipliers: Array | None
    ) -> Slopes:
        """Write wanted slopes as tilts and offsets, from the target down."""
        tilt: dict[int, Array] = {}
        offset: dict[int, Array] = {}
        top = self.problem.rows(self.index, np.array([unit]))
        walk = LinearBound(0.0, {source: sign * matrix[0] for source, matrix in top.items()})
        for layer, lam in walk.layers(self.index):
            kink = self.problem.kinks[layer]
            tunable = not (kink.linear or kink.step)
            share = self._tilt(layer, lam, wanted[layer]) if tunable else None
            a = slope(kink, lam, self.lower[layer], self.upper[layer], share)
            if share is not None:
                open_ = np.isin(np.arange(len(lam)), self.free[layer])
                shift = wanted[layer] - np.where(open_, a, 0.0)
                tilt[layer], offset[layer] = share[None], shift[None]
                a = a + shift
            walk.pull(a, self.problem.maps[layer].bias, self.problem.maps[layer].terms)
        return Slopes(tilt, offset, multipliers)

    def _tilt(self, layer: int, lam: Vector, wanted: Vector) -> Vector:
        """The tilts that come closest to the wanted slopes."""
        kink, lower, upper = self.problem.kinks[layer], self.lower[layer], self.upper[layer]
        concave = (lam * kink.gap < 0) & (lower < 0) & (upper > 0)
        share = (wanted / np.where(lam != 0, lam, 1.0) - kink.below) / kink.gap
        return np.clip(np.where(concave, share, default_tilt(lower, upper)), 0.0, 1.0)


def relaxation(problem: Problem, bounds: Bounds, index: int) -> Relaxation:
    """The triangle relaxation over the whole domain with the bounds found so far."""
    return Relaxation(problem, index, bounds.lower[:index], bounds.upper[:index])

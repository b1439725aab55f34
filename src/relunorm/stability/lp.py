"""The triangle relaxation as a linear programme, and its multipliers as slopes.

Variables are the inputs and the values v of the units whose sign is open; every other value is an
affine function of them. An open relu unit gives v >= z, v >= 0 and v <= u (z - l) / (u - l) (for
any kink: the two sides and the chord), a decision gives z >= 0 or z <= 0, a polytope its rows. One
HiGHS model serves every target of a layer: only the objective changes, so the last basis is a warm
start. The answer of the solver is not believed: its multipliers become `Slopes`, and `linear_upper`
says what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Polytope
from relunorm.matrix import Vector
from relunorm.network import Affine
from relunorm.stability.linear import Slopes, chord_slope, default_tilt, fixed_sides
from relunorm.stability.problem import Bounds, Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The answer of one linear programme.

    Attributes:
        value: the maximum of the relaxation, to the solver's tolerance; -inf if infeasible.
        point: the input part of the maximiser.
        slopes: one row of slopes made from the multipliers.
        gaps: layer -> how far each open unit's value is from its kink at the maximiser.
    """

    value: float
    point: Vector
    slopes: Slopes
    gaps: dict[int, Vector]


class Relaxation:
    """The triangle relaxation below map ``index``, for given bounds.

    Args:
        lower, upper: bounds of every earlier layer that hold where the question is asked.
        decided: layer -> units whose sign was decided there (+1, -1; 0 elsewhere): these give a row.
        lo, hi: the input box.
    """

    def __init__(
        self,
        problem: Problem,
        index: int,
        lower: list[Vector],
        upper: list[Vector],
        decided: dict[int, Vector] | None = None,
        lo: Vector | None = None,
        hi: Vector | None = None,
    ):
        self.problem, self.index = problem, index
        self.lower, self.upper = lower, upper
        self.decided = decided or {}
        self.lo = problem.reach.lo if lo is None else lo
        self.hi = problem.reach.hi if hi is None else hi
        self.free = [self._free(i) for i in range(index)]
        self.places = np.cumsum([problem.reach.size] + [len(f) for f in self.free])
        self.columns = int(self.places[-1])
        self.rows: list[tuple[str, int, NDArray[np.intp]]] = []
        self._solver = self._build()

    def _free(self, layer: int) -> NDArray[np.intp]:
        kink = self.problem.kinks[layer]
        if kink.linear:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero((self.lower[layer] < 0) & (self.upper[layer] > 0))

    def _express(self, affine: Affine, values: list[tuple[Array, Vector]]) -> tuple[Array, Vector]:
        """An affine map of values, written in the variables."""
        matrix, constant = np.zeros((affine.size, self.columns)), affine.bias.copy()
        for source, weights in affine.terms.items():
            inner, offset = values[source]
            matrix += weights @ inner
            constant += weights @ offset
        return matrix, constant

    def _build(self):
        import highspy

        size = self.problem.reach.size
        blocks: list[Array] = []
        low: list[Array] = []
        high: list[Array] = []
        column_low, column_high = [self.lo], [self.hi]

        def add(kind: str, layer: int, units: NDArray[np.intp], block: Array, lo: Array, hi: Array):
            if len(units):
                self.rows.append((kind, layer, units))
                blocks.append(block)
                low.append(lo)
                high.append(hi)

        inputs = np.zeros((size, self.columns))
        inputs[:, :size] = np.eye(size)
        values: list[tuple[Array, Vector]] = [(inputs, np.zeros(size))]
        self.preactivations: list[tuple[Array, Vector]] = []
        inf = np.inf
        for layer in range(self.index):
            matrix, constant = self._express(self.problem.maps[layer], values)
            self.preactivations.append((matrix, constant))
            kink, l, u = self.problem.kinks[layer], self.lower[layer], self.upper[layer]
            signs = self.decided.get(layer)
            if signs is not None:
                for sense in (1, -1):
                    units = np.flatnonzero(signs == sense)
                    bottom = -constant[units] if sense > 0 else np.full(len(units), -inf)
                    top = np.full(len(units), inf) if sense > 0 else -constant[units]
                    add("sign", layer, units, matrix[units], bottom, top)
            side = fixed_sides(np.zeros(len(l)), l, u)
            line = np.full(len(l), kink.above) if kink.linear else kink.below + side * kink.gap
            shift = np.zeros(len(l))
            if kink.step:
                line, shift = np.zeros(len(l)), side
            value, offset = line[:, None] * matrix, line * constant + shift
            units, start = self.free[layer], int(self.places[layer])
            if len(units):
                own = np.zeros((len(units), self.columns))
                own[np.arange(len(units)), start + np.arange(len(units))] = 1.0
                value[units], offset[units] = own, 0.0
                column_low.append(self.low_of(layer)[units])
                column_high.append(self.high_of(layer)[units])
                if not kink.step:
                    chord = chord_slope(kink, l, u)[units]
                    z, c = matrix[units], constant[units]
                    chord_rest = kink.below * l[units] - chord * l[units]
                    pieces = [
                        ("chord", chord, chord_rest),
                        ("above", np.full(len(units), kink.above), np.zeros(len(units))),
                        ("below", np.full(len(units), kink.below), np.zeros(len(units))),
                    ]
                    for name, slope, rest in pieces:
                        under = (name == "chord") == (kink.gap > 0)
                        limit = slope * c + rest
                        none = np.full(len(units), inf)
                        add(
                            name, layer, units, own - slope[:, None] * z,
                            -none if under else limit, limit if under else none,
                        )  # fmt: skip
            values.append((value, offset))
        if isinstance(self.problem.reach.domain, Polytope):
            A, b = self.problem.reach.domain.A, self.problem.reach.domain.b
            block = np.zeros((len(b), self.columns))
            block[:, :size] = A
            add("domain", -1, np.arange(len(b)), block, np.full(len(b), -inf), b.copy())
        self.values = values

        model = highspy.HighsLp()
        model.num_col_ = self.columns
        model.num_row_ = sum(len(b) for b in blocks)
        model.col_cost_ = np.zeros(self.columns)
        model.col_lower_ = np.concatenate(column_low)
        model.col_upper_ = np.concatenate(column_high)
        model.row_lower_ = np.concatenate(low) if low else np.empty(0)
        model.row_upper_ = np.concatenate(high) if high else np.empty(0)
        import scipy.sparse as sp

        stacked = sp.csc_array(np.concatenate(blocks) if blocks else np.empty((0, self.columns)))
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = stacked.indptr
        model.a_matrix_.index_ = stacked.indices
        model.a_matrix_.value_ = stacked.data
        model.sense_ = highspy.ObjSense.kMaximize
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("presolve", "off")
        solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
        solver.setOptionValue("dual_feasibility_tolerance", 1e-9)
        solver.passModel(model)
        return solver

    def low_of(self, layer: int) -> Vector:
        """Smallest value of each unit of a layer."""
        return self.problem.kinks[layer].image(self.lower[layer], self.upper[layer])[0]

    def high_of(self, layer: int) -> Vector:
        """Largest value of each unit of a layer."""
        return self.problem.kinks[layer].image(self.lower[layer], self.upper[layer])[1]

    def maximize(self, unit: int, sign: float, time_limit: float | None = None) -> Optimum | None:
        """Maximise sign * z[unit]; None when the solver gave up."""
        import highspy

        affine = self.problem.maps[self.index]
        row = Affine({s: mx.dense(m[[unit]]) for s, m in affine.terms.items()}, affine.bias[[unit]])
        matrix, constant = self._express(row, self.values)
        cost = sign * matrix[0]
        self._solver.changeColsCost(self.columns, np.arange(self.columns), cost)
        if time_limit is not None:
            spent = self._solver.getRunTime()
            self._solver.setOptionValue("time_limit", spent + max(time_limit, 1e-3))
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            ray = self._solver.getDualRay()
            duals = np.asarray(ray[2]) if len(ray) > 2 and ray[1] else None
            if duals is None:
                return None
            return Optimum(
                -np.inf, (self.lo + self.hi) / 2, self._slopes(unit, sign, duals * 1e3), {}
            )
        if status != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        value = self._solver.getInfo().objective_function_value + sign * constant[0]
        variables = np.asarray(solution.col_value)
        point = np.clip(variables[: self.problem.reach.size], self.lo, self.hi)
        duals = np.asarray(solution.row_dual)
        gaps = self._gaps(variables)
        return Optimum(float(value), point, self._slopes(unit, sign, duals), gaps)

    def _gaps(self, variables: Vector) -> dict[int, Vector]:
        gaps = {}
        for layer, units in enumerate(self.free):
            kink, width = self.problem.kinks[layer], len(self.lower[layer])
            gaps[layer] = np.zeros(width)
            if len(units) and not kink.step:
                matrix, constant = self.preactivations[layer]
                z = matrix[units] @ variables + constant[units]
                v = variables[self.places[layer] : self.places[layer + 1]]
                gaps[layer][units] = np.abs(v - np.where(z > 0, kink.above, kink.below) * z)
        return gaps

    def _slopes(self, unit: int, sign: float, duals: Vector) -> Slopes:
        """Multipliers turned into slopes, from the target down.

        With mu the multipliers of a unit's rows, the slope on z is the sum of mu times the row's
        own slope; a decision adds its multiplier.
        """
        by_layer: dict[int, Vector] = {}
        multipliers, place = None, 0
        extra: dict[int, Vector] = {}
        for kind, layer, units in self.rows:
            mu = duals[place : place + len(units)]
            place += len(units)
            if kind == "domain":
                multipliers = np.maximum(mu, 0.0)[None]
                continue
            kink = self.problem.kinks[layer]
            width = len(self.lower[layer])
            if kind == "sign":
                extra.setdefault(layer, np.zeros(width))[units] -= mu
                continue
            slope = {
                "chord": chord_slope(kink, self.lower[layer], self.upper[layer])[units],
                "above": kink.above,
                "below": kink.below,
            }[kind]
            by_layer.setdefault(layer, np.zeros(width))[units] += mu * slope
        return self._unroll(unit, sign, by_layer, extra, multipliers)

    def _unroll(
        self,
        unit: int,
        sign: float,
        slopes: dict[int, Vector],
        extra: dict[int, Vector],
        multipliers: Array | None,
    ) -> Slopes:
        tilt: dict[int, Array] = {}
        offset: dict[int, Array] = {}
        pending = {
            s: sign * m[0] for s, m in self.problem.rows(self.index, np.array([unit])).items()
        }
        for layer in range(self.index - 1, -1, -1):
            lam = pending.pop(layer + 1, None)
            if lam is None:
                continue
            kink, affine = self.problem.kinks[layer], self.problem.maps[layer]
            l, u = self.lower[layer], self.upper[layer]
            if kink.linear or kink.step:
                a = lam * kink.above if kink.linear else np.zeros_like(lam)
            else:
                share = default_tilt(l, u)
                wanted = slopes.get(layer, np.zeros_like(lam))
                open_ = np.zeros(len(l), dtype=bool)
                open_[self.free[layer]] = True
                concave = open_ & (lam * kink.gap < 0)
                safe = np.where(lam != 0, lam, 1.0)
                share = np.where(concave, (wanted / safe - kink.below) / kink.gap, share)
                share = np.clip(share, 0.0, 1.0)
                tangent = kink.below + fixed_sides(share, l, u) * kink.gap
                line = np.where(lam * kink.gap > 0, chord_slope(kink, l, u), tangent)
                shift = np.where(open_, wanted - lam * line, 0.0) + extra.get(layer, 0.0)
                tilt[layer], offset[layer] = share[None], shift[None]
                a = lam * line + shift
            for source, matrix in affine.terms.items():
                below = matrix.T @ a
                pending[source] = pending[source] + below if source in pending else below
        return Slopes(tilt, offset, multipliers)


def relaxation(problem: Problem, bounds: Bounds, index: int) -> Relaxation:
    """The triangle relaxation over the whole domain with the bounds found so far."""
    return Relaxation(problem, index, bounds.lower[:index], bounds.upper[:index])

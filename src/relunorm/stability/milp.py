"""The last resort: a mixed-integer programme that decides one side with HiGHS.

An open unit gets a binary d: p >= z, p >= 0, p <= u d, p <= z - l (1 - d), so that p = relu(z) and
act(z) = below * z + gap * p. The side is asked as a decision, is there a point with
sign * z >= -margin, with a margin far above the solver's tolerance (1e-9): an infeasible answer
leaves no doubt about the sign, and a feasible one is believed only if its point is a witness when
the network itself is evaluated there. What only the solver says is marked solver-trusted.

The solver works with absolute tolerances, so the model is scaled first (module `scaled`). An
infeasible answer is believed only if the same model without the question has a solution with the
signs that the units have at the domain's centre, and if no point of the domain that is at hand
contradicts it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.bounds.highs import Programme, maximization, scaled
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import Clock
from relunorm.domain import Polytope
from relunorm.matrix import Vector
from relunorm.network import Affine

#: The margin asked for, relative to the reach of the unit: far above HiGHS's tolerance.
MARGIN = 1e-6

#: Points at which an infeasible answer is tried against the network.
SAMPLES = 32


@dataclass(frozen=True, eq=False)
class Answer:
    """What the solver said of one side.

    Attributes:
        excluded: no point has sign * z >= -margin.
        margin: that margin.
        point: a point it found instead.
    """

    excluded: bool = False
    margin: float = 0.0
    point: Vector | None = None


def decide(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    clock: Clock,
    workers: int,
    far: bool = False,
) -> list[Answer]:
    """One decision per side, ``workers`` at a time (HiGHS runs without holding the interpreter).

    With ``far`` they go to the ambient joblib backend instead; the answers are the same. A jump has
    no closed mixed-integer form: with step units below, every answer is empty.
    """
    sides = list(zip(units.tolist(), signs.tolist(), strict=True))
    if any(problem.kinks[layer].step for layer in range(index)):
        return [Answer() for _ in sides]
    if far:
        from relunorm.stability.distributed import decide_far

        return decide_far(problem, bounds, index, sides, clock)

    running: set[Any] = set()
    with ThreadPoolExecutor(max(1, min(workers, len(sides)))) as pool:
        tasks = [
            pool.submit(decide_side, problem, bounds, index, unit, sign, clock, running)
            for unit, sign in sides
        ]
        try:
            return [task.result() for task in tasks]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for solver in list(running):
                solver.cancelSolve()
            raise


@np.errstate(over="ignore", invalid="ignore")  # threads do not inherit it
def decide_side(
    problem: Problem,
    bounds: Bounds,
    index: int,
    unit: int,
    sign: float,
    clock: Clock,
    running: set[Any],
) -> Answer:
    """One side; the solver stands in ``running`` while it works, so that it can be cancelled."""
    import highspy

    if clock.expired():
        return Answer()
    if not all(np.isfinite(b).all() for b in (*bounds.lower[:index], *bounds.upper[:index])):
        return Answer()  # no binary can switch between infinite ends
    model = _Model(problem, bounds, index)
    asked = model.question(unit, sign, bounds.lower[index][unit], bounds.upper[index][unit])
    if asked is None:
        return Answer()
    solver = asked.solver(clock.left())
    running.add(solver)
    solver.run()
    excluded = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
    if excluded:
        believed = model.fits(asked, clock.left()) and _uncontradicted(
            problem, index, unit, sign, asked.margin
        )
        running.discard(solver)
        return Answer(excluded=True, margin=asked.margin) if believed else Answer()
    running.discard(solver)
    values = np.asarray(solver.getSolution().col_value)
    if len(values) < problem.reach.size:
        return Answer()
    point = asked.programme.outward(values)[: problem.reach.size]
    return Answer(point=np.clip(point, problem.reach.lo, problem.reach.hi))


def _uncontradicted(problem: Problem, index: int, unit: int, sign: float, margin: float) -> bool:
    """Whether no point of the domain at hand, up to rounding, has sign * z > -margin / 2."""
    domain = problem.reach.domain
    points = np.concatenate([domain.center[None], domain.sample(SAMPLES, 0)])
    z = problem.network.preactivations(points)[index][:, unit]
    return bool((sign * z < -margin / 2).all())


@dataclass(frozen=True, eq=False)
class _Question:
    """Is there a point with sign * z >= -margin? The last row of the programme asks it."""

    programme: Programme
    cost: Vector
    margin: float
    target: float

    def solver(self, left: float) -> Any:
        """HiGHS on the question; it stops at a clearly positive point."""
        limit = {"time_limit": left} if np.isfinite(left) else {}
        p = self.programme
        return maximization(
            self.cost, (p.low, p.high), p.matrix, (p.least, p.most),
            integral=p.integral, objective_target=self.target, **limit,
        )  # fmt: skip


class _Model:
    """The network below a map in columns: inputs, then z, p and d of each layer."""

    def __init__(self, problem: Problem, bounds: Bounds, index: int):
        self.problem, self.index = problem, index
        size = problem.reach.size
        self.low, self.high = [problem.reach.lo], [problem.reach.hi]
        self.integral = [np.zeros(size, dtype=bool)]
        self.count = size
        self.values: list[Any] = [_columns(size, 0)]
        self.rows: list[tuple[Any, Vector, Vector]] = []
        self.switched: list[tuple[int, NDArray[np.intp]]] = []
        for layer in range(index):
            self._add_layer(layer, bounds.lower[layer], bounds.upper[layer])
        if isinstance(problem.reach.domain, Polytope):
            A, b = problem.reach.domain.A, problem.reach.domain.b
            self.rows.append((sp.csr_array(A), np.full(len(b), -np.inf), b))

    def _new(self, low: Vector, high: Vector, integral: bool = False) -> Any:
        """New columns between bounds, as rows that pick them."""
        picked = _columns(len(low), self.count)
        self.count += len(low)
        self.low.append(low)
        self.high.append(high)
        self.integral.append(np.full(len(low), integral))
        return picked

    def _add_layer(self, layer: int, lower: Vector, upper: Vector) -> None:
        affine, kink = self.problem.maps[layer], self.problem.kinks[layer]
        z = self._new(lower, upper)
        rest = _sum((z, 1.0), (_linear(affine, self.values), -1.0))
        self.rows.append((rest, affine.bias, affine.bias))
        side = np.where(lower >= 0, kink.above, kink.below)
        if kink.linear:
            self.values.append(_sum((z, side)))
            return
        free = np.flatnonzero((lower < 0) & (upper > 0))
        value = _sum((z, side))
        if len(free):
            low, high, own = lower[free], upper[free], z[free]
            p = self._new(np.zeros(len(free)), high)
            d = self._new(np.zeros(len(free)), np.ones(len(free)), integral=True)
            self.switched.append((layer, free))
            zero, none = np.zeros(len(free)), np.full(len(free), np.inf)
            self.rows += [
                (_sum((p, 1.0), (own, -1.0)), zero, none),
                (_sum((p, 1.0), (d, -high)), -none, zero),
                (_sum((p, 1.0), (own, -1.0), (d, -low)), -none, -low),
            ]
            places = (free, np.arange(len(free)))
            spread = sp.csr_array((np.full(len(free), kink.gap), places), (len(side), len(free)))
            value = _sum((value, 1.0), (spread @ p, 1.0))
        self.values.append(value)

    def question(self, unit: int, sign: float, lower: float, upper: float) -> _Question | None:
        """The decision sign * z[unit] >= -margin; None where rounding blurs the model too much."""
        target = self.problem.maps[self.index]
        terms = {source: sp.csr_array(matrix)[[unit]] for source, matrix in target.terms.items()}
        bias = float(sign * target.bias[unit])
        objective = _linear(Affine(terms, target.bias[[unit]]), self.values) * sign
        rows = [*self.rows, (objective, np.array([-bias]), np.array([np.inf]))]
        programme = scaled(
            (np.concatenate(self.low), np.concatenate(self.high)),
            sp.vstack([_wide(matrix, self.count) for matrix, _, _ in rows]),
            (np.concatenate([x for _, x, _ in rows]), np.concatenate([x for _, _, x in rows])),
            np.concatenate(self.integral),
        )
        if programme is None:
            return None
        size = float(programme.size[-1])
        reach = max((abs(end) for end in (lower, upper) if np.isfinite(end)), default=0.0)
        margin = MARGIN * max(size, reach)
        bottom = programme.least[-1]
        least = np.append(programme.least[:-1], bottom - margin / size)
        cost = programme.matrix[[-1]].toarray()[0]
        # the objective is sign * z / size up to a constant, which is what the row's bound holds
        return _Question(
            replace(programme, least=least), cost, margin, float(bottom + 10 * margin / size)
        )

    def fits(self, asked: _Question, left: float) -> bool:
        """Whether the solver finds the signs at the domain's centre possible, unasked, in time."""
        import highspy

        p, most = asked.programme, np.full(1, np.inf)
        low, high = p.low.copy(), p.high.copy()
        low[p.integral] = high[p.integral] = self._signs(self.problem.reach.domain.center)
        sides = np.append(p.least[:-1], -most), np.append(p.most[:-1], most)
        free = np.zeros_like(p.integral)
        limit = {"time_limit": left} if np.isfinite(left) else {}
        solver = maximization(
            np.zeros(len(low)), (low, high), p.matrix, sides, integral=free, **limit
        )
        solver.run()
        return solver.getModelStatus() == highspy.HighsModelStatus.kOptimal

    def _signs(self, point: Vector) -> Vector:
        """The binaries at a point, in the order of their columns."""
        z = self.problem.network.preactivations(point[None])
        found = [z[layer][0, units] > 0 for layer, units in self.switched]
        return np.concatenate([np.empty(0), *found])


def _columns(count: int, start: int) -> Any:
    """Rows that pick ``count`` columns from ``start`` on."""
    places = (np.arange(count), start + np.arange(count))
    return sp.csr_array((np.ones(count), places), shape=(count, start + count))


def _wide(matrix: Any, columns: int) -> Any:
    shape = (matrix.shape[0], columns)
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape)


def _sum(*parts: tuple[Any, Any]) -> Any:
    """The sum of matrices with their rows scaled; narrow ones are padded with zero columns."""
    columns = max(matrix.shape[1] for matrix, _ in parts)
    total: Any = 0
    for matrix, scale in parts:
        factors = np.broadcast_to(np.asarray(scale, dtype=float), (matrix.shape[0],))
        total = total + sp.diags_array(factors) @ _wide(sp.csr_array(matrix), columns)
    return sp.csr_array(total)


def _linear(affine: Affine, values: list[Any]) -> Any:
    """The linear part of an affine map of values written in columns."""
    if not affine.terms:
        return sp.csr_array((affine.size, 1))
    return _sum(*((sp.csr_array(m) @ values[s], 1.0) for s, m in affine.terms.items()))

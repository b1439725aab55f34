"""The last resort: a mixed-integer programme that decides one side with HiGHS.

An open unit gets a binary d: p >= z, p >= 0, p <= u d, p <= z - l (1 - d), so that p = relu(z) and
act(z) = below * z + gap * p. The side is asked as a decision, is there a point with
sign * z >= -margin, with a margin far above the solver's tolerance (1e-9): an infeasible answer
leaves no doubt about the sign, and a feasible one is believed only if its point is a witness when
the network itself is evaluated there. What only the solver says is marked solver-trusted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Polytope
from relunorm.matrix import Vector
from relunorm.network import Affine
from relunorm.stability.problem import Bounds, Problem

#: The margin asked for, relative to the reach of the unit: far above HiGHS's tolerance.
MARGIN = 1e-6


@dataclass(frozen=True, eq=False)
class Answer:
    """What the solver said of one side: ``excluded`` with a margin, ``point``, or ``open``."""

    verdict: str
    margin: float = 0.0
    point: Vector | None = None


def decide(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    deadline: float,
    workers: int,
) -> list[Answer]:
    """One decision per side, ``workers`` at a time (HiGHS runs without holding the interpreter)."""
    sides = list(zip(units.tolist(), signs.tolist(), strict=True))
    if problem_has_steps(problem, index):
        return [Answer("open") for _ in sides]

    def one(side: tuple[int, float]) -> Answer:
        return _decide(problem, bounds, index, side[0], side[1], deadline)

    if workers <= 1 or len(sides) <= 1:
        return [one(side) for side in sides]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, sides))


def problem_has_steps(problem: Problem, index: int) -> bool:
    """Whether a step unit lies below map ``index``: its jump has no closed mixed-integer form."""
    return any(problem.kinks[layer].step for layer in range(index))


def _decide(
    problem: Problem, bounds: Bounds, index: int, unit: int, sign: float, deadline: float
) -> Answer:
    import highspy

    left = deadline - time.monotonic()
    if left <= 0:
        return Answer("open")
    scale = max(abs(bounds.lower[index][unit]), abs(bounds.upper[index][unit]))
    margin = MARGIN * max(scale, 1e-3)
    solver = _model(problem, bounds, index, unit, sign, margin)
    if np.isfinite(left):
        solver.setOptionValue("time_limit", left)
    solver.run()
    status = solver.getModelStatus()
    if status in (
        highspy.HighsModelStatus.kInfeasible,
        highspy.HighsModelStatus.kUnboundedOrInfeasible,
    ):
        return Answer("excluded", margin)
    values = np.asarray(solver.getSolution().col_value)
    if len(values) >= problem.reach.size:
        point = np.clip(values[: problem.reach.size], problem.reach.lo, problem.reach.hi)
        return Answer("point", point=point)
    return Answer("open")


def _model(
    problem: Problem, bounds: Bounds, index: int, unit: int, sign: float, margin: float
) -> Any:
    """The decision as a HiGHS model; columns: inputs, then z and p of layer 1, z and p of 2, ..."""
    import highspy

    size = problem.reach.size
    low, high = [problem.reach.lo], [problem.reach.hi]
    integral = [np.zeros(size, dtype=bool)]
    count = size
    values: list[sp.csr_array] = [sp.csr_array(sp.eye_array(size))]
    blocks: list[tuple[sp.csr_array, Vector, Vector]] = []
    inf = np.inf
    for layer in range(index):
        affine, kink = problem.maps[layer], problem.kinks[layer]
        l, u = bounds.lower[layer], bounds.upper[layer]
        n = affine.size
        z = _columns(n, count)
        count += n
        low.append(l)
        high.append(u)
        integral.append(np.zeros(n, dtype=bool))
        rest = _sum((z, 1.0), (_apply(affine, values), -1.0))
        blocks.append((rest, affine.bias, affine.bias))
        free = np.array([], dtype=np.intp)
        if not kink.linear:
            free = np.flatnonzero((l < 0) & (u > 0))
        side = (
            np.where(l >= 0, kink.above, kink.below) if not kink.linear else np.full(n, kink.above)
        )
        value = sp.diags_array(np.where(np.isin(np.arange(n), free), kink.below, side)) @ z
        if len(free):
            m = len(free)
            p, d = _columns(m, count), _columns(m, count + m)
            count += 2 * m
            low += [np.zeros(m), np.zeros(m)]
            high += [u[free], np.ones(m)]
            integral += [np.zeros(m, dtype=bool), np.ones(m, dtype=bool)]
            own, none = z[free], np.full(m, inf)
            blocks += [
                (_sum((p, 1.0), (own, -1.0)), np.zeros(m), none),
                (_sum((p, 1.0), (d, -u[free])), -none, np.zeros(m)),
                (_sum((p, 1.0), (own, -1.0), (d, -l[free])), -none, -l[free]),
            ]
            pick = sp.csr_array((np.full(m, kink.gap), (free, np.arange(m))), shape=(n, m))
            value = _sum((value, 1.0), (pick @ p, 1.0))
        values.append(sp.csr_array(value))
    if isinstance(problem.reach.domain, Polytope):
        A, b = problem.reach.domain.A, problem.reach.domain.b
        blocks.append((sp.csr_array(A), np.full(len(b), -inf), b))
    target = problem.maps[index]
    row = Affine({s: mx.dense(m[[unit]]) for s, m in target.terms.items()}, target.bias[[unit]])
    objective = _widen(_apply(row, values), count) * sign
    floor = -margin - sign * row.bias
    blocks.append((objective, floor, np.full(1, inf)))

    matrix = sp.csc_array(sp.vstack([_widen(block, count) for block, _, _ in blocks]))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, matrix.shape[0]
    model.col_cost_ = objective.toarray()[0]
    model.col_lower_, model.col_upper_ = np.concatenate(low), np.concatenate(high)
    model.row_lower_ = np.concatenate([x for _, x, _ in blocks])
    model.row_upper_ = np.concatenate([x for _, _, x in blocks])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    model.sense_ = highspy.ObjSense.kMaximize
    model.offset_ = float(sign * row.bias[0])
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[int(x)] for x in np.concatenate(integral)]
    solver = highspy.Highs()
    for name, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
        ("objective_target", 10 * margin),
    ):
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    return solver


def _columns(n: int, start: int) -> sp.csr_array:
    """Rows that pick n columns from ``start`` on."""
    return sp.csr_array((np.ones(n), (np.arange(n), start + np.arange(n))), shape=(n, start + n))


def _widen(matrix: sp.csr_array, columns: int) -> sp.csr_array:
    return sp.csr_array(
        (matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], columns)
    )


def _sum(*parts: tuple[sp.csr_array, Any]) -> sp.csr_array:
    """The sum of matrices, each with its rows scaled."""
    columns = max(matrix.shape[1] for matrix, _ in parts)
    total = None
    for matrix, scale in parts:
        wide = _widen(sp.csr_array(matrix), columns)
        factor = np.broadcast_to(np.asarray(scale, dtype=float), (matrix.shape[0],))
        scaled = sp.csr_array(sp.diags_array(factor) @ wide)
        total = scaled if total is None else total + scaled
    return sp.csr_array(total)


def _apply(affine: Affine, values: Sequence[sp.csr_array]) -> sp.csr_array:
    """The linear part of an affine map of values written in columns."""
    parts = [(sp.csr_array(sp.csr_array(m) @ values[s]), 1.0) for s, m in affine.terms.items()]
    return _sum(*parts) if parts else sp.csr_array((affine.size, 1))

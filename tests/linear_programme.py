"""Small linear programmes of the oracles, by HiGHS itself.

`scipy.optimize.linprog` asks the same solver, and takes eight times as long for checks and
conversions around it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import highspy
import numpy as np


@cache
def _solver() -> Any:
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


def minimum(goal, rows, rhs, lo=-np.inf, hi=np.inf) -> tuple[np.ndarray, float] | None:
    """A point with the smallest goal . x over rows x <= rhs and lo <= x <= hi, and that value; None
    where there is none."""
    goal, rhs = np.asarray(goal, dtype=float), np.asarray(rhs, dtype=float)
    count, size = len(rhs), len(goal)
    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = size, count
    model.col_cost_ = goal
    model.col_lower_, model.col_upper_ = (np.broadcast_to(end, size) for end in (lo, hi))
    model.row_lower_, model.row_upper_ = np.full(count, -np.inf), rhs
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(0, count * size + 1, size)
    model.a_matrix_.index_ = np.tile(np.arange(size), count)
    model.a_matrix_.value_ = np.asarray(rows, dtype=float).reshape(-1)
    solver = _solver()
    assert solver.passModel(model) != highspy.HighsStatus.kError
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(solver.getSolution().col_value), float(solver.getObjectiveValue())

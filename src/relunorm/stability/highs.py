"""A maximisation handed to HiGHS: arrays in, a solver that can be run again out."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.matrix import Vector

#: The tightest feasibility tolerance HiGHS is asked for; nothing within it is believed.
TOLERANCE = 1e-9


def maximization(
    cost: Vector,
    columns: tuple[Vector, Vector],
    matrix: Any,
    rows: tuple[Vector, Vector],
    *,
    constant: float = 0.0,
    integral: NDArray[np.bool_] | None = None,
    **options: Any,
) -> Any:
    """A HiGHS solver for max cost.x + constant, columns and rows between bounds, on one thread.

    Args:
        matrix: the rows, dense or sparse.
        integral: which columns are integers.
        options: further HiGHS options.
    """
    import highspy

    sparse: Any = sp.csc_array(matrix)
    model: Any = highspy.HighsLp()
    model.num_row_, model.num_col_ = sparse.shape
    model.col_cost_, model.offset_ = cost, constant
    model.col_lower_, model.col_upper_ = columns
    model.row_lower_, model.row_upper_ = rows
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = sparse.indptr, sparse.indices
    model.a_matrix_.value_ = sparse.data
    model.sense_ = highspy.ObjSense.kMaximize
    if integral is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(x)] for x in integral]
    solver: Any = highspy.Highs()
    defaults = {
        "output_flag": False,
        "threads": 1,
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": TOLERANCE,
        "mip_feasibility_tolerance": TOLERANCE,
    }
    for name, setting in {**defaults, **options}.items():
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    return solver

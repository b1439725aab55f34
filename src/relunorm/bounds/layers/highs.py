"""Linear programmes that are solved again and again with other goals, by HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.matrix import Vector


def maximization(
    columns: tuple[Vector, Vector],
    matrix: NDArray[np.float64],
    rows: tuple[Vector, Vector],
    **options: Any,
) -> Any:
    """A solver for maxima over columns and rows between ends; its goal is 0 until it gets one.

    On one thread always: HiGHS has one pool of threads a process and refuses a model that asks for
    another number than the first one did.
    """
    import highspy

    sparse: Any = sp.csc_array(matrix)
    model: Any = highspy.HighsLp()
    model.num_row_, model.num_col_ = sparse.shape
    model.col_cost_ = np.zeros(sparse.shape[1])
    model.col_lower_, model.col_upper_ = columns
    model.row_lower_, model.row_upper_ = rows
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = sparse.indptr, sparse.indices
    model.a_matrix_.value_ = sparse.data
    model.sense_ = highspy.ObjSense.kMaximize
    solver: Any = highspy.Highs()
    options = {"output_flag": False, "threads": 1, "presolve": "off", **options}
    for name, setting in options.items():
        solver.setOptionValue(name, setting)
    solver.passModel(model)
    return solver

"""Models of HiGHS that live in one process."""

from __future__ import annotations

import highspy
import numpy as np

from relunorm.bounds.layers.highs import maximization
from relunorm.clock import NO_LIMIT, Teller
from relunorm.regions.geometry.sparse_walls import facet_rows


def test_a_maximum_over_rows_and_columns() -> None:
    rows = np.array([[1.0, 1.0], [1.0, -1.0]])
    ends = (np.array([-1.0, -np.inf]), np.array([1.0, 0.5]))
    solver = maximization((np.zeros(2), np.full(2, 3.0)), rows, ends)
    solver.changeColsCost(2, np.arange(2, dtype=np.int32), np.array([1.0, 0.0]))
    solver.run()
    assert solver.getInfo().objective_function_value == 0.75


def test_walls_leave_other_programmes_their_thread() -> None:
    """With more than two cores the default is a pool that refuses every model on one thread."""
    highspy.Highs.resetGlobalScheduler(True)
    cube = np.concatenate([np.eye(3), -np.eye(3), np.full((1, 3), 3**-0.5)])
    ends = np.append(np.ones(6), 10.0)
    kept, _, complete = facet_rows(cube, ends, np.zeros(3), 0, NO_LIMIT, Teller(None, NO_LIMIT))
    assert complete
    assert kept.tolist() == [True] * 6 + [False]
    solver = maximization((np.zeros(1), np.ones(1)), np.ones((1, 1)), (np.zeros(1), np.ones(1)))
    assert solver.run() == highspy.HighsStatus.kOk

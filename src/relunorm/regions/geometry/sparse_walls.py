"""Facets and largest balls in many dimensions, by HiGHS with warm starts.

The compiled simplex keeps a dense basis inverse of the input's size, which pays up to a few dozen
inputs. Beyond, a row is tested by one programme that differs from the last in one bound and the
objective. Rows that are linearly independent are all facets, and then no programme is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.highs import maximization
from relunorm.clock import Clock, Teller
from relunorm.errors import RelunormError
from relunorm.matrix import Array


def facet_rows(
    A: Array, b: Array, inside: Array, units: int, clock: Clock, tell: Teller
) -> tuple[NDArray[np.bool_], Array, bool]:
    """Which rows of {A x <= b} (unit length) are facets, a point on each, and whether all is known.

    Rows that the time did not suffice for are kept, with NaN for a point.

    Args:
        units: the rows of units come first, so many. Of a unit's row and one of the domain in the
            same place the domain's is kept, since nothing lies across it.
    """
    m, _ = A.shape
    slack = b - A @ inside
    at = np.full_like(A, np.nan)
    if m <= A.shape[1] and np.linalg.matrix_rank(A) == m:
        # Independent rows: move along the direction that changes one row only.
        duals = np.linalg.pinv(A).T
        return np.ones(m, bool), inside + slack[:, None] * duals, True
    free = np.full(A.shape[1], np.inf)
    # primal: a new goal keeps the basis feasible
    model = maximization((-free, free), A, (np.full(m, -np.inf), b), simplex_strategy=4)
    kept = np.ones(m, bool)
    far = slack + np.where(np.arange(m) < units, 2e-9, 0.0)
    for done, r in enumerate(np.argsort(-far)):
        tell("walls", done, m)
        if clock.expired():
            return kept, at, False
        known, beyond = _reach_beyond(model, A, b, int(r), clock)
        if not known:
            return kept, at, False
        if beyond is None:
            kept[r] = False
            model.changeRowBounds(int(r), -np.inf, np.inf)
            continue
        model.changeRowBounds(int(r), -np.inf, float(b[r]))
        share = slack[r] / (slack[r] + A[r] @ beyond - b[r])
        at[r] = inside + share * (beyond - inside)
    return kept, at, True


def _reach_beyond(
    model: Any, A: Array, b: Array, row: int, clock: Clock
) -> tuple[bool, Array | None]:
    """Whether the programme ended in time, and a point beyond the row if there is one."""
    import highspy

    columns = np.arange(A.shape[1], dtype=np.int32)
    model.changeColsCost(len(columns), columns, A[row])
    model.changeRowBounds(row, -np.inf, float(b[row]) + 1.0)
    model.setOptionValue("time_limit", model.getRunTime() + clock.left())
    model.run()
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kTimeLimit:
        return False, None
    if status != highspy.HighsModelStatus.kOptimal:
        raise RelunormError(
            f"the solver ended with {model.modelStatusToString(status)} on wall {row} of a region"
        )
    x = np.array(model.getSolution().col_value)
    return True, x if A[row] @ x > b[row] + 1e-9 else None


def largest_ball(A: Array, b: Array, clock: Clock | None = None) -> tuple[float, Array]:
    """Radius and centre of a largest ball in {A x <= b}; infinite radius where there is none.

    The radius is NaN where the clock ended the search.
    """
    from scipy.optimize import linprog

    d = A.shape[1]
    lengths = np.linalg.norm(A, axis=1)
    cost = np.append(np.zeros(d), -1.0)
    bounds = [(None, None)] * d + [(0, None)]
    seconds = np.inf if clock is None else clock.left()
    limit = {"time_limit": seconds} if np.isfinite(seconds) else {}
    rows = np.column_stack([A, lengths])
    found = linprog(cost, A_ub=rows, b_ub=b, bounds=bounds, options=limit)
    if found.status == 1 and limit:
        return np.nan, np.full(d, np.nan)
    if found.status == 3:
        return np.inf, np.full(d, np.nan)
    if found.status != 0:
        raise RelunormError(f"no largest ball of a region: {found.message.strip()}")
    return float(found.x[-1]), np.asarray(found.x[:-1])


def is_bounded(A: Array) -> bool:
    """Whether {A x <= b} is bounded: rows span, and a positive combination of all is zero."""
    from scipy.optimize import linprog

    m, d = A.shape
    if m <= d or np.linalg.matrix_rank(A) < d:
        return False
    found = linprog(np.zeros(m), A_eq=A.T, b_eq=np.zeros(d), bounds=[(1, None)] * m)
    return found.status == 0

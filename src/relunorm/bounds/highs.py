"""A maximisation handed to HiGHS: arrays in, a solver that can be run again out.

Mixed-integer programmes go in units that suit a solver with absolute tolerances. HiGHS takes a row
for satisfied within 1e-9 and drops coefficients below that, whatever the row's own size: with
weights of 1e9 no float point satisfies its rows, and it may call a programme infeasible that has
solutions. Here every continuous column is shifted and scaled to [-1, 1] and every row divided by
its largest coefficient. Rounding and dropped coefficients are paid for by widening the row, so the
scaled programme has every solution that the given one has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.floats import TINY, UNIT, gamma
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
    solver.HandleUserInterrupt = True
    solver.passModel(model)
    return solver


#: A column is taken for at least this wide, relative to where it lies.
NARROW = 2.0**-10


@dataclass(frozen=True, eq=False)
class Programme:
    """least <= matrix y <= most, low <= y <= high, where x = middle + radius * y.

    Attributes:
        integral: which columns are integers; these are not scaled.
        size: what each row was divided by.
    """

    matrix: Any
    least: Vector
    most: Vector
    low: Vector
    high: Vector
    integral: NDArray[np.bool_]
    middle: Vector
    radius: Vector
    size: Vector

    def outward(self, values: Vector) -> Vector:
        """A solution in the units it was given in."""
        return self.middle + self.radius * values


def scaled(
    columns: tuple[Vector, Vector],
    matrix: Any,
    rows: tuple[Vector, Vector],
    integral: NDArray[np.bool_],
) -> Programme | None:
    """Scale a programme; None where its rounding exceeds what the solver tolerates.

    >>> one = np.array([1e9])
    >>> found = scaled((0 * one, one), [[3.0]], (0 * one, one), np.array([False]))
    >>> found.matrix.toarray().tolist(), found.low.round(9).tolist(), found.size.tolist()
    ([[1.0]], [-1.0], [1500000000.0])
    """
    low, high = columns
    middle = np.where(integral, 0.0, low / 2 + high / 2)
    half = np.maximum(high - middle, middle - low)
    radius = np.maximum(half, NARROW * np.abs(middle))  # rounding counts for more in a narrow one
    radius = np.where(integral | (radius < TINY), 1.0, radius)
    room = half / radius * (1 + 8 * UNIT)
    ends = np.where(integral, low, -room), np.where(integral, high, room)
    given: Any = sp.csr_array(matrix)
    sized: Any = sp.csr_array(given.multiply(radius[None, :]))
    size = abs(sized).max(axis=1).toarray().ravel() if sized.shape[1] else np.zeros(len(rows[0]))
    size = np.where(size > 0, size, 1.0)
    sized = sp.csr_array(sized.multiply(1 / size[:, None]))
    shift = given @ middle
    finite = [np.where(np.isfinite(side), np.abs(side), 0.0) for side in rows]
    weight = abs(given) @ np.abs(middle) + np.maximum(*finite) + size * abs(sized).sum(axis=1)
    blur = gamma(given.shape[1] + 8) * weight / size
    small = sized.copy()
    small.data[np.abs(small.data) >= TOLERANCE] = 0.0
    blur = blur + abs(small).sum(axis=1)
    least, most = ((side - shift) / size for side in rows)
    furthest = abs(sized).sum(axis=1) * (1 + 1e-9) + blur
    least = np.where(least <= -furthest, -np.inf, least)  # the columns' own ends imply it
    most = np.where(most >= furthest, np.inf, most)
    blur = np.where(np.isinf(least) & np.isinf(most), 0.0, blur)
    sized.data[np.abs(sized.data) < TOLERANCE] = 0.0
    sized.eliminate_zeros()
    if not (np.isfinite(blur).all() and blur.max(initial=0.0) <= 100 * TOLERANCE):
        return None
    return Programme(sized, least - blur, most + blur, *ends, integral, middle, radius, size)

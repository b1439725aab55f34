"""Where a spline without penalty leaves its data: knots crowded into the gap between two rows.

Between neighbouring inputs nothing holds a spline; two knots there, or one beside a piece of one
row, can buy a little squared error with a spike of any height.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spike(x: Floats, y: Floats, weight: Floats, edges: Floats, values: Floats) -> float:
    """How far, at worst, a knot's value is outside the targets around it, over what is usual there.

    Around knot j are the rows between knots j - 1 and j + 1, at least two on either side; usual is
    the range of their targets plus three root mean squared errors of the whole fit. Below 1 no knot
    stands out. O(n + K).

    Args:
        x: (n,) sorted inputs.
        edges, values: ends and knots of the spline, and its values there.

    >>> x, y = np.arange(6.0), np.array([0.0, 0, 0, 1, 1, 1])
    >>> edges = np.array([0, 2.0, 2.5, 3.0, 5])
    >>> spike(x, y, np.ones(6), edges, np.array([0, 0, 9.0, 1, 1])) > 1
    True
    >>> spike(x, y, np.ones(6), edges, np.array([0, 0, 0.5, 1, 1]))
    0.0
    """
    fitted = np.interp(x, edges, values)
    noise = np.sqrt(weight @ np.square(fitted - y) / weight.sum())
    scale = np.ptp(y)
    at = np.searchsorted(x, edges)
    worst = 0.0
    for j in range(1, len(edges) - 1):
        near = y[max(0, min(at[j - 1], at[j] - 2)) : max(at[j + 1], at[j] + 2)]
        low, high = near.min(), near.max()
        outside = max(values[j] - high, low - values[j], 0.0)
        usual = high - low + 3 * noise + 1e-9 * scale
        if outside > 0:
            worst = max(worst, float(outside / usual) if usual > 0 else np.inf)
    return worst

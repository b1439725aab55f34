"""Searching the difference of two networks by cutting boxes of inputs in two.

Best first: the boxes with the largest upper bounds are cut across the input along which the first
network varies most, and bounded together. Their middles and the corners that their linear bounds
point to are tried as inputs where the networks differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.difference.linear import linear_bounds
from relunorm.difference.pair import Pair
from relunorm.errors import TimeLimitError
from relunorm.matrix import Vector
from relunorm.network import Network

Array = NDArray[np.float64]

#: Boxes cut at a time, and kept at most.
BATCH, POOL = 32, 200_000

#: Every so many boxes one is cut across its relatively longest side, whatever the slopes say.
LONGEST = 4


def cut(
    pair: Pair,
    first: Network,
    box: tuple[Vector, Vector],
    upper: Vector,
    offer: Callable[[Array], None],
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
) -> Vector:
    """Lower the bounds of g - f, then of f - g, over a box, until they are enough.

    Args:
        upper: (2 outputs,), what is known.
        offer: takes inputs at which the networks may differ.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.
    """
    lo, hi, bounds = box[0][None], box[1][None], upper[None]
    whole = np.where(box[1] > box[0], box[1] - box[0], 1.0)
    while bounds.max() > enough() and not clock.expired() and len(lo) <= POOL:
        order = np.argsort(-bounds.max(axis=1), kind="stable")
        chosen, rest = order[:BATCH], order[BATCH:]
        low, high, known = lo[chosen], hi[chosen], bounds[chosen]
        middle = low / 2 + high / 2
        across = _across(first, middle, high - low, whole)
        at = np.arange(len(chosen))
        left, right = high.copy(), low.copy()
        left[at, across] = right[at, across] = middle[at, across]
        parts = np.concatenate([low, right]), np.concatenate([left, high])
        if not ((left > low).any(axis=1) & (high > right).any(axis=1)).all():
            break  # as small as floats allow
        try:
            found = linear_bounds(pair, *parts, clock)
        except TimeLimitError:
            break
        tighter = np.minimum(found.upper, np.concatenate([known, known]))
        worst = found.slope[np.arange(len(tighter)), found.upper.argmax(axis=1)]
        corners = np.where(worst > 0, parts[1], parts[0])
        offer(np.concatenate([parts[0] / 2 + parts[1] / 2, corners]))
        lo = np.concatenate([lo[rest], parts[0]])
        hi = np.concatenate([hi[rest], parts[1]])
        bounds = np.concatenate([bounds[rest], tighter])
        tell(float(bounds.max()))
    return np.minimum(upper, bounds.max(axis=0))


def _across(first: Network, middle: Array, width: Array, whole: Vector) -> NDArray[np.intp]:
    """For every box the input that is cut."""
    varies = np.abs(first.jacobian(middle)).sum(axis=1) * width
    longest = (width / whole).argmax(axis=1)
    flat = varies.max(axis=1) == 0
    use = (np.arange(len(middle)) % LONGEST == LONGEST - 1) | flat
    return np.where(use, longest, varies.argmax(axis=1))

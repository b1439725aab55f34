"""Searching the difference of two networks by cutting boxes of inputs in two.

Best first: the boxes with the largest upper bounds are cut across the input along which the first
network varies most, and bounded together. Their middles and the corners that their linear bounds
point to are tried as inputs where the networks differ.

A unit that keeps its sign in both networks over a box keeps it over every part of the box, so only
those that are open are bounded again. With few of them a box costs a small share of the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.difference.linear import Bounded, Ends, linear_bounds, open_units
from relunorm.difference.pair import Pair
from relunorm.errors import TimeLimitError
from relunorm.matrix import Vector
from relunorm.network import Network

Array = NDArray[np.float64]

#: Boxes cut at a time, and kept at most.
BATCH, POOL = 64, 50_000

#: Every so many boxes one is cut across its relatively longest side, whatever the slopes say.
LONGEST = 4


def cut(
    pair: Pair,
    first: Network,
    box: tuple[Vector, Vector],
    root: Bounded,
    offer: Callable[[Array], None],
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
) -> Vector:
    """Lower the bounds of g - f, then of f - g, over a box, until they are enough.

    Args:
        root: what is known of the whole box.
        offer: takes inputs at which the networks may differ.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.
    """
    whole = np.where(box[1] > box[0], box[1] - box[0], 1.0)
    kept = _Kept([layer.ends for layer in root.layers])
    lo, hi, bounds = box[0][None], box[1][None], root.upper
    signs = [kept.pack([layer.ends for layer in root.layers], 0)]
    while bounds.max() > enough() and not clock.expired() and len(lo) <= POOL:
        order = np.argsort(-bounds.max(axis=1), kind="stable")
        open_ = bounds[order[:BATCH]].max(axis=1) > enough()
        chosen, rest = order[:BATCH][open_], np.append(order[:BATCH][~open_], order[BATCH:])
        low, high = lo[chosen], hi[chosen]
        middle = low / 2 + high / 2
        across = _across(first, middle, high - low, whole)
        at = np.arange(len(chosen))
        left, right = high.copy(), low.copy()
        left[at, across] = right[at, across] = middle[at, across]
        parts = np.concatenate([low, right]), np.concatenate([left, high])
        if not ((left > low).any(axis=1) & (high > right).any(axis=1)).all():
            break  # as small as floats allow
        known = kept.unpack([signs[k] for k in chosen] * 2)
        try:
            found = linear_bounds(pair, *parts, clock, known)
        except TimeLimitError:
            break
        tighter = np.minimum(found.upper, np.tile(bounds[chosen], (2, 1)))
        worst = found.slope[np.arange(len(tighter)), found.upper.argmax(axis=1)]
        corners = np.where(worst > 0, parts[1], parts[0])
        offer(np.concatenate([parts[0] / 2 + parts[1] / 2, corners]))
        ends = [layer.ends for layer in found.layers]
        signs = [signs[k] for k in rest] + [kept.pack(ends, k) for k in range(len(tighter))]
        lo = np.concatenate([lo[rest], parts[0]])
        hi = np.concatenate([hi[rest], parts[1]])
        bounds = np.concatenate([bounds[rest], tighter])
        tell(float(bounds.max()))
    return np.minimum(root.upper[0], bounds.max(axis=0))


@dataclass(frozen=True, eq=False)
class _Signs:
    """What is kept of a box: units that are on and off in both networks, ends of the others."""

    on: NDArray[np.bool_]
    open: NDArray[np.intp]
    ends: Array


class _Kept:
    """Bounds of all layers of a box in little memory, given those of the box around it."""

    def __init__(self, root: list[Ends]):
        self.root = np.concatenate(root, axis=2)[0]
        self.cuts = np.cumsum([layer.shape[2] for layer in root])[:-1]

    def pack(self, layers: list[Ends], box: int) -> _Signs:
        ends = np.concatenate([layer[box] for layer in layers], axis=1)
        units = np.flatnonzero(open_units(ends[None])[0])
        return _Signs((ends[0] >= 0) & (ends[4] >= 0), units, ends[:, units])

    def unpack(self, signs: list[_Signs]) -> list[Ends]:
        ends = np.repeat(self.root[None], len(signs), axis=0)
        on = np.stack([part.on for part in signs])
        for low in (0, 4):
            ends[:, low] = np.where(on, np.maximum(ends[:, low], 0.0), ends[:, low])
            ends[:, low + 1] = np.where(on, ends[:, low + 1], np.minimum(ends[:, low + 1], 0.0))
        for row, part in zip(ends, signs, strict=True):
            row[:, part.open] = part.ends
        return np.split(ends, self.cuts, axis=2)


def _across(first: Network, middle: Array, width: Array, whole: Vector) -> NDArray[np.intp]:
    """For every box the input that is cut."""
    varies = np.abs(first.jacobian(middle)).sum(axis=1) * width
    longest = (width / whole).argmax(axis=1)
    flat = varies.max(axis=1) == 0
    use = (np.arange(len(middle)) % LONGEST == LONGEST - 1) | flat
    return np.where(use, longest, varies.argmax(axis=1))

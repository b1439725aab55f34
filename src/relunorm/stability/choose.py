"""Where to split a node: of a few promising units, the one whose halves bound best.

Candidates have the largest cost of their line at the relaxed point (Bunel et al., JMLR 2020, rank
by an estimate of it) or the largest intercept. Both halves of each are bounded with the parent's
slopes, all in one batch (De Palma et al., 2021, filter the same way).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.matrix import Vector
from relunorm.stability.linear import Part, Slopes
from relunorm.stability.problem import Bounds, Kink, Problem
from relunorm.stability.slopes import Proposal, optimize

#: Candidates by cost and as many by intercept.
EACH = 4


def best_splits(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    part: Part,
    slopes: Slopes,
    found: Proposal,
    rows: NDArray[np.intp],
) -> list[tuple[int, int] | None]:
    """For each of ``rows`` the (layer, unit) to split at; None where every sign is decided."""
    layers = [layer for layer in sorted(found.score) if layer in part.lower]
    if not len(rows) or not layers:
        return [None] * len(rows)
    edges = np.cumsum([0] + [found.score[k].shape[1] for k in layers])
    cost = np.concatenate([found.score[k][rows] for k in layers], axis=1)
    intercept = np.concatenate([found.intercept[k][rows] for k in layers], axis=1)
    columns = np.concatenate([_largest(cost), _largest(intercept)], axis=1)
    place = np.searchsorted(edges, columns, side="right") - 1
    unit = columns - edges[place]

    owner = np.repeat(rows, 2 * columns.shape[1])
    sense = np.tile([-1, 1], columns.size)
    halves, start = part.take(owner), slopes.take(owner)
    for k, layer in enumerate(layers):
        for sign, side in ((1, halves.lower), (-1, halves.upper)):
            at = np.flatnonzero((np.repeat(place.ravel(), 2) == k) & (sense == sign))
            column = np.repeat(unit.ravel(), 2)[at]
            side[layer][at, column] = 0.0
            lam, tilt = found.lam[layer][owner[at], column], start.tilt[layer][at, column]
            start.offset[layer][at, column] = inherited(problem.kinks[layer], lam, tilt, sign)
    value = optimize(
        problem, bounds, index, units[owner], signs[owner],
        part=halves, start=start, iterations=0, goal=None,
    ).value.reshape(*columns.shape, 2)  # fmt: skip
    gain = np.maximum(found.value[rows][:, None, None] - value, 0.0)
    merit = gain.min(axis=2) + 0.1 * gain.max(axis=2)
    merit = np.where(np.take_along_axis(intercept, columns, axis=1) > 0, merit, -1.0)
    best = merit.argmax(axis=1)
    return [
        (layers[place[row, k]], int(unit[row, k])) if merit[row, k] >= 0 else None
        for row, k in enumerate(best.tolist())
    ]


def inherited(kink: Kink, lam: Any, tilt: Any, sign: int) -> Any:
    """The offset that keeps a tangent's slope when its unit is decided; 0 in place of a chord."""
    keep = lam * kink.gap * (tilt - 1.0 if sign > 0 else tilt)
    return np.where(lam * kink.gap < 0, keep, 0.0)


def _largest(score: NDArray[Any]) -> NDArray[np.intp]:
    count = min(EACH, score.shape[1])
    return np.argpartition(-score, count - 1, axis=1)[:, :count]

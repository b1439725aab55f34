"""Bounds on every pre-activation: quick ones here, exact ones from `relunorm.stability`."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.forms.outward import Range
from relunorm.network import Network
from relunorm.stability.intervals import interval_bounds
from relunorm.stability.linear import linear_upper
from relunorm.stability.problem import Bounds, Problem
from relunorm.stability.reach import Reach
from relunorm.stability.result import Stability


def quick_bounds(network: Network, reach: Reach) -> list[Range]:
    """Sound pre-activation bounds by intervals and one backward linear pass a layer.

    Costs a few forward passes; no solver. Sound in real arithmetic.
    """
    problem = Problem(network, reach)
    bounds, result = Bounds(problem), []
    for index in range(len(network.layers)):
        lower, upper = interval_bounds(problem, bounds, index)
        rows = np.flatnonzero((lower < 0) & (upper > 0)) if index else np.empty(0, dtype=np.intp)
        if len(rows):
            up = np.ones(len(rows))
            upper[rows] = np.minimum(upper[rows], linear_upper(problem, bounds, index, rows, up))
            lower[rows] = np.maximum(lower[rows], -linear_upper(problem, bounds, index, rows, -up))
        bounds.append(lower, upper)
        result.append(Range(lower, upper))
    return result


def stable_bounds(found: Stability) -> list[Range]:
    """The bounds a stability analysis proved, per layer."""
    return [Range(layer.lower, layer.upper) for layer in found.layers]


def proved_bounds(network: Network, reach: Reach, proofs: Any) -> tuple[list[Range], int]:
    """Pre-activation bounds from their proofs, without a solver.

    Args:
        proofs: what `Stability.proofs.to_dict()` wrote; None asks for the quick bounds.

    Returns:
        the bounds, and how many units rest on a solver's word.
    """
    quick = quick_bounds(network, reach)
    if proofs is None:
        return quick, 0
    raise NotImplementedError

"""Recompute every bound from its proof, with no solver and no search.

Layer by layer: intervals, the fixed linear rule where the sign is still open, then the stored
proofs of that layer. Only products, sums and maxima with their rounding added; what comes out holds
in real arithmetic for the network as stored. Ties that were decided in fractions are decided again.

Rows whose bound is 0 up to rounding get the fixed linear rule in rational arithmetic: floating
point with its error added cannot say that a maximum is exactly 0 (a unit that reads relu(x) - x
where x >= 0, say). Such rows are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.exact import exact_upper
from relunorm.bounds.layers.intervals import interval_bounds
from relunorm.bounds.layers.linear import Slopes, linear_upper
from relunorm.bounds.problem import Bounds, Problem, few_threads
from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Domain
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.bound_proofs import FractionProof, Proof, Proofs, SearchedProof, SlopeProof

#: Bounds this close to 0, relative to the interval, are redone in rational arithmetic.
NEAR = 1e-10


@dataclass(frozen=True, eq=False)
class Replay:
    """Bounds that were recomputed.

    Attributes:
        lower, upper: of every layer's pre-activations, the linear stages included.
        output_lower, output_upper: of the network's output.
        low, high: of every value, the input first.
    """

    lower: tuple[Vector, ...]
    upper: tuple[Vector, ...]
    output_lower: Vector
    output_upper: Vector
    low: tuple[Vector, ...]
    high: tuple[Vector, ...]


def replay(network: Network, domain: Domain, proofs: Proofs, *, clock: Clock = NO_LIMIT) -> Replay:
    """Recompute the bounds that ``proofs`` prove.

    Raises:
        InvalidInputError: the proofs do not fit the network, or do not prove what they say.
        TimeLimitError: the clock ended first.
    """
    domain.check_dimension(network.input_size)
    if proofs.digest and proofs.digest != network.digest:
        raise InvalidInputError("the bound proofs were made for another network (digest differs)")
    with few_threads(network), np.errstate(over="ignore", invalid="ignore"):
        return _replay(network, domain, proofs, clock)


def _replay(network: Network, domain: Domain, proofs: Proofs, clock: Clock) -> Replay:
    problem = Problem(network, reach_of(domain, proofs.box_duals))
    bounds = Bounds(problem)
    if any(isinstance(item, SearchedProof) for item in proofs.items):
        from relunorm.search.proofs.replay import warm_up

        Teller(None, clock).compile("the replay of its proofs", warm_up)
    for index in range(len(network.layers)):
        lower, upper = rule_bounds(problem, bounds, index, clock=clock)
        bounds.append(lower, upper)
        for item in proofs.items:
            if item.layer == index:
                clock.check()
                apply(problem, bounds, item)
        if (bounds.lower[index] > bounds.upper[index]).any():
            raise InvalidInputError(f"the bound proofs of layer {index} contradict each other")
        clock.check()
    lower, upper = rule_bounds(problem, bounds, len(network.layers), every=True, clock=clock)
    clock.check()
    return Replay(
        tuple(bounds.lower),
        tuple(bounds.upper),
        lower,
        upper,
        tuple(bounds.low),
        tuple(bounds.high),
    )


def rule_bounds(
    problem: Problem, bounds: Bounds, index: int, *, every: bool = False, clock: Clock = NO_LIMIT
) -> tuple[Vector, Vector]:
    """Intervals, then the fixed linear rule for rows whose sign is open, or for ``every`` row.

    Rows not reached before the clock's end keep their intervals. Whoever searches must not prove
    anything for a layer cut short so: a replay, which takes its time, starts from tighter bounds.
    """
    lower, upper = interval_bounds(problem, bounds, index)
    rows = np.arange(len(lower)) if every else np.flatnonzero((lower < 0) & (upper > 0))
    if index and len(rows):
        ones = np.ones(len(rows))
        width = upper[rows] - lower[rows]
        near = np.where(np.isfinite(width), NEAR * width, -np.inf)
        high = linear_upper(problem, bounds, index, rows, ones, clock=clock)
        low = -linear_upper(problem, bounds, index, rows, -ones, clock=clock)
        for k in np.flatnonzero((high > 0) & (high <= near)):
            if clock.expired():
                break
            high[k] = min(high[k], exact_upper(problem, bounds, index, int(rows[k]), 1))
        for k in np.flatnonzero((low < 0) & (low >= -near)):
            if clock.expired():
                break
            low[k] = max(low[k], -exact_upper(problem, bounds, index, int(rows[k]), -1))
        upper[rows], lower[rows] = np.minimum(upper[rows], high), np.maximum(lower[rows], low)
    return lower, upper


def apply(problem: Problem, bounds: Bounds, item: Proof, *, fresh: bool = False) -> None:
    """Tighten the bounds of the last layer by one proof.

    Args:
        fresh: a search has just made the proof: what it claims need not be computed again.
    """
    index = item.layer
    if index != len(bounds.lower) - 1:
        raise InvalidInputError(f"a bound proof for layer {index} is out of place")
    width = problem.network.layers[index].width
    units, signs, value = _proved(problem, bounds, item, width, fresh)
    if len(units) and not ((units >= 0) & (units < width)).all():
        raise InvalidInputError(f"a bound proof names a unit outside layer {index}")
    if np.isnan(value).any():
        raise InvalidInputError(f"a bound proof for layer {index} gives no number")
    lower, upper = bounds.lower[index].copy(), bounds.upper[index].copy()
    up, down = signs > 0, signs < 0
    np.minimum.at(upper, units[up], value[up])
    np.maximum.at(lower, units[down], -value[down])
    bounds.replace_last(lower, upper)


def _proved(
    problem: Problem, bounds: Bounds, item: Proof, width: int, fresh: bool
) -> tuple[NDArray[np.intp], Vector, Vector]:
    """Units, signs, and safe upper bounds of sign * z."""
    if isinstance(item, SlopeProof):
        _check(problem, item.layer, item.slopes, len(item.units))
        if len(item.units) != len(item.signs) or (item.units >= width).any():
            raise InvalidInputError(f"a slope proof does not fit layer {item.layer}")
        value = linear_upper(problem, bounds, item.layer, item.units, item.signs, item.slopes)
        return item.units, item.signs, value
    from relunorm.stability.sides import fraction_bound, searched_bound

    one, sign = np.array([item.unit]), np.array([float(item.sign)])
    if not 0 <= item.unit < width:
        raise InvalidInputError(f"a bound proof names unit {item.unit} of layer {item.layer}")
    if fresh:
        claim = item.limit if isinstance(item, SearchedProof) else 0.0
    elif isinstance(item, FractionProof):
        claim = fraction_bound(problem, item)
    else:
        claim = searched_bound(problem, bounds, item)
    return one, sign, np.array([claim])


def _check(problem: Problem, index: int, slopes: Slopes, rows: int) -> None:
    """Shapes, finiteness and signs: all that soundness asks of stored numbers."""
    for arrays in (slopes.tilt, slopes.offset):
        for layer, array in arrays.items():
            fits = 0 <= layer < index
            expected = (rows, problem.network.layers[layer].width) if fits else None
            if array.shape != expected or not np.isfinite(array).all():
                raise InvalidInputError(
                    f"slopes for layer {layer} have shape {array.shape}, expected {expected}"
                )
    many = slopes.multipliers
    if many is not None and (many.shape != (rows, problem.reach.rows) or not (many >= 0).all()):
        raise InvalidInputError("the multipliers of a polytope's rows are negative or do not fit")

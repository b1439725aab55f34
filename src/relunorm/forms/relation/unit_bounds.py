"""Bounds on every pre-activation: quick ones here, exact ones from `relunorm.stability`."""

from __future__ import annotations

from typing import Any

from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range
from relunorm.network import Network
from relunorm.stability.bound_proofs import Proofs
from relunorm.stability.bound_replay import replay, rule_bounds
from relunorm.stability.verdicts import Stability


def quick_bounds(network: Network, reach: Reach, clock: Clock = NO_LIMIT) -> list[Range]:
    """Sound pre-activation bounds by intervals and one backward linear pass a layer.

    Costs a few forward passes; no solver. Sound in real arithmetic. A clock that ends before raises
    `TimeLimitError`.
    """
    problem = Problem(network, reach)
    bounds = Bounds(problem)
    for index in range(len(network.layers)):
        bounds.append(*rule_bounds(problem, bounds, index, clock=clock))
        clock.check()
    return [Range(lo, hi) for lo, hi in zip(bounds.lower, bounds.upper, strict=True)]


def stable_bounds(found: Stability) -> list[Range]:
    """The bounds a stability analysis proved, per layer."""
    return [Range(layer.lower, layer.upper) for layer in found.layers]


def proved_bounds(
    network: Network, reach: Reach, proofs: Any, clock: Clock = NO_LIMIT
) -> list[Range]:
    """Pre-activation bounds from their proofs, without a solver.

    Args:
        proofs: what `Stability.proofs.to_dict()` wrote; None asks for the quick bounds.
    """
    if proofs is None:
        return quick_bounds(network, reach, clock)
    again = replay(network, reach.domain, Proofs.from_dict(proofs), clock=clock)
    return [Range(lo, hi) for lo, hi in zip(again.lower, again.upper, strict=True)]


def unit_ranges(network: Network, reach: Reach | None, found: Stability | None) -> list[Range]:
    """The best proved bounds of the units: of an analysis, quick ones, or none at all."""
    if reach is None:
        return [Range.endless(layer.width) for layer in network.layers]
    return stable_bounds(found) if found is not None else quick_bounds(network, reach)

"""Bounds that hold in real arithmetic although they are computed in float64.

A sum of n products is off by at most gamma(n) times the sum of the magnitudes, whatever the order
of summation (`relunorm.arithmetic.floats`). Every bound here is widened by that much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm.arithmetic.floats import SMALLEST, TINY, UNIT, gamma, up
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.forms import rewrite
from relunorm.matrix import Matrix, Vector
from relunorm.network import Activation, Affine, Network
from relunorm.stability.bound_proofs import Proofs
from relunorm.stability.bound_replay import replay, rule_bounds
from relunorm.stability.verdicts import Stability


def up_once(value: float) -> float:
    """A number that a few operations on non-negative numbers gave, rounded up."""
    return float(value * (1 + 16 * UNIT) + TINY)


def euclidean(values: Vector) -> float:
    """An upper bound on the Euclidean norm of a vector of non-negative numbers."""
    largest = float(values.max(initial=0.0))
    if not 0 < largest < np.inf:
        return largest
    unit = 2.0 ** np.frexp(largest)[1] if largest < 2.0**1000 else largest
    scaled = values / unit + TINY  # squares of what is tiny beside the largest may vanish
    return up_once(unit * float(np.sqrt(np.sum(scaled * scaled))) * (1 + gamma(len(values) + 4)))


def row_lengths(matrix: Matrix) -> Vector:
    """Upper bounds on the Euclidean norms of the rows."""
    return up(rewrite.row_lengths([matrix], matrix.shape[0]), matrix.shape[1] + 8)


def spectral_norm(matrix: Matrix) -> float:
    """An upper bound on the largest singular value.

    The square root of the largest row sum times the largest column sum; for dense matrices of up to
    a thousand rows or columns also ||G||_2 <= ||G^k||_F^(1/k) for the symmetric G = M M^T, k = 16,
    by repeated squaring. A computed product of n terms is off by gamma(n) times the product of the
    Frobenius norms at most, which is added before each root.
    """
    size = abs(matrix)
    rows, columns = (np.asarray(size.sum(axis=a)).ravel().max(initial=0.0) for a in (1, 0))
    bound = float(np.sqrt(rows) * np.sqrt(columns)) * (1 + gamma(sum(matrix.shape) + 8))
    if sp.issparse(matrix) or min(matrix.shape) > 1024 or not 1e-100 < bound < 1e100:
        return up_once(bound)
    part = matrix / bound  # of norm 1 at most, up to rounding
    power = part @ part.T if matrix.shape[0] <= matrix.shape[1] else part.T @ part
    n = max(matrix.shape) + 8
    losses = [2 * gamma(n) * float((part * part).sum())]
    for _ in range(4):
        power = power / 2 + power.T / 2
        losses.append(2 * gamma(n) * float((power * power).sum()))
        power = power @ power
    power = power / 2 + power.T / 2
    found = float(np.sqrt((power * power).sum())) * (1 + gamma(power.size + 8))
    for loss in reversed(losses[1:]):
        found = up_once(np.sqrt(found + loss))
    return up_once(min(bound, bound * float(np.sqrt(found + losses[0]))))


def underflow_loss(box: Range) -> float:
    """What a row of coefficients on values in ``box`` can lose to underflow, one product each."""
    return float(2.0**-1070 * box.largest.sum())


@dataclass(frozen=True)
class Range:
    """An interval per entry of a value: lo <= value <= hi over the domain, for certain.

    An end that came out as NaN (inf - inf, 0 inf) says nothing: it is infinite.
    """

    lo: Vector
    hi: Vector

    def __post_init__(self) -> None:
        for name, endless in (("lo", -np.inf), ("hi", np.inf)):
            end = getattr(self, name)
            lost = np.isnan(end)
            if lost.any():
                object.__setattr__(self, name, np.where(lost, endless, end))

    @classmethod
    def endless(cls, size: int) -> Range:
        """Nothing is known."""
        return cls(np.full(size, -np.inf), np.full(size, np.inf))

    @property
    def largest(self) -> Vector:
        """max |value|."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def meet(self, other: Range) -> Range:
        """Both at once."""
        return Range(np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi))

    def after(self, activation: Activation) -> Range:
        """The interval of the activation."""
        below, above = activation.slopes
        if activation.kind == "step":
            low = np.where(self.lo > 0, 1.0, 0.0)
            high = np.where(self.hi < 0, 0.0, 1.0)
            if not 0 <= activation.at_zero <= 1:
                low = np.minimum(low, activation.at_zero)
                high = np.maximum(high, activation.at_zero)
            return Range(low, high)
        ends = [np.where(z > 0, above * z, below * z if below else 0.0) for z in (self.lo, self.hi)]
        inside = (self.lo < 0) & (self.hi > 0)
        low = np.where(inside, np.minimum(0.0, np.minimum(*ends)), np.minimum(*ends))
        high = np.where(inside, np.maximum(0.0, np.maximum(*ends)), np.maximum(*ends))
        if activation.kind == "relu":
            return Range(low, high)
        fade = np.where(self.lo < 0, SMALLEST, 0.0)  # a product that underflows to 0 is no 0
        return Range(low - (2 * UNIT * np.abs(low) + fade), high + (2 * UNIT * np.abs(high) + fade))


def magnitude(affine: Affine, ranges: Sequence[Range]) -> Vector:
    """An upper bound on sum |w| |value| + |bias| for every row."""
    total = np.abs(affine.bias)
    for source, matrix in affine.terms.items():
        total = total + abs(matrix) @ ranges[source].largest
    return up(total, inner_size(affine))


def inner_size(affine: Affine) -> int:
    """How many products a row of the map sums, at most."""
    return 1 + sum(m.shape[1] for m in affine.terms.values())


def span(affine: Affine, ranges: Sequence[Range], reach: Reach) -> Range:
    """The interval of an affine map of values in ``ranges``, value 0 being the input itself.

    Over a ball the input's part is bounded by its exact support function.
    """
    middle, swing = affine.bias.copy(), np.zeros(affine.size)
    ball = reach.domain.as_ball
    for source, matrix in affine.terms.items():
        box = ranges[source]
        if source == 0 and ball is not None:
            middle += matrix @ ball.middle
            norms = rewrite.row_lengths([matrix], affine.size)
            swing += ball.reach * norms
            continue
        center = box.lo / 2 + box.hi / 2
        radius = np.maximum(box.hi - center, center - box.lo) * (1 + 4 * UNIT)
        middle += matrix @ center
        swing += abs(matrix) @ radius
    pad = gamma(inner_size(affine) + 8) * magnitude(affine, ranges)
    swing = up(swing, inner_size(affine) + 8) + pad
    return Range(middle - swing, middle + swing)


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
    """Pre-activation bounds from their proofs, without a solver."""
    if proofs is None:
        return quick_bounds(network, reach, clock)
    again = replay(network, reach.domain, Proofs.from_dict(proofs), clock=clock)
    return [Range(lo, hi) for lo, hi in zip(again.lower, again.upper, strict=True)]


def unit_ranges(network: Network, reach: Reach | None, found: Stability | None) -> list[Range]:
    """The best proved bounds of the units: of an analysis, quick ones, or none at all."""
    if reach is None:
        return [Range.endless(layer.width) for layer in network.layers]
    return stable_bounds(found) if found is not None else quick_bounds(network, reach)

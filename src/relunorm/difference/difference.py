"""Both ends of max |f - g| for two similar networks over a box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from relunorm.bounds.pairs.linear import linear_bounds
from relunorm.bounds.pairs.pair import ALIKE, pair_up
from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference import boxes, quadratic
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError, TimeLimitError
from relunorm.matrix import Vector
from relunorm.network import Network

#: Inputs that vary, at most, for boxes to be cut; beyond, halving one of them changes too little.
FEW_INPUTS = 8


@dataclass(frozen=True, eq=False)
class Ends:
    """Bounds on g - f, then on f - g, output by output, and what gave them (`repeat`).

    Attributes:
        cuts: none where the box was not bounded as boxes are; empty where that was enough.
        interrupted: whether Ctrl-C ended the search; whoever asked for it has to say so.
    """

    upper: Vector
    method: str
    cuts: boxes.Cuts | None = None
    multipliers: list[Vector] = field(default_factory=list)
    interrupted: bool = False

    @property
    def largest(self) -> float:
        """A bound on max |f - g|."""
        return float(self.upper.max())


def bound_difference(
    first: Network,
    second: Network,
    reach: Reach,
    offer: boxes.Offer,
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float, str], None] = lambda upper, method: None,
    workers: int = 1,
) -> Ends | None:
    """Bound the difference of two networks whose layers correspond; None where they do not.

    Linear bounds first. While the largest is more than enough: with few inputs boxes are cut, with
    many the units of a layer are bounded together. Networks whose weights differ by more than half
    of their size are no copies and are not searched.

    Args:
        first, second: without linear stages.
        reach: of any domain; what is bounded is the box around it.
        offer: takes inputs at which the networks may differ, and how far around them is worth a
            look; given none, it looks for some by itself.
        enough: the bound at which to stop, asked again as better inputs are found.
        tell: called with the largest bound and what gave it, now and then.
        workers: threads that bound boxes side by side, or that multiply matrices.
    """
    box = reach.lo, reach.hi
    method = "linear bounds on the difference"
    try:
        pair = pair_up(first, second, clock)
        if pair is None:
            return None
        found = linear_bounds(pair, *box, clock)
    except TimeLimitError:
        return None
    upper = found.upper
    tell(float(upper.max()), method)
    corners = np.where(found.slope > 0, box[1], box[0])
    offer(corners, np.zeros_like(corners))
    hopeless = not np.isfinite(upper).all() or pair.apart > ALIKE or not found.layers
    if upper.max() <= enough() or hopeless:
        return Ends(upper, method)
    offer(corners[:0], corners[:0])
    if (box[1] > box[0]).sum() <= FEW_INPUTS:
        method = "boxes of inputs, " + method
        upper, cuts, stopped = boxes.cut(
            pair, box, found, offer, enough, clock, lambda bound: tell(bound, method), workers
        )
        return Ends(upper, method, cuts, interrupted=stopped)
    before = upper.max()
    joint = "quadratic bounds on the difference"
    from threadpoolctl import threadpool_limits

    with threadpool_limits(workers if workers > 1 else None, "blas"):
        upper, used, stopped = quadratic.tighten(
            pair, found.layers, box, upper, enough, clock, lambda bound: tell(bound, joint)
        )
    method = joint if upper.max() < before else method
    return Ends(upper, method, multipliers=used, interrupted=stopped)


def repeat(
    first: Network,
    second: Network,
    reach: Reach,
    cuts: boxes.Cuts | None,
    multipliers: list[Vector],
) -> Vector:
    """The bounds of `bound_difference` from the cuts or the multipliers it found, without a search.

    Raises:
        InvalidInputError: they do not fit the networks.
    """
    pair, box = pair_up(first, second, NO_LIMIT), (reach.lo, reach.hi)
    if pair is None:
        raise InvalidInputError("a proof bounds the difference of networks that have no pair")
    found = linear_bounds(pair, *box)
    upper = found.upper
    if cuts is not None:
        upper = boxes.repeat(pair, box, found, cuts)
    if multipliers:
        upper = quadratic.repeat(pair, found.layers, box, upper, multipliers)
    return upper

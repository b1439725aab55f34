"""Both ends of max |f - g| for two similar networks over a box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.difference.boxes import cut
from relunorm.difference.linear import linear_bounds
from relunorm.difference.pair import ALIKE, pair_up
from relunorm.difference.quadratic import tighten
from relunorm.domain import Domain
from relunorm.errors import TimeLimitError
from relunorm.matrix import Vector
from relunorm.network import Network

Array = NDArray[np.float64]

#: Inputs that vary, at most, for boxes to be cut; beyond, halving one of them changes too little.
FEW_INPUTS = 8


@dataclass(frozen=True, eq=False)
class Ends:
    """Bounds on g - f, then on f - g, output by output, and what gave them."""

    upper: Vector
    method: str

    @property
    def largest(self) -> float:
        """A bound on max |f - g|."""
        return float(self.upper.max())


def bound_difference(
    first: Network,
    second: Network,
    domain: Domain,
    offer: Callable[[Array], None],
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float, str], None] = lambda upper, method: None,
) -> Ends | None:
    """Bound the difference of two networks whose layers correspond; None where they do not.

    Linear bounds first. While the largest is more than enough: with few inputs boxes are cut, with
    many the units of a layer are bounded together. Networks whose weights differ by more than half
    of their size are no copies and are not searched.

    Args:
        first, second: without linear stages.
        domain: any; what is bounded is the box around it.
        offer: takes inputs at which the networks may differ; given none, it looks for some by
            itself.
        enough: the bound at which to stop, asked again as better inputs are found.
        tell: called with the largest bound and what gave it, now and then.
    """
    around = domain.bounding_box
    box = np.asarray(around.lo), np.asarray(around.hi)
    method = "linear bounds on the difference"
    try:
        pair = pair_up(first, second, clock)
        if pair is None:
            return None
        found = linear_bounds(pair, box[0][None], box[1][None], clock)
    except TimeLimitError:
        return None
    upper = found.upper[0]
    tell(float(upper.max()), method)
    offer(np.where(found.slope[0] > 0, box[1], box[0]))
    hopeless = not np.isfinite(upper).all() or pair.apart > ALIKE or not found.layers
    if upper.max() <= enough() or hopeless:
        return Ends(upper, method)
    offer(np.empty((0, len(box[0]))))
    if (box[1] > box[0]).sum() <= FEW_INPUTS:
        method = "boxes of inputs, " + method
        upper = cut(
            pair, first, box, found, offer, enough, clock, lambda bound: tell(bound, method)
        )
    else:
        before = upper.max()
        joint = "quadratic bounds on the difference"
        upper = tighten(
            pair, found.layers, box, upper, enough, clock, lambda bound: tell(bound, joint)
        )
        method = joint if upper.max() < before else method
    return Ends(upper, method)

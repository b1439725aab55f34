"""Relating two networks with bounds on demand: nothing is proved about a unit that has a partner.

The smaller network is walked first. A unit of the larger one that matches a known function needs no
bound at all; one that does not was removed from the smaller because it is dead or linear over the
domain, and that alone has to be proved, by the cheapest bound that suffices. Samples say which
units are worth a proof: one that was seen on both sides of its kink cannot be linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.errors import TimeLimitError
from relunorm.forms.outward import Range
from relunorm.forms.precision import is_single
from relunorm.forms.relation.match import ALIKE, ROUNDED, SAME, Forced, Matcher
from relunorm.forms.relation.relate import Walk
from relunorm.forms.relation.relation import NEW, OPPOSITE, SCALED, Relation, Side
from relunorm.matrix import Array
from relunorm.network import Activation, Network
from relunorm.stability.bound_proofs import Proofs
from relunorm.stability.query import Query

#: Nodes of branching one layer may cost.
NODES = 256
#: How often units of the smaller network that found no partner are asked about.
ROUNDS = 3


@dataclass
class Asking:
    """One network, its bounds on demand, and which of its units may be asked about.

    Attributes:
        query: where bounds come from.
        seen: per layer a mask (2, width): which units were seen below and above 0.
        wanted: per layer the units to ask about; None for all that find no partner.
        nodes: how many nodes of branching one layer may cost.
    """

    query: Query
    seen: list[NDArray[np.bool_]]
    wanted: dict[int, NDArray[np.intp]] | None = field(default_factory=dict)
    nodes: int = NODES

    @classmethod
    def about(cls, network: Network, reach: Reach, points: Array) -> Asking:
        """Nothing asked yet."""
        seen = []
        values: list[Array] = [points]
        for layer in network.layers:
            z = layer.affine(values)
            size = 1e-9 * np.abs(z).max(axis=0, initial=0.0)  # rounding noise is no side
            seen.append(np.array([(z < -size).any(axis=0), (z > size).any(axis=0)]))
            values.append(layer.activation.apply_(z))
        return cls(Query(network, reach), seen)


class AskingMatcher(Matcher):
    """A matcher that has bounds proved for units without a partner."""

    def __init__(self, asking: Asking, alike: float = ALIKE, same: float = SAME):
        super().__init__(Forced(), alike, same)
        self.asking = asking
        self.astray = False

    def linear(
        self, side: Side, k: int, activation: Activation, span: Range, relation: Relation
    ) -> None:
        """Linear units by the bounds at hand, then by those that have to be computed."""
        super().linear(side, k, activation, span, relation)
        asking = self.asking
        units = self._open(k, relation)
        if not len(units):
            return
        side.bounds[k] = Range(*asking.query.rule(k))
        super().linear(side, k, activation, span.meet(side.bounds[k]), relation)
        units = self._open(k, relation)
        below, above = asking.seen[k][:, units]
        units, one = units[~(below & above)], above[~(below & above)]
        # above a layer that mostly differs, proofs are of no use
        if len(units) and not self.astray and activation.kind != "step":
            signs = np.where(one, -1.0, 1.0)
            found = asking.query.exclude(k, units, signs, nodes=asking.nodes)
            side.bounds[k] = Range(*found)
            super().linear(side, k, activation, span.meet(side.bounds[k]), relation)
        partners = int(((relation.kind == SCALED) | (relation.kind == OPPOSITE)).sum())
        self.astray |= asking.wanted is None and len(self._open(k, relation)) > partners

    def _open(self, k: int, relation: Relation) -> NDArray[np.intp]:
        units = np.flatnonzero(relation.kind == NEW)
        wanted = self.asking.wanted
        return units if wanted is None else np.intersect1d(units, wanted.get(k, []))


@dataclass(frozen=True, eq=False)
class Related:
    """A finished walk and, per network, the proofs of the bounds it used.

    A later question may replace a proof by another one, so a walk is kept with its own.
    """

    walk: Walk
    proofs: tuple[Proofs, ...]


def relate_on_demand(
    pair: Sequence[Asking],
    tolerance: float,
    reach: Reach,
    *,
    away: bool = False,
    clock: Clock = NO_LIMIT,
) -> Related:
    """Walk two networks, the smaller first, and prove what their units without partners need.

    Stops when the difference is within the tolerance or nothing is left to ask. A clock that ends
    before the first walk does raises `TimeLimitError`.
    """
    small, large = pair
    large.wanted = None

    def better(alike: float, same: float = SAME) -> Related:
        return min(best, _walk(pair, reach, away, alike, clock, same), key=lambda r: r.walk.largest)

    best = _walk(pair, reach, away, ALIKE, clock)
    with suppress(TimeLimitError):  # the first walk stands
        for _ in range(ROUNDS):
            if best.walk.largest <= tolerance or not _ask_more(best.walk, small):
                break
            best = better(ALIKE)
        if best.walk.largest > tolerance:  # what is merely alike may have a better partner, or none
            best = better(SAME)
        single = any(is_single(asking.query.network) for asking in pair)
        if best.walk.largest > tolerance and single:
            best = better(ALIKE, ROUNDED)
    return best


def _walk(
    pair: Sequence[Asking], reach: Reach, away: bool, alike: float, clock: Clock, same: float = SAME
) -> Related:
    walk = Walk(reach, away=away, clock=clock)
    for asking in pair:
        network = asking.query.network
        side = walk.add(network, [Range.endless(layer.width) for layer in network.layers])
        walk.run(side, AskingMatcher(asking, alike, same))
    return Related(walk, tuple(asking.query.proofs for asking in pair))


def _ask_more(walk: Walk, small: Asking) -> bool:
    """Ask about units of the first network without a partner, in the lowest layer that has any."""
    if small.wanted is None:
        return False
    used = {
        (int(b), int(i))
        for relation in walk.sides[1].relations
        for b, i, kind in zip(relation.block, relation.index, relation.kind, strict=True)
        if kind in (SCALED, OPPOSITE)
    }
    for k, relation in enumerate(walk.sides[0].relations):
        fresh = np.flatnonzero(relation.kind == NEW)
        alone = [u for i, u in enumerate(fresh.tolist()) if (k + 1, i) not in used]
        below, above = small.seen[k][:, alone]
        known = small.wanted.get(k, np.empty(0, dtype=np.intp))
        more = np.setdiff1d(np.array(alone, dtype=np.intp)[~(below & above)], known)
        if len(more):
            small.wanted[k] = np.union1d(known, more)
            return True
        if alone:
            return False
    return False

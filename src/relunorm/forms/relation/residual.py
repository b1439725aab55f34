"""What is left of f - g once every unit the two networks share has been identified.

A finished walk writes both outputs over one basis. The basis functions that the difference still
needs form a network of their own, usually far smaller than the two side by side: shared units
appear once, so their contributions cancel before anything is bounded. `search` maximises it in all
directions at once by branch and bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm.bounds.problem import Group
from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Domain
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.forms import outward
from relunorm.forms.relation.relate import Walk
from relunorm.forms.removal.reduced import Reduced, drop_unobserved
from relunorm.forms.rewrite import grounded
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network
from relunorm.search.proofs.tape import Ended, Tape
from relunorm.stability.bound_proofs import Proofs, pack, unpacked
from relunorm.stability.bound_replay import replay


def residual(walk: Walk) -> tuple[Network, Vector]:
    """The network h of the difference and e with |f - g - h| <= e over the domain.

    Exact up to e, which holds all rounding and all tolerated mismatches of units.
    """
    form, error = walk.form
    number, layers = {0: 0}, []
    # basis functions are units of the two networks; the residual computes them from their forms,
    # which is off by the forms' errors, carried upwards
    off: dict[int, Vector] = {0: np.zeros(len(walk.ranges[0].lo))}
    for block, basis in enumerate(walk.blocks):
        if basis is None or not basis.forms.size:
            continue
        steep = max(map(abs, basis.activation.slopes))
        off[block] = steep * (basis.error + _carried(basis.forms, off))
        layers.append(Layer(_renumbered(basis.forms, number, walk), basis.activation))
        number[block] = len(layers)
    output = _renumbered(form, number, walk)
    network = Network(layers, output, input_shape=walk.sides[0].network.input_shape)
    total = outward.up(error + _carried(form, off), 8)
    return drop_unobserved(Reduced.whole(network)).network, total


def _carried(form: Affine, off: dict[int, Vector]) -> Vector:
    carried = np.zeros(form.size)
    for block, matrix in form.terms.items():
        if block in off:
            carried = carried + abs(matrix) @ off[block]
    return outward.up(carried, outward.inner_size(form))


def _renumbered(form: Affine, number: dict[int, int], walk: Walk) -> Affine:
    terms = {number[k]: m for k, m in form.terms.items() if k in number}
    last = max(number, key=lambda block: number[block])
    return grounded(Affine(terms, form.bias), number[last], len(walk.ranges[last].lo))


def linear_bounds(network: Network, walk: Walk, clock: Clock = NO_LIMIT) -> tuple[Vector, Vector]:
    """Sound bounds on the outputs of a network by intervals and backward linear bounds."""
    found = replay(network, walk.reach.domain, Proofs(box_duals=walk.reach.box_duals), clock=clock)
    return found.output_lower, found.output_upper


def residual_bounds(walk: Walk, search: dict[str, Any] | None) -> Vector:
    """Bounds on |f - g|, output by output, from linear bounds and what a search wrote down."""
    try:
        rest, error = residual(walk)
    except InvalidNetworkError as wrong:
        raise InvalidInputError(f"there is no residual to bound: {wrong}") from None
    low, high = linear_bounds(rest, walk)
    most = np.maximum(high, -low)
    if search is not None:
        most = np.minimum(most, replayed(rest, walk.reach, search))
    return outward.up(most + error, 2)


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search shows of a network's outputs: none is larger in size than ``upper``.

    Args:
        exponent: the search is in units of 2 to this power, so that its tolerance is relative and
            its goals are exact.
        limit: the bound in these units.
        unit_steps, counts, tape: see `SearchProof`.
    """

    exponent: int
    limit: float
    unit_steps: int
    counts: tuple[int, ...] | None
    tape: Tape | Ended

    @property
    def upper(self) -> float:
        """The bound."""
        return math.ldexp(self.limit, self.exponent)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "exponent": self.exponent,
            "limit": self.limit,
            "unit_steps": self.unit_steps,
            "counts": None if self.counts is None else list(self.counts),
            "tape": pack(np.concatenate([np.zeros(0), *self.tape])),
        }


def search(
    network: Network,
    domain: Domain,
    below: float,
    factor: float | None,
    clock: Clock,
    tell: Teller,
    random_state: int,
) -> tuple[Searched, Vector]:
    """A bound on the largest output in size by branch and bound, and the best input it found.

    One search over all outputs and both signs. It ends when the bound is at most ``factor`` times
    what was found; with None, when every part of the domain is bounded by ``below`` or an input
    exceeds it.
    """
    from relunorm.search.engine import Search
    from relunorm.search.proofs.proof import MARGIN

    exponent = min(max(math.frexp(below)[1] - 1, -900), 900)
    top = math.ldexp(below, -exponent)
    found = Search(
        network,
        domain,
        _groups(network.output_size, exponent),
        target=top if factor is None else None,
        below=top,
        # closed at 1 + tolerance / 2 times the value found
        tolerance=2 * ((factor or 1.0) - 1) + 1e-9,
        random_state=random_state,
        proof=Tape(),
    )
    found.run(clock, tell)
    # the network is made of products that other machines add in another order
    limit = found.upper + MARGIN * max(1.0, abs(found.upper))
    counts = None if found.folded is None else found.folded.counts
    return Searched(exponent, limit, found.unit_steps, counts, found.record()), found.point


def replayed(network: Network, reach: Reach, document: dict[str, Any]) -> float:
    """The bound that a search wrote down, computed again without a search."""
    from relunorm.search.proofs.proof import SearchProof, decoded_counts, decoded_steps

    tape = Tape()
    tape.write(unpacked(document["tape"]))
    exponent, limit = document["exponent"], float(document["limit"])
    groups = _groups(network.output_size, exponent)
    steps, counts = decoded_steps(document["unit_steps"]), decoded_counts(document["counts"])
    proof = SearchProof(network.digest, reach, tuple(groups), limit, False, steps, tape, counts)
    found = proof.verify(network)
    if not found.holds:
        raise InvalidInputError(f"the search on the residual does not go through: {found.reason}")
    return math.ldexp(limit, exponent)


def _groups(outputs: int, exponent: int) -> list[Group]:
    """Every output and its negative, in units of 2 to a power."""
    if abs(exponent) > 1000:
        raise InvalidInputError(f"the search on the residual is in units of 2^{exponent}")
    rows = np.ldexp(np.concatenate([np.eye(outputs), -np.eye(outputs)]), -exponent)
    return [(row[None], np.zeros(1)) for row in rows]

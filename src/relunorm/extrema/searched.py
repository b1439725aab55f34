"""What `maximize` and `decide` share: running a search, what it proves, values for certain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relunorm.arithmetic.certain import (
    PARAMETERS,
    certain_outputs,
    exact_output,
    exact_room,
    room_left,
)
from relunorm.arithmetic.floats import float_below
from relunorm.bounds.problem import Group
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.errors import InvalidDomainError
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search.engine import Search
from relunorm.search.proofs.proof import SearchProof

#: Why a search can end without an answer before its time is up.
ROUNDING = "left open by the rounding of float64"


def stopped(search: Search, clock: Clock, interrupted: bool, settled: bool) -> str:
    """What ended a search before its end; or, at its end, why nothing is settled."""
    if interrupted:
        return INTERRUPTED
    if not search.complete and (search.died or clock.expired()):
        return "worker processes died" if search.died else TIME_LIMIT
    return "" if settled or search.form is None else ROUNDING


def proof_of(search: Search, limit: float, *, strict: bool) -> SearchProof | None:
    """That no value is above a limit, where that is what the search knows."""
    if search.proof is None or not math.isfinite(limit):
        return None
    counts = None if search.folded is None else search.folded.counts
    return SearchProof(
        search.network.digest, search.reach, tuple(search.groups), limit, strict,
        search.unit_steps, search.record(), counts,
    )  # fmt: skip


def ran(search: Search, clock: Clock, progress: Listener | None) -> bool:
    """Run a search; True if Ctrl-C ended it."""
    try:
        with search.place.entered(), np.errstate(over="ignore", invalid="ignore"):
            search.run(clock, Teller(progress, clock))
    except KeyboardInterrupt:
        return True
    return False


def certain_value(network: Network, point: Vector, groups: Sequence[Group]) -> float:
    """A lower bound, in real arithmetic, of the largest min_i (b - A f(x))_i of a group (A, b); as
    sharp as floats allow.

    >>> network = Network.from_weights([[[1.0]], [[0.1]]])
    >>> certain_value(network, np.array([3.0]), [(np.array([[-1.0]]), np.array([0.0]))])
    0.3
    """
    if network.parameters + sum(A.size for A, _ in groups) <= PARAMETERS:
        outputs = exact_output(network, point)
        return float_below(max(min(exact_room(A, b, outputs)) for A, b in groups))
    value, off = (part[0] for part in certain_outputs(network, point[None]))
    rooms = (room_left(A, b, value, off) for A, b in groups)
    return max(float(np.nextafter((room - unsure).min(), -np.inf)) for room, unsure in rooms)


def check_domain(network: Network, domain: Domain | None) -> None:
    if domain is None:
        raise InvalidDomainError(f"domain is {domain!r}, expected a Box, Ball or Polytope")
    domain.check_dimension(network.input_size)
    network.check_continuous("maxima are defined here for relu and leaky units")

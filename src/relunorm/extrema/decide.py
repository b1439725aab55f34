"""`decide`: whether outputs can satisfy linear constraints on a domain, with a point or a proof."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from relunorm.arithmetic.floats import float_above, float_below
from relunorm.bounds.problem import Group
from relunorm.clock import Clock, Listener
from relunorm.domain import Domain
from relunorm.domain.inside import moved_inside
from relunorm.errors import InvalidInputError
from relunorm.extrema.result import Decision, Verdict
from relunorm.extrema.searched import certain_value, check_domain, proof_of, ran, stopped
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search.engine import ATTACKS, Search
from relunorm.search.proofs.proof import MARGIN
from relunorm.search.proofs.tape import Tape
from relunorm.sweep.backends import Placement


@accepts("network", domains=("domain",))
def decide(
    network: Model,
    domain: Place,
    A: ArrayLike,
    b: ArrayLike,
    time_limit: float | Clock | None = 60.0,
    random_state: int = 0,
    progress: Listener | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
    rational: bool = False,
) -> Decision:
    """Whether some x of the domain has A f(x) <= b: a counterexample, or a proof that none has.

    The property to prove is that the conjunction of these output constraints never holds, that is
    that the maximum over x of min_i (b - A f(x))_i is negative. `decide_any` asks for several such
    conjunctions at once.

    ``counterexample`` is a point of the domain that satisfies the constraints, both in real
    arithmetic, rounded to float32 where that can be done. ``proved`` rests on bounds in real
    arithmetic that `Decision.certificate` replays. A maximum too close to 0 for either is
    ``unknown``, and `Decision.stopped` says so.

    Args:
        A, b: the constraints, (rows, outputs) and (rows,).
        domain, time_limit, random_state, progress: as for `maximize`.
        workers, backend, scheduler: as for `maximize`.
        rational: what floats leave unknown is decided in fractions, ties included, for small
            networks on boxes and polytopes; `Decision.fractions` is the point then.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> decide(net, Box([-1], [2]), [[-1.0]], [-2.5]).verdict  # can |x| be at least 2.5?
    'proved'
    """
    clock = Clock(time_limit)
    most = clock.part(share=0.5) if rational else clock
    place = Placement(workers, backend, scheduler)
    found = decide_any(network, domain, [(A, b)], most, random_state, progress, place)
    if not rational or found.verdict != "unknown":
        return found
    from relunorm.search.rational.maxima import largest

    groups = [_constraints(network, A, b)]
    best = largest(network, domain, groups, clock, target=Fraction(0))
    if best.value is not None and best.value >= 0:
        point = np.array([float(x) for x in best.point])
        ends = float_below(best.value), max(found.margin[1], float_above(best.value))
        return replace(
            found, verdict="counterexample", point=point, margin=ends, seconds=clock.elapsed(),
            fractions=best.point, stopped="",
        )  # fmt: skip
    if not best.complete:
        return replace(found, seconds=clock.elapsed())
    ends = -math.inf, -math.inf
    if best.value is not None:
        ends = float_below(best.value), float_above(best.value)
    return replace(found, verdict="proved", margin=ends, seconds=clock.elapsed(), stopped="")


def decide_any(
    network: Network,
    domain: Domain,
    constraints: Sequence[tuple[ArrayLike, ArrayLike]],
    time_limit: float | Clock | None = 60.0,
    random_state: int = 0,
    progress: Listener | None = None,
    place: Placement | None = None,
    attacks: int = ATTACKS,
) -> Decision:
    """Whether some x of the domain has A f(x) <= b for one of several pairs (A, b), in one search.

    Args:
        place: threads or processes that search side by side; one thread if left out.
        attacks: rounds of ascent before anything is bounded; 0 where the caller has attacked.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> decide_any(net, Box([-1], [2]), [([[-1.0]], [-2.5]), ([[1.0]], [0.5])]).verdict
    'counterexample'
    """
    check_domain(network, domain)
    if not constraints:
        raise InvalidInputError("there are no constraints: expected at least one pair (A, b)")
    groups = [_constraints(network, A, b) for A, b in constraints]
    size = max(1.0, max(float(np.abs(b).max()) for _, b in groups))
    search = Search(
        network, domain, groups, target=0.0, below=-MARGIN * size, random_state=random_state,
        place=place, proof=Tape(), attacks=attacks,
    )  # fmt: skip
    return _decision(search, time_limit, progress)


def _decision(
    search: Search, time_limit: float | Clock | None, progress: Listener | None
) -> Decision:
    """Run a search with a target and say what it found; a point that fails is left behind."""
    clock = Clock(time_limit)
    point, reached = np.array(search.domain.center), -math.inf
    verdict: Verdict = "unknown"
    while True:
        interrupted = ran(search, clock, progress)
        found = checked(search.network, search.groups, search.domain, search.point)
        if found is not None and found[1] > reached:
            point, reached = found
        if reached >= 0.0:
            verdict = "counterexample"
        if not search.reached or verdict != "unknown" or interrupted or clock.expired():
            break
        # what floats took for a counterexample is none: only a better point will do
        search.target = math.nextafter(search.value, math.inf)
    upper = search.upper
    if verdict == "unknown" and search.complete and not search.lost and upper < 0.0:
        verdict = "proved"

    def resume(seconds: float | Clock | None = 60.0, progress: Listener | None = None) -> Decision:
        return _decision(search, seconds, progress)

    return Decision(
        verdict, point, (reached, max(upper, reached)), search.nodes, clock.elapsed(),
        proof_of(search, search.below, strict=True) if verdict == "proved" else None, resume,
        search.network.head.of,
        stopped=stopped(search, clock, interrupted, settled=verdict != "unknown"),
    )  # fmt: skip


def checked(
    network: Network, groups: Sequence[Group], domain: Domain, point: Vector
) -> tuple[Vector, float] | None:
    """A point of the domain beside ``point`` and the largest value of a group there.

    Both in real arithmetic; the value is >= 0 only if that is certain. A point in single precision
    is preferred, so that a counterexample is one for the network in float32 too. None where no
    point of the domain was found.
    """
    moved = moved_inside(domain, point)
    if moved is None:
        return None
    rounded = domain.in_single(moved)
    value = -math.inf
    for candidate in [moved] if rounded is None else [rounded, moved]:
        value = certain_value(network, candidate, groups)
        if value >= 0.0:
            return candidate, value
    return moved, value


@accepts("network", domains=("domain",))
def never_smallest(
    network: Model, domain: Place, output: int, time_limit: float | Clock | None = 60.0
) -> Decision:
    """Decide whether ``output`` is nowhere on the domain the smallest (a tie counts as smallest).

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0], [-1.0, -1.0]]], [[0, 0], [1, 0]])
    >>> never_smallest(net, Box([-1], [2]), 0).verdict  # |x| + 1 against -|x|
    'proved'
    """
    count = network.output_size
    if count < 2:
        raise InvalidInputError(
            "the network has one output, and no other to compare it with; maximize bounds it"
        )
    if not isinstance(output, int | np.integer) or not 0 <= output < count:
        raise InvalidInputError(f"output {output!r} does not exist; expected 0 to {count - 1}")
    others = [j for j in range(count) if j != output]
    rows = -np.eye(count)[others]
    rows[:, output] = 1.0
    return decide(network, domain, rows, np.zeros(len(others)), time_limit)


def _constraints(network: Network, A: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, Vector]:
    rows = np.atleast_2d(np.asarray(A, dtype=np.float64))
    rhs = np.atleast_1d(np.asarray(b, dtype=np.float64))
    if rows.ndim != 2 or rows.shape != (len(rhs), network.output_size) or not rows.size:
        raise InvalidInputError(
            f"A has shape {rows.shape} and b {rhs.shape}; expected (k, {network.output_size}) "
            "and (k,)"
        )
    if not (np.isfinite(rows).all() and np.isfinite(rhs).all()):
        raise InvalidInputError("A or b holds NaN or infinite entries")
    return rows, rhs

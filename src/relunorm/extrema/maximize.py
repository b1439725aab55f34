"""`maximize`: the exact maximum of outputs over a domain, or an interval around it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from relunorm.arithmetic.floats import float_above, float_below
from relunorm.bounds.problem import Group
from relunorm.clock import Clock, Listener
from relunorm.domain import Domain
from relunorm.domain.base import short
from relunorm.domain.inside import moved_inside
from relunorm.errors import InvalidInputError
from relunorm.extrema.result import Maximum
from relunorm.extrema.searched import certain_value, check_domain, proof_of, ran, stopped
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search.engine import Search
from relunorm.search.proofs.proof import MARGIN
from relunorm.search.proofs.tape import Tape
from relunorm.sweep.backends import Placement

#: Width of the interval that counts as exact, relative to max(1, |maximum|).
TOLERANCE = 1e-9


@accepts("network", domains=("domain",))
def maximize(
    network: Model,
    domain: Place,
    direction: ArrayLike | None = None,
    time_limit: float | Clock | None = 60.0,
    tolerance: float = TOLERANCE,
    random_state: int = 0,
    progress: Listener | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
    rational: bool = False,
) -> Maximum:
    """The maximum of direction . f(x) over a domain, with a maximiser, or an interval around it.

    Branch and bound with backward linear bounds (`relunorm.search`). Both ends hold in real
    arithmetic: the lower one is the value at a point of the domain, the upper one has a proof that
    replays (`Maximum.certificate`). Exact when they are within ``tolerance``. At the time limit,
    or at Ctrl-C, the interval reached so far; `Maximum.resume` goes on. Worst case exponential.

    Args:
        network: relu or leaky units, skips, linear stages, convolutions.
        direction: one weight per output, or the number of one output; a network's only output
            needs none.
        domain: a box (sides of length zero allowed), a polytope, or a ball (for a ball with more
            than rounding at stake the interval closes slowly).
        time_limit: wall seconds; None for no limit. Compiling is not counted.
        tolerance: width of the interval that counts as exact, relative to max(1, |maximum|).
        random_state: seed of the first points tried.
        progress: called with a `Progress`; its facts are ``lower`` and ``upper``.
        workers: threads that search side by side; 1 by default, -1 for all cores.
        backend: ``loky``, or another of docs/sweeps.md: parts of the search go to ``workers``
            processes (all cores if omitted) instead of threads; so they do inside a
            ``joblib.parallel_config`` if neither is given. For searches of many seconds:
            starting processes takes some, and what ends within its first second starts none. The
            same interval, up to ``tolerance``.
        scheduler: address of the backend's running cluster.
        rational: go on in fractions, without any rounding, to `Maximum.value`: for small networks
            (some dozen units, a few inputs) on boxes and polytopes.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> maximize(net, Box([-3], [2]))
    Maximum(3, exact, 0 nodes)
    >>> from fractions import Fraction
    >>> maximize(net, Box([-3], [2]), [1 / 3], rational=True).value == 3 * Fraction(1 / 3)
    True
    """
    check_domain(network, domain)
    weights = _direction(network, direction)
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance is {tolerance!r}, expected a number between 0 and 1")
    groups = [(-weights[None], np.zeros(1))]
    place = Placement(workers, backend, scheduler)
    search = Search(
        network, domain, groups, tolerance=tolerance, random_state=random_state, place=place,
        proof=Tape(),
    )  # fmt: skip
    if not rational:
        return _maximum(search, time_limit, progress)
    clock = Clock(time_limit)
    return _in_fractions(search, clock, _maximum(search, clock.part(share=0.5), progress))


def _in_fractions(search: Search, clock: Clock, found: Maximum) -> Maximum:
    """The maximum without rounding, where the time suffices."""
    from relunorm.search.rational.maxima import largest

    start = found.point if np.isfinite(found.lower) else None
    best = largest(search.network, search.domain, search.groups, clock, start=start)
    if not best.complete or best.value is None:
        return replace(found, seconds=clock.elapsed())
    lower, upper = float_below(best.value), float_above(best.value)
    near = moved_inside(search.domain, np.array([float(x) for x in best.point]))
    return replace(
        found, lower=lower, upper=upper, point=found.point if near is None else near, exact=True,
        nodes=found.nodes + best.parts, seconds=clock.elapsed(), complete=True, value=best.value,
        fractions=best.point, stopped="",
    )  # fmt: skip


def _maximum(
    search: Search, time_limit: float | Clock | None, progress: Listener | None
) -> Maximum:
    """Run a search and say what it found."""
    clock = Clock(time_limit)
    interrupted = ran(search, clock, progress)
    point, lower = certain_point(search.network, search.domain, search.point, search.groups[0])
    upper = max(search.upper, lower)
    if search.folded is not None:  # its form is made of products that other machines add otherwise
        upper += MARGIN * max(1.0, abs(upper))
    exact = is_exact(lower, upper, search.tolerance)

    def resume(seconds: float | Clock | None = 60.0, progress: Listener | None = None) -> Maximum:
        return _maximum(search, seconds, progress)

    complete = search.complete and not interrupted and (exact or search.form is not None)
    return Maximum(
        lower, upper, point, exact, search.nodes, clock.elapsed(), complete,
        proof_of(search, upper, strict=False), resume, search.network.head.of,
        stopped=stopped(search, clock, interrupted, settled=exact),
    )  # fmt: skip


def is_exact(lower: float, upper: float, tolerance: float) -> bool:
    """Whether an interval with a point at its lower end is narrow enough."""
    return math.isfinite(lower) and upper - lower <= tolerance * max(1.0, abs(lower))


def certain_point(
    network: Network, domain: Domain, point: Vector, group: Group
) -> tuple[Vector, float]:
    """A point that lies in the domain for certain, and at most its value; NaN and -inf if none."""
    for near in (point, domain.project(point[None])[0], domain.center):
        moved = moved_inside(domain, near)
        if moved is not None:
            return moved, certain_value(network, moved, [group])
    return np.full(domain.dimension, np.nan), -math.inf


def _direction(network: Network, direction: ArrayLike | None) -> Vector:
    count = network.output_size
    if direction is None and count > 1:
        raise InvalidInputError(
            f"the network has {count} outputs, so a direction is needed: the number of one, "
            f"0 to {count - 1}, or {count} weights"
        )
    direction = 0 if direction is None else direction
    if isinstance(direction, int | np.integer):
        if not 0 <= direction < count:
            raise InvalidInputError(f"output {direction} does not exist; there are {count}")
        return np.eye(count)[int(direction)]
    try:
        weights = np.asarray(direction, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"direction is not a list of numbers: {error}") from None
    if weights.shape != (count,):
        raise InvalidInputError(
            f"direction has {weights.size} entries, expected {count}, one per output"
        )
    if not np.isfinite(weights).all():
        raise InvalidInputError(
            f"direction holds NaN or infinite entries ({short(weights)}); expected finite numbers"
        )
    return weights

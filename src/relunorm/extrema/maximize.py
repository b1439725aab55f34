"""`maximize` and `decide`: exact extrema of outputs over a domain, and properties that follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arithmetic.certain import PARAMETERS, certain_outputs, exact_output
from relunorm.arithmetic.floats import gamma, slack
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.domain.base import short
from relunorm.domain.inside import moved_inside
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.extrema.result import Decision, Maximum, Verdict
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search.engine import ATTACKS, Search
from relunorm.search.proof import MARGIN, SearchProof
from relunorm.search.tape import Tape
from relunorm.sweep.ambient import Placement

Array = NDArray[np.float64]
Group = tuple[Array, Vector]

#: Width of the interval that counts as exact, relative to max(1, |maximum|).
TOLERANCE = 1e-9


@accepts("network", domains=("domain",))
def maximize(
    network: Model,
    domain: Place,
    direction: ArrayLike,
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
        direction: one weight per output, or the number of one output.
        domain: a box (sides of length zero allowed), a polytope, or a ball (for a ball with more
            than rounding at stake the interval closes slowly).
        time_limit: wall seconds; None for no limit. Compiling is not counted.
        tolerance: width of the interval that counts as exact, relative to max(1, |maximum|).
        random_state: seed of the first points tried.
        progress: called with a `Progress`; its facts are ``lower`` and ``upper``.
        workers: threads that search side by side; 1 by default, -1 for all cores.
        backend: ``loky``, ``dask`` or ``ray``: parts of the search go to ``workers`` processes (all
            cores if omitted) instead of threads; so they do inside a ``joblib.parallel_config`` if
            neither is given. For searches of many seconds: starting processes takes some, and
            what ends within its first second starts none. The same interval, up to ``tolerance``.
        scheduler: address of a running Dask scheduler or Ray cluster.
        rational: go on in fractions, without any rounding, to `Maximum.value`: for small networks
            (some dozen units, a few inputs) on boxes and polytopes.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> maximize(net, Box([-3], [2]), [1.0])
    Maximum(3, exact, 0 nodes)
    >>> maximize(net, Box([-3], [2]), [1 / 3], rational=True).value == 3 * Fraction(1 / 3)
    True
    """
    _check_domain(network, domain)
    weights = _direction(network, direction)
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance is {tolerance!r}, expected a number between 0 and 1")
    groups = [(-weights[None], np.zeros(1))]
    search = Search(
        network,
        domain,
        groups,
        tolerance=tolerance,
        random_state=random_state,
        place=Placement(workers, backend, scheduler),
        proof=Tape(),
    )
    if not rational:
        return _maximum(search, time_limit, progress)
    clock = Clock(time_limit)
    return _in_fractions(search, clock, _maximum(search, clock.part(share=0.5), progress))


def _in_fractions(search: Search, clock: Clock, found: Maximum) -> Maximum:
    """The maximum without rounding, where the time suffices."""
    from relunorm.search.rational import largest

    start = found.point if np.isfinite(found.lower) else None
    best = largest(search.network, search.domain, search.groups, clock, start=start)
    if not best.complete or best.value is None:
        return replace(found, seconds=clock.elapsed())
    lower, upper = _floats(best.value)
    near = moved_inside(search.domain, np.array([float(x) for x in best.point]))
    return replace(
        found,
        lower=lower,
        upper=upper,
        point=found.point if near is None else near,
        exact=True,
        nodes=found.nodes + best.parts,
        seconds=clock.elapsed(),
        complete=True,
        value=best.value,
        fractions=best.point,
        stopped="",
    )


def _floats(value: Fraction) -> tuple[float, float]:
    """The floats around a fraction, the same one twice where it is one."""
    try:
        near = float(value)
    except OverflowError:
        big = float(np.finfo(np.float64).max)
        return (big, math.inf) if value > 0 else (-math.inf, -big)
    below = near if Fraction(near) <= value else math.nextafter(near, -math.inf)
    return below, near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _maximum(
    search: Search, time_limit: float | Clock | None, progress: Listener | None
) -> Maximum:
    """Run a search and say what it found."""
    clock = Clock(time_limit)
    interrupted = _ran(search, clock, progress)
    point, lower = certain_point(search.network, search.domain, search.point, search.groups[0])
    upper = max(search.upper, lower)
    if search.folded is not None:  # its form is made of products that other machines add otherwise
        upper += MARGIN * max(1.0, abs(upper))
    exact = is_exact(lower, upper, search.tolerance)

    def resume(seconds: float | Clock | None = 60.0, progress: Listener | None = None) -> Maximum:
        return _maximum(search, seconds, progress)

    return Maximum(
        lower,
        upper,
        point,
        exact,
        search.nodes,
        clock.elapsed(),
        search.complete and not interrupted and (exact or search.form is not None),
        _proof(search, upper, strict=False),
        resume,
        search.network.head.of,
        stopped=_stopped(search, clock, interrupted),
    )


def _stopped(search: Search, clock: Clock, interrupted: bool) -> str:
    """What ended a search before its end."""
    if interrupted:
        return INTERRUPTED
    if search.complete:
        return ""
    return "worker processes died" if search.died else TIME_LIMIT if clock.expired() else ""


def _proof(search: Search, limit: float, *, strict: bool) -> SearchProof | None:
    """That no value is above a limit, where that is what the search knows."""
    if search.proof is None or not math.isfinite(limit):
        return None
    return SearchProof(
        search.network.digest,
        search.reach,
        tuple(search.groups),
        limit,
        strict,
        search.unit_steps,
        search.record(),
        None if search.folded is None else search.folded.counts,
    )


def _ran(search: Search, clock: Clock, progress: Listener | None) -> bool:
    """Run a search; True if Ctrl-C ended it."""
    try:
        with search.place.entered(), np.errstate(over="ignore", invalid="ignore"):
            search.run(clock, Teller(progress, clock))
    except KeyboardInterrupt:
        return True
    return False


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


def certain_value(network: Network, point: Vector, groups: Sequence[Group]) -> float:
    """A lower bound, in real arithmetic, of the largest min_i (b - A f(x))_i of a group (A, b); as
    sharp as floats allow.

    >>> network = Network.from_weights([[[1.0]], [[0.1]]])
    >>> certain_value(network, np.array([3.0]), [(np.array([[-1.0]]), np.array([0.0]))])
    0.3
    """
    if network.parameters + sum(A.size for A, _ in groups) <= PARAMETERS:
        outputs = exact_output(network, point)
        return _floats(max(_exact_value(outputs, A, b) for A, b in groups))[0]
    value, off = (part[0] for part in certain_outputs(network, point[None]))
    return max(_least(value, off, A, b) for A, b in groups)


def _exact_value(outputs: Sequence[Fraction], A: Array, b: Vector) -> Fraction:
    return min(
        Fraction(float(end))
        - sum((Fraction(float(a)) * y for a, y in zip(row, outputs, strict=True)), Fraction(0))
        for row, end in zip(A, b, strict=True)
    )


def _least(value: Vector, off: Vector, A: Array, b: Vector) -> float:
    """At most min_i (b - A y)_i for every y within ``off`` of ``value``."""
    size = np.abs(b) + np.abs(A) @ np.abs(value)
    unsure = slack(size, A.shape[1] + 2) + (np.abs(A) @ off) * (1 + gamma(A.shape[1] + 4))
    return float(np.nextafter((b - A @ value - unsure).min(), -np.inf))


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
    ``unknown``.

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
    from relunorm.search.rational import largest

    groups = [_constraints(network, A, b)]
    best = largest(network, domain, groups, clock, target=Fraction(0))
    if best.value is not None and best.value >= 0:
        point = np.array([float(x) for x in best.point])
        ends = _floats(best.value)[0], max(found.margin[1], _floats(best.value)[1])
        return replace(
            found, verdict="counterexample", point=point, margin=ends, seconds=clock.elapsed(),
            fractions=best.point, stopped="",
        )  # fmt: skip
    if not best.complete:
        return replace(found, seconds=clock.elapsed())
    ends = (-math.inf, -math.inf) if best.value is None else _floats(best.value)
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
    _check_domain(network, domain)
    if not constraints:
        raise InvalidInputError("there are no constraints: expected at least one pair (A, b)")
    groups = [_constraints(network, A, b) for A, b in constraints]
    size = max(1.0, max(float(np.abs(b).max()) for _, b in groups))
    search = Search(
        network,
        domain,
        groups,
        target=0.0,
        below=-MARGIN * size,
        random_state=random_state,
        place=place,
        proof=Tape(),
        attacks=attacks,
    )
    return _decision(search, time_limit, progress)


def _decision(
    search: Search, time_limit: float | Clock | None, progress: Listener | None
) -> Decision:
    """Run a search with a target and say what it found; a point that fails is left behind."""
    clock = Clock(time_limit)
    point, reached = np.array(search.domain.center), -math.inf
    verdict: Verdict = "unknown"
    while True:
        interrupted = _ran(search, clock, progress)
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
        verdict,
        point,
        (reached, max(upper, reached)),
        search.nodes,
        clock.elapsed(),
        _proof(search, search.below, strict=True) if verdict == "proved" else None,
        resume,
        search.network.head.of,
        stopped=_stopped(search, clock, interrupted),
    )


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


def _check_domain(network: Network, domain: Domain | None) -> None:
    if domain is None:
        raise InvalidDomainError(f"domain is {domain!r}, expected a Box, Ball or Polytope")
    domain.check_dimension(network.input_size)
    for index, layer in enumerate(network.layers):
        if layer.activation.kind == "step":
            raise InvalidInputError(
                f"layer {index} ({layer.name or 'unnamed'}) has {layer.activation} units; maxima "
                "are defined here for relu and leaky units"
            )


def _direction(network: Network, direction: ArrayLike) -> Vector:
    count = network.output_size
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

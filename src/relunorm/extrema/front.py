"""`maximize` and `decide`: exact extrema of outputs over a domain, and properties that follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from relunorm import matrix as mx
from relunorm.clock import Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.domain.base import short
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.extrema.localize import Local, localize
from relunorm.extrema.problem import TOLERANCE, Search
from relunorm.extrema.result import Decision, Maximum, Verdict
from relunorm.extrema.slack import rounding
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network

#: Up to this many free inputs boxes are cut, above it the signs of units.
BOX_INPUTS = 6

#: The sign tree on the whole domain goes first, for at most FIRST_LOOK seconds and these sizes.
FIRST_LOOK, TREE_INPUTS, TREE_UNITS = 5.0, 200, 2000

#: Shares of the time limit for folding what is stable and for that first look.
FOLD_SHARE, FIRST_SHARE = 0.25, 0.2


def maximize(
    network: Network,
    direction: ArrayLike,
    domain: Domain,
    time_limit: float | Clock | None = 60.0,
    tolerance: float = TOLERANCE,
    random_state: int = 0,
    progress: Listener | None = None,
) -> Maximum:
    """The maximum of direction . f(x) over a domain, with a maximiser, or an interval around it.

    Exact to ``tolerance`` when the search finishes: branch and bound with backward linear bounds,
    the sign tree with linear programmes at the leaves. At the time limit, or at Ctrl-C, the
    interval reached so far, both ends sound. Skips, convolutions and difference networks work
    alike. Worst case exponential.

    Args:
        network: relu or leaky units.
        direction: one weight per output, or the number of one output.
        domain: a box (sides of length zero allowed), a polytope, or a ball (for a ball with more
            than rounding at stake the interval closes slowly).
        time_limit: wall seconds; None for no limit. Compiling is not counted.
        tolerance: width of the interval that counts as exact, relative to max(1, |maximum|).
        random_state: seed of the first points tried.
        progress: called with a `Progress`; its facts are ``lower`` and ``upper``.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> maximize(net, [1.0], Box([-3], [2]))
    Maximum(3, exact, 0 nodes)
    """
    weights = _direction(network, direction)
    if not 0 < tolerance < 1:
        raise InvalidInputError(f"tolerance is {tolerance!r}, expected a number between 0 and 1")
    clock = Clock(time_limit)
    scalar = _compose(network.folded(), weights)
    search, local, complete = _run(scalar, domain, clock, tolerance, random_state, progress, None)
    upper = max(search.upper, search.lower)
    exact = bool(upper - search.lower <= tolerance * max(1.0, abs(search.lower)))
    point = local.lift(search.point)
    return Maximum(
        float(search.lower),
        float(upper),
        point,
        exact,
        search.nodes,
        clock.elapsed(),
        complete and exact,
    )


def decide(
    network: Network,
    A: ArrayLike,
    b: ArrayLike,
    domain: Domain,
    time_limit: float | Clock | None = 60.0,
    random_state: int = 0,
    progress: Listener | None = None,
) -> Decision:
    """Whether some x of the domain has A f(x) <= b: a counterexample, or a proof that none has.

    The property to prove is that the conjunction of these output constraints never holds. It does
    not hold iff max over x of min_i (b - A f(x))_i is negative; the minimum is itself a few ReLU
    units (min(s, t) = s - relu(s - t)), so the question is a maximisation that may stop early.

    ``counterexample`` is evaluated in float64 on the network itself. ``proved`` says that an upper
    bound on the maximum is negative by more than what rounding and thin cells can hide (`slack`).
    A maximum between minus that (at least 1e-9) and 0 is too close to call: ``unknown``.

    Args:
        A, b: the constraints, (rows, outputs) and (rows,).
        domain, time_limit, random_state, progress: as for `maximize`.

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> decide(net, [[-1.0]], [-2.5], Box([-1], [2])).verdict  # can |x| be at least 2.5?
    'proved'
    """
    _check_domain(network, domain)
    rows, rhs = _constraints(network, A, b)
    clock = Clock(time_limit)
    scalar = _smallest(network.folded(), rows, rhs)
    noise = rounding(scalar, domain)
    near = max(TOLERANCE, 2 * noise)  # how far below 0 the search has to come
    search, local, _ = _run(scalar, domain, clock, near, random_state, progress, 0.0)
    if search.hidden > near and search.lower < 0.0:
        # Cells were given up at -near, and what thin cells hide is more: once more, farther down.
        near += 2 * search.hidden
        search, local, _ = _run(scalar, domain, clock, near, random_state, progress, 0.0)
    point = local.lift(search.point)
    reached = float((rhs - rows @ network(point)).min())
    upper = max(float(search.upper), reached)
    verdict: Verdict = "unknown"
    if reached >= 0.0:
        verdict = "counterexample"
    elif search.upper <= -max(TOLERANCE / 2, noise):
        verdict = "proved"
    return Decision(verdict, point, (reached, upper), search.nodes, clock.elapsed())


def never_smallest(
    network: Network, output: int, domain: Domain, time_limit: float | Clock | None = 60.0
) -> Decision:
    """Decide whether ``output`` is nowhere on the domain the smallest (a tie counts as smallest).

    >>> from relunorm.domain import Box
    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0], [-1.0, -1.0]]], [[0, 0], [1, 0]])
    >>> never_smallest(net, 0, Box([-1], [2])).verdict  # |x| + 1 against -|x|
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
    return decide(network, rows, np.zeros(len(others)), domain, time_limit)


def _check_domain(network: Network, domain: Domain) -> None:
    if not isinstance(domain, Domain):
        raise InvalidDomainError(f"domain is {domain!r}, expected a Box, Ball or Polytope")
    domain.check_dimension(network.input_size)


def _run(
    scalar: Network,
    domain: Domain,
    clock: Clock,
    tolerance: float,
    random_state: int,
    progress: Listener | None,
    target: float | None,
) -> tuple[Search, Local, bool]:
    from relunorm.extrema.ascent import ascend
    from relunorm.extrema.boxes import split_boxes
    from relunorm.extrema.tree import compile_kernels, search_cells
    from relunorm.extrema.units import split_units
    from relunorm.regions.pack import check_units

    _check_domain(scalar, domain)
    check_units(scalar)
    tell = Teller(progress, clock)
    compile_kernels(tell)
    local = localize(scalar, domain, clock.part(share=FOLD_SHARE))
    assert local.domain is not None
    search = Search(
        local.network,
        local.domain,
        clock,
        np.inf if target is None else target,
        tolerance,
        tell=tell,
        decide=target is not None,
        point=np.array(local.domain.center),
    )
    try:
        with clock.watch() as search.stop:
            ascend(search, random_state)
            if search.decided():
                return search, local, True
            size = local.network.input_size
            small = size <= TREE_INPUTS and local.network.units <= TREE_UNITS
            if small and search_cells(search, min(FIRST_LOOK, FIRST_SHARE * clock.limit)):
                return search, local, True
            known = search.upper
            (split_boxes if size <= BOX_INPUTS else split_units)(search)
            search.upper = max(search.lower, min(search.upper, known))
    except KeyboardInterrupt:
        return search, local, False
    return search, local, not search.out_of_time()


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


def _compose(network: Network, weights: Vector) -> Network:
    """weights . f as a network of one output."""
    output = _times(weights[None], network.output)
    return network.replace(output=output, output_shape=(1,))


def _smallest(network: Network, rows: np.ndarray, rhs: Vector) -> Network:
    """min_i (rhs - rows f)_i: pairs are joined by one ReLU unit each, layer by layer."""
    slack = _times(-rows, network.output)
    slack = Affine(slack.terms, slack.bias + rhs)
    parts = [_row(slack, i) for i in range(len(rhs))]
    layers = list(network.layers)
    while len(parts) > 1:
        pairs = [(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        layers.append(Layer(_stack([_plus(s, t, -1.0) for s, t in pairs])))
        joined = []
        for i, (s, _) in enumerate(pairs):
            unit = np.zeros((1, len(pairs)))
            unit[0, i] = -1.0
            joined.append(Affine({**s.terms, len(layers): unit}, s.bias))
        parts = joined + parts[2 * len(pairs) :]
    return network.replace(layers=layers, output=parts[0], output_shape=(1,))


def _times(left: np.ndarray, affine: Affine) -> Affine:
    return Affine({k: np.asarray(left @ m) for k, m in affine.terms.items()}, left @ affine.bias)


def _row(affine: Affine, i: int) -> Affine:
    return Affine(
        {k: mx.dense(m)[i : i + 1] for k, m in affine.terms.items()}, affine.bias[i : i + 1]
    )


def _plus(s: Affine, t: Affine, factor: float) -> Affine:
    terms = {k: mx.dense(m) for k, m in s.terms.items()}
    for k, m in t.terms.items():
        terms[k] = terms[k] + factor * mx.dense(m) if k in terms else factor * mx.dense(m)
    return Affine(terms, s.bias + factor * t.bias)


def _stack(parts: list[Affine]) -> Affine:
    sources = sorted({k for part in parts for k in part.terms})
    sizes = {k: next(mx.dense(p.terms[k]) for p in parts if k in p.terms).shape[1] for k in sources}
    terms = {
        k: np.concatenate(
            [mx.dense(p.terms[k]) if k in p.terms else np.zeros((1, sizes[k])) for p in parts]
        )
        for k in sources
    }
    return Affine(terms, np.concatenate([p.bias for p in parts]))

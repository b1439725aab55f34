"""Extrema of networks too large for one triangular form: bounds that keep sparse weights sparse.

What is stable on the domain is folded (`localize`), ascent looks for a good point, and branch and
bound on the signs of units (`units`) closes in from above. Both ends hold in real arithmetic: the
value at a point of the domain is certain, and the bound is raised by what rounding can have moved
folding and searching (`relunorm.rounding`). No proof is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.extrema.front import TOLERANCE, certain_point, checked, is_exact
from relunorm.extrema.localize import localize
from relunorm.extrema.problem import Search
from relunorm.extrema.result import Decision, Maximum, Verdict
from relunorm.extrema.units import split_units
from relunorm.matrix import Vector
from relunorm.network import IDENTITY, Affine, Layer, Network
from relunorm.search.attack import Attack

Group = tuple[NDArray[np.float64], Vector]

#: Share of the time limit for folding what is stable.
FOLD_SHARE = 0.25


def maximize_large(
    network: Network,
    weights: Vector,
    domain: Domain,
    time_limit: float | Clock | None,
    tolerance: float,
    progress: Listener | None,
    random_state: int = 0,
) -> Maximum:
    """The maximum of weights . f over a domain, as `relunorm.maximize` returns it."""
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    scalar = _compose(network, weights)
    # half of the tolerance is for rounding
    search, found, _ = _run(scalar, domain, clock, tell, tolerance / 2, random_state, None)
    closed = search.upper - search.lower <= tolerance * max(1.0, abs(search.lower))
    point, lower = certain_point(network, domain, found, (-weights[None], np.zeros(1)))
    upper = max(_raised(search), lower)
    exact = is_exact(lower, upper, tolerance)
    return Maximum(
        lower, upper, point, exact, search.nodes, clock.elapsed(), bool(closed), of=network.head.of
    )


def decide_large(
    network: Network,
    groups: Sequence[Group],
    domain: Domain,
    time_limit: float | Clock | None,
    random_state: int,
    progress: Listener | None,
) -> Decision:
    """Whether some x has A f(x) <= b for a pair (A, b), as `relunorm.decide` returns it.

    One pair after the other, each with its share of the time that is left.
    """
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    point, reached = np.array(domain.center), -math.inf
    upper, nodes = -math.inf, 0
    for turn, (A, b) in enumerate(groups):
        scalar = _smallest(network, A, b)
        part = clock.part(share=1 / (len(groups) - turn))
        search, found, stopped = _run(scalar, domain, part, tell, TOLERANCE, random_state, 0.0)
        upper, nodes = max(upper, _raised(search)), nodes + search.nodes
        better = checked(network, [(A, b)], domain, found)
        if better is not None and better[1] > reached:
            point, reached = better
        if (stopped or reached >= 0.0) and turn + 1 < len(groups):
            upper = math.inf  # the other pairs were not looked at
            break
    verdict: Verdict = "unknown"
    if reached >= 0.0:
        verdict = "counterexample"
    elif upper <= -TOLERANCE / 4:  # what the last programmes take for empty is within this
        verdict = "proved"
    return Decision(
        verdict, point, (reached, max(upper, reached)), nodes, clock.elapsed(), of=network.head.of
    )


def _raised(search: Search) -> float:
    """The upper end of a search in real arithmetic."""
    upper = math.nextafter(search.upper + search.noise, math.inf)
    return math.inf if math.isnan(upper) else upper


def _run(
    scalar: Network,
    domain: Domain,
    clock: Clock,
    tell: Teller,
    tolerance: float,
    random_state: int,
    target: float | None,
) -> tuple[Search, Vector, bool]:
    """Search until the interval closes, a target is decided, the time is up, or Ctrl-C.

    Returns:
        the search, the best point found as an input of ``scalar``, and whether Ctrl-C ended it.
    """
    tell("folding what is stable")
    local = localize(scalar, domain, clock.part(share=FOLD_SHARE))
    assert local.domain is not None
    noise = float(local.value_error[0] + local.search_error[0])
    if target is not None:
        tolerance = max(tolerance, 2 * noise)  # how far below the target the search has to come
    search = Search(
        local.network,
        local.domain,
        clock,
        math.inf if target is None else target,
        tolerance,
        tell=tell,
        decide=target is not None,
        noise=noise,
        point=np.array(local.domain.center),
    )
    goal = (-np.ones((1, 1)), np.zeros(1))
    attack = Attack(local.network, local.domain, [goal], random_state)
    try:
        with clock.watch() as search.stop, np.errstate(over="ignore", invalid="ignore"):
            attack.run(clock, search.target)
            search.offer(attack.point[None])
            if not search.decided():
                split_units(search)
    except KeyboardInterrupt:
        return search, local.lift(search.point), True
    return search, local.lift(search.point), False


def _compose(network: Network, weights: Vector) -> Network:
    """weights . f as a network of one output, the output of f being a linear stage of it."""
    layers = [*network.layers, Layer(network.output, IDENTITY)]
    output = Affine({len(layers): weights[None]}, np.zeros(1))
    return network.replace(layers=layers, output=output, output_shape=(1,))


def _smallest(network: Network, rows: NDArray[np.float64], rhs: Vector) -> Network:
    """min_i (rhs - rows f)_i: pairs are joined by one ReLU unit each, layer by layer."""
    layers = [*network.layers, Layer(network.output, IDENTITY)]
    layers.append(Layer(Affine({len(layers): -rows}, rhs), IDENTITY))
    each = Affine({len(layers): np.eye(len(rhs))}, np.zeros(len(rhs)))
    parts = [_row(each, i) for i in range(len(rhs))]
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

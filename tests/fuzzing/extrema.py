"""maximize, decide and lipschitz: intervals that hold the truth, points that do what they claim."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from exact_answers import (
    exceeds,
    gradients,
    inside,
    largest_margin,
    maximum,
    output_at,
    whole,
)
from exact_oracle import pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, limit, short
from fuzzing.places import place_for
from fuzzing.regions import scale_of


def draw_maximize(rng: Rng) -> Case:
    """A combination of outputs over a domain."""
    net = network(rng, Kind())
    direction = rng.integers(-2, 3, net.output_size).astype(float)
    if rng.random() < 0.3:
        direction = rng.normal(size=net.output_size)
    where, seconds = place_for(rng, net), limit(rng)
    return Case((net,), where, {"direction": direction.tolist(), **seconds, **_rational(rng, net)})


def _rational(rng: Rng, net: rn.Network) -> dict[str, bool]:
    """Whether to ask in fractions; a search over few units."""
    return {"rational": bool(rng.random() < 0.15 and net.units <= 6)}


def judge_maximize(case: Case, out: Outcome) -> None:
    """The interval holds the maximum, the point is in the domain and reaches the lower end."""
    (net,), where, direction = case.networks, case.place, case.options["direction"]
    assert where is not None
    options = {k: case.options[k] for k in ("time_limit", "rational")}
    found = rn.maximize(net, where.domain, direction, **options)
    exact = read(net)
    least = maximum(pieces(exact, where.inner), direction)
    most = least if where.exact else maximum(pieces(exact, where.outer), direction)
    out.unknown += not found.exact
    text = f"{found!r} [{short(found.lower)}, {short(found.upper)}], exactly {short(least)}"
    out.claim(found.lower <= most, f"{text}: lower end too high by {_gap(found.lower, most)}")
    out.claim(found.upper >= least, f"{text}: upper end too low by {_gap(found.upper, least)}")
    point = found.point.tolist()
    if found.value is not None and found.fractions is not None:
        values = output_at(exact, found.fractions)
        value = sum(w * v for w, v in zip(whole(direction), values, strict=True))
        out.claim(value == found.value == least, f"{text}: {value} in fractions")
        out.claim(_holds(where.domain, found.fractions), f"{text}: {found.fractions} lies outside")
        out.claim(np.isnan(point).all() or inside(where.domain, point), f"{text}: {point} outside")
    elif np.isnan(point).all():
        out.claim(found.lower == -np.inf and not found.exact, f"{text}: a value without a point")
    elif inside(where.domain, point):
        values = output_at(exact, point)
        value = sum(w * v for w, v in zip(whole(direction), values, strict=True))
        gap = _gap(found.lower, value)
        out.claim(found.lower <= value, f"{text}: at its point the value is less by {gap}")
    else:
        out.claim(False, f"{text}: the point {point} lies outside the domain")


def _holds(domain: rn.Domain, point: tuple[Fraction, ...]) -> bool:
    """Whether a rational point lies in a domain with flat sides."""
    if isinstance(domain, rn.Box):
        return all(
            a <= v <= b for a, v, b in zip(whole(domain.lo), point, whole(domain.hi), strict=True)
        )
    A, b = domain.sides
    return all(
        sum(a * v for a, v in zip(whole(row), point, strict=True)) <= rhs
        for row, rhs in zip(A, whole(b), strict=True)
    )


def _gap(value: float, truth: Fraction) -> str:
    """By how much a float is off."""
    return f"{float(abs(Fraction(value) - truth)):.3g}" if np.isfinite(value) else "inf"


def draw_decide(rng: Rng) -> Case:
    """One to three constraints on outputs, thresholds near the truth among them."""
    net = network(rng, Kind())
    where = place_for(rng, net)
    rows = int(rng.integers(1, 4))
    A = rng.integers(-2, 3, (rows, net.output_size)).astype(float)
    b = rng.normal(size=rows)
    if rng.random() < 0.5:  # a threshold that is met, or missed, by a little
        shift = largest_margin(pieces(read(net), where.inner), A, b)
        if abs(shift) < 1 << 60:
            close = rng.choice([0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, -1e-12, -1e-9, -1e-6, -0.1])
            b = b - float(shift) + float(close)
    options = {"A": A.tolist(), "b": b.tolist(), **limit(rng), **_rational(rng, net)}
    return Case((net,), where, options)


def judge_decide(case: Case, out: Outcome) -> None:
    """What is proved is true, a counterexample is one, the interval holds the margin."""
    (net,), where = case.networks, case.place
    assert where is not None
    A, b, exact = case.options["A"], case.options["b"], read(net)
    inner = list(pieces(exact, where.inner))
    options = {k: case.options[k] for k in ("time_limit", "rational")}
    found = rn.decide(net, where.domain, A, b, **options)
    least = largest_margin(inner, A, b)
    most = least if where.exact else largest_margin(pieces(exact, where.outer), A, b)
    text = f"{found.verdict} {found.margin}, exactly {short(least)}"
    out.unknown += found.verdict == "unknown"
    if found.verdict == "proved":
        out.claim(least < 0, f"{text}: not proved")
    elif found.verdict == "counterexample":
        point = found.fractions or found.point.tolist()
        held = (_holds if found.fractions else inside)(where.domain, point)
        out.claim(most >= 0, f"{text}: there is no counterexample")
        out.claim(held, f"{text}: {point} is not in the domain")
        values = output_at(exact, point)
        slack = min(
            rhs - sum(a * v for a, v in zip(whole(row), values, strict=True))
            for row, rhs in zip(A, whole(b), strict=True)
        )
        out.claim(slack >= 0, f"{text}: at {point} the margin is {short(slack)}")
    out.claim(found.margin[0] <= most, f"{text}: lower end too high")
    out.claim(found.margin[1] >= least, f"{text}: upper end too low")


def draw_lipschitz(rng: Rng) -> Case:
    """One norm and one method, over a domain or all of space."""
    net = network(rng, Kind())
    method = str(
        rng.choice(["auto"] * 6 + ["enumeration", "branch", "product", "paths", "sdp", "search"])
    )
    norm = str(rng.choice(["1", "2", "inf"]))
    options = {"norm": norm, "everywhere": bool(rng.random() < 0.15), "method": method}
    return Case((net,), place_for(rng, net), {**options, **limit(rng)})


def judge_lipschitz(case: Case, out: Outcome) -> None:
    """The interval holds the constant."""
    (net,), where = case.networks, case.place
    assert where is not None
    norm, everywhere = float(case.options["norm"]), case.options["everywhere"]
    method, seconds = case.options["method"], case.options["time_limit"]
    found = rn.lipschitz(net, None if everywhere else where.domain, norm, seconds, method=method)
    free = range(net.input_size) if everywhere else where.free
    exact = read(net)
    scale = scale_of(net, where)
    parts = list(pieces(exact, where.inner))
    # docs/lipschitz.md: what is thinner than rounding is seen by no test of signs
    seen = [piece for piece in parts if "rounding" not in scale.doubtful(piece)]
    least = gradients(seen or parts, free)
    most = gradients(parts if where.exact else pieces(exact, where.outer), free)
    size = max(float(max(abs(x) for row in m for x in row)) if m[0] else 0.0 for m in least)
    text = f"{found!r} [{short(found.lower)}, {short(found.upper)}], largest entry {short(size)}"
    out.unknown += not found.exact
    if not least[0][0]:  # a single point
        out.claim(found.lower <= 0 <= found.upper, text)
        return
    too_low = any(exceeds(m, found.upper, norm, strictly=True) for m in least)
    out.claim(not too_low, f"{text}: upper end too low, largest norm {_norm(least, norm)}")
    if not everywhere:
        reached = any(exceeds(m, found.lower, norm, strictly=False) for m in most)
        out.claim(reached, f"{text}: lower end too high, largest norm {_norm(most, norm)}")


def _norm(matrices: list, norm: float) -> str:
    """Rounded, for the message only."""
    with np.errstate(all="ignore"):
        values = [np.linalg.norm(np.array(m, dtype=float), norm) for m in matrices]
    return f"about {max(values):.17g}"

"""Stability: verdicts, bounds and witnesses against exact ranges."""

from __future__ import annotations

import numpy as np
from exact_answers import at_point, inside, unit_ranges
from exact_oracle import ExactNetwork, pieces, read

from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, jumps, limit, short
from fuzzing.places import place_for
from relunorm.stability import replay, stability
from relunorm.stability.verdicts import LayerStability


def draw(rng: Rng) -> Case:
    """A network over a domain; step units in a quarter of the cases."""
    steps = rng.random() < 0.25
    net = network(rng, Kind(inputs=(1, 2) if steps else (1, 2, 2, 3), steps=steps))
    return Case((net,), place_for(rng, net), limit(rng))


def judge(case: Case, out: Outcome) -> None:
    """Every verdict, every bound, every witness, and the replayed proofs."""
    (net,), where = case.networks, case.place
    assert where is not None
    exact, strata = read(net), jumps(net)
    found = stability(net, where.domain, **case.options)
    again = replay(net, where.domain, found.proofs)
    least = list(pieces(exact, where.inner, strata=strata))
    most = least if where.exact else list(pieces(exact, where.outer, strata=strata))
    inner, outer = unit_ranges(least), unit_ranges(most)
    out.unknown += any((layer.verdict == "undecided").any() for layer in found.layers)
    at = 0
    for layer in found.layers:
        for unit in range(layer.width):
            low, high = inner[at]
            name = f"unit {layer.layer}:{unit}, {layer.verdict[unit]}"
            for lower, upper in (
                (layer.lower[unit], layer.upper[unit]),
                (again.lower[layer.layer][unit], again.upper[layer.layer][unit]),
            ):
                out.claim(lower <= low, f"{name}: lower {short(lower)} > minimum {short(low)}")
                out.claim(upper >= high, f"{name}: upper {short(upper)} < maximum {short(high)}")
            activation = net.layers[layer.layer].activation
            signs = {piece.signs[at] for piece in least}
            possible = {
                "dead": signs <= {-1, 0}
                if activation.kind != "step"
                else _constant(signs, -1, activation.at_zero == 0),
                "active": signs <= {1, 0}
                if activation.kind != "step"
                else _constant(signs, 1, activation.at_zero == 1),
                "unstable": outer[at][0] < 0 < outer[at][1],
                "undecided": True,
            }
            out.claim(bool(possible[str(layer.verdict[unit])]), f"{name}: signs {sorted(signs)}")
            at += 1
        _witnesses(exact, where.domain, layer, at - layer.width, out)


def _constant(signs: set[int], sign: int, zero_too: bool) -> bool:
    return signs <= ({sign, 0} if zero_too else {sign})


def _witnesses(
    exact: ExactNetwork, domain: object, layer: LayerStability, first: int, out: Outcome
) -> None:
    for sign, rows in ((1, layer.witness_active), (-1, layer.witness_inactive)):
        for unit, point in enumerate(rows):
            if np.isnan(point).any():
                continue
            name = f"witness {point.tolist()} of unit {layer.layer}:{unit}"
            out.claim(inside(domain, point), f"{name} lies outside the domain")
            out.claim(
                at_point(exact, point.tolist()).signs[first + unit] == sign,
                f"{name} has not the sign {sign}",
            )

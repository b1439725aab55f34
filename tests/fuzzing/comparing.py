"""compare: verdict, both bounds, witness and certificate against the exact difference."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from exact_answers import common_pieces, difference, difference_apart, inside, output_at
from exact_oracle import ExactNetwork, read

import relunorm as rn
from fuzzing import copies
from fuzzing.nets import Kind, Rng, network, random_network
from fuzzing.outcome import Case, Outcome, jumps, limit, short
from fuzzing.places import Place, place_for
from relunorm import Certificate, Network


def pair(rng: Rng, steps: bool) -> tuple[Network, Network, str]:
    """A network and a copy: arranged, exact, rounded, perturbed, or another function."""
    inputs = (1, 2) if steps or rng.random() < 0.8 else (3,)
    kind = Kind(inputs=inputs, steps=steps, width=3 if steps else 4, depth=2 if steps else 3)
    net = network(rng, kind)
    way = str(rng.choice(["arranged", "exact", "rounded", "perturbed", "nudged", "zero", "other"]))
    if way == "arranged":
        return net, copies.exact_copy(rng, net, copies.ARRANGED), way
    if way == "exact":
        return net, copies.exact_copy(rng, net), way
    if way == "rounded":
        return net, copies.rounded_copy(rng, net), way
    if way == "perturbed":
        return net, copies.perturbed(rng, net), way
    if way == "nudged":
        return net, copies.perturbed(rng, copies.exact_copy(rng, net)), way
    if way == "zero":
        return net, zero(net), way
    own = Kind((net.input_size,), steps=steps, width=2, depth=2, outputs=1)
    other = random_network(rng, own)
    if other.output_size != net.output_size:
        other = copies.perturbed(rng, net)
    return net, other, way


def zero(net: Network) -> Network:
    """The function 0 with one unit."""
    row, out = np.ones((1, net.input_size)), np.zeros((net.output_size, 1))
    return Network.from_weights([row, out])


def draw(rng: Rng) -> Case:
    """A pair over one domain; a tolerance near the truth in a fifth of the cases."""
    first, second, way = pair(rng, rng.random() < 0.25)
    where = place_for(rng, first)
    tolerance = float(rng.choice([1e-9, 1e-9, 0.0, 1e-6, 1e-12, 1e-3]))
    if rng.random() < 0.2:
        gap = max(difference(read(first), read(second), where.inner, strata=jumps(first, second)))
        near = float(min(gap, Fraction(10) ** 300)) * float(rng.choice([0.999, 1.0, 1.001]))
        tolerance = near
    options = {"tolerance": tolerance, "way": way, **limit(rng)}
    return Case((first, second), where, {**options, "top1": bool(rng.random() < 0.3)})


def judge(case: Case, out: Outcome) -> None:
    """Verdict, bounds, witness and certificate."""
    (first, second), where = case.networks, case.place
    assert where is not None
    tolerance, way, seconds = (case.options[k] for k in ("tolerance", "way", "time_limit"))
    one, two, strata = read(first), read(second), jumps(first, second)
    least = max(difference(one, two, where.inner, strata=strata))
    most = least if where.exact else max(difference(one, two, where.outer, strata=strata))
    top1 = case.options["top1"]
    found = rn.compare(
        first, second, where.domain, tolerance=tolerance, time_limit=seconds, top1=top1
    )
    text = f"{way}: {found!r}, exactly {short(least)}"
    out.unknown += found.verdict == "unknown"
    out.claim(found.lower <= most, f"{text}: lower end too high")
    out.claim(found.upper >= least, f"{text}: upper end too low")
    limit = Fraction(tolerance)
    if found.verdict == "equal":
        out.claim(least == 0, f"{text}: not equal")
    elif found.verdict == "within":
        out.claim(least <= limit, f"{text}: not within {tolerance}")
    elif found.verdict == "different":
        out.claim(found.witness is not None, f"{text}: no witness")
        if found.witness is not None:
            point = found.witness.tolist()
            out.claim(inside(where.domain, point), f"{text}: witness {point} is not in the domain")
            gap = _gap(one, two, point)
            out.claim(gap > limit, f"{text}: at {point} they differ by {short(gap)}")
            out.claim(found.lower <= gap, f"{text}: at {point} they differ by {short(gap)}")
    plain = all(layer.has_units for layer in first.layers)
    if way == "arranged" and plain and seconds > 1 and least == 0:
        out.claim(found.verdict == "equal", f"{text}: an arranged copy is equal")
    if found.certificate is not None:
        certificate(found.certificate, first, second, where, out)
    if top1:
        _classes(found.top1, one, two, where, strata, out)


def _classes(
    found: Any, one: ExactNetwork, two: ExactNetwork, where: Place, strata: bool, out: Outcome
) -> None:
    """Both choose the same class at the corners and in the middle of every common piece."""

    def chosen(values: list[Fraction]) -> int:
        return int(values[0] > 0) if len(values) == 1 else values.index(max(values))

    if found.verdict == "different":
        point = found.witness.tolist()
        out.claim(inside(where.domain, point), f"top1: witness {point} is not in the domain")
        classes = [chosen(output_at(net, point)) for net in (one, two)]
        out.claim(classes == [found.first, found.second], f"top1: {found}, exactly {classes}")
        out.claim(classes[0] != classes[1], f"top1: both choose {classes[0]} at {point}")
    elif found.verdict == "same":
        for pair in common_pieces(one, two, where.inner, strata=strata):
            cell = pair[0].cell
            for point in [cell.middle(), *cell.points()]:
                classes = [chosen(output_at(net, point)) for net in (one, two)]
                out.claim(classes[0] == classes[1], f"top1: same, but {classes} at {point}")


def _gap(one: ExactNetwork, two: ExactNetwork, point: list[float]) -> Fraction:
    values = output_at(one, point), output_at(two, point)
    return max(abs(a - b) for a, b in zip(*values, strict=True))


def exact_gaps(document: dict, first: Network, second: Network, where: Place) -> list[Fraction]:
    """sup |f - g| of every output where the document claims something, over the inner cell."""
    one, two = read(first), read(second)
    if not jumps(first, second):
        return difference(one, two, where.inner)
    margins = {}
    for entry in document["exceptions"]:
        net = (first, second)[entry["network"]]
        layers = [layer for layer in net.layers if layer.has_units]
        number = sum(layer.width for layer in layers[: entry["layer"]]) + entry["unit"]
        margins[entry["network"], number] = Fraction(float(entry["margin"]))
    return difference_apart(one, two, where.inner, margins)


def certificate(
    given: Certificate, first: Network, second: Network, where: Place, out: Outcome
) -> None:
    """Its bounds hold, and `verify` accepts it."""
    gaps = exact_gaps(given.document, first, second, where)
    for bound, gap in zip(given.bounds, gaps, strict=True):
        out.claim(bound >= gap, f"certificate states {short(bound)}, exactly {short(gap)}")
    again = rn.verify(given, first, second, where.domain)
    out.claim(again.holds, f"verify refuses our own certificate: {again.problems}")

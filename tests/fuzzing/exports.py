"""to_c: no input is further from the network than what is proved, and the proof replays."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from exact_answers import inside, output_at
from exact_oracle import pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, short
from fuzzing.places import place_for
from relunorm.embedded import verify


def draw(rng: Rng) -> Case:
    """Integers of a width, pieces, or floats."""
    net = network(rng, Kind(inputs=(1, 2), steps=rng.random() < 0.2))
    how = str(rng.choice(["layers", "layers", "pieces", "floats"]))
    options: dict[str, object] = {"floats": True} if how == "floats" else {"style": how}
    if how != "floats":
        options["bits"] = int(rng.choice([8, 16, 32]))
    return Case((net,), place_for(rng, net), {**options, "seed": int(rng.integers(1 << 30))})


def judge(case: Case, out: Outcome) -> None:
    """At corners of the domain and of its pieces, and between them."""
    (net,), where = case.networks, case.place
    assert where is not None
    options = {k: v for k, v in case.options.items() if k != "seed"}
    made = rn.to_c(net, where.domain, parts=4, samples=50, **options)
    exact = read(net)
    corners = {corner for piece in pieces(exact, where.inner) for corner in piece.cell.corners}
    points = [[float(Fraction(v, c[-1])) for v in c[:-1]] for c in sorted(corners)[:60]]
    rng = np.random.default_rng(case.options["seed"])
    points += where.domain.sample(10, rng).tolist()
    points = [p for p in points if inside(where.domain, p)]
    stated = made.certificate.document["bounds"]["of_floats"]
    bounds = [math.inf if b is None else float(b) for b in stated]
    out.unknown += not np.isfinite(bounds).any()
    program: Any = made.program
    integers = hasattr(program, "quantize")
    scale = Fraction(2) ** int(program.output_exponent) if integers else Fraction(1)
    outputs = program(program.quantize(points)) if integers else program(points)
    for point, given in zip(points, outputs, strict=True):
        for y, true, bound in zip(given.tolist(), output_at(exact, point), bounds, strict=True):
            gap = abs(Fraction(y) / scale - true)
            text = f"{made.program!r} at {point}: off by {short(gap)}, {short(bound)} is proved"
            out.claim(gap <= bound, text)
    again = verify(made.certificate, net, made.source)
    out.claim(again.holds, f"verify refuses our own certificate: {again.problems}")

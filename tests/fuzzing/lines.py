"""along and on_plane against exact pieces of a segment and of a rectangle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from exact_answers import whole
from exact_oracle import Rows, box_cell, hull_cell, pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, extreme_network, network
from fuzzing.outcome import Case, Outcome, short
from fuzzing.places import Place
from fuzzing.regions import judge_list

#: docs/regions.md: pieces below 1e-10 of their leg may be merged; this is longer as a float, too.
SHORT = Fraction(1001, 10**13)

#: relunorm.along: values between breakpoints are right to this share of the largest one.
VALUES = Fraction(2, 10**6)


def forms(columns: Sequence[Sequence[Fraction]]) -> Rows:
    """Inputs as forms of the coordinates: the last column is the origin."""
    numbers = [x for column in columns for x in column]
    scale = math.lcm(*(x.denominator for x in numbers))
    exponent = scale.bit_length() - 1
    assert scale == 1 << exponent
    return Rows([[int(x * scale) for x in row] for row in zip(*columns, strict=True)], exponent)


def draw_along(rng: Rng) -> Case:
    """One segment, sometimes between grid points; weights of any size every other time."""
    kind = Kind(inputs=(1, 2, 3, 5))
    if rng.random() < 0.5:
        net = extreme_network(rng, kind, int(rng.choice([60, 60, 60, 160, 300])))
    else:
        net = network(rng, kind)
    d = net.input_size
    size = float(rng.choice([1.0, 1.0, 1e-3, 1e3, 1e30, 1e-30]))
    a, b = rng.normal(size=d) * size, rng.normal(size=d) * size
    style = rng.random()
    if style < 0.3:
        a, b = np.round(a), np.round(b) + 1.0
    elif style < 0.45:
        a = -b if style < 0.4 else np.zeros(d)
    return Case((net,), None, {"a": a.tolist(), "b": b.tolist()})


def judge_along(case: Case, out: Outcome) -> None:
    """Every piece of the line in real arithmetic: its pattern and values, or that it is counted."""
    (net,), a, b = case.networks, np.array(case.options["a"]), np.array(case.options["b"])
    line = rn.along(net, a, b)
    start, end = whole(a), whole(b)
    way = forms([[y - x for x, y in zip(start, end, strict=True)], start])
    parts = [
        (*sorted(point[0] for point in piece.cell.points()), piece)
        for piece in pieces(read(net), hull_cell([[Fraction(0)], [Fraction(1)]]), way)
    ]
    parts.sort(key=lambda part: part[:2])
    out.claim(line.certain, f"{line!r}: rounding may have decided")
    out.claim((np.diff(line.breakpoints) > 0).all(), f"{line!r}: breakpoints do not ascend")
    listed = len(line) + line.merged
    out.claim(listed == len(parts), f"{line!r}: {listed} pieces, exactly {len(parts)}")
    largest = [
        max(abs(row[0] * t + row[1]) for *ends, piece in parts for t in ends for row in [at(piece)])
        for at in [lambda piece, k=k: piece.output.fractions()[k] for k in range(net.output_size)]
    ]
    for low, high, piece in parts:
        if high - low <= SHORT:
            continue
        middle = float((low + high) / 2)
        own = np.searchsorted(line.breakpoints, middle, side="right") - 1
        said = tuple(map(bool, line.patterns[min(own, len(line) - 1)]))
        out.claim(
            said == piece.pattern,
            f"{line!r}: at {middle!r} the pattern is {said}, exactly {piece.pattern}",
        )
        for share in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)):
            t = Fraction(float(low + share * (high - low)))
            exact = [row[0] * t + row[1] for row in piece.output.fractions()]
            with np.errstate(all="ignore"):  # an output beyond float64 is infinite
                values = line(float(t))[0].tolist()
            for k, value in enumerate(values):
                if largest[k] >= Fraction(2) ** 1020:
                    continue
                gap = abs(Fraction(value) - exact[k]) if math.isfinite(value) else math.inf
                out.claim(
                    gap <= VALUES * largest[k],
                    f"{line!r}: output {k} at {float(t)!r} is {value!r}, exactly {short(exact[k])}",
                )


def draw_plane(rng: Rng) -> Case:
    """A plane through three inputs (or a skew frame of two)."""
    kind = Kind(inputs=(2, 3, 5))
    if rng.random() < 0.25:
        net = extreme_network(rng, kind, int(rng.choice([60, 160, 300])))
    else:
        net = network(rng, kind)
    d = net.input_size
    origin, u, v = rng.normal(size=(3, d))
    if rng.random() < 0.4:
        origin, u, v = np.round(origin), np.round(2 * u) / 2, np.round(2 * v) / 2
    if abs(np.linalg.svd(np.stack([u, v]), compute_uv=False)[-1]) < 1e-6:
        u, v = np.eye(d)[:2]
    return Case((net,), None, {"origin": origin.tolist(), "u": u.tolist(), "v": v.tolist()})


def judge_plane(case: Case, out: Outcome) -> None:
    """The regions on the plane."""
    (net,), (origin, u, v) = case.networks, (case.options[k] for k in ("origin", "u", "v"))
    found = rn.on_plane(net, origin, u, v)
    cell = box_cell([-1, -1], [1, 1])
    where = Place(rn.Box.cube(2), cell, cell, (0, 1))
    judge_list(found.regions, net, where, out, forms([whole(u), whole(v), whole(origin)]))

"""along and on_plane against exact pieces of a segment and of a rectangle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from exact_answers import at_point, whole
from exact_oracle import Rows, box_cell, hull_cell, pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, short
from fuzzing.places import Place
from fuzzing.regions import NOISE, judge_list, sizes
from relunorm.regions.lines import Line

#: docs/regions.md: pieces below 1e-10 of their leg are merged; ten times that leaves no doubt.
SHORT = 1e-9


def forms(columns: Sequence[Sequence[Fraction]]) -> Rows:
    """Inputs as forms of the coordinates: the last column is the origin."""
    numbers = [x for column in columns for x in column]
    scale = math.lcm(*(x.denominator for x in numbers))
    exponent = scale.bit_length() - 1
    assert scale == 1 << exponent
    return Rows([[int(x * scale) for x in row] for row in zip(*columns, strict=True)], exponent)


def draw_along(rng: Rng) -> Case:
    """One segment, sometimes between grid points."""
    net = network(rng, Kind(inputs=(1, 2, 3, 5)))
    d = net.input_size
    size = float(rng.choice([1.0, 1.0, 1e-3, 1e3]))
    a, b = rng.normal(size=d) * size, rng.normal(size=d) * size
    if rng.random() < 0.3:
        a, b = np.round(a), np.round(b) + 1.0
    return Case((net,), None, {"a": a.tolist(), "b": b.tolist()})


def judge_along(case: Case, out: Outcome) -> None:
    """Patterns at the middles of pieces, values at breakpoints, no piece missing."""
    (net,), a, b = case.networks, np.array(case.options["a"]), np.array(case.options["b"])
    line = rn.along(net, a, b)
    exact, start, end = read(net), whole(a), whole(b)
    way = forms([[y - x for x, y in zip(start, end, strict=True)], start])
    parts = list(pieces(exact, hull_cell([[Fraction(0)], [Fraction(1)]]), way))
    parts.sort(key=lambda piece: piece.cell.middle()[0])
    far = np.maximum(np.abs(a), np.abs(b))

    def point(t: float) -> list[Fraction]:
        share = Fraction(float(t))
        return [x + share * (y - x) for x, y in zip(start, end, strict=True)]

    ends, patterns = line.breakpoints, line.patterns
    for k, (left, right) in enumerate(itertools.pairwise(ends)):
        if right - left < SHORT:
            continue
        there = at_point(exact, point((left + right) / 2))
        limit = sizes(net, there.signs, far, np.abs(b - a) / 2).forms
        flat = [h for rows in there.forms for h in rows.values(there.cell.corners[0])]
        for unit, (bit, height) in enumerate(zip(patterns[k], flat, strict=True)):
            steep = _steepness(there, way, unit) * SHORT
            if (height > 0) != bit and abs(height) > max(NOISE * limit[unit], steep):
                out.claim(
                    False,
                    f"{line!r}: piece {k} from {left!r} to {right!r} says unit {unit} is "
                    f"{'on' if bit else 'off'}, in the middle it is {short(height)}",
                )
    _values(line, parts, net, far, out)
    listed = {(tuple(map(bool, row))) for row in patterns}
    for piece in parts:
        ts = [float(p[0]) for p in piece.cell.points()]
        limit = sizes(net, piece.signs, far, np.abs(b - a) / 2).forms
        clear = all(
            max(abs(h) for h in _heights(row, exponent, piece)) > NOISE * limit[unit]
            for unit, (row, exponent) in enumerate(piece.unit_forms())
            if limit[unit]
        )
        if max(ts) - min(ts) > SHORT and clear and piece.pattern not in listed:
            out.claim(False, f"{line!r}: no piece has the pattern of {min(ts)!r} to {max(ts)!r}")


def _heights(row: Sequence[int], exponent: int, piece: object) -> list[Fraction]:
    cell = piece.cell  # type: ignore[attr-defined]
    return [Rows([list(row)], exponent).values(corner)[0] for corner in cell.corners]


def _steepness(there: object, way: Rows, unit: int) -> float:
    """How fast a unit changes along the line, from the gradient at a point of it."""
    rows = [row for part in there.forms for row in part.fractions()]  # type: ignore[attr-defined]
    slopes = [row[0] for row in way.fractions()]
    return abs(float(sum(a * s for a, s in zip(rows[unit], slopes, strict=False))))


def _values(line: Line, parts: list, net: object, far: object, out: Outcome) -> None:
    """Outputs at the breakpoints, allowing for where rounding and merging may have put them."""
    for t, values in zip(line.breakpoints, line.values, strict=True):
        place = Fraction(float(t))
        near = [
            p
            for p in parts
            if min(c[0] for c in p.cell.points()) - Fraction(SHORT) <= place
            and place <= max(c[0] for c in p.cell.points()) + Fraction(SHORT)
        ]
        at = next(
            [row[0] * place + row[1] for row in p.output.fractions()]
            for p in parts
            if min(c[0] for c in p.cell.points()) <= place <= max(c[0] for c in p.cell.points())
        )
        for k, value in enumerate(values):
            slope = max(abs(p.output.fractions()[k][0]) for p in near)
            size = max(sizes(net, p.signs, far, far).output[k] for p in near)  # type: ignore
            allowed = float(slope) * SHORT + 10 * NOISE * float(size)
            out.claim(
                abs(float(Fraction(float(value)) - at[k])) <= allowed,
                f"{line!r}: output {k} at t={t!r} is {value!r}, exactly {short(at[k])}",
            )


def draw_plane(rng: Rng) -> Case:
    """A plane through three inputs (or a skew frame of two)."""
    net = network(rng, Kind(inputs=(2, 3, 5)))
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

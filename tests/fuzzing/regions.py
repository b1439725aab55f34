"""regions: patterns, maps, volumes and lookups against exact pieces.

What is too thin to be listed is judged by the rule of docs/regions.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from exact_answers import at_point, whole
from exact_oracle import Piece, pieces, read, volume

import relunorm as rn
from fuzzing.nets import Kind, Rng, extreme_network, network
from fuzzing.outcome import Case, Outcome, short
from fuzzing.places import Place, place_for
from relunorm import Ball, Network, Regions

#: docs/regions.md: cells wider than 1e-10 of the domain are listed. Twice that leaves no doubt.
THIN = 2e-10
#: Rounding of a map's coefficient, relative to the sums behind it: generous, thousands of units.
NOISE = 1e-12
#: A form's value below this share of the sums behind it is not seen by any test of signs (the
#: documents say up to 32 units in the last place a layer).
UNSEEN = 2e-14
#: Below the normal numbers of float64 a share says nothing.
SUBNORMAL = 2.0**-1070


@dataclass(frozen=True)
class Sizes:
    """Sums of absolute values behind pre-activations, gradients and outputs on one cell."""

    forms: np.ndarray
    slopes: np.ndarray
    output: np.ndarray
    output_slopes: np.ndarray


def sizes(net: Network, signs: Sequence[int], far: np.ndarray, half: np.ndarray) -> Sizes:
    """With the units that are on: what is switched off adds nothing."""
    values: list[Any] = [(far, np.diag(half))]
    forms, slopes, at = [], [], 0
    maps = [layer.affine for layer in net.layers] + [net.output]
    for k, affine in enumerate(maps):
        total, slope = np.abs(affine.bias), np.zeros((affine.size, len(far)))
        for source, m in affine.terms.items():
            dense = np.abs(m.toarray() if hasattr(m, "toarray") else m)
            total, slope = total + dense @ values[source][0], slope + dense @ values[source][1]
        if k < len(net.layers):
            layer = net.layers[k]
            factor = np.ones(layer.width)
            if layer.has_units:
                own = np.array(signs[at : at + layer.width])
                at += layer.width
                forms.append(total)
                slopes.append(np.linalg.norm(slope, axis=1))
                below = abs(layer.activation.slopes[0])
                factor = np.where(own > 0, 1.0, below)
            total, slope = factor * total, factor[:, None] * slope
        values.append((total, slope))
    none = np.zeros(0)  # of a network without units
    return Sizes(np.concatenate([none, *forms]), np.concatenate([none, *slopes]), *values[-1])


def draw(rng: Rng) -> Case:
    """One engine on one domain; weights of any size now and then."""
    if rng.random() < 0.25:
        net = extreme_network(rng, Kind(inputs=(1, 2, 2, 3)), int(rng.choice([60, 160, 300])))
    else:
        net = network(rng, Kind())
    d = net.input_size
    methods = ["tree"] if d == 1 else ["tree", "cells"] if d > 2 else ["tree", "cells", "polygons"]
    method = str(rng.choice(["auto", "auto", "auto", *methods]))
    return Case((net,), place_for(rng, net), {"method": method})


def judge(case: Case, out: Outcome) -> None:
    """The whole list."""
    (net,), where = case.networks, case.place
    assert where is not None
    found = rn.regions(net, where.domain, time_limit=20, **case.options)
    if found.complete:
        judge_list(found, net, where, out)
    else:
        out.unknown += 1


def judge_list(found: Regions, net: Network, where: Place, out: Outcome, start: Any = None) -> None:
    """Compare a complete list with the exact pieces.

    Args:
        net: the network whose numbers are exact.
        start: the inputs as exact forms of the window's coordinates, for a plane.
    """
    with np.errstate(all="ignore"):  # sizes and gaps beyond float64 are infinite
        _judge_list(found, net, where, out, start)


def _judge_list(found: Regions, net: Network, where: Place, out: Outcome, start: Any) -> None:
    exact = read(net)
    inner = {piece.pattern: piece for piece in pieces(exact, where.inner, start)}
    outer = inner if where.exact else {p.pattern: p for p in pieces(exact, where.outer, start)}
    scale = scale_of(net, where, start)
    half = scale.half
    listed = [tuple(map(bool, row)) for row in found.patterns]
    head = f"{found!r}"
    out.claim(len(set(listed)) == len(listed), f"{head}: a pattern is listed twice")
    for pattern, piece in inner.items():
        if pattern in set(listed):
            continue
        reasons = set(scale.doubtful(piece))
        if not reasons:
            out.claim(False, f"{head}: a region is missing, {_words(piece, half)}")
        elif "rounding" not in reasons and not found.hidden:
            out.claim(
                False, f"{head}: hidden is 0, but a thin region is left out, {_words(piece, half)}"
            )
    whole_volume = float(np.prod(2 * half[list(where.free)]))
    for i, pattern in enumerate(listed):
        _region(found, i, pattern, outer.get(pattern), scale, exact, start, out)
        piece = inner.get(pattern)
        if piece is None or isinstance(where.domain, Ball) or set(scale.doubtful(piece)):
            continue
        true = float(volume(piece.cell, where.free))
        got = float(found.volume(i))
        fits = abs(got - true) <= 1e-7 * true + 1e-9 * whole_volume
        out.claim(fits, f"{head}: region {i} has volume {got}, exactly {true}")


def scale_of(net: Network, where: Place, start: Any = None) -> Scale:
    """Extents of the domain, and of the inputs where those are forms of its coordinates."""
    box = where.domain.bounding_box
    far, half = np.maximum(np.abs(box.lo), np.abs(box.hi)), (box.hi - box.lo) / 2
    if start is not None:
        rows = np.array([[float(x) for x in row] for row in start.fractions()])
        far = np.abs(rows[:, :-1]) @ far + np.abs(rows[:, -1])
    return Scale(net, far, half, start)


@dataclass(frozen=True)
class Scale:
    """What rounding and thinness are measured in."""

    net: Network
    far: np.ndarray
    half: np.ndarray
    start: Any

    def sizes(self, signs: Sequence[int]) -> Sizes:
        """On the cell where units have these signs."""
        if self.start is None:
            return sizes(self.net, signs, self.far, self.half)
        rows = np.abs([[float(x) for x in row[:-1]] for row in self.start.fractions()])
        made = sizes(self.net, signs, self.far, np.ones(len(self.far)))
        spread = rows @ self.half
        return Sizes(
            made.forms,
            made.slopes * spread.max(),
            made.output,
            made.output_slopes @ rows * self.half,
        )

    def doubtful(self, piece: Piece) -> list[str]:
        """Why a cell may be missing: for every unit too near its kink, "rounding" or "thin"."""
        size = self.sizes(piece.signs)
        found = []
        for unit, (row, exponent) in enumerate(piece.unit_forms()):
            heights = [_ratio(row, exponent, corner) for corner in piece.cell.corners]
            high = max(map(abs, heights))
            slope = float(
                np.linalg.norm(
                    [_float(a, exponent) * h for a, h in zip(row, self.half, strict=False)]
                )
            )
            if (high <= NOISE * size.forms[unit] and size.forms[unit]) or (
                slope and slope <= NOISE * size.slopes[unit]
            ):
                found.append("rounding")
            elif slope and high <= THIN * slope:
                found.append("thin")
        return found


def _ratio(row: Sequence[int], exponent: int, corner: Sequence[int]) -> float:
    total = sum(a * v for a, v in zip(row, corner, strict=True))
    return _nearest(Fraction(total, corner[-1] << exponent))


def _float(a: int, exponent: int) -> float:
    return _nearest(Fraction(a, 1 << exponent))


def _nearest(x: Fraction) -> float:
    """The nearest float; infinite beyond all of them."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _gap(said: float, exact: Fraction) -> float:
    """How far a number is off; one beyond float64 is infinite."""
    if not math.isfinite(said):
        return 0.0 if said == _nearest(exact) else math.inf
    return _nearest(abs(Fraction(float(said)) - exact))


def _region(
    found: Regions,
    i: int,
    pattern: tuple[bool, ...],
    piece: Piece | None,
    scale: Scale,
    exact: Any,
    start: Any,
    out: Outcome,
) -> None:
    point = found.interior_point(i)
    fractions = whole(point)
    if start is not None:
        fractions = [
            sum(a * x for a, x in zip(row, [*fractions, 1], strict=True))
            for row in start.fractions()
        ]
    there = at_point(exact, fractions)
    if piece is None:
        size = scale.sizes(there.signs)
        heights = [rows.values(there.cell.corners[0]) for rows in there.forms]
        flat = [float(h) for part in heights for h in part]
        for unit, (sign, bit, height) in enumerate(zip(there.signs, pattern, flat, strict=True)):
            near = abs(height) <= max(NOISE * size.forms[unit], THIN * size.slopes[unit])
            if (sign > 0) != bit and not near:
                out.claim(
                    False,
                    f"{found!r}: region {i} says unit {unit} is {'on' if bit else 'off'}, at its "
                    f"interior point {point.tolist()} it is {height:.17g}",
                )
                return
        return
    size = scale.sizes(piece.signs)
    A, c = found.affine(i)
    rows = piece.output.fractions()
    middle = np.abs(found.domain.center) if found.domain is not None else np.zeros(len(point))
    for k, row in enumerate(rows):
        for j, slope in enumerate(row[:-1]):
            if scale.half[j] == 0:
                continue
            allowed = (
                NOISE * size.output_slopes[k, j] / scale.half[j]
                + NOISE * _nearest(abs(slope))
                + SUBNORMAL
            )
            gap = _gap(A[k, j], slope)
            out.claim(
                gap <= allowed or np.isnan(allowed),
                f"{found!r}: region {i} has slope {A[k, j]!r} for output {k}, input {j}; exactly "
                f"{short(slope)}",
            )
        with np.errstate(all="ignore"):
            lever = np.nan_to_num(size.output_slopes[k] / scale.half, posinf=0.0) @ middle
        gap = _gap(c[k], row[-1]) if not (scale.half == 0).any() else 0.0
        allowed = NOISE * (size.output[k] + lever + _nearest(abs(row[-1]))) + SUBNORMAL
        out.claim(
            gap <= allowed or np.isnan(allowed),
            f"{found!r}: region {i} has constant {c[k]!r} for output {k}; exactly {short(row[-1])}",
        )


def _words(piece: Piece, half: np.ndarray) -> str:
    middle = [float(x) for x in piece.cell.middle()]
    return f"pattern {''.join(str(int(b)) for b in piece.pattern)} around {middle}"

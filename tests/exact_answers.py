"""Exact answers about small networks: ranges, maxima, differences, margins, slopes.

They follow from the pieces of `exact_oracle`. Every number is a fraction; nothing of the package is
called.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from exact_oracle import (
    Cell,
    ExactNetwork,
    Piece,
    Rows,
    cut,
    determinant,
    dyadic,
    hull_cell,
    pieces,
)

Interval = tuple[Fraction, Fraction]


def whole(numbers: Iterable[float]) -> list[Fraction]:
    """Floats as the fractions they are."""
    return [Fraction(float(x)) for x in numbers]


def at_point(network: ExactNetwork, point: Sequence[Any]) -> Piece:
    """The network at one input: signs of all units (0 on a kink), and `output_at`."""
    return next(pieces(network, hull_cell([[Fraction(x) for x in point]])))


def output_at(network: ExactNetwork, point: Sequence[Any]) -> list[Fraction]:
    """The outputs at one input."""
    piece = at_point(network, point)
    return piece.output.values(piece.cell.corners[0])


def inside(domain: Any, point: Sequence[float]) -> bool:
    """Whether a float point lies in a box, a ball or between flat sides, judged by its numbers."""
    x = whole(point)
    if hasattr(domain, "lo"):
        return all(
            a <= v <= b for a, v, b in zip(whole(domain.lo), x, whole(domain.hi), strict=True)
        )
    if hasattr(domain, "reach"):
        gaps = [v - c for v, c in zip(x, whole(domain.middle), strict=True)]
        return sum(g * g for g in gaps) <= Fraction(float(domain.reach)) ** 2
    return all(
        sum(a * v for a, v in zip(whole(row), x, strict=True)) <= Fraction(float(rhs))
        for row, rhs in zip(*domain.sides, strict=True)
    )


def unit_ranges(found: Iterable[Piece]) -> list[Interval]:
    """Infimum and supremum of every pre-activation, in the order of the signs."""
    ranges: list[Interval] = []
    for piece in found:
        own = []
        for row, exponent in piece.unit_forms():
            values = _values(row, exponent, piece.cell)
            own.append((min(values), max(values)))
        known = ranges or own
        ranges = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(known, own, strict=True)]
    return ranges


def _values(row: Sequence[int], exponent: int, cell: Cell) -> list[Fraction]:
    rows = Rows([list(row)], exponent)
    return [rows.values(corner)[0] for corner in cell.corners]


def combined(rows: Rows, weights: Sequence[float]) -> Rows:
    """One form: the weighted sum of the rows."""
    factors, exponent = dyadic(weights)
    total = [0] * len(rows.entries[0])
    for factor, row in zip(factors, rows.entries, strict=True):
        total = [t + factor * a for t, a in zip(total, row, strict=True)]
    return Rows([total], rows.exponent + exponent)


def maximum(found: Iterable[Piece], direction: Sequence[float]) -> Fraction:
    """The largest value of direction . f (for a network that jumps, the supremum)."""
    return max(
        combined(piece.output, direction).values(corner)[0]
        for piece in found
        for corner in piece.cell.corners
    )


def common_pieces(
    first: ExactNetwork, second: ExactNetwork, cell: Cell, *, strata: bool = False
) -> Iterator[tuple[Piece, Piece]]:
    """Cells on which both networks are affine."""
    for piece in pieces(first, cell, strata=strata):
        for finer in pieces(second, piece.cell, strata=strata, closed=False):
            yield Piece(finer.cell, piece.signs, piece.forms, piece.output), finer


def difference(
    first: ExactNetwork, second: ExactNetwork, cell: Cell, *, strata: bool = False
) -> list[Fraction]:
    """sup |f - g| for every output."""
    worst: list[Fraction] = []
    for one, other in common_pieces(first, second, cell, strata=strata):
        for corner in one.cell.corners:
            gaps = [
                abs(a - b)
                for a, b in zip(one.output.values(corner), other.output.values(corner), strict=True)
            ]
            worst = [max(a, b) for a, b in zip(worst, gaps, strict=True)] if worst else gaps
    return worst


def difference_apart(
    first: ExactNetwork, second: ExactNetwork, cell: Cell, margins: dict[tuple[int, int], Fraction]
) -> list[Fraction]:
    """sup |f - g| where no named unit, (network, number of the unit), is within its margin of 0."""
    worst = [Fraction(0)] * len(first.maps[-1].bias)
    for pair in common_pieces(first, second, cell, strata=True):
        rest: Cell | None = pair[0].cell
        for (network, unit), margin in margins.items():
            if rest is None:
                break
            rest = _beyond(rest, pair[network], unit, margin)
        if rest is None:
            continue
        for corner in rest.corners:
            values = (p.output.values(corner) for p in pair)
            worst = [max(w, abs(a - b)) for w, a, b in zip(worst, *values, strict=True)]
    return worst


def _beyond(cell: Cell, piece: Piece, unit: int, margin: Fraction) -> Cell | None:
    """The part of a stratum where |z| > margin (its closure)."""
    sign = piece.signs[unit]
    if sign == 0:
        return None
    row, exponent = list(piece.unit_forms())[unit]
    scaled = [sign * a * margin.denominator for a in row]
    scaled[-1] -= margin.numerator << exponent
    heights = [Rows([scaled], 0).at(corner)[0] for corner in cell.corners]
    if max(heights) <= 0:
        return None
    return cell if min(heights) >= 0 else cut(cell, heights)[2]


def largest_margin(found: Iterable[Piece], A: Any, b: Any) -> Fraction:
    """max over x of min_i (b - A f(x))_i: cells are cut where two of the rows are equal."""
    best: Fraction | None = None
    for piece in found:
        rows = [combined(piece.output, [-a for a in row]) for row in A]
        forms = [
            [*r.fractions()[0][:-1], r.fractions()[0][-1] + Fraction(float(rhs))]
            for r, rhs in zip(rows, b, strict=True)
        ]
        scale = math.lcm(*(x.denominator for form in forms for x in form))
        forms = [[int(x * scale) for x in form] for form in forms]
        cells = [piece.cell]
        for one, other in itertools.combinations(forms, 2):
            gap = Rows([[x - y for x, y in zip(one, other, strict=True)]], 0)
            cells = [
                part
                for cell in cells
                for part in _halves(cell, [gap.at(c)[0] for c in cell.corners])
            ]
        for cell in cells:
            for corner in cell.corners:
                value = min(Fraction(h, corner[-1] * scale) for h in Rows(forms, 0).at(corner))
                best = value if best is None else max(best, value)
    assert best is not None
    return best


def _halves(cell: Cell, heights: Sequence[int]) -> list[Cell]:
    if not min(heights) < 0 < max(heights):
        return [cell]
    below, _, above = cut(cell, heights)
    return [part for part in (below, above) if part is not None]


# --- slopes


def gradients(found: Iterable[Piece], free: Sequence[int]) -> list[list[list[Fraction]]]:
    """The distinct Jacobians with respect to the free inputs."""
    seen = {
        tuple(tuple(row[j] for j in free) for row in piece.output.fractions()) for piece in found
    }
    return [[list(row) for row in matrix] for matrix in seen]


def exceeds(matrix: list[list[Fraction]], bound: float, norm: float, *, strictly: bool) -> bool:
    """Whether the operator norm p -> p is above (or at least) a float bound; p = 1, 2, inf."""
    if math.isinf(bound):
        return bound < 0
    limit = Fraction(float(bound))
    if norm == 2:
        return _spectrum_exceeds(matrix, limit, strictly)
    lines = matrix if math.isinf(norm) else list(zip(*matrix, strict=True))
    value = max(sum(abs(x) for x in line) for line in lines)
    return value > limit or (not strictly and value == limit)


def _spectrum_exceeds(matrix: list[list[Fraction]], limit: Fraction, strictly: bool) -> bool:
    if limit < 0:
        return True
    rows = matrix if len(matrix) <= len(matrix[0]) else list(zip(*matrix, strict=True))
    gram = [[sum(a * b for a, b in zip(r, s, strict=True)) for s in rows] for r in rows]
    n = len(gram)
    rest = [[(limit * limit if i == j else 0) - gram[i][j] for j in range(n)] for i in range(n)]
    if strictly:  # the largest eigenvalue is above limit^2 unless the rest is semidefinite
        return any(
            determinant([[rest[i][j] for j in chosen] for i in chosen]) < 0
            for size in range(1, n + 1)
            for chosen in itertools.combinations(range(n), size)
        )
    return any(determinant([row[:size] for row in rest[:size]]) <= 0 for size in range(1, n + 1))

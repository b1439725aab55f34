"""Regions by brute force over all sign vectors, one linear programme each in rational arithmetic.

Shares no code with the package: Fractions, a textbook simplex with Bland's rule.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np

Row = list[Fraction]


def regions_by_brute_force(network, lo, hi) -> set[tuple[int, ...]]:
    """Patterns with non-empty interior on a box; any skips, relu or leaky units."""
    widths = [layer.width for layer in network.layers]
    found = set()
    for bits in itertools.product((0, 1), repeat=sum(widths)):
        rows = _half_spaces(network, bits, len(lo))
        if rows is not None and _has_interior(rows, lo, hi):
            found.add(bits)
    return found


def rim(mesh) -> int:
    """Edges of a surface with one face only."""
    edges = Counter(
        frozenset(edge)
        for face in mesh.faces
        for edge in zip(face, [*face[1:], face[0]], strict=True)
    )
    return sum(n == 1 for n in edges.values())


def area(cells, which: int) -> float:
    """The area of a class."""
    corners = [p.T for p, k in zip(cells.polygons, cells.classes, strict=True) if k == which]
    return sum(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2 for x, y in corners)


def exact_map(network, bits) -> tuple[list[Row], Row, list[Row], Row]:
    """A and c of the map under a pattern, and for each entry the sum of its absolute terms."""
    d, at = network.input_size, 0
    unit = [[Fraction(int(i == j)) for j in range(d)] for i in range(d)]
    # A value is a row a coordinate: gradient and constant, signed and in absolute terms.
    values = [[([*row, Fraction(0)], [*row, Fraction(0)]) for row in unit]]
    for k, affine in enumerate([*(x.affine for x in network.layers), network.output]):
        rows = []
        for i, b in enumerate(affine.bias):
            signed = [Fraction(0)] * d + [Fraction(float(b))]
            total = [abs(x) for x in signed]
            for source, matrix in affine.terms.items():
                for w, (form, size) in zip(matrix[i], values[source], strict=True):
                    w = Fraction(float(w))
                    signed = [x + w * y for x, y in zip(signed, form, strict=True)]
                    total = [x + abs(w) * y for x, y in zip(total, size, strict=True)]
            if k < len(network.layers):
                slope = Fraction(float(network.layers[k].activation.slopes[int(bits[at])]))
                signed, total = [slope * x for x in signed], [abs(slope) * x for x in total]
                at += 1
            rows.append((signed, total))
        values.append(rows)
    forms, sizes = zip(*values[-1], strict=True)
    return (
        [row[:d] for row in forms],
        [row[d] for row in forms],
        [row[:d] for row in sizes],
        [row[d] for row in sizes],
    )


def _half_spaces(network, bits, d: int) -> list[tuple[Row, Fraction]] | None:
    """Rows a.x < b of the pattern's cell; None when a constant form has the other sign."""
    values = [([[Fraction(int(i == j)) for j in range(d)] for i in range(d)], [Fraction(0)] * d)]
    rows, at = [], 0
    for layer in network.layers:
        gradient = [[Fraction(0)] * d for _ in range(layer.width)]
        constant = [Fraction(float(b)) for b in layer.affine.bias]
        for source, matrix in layer.affine.terms.items():
            dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            inner, shift = values[source]
            for i, row in enumerate(dense):
                for j, w in enumerate(row):
                    w = Fraction(float(w))
                    constant[i] += w * shift[j]
                    for k in range(d):
                        gradient[i][k] += w * inner[j][k]
        below, above = (Fraction(float(s)) for s in layer.activation.slopes)
        for i in range(layer.width):
            bit = bits[at]
            at += 1
            if not any(gradient[i]):
                if bit != (constant[i] > 0):
                    return None
            else:
                sign = -1 if bit else 1
                rows.append(([sign * g for g in gradient[i]], -sign * constant[i]))
            slope = above if bit else below
            gradient[i] = [slope * g for g in gradient[i]]
            constant[i] *= slope
        values.append((gradient, constant))
    return rows


def _has_interior(rows, lo, hi) -> bool:
    """Maximise e with a.x + e <= b on the box, e <= 1; whether the maximum is positive."""
    d = len(lo)
    lo = [Fraction(float(v)) for v in lo]
    span = [Fraction(float(v)) - w for v, w in zip(hi, lo, strict=True)]
    # y = x - lo >= 0, e = e' + least with e' >= 0, so that y = 0, e' = 0 is feasible.
    shifted = [(a, b - sum(x * y for x, y in zip(a, lo, strict=True))) for a, b in rows]
    least = min([Fraction(0), *(b for _, b in shifted)])
    table = [[*a, Fraction(1), b - least] for a, b in shifted]
    for i in range(d):
        table.append([Fraction(int(i == k)) for k in range(d)] + [Fraction(0), span[i]])
    table.append([Fraction(0)] * d + [Fraction(1), 1 - least])
    return _maximum(table, d) + least > 0


def _maximum(table: list[Row], objective: int) -> Fraction:
    """max y[objective] with rows . y <= last entry, y >= 0 (a dictionary, Bland's rule)."""
    m, n = len(table), len(table[0]) - 1
    cost = [Fraction(int(k == objective)) for k in range(n)]
    value = Fraction(0)
    names, basic = list(range(n)), list(range(n, n + m))
    while True:
        enter = (
            min((names[k], k) for k in range(n) if cost[k] > 0)
            if any(c > 0 for c in cost)
            else None
        )
        if enter is None:
            return value
        k = enter[1]
        ratios = [(table[r][n] / table[r][k], basic[r], r) for r in range(m) if table[r][k] > 0]
        _, _, r = min(ratios)
        pivot = table[r][k]
        row = [v / pivot for v in table[r]]
        row[k] = 1 / pivot
        table[r] = row
        for other in range(m):
            factor = table[other][k]
            if other != r and factor:
                new = [a - factor * b for a, b in zip(table[other], row, strict=True)]
                new[k] = -factor * row[k]
                table[other] = new
        factor = cost[k]
        value += factor * row[n]
        cost = [c - factor * row[j] for j, c in enumerate(cost)]
        cost[k] = -factor * row[k]
        names[k], basic[r] = basic[r], names[k]


def exact_polygon(network, bits, lo, hi) -> list[tuple[Fraction, Fraction]]:
    """The corners, in order, of a pattern's cell of two inputs on a box; none where it is empty."""
    rows = _half_spaces(network, bits, 2)
    if rows is None:
        return []
    (x0, y0), (x1, y1) = (tuple(Fraction(float(v)) for v in end) for end in (lo, hi))
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    for (a, b), bound in rows:
        slack = [bound - a * x - b * y for x, y in corners]
        kept = []
        for i, (p, s) in enumerate(zip(corners, slack, strict=True)):
            q, t = corners[(i + 1) % len(corners)], slack[(i + 1) % len(corners)]
            if s >= 0:
                kept.append(p)
            if s * t < 0:
                share = s / (s - t)
                kept.append(tuple(u + share * (v - u) for u, v in zip(p, q, strict=True)))
        corners = kept
    return corners

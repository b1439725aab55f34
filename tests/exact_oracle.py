"""What a small network does on a low-dimensional polytope, in integers: no rounding, no tolerance.

Shares nothing with the package but the numbers of a `Network` and of a domain, which are dyadic. A
cell is a convex polytope given by its corners in homogeneous integers and, per corner, the set of
constraints that are tight there. Units cut it one by one, layer by layer; on what is left the
network is one affine map, whose coefficients are integers over a power of two.

Conventions: a cell has p parameters (the inputs, or the coordinates of a line or plane); a corner
is a tuple of p + 1 integers, the last one positive, and stands for (v_1, ..., v_p) / v_(p + 1). A
`Rows` is a matrix of integers with p + 1 columns, the last one the constant part, over 2^exponent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Corner = tuple[int, ...]
Matrix = list[list[int]]


@dataclass(frozen=True)
class Cell:
    """A convex polytope: its corners, and per corner a bit mask of the constraints tight there."""

    corners: tuple[Corner, ...]
    tight: tuple[int, ...]
    constraints: int

    @property
    def parameters(self) -> int:
        return len(self.corners[0]) - 1

    def middle(self) -> list[Fraction]:
        """The mean of the corners: a point of the relative interior."""
        return [
            sum(column) / Fraction(len(self.corners)) for column in zip(*self.points(), strict=True)
        ]

    def points(self) -> list[list[Fraction]]:
        """The corners as fractions."""
        return [[Fraction(x, corner[-1]) for x in corner[:-1]] for corner in self.corners]


@dataclass(frozen=True)
class Rows:
    """Affine forms of the parameters, (rows, p + 1) integers over 2^exponent."""

    entries: Matrix
    exponent: int

    def at(self, corner: Corner) -> list[int]:
        """The forms at a corner, up to a positive factor: signs are right."""
        return [sum(a * v for a, v in zip(row, corner, strict=True)) for row in self.entries]

    def values(self, corner: Corner) -> list[Fraction]:
        return [Fraction(h, corner[-1] << self.exponent) for h in self.at(corner)]

    def fractions(self) -> list[list[Fraction]]:
        return [[Fraction(a, 1 << self.exponent) for a in row] for row in self.entries]


@dataclass(frozen=True)
class Piece:
    """A cell on which no unit changes sign.

    Attributes:
        signs: of every unit, layers with units one after another: 1, -1, or 0 where it vanishes on
            the whole cell.
        forms: the pre-activations of every layer with units.
        output: the network on the cell.
    """

    cell: Cell
    signs: tuple[int, ...]
    forms: tuple[Rows, ...]
    output: Rows

    @property
    def pattern(self) -> tuple[bool, ...]:
        return tuple(sign > 0 for sign in self.signs)

    def unit_forms(self) -> Iterator[tuple[list[int], int]]:
        """(row, exponent) of every unit, in the order of ``signs``."""
        for rows in self.forms:
            yield from ((row, rows.exponent) for row in rows.entries)


# --- reading numbers


def dyadic(numbers: Sequence[float]) -> tuple[list[int], int]:
    """Floats as integers over one power of two."""
    ratios = [float(x).as_integer_ratio() for x in numbers]
    exponent = max((q.bit_length() - 1 for _, q in ratios), default=0)
    return [p << (exponent - q.bit_length() + 1) for p, q in ratios], exponent


@dataclass(frozen=True)
class _Map:
    terms: dict[int, Matrix]
    bias: list[int]
    exponent: int


@dataclass(frozen=True)
class ExactNetwork:
    """The raw numbers of a `relunorm.Network`, as integers."""

    maps: tuple[_Map, ...]
    activations: tuple[Any, ...]
    inputs: int


def read(network: Any) -> ExactNetwork:
    """The arrays of a network; nothing of it is called."""
    maps = [layer.affine for layer in network.layers] + [network.output]
    return ExactNetwork(
        tuple(_read_map(affine) for affine in maps),
        tuple(layer.activation for layer in network.layers),
        math.prod(network.input_shape),
    )


def _read_map(affine: Any) -> _Map:
    size = len(affine.bias)
    numbers, shapes = list(affine.bias), {}
    for source, matrix in affine.terms.items():
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        shapes[source] = dense.shape[1]
        numbers += [x for row in dense for x in row]
    whole, exponent = dyadic(numbers)
    terms, at = {}, size
    for source, columns in shapes.items():
        terms[source] = [whole[at + i * columns : at + (i + 1) * columns] for i in range(size)]
        at += size * columns
    return _Map(terms, whole[:size], exponent)


# --- domains as cells


def box_cell(lo: Sequence[float], hi: Sequence[float]) -> Cell:
    """A box; a side of length zero makes it flat."""
    ends, d = dyadic([*lo, *hi]), len(lo)
    sides = [sorted({ends[0][i], ends[0][d + i]}) for i in range(d)]
    corners, tight = [], []
    for choice in itertools.product(*sides):
        corners.append((*choice, 1 << ends[1]))
        at = [(x == ends[0][i], x == ends[0][d + i]) for i, x in enumerate(choice)]
        tight.append(sum(1 << k for k, met in enumerate(itertools.chain(*at)) if met))
    return Cell(tuple(corners), tuple(tight), 2 * d)


def polytope_cell(A: Any, b: Any) -> Cell | None:
    """All x with A x <= b, bounded; None if it is empty."""
    rows = [(*dyadic([*row, -rhs])[0],) for row, rhs in zip(A, b, strict=True)]
    d = len(rows[0]) - 1
    found: dict[Corner, int] = {}
    for chosen in itertools.combinations(rows, d):
        corner = _meet(chosen)
        if corner is None or corner in found:
            continue
        values = [sum(a * v for a, v in zip(row, corner, strict=True)) for row in rows]
        if max(values) <= 0:
            found[corner] = sum(1 << k for k, value in enumerate(values) if value == 0)
    return Cell(tuple(found), tuple(found.values()), len(rows)) if found else None


def hull_cell(points: Sequence[Sequence[Fraction]]) -> Cell:
    """The polygon with these corners in order, a segment of two or a single point."""
    corners = []
    for point in points:
        scale = math.lcm(*(Fraction(x).denominator for x in point))
        corners.append((*(int(x * scale) for x in point), scale))
    n = len(corners)
    tight = [(1 << i) | (1 << (i - 1) % n) for i in range(n)] if n > 2 else [1, 2][:n]
    return Cell(tuple(corners), tuple(tight), max(n, 2))


def _meet(rows: Sequence[Sequence[int]]) -> Corner | None:
    """The one point where d forms vanish, by cofactors; None if there is no such point."""
    d = len(rows)
    minors = []
    for skip in range(d + 1):
        square = [[x for k, x in enumerate(row) if k != skip] for row in rows]
        minors.append((-1) ** skip * determinant(square))
    if minors[-1] == 0:
        return None
    return _reduced(minors if minors[-1] > 0 else [-m for m in minors])


def determinant(square: Sequence[Sequence[Any]]) -> Any:
    """By expansion: for matrices of up to four rows."""
    if not square:
        return 1
    return sum(
        (-1) ** k * x * determinant([[*row[:k], *row[k + 1 :]] for row in square[1:]])
        for k, x in enumerate(square[0])
        if x
    )


def _reduced(corner: Sequence[int]) -> Corner:
    factor = math.gcd(*corner)
    return tuple(x // factor for x in corner)


# --- cutting


def cut(cell: Cell, heights: Sequence[int]) -> tuple[Cell | None, Cell | None, Cell | None]:
    """The parts where a form with these values at the corners is <= 0, 0 and >= 0.

    A part that has not the dimension it should have (the form does not change sign) is None; of a
    form that vanishes everywhere only the middle part is left.
    """
    bit = 1 << cell.constraints
    above, below, on = [], [], []
    for corner, tight, h in zip(cell.corners, cell.tight, heights, strict=True):
        (above if h > 0 else below if h < 0 else on).append((corner, tight, h))
    if above and below:
        for (v, s, h), (w, t, k) in itertools.product(above, below):
            common = s & t
            if sum(common & other == common for other in cell.tight) == 2:
                on.append(
                    (_reduced([-k * a + h * b for a, b in zip(v, w, strict=True)]), common, 0)
                )

    def part(side: list[tuple[Corner, int, int]]) -> Cell | None:
        whole = side + [(corner, tight | bit, 0) for corner, tight, _ in on]
        if not whole:
            return None
        corners, tights, _ = zip(*whole, strict=True)
        return Cell(corners, tights, cell.constraints + 1)

    return (part(below) if below else None, part([]), part(above) if above else None)


def faces(cell: Cell) -> list[Cell]:
    """All faces, the cell itself first, single corners included."""
    every = tuple(range(len(cell.corners)))
    found, queue = {every}, [every]
    for face in queue:
        for k in range(cell.constraints):
            smaller = tuple(i for i in face if cell.tight[i] >> k & 1)
            if smaller and smaller not in found:
                found.add(smaller)
                queue.append(smaller)
    return [
        Cell(
            tuple(cell.corners[i] for i in face),
            tuple(cell.tight[i] for i in face),
            cell.constraints,
        )
        for face in queue
    ]


def volume(cell: Cell, coordinates: Sequence[int] | None = None) -> Fraction:
    """Of the cell in these parameters (all of them if omitted); 0 if it is flat there."""
    use = list(range(cell.parameters)) if coordinates is None else list(coordinates)
    points = [[point[i] for i in use] for point in cell.points()]
    total = Fraction(0)
    for simplex in _simplices(cell, frozenset(range(len(points)))):
        if len(simplex) == len(use) + 1:
            first, *rest = (points[i] for i in simplex)
            edges = [[a - b for a, b in zip(point, first, strict=True)] for point in rest]
            total += abs(determinant(edges)) / math.factorial(len(use))
    return total


def _simplices(cell: Cell, face: frozenset[int]) -> Iterator[list[int]]:
    """A triangulation: an apex over the facets that do not hold it, again and again."""
    apex = min(face)
    if len(face) == 1:
        yield [apex]
        return
    parts = {
        frozenset(i for i in face if cell.tight[i] >> k & 1) for k in range(cell.constraints)
    } - {face, frozenset()}
    for facet in parts:
        if apex not in facet and not any(facet < other for other in parts):
            yield from ([apex, *rest] for rest in _simplices(cell, facet))


# --- the network on a cell


def identity(p: int) -> Rows:
    """The parameters themselves."""
    return Rows([[int(i == j) for j in range(p + 1)] for i in range(p)], 0)


def pieces(
    network: ExactNetwork,
    cell: Cell,
    start: Rows | None = None,
    *,
    strata: bool = False,
    closed: bool = True,
) -> Iterator[Piece]:
    """The cells on which the network is affine.

    Args:
        start: the inputs as forms of the parameters; the parameters themselves if omitted.
        strata: every cell stands for its relative interior, walls and faces are cells of their own,
            so a step has its value at 0 there. Otherwise only cells of full dimension.
        closed: with strata, whether the faces of the cell belong to it.
    """
    begin = identity(cell.parameters) if start is None else start
    for face in faces(cell) if strata and closed else [cell]:
        yield from _descend(network, face, [begin], (), (), strata)


def _descend(
    network: ExactNetwork,
    cell: Cell,
    values: list[Rows],
    signs: tuple[int, ...],
    forms: tuple[Rows, ...],
    strata: bool,
) -> Iterator[Piece]:
    while len(values) <= len(network.activations):
        rows = _through(network.maps[len(values) - 1], values, cell.parameters)
        activation = network.activations[len(values) - 1]
        if activation.kind != "identity":
            forms = (*forms, rows)
            for part, own in _split(cell, rows, strata):
                further = [*values, _activated(rows, own, activation)]
                yield from _descend(network, part, further, (*signs, *own), forms, strata)
            return
        values = [*values, rows]
    yield Piece(cell, signs, forms, _through(network.maps[-1], values, cell.parameters))


def _split(cell: Cell, rows: Rows, strata: bool) -> Iterator[tuple[Cell, tuple[int, ...]]]:
    parts: list[tuple[Cell, tuple[int, ...]]] = [(cell, ())]
    for row in rows.entries:
        fresh = []
        for part, signs in parts:
            heights = Rows([row], 0)
            at = [heights.at(corner)[0] for corner in part.corners]
            if min(at) < 0 < max(at):
                below, on, above = cut(part, at)
                for side, sign in ((below, -1), (on, 0), (above, 1)):
                    if side is not None and (sign or strata):
                        fresh.append((side, (*signs, sign)))
            else:
                sign = 1 if max(at) > 0 else -1 if min(at) < 0 else 0
                fresh.append((part, (*signs, sign)))
        parts = fresh
    yield from parts


def _through(affine: _Map, values: Sequence[Rows], p: int) -> Rows:
    top = max((values[source].exponent for source in affine.terms), default=0)
    entries = [[0] * p + [b << top] for b in affine.bias]
    for source, matrix in affine.terms.items():
        shift = top - values[source].exponent
        below = values[source].entries
        for total, weights in zip(entries, matrix, strict=True):
            for weight, row in zip(weights, below, strict=True):
                if weight:
                    factor = weight << shift
                    for j, entry in enumerate(row):
                        total[j] += factor * entry
    return _shortened(entries, top + affine.exponent)


def _activated(rows: Rows, signs: Sequence[int], activation: Any) -> Rows:
    width = len(rows.entries[0])
    if activation.kind == "step":
        (at_zero, one), exponent = dyadic([activation.at_zero, 1.0])
        height = {1: one, 0: at_zero, -1: 0}
        return Rows([[0] * (width - 1) + [height[s]] for s in signs], exponent)
    slope = activation.slope if activation.kind == "leaky" else 0.0
    (below, above), exponent = dyadic([slope, 1.0])
    entries = [
        [(above if sign > 0 else below) * x for x in row]
        for row, sign in zip(rows.entries, signs, strict=True)
    ]
    return _shortened(entries, rows.exponent + exponent)


def _shortened(entries: Matrix, exponent: int) -> Rows:
    """The same numbers with common factors of two taken out."""
    union = 0
    for row in entries:
        for x in row:
            union |= abs(x)
    spare = min(exponent, (union & -union).bit_length() - 1) if union else exponent
    return Rows([[x >> spare for x in row] for row in entries], exponent - spare)

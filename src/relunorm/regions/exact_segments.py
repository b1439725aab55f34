"""A stretch of a segment through a network in whole numbers: what floats cannot decide.

On a piece every value is v(t) = c + t d. Floats are integers times powers of two, so c and d are,
too, and grow by the length of one weight a layer; places where units change are quotients of two of
them. Nothing is rounded but what is handed back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.dyadic import dyadic
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Activation, Affine, Network

#: Weights that may be looked at for one segment: about a second.
WORK = 1 << 20


class Stretch(NamedTuple):
    """Breakpoints of a stretch, patterns between them, outputs at them."""

    t: list[Fraction]
    positive: NDArray[np.bool_]
    values: Array


class _Forms(NamedTuple):
    """Values c + t d of one layer: whole numbers, to be multiplied by 2^exponent."""

    constant: list[int]
    slope: list[int]
    exponent: int

    def times(self, factors: Sequence[int], exponent: int) -> _Forms:
        """Every value times its factor 2^exponent."""
        pairs = [
            [f * x for f, x in zip(factors, part, strict=True)]
            for part in (self.constant, self.slope)
        ]
        return _Forms(pairs[0], pairs[1], self.exponent + exponent)

    def at(self, t: Fraction) -> list[int]:
        """The values at t up to a positive factor, which is the same for all of them."""
        p, q = t.numerator, t.denominator
        return [c * q + d * p for c, d in zip(self.constant, self.slope, strict=True)]

    def floats(self, t: Fraction) -> Vector:
        """The values at t, rounded once."""
        up = 1 << max(self.exponent, 0)
        down = t.denominator << max(-self.exponent, 0)
        return np.array([_float(n * up, down) for n in self.at(t)])


class _Piece(NamedTuple):
    start: Fraction
    end: Fraction
    values: list[_Forms]
    positive: list[bool]


class _Matrix(NamedTuple):
    """The entries of a matrix that are not 0, row by row, in whole numbers."""

    ends: list[int]
    columns: list[int]
    entries: list[int]
    exponent: int

    @classmethod
    def of(cls, matrix: Matrix) -> _Matrix:
        ends, columns, values = mx.csr_parts(matrix)
        whole = dyadic(values)
        return cls(ends.tolist(), columns.tolist(), whole.whole.tolist(), whole.exponent)

    def times(self, vector: list[int]) -> list[int]:
        terms = [w * vector[j] for w, j in zip(self.entries, self.columns, strict=True)]
        return [sum(terms[a:b]) for a, b in pairwise(self.ends)]


class _Map(NamedTuple):
    terms: dict[int, _Matrix]
    bias: list[int]
    exponent: int

    @classmethod
    def of(cls, affine: Affine) -> _Map:
        bias = dyadic(affine.bias)
        terms = {source: _Matrix.of(matrix) for source, matrix in affine.terms.items()}
        return cls(terms, bias.whole.tolist(), bias.exponent)

    def of_values(self, values: Sequence[_Forms]) -> _Forms:
        exponents = [m.exponent + values[source].exponent for source, m in self.terms.items()]
        least = min([self.exponent, *exponents])
        constant = [b << (self.exponent - least) for b in self.bias]
        slope = [0] * len(constant)
        for (source, matrix), exponent in zip(self.terms.items(), exponents, strict=True):
            forms, shift = values[source], exponent - least
            constant = _sum(constant, matrix.times(forms.constant), shift)
            slope = _sum(slope, matrix.times(forms.slope), shift)
        return _Forms(constant, slope, least)


class ExactSegment:
    """A network on the segment a + t (b - a), 0 <= t <= 1, without rounding.

    >>> net = Network.from_weights([[[1e60], [1e60]], [[1.0, -1.0]]], [[0.0, -1.0], [0.0]])
    >>> segment = ExactSegment(net, np.array([-1.0]), np.array([1.0]))
    >>> found = segment.follow(Fraction(0), Fraction(1))
    >>> [float(t) for t in found.t], found.values.ravel().tolist()
    ([0.0, 0.5, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0])
    """

    def __init__(self, network: Network, a: Vector, b: Vector, work: float = WORK) -> None:
        ends = dyadic(np.concatenate([a, b]))
        start, end = ends.whole[: len(a)].tolist(), ends.whole[len(a) :].tolist()
        way = [y - x for x, y in zip(start, end, strict=True)]
        self.segment = _Forms(start, way, ends.exponent)
        self.network = network
        self.maps: list[_Map] = []
        self.left = work

    def follow(self, start: Fraction, end: Fraction) -> Stretch | None:
        """The pieces between two places; None where that would be more work than is left."""
        if not self.maps:
            self.maps = [_Map.of(affine) for affine in self.network.maps]
        pieces = [_Piece(start, end, [self.segment], [])]
        for index, layer in enumerate(self.network.layers):
            self.left -= len(pieces) * layer.affine.nnz
            if self.left < 0:
                return None
            further: list[_Piece] = []
            for piece in pieces:
                forms = self.maps[index].of_values(piece.values)
                if layer.has_units:
                    further += _cut(piece, forms, layer.activation)
                else:
                    further.append(piece._replace(values=[*piece.values, forms]))
            pieces = further
        self.left -= len(pieces) * self.network.output.nnz
        if self.left < 0:
            return None
        outputs = [self.maps[-1].of_values(piece.values) for piece in pieces]
        values = [f.floats(piece.start) for piece, f in zip(pieces, outputs, strict=True)]
        positive = np.array([piece.positive for piece in pieces], dtype=bool)
        return Stretch(
            [start, *(piece.end for piece in pieces)],
            positive.reshape(len(pieces), -1),
            np.array([*values, outputs[-1].floats(end)]),
        )


def _cut(piece: _Piece, forms: _Forms, activation: Activation) -> list[_Piece]:
    """The parts of a piece on which no unit of a layer changes sign."""
    first, last = forms.at(piece.start), forms.at(piece.end)
    places = {
        unit: Fraction(-forms.constant[unit], forms.slope[unit])
        for unit, (x, y) in enumerate(zip(first, last, strict=True))
        if x < 0 < y or y < 0 < x
    }
    ends = [piece.start, *sorted(set(places.values())), piece.end]
    numerator, denominator = float(activation.slopes[0]).as_integer_ratio()
    found = []
    for start, end in pairwise(ends):
        positive = [
            x > 0 or y > 0 if unit not in places else (x > 0 if end <= places[unit] else y > 0)
            for unit, (x, y) in enumerate(zip(first, last, strict=True))
        ]
        factors = [denominator if on else numerator for on in positive]
        value = forms.times(factors, 1 - denominator.bit_length())
        found.append(_Piece(start, end, [*piece.values, value], piece.positive + positive))
    return found


def _sum(numbers: list[int], others: list[int], shift: int) -> list[int]:
    return [x + (y << shift) for x, y in zip(numbers, others, strict=True)]


def _float(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return math.copysign(math.inf, numerator)

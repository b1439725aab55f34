"""A stretch of a segment through a network in whole numbers: what floats cannot decide.

On a piece every value is v(t) = c + t d in whole numbers times a power of two (`exact_forms`), and
places where units change are quotients of two of them.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.dyadic import dyadic
from relunorm.matrix import Array, Vector
from relunorm.network import Activation, Network
from relunorm.regions.exact_forms import ExactMap, Forms, as_float

#: Weights that may be looked at for one segment: about a second.
WORK = 1 << 20


class Stretch(NamedTuple):
    """Breakpoints of a stretch, patterns between them, outputs at them."""

    t: list[Fraction]
    positive: NDArray[np.bool_]
    values: Array


class _Piece(NamedTuple):
    start: Fraction
    end: Fraction
    values: list[Forms]
    positive: list[bool]


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
        self.segment = Forms([start, way], ends.exponent)
        self.network = network
        self.maps: list[ExactMap] = []
        self.left = work

    def follow(self, start: Fraction, end: Fraction) -> Stretch | None:
        """The pieces between two places; None where that would be more work than is left."""
        if not self.maps:
            self.maps = [ExactMap.of(affine) for affine in self.network.maps]
        pieces = [_Piece(start, end, [self.segment], [])]
        for index, layer in enumerate(self.network.layers):
            self.left -= len(pieces) * layer.affine.nnz
            if self.left < 0:
                return None
            further: list[_Piece] = []
            for piece in pieces:
                forms = self.maps[index](piece.values)
                if layer.has_units:
                    further += _cut(piece, forms, layer.activation)
                else:
                    further.append(piece._replace(values=[*piece.values, forms]))
            pieces = further
        self.left -= len(pieces) * self.network.output.nnz
        if self.left < 0:
            return None
        outputs = [self.maps[-1](piece.values) for piece in pieces]
        values = [_floats(f, piece.start) for piece, f in zip(pieces, outputs, strict=True)]
        positive = np.array([piece.positive for piece in pieces], dtype=bool)
        return Stretch(
            [start, *(piece.end for piece in pieces)],
            positive.reshape(len(pieces), -1),
            np.array([*values, _floats(outputs[-1], end)]),
        )


def _cut(piece: _Piece, forms: Forms, activation: Activation) -> list[_Piece]:
    """The parts of a piece on which no unit of a layer changes sign."""
    first, last = _at(forms, piece.start), _at(forms, piece.end)
    places = {
        unit: Fraction(-forms.columns[0][unit], forms.columns[1][unit])
        for unit, (x, y) in enumerate(zip(first, last, strict=True))
        if x < 0 < y or y < 0 < x
    }
    ends = [piece.start, *sorted(set(places.values())), piece.end]
    found = []
    for start, end in pairwise(ends):
        positive = [
            x > 0 or y > 0 if unit not in places else (x > 0 if end <= places[unit] else y > 0)
            for unit, (x, y) in enumerate(zip(first, last, strict=True))
        ]
        value = forms.activated(positive, activation.slopes[0])
        found.append(_Piece(start, end, [*piece.values, value], piece.positive + positive))
    return found


def _at(forms: Forms, t: Fraction) -> list[int]:
    """c + t d up to a positive factor, which is the same for all of them."""
    p, q = t.numerator, t.denominator
    return [c * q + d * p for c, d in zip(*forms.columns, strict=True)]


def _floats(forms: Forms, t: Fraction) -> Vector:
    """c + t d, rounded once."""
    up, down = 1 << max(forms.exponent, 0), t.denominator << max(-forms.exponent, 0)
    return np.array([as_float(n * up, down) for n in _at(forms, t)])

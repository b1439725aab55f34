"""Affine forms of a network's values in whole numbers: nothing is rounded but what is handed back.

Floats are integers times powers of two, so under a pattern the forms of all values are, too; they
grow by the length of one weight a layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.dyadic import dyadic
from relunorm.matrix import Array, Matrix
from relunorm.network import Affine, Network


class Forms(NamedTuple):
    """Values c + sum of x_j d_j: the constants first, to be multiplied by 2^exponent."""

    columns: list[list[int]]
    exponent: int

    def times(self, factors: Sequence[int], exponent: int) -> Forms:
        """Every value times its factor 2^exponent."""
        columns = [[f * x for f, x in zip(factors, c, strict=True)] for c in self.columns]
        return Forms(columns, self.exponent + exponent)

    def activated(self, positive: Sequence[bool], slope: float) -> Forms:
        """Behind units of this slope on their negative side."""
        numerator, denominator = float(slope).as_integer_ratio()
        factors = [denominator if on else numerator for on in positive]
        return self.times(factors, 1 - denominator.bit_length())


class ExactMap(NamedTuple):
    """An affine map in whole numbers."""

    terms: dict[int, _Entries]
    bias: list[int]
    exponent: int

    @classmethod
    def of(cls, affine: Affine) -> ExactMap:
        """The map as it is."""
        bias = dyadic(affine.bias)
        terms = {source: _Entries.of(matrix) for source, matrix in affine.terms.items()}
        return cls(terms, bias.whole.tolist(), bias.exponent)

    def __call__(self, values: Sequence[Forms]) -> Forms:
        """The forms of the results, from those of all values so far."""
        exponents = [m.exponent + values[source].exponent for source, m in self.terms.items()]
        least = min([self.exponent, *exponents])
        columns = [[0] * len(self.bias) for _ in values[0].columns]
        columns[0] = [b << (self.exponent - least) for b in self.bias]
        for (source, matrix), exponent in zip(self.terms.items(), exponents, strict=True):
            shift = exponent - least
            for k, column in enumerate(values[source].columns):
                found = matrix.times(column)
                columns[k] = [x + (y << shift) for x, y in zip(columns[k], found, strict=True)]
        return Forms(columns, least)


class _Entries(NamedTuple):
    """The entries of a matrix that are not 0, row by row, in whole numbers."""

    ends: list[int]
    columns: list[int]
    entries: list[int]
    exponent: int

    @classmethod
    def of(cls, matrix: Matrix) -> _Entries:
        ends, columns, values = mx.csr_parts(matrix)
        whole = dyadic(values)
        return cls(ends.tolist(), columns.tolist(), whole.whole.tolist(), whole.exponent)

    def times(self, vector: list[int]) -> list[int]:
        terms = [w * vector[j] for w, j in zip(self.entries, self.columns, strict=True)]
        return [sum(terms[a:b]) for a, b in pairwise(self.ends)]


def exact_maps(network: Network, patterns: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The maps x -> A x + c that a network is under patterns, (n, outputs, d) and (n, outputs).

    >>> net = Network.from_weights([[[1e-200]], [[1e-200]], [[1e300]]])
    >>> exact_maps(net, np.array([[True, True]]))[0].ravel().tolist()
    [1e-100]
    """
    d = network.input_size
    maps = [ExactMap.of(affine) for affine in network.maps]
    identity = [[0] * d, *([int(i == j) for i in range(d)] for j in range(d))]
    found = np.empty((len(patterns), network.output_size, d + 1))
    for n, bits in enumerate(patterns.tolist()):
        values, done = [Forms(identity, 0)], 0
        for layer, affine in zip(network.layers, maps, strict=False):
            form = affine(values)
            if layer.has_units:
                own = bits[done : done + layer.width]
                form, done = form.activated(own, layer.activation.slopes[0]), done + layer.width
            values.append(form)
        output = maps[-1](values)
        up, down = 1 << max(output.exponent, 0), 1 << max(-output.exponent, 0)
        found[n] = [
            [as_float(x * up, down) for x in row] for row in zip(*output.columns, strict=True)
        ]
    return found[..., 1:], found[..., 0]


def as_float(numerator: int, denominator: int) -> float:
    """The nearest float; infinite beyond all of them."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf

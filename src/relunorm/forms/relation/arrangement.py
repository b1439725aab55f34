"""Equality that needs no tolerance: permutations and powers of two, applied exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.forms.removal.reduced import Reduced, drop_unobserved
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot, reading, rows, scaled
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Layer, Network


def same_arrangement(first: Network, second: Network) -> bool:
    """Whether two networks agree once units nobody reads are dropped, rows scaled and units sorted.

    Every step is exact, so True means the same function on all of space. Stops at the first layer
    that differs.
    """
    if first.digest == second.digest:
        return True
    if not np.array_equal(first.output.bias, second.output.bias):
        return False  # no arrangement changes it,
    if not np.array_equal(_mantissas(first.output), _mantissas(second.output)):
        return False  # nor these, up to their order
    sides = [_Arranging(network) for network in (first, second)]
    if sides[0].network.widths != sides[1].network.widths:
        return False
    try:
        for k in range(len(sides[0].network.layers)):
            first_layer, second_layer = (side.layer(k) for side in sides)
            if first_layer.activation != second_layer.activation:
                return False
            if not _same(first_layer.affine, second_layer.affine):
                return False
        return _same(*(side.incoming(side.network.output) for side in sides))
    except _Inexact:
        return False


class _Inexact(Exception):
    """A number left the range of float64, so that scaling cannot be undone."""


class _Arranging:
    """One network being put in order, layer by layer."""

    def __init__(self, network: Network):
        self.network = drop_unobserved(Reduced.whole(_without_zeros(network))).network
        self.rewriter = Rewriter(self.network)
        self.moves: dict[int, tuple[NDArray[np.intp], Vector]] = {}

    def layer(self, k: int) -> Layer:
        """Layer k with rows scaled by powers of two and sorted; rewrites what reads it."""
        layer = self.network.layers[k]
        affine = self.incoming(layer.affine)
        exponent, keys = _standard(affine)
        order = self._order(k, keys, exponent * (layer.activation.kind != "step"))
        standard = scaled(affine, np.ldexp(1.0, -exponent))
        if not _same(scaled(standard, np.ldexp(1.0, exponent)), affine):
            raise _Inexact
        new = rows(standard, order)
        value = self.rewriter.emit(new, layer.activation, "", [(k, int(i)) for i in order])
        targets = np.empty(affine.size, dtype=np.intp)
        targets[order] = np.arange(affine.size)
        worth = np.ldexp(1.0, exponent * (layer.activation.kind != "step"))
        zero = np.zeros(affine.size)
        self.rewriter.express(Affine({value: one_hot(targets, worth, affine.size)}, zero))
        self.moves[value] = targets, worth
        return self.rewriter.layers[-1]

    def _order(self, k: int, keys: Array, exponent: NDArray[np.intp]) -> NDArray[np.intp]:
        """Units sorted by their rows; equal rows by what reads them.

        How an entry is read is a sum over its readers of a mark of the weight and of the reader's
        own color. The weight is the one on the scaled unit; as the reader's own scale is not yet
        known, it counts relative to the largest one beside it, but for the output, which has none.
        """
        order = np.lexsort(keys.T[::-1])
        again = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        if not again.any():
            return order
        read = np.zeros(len(order), dtype=np.uint64)
        for number, affine in enumerate(self.network.maps):
            if k + 1 not in affine.terms:
                continue
            rows, columns, values = mx.triples(affine.terms[k + 1])
            power = np.frexp(values)[1] + exponent[columns]
            if number < len(self.network.layers):
                most = np.full(affine.size, -(1 << 20))
                np.maximum.at(most, rows, power)
                power = power - most[rows]
            marks = _mark(_bits(values), power.astype(np.int64).view(np.uint64))
            np.add.at(read, columns, _mark(marks, self._colors[number][rows]))
        group = np.concatenate([[0], np.cumsum(~again)])
        return order[np.lexsort([read[order], group])]

    @cached_property
    def _colors(self) -> list[NDArray[np.uint64]]:
        """Per map a number for every row that tells what it reads and how it is read.

        Neither permuting units nor scaling them by powers of two changes it: signs and mantissas
        of the weights and the colors of all readers, summed over what has no order. Equal colors
        of rows that differ cost an answer, never a wrong one: `same_arrangement` compares every
        weight.
        """
        network = self.network
        sums = [np.zeros(size, dtype=np.uint64) for size in network.widths[:-1]]
        colors: list[NDArray[np.uint64]] = []
        for k, affine in reversed(list(enumerate(network.maps))):
            if k == len(network.layers):
                own = _mark(np.arange(affine.size, dtype=np.uint64), _FIRST)
            else:
                own = _mark(_bits(affine.bias), sums[k + 1])
                for source, matrix in affine.terms.items():
                    rows, _, values = mx.triples(matrix)
                    marks = np.zeros(affine.size, dtype=np.uint64)
                    np.add.at(marks, rows, _mark(_bits(values), _FIRST + np.uint64(source)))
                    own = _mark(own, marks)
            for source, matrix in affine.terms.items():
                rows, columns, values = mx.triples(matrix)
                np.add.at(sums[source], columns, _mark(_bits(values), own[rows]))
            colors.append(own)
        return colors[::-1]

    def incoming(self, affine: Affine) -> Affine:
        """A map in terms of the arranged values; raises unless that can be undone bit for bit."""
        try:
            new = self.rewriter.incoming(affine)
        except InvalidNetworkError:
            raise _Inexact from None
        back = {
            k: mx.scale_columns(mx.as_matrix(m[:, self.moves[k][0]]), 1 / self.moves[k][1])
            if k in self.moves
            else m
            for k, m in new.terms.items()
        }
        if not _same(Affine(back, new.bias), affine):
            raise _Inexact
        return new


def _without_zeros(network: Network) -> Network:
    """The network that does not read entries which are 0 everywhere: no row, no bias, no step.

    Their scale cannot be told, and a weight times 0 is 0.
    """
    worth: dict[int, Vector] = {}
    layers = []
    for k, layer in enumerate(network.layers):
        affine = reading(layer.affine, worth)
        layers.append(replace(layer, affine=affine))
        empty = affine.bias == 0
        for matrix in affine.terms.values():
            empty &= np.diff(mx.csr_parts(matrix)[0]) == 0
        if layer.activation.kind != "step" and empty.any():
            worth[k + 1] = np.where(empty, 0.0, 1.0)
    return (
        network.replace(layers=layers, output=reading(network.output, worth)) if worth else network
    )


_FIRST = np.uint64(0x9E3779B97F4A7C15)


def _bits(values: Vector) -> NDArray[np.uint64]:
    """Sign and mantissa of every number."""
    return (np.frexp(values)[0] + 0.0).view(np.uint64)


def _mark(first: NDArray[np.uint64], second: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """A number for every pair, well spread (the mixing steps of splitmix64)."""
    x = (first + _FIRST) ^ (second * np.uint64(0xD6E8FEB86659FD93))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mantissas(affine: Affine) -> Vector:
    """Sizes of the weights but for a power of two, sorted; zeros left out."""
    every = np.concatenate([np.zeros(0), *(mx.entries(m).ravel() for m in affine.terms.values())])
    return np.sort(np.abs(np.frexp(every[every != 0])[0]))


def _same(first: Affine, second: Affine) -> bool:
    sources = set(first.terms) | set(second.terms)
    shape = {k: m.shape for terms in (first.terms, second.terms) for k, m in terms.items()}
    return bool(np.array_equal(first.bias, second.bias)) and all(
        mx.same(first.terms.get(k, np.zeros(shape[k])), second.terms.get(k, np.zeros(shape[k])))
        for k in sources
    )


def _standard(affine: Affine) -> tuple[NDArray[np.intp], Array]:
    """Binary exponents of the rows' largest entries, and the scaled rows with their biases."""
    table = np.column_stack([dense_rows(affine), affine.bias])
    largest = np.abs(table).max(axis=1)
    exponent = np.where(largest > 0, np.frexp(largest)[1], 0).clip(-500, 500)
    return exponent, np.ldexp(table, -exponent[:, None]) + 0.0

"""Equality that needs no tolerance: permutations and powers of two, applied exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.forms.removal import Reduced
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot, rows, scaled
from relunorm.forms.unobserved import drop_unobserved
from relunorm.matrix import Vector
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
        self.network = drop_unobserved(Reduced.whole(network)).network
        self.rewriter = Rewriter(self.network)
        self.moves: dict[int, tuple[NDArray[np.intp], Vector]] = {}

    def layer(self, k: int) -> Layer:
        """Layer k with rows scaled by powers of two and sorted; rewrites what reads it."""
        layer = self.network.layers[k]
        affine = self.incoming(layer.affine)
        exponent, keys = _standard(affine)
        order = self._order(k, keys)
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

    def _order(self, k: int, keys: NDArray[np.float64]) -> NDArray[np.intp]:
        """Units sorted by their rows; equal rows by the sizes of the weights that read them.

        Those are compared but for powers of two and for their order, which other arrangements of
        later layers change.
        """
        order = np.lexsort(keys.T[::-1])
        again = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        if not again.any():
            return order
        group = np.concatenate([[0], np.cumsum(~again)])
        many = np.isin(group, group[1:][again])
        read = [
            np.abs(np.frexp(mx.dense(mx.as_matrix(affine.terms[k + 1][:, order[many]])))[0])
            for affine in self.network.maps
            if k + 1 in affine.terms
        ]
        sizes = np.sort(np.concatenate([np.zeros((1, many.sum())), *read]), axis=0)
        ranks = np.lexsort([*sizes[::-1], group[many]])
        order[many] = order[many][ranks]
        return order

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


def _standard(affine: Affine) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Binary exponents of the rows' largest entries, and the scaled rows with their biases."""
    table = np.column_stack([dense_rows(affine), affine.bias])
    largest = np.abs(table).max(axis=1)
    exponent = np.where(largest > 0, np.frexp(largest)[1], 0).clip(-500, 500)
    return exponent, np.ldexp(table, -exponent[:, None]) + 0.0

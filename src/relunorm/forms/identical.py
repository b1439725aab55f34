"""Equality that needs no tolerance: permutations and powers of two, applied exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.forms.removal import Reduced
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot, rows, scaled
from relunorm.forms.unobserved import drop_unobserved
from relunorm.network import Affine, Layer, Network


def same_arrangement(first: Network, second: Network) -> bool:
    """Whether two networks agree once units nobody reads are dropped, rows scaled and units sorted.

    Every step is exact, so True means the same function on all of space. Stops at the first layer
    that differs.
    """
    sides = [_Arranging(network) for network in (first, second)]
    if sides[0].network.widths != sides[1].network.widths:
        return False
    for k in range(len(sides[0].network.layers)):
        layers = [side.layer(k) for side in sides]
        if layers[0].activation != layers[1].activation or not _same(*(x.affine for x in layers)):
            return False
    return _same(*(side.rewriter.incoming(side.network.output) for side in sides))


class _Arranging:
    """One network being put in order, layer by layer."""

    def __init__(self, network: Network):
        self.network = drop_unobserved(Reduced.whole(network)).network
        self.rewriter = Rewriter(self.network)

    def layer(self, k: int) -> Layer:
        """Layer k with rows scaled by powers of two and sorted; rewrites what reads it."""
        layer = self.network.layers[k]
        affine = self.rewriter.incoming(layer.affine)
        exponent, order = _standard(affine)
        new = rows(scaled(affine, np.ldexp(1.0, -exponent)), order)
        value = self.rewriter.emit(new, layer.activation, "", [(k, int(i)) for i in order])
        targets = np.empty(affine.size, dtype=np.intp)
        targets[order] = np.arange(affine.size)
        worth = np.ldexp(1.0, exponent * (layer.activation.kind != "step"))
        zero = np.zeros(affine.size)
        self.rewriter.express(Affine({value: one_hot(targets, worth, affine.size)}, zero))
        return self.rewriter.layers[-1]


def _same(first: Affine, second: Affine) -> bool:
    sources = set(first.terms) | set(second.terms)
    shape = {k: m.shape for terms in (first.terms, second.terms) for k, m in terms.items()}
    return bool(np.array_equal(first.bias, second.bias)) and all(
        mx.same(first.terms.get(k, np.zeros(shape[k])), second.terms.get(k, np.zeros(shape[k])))
        for k in sources
    )


def _standard(affine: Affine) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Binary exponents of the rows' largest entries, and the order of the scaled rows."""
    table = np.column_stack([dense_rows(affine), affine.bias])
    largest = np.abs(table).max(axis=1)
    exponent = np.where(largest > 0, np.frexp(largest)[1], 0).clip(-500, 500)
    keys = np.ldexp(table, -exponent[:, None]) + 0.0
    return exponent, np.lexsort(keys.T[::-1])

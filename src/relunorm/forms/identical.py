"""Equality that needs no tolerance: permutations and powers of two, applied exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.forms.removal import Reduced
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot, rows, scaled
from relunorm.forms.unobserved import drop_unobserved
from relunorm.network import Affine, Network


def arranged(network: Network) -> Network:
    """Units nobody reads dropped, rows scaled by powers of two, units sorted: no rounding at all.

    Two networks with the same arrangement are the same function, on all of space. Exact.
    """
    network = drop_unobserved(Reduced.whole(network)).network
    rewriter = Rewriter(network)
    for k, layer in enumerate(network.layers):
        affine = rewriter.incoming(layer.affine)
        exponent, order = _standard(affine)
        new = rows(scaled(affine, np.ldexp(1.0, -exponent)), order)
        value = rewriter.emit(new, layer.activation, "", [(k, int(i)) for i in order])
        targets = np.empty(affine.size, dtype=np.intp)
        targets[order] = np.arange(affine.size)
        worth = np.ldexp(1.0, exponent * (layer.activation.kind != "step"))
        zero = np.zeros(affine.size)
        rewriter.express(Affine({value: one_hot(targets, worth, affine.size)}, zero))
    return rewriter.finish()


def _standard(affine: Affine) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Binary exponents of the rows' largest entries, and the order of the scaled rows."""
    table = np.column_stack([dense_rows(affine), affine.bias])
    largest = np.abs(table).max(axis=1)
    exponent = np.where(largest > 0, np.frexp(largest)[1], 0).clip(-500, 500)
    keys = np.ldexp(table, -exponent[:, None]) + 0.0
    return exponent, np.lexsort(keys.T[::-1])

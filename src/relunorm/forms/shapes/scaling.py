"""Rescaling units, relu(z) = s relu(z / s) for s > 0: what most forms have in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relunorm.forms.rewrite import Rewriter, divided, one_hot, row_norms, rows
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

#: A norm this close to a power of two is taken as one, so that forms are idempotent.
SNAP = 1e-14

Measure = Callable[[int, Affine], Vector]


def rescaled(network: Network, measure: Measure, *, fold_zero: bool) -> Network:
    """Divide every unit's row and bias by ``measure(layer, rows)``, and let its readers make up.

    A step unit keeps its value. Seed 001 (2.4) fails for the step at alpha = 0, see docs/errata.md:
    only positive factors are used.

    Args:
        measure: positive factors from the layer's index and its rows as they are by then.
        fold_zero: whether units with a zero row become constants in the next bias.
    """
    rewriter = Rewriter(network)
    for k, layer in enumerate(network.layers):
        affine = rewriter.incoming(layer.affine)
        size = affine.size
        empty = (row_norms(affine, 1) == 0) & fold_zero
        kept = np.flatnonzero(~empty)
        constant = np.where(empty, layer.activation.apply_(affine.bias.copy()), 0.0)
        if not len(kept):
            rewriter.express(Affine({}, constant))
            continue
        part = rows(affine, kept)
        factor = measure(k, part)
        value = rewriter.emit(
            divided(part, factor),
            layer.activation,
            layer.name,
            [(k, int(i)) for i in kept],
            layer.shape if len(kept) == size else (),
        )
        targets, worth = np.full(size, -1, dtype=np.intp), np.ones(size)
        targets[kept] = np.arange(len(kept))
        if layer.activation.kind != "step":
            worth[kept] = factor
        rewriter.express(Affine({value: one_hot(targets, worth, len(kept))}, constant))
    return rewriter.finish()


def norms(affine: Affine, order: int) -> Vector:
    """Row norms to divide by: 1 for a zero row, snapped to powers of two (`snapped`)."""
    size = row_norms(affine, order)
    return snapped(np.where(size > 0, size, 1.0))


def snapped(size: Vector) -> Vector:
    """Numbers within 1e-14 (relative) of a power of two replaced by it."""
    with np.errstate(over="ignore", invalid="ignore"):  # the power above the largest float
        power = 2.0 ** np.round(np.log2(size))
        return np.where(np.abs(size / power - 1) <= SNAP, power, size)

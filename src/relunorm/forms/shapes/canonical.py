"""Form ``canonical``: one standard network for each function, as far as that can be had.

Minimal first, then rows of l1 norm 1, then units sorted by their rows, layer by layer, so that each
layer reads the layers below in their final order. Sums are taken in doubled precision, so the
result does not depend on how units were ordered, split or padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.domain.reach import Reach
from relunorm.forms import accurate
from relunorm.forms.outward import Range
from relunorm.forms.removal.linear_units import nothing_known
from relunorm.forms.removal.reduced import Architecture, Reduced, Rules, Straight
from relunorm.forms.removal.sweeps import remove
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot
from relunorm.forms.shapes.unit import snapped
from relunorm.matrix import Vector
from relunorm.network import Affine, Network


def canonical(
    network: Network,
    straight: Straight,
    ranges: Sequence[Range],
    reach: Reach | None,
    *,
    architecture: Architecture = "any",
    digits: int | None = None,
    clock: Clock = NO_LIMIT,
) -> Reduced:
    """The canonical network: equal networks are equal functions; more the shallower.

    - One hidden layer: f = A x + c + sum over the hyperplanes H that cross the domain of
      gamma_H relu(n_H.x + beta_H), every n_H on the standard side. Complete: equal functions have
      equal forms up to rounding (`exact.shallow_form` has none).
    - Deeper: sound. Copies that were permuted, split, padded with dead, constant or unobserved
      units, or rescaled by powers of two agree bit for bit.

    Args:
        digits: sort by rows rounded to this many digits, so that rounding noise in an early column
            does not decide the order; sums that are rounding noise of their terms count as 0.
        clock: when to give up, with a `TimeLimitError`.
    """
    rules = Rules(
        architecture=architecture,
        fold_all=True,
        product=accurate.product if digits is None else accurate.tidy_product,
        arrange=lambda affine: arrangement(affine, digits),
        clock=clock,
    )
    reduced = remove(network, straight, ranges, reach, rules)
    if architecture == "keep" or len(reduced.network.layers) != 1:
        return reduced
    return _oriented(reduced, replace(rules, orient=True))


def _oriented(reduced: Reduced, rules: Rules) -> Reduced:
    """A shallow canonical network with every unit on the standard side."""
    network = reduced.network
    ranges = [Range.endless(layer.width) for layer in network.layers]
    turned = remove(network, nothing_known(network), ranges, None, rules)
    origins = [
        [reduced.origins[label[0]][label[1]] if label else None for label in labels]
        for labels in turned.origins
    ]
    gone = [reduced.origins[r.layer][r.unit] for r in turned.removed]
    removed = [
        replace(r, layer=origin[0], unit=origin[1])
        for r, origin in zip(turned.removed, gone, strict=True)
        if origin is not None
    ]
    return Reduced(turned.network, origins, [*reduced.removed, *removed])


def arrangement(affine: Affine, digits: int | None = None) -> tuple[Vector, NDArray[np.intp]]:
    """The l1 norms of the rows and the order of the units by scaled row, then bias."""
    table = dense_rows(affine)
    size = accurate.row_sums(np.abs(table))
    factor = snapped(np.where(size > 0, size, 1.0))
    keys = np.column_stack([table, affine.bias]) / factor[:, None] + 0.0
    if digits is not None:
        keys = np.round(keys, digits) + 0.0
    return factor, np.lexsort(keys.T[::-1])


def without_stages(network: Network, clock: Clock = NO_LIMIT) -> Network:
    """`Network.folded` in doubled precision: the same bits for every order of what is summed."""
    if all(layer.has_units for layer in network.layers):
        return network
    rewriter = Rewriter(network, partial(accurate.product, clock=clock))
    for k, layer in enumerate(network.layers):
        affine = rewriter.incoming(layer.affine)
        if layer.has_units:
            _keep(rewriter, affine, k)
        else:
            rewriter.express(affine)
    return rewriter.finish()


def _keep(rewriter: Rewriter, affine: Affine, k: int) -> None:
    """Emit a layer with all its units."""
    layer = rewriter.network.layers[k]
    labels = [(k, i) for i in range(layer.width)]
    value = rewriter.emit(affine, layer.activation, layer.name, labels)
    whole = one_hot(np.arange(layer.width), np.ones(layer.width), layer.width)
    rewriter.express(Affine({value: whole}, np.zeros(layer.width)))


def pin_inputs(network: Network, domain: Domain | None) -> Network:
    """Fold coordinates that a box holds fixed into the biases, so that they carry no weight."""
    box = None if domain is None else domain.as_box
    if box is None or (box.lo < box.hi).all():
        return network
    free = box.lo < box.hi
    rewriter = Rewriter(network, accurate.product)
    d = network.input_size
    rewriter.expressed[0] = Affine(
        {0: one_hot(np.arange(d), free.astype(float), d)}, np.where(free, 0.0, box.lo)
    )
    for k, layer in enumerate(network.layers):
        _keep(rewriter, rewriter.incoming(layer.affine), k)
    return rewriter.finish()

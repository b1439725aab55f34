"""Form ``canonical``: one standard network for each function, as far as that can be had.

Minimal first, then rows of l1 norm 1, then units sorted by their rows, layer by layer, so that each
layer reads the layers below in their final order. Sums are taken in doubled precision, so the
result does not depend on how units were ordered, split or padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range
from relunorm.forms.removal.reduced import Architecture, Reduced, Rules, Straight, nothing_known
from relunorm.forms.removal.sweeps import remove
from relunorm.forms.rewrite import Rewriter, dense_rows, one_hot
from relunorm.forms.shapes.rescaling import snapped
from relunorm.matrix import Array, Matrix, Vector
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
        product=product if digits is None else tidy_product,
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
    size = row_sums(np.abs(table))
    factor = snapped(np.where(size > 0, size, 1.0))
    keys = np.column_stack([table, affine.bias]) / factor[:, None] + 0.0
    if digits is not None:
        keys = np.round(keys, digits) + 0.0
    return factor, np.lexsort(keys.T[::-1])


def without_stages(network: Network, clock: Clock = NO_LIMIT) -> Network:
    """`Network.folded` in doubled precision: the same bits for every order of what is summed."""
    if all(layer.has_units for layer in network.layers):
        return network
    rewriter = Rewriter(network, partial(product, clock=clock))
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
    size = layer.width
    rewriter.emit(affine, layer.activation, layer.name, [(k, i) for i in range(size)])
    rewriter.recover(np.arange(size), np.ones(size), np.zeros(size))


def pin_inputs(network: Network, domain: Domain | None) -> Network:
    """Fold coordinates that a box holds fixed into the biases, so that they carry no weight."""
    box = None if domain is None else domain.as_box
    if box is None or (box.lo < box.hi).all():
        return network
    free = box.lo < box.hi
    rewriter = Rewriter(network, product)
    d = network.input_size
    rewriter.expressed[0] = Affine(
        {0: one_hot(np.arange(d), free.astype(float), d)}, np.where(free, 0.0, box.lo)
    )
    for k, layer in enumerate(network.layers):
        _keep(rewriter, rewriter.incoming(layer.affine), k)
    return rewriter.finish()


#: A sum below this share of what was summed counts as 0 where parameters are rounded anyway.
NOISE = 2.0**-46

#: Entries of the rows of both factors that are worked on at a time.
BLOCK = 1 << 22

_SPLIT = 134217729.0  # 2^27 + 1


def product(left: Matrix, right: Matrix, clock: Clock = NO_LIMIT) -> Matrix:
    """``left @ right`` in doubled precision, rounded once, whatever the order of summation.

    Every product is split into its rounded value and its error, every sum likewise, and the errors
    are added up beside the sum (Ogita, Rump and Oishi, Accurate sum and dot product, 2005,
    Algorithm 5.3). The result is the exact sum rounded to float64 unless it lies within about
    2^-104 (relative to the sum of magnitudes) of a rounding boundary, so permuting, splitting or
    padding the summed units leaves it bit for bit the same. Only elementwise operations are used,
    never a BLAS call, whose rounding depends on where a row sits in the matrix.

    Costs about twenty elementwise operations per scalar product; meant for matrices of a few
    hundred rows. Raises `TimeLimitError` when the clock runs out.

    >>> product(np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1)))
    array([[1.]])
    """
    if mx.is_identity(right):
        return left
    b: Any = sp.csr_array(right)  # scipy's stubs lack shapes and dtypes
    step = max(1, BLOCK // max(1, sum(b.shape)))
    blocks = [_block(left[k : k + step], b, clock) for k in range(0, left.shape[0], step)]
    if sp.issparse(right):
        size = left.shape[0] * b.shape[1]
        if sum(map(np.count_nonzero, blocks)) <= mx.DENSE_ABOVE * size:
            return mx.as_matrix(sp.vstack([sp.csr_array(block) for block in blocks], "csr"))
    return np.concatenate(blocks)


def _block(left: Matrix, b: Any, clock: Clock) -> Array:
    """`product` for some rows, dense."""
    a = mx.dense(left)
    high = np.zeros((a.shape[0], b.shape[1]))
    low = np.zeros_like(high)
    for turn, k in enumerate(np.flatnonzero(a.any(axis=0)).tolist()):
        if turn % 16 == 0:
            clock.check()
        span = slice(b.indptr[k], b.indptr[k + 1])
        columns, entries = b.indices[span], b.data[span]
        if not len(columns):
            continue
        active = np.flatnonzero(a[:, k])
        where = np.ix_(active, columns)
        term, term_error = _two_product(a[active, k][:, None], entries[None, :])
        total, sum_error = _two_sum(high[where], term)
        high[where] = total
        low[where] += term_error + sum_error
    return high + low


def tidy_product(left: Matrix, right: Matrix) -> Matrix:
    """`product` with entries set to 0 that are rounding noise of the numbers they were summed from.

    What copies rescaled in floating point leave of a sum that is 0 in the original.

    >>> tidy_product(np.array([[0.1, 0.3, -0.1 - 1e-17 - 0.3]]), np.ones((3, 1)))
    array([[0.]])
    """
    result = product(left, right)
    size = np.abs(mx.dense(left)) @ np.abs(mx.dense(right))
    noise = np.abs(mx.dense(result)) <= NOISE * size
    if sp.issparse(result):
        return mx.as_matrix(sp.csr_array(np.where(noise, 0.0, mx.dense(result))))
    return np.where(noise, 0.0, result)


def row_sums(matrix: Array) -> Vector:
    """The sum of every row in doubled precision, rounded once."""
    return mx.dense(product(matrix, np.ones((matrix.shape[1], 1)))).ravel()


def _two_sum(a: Array, b: Array) -> tuple[NDArray, NDArray]:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _two_product(a: Array, b: Array) -> tuple[NDArray, NDArray]:
    value = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = a_low * b_low - (((value - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return value, error


def _halves(a: Array) -> tuple[NDArray, NDArray]:
    spread = _SPLIT * a
    high = spread - (spread - a)
    return high, a - high

"""Rescaling units, relu(z) = s relu(z / s) for s > 0, and the forms that do nothing else.

``unit``: rows of Euclidean norm 1, seed 001 (2.7), (2.8) and (4.3). ``atoms``: first rows and last
columns of norm 1, as seed 003, Theorem 6 asks. ``signed``: outgoing weights of the last hidden
layer in {-1, 0, +1}, seed 000. ``pow2``: every scale a power of two, so that no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.forms.removal.reduced import Reduced, drop_unobserved
from relunorm.forms.rewrite import (
    Rewriter,
    check_scaling,
    divided,
    reading,
    row_norms,
    rows,
    scaled,
    stacked,
)
from relunorm.matrix import Matrix, Vector
from relunorm.network import RELU, Activation, Affine, Layer, Network

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
        empty = (row_norms(affine, 1) == 0) & fold_zero
        kept = np.flatnonzero(~empty)
        constant = np.where(empty, layer.activation.apply_(affine.bias.copy()), 0.0)
        if not len(kept):
            rewriter.express(Affine({}, constant))
            continue
        part = rows(affine, kept)
        factor = measure(k, part)
        rewriter.emit(
            divided(part, factor),
            layer.activation,
            layer.name,
            [(k, int(i)) for i in kept],
            layer.shape if len(kept) == affine.size else (),
        )
        rewriter.recover(kept, factor, constant)
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


def unit(network: Network, *, pure: bool = False) -> Network:
    """Give every hidden row Euclidean norm 1.

    ``w -> w / |w|, b -> b / |w|``, outgoing weights times ``|w|`` (Prop. 2.1, eq. 4.3). Units with
    a zero row are constants and go into the next bias (Cor. 2.2). Exact up to rounding, any depth.

    Args:
        pure: no output bias (2.7): the constant c becomes c L / alpha through (2.6), four more
            units in the last hidden layer, or two through (2.5) for a step whose value at 0 is 1/2.

    >>> net = unit(Network.from_weights([[[3.0, 4.0]], [[1.0]]], [[5.0], [0.0]]))
    >>> net.layers[0].affine.terms[0].tolist(), net.output.terms[1].tolist()
    ([[0.6, 0.8]], [[5.0]])
    """
    result = rescaled(network, lambda _, affine: norms(affine, 2), fold_zero=True)
    return without_output_bias(result) if pure and result.output.bias.any() else result


def without_output_bias(network: Network) -> Network:
    """The output bias as a combination of units of the last hidden layer, eqs. (2.5) and (2.6)."""
    source, width = read_by_last(network)
    activation = network.layers[-1].activation if network.layers else RELU
    sign, bias, weight = _constant_one(activation)
    direction = np.zeros((len(sign), width))
    direction[:, 0] = sign
    extra = Affine({source: direction}, bias)
    return with_units(network, extra, np.outer(network.output.bias, weight), network.output.terms)


def read_by_last(network: Network) -> tuple[int, int]:
    """A value that the last hidden layer reads, and its size; the input where there is none."""
    terms = network.layers[-1].affine.terms if network.layers else {}
    source = next(iter(terms), 0)
    return source, terms[source].shape[1] if terms else network.input_size


def with_units(
    network: Network, extra: Affine, weights: np.ndarray, terms: Mapping[int, Matrix]
) -> Network:
    """More units in the last hidden layer, or in a first one, and no output bias.

    Args:
        extra, weights: their rows, and the output's weights on them.
        terms: what else the output reads; what it reads of the last hidden layer stays.
    """
    last, layer = len(network.layers), Layer(extra, RELU)
    if last:
        old = network.layers[-1]
        layer = Layer(stacked([old.affine, extra]), old.activation, old.name)
        before = network.output.terms.get(last, np.zeros((network.output_size, old.width)))
        weights = np.hstack([mx.dense(before), weights])
    output = Affine({**terms, max(last, 1): weights}, np.zeros(network.output_size))
    return network.replace(layers=[*network.layers[:-1], layer], output=output)


def _constant_one(activation: Activation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signs, biases and weights of units on one direction that sum to 1 everywhere."""
    if activation.kind == "step":
        if activation.at_zero != 0.5:
            raise InvalidNetworkError(
                f"the step has value {activation.at_zero:g} at 0, so step(z) + step(-z) is not 1 "
                "there and seed 001 (2.5) does not hold; use pure=False to keep the output bias"
            )
        return np.array([1.0, -1.0]), np.zeros(2), np.ones(2)
    whole = 1.0 + activation.slopes[0]  # L(x; 1) of (2.6), for a leaky unit 1 + slope
    if whole == 0:
        raise InvalidNetworkError(
            "with slope -1 the combination (2.6) is 0, so no constant can be made of it; use "
            "pure=False to keep the output bias"
        )
    sign = np.array([1.0, 1.0, -1.0, -1.0])
    bias = np.array([0.5, -0.5, 0.5, -0.5])
    return sign, bias, np.array([1.0, -1.0, 1.0, -1.0]) / whole


def atoms(network: Network) -> Network:
    """Rows of W_1 and columns of W_L of Euclidean norm 1.

    The first hidden layer is scaled by its rows, the last by what the output reads from it, so two
    hidden layers are needed. Units nobody reads are dropped (a zero column has no direction), units
    with a zero row become constants. Exact up to rounding.
    """
    first = rescaled(network, _first_rows, fold_zero=True)
    network = drop_unobserved(Reduced.whole(first)).network
    count = len(network.layers)
    if count < 2:
        raise InvalidNetworkError(
            f"{network!r}: scaling can give unit rows and unit columns only with two hidden layers "
            f"that reach the output, found {count}. Use the form unit or signed"
        )
    if network.layers[-1].activation.kind == "step":
        raise InvalidNetworkError(
            "a step unit does not grow with its row, so its outgoing column cannot be normalized; "
            "the form atoms needs relu or leaky units in the last hidden layer"
        )
    columns = mx.dense(network.output.terms[count])
    top = np.abs(columns).max(axis=0)  # squares of what is smaller could be 0
    length = snapped(top * np.linalg.norm(columns / top, axis=0))
    return rescaled(
        network,
        lambda k, affine: 1 / length if k == count - 1 else np.ones(affine.size),
        fold_zero=False,
    )


def _first_rows(k: int, affine: Affine) -> Vector:
    return norms(affine, 2) if k == 0 else np.ones(affine.size)


def signed(network: Network, *, split: bool = False) -> Network:
    """Move the size of the outgoing weights of the last hidden layer into its rows.

    For a scalar output (Lemma 1, corrected: the printed construction divides by |v_i|, see
    docs/errata.md)

        W'_i = |v_i| W_i,   b'_i = |v_i| b_i,   v'_i = sign(v_i).

    For several outputs the outgoing column of every unit gets max-norm 1. Units with v_i = 0 stay
    as they are. Exact up to rounding; not unique (units can be permuted, split, and more).

    Args:
        split: weights in {-1, 0, +1} for several outputs too: one copy of the unit per distinct
            non-zero magnitude in its column.

    >>> net = signed(Network.from_weights([[[1.0], [1.0]], [[-2.0, 0.5]]], [[1.0, 0.0], [3.0]]))
    >>> net.output.terms[1].tolist(), net.layers[0].affine.bias.tolist()
    ([[-1.0, 1.0]], [2.0, 0.0])
    """
    last = len(network.layers)
    if not last:
        return network
    layer = network.layers[-1]
    if layer.activation.kind == "step":
        raise InvalidNetworkError(
            "a step unit does not grow with its row, so its outgoing weight cannot be moved into "
            "it; the signed form needs relu or leaky units"
        )
    if last not in network.output.terms:
        return network
    columns = mx.dense(network.output.terms[last])
    if split:
        source, factor, columns = _split(columns)
    else:
        source, factor = np.arange(layer.width), np.abs(columns).max(axis=0)
        factor = np.where(factor > 0, factor, 1.0)
        columns = columns / factor  # x / x is exactly 1
    old = rows(layer.affine, source)
    with np.errstate(over="ignore"):
        grown = scaled(old, factor)
    check_scaling(old, grown, "the last hidden layer")
    new = Layer(grown, layer.activation, layer.name)
    output = Affine({**network.output.terms, last: columns}, network.output.bias)
    return network.replace(layers=[*network.layers[:-1], new], output=output)


def _split(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One copy per distinct magnitude: which unit it copies, its factor, its signs."""
    source, factor, signs = [], [], []
    for i, column in enumerate(columns.T):
        sizes = np.unique(np.abs(column[column != 0]))
        for size in sizes if len(sizes) else [0.0]:
            source.append(i)
            factor.append(size if size else 1.0)
            signs.append(np.where(np.abs(column) == size, np.sign(column), 0.0))
    return np.array(source), np.array(factor), np.array(signs).T


#: Binary exponents a scaled weight may have: the normal numbers of float32.
NORMAL = (-126, 127)

#: Factors beyond 2 to this are not used: their inverses would overflow.
LARGEST = 1000


def pow2(network: Network) -> Network:
    """Divide every hidden row by the power of two that brings its largest entry into [1/2, 1).

    Multiplying by a power of two is exact in binary floating point, and every matrix is stored as
    it was (a dense product sums in another order than a sparse one), so every output has the same
    bits as before, in float64 and in float32 alike, as long as no number on the way leaves the
    normal range. A unit whose weights, or those of whose readers, would leave that of float32 is
    left as it is.

    >>> net = pow2(Network.from_weights([[[3.0]], [[1.0]]], [[5.0], [0.0]]))
    >>> net.layers[0].affine.terms[0].item(), net.output.terms[1].item()
    (0.75, 4.0)
    """
    worth: dict[int, Vector] = {}
    layers = []
    for k, layer in enumerate(network.layers):
        affine = reading(layer.affine, worth)
        if layer.has_units:  # a linear stage has none; scaling it would change nothing
            factor = _factors(affine, *_columns(network, k + 1))
            affine = scaled(affine, 1 / factor)
            if layer.activation.kind != "step":
                worth[k + 1] = factor
        layers.append(replace(layer, affine=affine))
    return network.replace(layers=layers, output=reading(network.output, worth))


def _factors(affine: Affine, least_read: Vector, most_read: Vector) -> Vector:
    least, most = _extremes(affine)
    exponent = np.where(np.isfinite(most), np.floor(np.nan_to_num(most, neginf=0.0)) + 1, 0.0)
    low = np.where(np.isfinite(least), least - exponent, 0.0)
    bias = np.log2(np.abs(affine.bias), out=np.zeros(affine.size), where=affine.bias != 0)
    moved = bias - np.where(affine.bias != 0, exponent, 0.0)
    # readers may be rescaled themselves by 2^60 either way before their entries leave the range
    safe = (np.minimum(low, moved) >= NORMAL[0]) & (moved < NORMAL[1])
    safe &= (least_read + exponent >= NORMAL[0] + 60) & (most_read + exponent < NORMAL[1] - 60)
    safe &= np.abs(exponent) <= LARGEST  # the factor and its inverse are normal numbers
    return 2.0 ** np.where(safe, exponent, 0.0)


def _extremes(affine: Affine) -> tuple[Vector, Vector]:
    """log2 of the smallest and largest non-zero magnitude of every row (inf, -inf if none)."""
    least, most = np.full(affine.size, np.inf), np.full(affine.size, -np.inf)
    for matrix in affine.terms.values():
        low, high = _logs(matrix)
        least, most = np.minimum(least, low), np.maximum(most, high)
    return least, most


def _columns(network: Network, value: int) -> tuple[Vector, Vector]:
    """The same for the columns through which a value is read; 0 where nothing reads it."""
    size = network.widths[value]
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    for affine in network.maps:
        if value in affine.terms:
            low, high = _logs(affine.terms[value].T)
            least, most = np.minimum(least, low), np.maximum(most, high)
    return np.where(np.isinf(least), 0.0, least), np.where(np.isinf(most), 0.0, most)


def _logs(matrix: Any) -> tuple[Vector, Vector]:
    entries: Any = sp.csr_array(matrix)
    rows = np.repeat(np.arange(entries.shape[0]), np.diff(entries.indptr))
    used = entries.data != 0
    logs = np.log2(np.abs(entries.data[used]))
    least, most = np.full(entries.shape[0], np.inf), np.full(entries.shape[0], -np.inf)
    np.minimum.at(least, rows[used], logs)
    np.maximum.at(most, rows[used], logs)
    return least, most

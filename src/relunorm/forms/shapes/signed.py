"""Form ``signed``: outgoing weights of the last hidden layer in {-1, 0, +1}, seed 000."""

from __future__ import annotations

import numpy as np

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.forms.rewrite import check_scaling, rows, scaled
from relunorm.network import Affine, Layer, Network


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

"""Networks rewritten as ReLUSplitter does it: the function stays, the network gets harder.

A unit relu(z) with z = w.x + b becomes relu(relu(p (z - t)) / p + relu(q (z - t)) / q + t) with
p > 0 > q: two units whose kink lies at z = t carry z - t to a layer of its own. Units that are not
split pass through that layer as they are. With a threshold per channel a convolution splits alike.
Written from the description in the paper (Xu and others, "ReLUSplitter", 2025), as float32, the
precision of the files it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from relunorm.network import Network
from relunorm.network.layer import RELU, Activation, Affine, Layer


def rounded(array: np.ndarray) -> np.ndarray:
    """To float32 and back."""
    return np.asarray(array, dtype=np.float32).astype(np.float64)


def random_perceptron(widths: Sequence[int], rng: np.random.Generator) -> Network:
    """A plain network of float32 numbers whose values keep their size from layer to layer."""
    weights = [rounded(rng.normal(0, np.sqrt(2 / a), (b, a))) for a, b in pairwise(widths)]
    return Network.from_weights(weights, [rounded(rng.normal(0, 0.1, b)) for b in widths[1:]])


def split_units(
    network: Network,
    layer: int,
    units: Sequence[int],
    rng: np.random.Generator,
    *,
    scales: tuple[float, float] = (1.0, -1.0),
    share: bool = False,
    activation: Activation = RELU,
    shuffle: bool = False,
) -> Network:
    """The network with some units of one layer of a chain split.

    Args:
        scales: p and q; numbers other than powers of two make the rounding to float32 show.
        share: split into two positive multiples instead, relu(r z) + relu((1 - r) z).
        activation: of the new layer; a leaky one with slope a divides by 1 + a as well.
        shuffle: put the units of the new layer in random order.
    """
    affine = network.layers[layer].affine
    (source, matrix), bias = next(iter(affine.terms.items())), affine.bias
    weight = matrix.toarray() if sp.issparse(matrix) else matrix
    rows, offsets, merge, back = [], [], [], np.zeros(affine.size)
    damp = 1.0 if share else 1.0 / (1.0 + activation.slopes[0])
    for i in range(affine.size):
        if i not in units:
            rows.append(weight[i])
            offsets.append(bias[i])
            merge.append({i: 1.0})
            continue
        if share:
            p = float(rng.uniform(0.2, 0.8))
            pair, threshold = (p, 1.0 - p), 0.0
            into = (1.0, 1.0)
        else:
            pair, threshold = scales, float(rng.uniform(-1, 1)) * np.abs(weight[i]).sum() / 4
            into = (damp / scales[0], damp / scales[1])
            back[i] = threshold
        for factor, value in zip(pair, into, strict=True):
            rows.append(factor * weight[i])
            offsets.append(-factor * (threshold - bias[i]))
            merge.append({i: value})
    order = rng.permutation(len(rows)) if shuffle else np.arange(len(rows))
    wide = rounded(np.array(rows)[order])
    down = np.zeros((affine.size, len(rows)))
    for column, j in enumerate(order):
        for i, value in merge[j].items():
            down[i, column] = value
    first = Layer(Affine({source: wide}, rounded(np.array(offsets)[order])), activation)
    old = network.layers[layer]
    second = Layer(Affine({layer + 1: rounded(down)}, rounded(back)), old.activation)
    rest = [
        Layer(Affine({s + 1: m for s, m in x.affine.terms.items()}, x.affine.bias), x.activation)
        for x in network.layers[layer + 1 :]
    ]
    output = Affine({s + 1: m for s, m in network.output.terms.items()}, network.output.bias)
    layers = [*network.layers[:layer], first, second, *rest]
    return network.replace(layers=layers, output=output)

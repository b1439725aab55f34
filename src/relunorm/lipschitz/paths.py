"""The absolute-path bound: every path counted with the absolute value of its weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.lipschitz.norms import operator_norm, round_up
from relunorm.lipschitz.spectral import largest_slope
from relunorm.network import Affine, Network

METHOD = "absolute paths"


def path_matrix(network: Network) -> NDArray[np.float64]:
    """P with |J(x)| <= P entry by entry: sums over paths of products of |weight| and |slope|.

    For a perceptron P = |W_L| |W_{L-1}| ... |W_1|. Computed from the output back, one product per
    matrix, whatever the skips.
    """
    grads: dict[int, NDArray[np.float64]] = {}

    def pull(affine: Affine, upstream: NDArray[np.float64] | None) -> None:
        for source, matrix in affine.terms.items():
            positive = abs(matrix)
            part = mx.dense(positive) if upstream is None else upstream @ positive
            grads[source] = grads[source] + part if source in grads else np.asarray(part)

    pull(network.output, None)
    for index in range(len(network.layers) - 1, -1, -1):
        upstream = grads.pop(index + 1, None)
        if upstream is not None:
            layer = network.layers[index]
            pull(layer.affine, upstream * largest_slope(layer.activation))
    return grads.get(0, np.zeros((network.output_size, network.input_size)))


def absolute_paths(network: Network, norm: float = 2.0) -> float:
    """A sound upper bound: the operator norm p -> p of `path_matrix`.

    Never above the sum over atoms of `theorem6` (triangle inequality), which is never above
    Theorem 6(i) of seed 003 with its constant corrected. Exact when all weights past the first
    layer are non-negative and some point has every unit active and all first-layer rows >= 0.

    >>> from relunorm.network import Network
    >>> round(absolute_paths(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])), 9)
    2.0
    """
    return round_up(operator_norm(path_matrix(network), norm), 2 * sum(network.widths))

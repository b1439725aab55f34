"""What float64 can hide from a bound, so that a proof can allow for it.

`rounding` bounds the rounding of one evaluation by Higham's gamma_n = n u / (1 - n u) along all
paths in absolute values (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.network import Affine, Network

if TYPE_CHECKING:
    from relunorm.domain import Domain

Array = NDArray[np.float64]


def path_sums(network: Network) -> list[Array]:
    """Bounds on |d output / d value k|, entry by entry, for every value (0 is the input).

    Sums over paths of products of |weight| and the largest |slope|: for a perceptron and k = 0,
    |W_L| |W_{L-1}| ... |W_1|. Computed from the output back, one product per matrix, whatever the
    skips.
    """
    sizes = network.widths
    sums = [np.zeros((network.output_size, size)) for size in sizes[:-1]]

    def pull(affine: Affine, upstream: Array | None) -> None:
        for source, matrix in affine.terms.items():
            positive = abs(matrix)
            sums[source] += mx.dense(positive) if upstream is None else upstream @ positive

    pull(network.output, None)
    for index in range(len(network.layers) - 1, -1, -1):
        layer = network.layers[index]
        pull(layer.affine, sums[index + 1] * max(map(abs, layer.activation.slopes)))
    return sums


def rounding(network: Network, domain: Domain, output: int = 0) -> float:
    """A bound on the rounding error of an output, anywhere on the domain."""
    return float(roundings(network, domain)[output])


def roundings(network: Network, domain: Domain) -> Array:
    """Bounds on the rounding errors of all outputs, anywhere on the domain."""
    box = domain.bounding_box
    sizes: list[Array] = [np.maximum(np.abs(box.lo), np.abs(box.hi))]
    for affine in network.maps:
        size = np.abs(affine.bias)
        for source, matrix in affine.terms.items():
            size = size + abs(matrix) @ sizes[source]
        index = len(sizes) - 1
        slopes = network.layers[index].activation.slopes if index < len(network.layers) else (1.0,)
        sizes.append(size * max(map(abs, slopes)))
    n = 2.0 * sum(network.widths) * np.finfo(np.float64).eps
    return sizes[-1] * (n / (1 - n)) if n < 0.5 else np.full(network.output_size, np.inf)

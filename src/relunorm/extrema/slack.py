"""What float64 and thin cells can hide from a bound, so that a proof can allow for it.

The sign tree gives a unit one sign on a cell when the other one is taken nowhere by more than a
tolerance (docs/regions.md). Where the unit's form does reach h > 0 on the side that was dropped,
the tree bounds a network whose unit is off by at most |above - below| h there. The search records
the largest such h of every unit (`State.thin`), and `dropped` bounds what all of them together can
change at the output, along all paths in absolute values. It is zero unless a unit's hyperplane
touches a cell within the tolerance.

`rounding` bounds the rounding of one evaluation by Higham's gamma_n = n u / (1 - n u) along the
same paths (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Domain
from relunorm.network import Affine, Network
from relunorm.rounding import Sensitivity

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


def dropped(network: Network, thin: Array, sensitivity: Sensitivity | None = None) -> float:
    """How far the first output can be off because of the sides that were dropped.

    Args:
        thin: for every unit the largest value its form takes on a side that was dropped.
        sensitivity: of the output to the units; along all paths in absolute values without it.
    """
    if not thin.any():
        return 0.0
    total, begin = 0.0, 0
    known = path_sums(network)[1:] if sensitivity is None else sensitivity.after
    for layer, sums in zip(network.layers, known, strict=True):
        below, above = layer.activation.slopes
        part = thin[begin : begin + layer.width]
        total += float(abs(above - below) * (sums[0] @ part))
        begin += layer.width
    return total


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

"""The absolute-path bound: every path counted with the absolute value of its weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.rounding import path_sums
from relunorm.lipschitz.norms import operator_norm, round_up
from relunorm.network import Network

METHOD = "absolute paths"


def path_matrix(network: Network) -> NDArray[np.float64]:
    """P with |J(x)| <= P entry by entry: sums over paths of products of |weight| and |slope|.

    For a perceptron P = |W_L| |W_{L-1}| ... |W_1|; see `relunorm.arithmetic.rounding`.
    """
    return path_sums(network)[0]


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

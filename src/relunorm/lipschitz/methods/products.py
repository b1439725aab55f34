"""Products of what layers can do: of their norms, and of their weights along every path."""

from __future__ import annotations

from relunorm.arithmetic.rounding import path_sums
from relunorm.lipschitz.norms import Deadline, operator_norm, round_up
from relunorm.network import Affine, Network

NORM_PRODUCT, ABSOLUTE_PATHS = "norm product", "absolute paths"


def norm_product(network: Network, norm: float = 2.0, deadline: Deadline | None = None) -> float:
    """A sound upper bound: L_k <= s_k sum_j |W_kj|_p L_j over the values k in order.

    L_0 = 1, s_k is the largest slope of layer k in absolute value, and the last L is the bound. For
    a plain perceptron this is the product of the operator norms; for p = 2 it is never above
    Theorem 6(ii) of seed 003. Sparse weights stay sparse. Cost: one norm per matrix;
    those that cannot be had before the deadline are bounded roughly.

    >>> from relunorm.network import Network
    >>> round(norm_product(Network.from_weights([[[3.0]], [[2.0]]])), 9)
    6.0
    """
    reach = [1.0]

    def total(affine: Affine) -> float:
        terms = affine.terms.items()
        return sum(operator_norm(matrix, norm, deadline) * reach[j] for j, matrix in terms)

    for layer in network.layers:
        reach.append(max(map(abs, layer.activation.slopes)) * total(layer.affine))
    return round_up(float(total(network.output)), 4 * len(network.layers))


def absolute_paths(network: Network, norm: float = 2.0) -> float:
    """A sound upper bound: the operator norm p -> p of the sums over all paths.

    |J(x)| <= P entry by entry, P being sums of products of |weight| and |slope| (`path_sums`).
    Never above the sum over atoms of `theorem6` (triangle inequality), which is never above
    Theorem 6(i) of seed 003 with its constant corrected. Exact when all weights past the first
    layer are non-negative and some point has every unit active and all first-layer rows >= 0.

    >>> from relunorm.network import Network
    >>> round(absolute_paths(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])), 9)
    2.0
    """
    return round_up(operator_norm(path_sums(network)[0], norm), 2 * sum(network.widths))

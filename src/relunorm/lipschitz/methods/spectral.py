"""The product of layer norms, generalised to any acyclic network."""

from __future__ import annotations

from relunorm.lipschitz.norms import Deadline, operator_norm, round_up
from relunorm.network import Activation, Affine, Network

METHOD = "norm product"


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
        reach.append(largest_slope(layer.activation) * total(layer.affine))
    return round_up(float(total(network.output)), 4 * len(network.layers))


def largest_slope(activation: Activation) -> float:
    """The largest |derivative|: the activation's own Lipschitz constant (but for step)."""
    return max(abs(slope) for slope in activation.slopes)

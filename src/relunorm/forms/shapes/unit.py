"""Form ``unit``: rows of Euclidean norm 1, seed 001 (2.7), (2.8) and (4.3)."""

from __future__ import annotations

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.forms.rewrite import stacked
from relunorm.forms.shapes.scaling import norms, rescaled
from relunorm.network import Activation, Affine, Layer, Network


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
    if not network.layers:
        layers, last, activation = [], 1, Activation("relu")
        source, width = 0, network.input_size
    else:
        last = len(network.layers)
        layers = list(network.layers[:-1])
        activation = network.layers[-1].activation
        source, matrix = next(iter(network.layers[-1].affine.terms.items()))
        width = matrix.shape[1]
    sign, bias, weight = _constant_one(activation)
    direction = np.zeros((len(sign), width))
    direction[:, 0] = sign
    extra = Affine({source: direction}, bias)
    columns = np.outer(network.output.bias, weight)
    if network.layers:
        old = network.layers[-1]
        layers.append(Layer(stacked([old.affine, extra]), activation, old.name))
        from relunorm import matrix as mx

        before = network.output.terms.get(last, np.zeros((network.output_size, old.width)))
        columns = np.hstack([mx.dense(before), columns])
    else:
        layers.append(Layer(extra, activation))
    terms = {**network.output.terms, last: columns}
    output = Affine(terms, np.zeros(network.output_size))
    return network.replace(layers=layers, output=output)


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

"""Moving a scale of the targets into the parameters (seed 002, appendix D, corrected).

Theorem D.1 says no single factor nu turns f(., theta) into gamma f(., theta). That is true only
"for all theta": with zero biases nu = gamma^(1/(N+1)) does it. With one factor per parameter an
exact rescaling always exists: docs/errata.md.
"""

from __future__ import annotations

import math

import numpy as np

from relunorm import matrix as mx
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Network


def rescale_targets(network: Network, gamma: float, delta: float = 0.0) -> Network:
    """A network that computes gamma f(x) + delta, with the factor spread evenly over the layers.

    Layer n of N gets W_n a and b_n a^n with a = gamma^(1/(N+1)), so its values grow by a^n and the
    output by gamma. With skips the matrix from value j to layer n gets a^(depth n - depth j).
    Exact up to rounding for relu, leaky and identity layers, which are positively homogeneous; a
    step layer keeps its values, and its own weights are left alone.

    >>> net = Network.from_weights([[[2.0]], [[3.0]]], [[1.0], [1.0]])  # 3 relu(2 x + 1) + 1
    >>> small = rescale_targets(net, 1e-4)
    >>> float(net([1.0])[0]), float(small([1.0])[0])
    (10.0, 0.001)
    """
    if not (math.isfinite(gamma) and gamma > 0 and math.isfinite(delta)):
        raise InvalidInputError(f"gamma={gamma}, delta={delta}: expected finite, gamma above 0")
    scale = [1.0]
    depth = [0]
    for layer in network.layers:
        below = max((depth[s] for s in layer.affine.sources), default=0)
        counts = layer.activation.kind in ("relu", "leaky")
        depth.append(below + 1 if counts else below if layer.activation.kind == "identity" else 0)
    total = 1 + max((depth[s] for s in network.output.sources), default=0)
    factor = gamma ** (1.0 / total)
    layers = []
    for index, layer in enumerate(network.layers):
        step = layer.activation.kind == "step"
        scale.append(1.0 if step else factor ** depth[index + 1])
        # A step layer only needs its pre-activation up to a positive factor: undo its inputs'.
        affine = _scaled(layer.affine, 1.0 if step else scale[-1], scale)
        layers.append(type(layer)(affine, layer.activation, layer.name, layer.shape))
    output = _scaled(network.output, gamma, scale)
    output = Affine(output.terms, output.bias + delta)
    return network.replace(layers=layers, output=output)


def single_factor(network: Network, gamma: float) -> float | None:
    """The one factor nu on all parameters with f(., nu theta) = gamma f(., theta), or None.

    Exists when every bias is zero and the network is a plain relu or leaky chain:
    nu = gamma^(1/(N+1)). None means that this argument gives no factor, which for generic biases
    is Theorem D.1.

    >>> single_factor(Network.from_weights([[[2.0]], [[3.0]]]), 4.0)
    2.0
    """
    if not (math.isfinite(gamma) and gamma > 0):
        raise InvalidInputError(f"gamma is {gamma}, expected a finite number above 0")
    plain = network.is_chain and all(
        layer.activation.kind in ("relu", "leaky") for layer in network.layers
    )
    if not plain or any(np.any(affine.bias) for affine in network.maps):
        return None
    return float(gamma ** (1.0 / (len(network.layers) + 1)))


def _scaled(affine: Affine, own: float, scale: list[float]) -> Affine:
    terms = {
        source: mx.scale_rows(matrix, np.full(affine.size, own / scale[source]))
        for source, matrix in affine.terms.items()
    }
    return Affine(terms, affine.bias * own)

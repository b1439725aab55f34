"""Networks with very large or very small weights, brought to size by powers of two.

A unit that is divided by 2^e, with what reads it multiplied by 2^e, leaves the function as it is;
the output divided by 2^e divides the constant. Powers of two are exact, so nothing is lost, and
products and squares of weights such as 1e200 stay within float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Layer, Network

#: Exponents of the largest weights of all maps may add up to this without any scaling.
HARMLESS = 400

#: A bias may be as large as two to this, after scaling.
BIAS = 400

Exponents = NDArray[np.int64]


def to_size(network: Network) -> tuple[Network, int]:
    """A network g and a whole number e with f = 2^e g, whose weights are at most 1 in size.

    A network of ordinary size is returned as it is, with e = 0.

    Raises:
        InvalidInputError: one unit has weights so far apart that float64 does not hold them scaled.

    >>> tall = Network.from_weights([[[1e200]], [[1e200]]])
    >>> small, exponent = to_size(tall)
    >>> float(small.output.terms[1][0, 0]) <= 1, exponent > 1300
    (True, True)
    """
    rows = [_rows(affine) for affine in network.maps]
    if sum(int(np.abs(e).max(initial=0)) for e in rows) <= HARMLESS:
        return network, 0
    reach: list[Exponents] = [np.zeros(network.input_size, dtype=np.int64)]
    layers: list[Layer] = []
    for index, layer in enumerate(network.layers):
        own = _own(layer.affine, reach)
        affine = _scaled(layer.affine, reach, own, f"layer {index} ({layer.name or 'unnamed'})")
        layers.append(Layer(affine, layer.activation, layer.name, layer.shape))
        reach.append(own)
    top = np.full(network.output.size, int(_own(network.output, reach).max(initial=0)))
    output = _scaled(network.output, reach, top, "the output")
    return network.replace(layers=layers, output=output), int(top.max(initial=0))


def up(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded up: inf above float64, never 0 unless the value is."""
    scaled = float(np.ldexp(value, exponent))
    return float(np.nextafter(scaled, np.inf)) if np.ldexp(scaled, -exponent) < value else scaled


def down(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded down: the largest float where it is above float64."""
    scaled = float(np.ldexp(value, exponent))
    if np.isinf(scaled) and np.isfinite(value):
        return float(np.finfo(float).max)
    return float(np.nextafter(scaled, 0.0)) if np.ldexp(scaled, -exponent) > value else scaled


def _rows(affine: Affine) -> Exponents:
    """The exponent of each row's largest weight; 0 for rows without any."""
    return np.max([_exponents(m, None) for m in affine.terms.values()], axis=0, initial=0)

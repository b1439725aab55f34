"""Networks with very large or very small weights, brought to size by powers of two.

A unit that is divided by 2^e, with what reads it multiplied by 2^e, leaves the function as it is;
the output divided by 2^e divides the constant. Powers of two are exact, so nothing is lost, and
products and squares of weights such as 1e200 stay within float64.
"""

from __future__ import annotations

import numpy as np

from relunorm.network import Affine, Network
from relunorm.regions.balance import HARMLESS, balanced_layers, extent, sizes, without_loss


def to_size(network: Network) -> tuple[Network, int]:
    """A network g and a whole number e with f = 2^e g, whose weights are at most 1 in size.

    A network of ordinary size is returned as it is, with e = 0. Exact.

    Raises:
        InvalidInputError: one unit has numbers so far apart that float64 does not hold them scaled.

    >>> tall = Network.from_weights([[[1e200]], [[1e200]]])
    >>> small, exponent = to_size(tall)
    >>> float(small.output.terms[1][0, 0]) <= 1, exponent
    (True, 1330)
    """
    if sum(extent(affine) for affine in network.maps) <= HARMLESS:
        return network, 0
    layers, reach = balanced_layers(network, np.zeros(network.input_size, dtype=np.int64))
    last = Affine(network.output.terms, np.zeros(network.output.size))  # no slope has its bias
    tops = sizes(last, reach)
    top = int(tops.max()) if len(tops) else 0
    output = without_loss(last, reach, np.full(last.size, top), "the output")
    return network.replace(layers=layers, output=output), top


def up(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded up: inf above float64, and 0 only for 0.

    >>> up(1.5, 2), up(1.0, 2000), up(1.0, -2000)
    (6.0, inf, 5e-324)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        less = np.ldexp(scaled, -exponent) < value
    return float(np.nextafter(scaled, np.inf) if less else scaled)


def down(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded down: above float64 the largest number it has.

    >>> down(1.5, 2), down(1.0, 2000), down(1.0, -2000)
    (6.0, 1.7976931348623157e+308, 0.0)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        more = np.ldexp(scaled, -exponent) > value or (np.isinf(scaled) and np.isfinite(value))
    return float(np.nextafter(scaled, 0.0) if more else scaled)

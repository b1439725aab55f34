"""How precise the numbers of a model are, and the tolerance that follows from that.

A model file in single precision holds weights of 24 significant bits. Writing a network to such a
file rounds every weight by a share of up to u = 2^-24, and its outputs move by about that share of
their size, more where layers add up. Two models count as the same if they agree to `SHARE` u times
the largest output, u being that of the coarser of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm import matrix as mx
from relunorm.network import Network

#: What models in double precision may differ by.
DOUBLE = 1e-9

#: Roundings of a weight that the outputs may differ by, relative to the largest output.
SHARE = 64.0

#: Significant bits of each precision. Up to 8, numbers are small integers or written by hand.
BITS = (("float64", 8), ("float16", 11), ("float32", 24))


def precision(network: Network) -> str:
    """The least precise of float16, float32 and float64 that holds every weight.

    Weights of at most 8 significant bits, such as small integers, count as exact: float64.

    >>> precision(Network.from_weights([[[0.1]], [[1.0]]]))
    'float64'
    >>> precision(Network.from_weights([[[float(np.float32(0.1))]], [[1.0]]]))
    'float32'
    """
    needed = 0
    for affine in network.maps:
        for numbers in (affine.bias, *(mx.entries(m) for m in affine.terms.values())):
            needed = max(needed, _bits(np.asarray(numbers)))
    return next((name for name, bits in BITS if needed <= bits), "float64")


def _bits(numbers: np.ndarray) -> int:
    """Significant bits of the longest number."""
    some = numbers[numbers != 0]
    if not some.size:
        return 0
    mantissa, _ = np.frexp(some)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    trailing = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return int(53 - trailing.min())


def default_tolerance(networks: Sequence[Network], points: np.ndarray) -> tuple[float, str]:
    """The tolerance for two networks, and the precision it follows.

    Args:
        points: inputs at which the size of the outputs is looked at.
    """
    found = [precision(network) for network in networks]
    for name, unit in (("float16", 2.0**-11), ("float32", 2.0**-24)):
        if name in found:
            size = max(float(np.abs(network(points)).max()) for network in networks)
            return max(DOUBLE, SHARE * unit * size), name
    return DOUBLE, "float64"

"""How precise the numbers of a model are, the tolerance that follows, and rounding to float32.

A model file in single precision holds weights of 24 significant bits. Writing a network to such a
file rounds every weight by a share of up to u = 2^-24, and its outputs move by about that share of
their size, more where layers add up. Two models count as the same if they agree to `SHARE` u times
the largest output, u being that of the coarser of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.network import Affine, Layer, Network
from relunorm.network.structure import Structure

#: What models in double precision may differ by.
DOUBLE = 1e-9

#: Roundings of a weight that the outputs may differ by, relative to the largest output.
SHARE = 64.0

#: Significant bits of each precision. Up to 8, numbers are small integers or written by hand.
BITS = (("float64", 8), ("float16", 11), ("float32", 24))


#: Rounding of one operation in each precision below double.
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}

#: Numbers of more than 8 bits that a map must have to tell its precision.
ENOUGH = 4


def precision(network: Network) -> str:
    """What the file or object it was read from holds, or else what its numbers look like.

    Where nobody said (``Network.precision``), it is the least precise of float16, float32 and
    float64 that holds the numbers of some affine map. One map is enough: where a scaler was folded
    into the first one, or a scale into the last, only the others show what a file held. Numbers of
    at most 8 significant bits, such as small integers, say nothing; a map with few others counts
    where it is all there is.

    >>> precision(Network.from_weights([[[0.1]], [[1.0]]]))
    'float64'
    >>> precision(Network.from_weights([[[float(np.float32(0.1))]], [[1.0]]]))
    'float32'
    """
    if network.precision:
        return network.precision
    maps = [_bits(affine) for affine in network.maps]
    telling = [int(bits.max()) for bits in maps if np.count_nonzero(bits > 8) >= ENOUGH]
    needed = min(telling, default=max((int(bits.max(initial=0)) for bits in maps), default=0))
    return next((name for name, bits in BITS if needed <= bits), "float64")


def _bits(affine: Affine) -> NDArray[np.int64]:
    """Significant bits of every number of an affine map."""
    parts = [affine.bias, *(mx.entries(m) for m in affine.terms.values())]
    numbers = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
    mantissa, _ = np.frexp(numbers[numbers != 0])
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    return 53 - np.log2((whole & -whole).astype(np.float64)).astype(np.int64)


def default_tolerance(networks: Sequence[Network], points: np.ndarray) -> tuple[float, str]:
    """The tolerance for two networks, and the precision it follows.

    Args:
        points: inputs at which the size of the outputs is looked at.
    """
    found = [precision(network) for network in networks]
    for name, unit in UNITS.items():
        if name in found:
            size = max(float(np.abs(network(points)).max()) for network in networks)
            return max(DOUBLE, SHARE * unit * size), name
    return DOUBLE, "float64"


def narrow(network: Network) -> Network:
    """The network with every number rounded to float32, as a float32 file will hold it.

    Convolutions stay convolutions: their kernels are what is rounded.

    Raises:
        UnsupportedFormatError: a number is too large for float32.
    """
    if is_single(network):
        return network
    if network.structure is not None and network.structure.convolves:
        from relunorm.io.graph.structured import lower

        return lower(_rounded_structure(network.structure), network)

    def rounded(affine: Affine, place: str) -> Affine:
        terms = {}
        for k, matrix in affine.terms.items():
            new = matrix.copy()
            mx.entries(new)[...] = mx.narrowed(mx.entries(matrix), np.float32, place)
            terms[k] = new
        return Affine(terms, mx.narrowed(affine.bias, np.float32, place).astype(np.float64))

    layers = [
        Layer(rounded(x.affine, f"layer {k}"), x.activation, x.name, x.shape)
        for k, x in enumerate(network.layers)
    ]
    return network.replace(layers=layers, output=rounded(network.output, "the output"))


def _rounded_structure(structure: Structure) -> Structure:
    def rounded(array: NDArray[np.float64] | None, place: str) -> NDArray[np.float64] | None:
        return None if array is None else mx.narrowed(array, np.float32, place).astype(np.float64)

    return Structure(
        tuple(
            replace(step, weight=rounded(step.weight, place), bias=rounded(step.bias, place))
            for step in structure.steps
            for place in (step.name or step.kind,)
        )
    )


def is_single(network: Network) -> bool:
    """Whether every number of the network is a float32."""
    numbers = (x for a in network.maps for x in (a.bias, *map(mx.entries, a.terms.values())))
    with np.errstate(over="ignore", under="ignore"):
        return all(bool((x.astype(np.float32) == x).all()) for x in numbers)

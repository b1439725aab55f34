"""Rounding to float32, so that a float32 file holds just the network that is certified."""

from __future__ import annotations

import numpy as np

from relunorm import matrix as mx
from relunorm.network import Affine, Layer, Network


def narrow(network: Network) -> Network:
    """The network with every number rounded to float32, as a float32 file will hold it.

    Raises:
        UnsupportedFormatError: a number is too large for float32.
    """

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


def is_single(network: Network) -> bool:
    """Whether every number of the network is a float32."""
    numbers = (x for a in network.maps for x in (a.bias, *map(mx.entries, a.terms.values())))
    with np.errstate(over="ignore", under="ignore"):
        return all(bool((x.astype(np.float32) == x).all()) for x in numbers)

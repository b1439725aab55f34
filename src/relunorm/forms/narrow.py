"""Rounding to float32, so that a float32 file holds just the network that is certified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.network import Affine, Layer, Network
from relunorm.structure import Structure


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

"""Hypothesis strategies for networks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from relunorm import io
from relunorm.network import Activation, Affine, Layer, Network

#: Endings of files in our own layout, which hold a network as it is.
ARCHIVES = [
    ending.removeprefix(".")
    for ending, (module, _) in io.WRITERS.items()
    if module in ("relunorm.io.npz", "relunorm.io.archive")
]

ACTIVATIONS = (
    Activation("relu"),
    Activation("relu"),
    Activation("leaky", slope=0.125),
    Activation("leaky", slope=0.1),
    Activation("identity"),
    Activation("step"),
    Activation("step", at_zero=0.0),
    Activation("step", at_zero=0.25),
)


@st.composite
def networks(
    draw: st.DrawFn, *, activations: tuple[Activation, ...] = ACTIVATIONS, skips: bool = True
) -> Network:
    """A small network with random structure: skips, sparse parts, any activations."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = [draw(st.integers(1, 6))]
    layers = []
    for _ in range(draw(st.integers(0, 4))):
        width = draw(st.integers(1, 6))
        layers.append(
            Layer(
                _affine(draw, rng, sizes, width, skips), draw(st.sampled_from(activations)), "layer"
            )
        )
        sizes.append(width)
    output = _affine(draw, rng, sizes, draw(st.integers(1, 4)), skips)
    return Network(layers, output, input_shape=sizes[0])


def _affine(
    draw: st.DrawFn, rng: np.random.Generator, sizes: list[int], width: int, skips: bool
) -> Affine:
    sources = {len(sizes) - 1}
    if skips:
        sources |= draw(st.sets(st.integers(0, len(sizes) - 1), max_size=2))
    terms = {}
    for source in sources:
        matrix = rng.normal(size=(width, sizes[source]))
        if draw(st.booleans()):
            matrix = sp.csr_array(matrix * (rng.random(matrix.shape) < 0.4))
        terms[source] = matrix
    return Affine(terms, rng.normal(size=width))

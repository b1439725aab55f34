"""The random networks that theorems are tried on."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from relunorm.network import Activation, Network


def he_network(rng: np.random.Generator, widths: tuple[int, ...], bias: float = 0.5) -> Network:
    """Gaussian weights of variance 2 / fan-in and Gaussian biases of deviation ``bias``.

    >>> he_network(np.random.default_rng(0), (3, 5, 1)).widths
    (3, 5, 1)
    """
    shapes = list(pairwise(widths))
    weights = [rng.normal(0, math.sqrt(2 / a), (b, a)) for a, b in shapes]
    return Network.from_weights(weights, [bias * rng.normal(size=b) for _, b in shapes])


def shallow_network(
    rng: np.random.Generator,
    width: int,
    inputs: int,
    activation: Activation | None = None,
    spread: float = 1.0,
) -> Network:
    """One hidden layer, one output, Gaussian entries, biases of deviation ``spread``; the first
    unit's row is zero."""
    w = rng.normal(size=(width, inputs))
    w[0] = 0.0
    b, v = spread * rng.normal(size=width), rng.normal(size=(1, width))
    return Network.from_weights([w, v], [b, [0.0]], activation or Activation("relu"))

"""Extrema of networks too large for one triangular form: bounds that keep sparse weights sparse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relunorm import matrix as mx
from relunorm.clock import Clock, Listener, Teller
from relunorm.domain import Domain
from relunorm.extrema.localize import Local, localize
from relunorm.extrema.problem import TOLERANCE, Search
from relunorm.extrema.result import Decision, Maximum, Verdict
from relunorm.extrema.slack import rounding
from relunorm.extrema.units import split_units
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network
from relunorm.search.attack import Attack


def _compose(network: Network, weights: Vector) -> Network:
    """weights . f as a network of one output."""
    output = _times(weights[None], network.output)
    return network.replace(output=output, output_shape=(1,))


def _smallest(network: Network, rows: np.ndarray, rhs: Vector) -> Network:
    """min_i (rhs - rows f)_i: pairs are joined by one ReLU unit each, layer by layer."""
    slack = _times(-rows, network.output)
    slack = Affine(slack.terms, slack.bias + rhs)
    parts = [_row(slack, i) for i in range(len(rhs))]
    layers = list(network.layers)
    while len(parts) > 1:
        pairs = [(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        layers.append(Layer(_stack([_plus(s, t, -1.0) for s, t in pairs])))
        joined = []
        for i, (s, _) in enumerate(pairs):
            unit = np.zeros((1, len(pairs)))
            unit[0, i] = -1.0
            joined.append(Affine({**s.terms, len(layers): unit}, s.bias))
        parts = joined + parts[2 * len(pairs) :]
    return network.replace(layers=layers, output=parts[0], output_shape=(1,))


def _times(left: np.ndarray, affine: Affine) -> Affine:
    return Affine({k: np.asarray(left @ m) for k, m in affine.terms.items()}, left @ affine.bias)


def _row(affine: Affine, i: int) -> Affine:
    return Affine(
        {k: mx.dense(m)[i : i + 1] for k, m in affine.terms.items()}, affine.bias[i : i + 1]
    )


def _plus(s: Affine, t: Affine, factor: float) -> Affine:
    terms = {k: mx.dense(m) for k, m in s.terms.items()}
    for k, m in t.terms.items():
        terms[k] = terms[k] + factor * mx.dense(m) if k in terms else factor * mx.dense(m)
    return Affine(terms, s.bias + factor * t.bias)


def _stack(parts: list[Affine]) -> Affine:
    sources = sorted({k for part in parts for k in part.terms})
    sizes = {k: next(mx.dense(p.terms[k]) for p in parts if k in p.terms).shape[1] for k in sources}
    terms = {
        k: np.concatenate(
            [mx.dense(p.terms[k]) if k in p.terms else np.zeros((1, sizes[k])) for p in parts]
        )
        for k in sources
    }
    return Affine(terms, np.concatenate([p.bias for p in parts]))

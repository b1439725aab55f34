"""A network evaluated at one point in rational arithmetic: slow, and right to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from relunorm.matrix import Vector
from relunorm.network import Activation, Affine, Network


def exact_output(network: Network, point: Vector | Sequence[Fraction]) -> list[Fraction]:
    """f(x) without rounding; about a microsecond per stored weight.

    >>> network = Network.from_weights([[[0.5]], [[2.0]]], [[0.25], [0.0]])
    >>> exact_output(network, np.array([0.1])) == [Fraction(0.1) + Fraction(1, 2)]
    True
    """
    entries = np.asarray(point, dtype=object).ravel()
    values = [[x if isinstance(x, Fraction) else Fraction(float(x)) for x in entries]]
    for layer in network.layers:
        z = _affine(layer.affine, values)
        values.append([_activate(layer.activation, entry) for entry in z])
    return _affine(network.output, values)


def _affine(affine: Affine, values: list[list[Fraction]]) -> list[Fraction]:
    total = [Fraction(float(b)) for b in affine.bias]
    for source, matrix in affine.terms.items():
        entries = sp.coo_array(matrix)
        for i, j, w in zip(*entries.coords, entries.data, strict=True):
            if values[source][j]:
                total[i] += Fraction(float(w)) * values[source][j]
    return total


def _activate(activation: Activation, z: Fraction) -> Fraction:
    if activation.kind == "step":
        return Fraction(activation.at_zero) if z == 0 else Fraction(int(z > 0))
    return z if z > 0 else Fraction(activation.slopes[0]) * z

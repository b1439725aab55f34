"""Exact evaluation in rational arithmetic: an oracle that shares no code with the package."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from relunorm.network import Network


def exact_value(network: Network, point: np.ndarray) -> list[Fraction]:
    """f(x) without rounding."""
    values = [[Fraction(float(v)) for v in point]]

    def affine(a) -> list[Fraction]:
        out = [Fraction(float(b)) for b in a.bias]
        for source, matrix in a.terms.items():
            dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            for i, j in zip(*np.nonzero(dense), strict=True):
                out[i] += Fraction(float(dense[i, j])) * values[source][j]
        return out

    for layer in network.layers:
        slope = Fraction(layer.activation.slope)
        kind = layer.activation.kind
        z = affine(layer.affine)
        below = {"leaky": slope, "identity": Fraction(1)}.get(kind, Fraction(0))
        values.append([v if v > 0 else below * v for v in z])
    return affine(network.output)

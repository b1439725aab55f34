"""The exact range of every pre-activation by enumerating cells, sharing no code with the package.

Depth first over units in layer order: on a cell every value is affine in the input, so each unit's
range there is two linear programmes; a unit that changes sign splits the cell.
"""

from __future__ import annotations

import numpy as np
from linear_programme import minimum

from relunorm.network import Network


def exact_ranges(
    network: Network, A: np.ndarray, b: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per layer the range of each pre-activation over A x <= b (relu, leaky, identity)."""
    d = network.input_size
    ranges = [(np.full(x.width, np.inf), np.full(x.width, -np.inf)) for x in network.layers]

    def extreme(A, b, w):
        found = minimum(w, A, b)
        return None if found is None else found[1]

    def expand(layer, unit, values, current, A, b):
        """``values[k]`` is (matrix, constant) of value k on this cell; ``current`` this layer's."""
        if layer == len(network.layers):
            return
        spec = network.layers[layer]
        if unit == spec.width:
            rows = (np.array([m for m, _ in current]), np.array([c for _, c in current]))
            expand(layer + 1, 0, [*values, rows], [], A, b)
            return
        w, c = np.zeros(d), float(spec.affine.bias[unit])
        for source, matrix in spec.affine.terms.items():
            row = matrix.toarray()[unit] if hasattr(matrix, "toarray") else matrix[unit]
            w = w + row @ values[source][0]
            c += float(row @ values[source][1])
        low = extreme(A, b, w)
        if low is None:
            return
        low, high = low + c, -extreme(A, b, -w) + c
        lows, highs = ranges[layer]
        lows[unit], highs[unit] = min(lows[unit], low), max(highs[unit], high)
        below, above = spec.activation.slopes
        for slope, sign, here in ((below, 1.0, low < 0), (above, -1.0, high > 0)):
            if here or (slope == above and low >= 0):
                if low < 0 < high:
                    rows, limit = np.vstack([A, sign * w]), np.append(b, -sign * c)
                else:
                    rows, limit = A, b
                expand(layer, unit + 1, values, [*current, (slope * w, slope * c)], rows, limit)
                if not low < 0 < high:
                    return

    expand(0, 0, [(np.eye(d), np.zeros(d))], [], A, b)
    return ranges


def box_rows(lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A box as A x <= b."""
    eye = np.eye(len(lo))
    return np.vstack([eye, -eye]), np.concatenate([hi, -np.asarray(lo)])

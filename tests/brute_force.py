"""Affine pieces of a small network by trying every sign vector, one linear programme each.

Shares nothing with the package but the network's numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog

from relunorm import Network


def pieces(network: Network, lo=None, hi=None) -> Iterator[tuple]:
    """(A, c, rows, rhs) of every pattern whose cell rows.x <= rhs has an interior (radius 1e-7).

    Signs of the first layer that have no such cell by themselves are not looked at further.
    """
    widths = [layer.width for layer in network.layers]
    first = widths[0] if widths else 0
    empty: dict[tuple[int, ...], bool] = {}
    for bits in itertools.product((0, 1), repeat=sum(widths)):
        A, c, rows, rhs = _compose(network, bits)
        start = bits[:first]
        if start not in empty:
            empty[start] = _radius(rows[:first], rhs[:first], lo, hi) <= 1e-7
        if empty[start]:
            continue
        flat = np.linalg.norm(rows, axis=1) < 1e-12
        if (rhs[flat] < -1e-12).any():
            continue
        # A form that vanishes on the cell counts as off.
        signs = np.array(bits)
        if (signs[flat & (np.abs(rhs) < 1e-12)] == 1).any():
            continue
        rows, rhs = rows[~flat], rhs[~flat]
        if _radius(rows, rhs, lo, hi) > 1e-7:
            yield A, c, rows, rhs


def _radius(rows, rhs, lo, hi) -> float:
    """The radius of the largest ball in rows.x <= rhs and the box, 1 at most; -inf if empty."""
    d = rows.shape[1]
    flat = np.linalg.norm(rows, axis=1) < 1e-12
    rows, rhs = rows[~flat], rhs[~flat]
    lengths = np.linalg.norm(rows, axis=1)
    box = [(None, None)] * d if lo is None else list(zip(lo, hi, strict=True))
    extra_rows, extra_rhs = np.zeros((0, d + 1)), np.zeros(0)
    if lo is not None:
        eye = np.eye(d)
        extra_rows = np.block([[eye, np.ones((d, 1))], [-eye, np.ones((d, 1))]])
        extra_rhs = np.concatenate([hi, -np.asarray(lo)])
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.concatenate([np.column_stack([rows, lengths]), extra_rows]),
        b_ub=np.concatenate([rhs, extra_rhs]),
        bounds=[*box, (None, 1.0)],
    )
    return float(found.x[-1]) if found.status == 0 else -np.inf


def maximum(network: Network, direction, lo, hi) -> float:
    """The largest direction . f over a box."""
    best = -np.inf
    for A, c, rows, rhs in pieces(network, lo, hi):
        found = linprog(
            -(direction @ A),
            A_ub=rows if len(rows) else None,
            b_ub=rhs if len(rows) else None,
            bounds=list(zip(lo, hi, strict=True)),
        )
        assert found.status == 0
        best = max(best, float(direction @ c - found.fun))
    return best


def _compose(network: Network, bits) -> tuple:
    d = network.input_size
    maps = [(np.eye(d), np.zeros(d))]
    rows, rhs, at = [np.zeros((0, d))], [np.zeros(0)], 0

    def through(affine):
        A, c = np.zeros((affine.size, d)), np.array(affine.bias)
        for source, matrix in affine.terms.items():
            dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            A, c = A + dense @ maps[source][0], c + dense @ maps[source][1]
        return A, c

    for layer in network.layers:
        A, c = through(layer.affine)
        on = np.array(bits[at : at + layer.width], dtype=float)
        at += layer.width
        sign = 2 * on - 1
        rows.append(-sign[:, None] * A)
        rhs.append(sign * c)
        below, above = layer.activation.slopes
        slope = np.where(on > 0, above, below)
        maps.append((slope[:, None] * A, slope * c))
    A, c = through(network.output)
    return A, c, np.concatenate(rows), np.concatenate(rhs)

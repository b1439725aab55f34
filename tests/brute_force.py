"""Affine pieces of a small network by trying the signs of its units one after the other.

Signs that leave no room for a ball of radius 1e-7 are not looked at further; where the ball found
so far does not show that there is room, a linear programme looks for the largest one. Shares
nothing with the package but the network's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from linear_programme import minimum

from relunorm import Network

SMALL = 1e-7


def pieces(network: Network, lo=None, hi=None) -> Iterator[tuple]:
    """(A, c, rows, rhs) of every pattern whose cell rows.x <= rhs has an interior (radius 1e-7)."""
    d = network.input_size
    rows, rhs = np.zeros((0, d)), np.zeros(0)
    ball = (np.zeros(d), 1.0) if lo is None else _largest_ball(rows, rhs, lo, hi)
    yield from _through_layers(network, [(np.eye(d), np.zeros(d))], rows, rhs, ball, lo, hi)


def _through_layers(network, maps, rows, rhs, ball, lo, hi) -> Iterator[tuple]:
    """The pieces of a cell on which the values so far are the affine ``maps``."""
    done = len(maps) - 1
    if done == len(network.layers):
        yield *_compose(network.output, maps), rows, rhs
        return
    layer = network.layers[done]
    A, c = _compose(layer.affine, maps)
    below, above = layer.activation.slopes
    for bits, more, limits, inner in _signs(A, c, (), rows, rhs, ball, lo, hi):
        slope = np.where(bits, above, below)
        values = (slope[:, None] * A, slope * c)
        yield from _through_layers(network, [*maps, values], more, limits, inner, lo, hi)


def _signs(A, c, bits, rows, rhs, ball, lo, hi) -> Iterator[tuple]:
    """(signs, rows, rhs, a ball inside) of the cells into which the units A x + c cut a cell."""
    if len(bits) == len(A):
        yield bits, rows, rhs, ball
        return
    for bit in (0, 1):
        sign = 2 * bit - 1
        row, limit = -sign * A[len(bits)], sign * c[len(bits)]
        more, limits, inner = rows, rhs, ball
        if np.linalg.norm(row) < 1e-12:
            # A form that vanishes on the cell counts as off.
            if limit < -1e-12 or (bit == 1 and abs(limit) < 1e-12):
                continue
        else:
            more, limits = np.vstack([rows, row]), np.append(rhs, limit)
            inner = _what_is_left(ball, row, limit)
            if inner[1] <= SMALL:
                inner = _largest_ball(more, limits, lo, hi)
            if inner[1] <= SMALL:
                continue
        yield from _signs(A, c, (*bits, bit), more, limits, inner, lo, hi)


def _what_is_left(ball, row, limit) -> tuple[np.ndarray, float]:
    """The ball, as small as row.x <= limit asks for."""
    centre, radius = ball
    return centre, min(radius, float((limit - row @ centre) / np.linalg.norm(row)))


def _largest_ball(rows, rhs, lo, hi) -> tuple[np.ndarray, float]:
    """The largest ball in rows.x <= rhs and the box, of radius 1 at most; -inf if empty."""
    d = rows.shape[1]
    lengths = np.linalg.norm(rows, axis=1)
    extra_rows, extra_rhs = np.zeros((0, d + 1)), np.zeros(0)
    low, high = np.full(d + 1, -np.inf), np.append(np.full(d, np.inf), 1.0)
    if lo is not None:
        eye = np.eye(d)
        extra_rows = np.block([[eye, np.ones((d, 1))], [-eye, np.ones((d, 1))]])
        extra_rhs = np.concatenate([hi, -np.asarray(lo)])
        low[:-1], high[:-1] = lo, hi
    found = minimum(
        np.append(np.zeros(d), -1.0),
        np.concatenate([np.column_stack([rows, lengths]), extra_rows]),
        np.concatenate([rhs, extra_rhs]),
        low,
        high,
    )
    return (np.zeros(d), -np.inf) if found is None else (found[0][:-1], float(found[0][-1]))


def maximum(network: Network, direction, lo, hi) -> float:
    """The largest direction . f over a box."""
    best = -np.inf
    for A, c, rows, rhs in pieces(network, lo, hi):
        found = minimum(-(direction @ A), rows, rhs, lo, hi)
        assert found is not None
        best = max(best, float(direction @ c - found[1]))
    return best


def _compose(affine, maps) -> tuple[np.ndarray, np.ndarray]:
    """The affine map of values that are affine maps of the input."""
    d = maps[0][0].shape[1]
    A, c = np.zeros((affine.size, d)), np.array(affine.bias)
    for source, matrix in affine.terms.items():
        dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        A, c = A + dense @ maps[source][0], c + dense @ maps[source][1]
    return A, c

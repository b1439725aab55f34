"""Under a pattern of its units a network is affine, and so is every unit: composed both ways.

Forward from the input, every map as affine forms (`forms_under`); backward from given derivatives,
those by the input (`pulled_back`). Exact up to the rounding of the products, one per matrix, dense
or sparse as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.matrix import Array
from relunorm.network.layer import Layer

if TYPE_CHECKING:
    from relunorm.network.network import Network


def slopes_under(layers: Iterable[Layer], patterns: NDArray[np.bool_]) -> Iterator[Array]:
    """The slopes of each layer's entries, (..., width), under patterns of shape (..., units)."""
    done = 0
    for layer in layers:
        below, above = layer.activation.slopes
        if layer.has_units:
            yield np.where(patterns[..., done : done + layer.width], above, below)
            done += layer.width
        else:
            yield np.full((*patterns.shape[:-1], layer.width), above)


def forms_under(network: Network, pattern: NDArray[np.bool_]) -> Iterator[Array]:
    """What each map gives, as affine functions of the input under one pattern; the output's last.

    Args:
        network: without step units, whose value is not their slope times what they read.
        pattern: shape (units,).

    Yields:
        rows of d + 1 numbers, the gradient and behind it the constant.
    """
    values: list[Array] = [np.empty(0)]  # the input itself takes no product
    slopes = (*slopes_under(network.layers, pattern), None)
    for affine, slope in zip(network.maps, slopes, strict=True):
        form = np.zeros((affine.size, network.input_size + 1))
        form[:, -1] = affine.bias
        for source, matrix in affine.terms.items():
            if source:
                form += matrix @ values[source]
            else:
                form[:, :-1] += mx.dense(matrix)
        yield form
        if slope is not None:
            values.append(slope[:, None] * form)


def pulled_back(
    layers: Sequence[Layer],
    slopes: Sequence[Array],
    by_value: dict[int, Array],
    visit: Callable[[Layer, Array], None] | None = None,
) -> Array | None:
    """Derivatives by the input, from those by the values behind it; None where none reads it.

    Args:
        slopes: of each layer's entries at n points, (n, width).
        by_value: derivatives of r functions by the values they read, (n, r, width), 0 the input.
        visit: told each layer that counts with the derivatives by what its map gives.
    """
    by_value = dict(by_value)
    for index in range(len(layers) - 1, -1, -1):
        by_result = by_value.pop(index + 1, None)
        if by_result is None:
            continue
        by_result = by_result * slopes[index][:, None, :]
        if visit is not None:
            visit(layers[index], by_result)
        n, rows, width = by_result.shape
        for source, matrix in layers[index].affine.terms.items():
            part = (by_result.reshape(n * rows, width) @ matrix).reshape(n, rows, -1)
            by_value[source] = by_value[source] + part if source in by_value else part
    return by_value.get(0)

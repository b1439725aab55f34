"""Networks with very large or very small weights, brought to size by powers of two.

A unit that is divided by 2^e, with what reads it multiplied by 2^e, leaves the function as it is;
the output divided by 2^e divides the constant. Powers of two are exact, so nothing is lost, and
products and squares of weights such as 1e200 stay within float64.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Layer, Network

#: Exponents of the largest weights of all maps may add up to this without any scaling.
HARMLESS = 400

#: A bias may be as large as two to this, after scaling.
BIAS = 400

#: The exponent of the smallest normal number, and a stand-in for that of 0.
LOWEST, NONE = -1021, -(2**40)

Exponents = NDArray[np.int64]


def to_size(network: Network) -> tuple[Network, int]:
    """A network g and a whole number e with f = 2^e g, whose weights are at most 1 in size.

    A network of ordinary size is returned as it is, with e = 0. Exact.

    Raises:
        InvalidInputError: one unit has numbers so far apart that float64 does not hold them scaled.

    >>> tall = Network.from_weights([[[1e200]], [[1e200]]])
    >>> small, exponent = to_size(tall)
    >>> float(small.output.terms[1][0, 0]) <= 1, exponent
    (True, 1330)
    """
    if sum(_extent(affine) for affine in network.maps) <= HARMLESS:
        return network, 0
    reach: list[Exponents] = [np.zeros(network.input_size, dtype=np.int64)]
    layers: list[Layer] = []
    for index, layer in enumerate(network.layers):
        own = _sizes(layer.affine, reach)
        affine = _scaled(layer.affine, reach, own, f"layer {index} ({layer.name or 'unnamed'})")
        layers.append(Layer(affine, layer.activation, layer.name, layer.shape))
        reach.append(own)
    last = Affine(network.output.terms, np.zeros(network.output.size))  # no slope has its bias
    sizes = _sizes(last, reach)
    top = int(sizes.max()) if len(sizes) else 0
    output = _scaled(last, reach, np.full(last.size, top), "the output")
    return network.replace(layers=layers, output=output), top


def up(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded up: inf above float64, and 0 only for 0.

    >>> up(1.5, 2), up(1.0, 2000), up(1.0, -2000)
    (6.0, inf, 5e-324)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        less = np.ldexp(scaled, -exponent) < value
    return float(np.nextafter(scaled, np.inf) if less else scaled)


def down(value: float, exponent: int) -> float:
    """``value`` 2^``exponent``, rounded down: above float64 the largest number it has.

    >>> down(1.5, 2), down(1.0, 2000), down(1.0, -2000)
    (6.0, 1.7976931348623157e+308, 0.0)
    """
    with np.errstate(all="ignore"):
        scaled = np.ldexp(value, exponent)
        more = np.ldexp(scaled, -exponent) > value or (np.isinf(scaled) and np.isfinite(value))
    return float(np.nextafter(scaled, 0.0) if more else scaled)


def _extent(affine: Affine) -> int:
    """How far the largest weight of any row is from 1, in powers of two."""
    most = 0
    for matrix in affine.terms.values():
        data = abs(matrix)
        rows = mx.dense(data.max(axis=1)).ravel() if min(data.shape) else np.zeros(0)
        most = max(most, int(np.abs(np.frexp(rows[rows > 0])[1]).max(initial=0)))
    return most


def _sizes(affine: Affine, reach: list[Exponents]) -> Exponents:
    """The exponent that brings each row's largest weight below 1 and its bias below 2^`BIAS`."""
    size = np.full(affine.size, NONE, dtype=np.int64)
    for source, matrix in affine.terms.items():
        entries = sp.coo_array(matrix)
        rows, columns = entries.coords
        some = entries.data != 0
        exponents = np.frexp(entries.data)[1] + reach[source][columns]
        np.maximum.at(size, rows[some], exponents[some])
    bias = np.frexp(affine.bias)[1].astype(np.int64)
    size = np.where(affine.bias != 0, np.maximum(size, bias - BIAS), size)
    largest = size[size > NONE].max() if (size > NONE).any() else 0
    return np.where(size == NONE, largest, size)  # rows of zeros may have any


def _scaled(affine: Affine, reach: list[Exponents], own: Exponents, where: str) -> Affine:
    """Rows times 2^-own, the columns of every source times 2^reach of it."""
    terms = {}
    for source, matrix in affine.terms.items():
        entries = sp.coo_array(matrix)
        rows, columns = entries.coords
        shift = reach[source][columns] - own[rows]
        if (np.frexp(entries.data)[1] + shift < LOWEST)[entries.data != 0].any():
            raise InvalidInputError(
                f"{where} has a unit with numbers too far apart for float64 (more than a factor of "
                "2^1000), so no bound can be computed; rescale or remove them"
            )
        data = np.ldexp(entries.data, shift)
        moved = sp.csr_array(sp.coo_array((data, (rows, columns)), shape=entries.shape))
        terms[source] = moved if sp.issparse(matrix) else moved.toarray()
    with np.errstate(under="ignore"):
        return Affine(terms, np.ldexp(affine.bias, -own))

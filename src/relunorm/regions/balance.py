"""Networks with very large or very small numbers, in units of powers of two.

A unit divided by 2^e whose readers multiply it by 2^e leaves the function as it is, since relu and
leaky units are positively homogeneous. Powers of two are exact, so nothing is lost, and squares
and products of weights such as 1e-200 stay within float64. Patterns do not change, so nothing has
to be undone but the inputs' own factors.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.dyadic import Objects, fractions, objects
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Affine, Layer, Network

#: Exponents of the largest weights of all maps may add up to this without any scaling.
HARMLESS = 400

#: A bias may be as large as two to this, after scaling.
BIAS = 400

#: Half-widths of a domain in this range need no scaling.
ORDINARY = (2.0**-100, 2.0**100)

#: The exponent of the smallest normal number, and a stand-in for that of 0.
LOWEST, NONE = -1021, -(2**40)

#: Products of weights of linear stages that are taken in fractions: a second or two.
PRODUCTS = 1_000_000

BEYOND = "the output is beyond float64: rescale the output weights"

APART = (
    "{} has a unit with numbers too far apart for float64 (more than a factor of 2^1000), so the "
    "network cannot be brought to size; rescale or remove them"
)

Exponents = NDArray[np.int64]


def balanced(network: Network) -> Network:
    """The same function and the same patterns, every row's largest weight between 1/2 and 1.

    A network of ordinary size is returned as it is. Exact. The answer is kept with the network.

    >>> tiny = Network.from_weights([[[1e-200]], [[1e200]]])
    >>> float(balanced(tiny).layers[0].affine.terms[0][0, 0]) >= 0.5
    True
    """
    if "balanced" not in network.__dict__:
        biases = max(int(np.frexp(a.bias)[1].max(initial=0)) for a in network.maps)
        ordinary = biases <= BIAS and sum(map(extent, network.maps)) <= HARMLESS
        network.__dict__["balanced"] = None if ordinary else _balance(network)
    return network.__dict__["balanced"] or network


def at_size(network: Network) -> Network:
    """`balanced`, where weights are so small that products with them may lose digits.

    The network as it is where there are none, or where anything would be lost by it.

    >>> tiny = Network.from_weights([[[3e-310]], [[1e200]]])
    >>> float(at_size(tiny).layers[0].affine.terms[0][0, 0]) >= 0.5
    True
    """
    weights = [abs(mx.entries(m)) for affine in network.maps for m in affine.terms.values()]
    if not any(((x < 2.0 ** (LOWEST + 53)) & (x > 0.0)).any() for x in weights):
        return network
    try:
        found = balanced(network)
    except InvalidInputError:
        return network
    faint = any((np.abs(affine.bias) == 2.0**LOWEST).any() for affine in found.maps)
    out = [mx.entries(matrix) for matrix in found.output.terms.values()]
    same = [mx.entries(matrix) for matrix in network.output.terms.values()]
    lost = any((np.abs(x[y != 0.0]) < 2.0**LOWEST).any() for x, y in zip(out, same, strict=True))
    return network if faint or lost else found


def folded(network: Network) -> Network:
    """`Network.folded`; in fractions, each rounded once, where products of weights could be lost.

    Then units may be multiplied by powers of two, by which their readers divide. Networks whose
    products are more than `PRODUCTS` are brought to size and multiplied out in floats.
    """
    if all(layer.has_units for layer in network.layers) or balanced(network) is network:
        return network.folded()
    if _products(network) > PRODUCTS:
        return balanced(network).folded()
    return _rewritten(network, (0, objects([Fraction(1)] * network.input_size)))


def restricted(network: Network, embedding: Array, offset: Array) -> Network:
    """`Network.restricted`, where products of weights could be lost as in `folded`."""
    if balanced(network) is network or _products(network) > PRODUCTS:
        return balanced(network).restricted(embedding, offset)
    inputs = fractions(embedding).reshape(embedding.shape)
    return _rewritten(network, _Fractions({0: inputs}, fractions(offset)))


def _products(network: Network) -> int:
    return sum(affine.nnz for affine in network.maps) * max(network.widths)


def _rewritten(network: Network, inputs: _Fractions | tuple[int, Objects]) -> Network:
    expressed = [inputs]
    layers: list[Layer] = []
    for index, layer in enumerate(network.layers):
        found = _Fractions.of(layer.affine, expressed)
        if layer.has_units:
            where = f"layer {index} ({layer.name or 'unnamed'})"
            own = objects([Fraction(2) ** _middle(row, where) for row in found.rows()])
            layers.append(replace(layer, affine=found.divided(own).floats()))
            expressed.append((len(layers), own))
        else:
            expressed.append(found)
    output = _Fractions.of(network.output, expressed)
    if any(abs(x) >= 2**1023 for row in output.rows() for x in row):
        raise InvalidInputError(BEYOND)
    if isinstance(inputs, _Fractions):
        shape = inputs.terms[0].shape[1:]
        return network.replace(layers=layers, output=output.floats(), input_shape=shape)
    return network.replace(layers=layers, output=output.floats())


class _Fractions(NamedTuple):
    """An affine map without rounding."""

    terms: dict[int, Objects]
    bias: Objects

    @classmethod
    def of(cls, affine: Affine, expressed: list[_Fractions | tuple[int, Objects]]) -> _Fractions:
        """The map, with what it reads expressed by others, or by one value times factors."""
        terms: dict[int, Objects] = {}
        bias = fractions(affine.bias)
        for source, matrix in affine.terms.items():
            weights = fractions(mx.dense(matrix)).reshape(matrix.shape)
            inner = expressed[source]
            if isinstance(inner, _Fractions):
                bias = bias + weights @ inner.bias
                parts = {k: weights @ by for k, by in inner.terms.items()}
            else:
                parts = {inner[0]: weights * inner[1]}
            for k, part in parts.items():
                terms[k] = terms[k] + part if k in terms else part
        return cls(terms, bias)

    def rows(self) -> list[list[Fraction]]:
        return np.column_stack([*self.terms.values(), self.bias]).tolist()

    def divided(self, by: Objects) -> _Fractions:
        return _Fractions({k: m / by[:, None] for k, m in self.terms.items()}, self.bias / by)

    def floats(self) -> Affine:
        terms = {k: matrix.astype(np.float64) for k, matrix in self.terms.items()}
        return Affine(terms, self.bias.astype(np.float64))


def _middle(row: list[Fraction], where: str) -> int:
    """The power of two that brings all numbers of a row into float64; 0 where they are in it."""
    powers = [x.numerator.bit_length() - x.denominator.bit_length() for x in row if x]
    least, most = min(powers, default=0), max(powers, default=0)
    if most - least > -2 * LOWEST - 60:
        raise InvalidInputError(APART.format(where))
    return 0 if least > LOWEST + 10 and most < -LOWEST - 10 else (least + most) // 2


def lossless(network: Network) -> bool:
    """Whether no product of weights along a path, nor of a bias with them, can leave float64.

    >>> lossless(Network.from_weights([[[1e-200]], [[1e-200]], [[1e300]]]))
    False
    """
    least, most = 0, 0
    steep = [abs(s) for layer in network.layers for s in layer.activation.slopes if s]
    for power in np.frexp(np.array(steep))[1].tolist():
        least, most = least + min(power, 0), most + max(power, 0)
    for affine in network.maps:
        entries = [mx.entries(matrix).ravel() for matrix in affine.terms.values()]
        sizes = np.frexp(np.concatenate([affine.bias, *entries]))
        powers = sizes[1][sizes[0] != 0.0]
        least += int(min(powers.min(initial=0), 0))
        most += int(max(powers.max(initial=0), 0)) + affine.size.bit_length()
    return least > LOWEST + 53 and most < -LOWEST


def balanced_for(network: Network, exponents: Exponents) -> Network:
    """`balanced`, as a function of the inputs in units of 2^exponents."""
    return _balance(network, exponents)


def to_size(network: Network, harmless: float = HARMLESS) -> tuple[Network, int]:
    """A network g and a whole number e with f = 2^e g, whose weights are at most 1 in size.

    A network of ordinary size is returned as it is, with e = 0. Exact.

    Args:
        harmless: powers of two that the weights along a path may be worth, as they are.

    >>> tall = Network.from_weights([[[1e200]], [[1e200]]])
    >>> small, exponent = to_size(tall)
    >>> float(small.output.terms[1][0, 0]) <= 1, exponent
    (True, 1330)
    """
    if sum(extent(affine) for affine in network.maps) <= harmless:
        return network, 0
    layers, reach = balanced_layers(network, np.zeros(network.input_size, dtype=np.int64))
    last = Affine(network.output.terms, np.zeros(network.output.size))  # no slope has its bias
    tops = sizes(last, reach)
    top = int(tops.max()) if len(tops) else 0
    output = without_loss(last, reach, np.full(last.size, top), "the output")
    return network.replace(layers=layers, output=output), top


def exponents_of(half: Array, offset: Array) -> Exponents | None:
    """Powers of two near the half-widths of a box; None where all are of ordinary size."""
    low, high = ORDINARY
    if all(low < size < high or size == 0.0 for size in half.tolist()):
        return None
    return np.frexp(np.where(half > 0, half, np.abs(offset)))[1].astype(np.int64)


def _balance(network: Network, exponents: Exponents | None = None) -> Network:
    if exponents is None:
        exponents = np.zeros(network.input_size, dtype=np.int64)
    layers, reach = balanced_layers(network, exponents)
    output = _scaled(network.output, reach, np.zeros(network.output.size, dtype=np.int64))
    if not all(np.isfinite(mx.entries(matrix)).all() for matrix in output.terms.values()):
        raise InvalidInputError(BEYOND)
    return network.replace(layers=layers, output=Affine(output.terms, network.output.bias))


def balanced_layers(network: Network, exponents: Exponents) -> tuple[list[Layer], list[Exponents]]:
    """The hidden layers in units of powers of two, and those of every value, the input's first."""
    reach = [exponents]
    layers: list[Layer] = []
    for index, layer in enumerate(network.layers):
        own = sizes(layer.affine, reach)
        where = f"layer {index} ({layer.name or 'unnamed'})"
        affine = without_loss(layer.affine, reach, own, where)
        layers.append(Layer(affine, layer.activation, layer.name, layer.shape))
        reach.append(own)
    return layers, reach


def extent(affine: Affine) -> int:
    """How far the largest weight of any row is from 1, in powers of two."""
    most = 0
    for matrix in affine.terms.values():
        rows = mx.row_maxima(matrix)
        most = max(most, int(np.abs(np.frexp(rows[rows > 0])[1]).max(initial=0)))
    return most


def sizes(affine: Affine, reach: list[Exponents]) -> Exponents:
    """The exponent that brings each row's largest weight below 1 and its bias below 2^`BIAS`.

    Where a row has no weights, its bias is brought below 1: what is larger than need be leaves less
    room for what reads it.
    """
    size = np.full(affine.size, NONE, dtype=np.int64)
    for source, matrix in affine.terms.items():
        entries = sp.coo_array(matrix)
        rows, columns = entries.coords
        some = entries.data != 0
        exponents = np.frexp(entries.data)[1] + reach[source][columns]
        np.maximum.at(size, rows[some], exponents[some])
    bias = np.frexp(affine.bias)[1].astype(np.int64)
    least = np.where(size == NONE, bias, bias - BIAS)
    size = np.where(affine.bias != 0, np.maximum(size, least), size)
    # A bias that would be lost beside large weights keeps them large, as far as squares allow.
    faint = (affine.bias != 0) & (bias - size < LOWEST)
    size = np.where(faint, np.maximum(bias - LOWEST, size - BIAS), size)
    largest = size[size > NONE].max() if (size > NONE).any() else 0
    return np.where(size == NONE, largest, size)  # rows of zeros may have any


def without_loss(affine: Affine, reach: list[Exponents], own: Exponents, where: str) -> Affine:
    """Rows times 2^-own, the columns of every source times 2^reach of it; refuses underflow."""
    for source, matrix in affine.terms.items():
        entries = sp.coo_array(matrix)
        rows, columns = entries.coords
        shift = reach[source][columns] - own[rows]
        if (np.frexp(entries.data)[1] + shift < LOWEST)[entries.data != 0].any():
            raise InvalidInputError(APART.format(where))
    return _scaled(affine, reach, own)


def _scaled(affine: Affine, reach: list[Exponents], own: Exponents) -> Affine:
    terms = {}
    with np.errstate(under="ignore", over="ignore"):
        for source, matrix in affine.terms.items():
            entries = sp.coo_array(matrix)
            rows, columns = entries.coords
            data = np.ldexp(entries.data, reach[source][columns] - own[rows])
            moved = sp.csr_array(sp.coo_array((data, (rows, columns)), shape=entries.shape))
            terms[source] = moved if sp.issparse(matrix) else moved.toarray()
        bias = np.ldexp(affine.bias, -own)
        # Where all that a unit reads is off its bias alone decides: it may shrink, but not to 0.
        faint = np.copysign(2.0**LOWEST, affine.bias)
        return Affine(
            terms, np.where((np.abs(bias) < np.abs(faint)) & (affine.bias != 0), faint, bias)
        )

"""`FloatNetwork`: the same program in single precision, for targets that compute with floats.

Its rounding is bounded by the difference bounds of the integer program. A sum of n products in any
order, fused or not, is off by at most gamma(n + 1) times the sum of the sizes (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., section 3.1), plus what underflow can lose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.bounds.pairs.linear import Ends
from relunorm.domain import Box
from relunorm.embedded.arithmetic.integers import chosen
from relunorm.embedded.arithmetic.terms import Integers, Layered, Rows, Term, geometry_of, term_of
from relunorm.embedded.proof.distance import Change, Rounding
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.layer import Kind

#: Unit roundoff and the smallest normal number of single precision.
UNIT, LEAST = 2.0**-24, 2.0**-126


@dataclass(frozen=True, eq=False)
class FloatMap(Rows):
    """An affine map in single precision."""

    terms: Mapping[int, Term]
    bias: NDArray[np.float32]
    weight_type: str = "float"
    accumulator: str = "float"

    def real(self) -> Affine:
        """The map in real numbers."""
        terms = {s: term.matrix.astype(np.float64) for s, term in self.terms.items()}
        return Affine(terms, self.bias.astype(np.float64))


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """An affine map and an activation in single precision."""

    affine: FloatMap
    kind: Kind
    slope: float = 0.0
    at_zero: float = 0.0
    shape: tuple[int, ...] = ()
    name: str = ""
    value_type: str = "float"


@dataclass(frozen=True, eq=False, repr=False)
class FloatNetwork(Layered):
    """A network in single precision: what the float program computes, up to the order of sums."""

    input_low: NDArray[np.float32]
    input_high: NDArray[np.float32]
    layers: tuple[FloatLayer, ...]
    output: FloatMap
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...] = ()
    input_type: str = "float"

    @property
    def input_size(self) -> int:
        """Entries of one input."""
        return len(self.input_low)

    def dequantized(self) -> Network:
        """The network of its weights, in real arithmetic."""
        layers = [
            Layer(x.affine.real(), Activation(x.kind, x.slope, x.at_zero), x.name, x.shape)
            for x in self.layers
        ]
        return Network(
            layers, self.output.real(), input_shape=self.input_shape, output_shape=self.output_shape
        )

    @property
    def output_type(self) -> str:
        """C type of the outputs."""
        return "float"

    def __call__(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Inputs to outputs, bit for bit what the program gives where no product is fused.

        Every sum is taken from left to right as in C; `predict` is faster.
        """
        return self._run(inputs, _from_left_to_right)

    def predict(self, inputs: ArrayLike) -> Array:
        """Inputs to outputs in single precision, sums in whatever order is fast."""
        fast = self._run(inputs, lambda total, value, matrix: total + value @ matrix.T)
        return fast.astype(np.float64)

    def classes(self, inputs: ArrayLike) -> Integers:
        """The class of inputs: the first largest output; for one output whether it is > 0."""
        return chosen(np.atleast_2d(self(inputs)))

    def exact(self, inputs: ArrayLike) -> list[Fraction]:
        """The outputs for one input, as fractions."""
        return [Fraction(float(y)) for y in self(np.asarray(inputs).reshape(1, -1))[0]]

    def _run(self, inputs: ArrayLike, add: Callable[..., Any]) -> NDArray[np.float32]:
        batch = np.asarray(inputs, dtype=np.float32)
        single = batch.ndim == 1
        batch = batch.reshape(-1, self.input_size)
        # as the program clamps: what is not a number becomes the lower end
        batch = np.where(batch >= self.input_low, batch, self.input_low)
        values: list[Any] = [np.where(batch > self.input_high, self.input_high, batch)]
        for index, affine in enumerate(self.maps):
            total = np.tile(affine.bias, (len(batch), 1))
            for source, term in affine.terms.items():
                total = add(total, values[source], term.matrix)
            if index < len(self.layers):
                layer = self.layers[index]
                act = Activation(layer.kind, layer.slope, layer.at_zero)
                total = act.apply_(total.astype(np.float64)).astype(np.float32)
            values.append(total)
        return values[-1][0] if single else values[-1]

    def __repr__(self) -> str:
        widths = "-".join(str(n) for n in (self.input_size, *(m.size for m in self.maps)))
        return f"FloatNetwork({widths})"


class FloatRounding(Rounding):
    """A float network as the difference sees it."""

    def __init__(self, network: Network, program: FloatNetwork):
        self.network, self.program = network, program
        self.change = Change(self)
        for theirs, ours in zip(network.maps, program.maps, strict=True):
            self.change.add(theirs, ours.real())

    @property
    def input_error(self) -> Vector:
        """An input rounded to single precision."""
        size = np.maximum(np.abs(self.program.input_low), np.abs(self.program.input_high))
        return np.nextafter(size.astype(np.float64) * (UNIT * (1 + UNIT)) + LEAST, np.inf)

    def before(self, index: int, spans: list[Vector]) -> Vector:
        """The rounding of a sum."""
        affine, terms = self.program.maps[index], self.change.maps[index].V_size
        count = np.ones(affine.size)
        size = np.abs(affine.bias).astype(np.float64)
        for source, matrix in terms.items():
            count = count + _per_row(matrix)
            size = size + matrix @ spans[source]
        share = 2 * (count + 2) * UNIT
        if (share >= 0.5).any():
            raise InvalidInputError("a sum has too many terms for single precision")
        return np.nextafter(share / (1 - share) * size * (1 + 1e-12) + count * LEAST, np.inf)

    def after(self, index: int, lower: Vector, upper: Vector) -> Vector:
        """The product with a leaky unit's slope, and the slope's own rounding."""
        del upper
        layer, activation = self.program.layers[index], self.network.layers[index].activation
        if layer.kind == "leaky":
            below = np.maximum(-lower, 0.0)
            moved = abs(layer.slope - activation.slope) + 2 * UNIT * abs(layer.slope)
            return np.nextafter(moved * below * (1 + 1e-12) + LEAST, np.inf)
        if layer.kind == "step":
            return np.full(len(lower), abs(layer.at_zero - activation.at_zero))
        return np.zeros(len(lower))

    def hull(self, value: int) -> Ends | None:
        """Known for the input alone."""
        if value:
            return None
        low, high = self.program.input_low, self.program.input_high
        return low.astype(np.float64), high.astype(np.float64)


def build_floats(network: Network, box: Box) -> FloatNetwork:
    """The network in single precision, inputs clamped to a box."""
    shapes = [network.input_shape, *(layer.shape for layer in network.layers)]
    outs = [*shapes[1:], network.output_shape]
    maps = [
        FloatMap(
            {
                s: term_of(m, geometry_of(m, shapes[s], outs[i]), shapes[s], outs[i], _single)
                for s, m in affine.terms.items()
            },
            mx.narrowed(affine.bias, np.float32, f"layer {i + 1}"),
        )
        for i, affine in enumerate(network.maps)
    ]
    layers = tuple(
        FloatLayer(
            affine,
            layer.activation.kind,
            float(np.float32(layer.activation.slope)),
            float(np.float32(layer.activation.at_zero)),
            layer.shape,
            layer.name,
        )
        for affine, layer in zip(maps, network.layers, strict=False)
    )
    low = mx.narrowed(box.lo, np.float32, "the domain")
    high = mx.narrowed(box.hi, np.float32, "the domain")
    return FloatNetwork(low, high, layers, maps[-1], network.input_shape, network.output_shape)


def _single(values: Any, *_: Any) -> Any:
    return mx.narrowed(values, np.float32, "a matrix")


def _from_left_to_right(total: Any, value: Any, matrix: Any) -> Any:
    """``total + value @ matrix.T`` in single precision, one column after another."""
    by_column = sp.csc_array(matrix)
    for j in range(matrix.shape[1]):
        part = slice(by_column.indptr[j], by_column.indptr[j + 1])
        total[:, by_column.indices[part]] += by_column.data[part] * value[:, j : j + 1]
    return total


def _per_row(matrix: Any) -> Vector:
    if sp.issparse(matrix):
        return np.diff(matrix.indptr).astype(np.float64)
    return np.full(matrix.shape[0], float(matrix.shape[1]))

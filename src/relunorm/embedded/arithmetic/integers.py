"""`IntegerNetwork`: the program as numpy sees it, bit for bit.

A real value v is held as an integer q with v = q * 2^-s. Entry j of value k has its own exponent
``s``, so a row of an affine map is

    acc = bias_i + sum_j w_ij q_j,      real value acc * 2^-a_i,   w_ij = round(W_ij 2^(a_i - s_j))

added up from left to right in one accumulator, then rounded to the row's output exponent with

    (acc + 2^(h-1)) >> h,               h = a_i - s_i: to nearest, halves towards plus infinity.

``>>`` is division by 2^h rounded down, for negative numbers too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from relunorm.embedded.arithmetic.terms import Integers, Layered, Rows, Term
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.layer import Kind

#: Names of C types, narrowest first, with the smallest and largest number they hold.
RANGES = {
    "int8_t": (-(2**7), 2**7 - 1),
    "uint8_t": (0, 2**8 - 1),
    "int16_t": (-(2**15), 2**15 - 1),
    "uint16_t": (0, 2**16 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "uint32_t": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
}
#: Bits that weights, inputs and values can have.
WIDTHS = (8, 16, 32)
#: Types an accumulator can have.
ACCUMULATORS = ("int16_t", "int32_t", "int64_t")


def size_of(kind: str) -> int:
    """Bytes of a C type."""
    return int("".join(filter(str.isdigit, kind))) // 8


def narrowest(low: int, high: int, kinds: tuple[str, ...] = tuple(RANGES)) -> str | None:
    """The first of these types that holds all of [low, high]; None if none does."""
    return next((k for k in kinds if RANGES[k][0] <= low and high <= RANGES[k][1]), None)


@dataclass(frozen=True, eq=False)
class IntegerMap(Rows):
    """An affine map in integers.

    Attributes:
        exponent: a: the sum of row i stands for the real number sum * 2^-a_i.
    """

    terms: Mapping[int, Term]
    bias: Integers
    exponent: Integers
    weight_type: str
    accumulator: str

    def __call__(self, values: list[Any]) -> Integers:
        """The sums of a batch; ``values[k]`` has shape (n, size of value k)."""
        total = np.tile(self.bias, (len(values[0]), 1))
        for source, term in self.terms.items():
            total += _product(values[source], term.matrix)
        return total


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """An affine map, an activation, and a rounding to the layer's own exponents.

    Attributes:
        exponent: s: entry i of the value stands for q * 2^-s_i.
        slope: for leaky: (m, k), the slope below 0 being m * 2^-k.
        levels: for step: the integers of a unit that is on, and at 0.
    """

    affine: IntegerMap
    kind: Kind
    exponent: Integers
    value_type: str
    slope: tuple[int, int] = (0, 0)
    levels: tuple[int, int] = (0, 0)
    shape: tuple[int, ...] = ()
    name: str = ""

    @cached_property
    def shift(self) -> Integers:
        """h: how many bits each row loses."""
        return self.affine.exponent - self.exponent

    def activate(self, sums: Integers) -> Integers:
        """Sums to values, bit for bit as the program does it."""
        if self.kind == "step":
            on, at_zero = self.levels
            return np.where(sums > 0, on, np.where(sums == 0, at_zero, 0))
        half = (np.int64(1) << self.shift) >> 1
        value = (sums + half) >> self.shift
        if self.kind == "relu":
            return np.maximum(value, 0)
        if self.kind == "leaky":
            m, k = self.slope
            return np.where(value < 0, (value * m + ((1 << k) >> 1)) >> k, value)
        return value


@dataclass(frozen=True, eq=False, repr=False)
class IntegerInputs:
    """What a program of integers takes.

    Attributes:
        input_exponent: entry j of an input stands for q * 2^-s_j.
        input_low, input_high: inputs are clamped to this box of integers first.
    """

    input_exponent: Integers
    input_low: Integers
    input_high: Integers
    input_type: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]

    @property
    def input_size(self) -> int:
        """Entries of one input."""
        return len(self.input_exponent)

    def quantize(self, inputs: ArrayLike) -> Integers:
        """Real inputs to the nearest integers the program takes, halves towards plus infinity."""
        batch = np.asarray(inputs, dtype=np.float64)
        if np.isnan(batch).any():
            raise InvalidInputError("an input is NaN, and no integer stands for that")
        if batch.shape[-1:] != (self.input_size,):
            batch = batch.reshape(-1, self.input_size)
        scaled = np.ldexp(batch, self.input_exponent.astype(np.int32))
        # clamp before adding the half, which would round numbers beyond 2^53
        scaled = np.clip(scaled, self.input_low - 1.0, self.input_high + 1.0)
        whole = np.floor(scaled)
        whole += scaled - whole >= 0.5
        return np.clip(whole.astype(np.int64), self.input_low, self.input_high)


class IntegerProgram(IntegerInputs, ABC):
    """What every program of integers has: inputs and outputs that stand for real numbers.

    Attributes:
        output_exponent: an output y stands for y * 2^-this.
    """

    if TYPE_CHECKING:  # a field of some programs, and found by others

        @property
        def output_exponent(self) -> int: ...

    @property
    @abstractmethod
    def output_type(self) -> str:
        """C type of the outputs."""

    @property
    @abstractmethod
    def multiplications(self) -> int:
        """Products in one evaluation."""

    @abstractmethod
    def __call__(self, inputs: ArrayLike) -> Integers:
        """Integer inputs to integer outputs: shape (n, outputs), or (outputs,) for one input."""

    def dequantize(self, outputs: ArrayLike) -> Array:
        """Integer outputs as real numbers."""
        return np.ldexp(np.asarray(outputs, dtype=np.float64), -self.output_exponent)

    def predict(self, inputs: ArrayLike) -> Array:
        """Real inputs to real outputs, by way of integers."""
        return self.dequantize(self(self.quantize(inputs)))

    def classes(self, inputs: ArrayLike) -> Integers:
        """The class of real inputs: the first largest output; for one output whether it is > 0."""
        return chosen(np.atleast_2d(self(self.quantize(inputs))))

    def exact(self, inputs: ArrayLike) -> list[Fraction]:
        """The outputs for one real input, as the numbers that they stand for."""
        outputs = self(self.quantize(np.asarray(inputs).reshape(1, -1)))[0]
        return [Fraction(y) / Fraction(2) ** self.output_exponent for y in outputs.tolist()]


@dataclass(frozen=True, eq=False, repr=False)
class IntegerNetwork(Layered, IntegerProgram):
    """A network of integers: what the C program computes.

    Attributes:
        layers, output: the maps; the output's sums leave the program as they are.
    """

    layers: tuple[IntegerLayer, ...]
    output: IntegerMap

    @property
    def output_exponent(self) -> int:
        """An output y stands for y * 2^-this."""
        return int(self.output.exponent[0])

    @property
    def output_type(self) -> str:
        """C type of the outputs."""
        return self.output.accumulator

    def exponents(self, value: int) -> Integers:
        """The exponents of value k (0 is the input)."""
        return self.layers[value - 1].exponent if value else self.input_exponent

    def __call__(self, inputs: ArrayLike) -> Integers:
        """Integer inputs to integer outputs: shape (n, outputs), or (outputs,) for one input."""
        batch = np.asarray(inputs)
        if batch.dtype.kind not in "iu":
            raise InvalidInputError(
                f"inputs of type {batch.dtype}, expected integers; use quantize, or predict"
            )
        shape = tuple(self.input_shape)
        if batch.shape[-1:] != (self.input_size,) and batch.shape[-len(shape) :] != shape:
            raise InvalidInputError(
                f"inputs of shape {batch.shape}, expected rows of {self.input_size} integers"
            )
        single = batch.ndim == 1
        batch = batch.reshape(-1, self.input_size).astype(np.int64)
        step = max(1, (1 << 22) // max(m.size for m in (*self.maps, self.output)))
        result = np.empty((len(batch), self.output.size), dtype=np.int64)
        for start in range(0, len(batch), step):
            values = self.values(batch[start : start + step])
            result[start : start + step] = self.output(values)
        return result[0] if single else result

    def values(self, batch: Integers) -> list[Integers]:
        """The clamped input and every layer's integers."""
        values = [np.clip(batch, self.input_low, self.input_high)]
        for layer in self.layers:
            values.append(layer.activate(layer.affine(values)))
        return values

    def dequantized(self) -> Network:
        """The real network with the rounded weights, which no value is rounded in."""
        layers = []
        for layer in self.layers:
            m, k = layer.slope
            on, at_zero = layer.levels
            level = at_zero / on if layer.kind == "step" else 0.5
            act = Activation(layer.kind, math.ldexp(m, -k), level)
            layers.append(Layer(real_map(self, layer.affine), act, layer.name, layer.shape))
        return Network(
            layers,
            real_map(self, self.output),
            input_shape=self.input_shape,
            output_shape=self.output_shape,
        )

    def __repr__(self) -> str:
        widths = "-".join(str(n) for n in (self.input_size, *(m.size for m in self.maps)))
        kinds = sorted({m.weight_type for m in self.maps}, key=size_of)
        return f"IntegerNetwork({widths}, weights {' and '.join(kinds)})"


def chosen(outputs: NDArray[Any]) -> Integers:
    """The class behind rows of outputs: the first largest; for one output whether it is > 0."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.int64)
    return np.argmax(outputs, axis=1).astype(np.int64)


def real_map(network: IntegerNetwork, affine: IntegerMap) -> Affine:
    """The affine map of real numbers that the integers stand for."""
    terms: dict[int, Any] = {}
    for source, term in affine.terms.items():
        inner = network.exponents(source)
        matrix = term.matrix
        if sp.issparse(matrix):
            rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            power = inner[matrix.indices] - affine.exponent[rows]
            data = _real(matrix.data, power)
            terms[source] = sp.csr_array((data, matrix.indices, matrix.indptr), matrix.shape)
        else:
            terms[source] = _real(matrix, inner[None, :] - affine.exponent[:, None])
    return Affine(terms, _real(affine.bias, -affine.exponent))


def _real(integers: Integers, power: Integers) -> Array:
    floats = integers.astype(np.float64)
    if not (np.abs(floats) < 2.0**63).all() or (floats.astype(np.int64) != integers).any():
        raise InvalidInputError("an integer of the tables is not a float")
    return np.ldexp(floats, power.astype(np.int32))


def _product(values: Integers, matrix: Any) -> Integers:
    """``values @ matrix.T`` exactly: in floats while every sum is an integer below 2^53."""
    size = np.abs(values).max(axis=0, initial=0).astype(np.float64)
    if len(size) and float((abs(matrix).astype(np.float64) @ size).max(initial=0.0)) < 2.0**52:
        product = values.astype(np.float64) @ matrix.T.astype(np.float64)
        return np.asarray(product).astype(np.int64)
    product = values @ matrix.T
    return np.asarray(product)

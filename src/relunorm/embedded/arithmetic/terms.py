"""Integer matrices as a program stores them: dense rows, one kernel for all positions, or a list.

A term is the part of an affine map that reads one earlier value. Every kind adds its products row
by row with the columns in rising order, which is the order the range proof speaks of.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.io.graph.windows import Convolution, convolution, recover_convolution
from relunorm.matrix import Array, Matrix
from relunorm.network import Affine, Network
from relunorm.network.structure import Geometry

Integers = NDArray[np.int64]


class Stored:
    """What every kind of term answers."""

    @property
    @abstractmethod
    def matrix(self) -> Any:
        """The weights as one matrix."""

    @property
    def multiplications(self) -> int:
        """Products in one evaluation."""
        return int(self.matrix.nnz if sp.issparse(self.matrix) else self.matrix.size)


@dataclass(frozen=True, eq=False)
class Dense(Stored):
    """Every weight, row after row."""

    weight: Integers

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.weight.shape  # type: ignore[return-value]

    @property
    def matrix(self) -> Any:
        """The weights as one matrix."""
        return self.weight

    def geometry(self) -> dict[str, Any]:
        """Everything but the weights, JSON-safe."""
        return {"kind": "dense", "shape": list(self.shape)}


@dataclass(frozen=True, eq=False)
class Listed(Stored):
    """The entries that are not zero: weight, column, and where each row ends."""

    weight: Integers
    column: Integers
    end: Integers
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self.end), self.columns

    @cached_property
    def matrix(self) -> Any:
        """The weights as one sparse matrix."""
        parts = (self.weight, self.column, np.concatenate([[0], self.end]))
        return sp.csr_array(parts, shape=self.shape)

    def geometry(self) -> dict[str, Any]:
        """Everything but the tables, JSON-safe."""
        return {"kind": "listed", "shape": list(self.shape)}


@dataclass(frozen=True, eq=False)
class Kernel(Stored):
    """A convolution: one kernel for all positions."""

    weight: Integers
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return math.prod(self.shape_out), math.prod(self.shape_in)

    @cached_property
    def matrix(self) -> Any:
        """The weights as one sparse matrix."""
        weight = self.weight.astype(np.float64)
        geometry = Geometry(weight.shape[2:], self.stride, self.pads, self.dilation)
        lowered, shape = convolution(weight, self.shape_in, geometry, self.groups)
        if shape != tuple(self.shape_out):
            raise InvalidNetworkError(f"a convolution gives {shape}, not {self.shape_out}")
        whole = sp.csr_array(lowered)
        data = whole.data.astype(self.weight.dtype)  # int32 weights and less are exact in float64
        return sp.csr_array((data, whole.indices, whole.indptr), shape=whole.shape)

    def geometry(self) -> dict[str, Any]:
        """Everything but the weights, JSON-safe."""
        return {
            "kind": "kernel",
            "weight": list(self.weight.shape),
            "shape_in": list(self.shape_in),
            "shape_out": list(self.shape_out),
            "stride": list(self.stride),
            "pads": [list(pair) for pair in self.pads],
            "dilation": list(self.dilation),
            "groups": self.groups,
        }


Term = Dense | Listed | Kernel


@dataclass(frozen=True, eq=False)
class Rows:
    """What affine maps of every kind of number answer."""

    terms: Mapping[int, Term]
    bias: NDArray[Any]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.bias)

    @property
    def multiplications(self) -> int:
        """Products in one evaluation."""
        return sum(term.multiplications for term in self.terms.values())


class Layered:
    """What programs answer that run layer after layer."""

    if TYPE_CHECKING:  # fields of the programs, each in its own place among the others

        @property
        def layers(self) -> tuple[Any, ...]: ...

        @property
        def output(self) -> Any: ...

    @property
    def maps(self) -> tuple[Any, ...]:
        """Every affine map, the output's last."""
        return (*(layer.affine for layer in self.layers), self.output)

    @property
    def multiplications(self) -> int:
        """Products in one evaluation."""
        return sum(m.multiplications for m in self.maps)


def without_empty_terms(network: Network) -> Network:
    """The same network without matrices that are zero, for which C has no table."""

    def cleaned(affine: Affine) -> Affine:
        kept = {s: m for s, m in affine.terms.items() if np.any(mx.entries(m))}
        return affine if len(kept) == len(affine.terms) else Affine(kept, affine.bias)

    layers = [dataclasses.replace(x, affine=cleaned(x.affine)) for x in network.layers]
    return network.replace(layers=layers, output=cleaned(network.output))


def geometry_of(
    matrix: Matrix, shape_in: tuple[int, ...], shape_out: tuple[int, ...]
) -> Convolution | None:
    """The convolution behind a float matrix, where there is one worth a loop."""
    if len(shape_in) < 2 or len(shape_out) < 2 or mx.is_identity(matrix):
        return None
    if math.prod(shape_out[1:]) == 1 and not sp.issparse(matrix) and matrix.all():
        return None  # one window that reads everything is a matrix
    return recover_convolution(sp.csr_array(matrix), shape_in, shape_out)


def stored_numbers(network: Network) -> int:
    """How many numbers the tables of a network hold: a kernel once, however often it is used."""
    shapes = [network.input_shape, *(layer.shape for layer in network.layers)]
    outs = [*shapes[1:], network.output_shape]
    total = 0
    for index, affine in enumerate(network.maps):
        total += affine.size
        for source, matrix in affine.terms.items():
            conv = geometry_of(matrix, shapes[source], outs[index])
            if conv is not None:
                total += conv.weight.size
            elif isinstance(matrix, np.ndarray):
                total += matrix.size
            else:
                total += 2 * matrix.nnz + matrix.shape[0]
    return total


def term_of(
    matrix: Matrix,
    conv: Convolution | None,
    shape_in: tuple[int, ...],
    shape_out: tuple[int, ...],
    narrow: Callable[..., Any],
) -> Term:
    """A float matrix as a program stores it.

    Args:
        narrow: the numbers of the program from real ones and their places: rows and columns, of a
            convolution those of its channels.
    """
    if conv is not None:
        outs, per_group = conv.weight.shape[:2]
        group = np.arange(outs) // (outs // conv.groups)
        ones = (1,) * (conv.weight.ndim - 2)
        rows = np.arange(outs).reshape(-1, 1, *ones)
        channels = (group[:, None] * per_group + np.arange(per_group)).reshape(outs, -1, *ones)
        weight = narrow(conv.weight, rows, channels)
        g = conv.geometry
        return Kernel(weight, shape_in, shape_out, g.stride, g.pads, g.dilation, conv.groups)
    if not sp.issparse(matrix):
        return Dense(narrow(matrix, *np.ogrid[: matrix.shape[0], : matrix.shape[1]]))
    rows, columns, values = mx.triples(matrix)
    ends = np.cumsum(np.bincount(rows, minlength=matrix.shape[0]))
    return Listed(narrow(values, rows, columns), columns.astype(np.int64), ends, matrix.shape[1])


def term_from(geometry: dict[str, Any], tables: dict[str, Integers]) -> Term:
    """The term a certificate describes, with the tables of a program."""
    kind, weight = geometry["kind"], tables["weight"]
    if kind == "dense":
        rows, columns = map(int, geometry["shape"])
        return Dense(_shaped(weight, (rows, columns)))
    if kind == "kernel":
        return Kernel(
            _shaped(weight, tuple(map(int, geometry["weight"]))),
            tuple(map(int, geometry["shape_in"])),
            tuple(map(int, geometry["shape_out"])),
            tuple(map(int, geometry["stride"])),
            tuple((int(a), int(b)) for a, b in geometry["pads"]),
            tuple(map(int, geometry["dilation"])),
            int(geometry["groups"]),
        )
    if kind == "listed":
        rows, columns = map(int, geometry["shape"])
        end, column = _shaped(tables["end"], (rows,)), tables["column"]
        steps = np.diff(end, prepend=0)
        fits = (steps >= 0).all() and len(weight) == len(column) == (end[-1] if rows else 0)
        if not fits or (len(column) and not (0 <= column.min() <= column.max() < columns)):
            raise InvalidInputError("a table of columns does not fit its matrix")
        inside = np.ones(len(column), dtype=bool)
        inside[np.concatenate([[0], end])[:-1][steps > 0]] = False
        if (np.diff(column, prepend=0)[inside] <= 0).any():
            raise InvalidInputError("a table of columns is not in rising order")
        return Listed(weight, column, end, columns)
    raise InvalidInputError(f"a term has kind {kind!r}, expected dense, kernel or listed")


def rounded(values: Array, exponent: Integers) -> Integers:
    """``round(values * 2^exponent)`` to the nearest integer; scaling by 2^e is exact."""
    scaled = np.ldexp(values, exponent.astype(np.int32))
    if len(scaled) and not np.abs(scaled).max(initial=0.0) < 2.0**62:
        raise InvalidInputError("a weight does not fit 63 bits at its scale")
    return np.rint(scaled).astype(np.int64)


def _shaped(table: Integers, shape: tuple[int, ...]) -> Integers:
    if table.size != math.prod(shape):
        raise InvalidInputError(f"a table has {table.size} entries, expected {math.prod(shape)}")
    return table.reshape(shape)

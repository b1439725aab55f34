"""The one way a network is rewritten: old values are expressed through new ones.

Walking from the input up, a form decides for every layer which new units to emit and how the old
layer's values are recovered from the new ones, as an affine map. Later maps are then substituted.
Dropping, merging, scaling and splitting units, folding constants into the next bias and folding
linear units into skip connections are all of this shape, and none needs its own code.

A rewrite whose numbers leave the range of float64 is refused: relu(z) = s relu(z / s) holds in
floating point only while neither side underflows or overflows, and a weight that silently becomes 0
is another function as soon as a later weight is large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.layer import whole

#: Where a unit of a rewritten network comes from: (layer, unit) of the original, or None.
Origin: TypeAlias = "tuple[int, int] | None"
Product: TypeAlias = "Callable[[Matrix, Matrix], Matrix]"


class Rewriter:
    """Builds a network layer by layer while old values are expressed through new ones.

    Args:
        network: the old network, without linear stages (`Network.folded`).
        product: the matrix product used in substitutions. `multiply` is the fast default;
            `shapes.canonical.product` makes the result independent of the order of the units.
    """

    def __init__(self, network: Network, product: Product | None = None):
        self.network = network
        self.product = product or multiply
        self.layers: list[Layer] = []
        self.origins: list[list[Origin]] = []
        self.expressed: list[Affine] = [whole(0, network.input_size)]

    def incoming(self, affine: Affine) -> Affine:
        """An old affine map, in terms of the new values."""
        terms: dict[int, Matrix] = {}
        bias = affine.bias.copy()
        losing = np.zeros(affine.size, dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):  # checked once, at the end
            for source, matrix in affine.terms.items():
                inner = self.expressed[source]
                if inner.bias.any():
                    column = inner.bias[:, None]
                    bias = bias + mx.dense(self.product(matrix, column)).ravel()
                    losing |= losing_rows(matrix, column)
                for k, inner_matrix in inner.terms.items():
                    part = self.product(matrix, inner_matrix)
                    terms[k] = mx.add(terms[k], part) if k in terms else part
                    losing |= losing_rows(matrix, inner_matrix)
        result = Affine({k: mx.compact(m) for k, m in terms.items()}, bias)
        check_rows(result, losing, self._place)
        return result

    @property
    def _place(self) -> str:
        """The map that is being rewritten, for messages."""
        k = len(self.expressed) - 1
        if k >= len(self.network.layers):
            return "the output"
        name = self.network.layers[k].name
        return f"layer {k}" + (f" ({name})" if name else "")

    def emit(
        self,
        affine: Affine,
        activation: Activation,
        name: str,
        origins: Sequence[Origin],
        shape: tuple[int, ...] = (),
    ) -> int:
        """Append a new layer and return the number of its value."""
        self.layers.append(Layer(affine, activation, name, shape))
        self.origins.append(list(origins))
        return len(self.layers)

    def express(self, recovered: Affine) -> None:
        """Say how the next old value is recovered from the new ones."""
        self.expressed.append(recovered)

    def recover(self, kept: NDArray[np.intp], factor: Vector, constant: Vector) -> None:
        """Say that the last new layer's units, by these factors, are some of the next old value's.

        The others are constant. A step unit has its value whatever its row was divided by.
        """
        targets, worth = np.full(len(constant), -1, dtype=np.intp), np.ones(len(constant))
        targets[kept] = np.arange(len(kept))
        if self.layers[-1].activation.kind != "step":
            worth[kept] = factor
        self.express(Affine({len(self.layers): one_hot(targets, worth, len(kept))}, constant))

    def finish(self) -> Network:
        """The new network; a map that reads nothing gets a zero matrix, as file formats need."""
        output = self.incoming(self.network.output)
        layers = [
            Layer(grounded(x.affine, i, self._size(i)), x.activation, x.name, x.shape)
            for i, x in enumerate(self.layers)
        ]
        last = len(layers)
        return self.network.replace(layers=layers, output=grounded(output, last, self._size(last)))

    def _size(self, value: int) -> int:
        return self.network.input_size if value == 0 else self.layers[value - 1].width


def grounded(affine: Affine, source: int, size: int) -> Affine:
    """The same map without terms that are zero; one that reads nothing reads ``source`` with 0."""
    terms = {k: m for k, m in affine.terms.items() if mx.entries(m).any()}
    if not terms:
        terms = {source: mx.as_matrix(sp.csr_array((affine.size, size)))}
    return Affine(terms, affine.bias)


def rows(affine: Affine, index: NDArray[np.intp]) -> Affine:
    """The map restricted to some of its rows, in that order."""
    terms = {k: mx.frozen(m[index]) for k, m in affine.terms.items()}  # own copies: no second one
    return Affine(terms, mx.frozen(affine.bias[index]))


def scaled(affine: Affine, factors: Vector) -> Affine:
    """``diag(factors)`` after the map."""
    terms = {k: mx.frozen(mx.scale_rows(m, factors)) for k, m in affine.terms.items()}
    return Affine(terms, mx.frozen(affine.bias * factors))


def reading(affine: Affine, worth: Mapping[int, Vector]) -> Affine:
    """The map with the columns of every value in ``worth`` multiplied by its numbers."""
    terms = {
        k: mx.scale_columns(matrix, worth[k]) if k in worth else matrix
        for k, matrix in affine.terms.items()
    }
    return Affine(terms, affine.bias)


def divided(affine: Affine, factors: Vector) -> Affine:
    """Every row divided by its factor; not the same bits as `scaled` by the reciprocal."""

    def quotient(matrix: Matrix) -> Matrix:
        if not sp.issparse(matrix):
            return matrix / factors[:, None]
        data = matrix.data / np.repeat(factors, np.diff(matrix.indptr))
        parts = (data, matrix.indices, matrix.indptr)
        return mx.as_matrix(sp.csr_array(parts, shape=matrix.shape))

    with np.errstate(over="ignore", invalid="ignore"):
        result = Affine({k: quotient(m) for k, m in affine.terms.items()}, affine.bias / factors)
    check_scaling(affine, result, "a hidden layer")
    return result


def stacked(parts: Sequence[Affine]) -> Affine:
    """Several maps of the same values, one under the other."""
    sizes = {k: m.shape[1] for part in parts for k, m in part.terms.items()}
    terms: dict[int, Matrix] = {}
    for k, columns in sizes.items():
        blocks = [
            part.terms[k] if k in part.terms else sp.csr_array((part.size, columns))
            for part in parts
        ]
        if all(map(sp.issparse, blocks)):
            terms[k] = mx.compact(mx.as_matrix(sp.vstack(blocks, format="csr")))
        else:
            terms[k] = np.vstack([mx.dense(mx.as_matrix(block)) for block in blocks])
    return Affine(terms, np.concatenate([part.bias for part in parts]))


def dense_rows(affine: Affine) -> Array:
    """All coefficients of the map side by side, in order of the sources, without the bias."""
    parts = [mx.dense(m) for m in affine.terms.values()]
    return np.hstack(parts) if parts else np.zeros((affine.size, 0))


def row_lengths(matrices: Sequence[Matrix], size: int) -> Vector:
    """The l2 norm of every row, over matrices side by side."""
    largest = np.maximum.reduce([np.zeros(size), *map(mx.row_maxima, matrices)])
    if size and largest.min() > 1e-100 and largest.max() < 1e100:
        unit = None
    else:  # squares overflow early; a power of two changes no bit of the rest
        unit = np.ldexp(1.0, np.frexp(largest)[1].clip(-1000, 1000))
        matrices = [mx.scale_rows(m, 1 / unit) for m in matrices]
    squares = (np.asarray((m * m).sum(axis=1)).ravel() for m in matrices)
    lengths = np.sqrt(sum(squares, np.zeros(size)))
    return lengths if unit is None else unit * lengths


def row_norms(affine: Affine, order: int) -> Vector:
    """The l1 or l2 norm of every row, over all sources together."""
    if order == 2:
        return row_lengths(list(affine.terms.values()), affine.size)
    total = np.zeros(affine.size)
    with np.errstate(over="ignore"):  # an infinite norm is refused where it is divided by
        for matrix in affine.terms.values():
            total += np.asarray(abs(matrix).sum(axis=1)).ravel()
    return total


def columns_read(network: Network, value: int) -> list[Matrix]:
    """The matrices through which later maps read a value."""
    return [a.terms[value] for a in network.maps if value in a.terms]


def multiply(left: Matrix, right: Matrix) -> Matrix:
    """``left @ right``, by picking columns where ``right`` only moves and scales them.

    That is what substitution mostly meets, and ten times faster than a sparse product.
    """
    if sp.issparse(left) or not sp.issparse(right):
        return mx.matmul(left, right)
    columns = right.indices
    if right.nnz > right.shape[0] or len(np.unique(columns)) < right.nnz:
        return mx.matmul(left, right)
    inner = np.repeat(np.arange(right.shape[0]), np.diff(right.indptr))
    result = np.zeros((left.shape[0], right.shape[1]))
    result[:, columns] = left[:, inner] * right.data
    return result


def one_hot(targets: NDArray[np.intp], factors: Vector, size: int) -> sp.csr_array:
    """The matrix whose row i holds ``factors[i]`` in column ``targets[i]``, nothing where < 0."""
    used = (targets >= 0) & (factors != 0)
    ends = np.concatenate([[0], np.cumsum(used)])
    hot = sp.csr_array((factors[used], targets[used], ends), (len(targets), size))
    hot.has_canonical_format = True
    return mx.frozen(hot)


def total(parts: Sequence[Affine]) -> Affine:
    """The sum of several maps of the same size; terms that are zero are left out."""
    bias = np.zeros(parts[0].size)
    terms: dict[int, Matrix] = {}
    for part in parts:
        bias = bias + part.bias
        for k, matrix in part.terms.items():
            if mx.entries(matrix).any():
                terms[k] = mx.add(terms[k], matrix) if k in terms else matrix
    return Affine(terms, bias)


#: A product below this may have lost digits to underflow.
LEAST = 2.0**-969

#: In a row with an entry of at least this size a lost product does not count: it is smaller by
#: 2^-600, far below the rounding of the row.
VISIBLE = 2.0**-369


def losing_rows(left: Matrix, right: Matrix) -> NDArray[np.bool_]:
    """Rows of ``left @ right`` with an entry all of whose products underflow, or nearly so.

    Costs nothing but two minima unless tiny numbers meet.
    """
    if _least(left) * _least(right) >= LEAST or _moves(left) or _moves(right):
        return np.zeros(left.shape[0], dtype=bool)
    size: Any = mx.dense(mx.matmul(abs(left), abs(right)))
    touched = mx.dense(mx.matmul(_pattern(left), _pattern(right))) > 0
    return np.asarray((touched & (size < LEAST)).any(axis=1))


def check_rows(affine: Affine, losing: NDArray[np.bool_], place: str) -> None:
    """Raise if the map overflowed, or a row lost to underflow something it can feel."""
    if not (np.isfinite(affine.bias).all() and all(map(_finite, affine.terms.values()))):
        raise _out_of_range(place, "overflow")
    if losing.any() and (row_sizes(affine)[losing] < VISIBLE).any():
        raise _out_of_range(place, "underflow")


def check_scaling(before: Affine, after: Affine, place: str) -> None:
    """Raise unless every row that was scaled could be scaled back."""
    losing = np.zeros(before.size, dtype=bool)
    pairs = [(before.terms[k], after.terms[k]) for k in before.terms]
    for old, new in pairs:
        if _least(new) < 2.0**-1022 or mx.nnz(old) != mx.nnz(new):
            faded = (mx.dense(old) != 0) & (np.abs(mx.dense(new)) < 2.0**-1022)
            losing |= faded.any(axis=1)
    losing |= (before.bias != 0) & (np.abs(after.bias) < 2.0**-1022)
    check_rows(after, losing, place)


def row_sizes(affine: Affine) -> Vector:
    """The largest magnitude in every row, the bias included."""
    largest = np.abs(affine.bias)
    for matrix in affine.terms.values():
        largest = np.maximum(largest, mx.row_maxima(matrix))
    return largest


def _least(matrix: Matrix) -> float:
    """The smallest non-zero magnitude; inf if there is none."""
    size = np.abs(mx.entries(matrix))
    return float(size.min(initial=np.inf, where=size > 0))


def _moves(matrix: Matrix) -> bool:
    """Whether all entries are -1, 0 or 1: such a product rounds nothing away."""
    size = np.abs(mx.entries(matrix))
    return bool(((size == 0) | (size == 1)).all())


def _pattern(matrix: Matrix) -> Matrix:
    return mx.as_matrix((matrix != 0).astype(np.float64))


def _finite(matrix: Matrix) -> bool:
    return bool(np.isfinite(mx.entries(matrix)).all())


def _out_of_range(place: str, what: str) -> InvalidNetworkError:
    return InvalidNetworkError(
        f"{place}: rewriting it would {what}, the products of its weights with those before or "
        "after it leave the range of float64. Rescale the layers so that their weights are of "
        "similar size, or set weights that do not matter to 0"
    )

"""A network as flat arrays for compiled kernels, seen through an affine window x = E t + o.

The window serves three ends: a box becomes [-1, 1]^d whatever its place and size (so tolerances are
relative to it), coordinates of length zero drop out, and a plane in a large input space becomes a
two-dimensional network. Exact up to rounding; costs one product per matrix that reads the input.

And the one criterion of all engines for when a unit has a sign on a cell (docs/regions.md).
"""

from __future__ import annotations

import itertools
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.compiled.groups import group
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Layer, Network
from relunorm.network.patterns import pulled_back, slopes_under
from relunorm.regions.balance import balanced, lossless
from relunorm.regions.exact_forms import exact_maps

#: A sign must be taken this far from the unit's hyperplane to count, in half-widths of the box.
TOLERANCE = 1e-10
#: Rounding of a sum, relative to the sum of its absolute terms.
ROUNDING = 32 * 2.0**-52

#: A matrix of more entries than this, less than one in `SPARSE_BELOW` of them non-zero, is packed
#: sparse: a stored entry costs about as much as that many in a loop of vector instructions.
SPARSE_FROM, SPARSE_BELOW = 1 << 14, 8

#: Numbers of a layer's gradients that are composed at once (512 KB, so that they stay in cache).
BLOCK = 1 << 16


def quiet(dimension: int) -> float:
    """How far a form at a corner may be on the wrong side by rounding alone, like `ROUNDING`.

    4 d^2 units in the last place, which is what the interpolations behind a corner leave, but not
    more than `ROUNDING`. What reaches farther, and not as far as the tolerance, is a cell too thin
    to be listed.
    """
    return min(4.0 * dimension * dimension * 2.0**-52, ROUNDING)


@group
class Packed(NamedTuple):
    """Layers 0 .. L-1 are hidden, layer L is the output; value 0 is the window's t.

    Layer l owns the units ``first[l]`` to ``first[l + 1]`` (outputs are numbered after all units).
    Its terms are ``term_ptr[l]`` to ``term_ptr[l + 1]``: term k reads value ``source[k]`` with a
    matrix stored from ``weights[start[k]]``, row by row or (`columns`) column by column. Where
    ``start[k]`` is negative the matrix is sparse: with o = -1 - start[k], its row (or column) j has
    the weights p from ``start[o + 1 + j]`` up to ``start[o + 2 + j]``, and weight p stands in
    column (or row) ``start[p + start[o]]``. (Behind the starts, not in an array of their own: one
    more array in the tuple made the sign tree a third slower.)
    ``size0[i]`` is the sum of the absolute values of what was added up for the constant part of
    unit i, for rounding bounds.
    """

    first: NDArray[np.int64]
    term_ptr: NDArray[np.int64]
    source: NDArray[np.int64]
    start: NDArray[np.int64]
    weights: Array
    bias: Array
    size0: Array
    slopes: Array  # (L, 2): below and above the kink
    shape: NDArray[np.int64]  # dimension of t, hidden layers, units, outputs


def pack(
    network: Network,
    embedding: Array | None,
    offset: Array | None,
    by_columns: bool = False,
    sparse: bool = False,
) -> Packed:
    """Flat arrays of ``t -> network(embedding @ t + offset)``.

    Args:
        network: without linear stages (call `Network.folded` first) and without step units.
        embedding: shape (d, k), the window's columns; or (d,), a factor for every coordinate; None
            for the identity.
        offset: shape (d,); None for 0.
        by_columns: whether matrices are stored column by column.
        sparse: whether the caller reads sparse matrices (see `Packed`); else all are dense.
    """
    check_units(network)
    k = network.input_size if embedding is None else embedding.shape[-1]
    offset = None if offset is None or not offset.any() else offset
    terms = sum(len(affine.terms) for affine in network.maps)
    flat = _Flat(terms, by_columns, sparse)
    sources, widths, bias, ptr, moved = [], [], [], [0], []
    for affine in network.maps:
        shift = affine.bias
        for source, matrix in affine.terms.items():
            sources.append(source)
            if source:
                flat.add(matrix)
                continue
            if offset is not None:
                shift = shift + matrix @ offset
                moved.append((sum(widths), abs(matrix) @ np.abs(offset)))
            if embedding is not None:
                whole = embedding.ndim == 2
                matrix = matrix @ embedding if whole else mx.scale_columns(matrix, embedding)
            flat.add_dense(matrix)
        bias.append(shift)
        widths.append(len(shift))
        ptr.append(len(sources))
    size0 = np.abs(np.concatenate([affine.bias for affine in network.maps] if moved else bias))
    for begin, size in moved:
        size0[begin : begin + len(size)] += size
    first = np.array(list(itertools.accumulate(widths, initial=0)), np.int64)
    slopes = np.array([layer.activation.slopes for layer in network.layers]).reshape(-1, 2)
    layers = len(network.layers)
    return Packed(
        first,
        np.array(ptr, np.int64),
        np.array(sources, np.int64),
        flat.starts(),
        flat.weights(),
        np.concatenate(bias),
        size0,
        slopes,
        np.array([k, layers, first[layers], widths[-1]], np.int64),
    )


class _Flat:
    """Matrices one behind the other, and where each starts (see `Packed`)."""

    def __init__(self, terms: int, by_columns: bool, sparse: bool):
        self._order: Literal["C", "F"] = "F" if by_columns else "C"
        self._by_columns, self._sparse = by_columns, sparse
        self._starts: list[int] = []
        self._blocks: list[Array] = []
        self._index: list[NDArray[np.int64]] = []
        self._size, self._index_end = 0, terms

    def add(self, matrix: Any) -> None:
        """The next matrix, sparse where that is wanted and quicker."""
        if not (self._sparse and is_packed_sparse(matrix)):
            self.add_dense(matrix)
            return
        lines: Any = sp.csc_array(matrix) if self._by_columns else sp.csr_array(matrix)
        rows_at = self._index_end + 1 + len(lines.indptr)
        self._starts.append(-1 - self._index_end)
        head = np.concatenate([[rows_at - self._size], lines.indptr.astype(np.int64) + self._size])
        self._index += [head, lines.indices.astype(np.int64)]
        self._index_end = rows_at + len(lines.indices)
        self._append(lines.data)

    def add_dense(self, matrix: Any) -> None:
        """The next matrix, all of it."""
        self._starts.append(self._size)
        self._append(mx.dense(matrix).ravel(self._order))

    def _append(self, block: Array) -> None:
        self._blocks.append(block)
        self._size += len(block)

    def starts(self) -> NDArray[np.int64]:
        """Where each matrix starts and, behind that, where the entries of sparse ones stand."""
        starts = np.array(self._starts, np.int64)
        return np.concatenate([starts, *self._index]) if self._index else starts

    def weights(self) -> Array:
        """All weights."""
        return np.concatenate(self._blocks) if self._blocks else np.zeros(0)


def packed_size(matrix: Any) -> int:
    """Numbers a packed matrix takes, indices included."""
    if is_packed_sparse(matrix):
        return 2 * int(sp.csr_array(matrix).nnz) + max(matrix.shape)
    return matrix.shape[0] * matrix.shape[1]


def is_packed_sparse(matrix: Any) -> bool:
    """Whether a matrix is large and empty enough to be packed sparse, however it is stored."""
    size = matrix.shape[0] * matrix.shape[1]
    if size <= SPARSE_FROM:
        return False
    entries = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    return SPARSE_BELOW * int(entries) < size


def check_units(network: Network) -> None:
    """Refuse networks whose units are not continuous or that still have linear stages."""
    for index, layer in enumerate(network.layers):
        if layer.activation.kind not in ("relu", "leaky"):
            raise InvalidInputError(
                f"layer {index} ({layer.name or 'unnamed'}) has {layer.activation} units; regions "
                "are defined here for relu and leaky units"
            )


def affine_maps(network: Network, patterns: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The affine maps x -> A x + c that the network is under the given patterns, eq. (10).

    Each is composed from its own pattern, in reverse as in `Network.jacobian`: nothing of a
    neighbour is in it, and its rounding is that of the terms on its active paths.

    Args:
        network: without linear stages.
        patterns: shape (n, units).

    Returns:
        A of shape (n, outputs, d) and c of shape (n, outputs); one product per layer and `BLOCK`.
        In whole numbers where products of weights could leave float64.
    """
    given, network = network, balanced(network)
    if network is not given and not lossless(network):
        return exact_maps(given, patterns)
    n, outputs, d = len(patterns), network.output.size, network.input_size
    gradient, constant = np.empty((n, outputs, d)), np.empty((n, outputs))
    widest = max((layer.width for layer in network.layers), default=1)
    step = max(BLOCK // (outputs * max(widest, d)), 1)
    for begin in range(0, n, step):
        some = slice(begin, begin + step)
        gradient[some], constant[some] = _composed(network, patterns[some])
    return gradient, constant


def _composed(network: Network, patterns: NDArray[np.bool_]) -> tuple[Array | float, Array]:
    """`affine_maps` for a few patterns at once."""
    constant = np.tile(network.output.bias, (len(patterns), 1))

    def add(layer: Layer, by_result: Array) -> None:
        flat = by_result.reshape(-1, layer.width)
        constant[...] += (flat @ layer.affine.bias).reshape(constant.shape)

    slopes = [*slopes_under(network.layers, patterns)]
    outer = {source: mx.dense(matrix)[None] for source, matrix in network.output.terms.items()}
    gradient = pulled_back(network.layers, slopes, outer, add)
    return 0.0 if gradient is None else gradient, constant

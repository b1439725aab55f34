"""A value while a graph is lowered, and what is known of its entries.

Owners tell which unit of the user's model an entry belongs to. A convolution or a dense layer gives
each of its outputs a new number, one for all positions. Moves carry the numbers along; an operation
that mixes entries of several units ends the trail. So a channel stays one unit however its
positions are permuted, flattened, padded or cropped: the entries are followed, not the shapes.

Signs are what formats without a step activation write one with. What depends on the sign of z alone
is three numbers: where z < 0, where z = 0, where z > 0. So relu(s) + v (1 - |s|) with s = sign(z)
is 0, v and 1, and one step again, with no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.matrix import Matrix
from relunorm.network.layer import Affine

Owners = NDArray[np.int64]

#: Owner of entries that belong to no unit.
NOBODY = -1


def moved(owners: Owners | None, index: NDArray[np.intp]) -> Owners | None:
    """The owners of entries picked by flat positions; a negative one is padding.

    >>> moved(np.array([7, 8]), np.array([1, -1, 0])).tolist()
    [8, -1, 7]
    """
    if owners is None:
        return None
    flat = index.ravel()
    return np.where(flat >= 0, owners[flat], NOBODY)


def carried(owners: Owners | None, matrix: Matrix) -> Owners | None:
    """The owners of ``matrix @ entries``, or None where a row mixes entries of several units.

    >>> carried(np.array([3, 3, 4]), np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [3, 4]
    """
    if owners is None:
        return None
    table: Any = sp.csr_array(matrix)
    table.eliminate_zeros()
    full = np.flatnonzero(np.diff(table.indptr))
    found = np.full(table.shape[0], NOBODY)
    if len(full):
        each = owners[table.indices]
        low, high = (part.reduceat(each, table.indptr[full]) for part in (np.minimum, np.maximum))
        if (low != high).any():
            return None
        found[full] = low
    return found


def joined(owners: Owners | None, others: Owners | None) -> Owners | None:
    """The owners of an entrywise sum: None where the two do not group the entries alike.

    A side that no unit owns, such as the input of a residual block or padding, changes nothing.

    >>> joined(np.array([1, 1, 2, -1]), np.array([8, 8, 5, 8])).tolist()
    [1, 1, 2, 1]
    >>> joined(np.array([1, 1, 2]), np.array([8, 5, 5])) is None
    True
    """
    if owners is None or others is None:
        return owners if others is None else others
    if np.array_equal(owners, others):
        return owners
    both = (owners != NOBODY) & (others != NOBODY)
    span = int(others.max()) + 1
    pairs = np.unique(owners[both] * span + others[both])
    mine, theirs = pairs // span, pairs % span
    if len(np.unique(mine)) < len(pairs) or len(np.unique(theirs)) < len(pairs):
        return None
    same_as = np.arange(span)
    same_as[theirs] = mine
    return np.where(owners == NOBODY, np.append(same_as, NOBODY)[others], owners)


def numbered(owners: Owners | None) -> Owners | None:
    """Owners as 0, 1, ... in the order they appear; None where every entry is its own unit.

    >>> numbered(np.array([9, 4, 9, -1])).tolist()
    [0, 1, 0, -1]
    """
    if owners is None:
        return None
    names, first, place = np.unique(owners, return_index=True, return_inverse=True)
    order = np.argsort(np.where(names == NOBODY, -1, first))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    if NOBODY in names:
        rank -= 1
    elif len(names) == len(owners):
        return None
    return rank[place.ravel()]


def steps_of(signs: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Step units by their value at 0, each with its weight; the value below 0 is the constant.

    >>> steps_of(np.array([0.0, 0.3, 1.0])), steps_of(np.array([-1.0, 0.0, 1.0]))
    ([(0.3, 1.0)], [(0.5, 2.0)])
    """
    below, at, above = signs.tolist()
    low, high = at - below, above - at
    if (below, above) == (0.0, 1.0):
        return [(at, 1.0)]
    if low == high:
        return [(0.5, above - below)]
    return [(at, weight) for at, weight in ((0.0, high), (1.0, low)) if weight]


@dataclass(eq=False)
class Tensor:
    """An affine function of the values, with the shape its entries are read in.

    ``owners`` tells which unit of the model each entry belongs to, ``step`` which step of the
    recorded structure gives the tensor, where that is known. What holds a product with weights is
    ``weighed``: it is not multiplied with the next weights, which would round, but becomes a linear
    stage; one that is ``large`` does for whatever reads it but an activation. With ``signs``, its
    values where ``affine`` is negative, zero and positive, the tensor is a function of that sign:
    step units to be, in a layer of this ``name``. ``joined`` was put together from single values by
    the graph itself, or by its format.
    """

    shape: tuple[int, ...]
    affine: Affine
    owners: Owners | None = None
    step: int | None = None
    weighed: bool = False
    large: bool = False
    signs: NDArray[np.float64] | None = None
    name: str = ""
    joined: bool = False

    @property
    def size(self) -> int:
        return self.affine.size

    @property
    def index(self) -> NDArray[np.intp]:
        """Flat positions in the tensor's shape: move these, then call `Lowering.rearrange`."""
        return np.arange(self.size).reshape(self.shape)

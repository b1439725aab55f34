"""Two networks side by side, unit by unit.

Values of the first are v, those of the second w = v + d; W and V = W + D are their weights. A
pre-activation of the second is then z + e with

    z = W v + b,        e = V d + D v + (c - b),        d' = act(z + e) - act(z).

Units are paired in the order given, or in the order in which incoming weights agree best; a unit
without a partner is paired with one that is 0. Both leave the functions as they are, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Affine, Network

#: Weights that differ by no more than this share belong to copies.
ALIKE = 0.5

#: Products, at most, for units to be put into another order.
ORDERED = 1 << 26

#: Numbers that the dense matrices of both networks may have.
ENTRIES = 1 << 25


@dataclass(frozen=True, eq=False)
class PairedMap:
    """One affine map of both: W, V = W + D and D by source, b, c and c - b."""

    W: dict[int, Matrix]
    V: dict[int, Matrix]
    D: dict[int, Matrix]
    b: Vector
    c: Vector
    shift: Vector

    @classmethod
    def of(cls, W: dict[int, Matrix], V: dict[int, Matrix], b: Vector, c: Vector) -> PairedMap:
        """Two maps that read the same values, dense or sparse."""
        return cls(W, V, {s: _minus(V[s], W[s]) for s in W}, b, c, c - b)

    @cached_property
    def V_size(self) -> dict[int, Matrix]:
        """Absolute values of V."""
        return {s: abs(m) for s, m in self.V.items()}

    @cached_property
    def D_size(self) -> dict[int, Matrix]:
        """Absolute values of D."""
        return {s: abs(m) for s, m in self.D.items()}

    @property
    def size(self) -> int:
        """How many rows the map has."""
        return len(self.b)


@dataclass(frozen=True, eq=False)
class Pair:
    """The maps of two paired networks, the output last; ``below`` are the slopes of layers.

    An activation is ``below * z + (1 - below) * relu(z)`` with below in [0, 1].
    """

    maps: tuple[PairedMap, ...]
    below: tuple[float, ...]

    @property
    def apart(self) -> float:
        """How far the weights differ, relative to their size, in the layer where that is most."""
        shares = []
        for affine in self.maps:
            moved = sum(float(np.abs(m).sum()) for m in affine.D.values())
            size = sum(float(np.abs(m).sum()) for m in affine.W.values())
            shares.append(moved / size if size else (np.inf if moved else 0.0))
        return max(shares)

    @property
    def operations(self) -> int:
        """Roundings behind one number of a pass through both networks, at most."""
        widest = max(max([m.size, *(w.shape[1] for w in m.W.values())]) for m in self.maps)
        return 2 * widest + 16 * len(self.maps) + 64


def pair_up(first: Network, second: Network, clock: Clock = NO_LIMIT) -> Pair | None:
    """Pair the units of two networks; None where their layers do not correspond.

    Args:
        first, second: without linear stages (`Network.folded`).

    Raises:
        TimeLimitError: the clock ended first.
    """
    kinds = [[layer.activation for layer in n.layers] for n in (first, second)]
    if kinds[0] != kinds[1] or not all(a.kind in ("relu", "leaky") for a in kinds[0]):
        return None
    below = tuple(a.slopes[0] for a in kinds[0])
    if not all(0.0 <= slope <= 1.0 for slope in below) or _entries(first, second) > ENTRIES:
        return None
    places: list[tuple[NDArray[np.intp], int]] = [(np.arange(first.input_size), first.input_size)]
    maps = []
    for index, (ours, theirs) in enumerate(zip(first.maps, second.maps, strict=True)):
        clock.check()
        sources = sorted({*ours.terms, *theirs.terms})
        widths = {s: places[s][1] for s in sources}
        W = {s: _placed(ours, s, np.arange(_inner(ours, s)), widths[s]) for s in sources}
        V = {s: _placed(theirs, s, places[s][0], widths[s]) for s in sources}
        if index == len(below):
            maps.append(PairedMap.of(W, V, ours.bias, theirs.bias))
            continue
        order = _order(W, V, ours.bias, theirs.bias)
        width = max(ours.size, int(order.max(initial=-1)) + 1)
        W = {s: _rows(w, np.arange(ours.size), width) for s, w in W.items()}
        V = {s: _rows(v, order, width) for s, v in V.items()}
        bias = (
            _rows(ours.bias[:, None], np.arange(ours.size), width)[:, 0],
            _rows(theirs.bias[:, None], order, width)[:, 0],
        )
        maps.append(PairedMap.of(W, V, *bias))
        places.append((order, width))
    return Pair(tuple(maps), below)


def _entries(first: Network, second: Network) -> int:
    total = 0
    for ours, theirs in zip(first.maps, second.maps, strict=True):
        for affine in (ours, theirs):
            total += sum(m.shape[0] * m.shape[1] for m in affine.terms.values())
    return total


def _inner(affine: Affine, source: int) -> int:
    return affine.terms[source].shape[1] if source in affine.terms else 0


def _placed(affine: Affine, source: int, columns: NDArray[np.intp], width: int) -> Array:
    """The matrix on a source with its columns where the paired units are."""
    full = np.zeros((affine.size, width))
    if source in affine.terms:
        full[:, columns] = mx.dense(affine.terms[source])
    return full


def _rows(matrix: Array, order: NDArray[np.intp], width: int) -> Array:
    full = np.zeros((width, matrix.shape[1]))
    full[order] = matrix
    return full


def _minus(V: Matrix, W: Matrix) -> Matrix:
    """What a matrix moved by; what was rounded to nearest has moved by floats (Sterbenz)."""
    return mx.as_matrix(V - W) if type(V) is type(W) else mx.dense(V) - mx.dense(W)


def _order(W: dict[int, Array], V: dict[int, Array], b: Vector, c: Vector) -> NDArray[np.intp]:
    """For every unit of the second the row that it gets: a partner's, or one after all of them."""
    ours = np.concatenate([*W.values(), b[:, None]], axis=1)
    theirs = np.concatenate([*V.values(), c[:, None]], axis=1)
    plain = np.arange(len(c))
    large = len(b) * len(c) * ours.shape[1] > ORDERED
    if (len(b) == len(c) and np.abs(ours - theirs).sum() <= ALIKE * np.abs(ours).sum()) or large:
        return plain
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    # how much nearer two units are to each other than both are to 0
    gain = np.abs(theirs).sum(axis=1, keepdims=True) + np.abs(ours).sum(axis=1)
    gain = gain - cdist(theirs, ours, "cityblock")
    rows, columns = linear_sum_assignment(np.maximum(gain, 0.0), maximize=True)
    order = np.full(len(c), -1)
    alike = gain[rows, columns] > 0
    order[rows[alike]] = columns[alike]
    alone = np.flatnonzero(order < 0)
    order[alone] = len(b) + np.arange(len(alone))
    return order

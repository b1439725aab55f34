"""A network and a domain prepared for bounding: terms, magnitudes, and the bounds found so far."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from copy import copy
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.floats import grain
from relunorm.bounds.relaxation import Kink
from relunorm.domain.reach import Reach
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Affine, Network

#: Networks narrower than this are bounded on one thread.
NARROW = 1_024


class Problem:
    """The maps of a network over a domain, with sizes and absolute values at hand.

    Bounds are not kept here: see `Bounds`.
    """

    def __init__(self, network: Network, reach: Reach):
        self.network = network
        self.reach = reach
        self.maps: tuple[Affine, ...] = tuple(network.maps)
        self.kinks = tuple(Kink.of(layer.activation) for layer in network.layers)

    def on(self, reach: Reach) -> Problem:
        """The same network over another domain; what was prepared of it is kept."""
        other = copy(self)
        other.reach = reach
        other.__dict__.pop("operations", None)
        return other

    @cached_property
    def absolute(self) -> list[dict[int, Matrix]]:
        """Entrywise absolute values of every map's matrices."""
        return [{s: abs(m) for s, m in affine.terms.items()} for affine in self.maps]

    @cached_property
    def grains(self) -> list[dict[int | str, Vector]]:
        """Per map and row the largest power of two that divides the weights on each source."""
        return [
            {"bias": grain(a.bias[:, None], axis=1), **{s: _grains(m) for s, m in a.terms.items()}}
            for a in self.maps
        ]

    @cached_property
    def single(self) -> list[dict[int, Any]]:
        """Every map's matrices in single precision, for searches whose result is checked."""
        return [{s: m.astype(np.float32) for s, m in a.terms.items()} for a in self.maps]

    @cached_property
    def operations(self) -> int:
        """Roundings behind any coefficient or constant of a backward pass, at most."""
        widest = max(self.network.widths)
        return widest + len(self.maps) * 4 + self.reach.operations

    def rows(self, index: int, rows: NDArray[np.intp]) -> dict[int, NDArray[np.float64]]:
        """The given rows of a map's matrices, dense."""
        return {s: mx.dense(m[rows]) for s, m in self.maps[index].terms.items()}


def _grains(matrix: Matrix) -> Vector:
    if not sp.issparse(matrix):
        return grain(matrix, axis=1)
    result = np.full(matrix.shape[0], np.inf)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    np.minimum.at(result, rows, grain(matrix.data[:, None], axis=1))
    return result


#: Goals that count together: A and b of the rows b - A f, the least of which is their value.
Group: TypeAlias = tuple[Array, Vector]


class Bounds:
    """Sound bounds of every pre-activation and every value, filled in layer by layer.

    ``lower[i] <= z <= upper[i]`` for layer i, ``low[k] <= value k <= high[k]``.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.lower: list[Vector] = []
        self.upper: list[Vector] = []
        self.low: list[Vector] = [problem.reach.lo]
        self.high: list[Vector] = [problem.reach.hi]

    def span(self, value: int) -> Vector:
        """max |value k| entry by entry."""
        return np.maximum(np.abs(self.low[value]), np.abs(self.high[value]))

    def bent(self, index: int) -> NDArray[np.bool_]:
        """Whether the bounds of a layer's units leave their signs open."""
        return (self.lower[index] < 0) & (self.upper[index] > 0)

    def sides(self, index: int, units: Any, signs: Any) -> Vector:
        """Upper bounds of signs * z[units] of a layer."""
        return np.where(signs > 0, self.upper[index][units], -self.lower[index][units])

    def append(self, lower: Vector, upper: Vector) -> None:
        """Add the next layer's bounds."""
        self.lower.append(lower)
        self.upper.append(upper)
        low, high = self.problem.kinks[len(self.lower) - 1].image(lower, upper)
        self.low.append(low)
        self.high.append(high)

    def truncate(self, layers: int) -> None:
        """Forget the bounds of all but the first layers."""
        del self.lower[layers:], self.upper[layers:]
        del self.low[layers + 1 :], self.high[layers + 1 :]

    def replace_last(self, lower: Vector, upper: Vector) -> None:
        """Exchange the last layer's bounds for tighter ones."""
        for bounds in (self.lower, self.upper, self.low, self.high):
            bounds.pop()
        self.append(lower, upper)


def few_threads(network: Network) -> AbstractContextManager[Any]:
    """One BLAS thread while bounding a narrow network; no change for a wide one.

    Small products are slower on several threads than on one (much slower on a busy machine), and
    on one thread the same call gives the same bits.
    """
    limits = 1 if max(network.widths) < NARROW else None
    return _libraries(len(sys.modules)).limit(limits=limits, user_api="blas")


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """The libraries that are loaded, which takes a millisecond; looked for anew after imports."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

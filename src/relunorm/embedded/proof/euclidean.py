"""The difference in the Euclidean norm: tighter than entry by entry where layers are wide.

With v, d and e as in `relunorm.embedded.proof.distance` and any fixed point c_k of every layer,

    |e|  <=  sum_s |V_s| |d_s| + |D_s| |v_s - c_s|  +  |sum_s D_s c_s + c - b| + |t|,
    |d'| <=  (largest slope) |e| + |r|,

matrices measured by their largest singular value. Bounds of single entries let every unit be at
its worst at once, so they grow with the sum of a row's weights; these grow with a singular value,
which in a layer of 128 units is several times smaller. A single entry of e follows from the norm
of its row (Cauchy-Schwarz).

Sound in real arithmetic: the norms of matrices are rounded up (`relunorm.lipschitz.norms`), and
everything else here is a sum of sizes, widened by what such a sum can have lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, gamma
from relunorm.bounds.pairs.linear import Ends
from relunorm.bounds.problem import Bounds, Problem
from relunorm.matrix import Vector

if TYPE_CHECKING:
    from relunorm.embedded.proof.distance import Change

Array = NDArray[np.float64]


class Norms:
    """Bounds of |d_k| and of |v_k - c_k|, value by value.

    Attributes:
        center: c_k.
        radius: how far v_k can be from it.
        gap: how large d_k can be.
    """

    def __init__(self, problem: Problem, change: Change, bounds: Bounds, wide: Vector):
        self.problem, self.change, self.bounds = problem, change, bounds
        self.share = 1.0 + gamma(4 * problem.operations + 64)
        low, high = bounds.low[0], bounds.high[0]
        self.center = [low + (high - low) / 2]
        self.radius = [self._around(0)]
        self.gap = [self._size(wide)]

    def error(self, index: int, before: Vector, rows: Array | None = None) -> Vector:
        """A bound of every |e_i| of a map, or of every entry of |rows @ e|."""
        affine = self.change.maps[index]
        total = before if rows is None else np.abs(rows) @ before
        for source, matrix in affine.V.items():
            moved = affine.D[source]
            half = self._half(source)
            sizes = affine.V_size[source], affine.D_size[source]
            if rows is not None:
                rounded = gamma(rows.shape[1] + 4) * self._rows(np.abs(rows) @ sizes[0])
                total = total + rounded * self.gap[source]
                matrix, moved = rows @ matrix, rows @ moved
                sizes = sizes[0], np.abs(rows) @ sizes[1]
            total = total + self._rows(matrix) * self.gap[source]
            alone = sizes[1] @ half
            total = total + np.minimum(self._rows(moved) * self.radius[source], alone)
        fixed, lost = self._fixed(index)
        if rows is None:
            total = total + np.abs(fixed) + lost
        else:
            size = np.abs(rows) @ (np.abs(fixed) + lost)
            total = total + np.abs(rows @ fixed) + np.abs(rows) @ lost
            total = total + gamma(rows.shape[1] + 4) * size
        return self._up(total)

    def advance(self, index: int, error: Ends, gap: Ends, rest: Vector, before: Vector) -> None:
        """Take layer ``index``: what single entries allow, and what the norms of maps allow."""
        kink = self.problem.kinks[index]
        single = self._size(np.maximum(np.abs(gap[0]), np.abs(gap[1])))
        low, high = self.bounds.low[index + 1], self.bounds.high[index + 1]
        if kink.step:
            self.center.append(low + (high - low) / 2)
            self.radius.append(self._around(index + 1))
            self.gap.append(single)
            return
        steepest = max(abs(kink.below), abs(kink.above))
        whole = self._whole(index, before)
        whole = min(whole, self._size(np.maximum(np.abs(error[0]), np.abs(error[1]))))
        self.gap.append(_least(single, self._up(steepest * whole + self._size(rest))))
        z, lost = self._middle(index)
        center = np.where(z > 0, kink.above * z, kink.below * z)
        self.center.append(center)
        far = steepest * (self._moved(index) + self._size(lost)) + self._size(2.0**-52 * center)
        self.radius.append(_least(self._around(index + 1), self._up(far)))

    def _whole(self, index: int, before: Vector) -> float:
        """|e| of a map by the norms of its matrices."""
        total = self._size(before)
        for source, size in self.change.maps[index].D_size.items():
            ours, moved = self.change.norms(index, source)
            alone = size @ self._half(source)
            total += ours * self.gap[source]
            total += _least(moved * self.radius[source], self._size(alone))
        fixed, lost = self._fixed(index)
        return self._up(total + self._size(np.abs(fixed) + lost))

    def _moved(self, index: int) -> float:
        """How far z of a map can be from its value at the centers; |W| <= |V| + |D|."""
        parts = (
            sum(self.change.norms(index, source)) * self.radius[source]
            for source in self.change.maps[index].W
        )
        return self._up(sum(parts, 0.0))

    def _fixed(self, index: int) -> tuple[Vector, Vector]:
        """``sum_s D_s c_s + c - b`` and what computing it can have lost."""
        affine = self.change.maps[index]
        fixed, size = affine.shift, np.abs(affine.shift)
        for source, moved in affine.D.items():
            center = self.center[source]
            fixed = fixed + moved @ center
            size = size + affine.D_size[source] @ np.abs(center)
        return fixed, self._lost(size)

    def _middle(self, index: int) -> tuple[Vector, Vector]:
        """z at the centers, and what computing it can have lost."""
        affine = self.problem.maps[index]
        z, size = affine.bias, np.abs(affine.bias)
        for source, matrix in affine.terms.items():
            z = z + matrix @ self.center[source]
            size = size + self.problem.absolute[index][source] @ np.abs(self.center[source])
        return z, self._lost(size)

    def _lost(self, size: Vector) -> Vector:
        return gamma(2 * self.problem.operations + 16) * size + TINY

    def _half(self, value: int) -> Vector:
        """How far each entry of v_k can be from c_k."""
        low, high = self.bounds.low[value], self.bounds.high[value]
        center = self.center[value]
        return np.maximum(np.maximum(high - center, center - low), 0.0)

    def _around(self, value: int) -> float:
        return self._size(self._half(value))

    def _rows(self, matrix: Any) -> Vector:
        """The norm of every row."""
        squares = matrix.multiply(matrix) if sp.issparse(matrix) else matrix * matrix
        return self._up(np.sqrt(np.asarray(squares.sum(axis=1)).ravel() + TINY))

    def _size(self, entries: Vector) -> float:
        return float(self._up(np.sqrt(np.sum(entries * entries) + TINY)))

    def _up(self, value: Any) -> Any:
        """Widened by what a sum of sizes can have lost."""
        return np.nextafter(value * self.share, np.inf)


def _least(first: float, second: float) -> float:
    """The smaller of two bounds; one that is not a number is none."""
    return min(b if b == b else float("inf") for b in (first, second))

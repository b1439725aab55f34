"""What rounding may have decided on a segment: a filter in front of exact arithmetic.

A network on a segment is followed in floats (`segments`): rows of values at breakpoints, affine
between them. In length, row n of layer l is off from the network in real arithmetic by at most

    e_l(n) = R (|b| + |W|_F |v(n)|) + |W|_2 e_{l-1}(n),

summed over the values that the layer reads, and its unit i alone by u_i(n), with |b_i| for |b| and
|w_i| for both norms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
Between breakpoints both are at most what interpolation makes of them: units keep the side that the
piece gives them, and what they were off by to do so counts. So

- a unit farther than 4 u from its kink at both ends of a piece has one sign on it;
- a breakpoint where the unit that changes there is the only one nearer is a breakpoint of the
  network, and the only one in its `blur`: u over the slope of the unit;
- breakpoints whose blurs are far apart come in the order of the network.

Where this does not hold, `doubts` says so, and whole numbers decide (`exact_segments`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Activation, Affine, Network
from relunorm.regions.exact_segments import WORK

#: Networks of more stored weights are followed in floats alone: whole numbers would take too long.
WEIGHTS = 1 << 18

#: Units near their kinks are looked at one by one, up to so many.
MANY = 1000

#: Roundings of a row besides those of its products: interpolations, the activation, this bound.
OTHERS = 64
UNIT = 2.0**-52

#: Breakpoints and outputs are known to this share of the segment and of the largest output.
LOOSE = 2.0**-20

#: What floats make of a place between 0 and 1, generously.
PLACE = 2.0**-48


@dataclass(frozen=True, eq=False)
class Lengths:
    """Norms of one map, source by source."""

    bias: Vector  # |b_i|
    whole_bias: float  # |b|
    rows: dict[int, Vector]  # |w_i|
    frobenius: dict[int, float]
    spectral: dict[int, float]  # at least the largest singular value
    rounding: float  # R

    @classmethod
    def of(cls, affine: Affine, spectral: bool) -> Lengths:
        rows = {source: np.sqrt(_squares(matrix)) for source, matrix in affine.terms.items()}
        whole = {source: float(np.linalg.norm(row)) for source, row in rows.items()}
        steep = dict(whole)
        if spectral:
            steep = {s: _steepest(m, whole[s]) for s, m in affine.terms.items()}
        count = sum(matrix.shape[1] for matrix in affine.terms.values())
        bias = np.abs(affine.bias)
        return cls(bias, float(np.linalg.norm(bias)), rows, whole, steep, (count + OTHERS) * UNIT)


def lengths_of(network: Network) -> tuple[list[Lengths], bool]:
    """Norms of all maps, and whether the network is small enough to be filtered; kept with it."""
    if "lengths" not in network.__dict__:
        small = sum(affine.nnz for affine in network.maps) <= WEIGHTS
        found = [Lengths.of(affine, small) for affine in network.maps]
        network.__dict__["lengths"] = found, small
    return network.__dict__["lengths"]


class Filter:
    """Errors of the rows of one segment, and where they leave anything open."""

    def __init__(self, network: Network, maps: list[Lengths], ends: Array, moved: bool) -> None:
        self.network, self.maps = network, maps
        self.weights = sum(affine.nnz for affine in network.maps)
        self.lost = False  # more doubts than whole numbers could decide
        self.errors: list[Vector] = [np.zeros(2)]
        if moved:
            self.errors[0] = 4 * UNIT * np.linalg.norm(ends, axis=1)
        self.blur = np.zeros(2)
        self.open: list[Array] = []  # (2, n): intervals

    def enter(self, index: int, reaches: dict[int, Vector]) -> None:
        """The next layer's rows, before anything is put in."""
        own = self.own = self.maps[index]
        self.read = {source: self.errors[source] for source in reaches}
        total: Any = own.rounding * own.whole_bias + TINY
        most = own.rounding * own.bias
        for source, reach in reaches.items():
            error, local = self.errors[source], own.rounding * reach
            total = total + (own.frobenius[source] * local + own.spectral[source] * error)
            most = most + own.rows[source] * float((local + error).max())
        self.total = total if reaches else np.full(len(self.blur), total)
        self.most = most + TINY
        self.far = np.where(most > 0.0, 4.0 * self.most, -1.0)  # a row of zeros is 0, no doubt
        self.expected: Any = (np.zeros(0, dtype=np.intp),) * 2
        self.put: Any = None

    def insert(self, put: Any, unit: NDArray[np.intp], slope: Vector, values: list[Any]) -> None:
        """Crossings of these units, each as steep as that, are put between the rows."""
        self.put = put
        self.total = put.most(self.total)
        for source, rows in enumerate(values):
            if rows is not None:
                reach = np.sqrt(np.einsum("ij,ij->i", rows, rows))
                self.errors[source] = put.most(self.errors[source] + 8 * UNIT * reach)
        self.expected = put.new, unit
        blur = np.empty(len(self.total))
        blur[put.old] = self.blur
        blur[put.new] = 2 * self.most[unit] / slope + PLACE
        self.blur = blur

    def clear(self, z: Array, t: Vector, noise: Any) -> bool:
        """Whether no unit is near its kink but those that change where a crossing was put in.

        Doubts the rows where others are.
        """
        near = ~(np.abs(z) > self.far)
        near[self.expected] = False
        if not near.any():
            return True
        self._leave_out_nothing(near, noise)
        row, unit = np.nonzero(near)
        if len(row) > MANY and self._too_many(row):
            return False
        error = self.own.rounding * self.own.bias[unit]
        for source, reach in noise.reaches.items():
            other = self.read[source] if self.put is None else self.put.most(self.read[source])
            error = error + self.own.rows[source][unit] * (self.own.rounding * reach + other)[row]
        still = ~(np.abs(z[row, unit]) > 4.0 * (error + TINY))
        if still.any() and not self._too_many(row[still]):
            self.doubt(t, np.unique(row[still]))
        return not len(row)

    def _leave_out_nothing(self, near: NDArray[np.bool_], noise: Any) -> None:
        """Units without a bias that read nothing but 0 at a row: there they are 0, too.

        What they read is 0 for certain beside the row as well, but for the unit that changes there:
        with it they leave 0, or do not, and the next row says to which side.
        """
        units = np.flatnonzero(near.any(axis=0) & (self.own.bias == 0.0))
        total: Any = np.zeros(len(units))
        for source, matrix in noise.affine.terms.items():
            if source and not self.network.layers[source - 1].has_units:
                return  # what is 0 may be so by rounding
            live = noise.read[source] != 0.0 if source else noise.ends.any(axis=0)
            total = total + live.astype(np.float64) @ abs(matrix[units]).T
        reads = total > 0.0
        if reads.ndim > 1 and self.put is not None:
            reads = self.put.either(reads)
        near[:, units] &= reads

    def _too_many(self, rows: NDArray[np.intp]) -> bool:
        """Whether doubts at so many rows are more than whole numbers could decide in time."""
        count = np.count_nonzero(np.bincount(rows))
        self.lost |= count * self.weights > WORK
        return self.lost

    def leave(self, activation: Activation) -> None:
        """The layer's values are those of its rows, with what was 0 but for rounding made 0."""
        self.errors.append(2.0 * max(1.0, *map(abs, activation.slopes)) * self.total)

    def doubt(self, t: Vector, rows: NDArray[np.intp], whole: bool = False) -> None:
        """Rows where more than one unit may change, with half the pieces beside them.

        Args:
            whole: with these pieces as a whole, for rows that are wrong.
        """
        before, after = t[np.maximum(rows - 1, 0)], t[np.minimum(rows + 1, len(t) - 1)]
        if not whole:
            before, after = (before + t[rows]) / 2, (after + t[rows]) / 2
        self.open.append(np.stack([before, after]))

    def doubts(self, t: Vector, out: Array, reaches: dict[int, Vector]) -> NDArray[np.bool_]:
        """Which of the final breakpoints are not certain, or have outputs that are not."""
        found = ~(self.blur <= LOOSE)
        close = t[1:] - t[:-1] <= 8.0 * (self.blur[1:] + self.blur[:-1])
        found[1:] |= close
        found[:-1] |= close
        own = self.maps[-1]
        error = own.rounding * own.bias
        for source, reach in reaches.items():
            error = error + np.outer(own.rounding * reach + self.errors[source], own.rows[source])
        found |= ~(error <= LOOSE * np.abs(out).max(axis=0) + TINY).all(axis=1)
        for low, high in self.open:
            first = np.searchsorted(t, low, side="right") - 1
            last = np.searchsorted(t, high, side="left")
            for a, b in zip(first.tolist(), last.tolist(), strict=True):
                found[a : b + 1] = True
        return found


def _squares(matrix: Matrix) -> Vector:
    if sp.issparse(matrix):
        return np.asarray(matrix.power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", matrix, matrix)


def _steepest(matrix: Matrix, frobenius: float) -> float:
    """At least the largest singular value, by |G G|_F = (sum of its eighth powers)^(1/2), where
    G = W W'; or by the largest sums of rows and columns, where that is less."""
    size = abs(matrix).max(initial=0.0) if not sp.issparse(matrix) else abs(matrix).max()
    if not 0.0 < size < np.inf:
        return frobenius
    scaled = matrix * (1.0 / size) if size >= 1e-300 else matrix
    if size < 1e-300:
        return frobenius
    positive = abs(scaled)
    sums = float(np.sqrt(positive.sum(axis=0).max() * positive.sum(axis=1).max()))
    if sp.issparse(matrix):
        return min(frobenius, sums * float(size) * (1 + 2.0**-20))
    wide = matrix.shape[0] <= matrix.shape[1]
    gram = scaled @ scaled.T if wide else scaled.T @ scaled
    lost = max(matrix.shape) * UNIT
    square = np.linalg.norm(gram @ gram) + lost * np.sum(gram * gram)
    steep = np.sqrt(np.sqrt(square) + lost * np.sum(scaled * scaled))
    return min(frobenius, float(min(steep, sums)) * float(size) * (1 + 2.0**-20))

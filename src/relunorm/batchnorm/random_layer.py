"""One layer of a finite random network with batch normalization, drawn exactly in law.

Given the layer before, neurons are independent and each one's pre-activations on the batch are
N(0, G): n normals a neuron do what a row of weights does. No fewer will do behind a non-linearity,
where the next Gram matrix is a sum of ``width`` independent terms without a known law. Behind none
it is a Wishart matrix, which Bartlett's (1933) decomposition draws from n^2/2 normals.

Distances between points matter as much as the points: a layer may stretch a distance of 1e-12 a
hundredfold. The root of G must know them to rounding, which a rounded G itself does not (its root
is uncertain by 1e-8); see `triangular_root`.

Passes over a layer's activations (n, width) are compiled. Neurons are taken in blocks whose columns
stay in the fastest memory, so that a layer is read once from the slower one. Rows are handed on as
slices: an index that may be negative would keep the compiler from vector instructions.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from relunorm.compiled.jit import loose_kernel, loose_part

Matrix = NDArray[np.float64]

#: Cholesky is used while every pivot is at least this share of its point's norm.
DEPENDENT = 1e-4


class RandomLayer:
    """Draws layers of ``width`` neurons on different points; memory is kept between layers.

    Args:
        counts: how many points of the batch each of them stands for.
        slope: of the non-linearity below zero.
        recenter: subtract each neuron's mean over the batch.
        statistic: what each neuron is divided by ("rms", "std"), or None.
    """

    def __init__(
        self,
        counts: NDArray[np.float64],
        width: int,
        slope: float,
        recenter: bool,
        statistic: str | None,
        rng: np.random.Generator,
    ):
        self.counts, self.width, self.slope = counts, width, slope
        self.n = n = len(counts)
        self.recenter, self.statistic, self.rng = recenter, statistic, rng
        self.wishart = slope == 1 and statistic is None and width >= n
        self._held: list[Matrix] = []

    def by_weights(self, state: Matrix) -> Matrix:
        """The layer's activations (n, width) from those before; weights of variance 2/width."""
        weights = self.rng.standard_normal((state.shape[1], self.width))
        return self._respond((state * np.sqrt(2 / self.width)) @ weights)

    def by_gram(self, gram: Matrix, before: Matrix) -> Matrix:
        """The same in law from the Gram matrix before; valid until the call after next.

        ``before`` are the activations whose Gram matrix it is, up to a factor.
        In a linear network a square factor with the same Gram matrix stands for the activations;
        see `full`.
        """
        if self.wishart:
            return self._wishart_factor(gram, before)
        if not self._held:
            self._held = [np.empty((self.n, self.width)) for _ in range(2)]
        # a layer is written beside the one before, which stays whole if the run is interrupted
        state, other = self._held
        self._held = [other, state]
        self.rng.standard_normal(out=state)
        root = triangular_root(gram * (2 / self.width), before)
        multiply_by_root(root, state)
        return self._respond(state)

    def _wishart_factor(self, gram: Matrix, before: Matrix) -> Matrix:
        if self._held:  # the factor of the layer before is a root of its own
            root = self._held[0] * np.sqrt(2 / self.width * np.trace(gram)) / norm(self._held[0])
        else:
            root = triangular_root(gram * (2 / self.width), before)
        if self.recenter:
            root = root - self.counts @ root / self.counts.sum()
        self._held = [root @ self._bartlett()]
        return self._held[0]

    def full(self, state: Matrix) -> Matrix:
        """Activations (n, width) behind a square factor: a Gaussian matrix is a triangular one
        times a uniformly distributed frame, independent of it.
        """
        if not self.wishart:
            return state
        frame, signs = np.linalg.qr(self.rng.standard_normal((self.width, self.n)))
        return state @ (frame * np.sign(signs.diagonal())).T

    def _bartlett(self) -> Matrix:
        factor = np.tril(self.rng.standard_normal((self.n, self.n)), -1)
        factor[np.diag_indices(self.n)] = np.sqrt(
            self.rng.chisquare(self.width - np.arange(self.n))
        )
        return factor

    def _respond(self, z: Matrix) -> Matrix:
        """Recentering and rescaling over the batch (axis 0) and the non-linearity, in place."""
        rescale = self.statistic is not None
        about_mean = self.statistic == "std"
        normalize_and_respond(z, self.counts, self.slope, self.recenter, rescale, about_mean)
        return z


def multiply_by_root(root: Matrix, state: Matrix) -> None:
    """state = root @ state in place, the zeros of the lower triangular root left out.

    BLAS counts by columns, so it is handed the transpose of a contiguous array.
    """
    blas.dtrmm(1.0, root, state.T, side=1, lower=1, trans_a=1, overwrite_b=1)  # type: ignore[attr-defined]


def triangular_root(gram: Matrix, points: Matrix) -> Matrix:
    """A lower triangular R with R R' = gram: every root gives the same law.

    ``points`` (n, any) have this Gram matrix up to a factor. Cholesky, whose distances |R_i - R_j|
    have a relative error of about 2^-52 over the square of the smallest pivot. Where a pivot says
    that points are (nearly) dependent: the transposed triangle of a QR factorization of the points,
    at three times the cost, whose every row is off by rounding of its own norm.
    """
    root, failed = lapack.dpotrf(gram, lower=1)  # type: ignore[attr-defined]
    if not failed and (root.diagonal() > DEPENDENT * np.sqrt(gram.diagonal())).all():
        return root
    n, width = points.shape
    # LAPACK's default workspace would keep it from working in blocks
    triangle = lapack.dgeqrf(points.T, lwork=32 * n)[0]  # type: ignore[attr-defined]
    root = np.zeros((n, n), order="F")
    root[:, : min(n, width)] = np.triu(triangle[:n]).T
    return root * np.sqrt(np.trace(gram)) / norm(root)


#: Neurons normalized at once.
BLOCK = 256


@loose_part
def _add(total, count, row):
    for k in range(len(row)):
        total[k] += count * row[k]


@loose_part
def _add_squares(total, count, mean, row):
    for k in range(len(row)):
        apart = row[k] - mean[k]
        total[k] += count * apart * apart


@loose_part
def _respond(row, mean, factor, slope):
    for k in range(len(row)):
        y = (row[k] - mean[k]) * factor[k]
        row[k] = max(y, 0.0) + slope * min(y, 0.0)


@loose_kernel
def normalize_and_respond(z, counts, slope, recenter, rescale, about_mean):
    """Batch normalization over axis 0 and the (leaky) ReLU, in place.

    ``counts``: how many points of the batch each row stands for. ``about_mean``: rescaling divides
    by the deviation about the mean, otherwise by the root mean square. A neuron whose statistic is
    0 responds with 0.
    """
    rows, width = z.shape
    n = 0.0
    for i in range(rows):
        n += counts[i]
    means, factors = np.empty(BLOCK), np.empty(BLOCK)
    for low in range(0, width, BLOCK):
        high = min(width, low + BLOCK)
        mean, factor = means[: high - low], factors[: high - low]
        for k in range(len(mean)):
            mean[k], factor[k] = 0.0, 0.0 if rescale else 1.0
        if recenter or (rescale and about_mean):
            for i in range(rows):
                _add(mean, counts[i], z[i, low:high])
            for k in range(len(mean)):
                mean[k] /= n
        if rescale:
            for i in range(rows):
                _add_squares(factor, counts[i], mean, z[i, low:high])
            for k in range(len(factor)):
                factor[k] = math.sqrt(n / factor[k]) if factor[k] > 0 else 0.0
        if not recenter:
            for k in range(len(mean)):
                mean[k] = 0.0
        for i in range(rows):
            _respond(z[i, low:high], mean, factor, slope)

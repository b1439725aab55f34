"""One layer of a finite random network with batch normalization, drawn exactly in law.

Given the layer before, neurons are independent and each one's pre-activations on the batch are
N(0, G): n normals a neuron do what a row of weights does. No fewer will do behind a non-linearity,
where the next Gram matrix is a sum of ``width`` independent terms without a known law. Behind none
it is a Wishart matrix, which Bartlett's (1933) decomposition draws from n^2/2 normals.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from relunorm.batchnorm._layer_kernel import normalize_and_respond
from relunorm.batchnorm._normals import fill_normals
from relunorm.batchnorm.gram import matrix_root

Matrix = NDArray[np.float64]


class RandomLayer:
    """Draws layers of ``width`` neurons on n points; memory is kept between layers.

    Args:
        slope: of the non-linearity below zero.
        recenter: subtract each neuron's mean over the batch.
        statistic: what each neuron is divided by ("rms", "std"), or None.
    """

    def __init__(
        self,
        n: int,
        width: int,
        slope: float,
        recenter: bool,
        statistic: str | None,
        rng: np.random.Generator,
    ):
        self.n, self.width, self.slope = n, width, slope
        self.recenter, self.statistic, self.rng = recenter, statistic, rng
        self.wishart = slope == 1 and statistic is None and width >= n
        self._held: list[Matrix] = []

    def by_weights(self, state: Matrix) -> Matrix:
        """The layer's activations (n, width) from those before; weights of variance 2/width."""
        weights = self.rng.standard_normal((state.shape[1], self.width))
        return self._respond((state * np.sqrt(2 / self.width)) @ weights)

    def by_gram(self, gram: Matrix) -> Matrix:
        """The same in law from the Gram matrix before alone; valid until the call after next.

        In a linear network a square factor with the same Gram matrix stands for the activations;
        see `full`.
        """
        if self.wishart:
            return self._wishart_factor(gram)
        if not self._held:
            self._held = [np.empty((self.n, self.width)) for _ in range(2)]
        # a layer is written beside the one before, which stays whole if the run is interrupted
        state, before = self._held
        self._held = [before, state]
        fill_normals(self.rng, state)
        root = triangular_root(gram * (2 / self.width))
        multiply_by_root(root, state)
        return self._respond(state)

    def _wishart_factor(self, gram: Matrix) -> Matrix:
        if self._held:  # the factor of the layer before is a root of its own
            root = self._held[0] * np.sqrt(2 / self.width * np.trace(gram)) / norm(self._held[0])
        else:
            root = triangular_root(gram * (2 / self.width))
        if self.recenter:
            root = root - root.mean(axis=0)
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
        normalize_and_respond(z, self.slope, self.recenter, rescale, self.statistic == "std")
        return z


def multiply_by_root(root: Matrix, state: Matrix) -> None:
    """state = root @ state in place, the zeros of the lower triangular root left out.

    BLAS counts by columns, so it is handed the transpose of a contiguous array.
    """
    blas.dtrmm(1.0, root, state.T, side=1, lower=1, trans_a=1, overwrite_b=1)  # type: ignore[attr-defined]


def triangular_root(gram: Matrix) -> Matrix:
    """A lower triangular R with R R' = gram: every root gives the same law.

    Cholesky, ten times cheaper than eigenvalues, unless a small pivot says that the points are
    (nearly) dependent, where it would add noise.
    """
    root, failed = lapack.dpotrf(gram, lower=1)  # type: ignore[attr-defined]
    if not failed:
        pivots = root.diagonal()
        if pivots.min() > 1e-5 * pivots.max():
            return root
    return np.asarray(np.linalg.qr(matrix_root(gram)).R.T)

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

from relunorm.batchnorm.gram import matrix_root

Matrix = NDArray[np.float64]


class RandomLayer:
    """Draws layers of ``width`` neurons on n points; memory is kept between layers.

    Args:
        slope: of the non-linearity below zero.
        recenter: subtract each neuron's mean over the batch.
        statistic: what each neuron is divided by ("rms", "std"), or None.
        vector: draw the normals of `by_gram` by `fill_normals`.
    """

    def __init__(
        self,
        n: int,
        width: int,
        slope: float,
        recenter: bool,
        statistic: str | None,
        rng: np.random.Generator,
        vector: bool = False,
    ):
        self.n, self.width, self.slope = n, width, slope
        self.recenter, self.statistic, self.rng = recenter, statistic, rng
        self.vector = vector
        self.wishart = slope == 1 and statistic is None and width >= n
        self._held: list[Matrix] = []

    def by_weights(self, state: Matrix) -> Matrix:
        """The layer's activations (n, width) from those before; weights of variance 2/width."""
        weights = self.rng.standard_normal((state.shape[1], self.width))
        z = (state * np.sqrt(2 / self.width)) @ weights
        if self.recenter:
            z -= z.mean(axis=0)
        return self._respond(z)

    def by_gram(self, gram: Matrix) -> Matrix:
        """The same in law from the Gram matrix before alone; valid until the call after next.

        In a linear network a square factor with the same Gram matrix stands for the activations;
        see `full`.
        """
        if self.wishart and self._held:  # the factor of the layer before is a root of its own
            root = self._held[0] * np.sqrt(2 / self.width * np.trace(gram)) / norm(self._held[0])
        else:
            root = any_root(gram * (2 / self.width))
        if self.recenter:
            root = root - root.mean(axis=0)  # instead of the (n, width) matrix
        if self.wishart:
            self._held = [root @ self._bartlett()]
            return self._held[0]
        if not self._held:
            self._held = [np.empty((self.n, self.width)) for _ in range(3)]
        # a layer is written beside the one before, which stays whole if the run is interrupted
        normals, state, before = self._held
        self._held = [normals, before, state]
        if self.vector:
            from relunorm.batchnorm._normals import fill_normals  # numba: at first use

            fill_normals(self.rng, normals)
        else:
            self.rng.standard_normal(out=normals)
        return self._respond(np.matmul(root, normals, out=state))

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
        """Rescaling over the batch (axis 0) and the non-linearity, in place."""
        if self.statistic is not None:
            deviation = z
            if self.statistic == "std" and not self.recenter:
                deviation = z - z.mean(axis=0)
            square = np.einsum("ij,ij->j", deviation, deviation) / len(z)
            with np.errstate(divide="ignore"):
                z *= np.where(square > 0, 1 / np.sqrt(square), 0.0)
        if self.slope == 0:
            np.maximum(z, 0.0, out=z)
        elif self.slope != 1:
            np.multiply(z, self.slope, out=z, where=z < 0)
        return z


def any_root(gram: Matrix) -> Matrix:
    """R with R R' = gram: every one gives the same law.

    Cholesky, ten times cheaper than eigenvalues, unless a small pivot says that the points are
    (nearly) dependent, where it would add noise.
    """
    try:
        root = np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
    except np.linalg.LinAlgError:
        return matrix_root(gram)
    pivots = root.diagonal()
    return root if pivots.min() > 1e-5 * pivots.max() else matrix_root(gram)

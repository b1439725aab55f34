"""Definition 12 and Theorems 13 and 14 of seed 004 as statements that can be computed.

All are about Gram matrices: under recentering and ReLU with weights of variance 2 alpha / d the
expected Gram matrix of the next layer is alpha times the map (111) of the centred one, exactly and
for every width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.batchnorm.gram import check_gram, gram_step, kernel_gram
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError


def invariant_gram(n: int) -> NDArray[np.float64]:
    """The Gram matrix of Def. 12: point 0 of norm 1, the others equal, orthogonal to it, of norm
    1/(n-1).

    >>> invariant_gram(3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.25, 0.25], [0.0, 0.25, 0.25]]
    """
    if n < 2:
        raise InvalidInputError(f"the invariant representation needs n >= 2, not {n}")
    gram = np.full((n, n), 1 / (n - 1) ** 2)
    gram[0, :] = gram[:, 0] = 0.0
    gram[0, 0] = 1.0
    return gram


def invariant_alpha(n: int) -> float:
    """alpha = n^2 / (n^2 - 2n + 2): the variance factor of Thm 13, and the factor by which squared
    distances within the cluster grow per layer there, which makes Def. 12 an unstable fixed point
    (docs/errata.md).
    """
    return n * n / (n * n - 2 * n + 2)


@dataclass(frozen=True)
class InvariantCheck:
    """How far a Gram matrix is from Def. 12, item by item (absolute differences)."""

    odd_norm: float
    cluster_norm: float
    product: float
    spread: float

    @property
    def holds(self) -> bool:
        """All four items to 1e-9."""
        return max(self.odd_norm, self.cluster_norm, self.product, self.spread) < 1e-9

    def to_dict(self) -> dict[str, Any]:
        return {"schema": "relunorm.invariant/1", **self.__dict__, "holds": self.holds}


def check_invariant(gram: ArrayLike) -> InvariantCheck:
    """Items 1-4 of Def. 12 for a Gram matrix whose point 0 is the odd one.

    >>> check_invariant(invariant_gram(5)).holds
    True
    """
    g = check_gram(gram)
    n = len(g)
    if n < 2:
        raise InvalidInputError("the invariant representation needs at least two points")
    center = g[1:, 1:].mean()
    spread = np.diag(g)[1:] - 2 * g[1:, 1:].mean(axis=1) + center
    return InvariantCheck(
        abs(float(g[0, 0]) - 1),
        abs(float(center) - 1 / (n - 1) ** 2),
        abs(float(g[0, 1:].mean())),
        math.sqrt(max(float(spread.max()), 0.0)),
    )


@dataclass(frozen=True)
class Theorem13:
    """Theorem 13 for a batch size, correct and as printed.

    Attributes:
        expected_gram: Def. 12's check of the expected Gram matrix after a layer: holds.
        printed_odd_norm: |E x_1|^2, which the printed statement needs to be 1: it is 1/pi.
    """

    n: int
    alpha: float
    expected_gram: InvariantCheck
    printed_odd_norm: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.theorem13/1",
            **entries(self, "n alpha expected_gram printed_odd_norm"),
        }


def theorem13(n: int) -> Theorem13:
    """The expected Gram matrix of an invariant representation is invariant; its expectation is not.

    E ReLU(N(0, s^2)) = s / sqrt(2 pi) in each of d coordinates, s^2 = 2/d, so |E x_1|^2 = 1/pi.

    >>> theorem13(10).expected_gram.holds, round(theorem13(10).printed_odd_norm, 4)
    (True, 0.3183)
    """
    alpha = invariant_alpha(n)
    gram = invariant_gram(n)
    after = alpha * gram_step(gram, recenter=True)
    centred = 1 - 2 * gram[0].mean() + gram.mean()  # |x_1 - mean|^2
    return Theorem13(n, alpha, check_invariant(after), alpha * float(centred) / math.pi)


@dataclass(frozen=True)
class Theorem14:
    """Theorem 14 on a given Gram matrix, with what its hypotheses ask.

    Attributes:
        radius: R = |x_1 - nu_c|; must exceed n/(n-1).
        spread: the largest |x_i - nu_c|; must be below 1/n^2.
        hypothesis: both hold. (With Def. 12, "invariant", R^2 = 1 + 1/(n-1)^2 is never enough, so
            that word is dropped: docs/errata.md.)
        odd_norm, cluster_norm: E |x_1'|^2 and E |nu'|^2 (items 1, 2: squared norms), 1 and
            1/(n-1)^2.
        product: E <x_1', nu'> (item 3), 0.
        contraction: largest E |x_i' - x_j'|^2 / |x_i - x_j|^2 over pairs in the cluster and its
            centre (item 4); below 1. 0 if the cluster is one point.
    """

    n: int
    radius: float
    spread: float
    hypothesis: bool
    alpha: float
    odd_norm: float
    cluster_norm: float
    product: float
    contraction: float

    @property
    def holds(self) -> bool:
        """Items 1-4 in their correct form."""
        items = (self.odd_norm - 1, self.cluster_norm - 1 / (self.n - 1) ** 2, self.product)
        return max(map(abs, items)) < 1e-9 and self.contraction < 1

    def to_dict(self) -> dict[str, Any]:
        return {"schema": "relunorm.theorem14/1", **self.__dict__, "holds": self.holds}


def theorem14(gram: ArrayLike) -> Theorem14:
    """One layer of recentering and ReLU on a batch with an odd point 0, variance 2 alpha / d.

    alpha = n^2 / ((n-1)^2 R^2). Exact (the expected Gram matrix in closed form).

    >>> g = np.diag([2.0, 0.01, 0.01, 0.01]) + 0.1 * np.pad(np.ones((3, 3)), ((1, 0), (1, 0)))
    >>> t = theorem14(g)
    >>> t.hypothesis, t.holds  # the cluster is wider than 1/n^2, yet items 1-4 hold
    (False, True)
    """
    g = check_gram(gram)
    n = len(g)
    if n < 3:
        raise InvalidInputError(f"Theorem 14 needs an odd point and a cluster: n >= 3, not {n}")
    # point n is the cluster's centre nu_c
    lift = np.vstack([np.eye(n), np.r_[0.0, np.full(n - 1, 1 / (n - 1))]])
    full = lift @ g @ lift.T
    mean = np.r_[np.full(n, 1 / n), 0.0]
    shift = np.eye(n + 1) - np.outer(np.ones(n + 1), mean)
    radius2 = full[0, 0] - 2 * full[0, n] + full[n, n]
    if not radius2 > 0:
        raise InvalidInputError("point 0 lies at the centre of the others, so it is not odd")
    alpha = n * n / ((n - 1) ** 2 * radius2)
    after = alpha * kernel_gram(shift @ full @ shift.T)
    before_d, after_d = _squared_distances(full)[1:, 1:], _squared_distances(after)[1:, 1:]
    apart = before_d > 1e-14 * radius2
    contraction = float((after_d[apart] / before_d[apart]).max()) if apart.any() else 0.0
    spread = math.sqrt(max(float(_squared_distances(full)[1:n, n].max()), 0.0))
    radius = math.sqrt(float(radius2))
    return Theorem14(
        n,
        radius,
        spread,
        radius > n / (n - 1) and spread < 1 / n**2,
        float(alpha),
        float(after[0, 0]),
        float(after[n, n]),
        float(after[0, n]),
        contraction,
    )


def _squared_distances(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    diagonal = np.diag(gram)
    return np.maximum(diagonal[:, None] + diagonal[None, :] - 2 * gram, 0.0)

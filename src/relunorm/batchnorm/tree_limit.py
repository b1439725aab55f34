"""Where the tree model's geometry goes as the depth grows: Theorem 11 of seed 004, sharp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm._coordinate import rate


@dataclass(frozen=True, eq=False)
class TreeLimit:
    """Where the geometry goes as the depth grows (Theorem 11, sharp).

    Attributes:
        gram: the limit of the Gram matrix over its trace, in the order of the input.
        odd: the points that escape, one or two: norms nearer to the largest than to the cluster's
            (by ratio).
        norm_ratio: |cluster point| / |odd point|; the paper's bound is 3/(n-2).
        cosine: between a cluster point and the (larger) odd point.
        ratio: r = S_min / S_max of the two extreme splits; 1 for a symmetric batch, 0 if only one
            counts; None for several coordinates.
        decay: the factor by which squared norms shrink per layer in the limit.
        printed_norm_bound, printed_angle_bound: Theorem 11's items 3 and 4, radians; None for n <
            3.
    """

    gram: NDArray[np.float64]
    odd: tuple[int, ...]
    norm_ratio: float
    cosine: float
    ratio: float | None
    decay: float
    printed_norm_bound: float | None
    printed_angle_bound: float | None

    @property
    def angle(self) -> float:
        """Between a cluster point and the odd point, radians."""
        return math.acos(min(1.0, self.cosine))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.tree_limit/1",
            "odd": list(self.odd),
            "norm_ratio": self.norm_ratio,
            "cosine": self.cosine,
            "angle": self.angle,
            "ratio": self.ratio,
            "decay": self.decay,
            "printed_norm_bound": self.printed_norm_bound,
            "printed_angle_bound": self.printed_angle_bound,
            "gram": self.gram.tolist(),
        }

    def __repr__(self) -> str:
        return (
            f"TreeLimit(odd={self.odd}, norm_ratio={self.norm_ratio:.6g}, "
            f"angle={math.degrees(self.angle):.4f} degrees)"
        )


def limit_gram(n: int, weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Gram matrix of the splits that decay slowest, and r = smaller / larger of their weights."""
    rates = {m: rate(m, n) for m in range(1, n) if weight[m] > 0}
    q = max(rates.values())
    splits = [m for m, rate in rates.items() if rate == q]
    gram = np.zeros((n, n))
    for m in splits:
        gram[m:, m:] += (m / n) ** 2 * weight[m]
        gram[:m, :m] += ((n - m) / n) ** 2 * weight[m]
    present = [weight[m] for m in splits]
    return gram, min(present) / max(present) if len(present) > 1 else 0.0


def limit_of(gram: NDArray[np.float64], ratio: float | None, q: float) -> TreeLimit:
    """Read odd points, norm ratio and cosine off the limit of the Gram matrix."""
    n = len(gram)
    gram = gram / np.trace(gram)
    squares = np.diag(gram)
    largest = int(np.argmax(squares))
    inside = int(np.argmin(np.where(np.arange(n) == largest, np.inf, squares)))
    interior = squares[inside]
    # odd: nearer to the largest norm than to the cluster's, on a logarithmic scale
    odd = np.flatnonzero(squares >= math.sqrt(interior * squares.max()) * (1 - 1e-9))
    norm_ratio = math.sqrt(interior / squares.max())
    cosine = gram[largest, inside] / math.sqrt(squares.max() * interior)
    printed = (
        (3 / (n - 2), math.pi / 2 - math.sqrt(2) * math.pi / (n - 2)) if n > 2 else (None, None)
    )
    return TreeLimit(gram, tuple(odd.tolist()), norm_ratio, float(cosine), ratio, q, *printed)

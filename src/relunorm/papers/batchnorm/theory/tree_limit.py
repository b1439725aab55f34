"""Where the tree model's geometry goes as the depth grows: Theorem 11 of seed 004, sharp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries
from relunorm.papers.batchnorm.theory.coordinate import rate

#: Representations closer than this share of the shorter one's norm are one; norms alike, equal.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class TreeLimit:
    """Where the geometry goes as the depth grows (Theorem 11, sharp).

    In the limit points fall into groups with one representation each. The group of smallest norm is
    the cluster; those whose norm is nearer to the largest than to the cluster's (by ratio) escape.
    Of distinct points on a line one or two escape, each alone: the odd points. Equal points escape
    together. With several coordinates each sends out points of its own, and where these are more
    than two no odd point can be identified. If all groups have the same norm, as those of [1, 1, 2,
    2], there is no cluster and nothing escapes.

    Attributes:
        gram: the limit of the Gram matrix over its trace, in the order of the input.
        groups: the points that share a representation, groups of largest norm first.
        escaping: the groups that escape from the cluster.
        odd: the points that escape alone, one or two; empty if equal points escape together, if
            more than two groups escape, or if there is no cluster.
        norm_ratio: |cluster point| / |point of the largest group|; the paper's bound is 3/(n-2). 1
            without a cluster.
        cosine: between the cluster and the largest group; without a cluster, between the two groups
            furthest apart.
        ratio: r = S_min / S_max of the two extreme splits; 1 for a symmetric batch, 0 if only one
            counts; None for several coordinates.
        decay: the factor by which squared norms shrink per layer in the limit.
        printed_norm_bound, printed_angle_bound: Theorem 11's item 3, and item 4 with the sqrt(2) pi
            of (88) that its proof gives (docs/errata.md), radians; None where it says nothing:
            several coordinates, equal points, n < 3.
    """

    gram: NDArray[np.float64]
    groups: tuple[tuple[int, ...], ...]
    escaping: tuple[tuple[int, ...], ...]
    norm_ratio: float
    cosine: float
    ratio: float | None
    decay: float
    printed_norm_bound: float | None
    printed_angle_bound: float | None

    @property
    def odd(self) -> tuple[int, ...]:
        """The points that escape alone, one or two, in the order of the input; or none."""
        alone = len(self.escaping) <= 2 and all(len(group) == 1 for group in self.escaping)
        return tuple(sorted(i for group in self.escaping for i in group)) if alone else ()

    @property
    def angle(self) -> float:
        """Between the cluster and the largest group (see ``cosine``), radians."""
        return math.acos(min(1.0, self.cosine))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.tree_limit/1",
            **entries(
                self,
                "odd groups escaping norm_ratio cosine angle ratio decay "
                "printed_norm_bound printed_angle_bound gram",
            ),
        }

    def __repr__(self) -> str:
        angle = f"angle={math.degrees(self.angle):.4f} degrees"
        if not self.escaping:
            return f"TreeLimit({len(self.groups)} groups of equal norm, no cluster, {angle})"
        what = f"odd={self.odd}"
        if len(self.escaping) > 2:
            what = f"no odd point, {len(self.escaping)} groups escape"
        elif not self.odd:
            what = f"no odd point, escaping={self.escaping}"
        return f"TreeLimit({what}, norm_ratio={self.norm_ratio:.6g}, {angle})"


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


def limit_of(
    gram: NDArray[np.float64], ratio: float | None, q: float, theorem_applies: bool
) -> TreeLimit:
    """Read groups, norm ratio and cosine off the limit of the Gram matrix."""
    n = len(gram)
    gram = gram / np.trace(gram)
    groups = _groups(gram)
    norms = np.sqrt(np.diag(gram))[[group[0] for group in groups]]
    first = [group[0] for group in groups]
    cosines = gram[np.ix_(first, first)] / np.outer(norms, norms)
    escaping: list[tuple[int, ...]] = []
    norm_ratio, cosine = 1.0, float(cosines.min())
    if norms[-1] < (1 - SAME) * norms[0]:
        norm_ratio, cosine = float(norms[-1] / norms[0]), float(cosines[0, -1])
        # on a logarithmic scale
        border = math.sqrt(norms[-1] * norms[0]) * (1 - 1e-9)
        escaping = [group for group, norm in zip(groups, norms, strict=True) if norm >= border]
    printed = (None, None)
    if theorem_applies and n > 2:
        printed = (3 / (n - 2), math.pi / 2 - math.sqrt(2) * math.pi / (n - 2))
    return TreeLimit(gram, groups, tuple(escaping), norm_ratio, cosine, ratio, q, *printed)


def _groups(gram: NDArray[np.float64]) -> tuple[tuple[int, ...], ...]:
    """The points by representation, longest first."""
    squares = np.diag(gram)
    left = np.argsort(-squares, kind="stable")
    found = []
    while len(left):
        i = left[0]
        apart = squares[i] + squares[left] - 2 * gram[i, left]
        same = apart <= SAME**2 * np.minimum(squares[i], squares[left])
        same[0] = True
        found.append(tuple(sorted(left[same].tolist())))
        left = left[~same]
    return tuple(found)

"""What a Gram matrix says about a batch: ranks, angles, clusters, odd points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import real_number
from relunorm.batchnorm.gram import angles_of, square
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

#: A point is odd when its norm is this many times the next one's ...
ODD_NORM_GAP = 2.0
#: ... and its angle to the rest exceeds the angles within the rest by this much (radians).
ODD_ANGLE_GAP = math.radians(10)


def soft_rank(gram: NDArray[np.float64]) -> float:
    """(tr G)^2 / |G|_F^2: between 1 (all points on one line) and n (an orthogonal batch of equal
    norms).

    >>> soft_rank(np.eye(4)), soft_rank(np.ones((4, 4)))
    (4.0, 1.0)
    """
    gram = square(gram)
    total = float(np.sum(gram * gram))
    return float(np.trace(gram)) ** 2 / total if total > 0 else 0.0


def numeric_rank(singular_values: NDArray[np.float64], tolerance: float) -> int:
    """How many singular values exceed ``tolerance`` times the largest."""
    top = float(np.max(singular_values, initial=0.0))
    return int(np.count_nonzero(singular_values > tolerance * top)) if top > 0 else 0


def pair_angles(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles of all pairs i < j in row order, radians; NaN where a point is 0."""
    return angles_of(gram)[np.triu_indices(len(gram), 1)]


@dataclass(frozen=True)
class OddTest:
    """Whether one or two points stand apart from a cluster.

    Attributes:
        points: the odd points, largest first; empty if there is none.
        norm_gap: ratio of the norms on the two sides of the cut it rests on (after the first point
            or after the second, whichever is larger).
        angle_gap: mean angle between odd points and the rest, less the mean angle within the rest,
            radians. None where the rest has fewer than two points.
        required_norm_gap, required_angle_gap: what the verdict asked for.
    """

    points: tuple[int, ...]
    norm_gap: float
    angle_gap: float | None
    required_norm_gap: float = ODD_NORM_GAP
    required_angle_gap: float = ODD_ANGLE_GAP

    @property
    def count(self) -> int:
        """How many odd points: 0, 1 or 2."""
        return len(self.points)

    def to_dict(self) -> dict[str, Any]:
        return {**entries(self, "points norm_gap angle_gap required_norm_gap required_angle_gap")}


def odd_points(
    gram: NDArray[np.float64], *, norm_gap: float = ODD_NORM_GAP, angle_gap: float = ODD_ANGLE_GAP
) -> OddTest:
    """Test a Gram matrix for one or two odd points.

    The norms are sorted; the candidate is the one point or the two points before the larger of the
    first two gaps. It is odd if that gap is at least ``norm_gap`` and the candidate's angles to the
    rest exceed those within the rest by ``angle_gap`` on average. Fewer than four points have no
    cluster to stand apart from.

    >>> odd_points(np.diag([9.0, 1, 1, 1]) + np.pad(np.full((3, 3), 0.9), ((1, 0), (1, 0)))).points
    (0,)
    """
    gram = square(gram)
    n = len(gram)
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    order = np.argsort(-norms, kind="stable")
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = norms[order[: n - 1][:2]] / norms[order[1:3]]
    gaps = np.where(np.isnan(gaps), 1.0, gaps)  # 0 / 0: no gap, nor has a single point one
    count = 2 if len(gaps) > 1 and gaps[1] > gaps[0] else 1
    gap = float(gaps[count - 1]) if len(gaps) else 1.0
    if n < 4 or norms.max() == 0:
        return OddTest((), gap, None, norm_gap, angle_gap)
    outside, inside = order[:count], order[count:]
    angles = angles_of(gram)
    within = angles[np.ix_(inside, inside)][np.triu_indices(len(inside), 1)]
    between = angles[np.ix_(outside, inside)]
    if np.isnan(within).all() or np.isnan(between).all():
        return OddTest((), gap, None, norm_gap, angle_gap)
    difference = float(np.nanmean(between) - np.nanmean(within))
    found = gap >= norm_gap and difference >= angle_gap
    points = tuple(int(i) for i in outside) if found else ()
    return OddTest(points, gap, difference, norm_gap, angle_gap)


def cluster_sizes(gram: NDArray[np.float64], angle: float) -> tuple[int, ...]:
    """Sizes, largest first, of the groups of points linked by angles below ``angle`` radians.

    >>> cluster_sizes(np.array([[1, 0.99, 0], [0.99, 1, 0], [0, 0, 1.0]]), math.radians(15))
    (2, 1)
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    if not 0 < real_number("angle", angle) <= math.pi:
        raise InvalidInputError(f"angle is {angle}, expected radians in (0, pi]")
    angles = angles_of(gram)
    linked = csr_array(np.nan_to_num(angles, nan=np.inf) < angle)
    _, labels = connected_components(linked, directed=False)
    return tuple(sorted(np.bincount(labels).tolist(), reverse=True))

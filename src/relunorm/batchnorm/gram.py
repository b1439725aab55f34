"""One layer of an infinitely wide random network as a map of Gram matrices, and what such a matrix
says about a batch: ranks, angles, clusters, odd points.

A neuron's pre-activations on a batch are N(0, G). With weights of variance 2/width the next Gram
matrix is 2 E[f(y_i) f(y_j)], where y = z, Hz (recentering, H = I - 11'/n), z/s or Hz/s (rescaling
by a statistic s of the neuron over the batch) and f is the non-linearity.

Without rescaling this is the arc-cosine kernel (seed 004, eq. 111; Cho & Saul 2009), in closed
form. With rescaling, 1/s^2 = n / (z'Mz) = n * integral of exp(-t z'Mz) over t > 0 (M = I for the
root mean square, H for the standard deviation) tilts the Gaussian to covariance (G^-1 + 2tM)^-1,
and what is left is a smooth integral in one variable of the same kernel.

The map is a function of a Gram matrix in floats, which tells points apart from an angle of about
1e-7 on. A deep random network tears points apart that differ by rounding, and rounding differs
between two copies of a point; so equal points are taken once (`EqualPoints`): merged, with their
number as a weight in the statistics of the batch, they stay equal at every depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import real_number, real_numbers, resolve_statistic
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

Statistic = Literal["auto", "rms", "std"]

#: Nodes of the trapezoid rule in log t; doubling them changes nothing above 1e-12.
NODES = 400


def arccos_kernel(rho: ArrayLike) -> NDArray[np.float64]:
    """J(r) = (sqrt(1-r^2) + (pi - arccos r) r) / pi (eq. 111 for unit vectors, J(1) = 1).

    >>> float(arccos_kernel(1.0)), round(float(np.degrees(np.arccos(arccos_kernel(-1 / 9)))), 2)
    (1.0, 74.65)
    """
    cosines = real_numbers("rho", rho).astype(np.float64, copy=False)
    if not (np.abs(cosines) <= 1 + 1e-9).all():
        raise InvalidInputError(f"rho is {rho!r}, expected cosines between -1 and 1")
    return clipped_kernel(cosines)


def clipped_kernel(rho: ArrayLike) -> NDArray[np.float64]:
    """`arccos_kernel` of cosines that rounding, or a step of a solver, may carry beyond 1."""
    rho = np.clip(np.asarray(rho, dtype=np.float64), -1.0, 1.0)
    return (np.sqrt(1 - rho * rho) + (np.pi - np.arccos(rho)) * rho) / np.pi


def arccos_kernel_derivative(rho: ArrayLike) -> NDArray[np.float64]:
    """J'(r) = (pi - arccos r) / pi."""
    return 1 - np.arccos(np.clip(np.asarray(rho, dtype=np.float64), -1.0, 1.0)) / np.pi


def nonlinearity_slope(nl: str | float) -> float:
    """The slope below zero: "relu" 0, "linear" 1, or the number itself (leaky ReLU)."""
    named = {"relu": 0.0, "linear": 1.0}
    if isinstance(nl, str):
        if nl not in named:
            raise InvalidInputError(
                f"non-linearity {nl!r} is not known; use 'relu', 'linear' or the slope of "
                "a leaky ReLU"
            )
        return named[nl]
    if not isinstance(nl, (int, float, np.number)) or isinstance(nl, bool):
        raise InvalidInputError(f"non-linearity {nl!r}: expected a name or a number")
    if not np.isfinite(nl):
        raise InvalidInputError("the slope of the leaky ReLU is not finite")
    return float(nl)


def center_gram(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """H G H: the Gram matrix after the mean of the points is subtracted.

    The subtraction is exact in real numbers, so the result's rows sum to 0 up to rounding.
    """
    gram = square(gram)
    return _centered(gram, np.ones(gram.shape[-1]))


def _centered(gram: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean, over points that stand for ``counts`` each, subtracted on both sides."""
    share = counts / counts.sum()
    rows = gram - share @ gram
    return rows - (rows @ share)[..., None]


def kernel_gram(gram: NDArray[np.float64], slope: float = 0.0) -> NDArray[np.float64]:
    """2 E[f(z_i) f(z_j)] for z ~ N(0, gram), f the leaky ReLU with this slope below zero.

    |z_i| |z_j| ((1 + a^2) J(r) - 2 a J(-r)); a = 0 is ReLU.
    """
    gram = square(gram)
    norms = np.sqrt(np.maximum(np.diagonal(gram, axis1=-2, axis2=-1), 0.0))
    products = norms[..., :, None] * norms[..., None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.where(products > 0, gram / products, 0.0)
    value = (1 + slope * slope) * clipped_kernel(rho)
    if slope:
        value = value - 2 * slope * clipped_kernel(-rho)
    result = products * value
    # the diagonal is exact: J(1) - ... collapses to (1 + a^2)|z|^2
    index = np.arange(gram.shape[-1])
    result[..., index, index] = (1 + slope * slope) * norms**2
    return result


def gram_step(
    gram: ArrayLike,
    *,
    nl: str | float = "relu",
    recenter: bool = True,
    rescale: bool = False,
    statistic: Statistic = "auto",
    nodes: int = NODES,
) -> NDArray[np.float64]:
    """The Gram matrix after one infinitely wide layer (He scale: variance 2/width).

    Args:
        gram: (n, n), symmetric positive semi-definite.
        nl: "relu", "linear", or the slope of a leaky ReLU.
        recenter, rescale: which parts of batch normalization stand before the non-linearity.
        statistic: what rescaling divides by; see `resolve_statistic`.

    Exact without rescaling; with it, a quadrature with relative error below 1e-10. O(n^2), or O(n^3
    nodes) with rescaling.

    >>> G = gram_step(np.eye(3), recenter=False)
    >>> bool(np.isclose(G[0, 1], 1 / np.pi))
    True
    """
    gram = check_gram(gram)
    kind = resolve_statistic(statistic, recenter) if rescale else None
    equal = EqualPoints.of(gram)  # equal rows of a symmetric matrix: a distance of 0
    merged = gram[np.ix_(equal.first, equal.first)]
    after = merged_step(merged, equal.counts, nonlinearity_slope(nl), recenter, kind, nodes)
    return equal.expand(after, 0, 1)


def merged_step(
    gram: NDArray[np.float64],
    counts: NDArray[np.float64],
    slope: float,
    recenter: bool,
    statistic: Literal["rms", "std"] | None,
    nodes: int = NODES,
) -> NDArray[np.float64]:
    """`gram_step` of points that stand for ``counts`` points of the batch each."""
    used = _centered(gram, counts) if recenter else gram
    if not counts @ used.diagonal() > 1e-12 * max(counts @ gram.diagonal(), 1e-300):
        raise InvalidInputError(
            "all points of the batch are equal, so recentering leaves nothing; give "
            "different points"
        )
    if statistic is None:
        return kernel_gram(used, slope)
    return _rescaled(used, counts, slope, statistic, nodes)


def _rescaled(
    gram: NDArray[np.float64],
    counts: NDArray[np.float64],
    slope: float,
    statistic: Literal["rms", "std"],
    nodes: int,
) -> NDArray[np.float64]:
    """n * integral over t of det(I + 2tBMB)^-1/2 kernel(B (I + 2tBMB)^-1 B), B = G^1/2, where z'Mz
    is n times the square of the statistic.
    """
    n = counts.sum()
    root = matrix_root(gram)
    apart = root - counts @ root / n if statistic == "std" else root
    inner = root @ (counts[:, None] * apart)  # B M B
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    values = np.where(values > 1e-14 * values.max(), values, 0.0)
    positive = int(np.count_nonzero(values))
    flat = statistic == "std" and counts @ gram.diagonal() > (1 + 1e-9) * values.sum()
    if flat and positive <= 2:
        raise InvalidInputError(
            "dividing by the standard deviation without recentering has no finite second moment "
            f"for a batch that spans {positive} dimension(s) about its mean; use statistic='rms'"
        )
    carry = root @ vectors
    scale = values.sum() / n
    # trapezoid in y = log(t * scale): the integrand decays exponentially on both sides
    y = np.linspace(-36.0, 60.0, nodes)
    total = np.zeros(gram.shape)
    for t, weight in zip(np.exp(y) / scale, np.exp(y) / scale * (y[1] - y[0]), strict=True):
        shrink = 1 / (1 + 2 * t * values)
        determinant = np.exp(0.5 * np.sum(np.log(shrink)))
        if weight * determinant > 0:
            total += weight * determinant * kernel_gram((carry * shrink) @ carry.T, slope)
    return n * total


def matrix_root(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric square root; eigenvalues below rounding count as 0."""
    values, vectors = np.linalg.eigh(gram)
    # the root of an eigenvalue that is rounding (1e-16) would be 1e-8 of noise
    values = np.where(values > len(gram) * np.finfo(np.float64).eps * values[-1], values, 0.0)
    return (vectors * np.sqrt(values)) @ vectors.T


def angles_of(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """All pairwise angles in radians, shape (n, n); NaN where a point is 0."""
    gram = square(gram)
    norms = np.sqrt(np.maximum(np.diagonal(gram, axis1=-2, axis2=-1), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = gram / (norms[..., :, None] * norms[..., None, :])
    # the product of two rounded roots may miss the square, and arccos makes 1e-8 of it
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    equal = (gram == squares[..., :, None]) & (gram == squares[..., None, :]) & (gram > 0)
    return np.where(equal, 0.0, np.arccos(np.clip(cosines, -1.0, 1.0)))


def square(gram: ArrayLike) -> NDArray[np.float64]:
    """Real numbers of shape (..., n, n), or a clear error."""
    given = real_numbers("the Gram matrix", gram).astype(np.float64, copy=False)
    if given.ndim < 2 or given.shape[-1] != given.shape[-2] or not given.size:
        raise InvalidInputError(f"the Gram matrix has shape {given.shape}, expected (n, n)")
    return given


def check_gram(gram: ArrayLike) -> NDArray[np.float64]:
    """A finite symmetric positive semi-definite matrix, or a clear error."""
    given = square(gram)
    if given.ndim != 2:
        raise InvalidInputError(f"the Gram matrix has shape {given.shape}, expected (n, n)")
    if not np.isfinite(given).all():
        raise InvalidInputError("the Gram matrix holds NaN or infinite entries")
    scale = np.abs(given).max()
    if np.abs(given - given.T).max() > 1e-8 * scale or np.diag(given).min() < -1e-12 * scale:
        raise InvalidInputError("the Gram matrix is not symmetric with a non-negative diagonal")
    matrix = (given + given.T) / 2
    try:  # a third of the cost of eigenvalues; what is added forgives products in single precision
        np.linalg.cholesky(matrix / (scale or 1.0) + 1e-6 * len(matrix) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(matrix)[0]
        raise InvalidInputError(
            f"the Gram matrix is not positive semi-definite: it has the eigenvalue {least:.3g}, "
            "and inner products of points give none below 0"
        ) from None
    return matrix


@dataclass(frozen=True, eq=False)
class EqualPoints:
    """Which of n points are equal.

    Attributes:
        first: the first of each group of equal points, in the order of the batch.
        group: (n,) the group of each point.
        counts: how many points each group has, as floats.
    """

    first: NDArray[np.intp]
    group: NDArray[np.intp]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> EqualPoints:
        """Group the rows of an array that are equal in every entry.

        >>> EqualPoints.of(np.array([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0]])).counts
        array([2., 1.])
        """
        # 0.0 and -0.0 are one number
        _, first, group, counts = np.unique(
            rows + 0.0, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(first[order], place[group.reshape(-1)], counts[order].astype(np.float64))

    @property
    def merged(self) -> bool:
        """Whether any two points are equal."""
        return len(self.first) < len(self.group)

    def expand(self, array: NDArray[np.float64], *axes: int) -> NDArray[np.float64]:
        """An array with one entry per group along these axes, with one entry per point."""
        for axis in axes if self.merged else ():
            array = np.take(array, self.group, axis=axis)
        return array


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

"""Where deep infinitely wide networks settle: fixed points of the Gram map and their stability.

A state that looks the same after a layer, up to scale. Two kinds occur: the symmetric one (all
points alike), and, with recentering and without rescaling, one odd point beside an equiangular
cluster. Both are described by a few numbers, so each is solved to rounding in a space of at most
four dimensions, and its linear stability is read from small blocks: permutations of like points
commute with the map, hence (Schur) its derivative acts on each kind of perturbation by a matrix of
size at most 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import whole_number
from relunorm.batchnorm.gram import (
    arccos_kernel_derivative,
    center_gram,
    clipped_kernel,
    gram_step,
)
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A Gram matrix that a layer reproduces up to scale.

    Attributes:
        kind: "symmetric" (all points alike) or "odd" (one point apart, the others equiangular).
        gram: scaled to largest diagonal entry 1; in the odd state point 0 is the odd one.
        growth: the factor a layer puts on it.
        rate: largest modulus among the other eigenvalues of the derivative, over ``growth``. Below
            1 the state attracts; small perturbations shrink by this factor a layer.
        residual: how far the state is from being reproduced (largest entry).
    """

    kind: Literal["symmetric", "odd"]
    n: int
    gram: NDArray[np.float64]
    growth: float
    rate: float
    residual: float

    @property
    def stable(self) -> bool:
        """Whether small perturbations shrink."""
        return bool(self.rate < 1)

    @property
    def angle(self) -> float:
        """Between two alike points (the cluster's angle in the odd state), radians."""
        g = self.gram
        return math.acos(min(1.0, g[-1, -2] / g[-1, -1]))

    @property
    def odd_angle(self) -> float | None:
        """Between the odd point and a cluster point, radians."""
        g = self.gram
        return (
            None if self.kind == "symmetric" else math.acos(g[0, 1] / math.sqrt(g[0, 0] * g[1, 1]))
        )

    @property
    def norm_ratio(self) -> float:
        """|cluster point| / |odd point|; 1 in the symmetric state."""
        return math.sqrt(self.gram[-1, -1] / self.gram[0, 0])

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.fixed_point/1",
            "kind": self.kind,
            "n": int(self.n),
            **entries(self, "angle odd_angle norm_ratio growth rate stable residual"),
        }

    def __repr__(self) -> str:
        verdict = "stable" if self.stable else "unstable"
        return (
            f"FixedPoint({self.kind}, n={self.n}, angle={math.degrees(self.angle):.4f} degrees, "
            f"{verdict}, rate={self.rate:.4f})"
        )


def symmetric_state(n: int, *, recenter: bool = True, rescale: bool = False) -> FixedPoint:
    """The state with all norms and all angles equal that a ReLU layer reproduces.

    With recentering the centred batch is the regular simplex whatever came before, so the angle is
    arccos J(-1/(n-1)) after one layer, rescaled or not. Without recentering but with rescaling by
    the second moment it is the root of a one-dimensional equation, solved by bisection.

    >>> [round(math.degrees(symmetric_state(n).angle), 2) for n in (10, 100)]
    [74.65, 71.74]
    """
    whole_number("the batch size", n, 3)
    if recenter:
        rho = float(clipped_kernel(-1 / (n - 1)))
    elif rescale:
        rho = _rms_cosine(n)
    else:
        raise InvalidInputError(
            "without recentering or rescaling all angles go to 0: there is no "
            "symmetric state to find"
        )
    gram = np.full((n, n), rho)
    np.fill_diagonal(gram, 1.0)
    options = {"recenter": recenter, "rescale": rescale}
    return _finish("symmetric", gram, options, _symmetric_directions(n))


def odd_state(n: int) -> FixedPoint | None:
    """One odd point and an equiangular cluster under recentering and ReLU (no rescaling), or None.

    The four numbers of such a Gram matrix are iterated under (111) and polished by a root finder.
    The cluster's angle is about 3 pi / n; no such state exists for n <= 6 (docs/errata.md: the
    paper's Def. 12, a cluster of angle 0, is a fixed point too, but unstable).

    >>> round(math.degrees(odd_state(10).angle), 2), odd_state(6)
    (45.2, None)
    """
    whole_number("the batch size", n, 3)
    # Def. 12 with the cluster opened a little, inside the basin wherever there is one
    spread = min(0.5, 10.0 / n)
    b = 1 / (n - 1) ** 2
    state = np.array([1.0, b, 0.0, b * math.cos(spread)])
    for _ in range(400):
        after = _odd_step(state, n)
        state = after / after[0]
    state = _polished(state, n)
    if state is None or not state[1] < 0.9 or state[3] > state[1] * (1 - 1e-9):
        return None
    gram = _odd_gram(state, n)
    found = _finish("odd", gram, {"recenter": True, "rescale": False}, _odd_directions(n))
    return found if found.residual < 1e-9 else None


def fixed_points(n: int) -> tuple[FixedPoint, ...]:
    """Every fixed point known of recentering and ReLU without rescaling, the symmetric state first.

    >>> [p.kind for p in fixed_points(20)]
    ['symmetric', 'odd']
    """
    odd = odd_state(n)
    return (symmetric_state(n), *([] if odd is None else [odd]))


def gram_derivative(gram: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """The derivative of recentering + ReLU's Gram map at ``gram`` in direction ``change``, closed
    form.

    With g = HGH, r its correlations: dK_ij = J'(r) dg_ij + (J(r) - r J'(r)) sqrt(g_ii g_jj)
    (dg_ii/g_ii + dg_jj/g_jj)/2.
    """
    g, d = center_gram(gram), center_gram(change)
    if g.ndim != 2 or g.shape != d.shape:
        raise InvalidInputError(f"gram and change have shapes {g.shape}, {d.shape}, expected one")
    diagonal = np.diag(g)
    norms = np.sqrt(diagonal)
    products = np.outer(norms, norms)
    rho = np.clip(g / products, -1.0, 1.0)
    slope = arccos_kernel_derivative(rho)
    relative = np.diag(d) / diagonal
    bend = (clipped_kernel(rho) - rho * slope) * products / 2
    result = slope * d + bend * (relative[:, None] + relative[None, :])
    np.fill_diagonal(result, np.diag(d))
    return result


# numbers


def _odd_step(state: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """(odd norm^2, cluster norm^2, odd.cluster, cluster.cluster) one layer on; O(1)."""
    a, b, c, d = state
    k = n - 1
    mean_odd = (a + k * c) / n  # <x_odd, mean>
    mean_in = (c + b + (k - 1) * d) / n  # <x_cluster, mean>
    mean = (mean_odd + k * mean_in) / n
    A, B = a - 2 * mean_odd + mean, b - 2 * mean_in + mean
    C, D = c - mean_odd - mean_in + mean, d - 2 * mean_in + mean
    cross = math.sqrt(A * B)
    return np.array([A, B, cross * clipped_kernel(C / cross), B * clipped_kernel(D / B)])


def _polished(state: NDArray[np.float64], n: int) -> NDArray[np.float64] | None:
    """Solve state = step(state) / step(state)[0] to rounding; None when it leaves the cone."""
    from scipy.optimize import root

    def residual(s: NDArray[np.float64]) -> NDArray[np.float64]:
        after = _odd_step(np.array([1.0, *s]), n)
        return after[1:] / after[0] - s

    s = root(residual, state[1:], tol=1e-15).x
    inside = np.isfinite(s).all() and s[0] > 0 and abs(s[2]) <= s[0]
    return np.array([1.0, *s]) if inside else None


def _odd_gram(state: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    a, b, c, d = state
    gram = np.full((n, n), d)
    np.fill_diagonal(gram, b)
    gram[0, :] = gram[:, 0] = c
    gram[0, 0] = a
    return gram


def _rms_cosine(n: int) -> float:
    from scipy.optimize import brentq

    def excess(rho: float) -> float:
        gram = np.full((n, n), rho)
        np.fill_diagonal(gram, 1.0)
        after = gram_step(gram, recenter=False, rescale=True)
        return after[0, 1] / after[0, 0] - rho

    return float(brentq(excess, 0.05, 0.95, xtol=1e-12))  # type: ignore[arg-type]


Directions = list[list[NDArray[np.float64]]]


def _symmetric_directions(n: int) -> Directions:
    """Representatives of the three kinds of perturbation of a batch of n like points."""
    everyone = np.arange(n)
    return [[np.eye(n), 1 - np.eye(n)], *_cluster_directions(n, everyone)]


def _odd_directions(n: int) -> Directions:
    corner, edge = np.zeros((n, n)), np.zeros((n, n))
    corner[0, 0] = 1
    edge[0, 1:] = edge[1:, 0] = 1
    inside, between = np.diag([0.0] + [1.0] * (n - 1)), np.zeros((n, n))
    between[1:, 1:] = 1 - np.eye(n - 1)
    blocks = _cluster_directions(n, np.arange(1, n))
    # the odd point's products with the cluster can also differ from point to point
    pull = np.zeros((n, n))
    pull[0, 1] = pull[1, 0] = 1
    pull[0, 2] = pull[2, 0] = -1
    return [[corner, edge, inside, between], [*blocks[0], pull], *blocks[1:]]


def _cluster_directions(n: int, points: NDArray[np.int64]) -> Directions:
    """Differences between two like points, and between two pairs of like points."""
    f = np.zeros(n)
    f[points[0]], f[points[1]] = 1, -1
    members = np.isin(np.arange(n), points)
    spread = (f[:, None] + f[None, :]) * np.outer(members, members)
    np.fill_diagonal(spread, 0)
    kinds = [[np.diag(f), spread]]
    if len(points) == 3:  # differences of sums are all there is off the diagonal
        return kinds
    pairs = np.zeros((n, n))
    i, j, k, m = points[:4]
    for a, b, sign in ((i, j, 1), (k, m, 1), (i, k, -1), (j, m, -1)):
        pairs[a, b] = pairs[b, a] = sign
    return [*kinds, [pairs]]


def _finish(
    kind: Literal["symmetric", "odd"],
    gram: NDArray[np.float64],
    options: dict[str, Any],
    blocks: Directions,
) -> FixedPoint:
    after = gram_step(gram, **options)
    growth = after[0, 0] / gram[0, 0]
    exact = options["recenter"] and not options["rescale"]

    def derivative(direction: NDArray[np.float64]) -> NDArray[np.float64]:
        if exact:
            return gram_derivative(gram, direction)
        h = 1e-5
        up, down = (
            gram_step(gram + h * direction, **options),
            gram_step(gram - h * direction, **options),
        )
        return (up - down) / (2 * h)

    moduli: list[float] = []
    for block in blocks:
        basis = np.column_stack([d.ravel() for d in block])
        image = np.column_stack([derivative(d).ravel() for d in block])
        matrix = np.linalg.lstsq(basis, image, rcond=None)[0]
        moduli += sorted(np.abs(np.linalg.eigvals(matrix)).tolist(), reverse=True)
    # scale itself is no perturbation: with rescaling it has eigenvalue 0, without it ``growth``
    if not options["rescale"]:
        nearest = min(moduli, key=lambda value: abs(value - growth))
        moduli.remove(nearest)
    residual = float(np.abs(after / growth - gram).max())
    return FixedPoint(kind, len(gram), gram, float(growth), float(max(moduli) / growth), residual)

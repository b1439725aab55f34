"""How many random ReLU neurons give a batch full rank (seed 004, Section I).

y is the number of Gaussian rows w after which rank ReLU(WX) = n. Theorem 3 bounds it by gamma(X);
here y is also sampled, and which rank can be reached at all is decided exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import generator, points, real_number, whole_number
from relunorm.display.shown import entries, plain
from relunorm.errors import InvalidInputError
from relunorm.papers.batchnorm.theory.weight_cells import SAME_LINE


@dataclass(frozen=True, eq=False)
class RankCondition:
    """Which rank ReLU(WX) reaches with enough neurons, and whether Theorem 3 / Corollary 4 apply.

    Attributes:
        recentered: whether the batch was recentered first (Corollary 4).
        attainable: the rank reached almost surely with enough neurons; exact up to the tolerance on
            collinearity.
        collinear: pairs of points on one line through 0 (after recentering, if so), and single
            points at 0 as (i, i). The theorem asks for none.
        printed_applies: whether no two columns of X itself are collinear: what Corollary 4 prints.
    """

    n: int
    recentered: bool
    attainable: int
    collinear: tuple[tuple[int, int], ...]
    printed_applies: bool

    @property
    def applies(self) -> bool:
        """Whether the (corrected) hypothesis holds."""
        return not self.collinear

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.rank_condition/1",
            **entries(self, "n recentered attainable collinear applies printed_applies"),
        }


def rank_condition(X: ArrayLike, *, recenter: bool = False) -> RankCondition:
    """Check the hypothesis of Theorem 3 (or, recentered, of Corollary 4) on a batch (n, d).

    Corollary 4 needs the *centred* columns to be pairwise non-collinear; as printed it does not
    (docs/errata.md). The functions w -> ReLU(w.x_i) have kinks on the hyperplanes of their lines,
    so those on different lines are independent; two on one ray are not; two on opposite rays differ
    by a linear function. Hence the attainable rank is (rays) - (lines with both rays) + (rank of
    those lines).

    >>> rank_condition([[0.0, 1], [1, 1], [3, 1]], recenter=True).attainable
    2
    """
    X = _points(X)
    pairs_printed = _collinear(X)
    moved = X - X.mean(axis=0) if recenter else X
    pairs = _collinear(moved) if recenter else pairs_printed
    return RankCondition(len(X), recenter, _attainable(moved), pairs, not pairs_printed)


def _attainable(X: NDArray[np.float64]) -> int:
    scale = np.linalg.norm(X, axis=1).max()
    rays: list[NDArray[np.float64]] = []
    for x in X:
        norm = np.linalg.norm(x)
        if norm > SAME_LINE * scale:
            x = x / norm
            if not any(np.linalg.norm(x - ray) < SAME_LINE * 10 for ray in rays):
                rays.append(x)
    both = [
        a for i, a in enumerate(rays) for b in rays[:i] if np.linalg.norm(a + b) < SAME_LINE * 10
    ]
    rank = int(np.linalg.matrix_rank(np.array(both))) if both else 0
    return len(rays) - len(both) + rank


def _collinear(X: NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    norms = np.linalg.norm(X, axis=1)
    zero = norms <= SAME_LINE * max(norms.max(), 1e-300)
    unit = X / np.where(zero, 1.0, norms)[:, None]
    found = [(int(i), int(i)) for i in np.flatnonzero(zero)]
    for i in range(len(X)):
        if zero[i]:
            continue
        rest = unit[i + 1 :] - (unit[i + 1 :] @ unit[i])[:, None] * unit[i]
        near = (np.linalg.norm(rest, axis=1) < SAME_LINE * 10) & ~zero[i + 1 :]
        found += [(i, i + 1 + int(j)) for j in np.flatnonzero(near)]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class NeuronCounts:
    """Samples of y, the number of neurons until full rank.

    Attributes:
        counts: one per trial; trials stopped at ``limit`` without full rank are counted as
            ``limit``.
        mean, error: sample mean and its standard error. If trials were stopped, the mean is a lower
            bound only and the error infinite.
        unfinished: trials stopped at ``limit``.
    """

    counts: NDArray[np.int64]
    mean: float
    error: float
    unfinished: int
    limit: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.neuron_counts/1",
            **entries(self, "counts mean error"),
            "mean_is_lower_bound": self.unfinished > 0,
            **entries(self, "unfinished limit"),
        }

    def __repr__(self) -> str:
        if self.unfinished:
            return (
                f"NeuronCounts({len(self.counts)} trials, {self.unfinished} of them stopped at "
                f"{self.limit} neurons: y >= {self.mean:.2f} on average)"
            )
        return f"NeuronCounts({len(self.counts)} trials, y = {self.mean:.2f} +- {self.error:.2f})"


def sample_neuron_counts(
    X: ArrayLike,
    trials: int = 100,
    *,
    recenter: bool = False,
    limit: int = 100_000,
    tolerance: float = 1e-10,
    random_state: int | np.random.Generator | None = 0,
) -> NeuronCounts:
    """Sample y = min{d : rank ReLU(W^(d) X) = n} by adding one neuron at a time.

    Each new row is orthogonalized twice against the ones kept; it raises the rank if what is left
    exceeds ``tolerance`` of its norm. An estimate of E[y] with a standard error; O(n^2) per neuron.
    Trials that need more than ``limit`` neurons are stopped, and the result says how many.

    >>> sample_neuron_counts(np.eye(3), 20).mean >= 3
    True
    """
    X = _points(X)
    trials, limit = whole_number("trials", trials, 1), whole_number("limit", limit, 1)
    if not 0 < real_number("tolerance", tolerance) < 1:
        raise InvalidInputError(f"tolerance is {tolerance}, expected 0 < tolerance < 1")
    condition = rank_condition(X, recenter=recenter)
    if condition.attainable < len(X):
        raise InvalidInputError(
            f"rank {len(X)} is out of reach: this "
            f"batch{' after recentering' if recenter else ''} allows "
            f"rank {condition.attainable} at any width (collinear points {condition.collinear[:4]})"
        )
    used = X - X.mean(axis=0) if recenter else X
    rng = generator(random_state)
    needed = [_count(used, rng, limit, tolerance) for _ in range(trials)]
    unfinished = needed.count(None)
    counts = np.array([limit if count is None else count for count in needed])
    known = trials > 1 and not unfinished
    error = float(counts.std(ddof=1) / math.sqrt(trials)) if known else float("inf")
    return NeuronCounts(counts, float(counts.mean()), error, unfinished, limit)


def _count(
    X: NDArray[np.float64], rng: np.random.Generator, limit: int, tolerance: float
) -> int | None:
    """Neurons until full rank; None if ``limit`` of them do not suffice."""
    n, d = X.shape
    basis = np.empty((n, n))
    rank, used = 0, 0
    while used < limit:
        rows = np.maximum(rng.standard_normal((min(64, limit - used), d)) @ X.T, 0.0)
        for row in rows:
            used += 1
            size = np.linalg.norm(row)
            if size == 0:
                continue
            kept = basis[:rank]
            rest = row - kept.T @ (kept @ row)
            rest -= kept.T @ (kept @ rest)
            left = np.linalg.norm(rest)
            if left > tolerance * size:
                basis[rank] = rest / left
                rank += 1
                if rank == n:
                    return used
    return None


@dataclass(frozen=True)
class RankBounds:
    """Theorem 3 for given n and gamma.

    Attributes:
        printed: n / gamma (item 1).
        sharper: 2 + (n - 1) / (2 gamma) (derived: docs/errata.md). The first point takes two
            neurons on average, every further one at most 1 / (2 gamma): cells come in pairs w, -w.
    """

    n: int
    gamma: float
    printed: float
    sharper: float

    def probability(self, alpha: float) -> tuple[float, float]:
        """Lower bounds (7a) and (7b) on P(full rank) with alpha n / gamma neurons, alpha > 2.

        >>> a, b = rank_bounds(5, 0.1).probability(3.0)
        >>> a >= b > 0.98
        True
        """
        if not real_number("alpha", alpha) > 1:
            raise InvalidInputError(f"alpha is {alpha}, the bound needs alpha > 1 (the paper: > 2)")
        # (7a)'s exponent is (alpha/g) log(1/alpha) + (alpha/g - 1) log((alpha-g)/(1-g)); without
        # the terms of size 1/g that cancel it is (alpha/g - 1) log(1 + u) - log(alpha)
        g, slope = self.gamma, (1 - 1 / alpha) / (1 - self.gamma)
        u = g * slope
        ratio = math.log1p(u) / u if u > 1e-18 else 1.0
        sharp = (alpha - g) * slope * ratio - math.log(alpha)
        loose = alpha - 1 - math.log(alpha)
        return -math.expm1(-self.n * sharp), -math.expm1(-self.n * loose)

    def to_dict(self) -> dict[str, Any]:
        # n / gamma of a gamma near the least float is beyond floats
        return {"schema": "relunorm.rank_bounds/1", **plain(self.__dict__)}


def rank_bounds(n: int, gamma: float) -> RankBounds:
    """The bounds of Theorem 3 on the expected number of neurons.

    >>> rank_bounds(1, 0.5).sharper  # one point: w.x > 0 every other time
    2.0
    """
    n, gamma = whole_number("n", n, 1), real_number("gamma", gamma)
    if not 0 < gamma <= 0.5:
        raise InvalidInputError(f"gamma is {gamma}, expected 0 < gamma <= 1/2")
    return RankBounds(n, gamma, n / gamma, 2 + (n - 1) / gamma / 2)


def _points(X: ArrayLike) -> NDArray[np.float64]:
    X = points(X)
    # ranks do not depend on the scale; squares of very large or small entries would
    return np.ldexp(X, -int(np.frexp(np.abs(X).max())[1]))

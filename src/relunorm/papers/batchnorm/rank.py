"""Section I of seed 004: how ReLU raises the rank of a batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from relunorm.papers.batchnorm.laws import ROUNDING, BatchNorm
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, costs, from_claims
from relunorm.papers.statistics import LEVEL, share_above

Array = NDArray[np.float64]
ERRORS = "4 standard errors of a sampled mean"


@costs(0.5)
def theorem3(world: BatchNorm) -> Exhibit:
    """Neurons until full rank, sampled, for 1 to 9 equally spaced points on a circle (odd n)."""
    rows = []
    for n in (1, 3, 5, 7, 9):
        X = _circle(n)
        volumes = world.gamma(X)
        counts = world.sample_counts(X, world.size(300, 2000, 100), random_state=world.random_state)
        bounds = world.rank_bounds(n, volumes.gamma)
        upper = counts.mean + 4 * counts.error
        own = (counts.mean, counts.error, bounds.sharper, bounds.printed)
        cells = len(volumes.volumes)
        rows.append((n, volumes.gamma, world.printed_gamma(n), *own, upper, cells))
    columns = (
        "n", "gamma", "printed gamma", "E[y]", "error", "2 + (n-1)/(2 gamma)", "n/gamma", "upper",
        "cells",
    )  # fmt: skip
    several = [row for row in rows if row[0] > 1]
    printed = max(max(abs(row[1] - row[2]), abs(row[8] - row[0])) for row in several)
    halved = max(max(abs(row[1] - row[2] / 2), abs(row[8] - 2 * row[0])) for row in several)
    return Exhibit(
        "theorem3",
        "Theorem 3: neurons until full rank, n equally spaced points (odd n)",
        columns,
        tuple(rows),
        "upper: E[y] and 4 standard errors. For one point E[y] = 2 = 1/gamma exactly.",
        None,
        world.settings(),
        (
            Claim(
                "Definition 1, example",
                "n equally spaced points, n odd: n cells and gamma = 1/n",
                Check("largest difference of either", printed, "<=", 1e-9),
                "2n cells, gamma = 1/(2n)",
                Check("largest difference of either", halved, "<=", 1e-9),
            ),
            Claim(
                "Theorem 3, item 1",
                "E[y] <= n/gamma neurons until full rank",
                Check("largest E[y] (less 4 errors) over the bound",
                      max((row[3] - 4 * row[4]) / row[6] for row in rows), "<=", 1),
                basis=ERRORS,
            ),
            Claim(
                "ours: 2 + (n-1)/(2 gamma)",
                "(in no paper) less than half of that suffices for n >= 2; n/(2 gamma) fails for 1",
                Check("largest E[y] (less 4 errors) over 2 + (n-1)/(2 gamma)",
                      max((row[3] - 4 * row[4]) / row[5] for row in rows), "<=", 1),
                basis=ERRORS,
            ),
        ),
    )  # fmt: skip


def rank(world: BatchNorm) -> Exhibit:
    """Random layers over five points on a circle, neurons added one at a time; three collinear
    centred points; products of random matrices; the steps of the proof of Theorem 3."""
    rng = world.rng
    X = _circle(5)
    smallest = world.gamma(X).gamma
    sharp = _rises(world, rng, X, smallest, world.size(1000, 4000))
    w, near, far = np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([1.1, 10.0])
    moved = world.push(w, near, 1e-3)
    short = np.array([0.5, 0.0])
    pushed = float(world.push(w, short, 1e-3) @ short)
    counts = world.sample_counts(X, world.size(400, 2000), random_state=world.random_state)
    bounds = world.rank_bounds(5, smallest)
    missed = int((counts.counts > 2.5 * bounds.printed).sum())
    promised = bounds.probability(2.5)[0]
    trials = len(counts.counts)
    full_rank = Check(
        f"share of {trials} layers of alpha n/gamma neurons with full rank, alpha = 2.5",
        1 - missed / trials,
        ">=",
        promised,
    )
    # a share below the promise refutes it only if it is not chance
    chance = share_above(missed, trials, 1 - promised) > LEVEL
    luck = f"{missed} of {trials} missed it, by chance" if missed and chance else ""
    waits = _waits(world, X, counts)
    defined = sum(t + 1 <= len(X) for t in range(1, len(X) + 1))  # gamma(X^(t+1)) needs t+1 points
    batch = np.array([[0.0, 1], [1, 1], [3, 1]])
    condition = world.rank_condition(batch, recenter=True)
    found = int(np.linalg.matrix_rank(_layer(world, rng, batch, 5000), tol=1e-8))
    after_one, after_more = _second_wait(world, rng)
    gap, order = _chernoff(world)
    return from_claims(
        "rank",
        "Section I: ReLU raises the rank",
        (
            Claim(
                "(1)-(4) batch norm",
                "after (2) and (3) every neuron has mean 0 and variance 1 over the batch",
                Check("largest difference", _moments(world, rng), "<=", ROUNDING),
            ),
            _products(world, rng),
            Claim(
                "Lemma 2",
                "a further neuron raises the rank with probability at least gamma",
                Check(
                    "smallest (share less gamma) in standard errors, 5 points on a circle, 10 "
                    "networks of rank 4",
                    sharp,
                    ">=",
                    -4,
                ),
                basis=ERRORS,
            ),
            Claim(
                "Lemma 2, proof (18)-(20)",
                "pushing w across the nearest hyperplane keeps the other signs",
                Check("w.x_2 after the push, x_2 = (1.1, 10)", float(moved @ far), ">", 0),
                "it need not; the lemma itself holds",
                Check("(share less gamma) in standard errors", sharp, ">=", -4),
            ),
            Claim(
                "Lemma 2, proof (19)",
                "the push along w.x_i / |x_i| x_i makes w.x_i negative",
                Check("w.x_i after the push, |x_i| = 1/2", pushed, "<", 0),
                "divided by |x_i|^2 it does",
                Check("w.x_i then", float(_true_push(w, short, 1e-3) @ short), "<", 0),
            ),
            Claim(
                "Theorem 3, item 2",
                "with alpha n/gamma neurons the rank is full with the probability (7a)",
                full_rank,
                short=luck,
                basis="(7a) itself; a share below it refutes it by a binomial test, 5 % level",
            ),
            Claim(
                "(26)-(27) waiting times",
                "E[y_t] <= 1/gamma(X^(t+1)) for t = 1 .. n",
                Check("terms of (27) that are defined, n = 5", defined, "=", 5),
                "E[y_t] <= 1/gamma(X^(t))",
                Check("largest E[y_t] (less 4 errors) times gamma(X^(t))", waits, "<=", 1),
                basis=ERRORS,
            ),
            Claim(
                "(27): gamma falls with the points",
                "gamma(X^(t)) does not rise with t",
                Check("largest rise, batches of 5 in the plane", _rise(world, rng), "<=", ROUNDING),
            ),
            Claim(
                "(28): y_t are independent",
                "y_1, ..., y_n are independent",
                Check(
                    "P(y_2 = 0 | y_1 > 1) less P(y_2 = 0 | y_1 = 1), in standard errors",
                    abs(after_more - after_one) / math.sqrt(0.25 * 4 / _WAITS),
                    "<=",
                    4,
                ),
                "not: rows skipped for x_1 may serve x_2. (28) needs only that each wait, given "
                "the past, is at most geometric, and the bound (7a) holds",
                full_rank,
                short=luck,
                basis=ERRORS + "; (7a) itself",
            ),
            Claim(
                "(28b)-(28d) Chernoff's bound",
                "the minimum over s of (28b) is (28c), which is at most (28d)",
                Check(
                    "largest difference of logarithms over gamma, alpha; order",
                    gap if order else math.inf,
                    "<=",
                    1e-6,
                ),
                basis="the accuracy of the numerical minimum",
            ),
            Claim(
                "Corollary 4",
                "no two columns collinear: full rank after batch norm and ReLU",
                Check("rank of (0,1), (1,1), (3,1) at width 5,000", found, "=", 3),
                "no two centred columns collinear: then Theorem 3 holds with their gamma",
                Check(
                    "E[y] (less 4 errors) over n/gamma, five such points (rank of the three above "
                    f"at most {condition.attainable})",
                    _centred(world) if condition.attainable == 2 else math.inf,
                    "<=",
                    1,
                ),
                basis="the statement; " + ERRORS,
            ),
            Claim(
                "Section I: comparison with Dittmer et al.",
                "with input dimension 2 the image of a ReLU layer has as many dimensions as rows, "
                "not 2",
                Check("smallest rank / rows, 2 to 32 rows", _image(world, rng), "=", 1),
            ),
        ),
        settings=world.settings(),
    )


#: Pairs of waiting times that are sampled.
_WAITS = 20_000


def _circle(n: int) -> Array:
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(t), np.sin(t)])


def _true_push(w: Array, x: Array, epsilon: float) -> Array:
    return w - (1 + epsilon) * (w @ x) / (x @ x) * x


def _moments(world: BatchNorm, rng: np.random.Generator) -> float:
    z = world.batch_norm(rng.normal(3, 2, size=(50, 12)))
    return float(max(np.abs(z.mean(axis=1)).max(), np.abs((z**2).mean(axis=1) - 1).max()))


def _layer(world: BatchNorm, rng: np.random.Generator, X: Array, width: int) -> Array:
    return world.relu(world.batch_norm(rng.normal(size=(width, X.shape[1])) @ X.T))


def _centred(world: BatchNorm) -> float:
    """E[y] with batch norm, less 4 errors, over n/gamma of the centred batch."""
    X = _circle(5) ** 3 + [0.3, 0.2]
    counts = world.sample_counts(
        X, world.size(200, 1000, 100), recenter=True, random_state=world.random_state
    )
    bounds = world.rank_bounds(5, world.gamma(X - X.mean(axis=0)).gamma)
    return (counts.mean - 4 * counts.error) / bounds.printed


def _products(world: BatchNorm, rng: np.random.Generator) -> Claim:
    """Random products W X, X of rank 1 to 4: the rank, and what the two bounds allow."""
    beyond_max, beyond_min, raised = [], [], []
    for r in (1, 2, 3, 4):
        X = rng.normal(size=(6, r)) @ rng.normal(size=(r, 8))
        W = rng.normal(size=(6, 6))
        ranks = [int(np.linalg.matrix_rank(m)) for m in (W, X, W @ X)]
        beyond_max.append(max(ranks[:2]) - ranks[1])
        beyond_min.append(ranks[2] - min(ranks[:2]))
        raised.append(int(np.linalg.matrix_rank(world.relu(W @ X))) - ranks[1])
    return Claim(
        "Section I: rank of a product",
        "rank(AB) <= max(rank A, rank B), so a linear layer cannot raise the rank, and ReLU can",
        Check("by how much max(rank W, rank X) exceeds rank X, most", max(beyond_max), "<=", 0),
        "rank(AB) <= min",
        Check(
            "by how much rank(WX) exceeds min(rank W, rank X), most (ReLU raises it)",
            max(beyond_min) if max(raised) > 0 else math.inf,
            "<=",
            0,
        ),
    )


def _rises(
    world: BatchNorm, rng: np.random.Generator, X: Array, gamma: float, trials: int
) -> float:
    """How often one more neuron raises the rank of a batch of n points from n - 1 to n, where its
    first n - 1 points have that rank already: less gamma, in standard errors, least of ten."""
    n, least = len(X), math.inf
    for _ in range(10):
        for _ in range(1000):
            hidden = world.relu(rng.normal(size=(n - 1, 2)) @ X.T)
            if np.linalg.matrix_rank(hidden[:, :-1]) == n - 1:
                break
        more = world.relu(rng.normal(size=(trials, 2)) @ X.T)
        stacked = np.concatenate([np.tile(hidden, (trials, 1, 1)), more[:, None]], axis=1)
        share = float((np.linalg.matrix_rank(stacked) == n).mean())
        least = min(least, (share - gamma) / math.sqrt(gamma * (1 - gamma) / trials))
    return least


def _waits(world: BatchNorm, X: Array, last: Any) -> float:
    """The largest E[y_t] gamma(X^(t)), less 4 standard errors of E[y_t] = E[r_t] - E[r_(t-1)]."""
    found = [
        world.sample_counts(X[:t], len(last.counts), random_state=world.random_state + t)
        for t in range(1, len(X))
    ]
    means = np.array([0.0, *(c.mean for c in found), last.mean])
    errors = np.array([0.0, *(c.error for c in found), last.error])
    low = np.diff(means) - 4 * np.hypot(errors[1:], errors[:-1])
    return float(max(low * [world.gamma(X[:t]).gamma for t in range(1, len(X) + 1)]))


def _rise(world: BatchNorm, rng: np.random.Generator) -> float:
    """By how much gamma rises as points join, at most."""
    batches = [_circle(5), *rng.normal(size=(5, 5, 2))]
    found = [[world.gamma(X[:t]).gamma for t in range(1, 6)] for X in batches]
    return float(np.diff(found, axis=1).max())


def _second_wait(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float]:
    """P(y_2 = 0) for two points at a right angle, given y_1 = 1 and given y_1 > 1.

    y_2 = 0 if some row before r_1, the first with w.x_1 > 0, has w.x_2 > 0.
    """
    z = world.relu(rng.normal(size=(_WAITS, 40, 2)))
    first = (z[:, :, 0] > 0).argmax(axis=1)
    before = np.arange(40) < first[:, None]
    ready = (before & (z[:, :, 1] > 0)).any(axis=1)
    one = first == 0
    return float(ready[one].mean()), float(ready[~one].mean())


def _chernoff(world: BatchNorm) -> tuple[float, bool]:
    """(28b) minimized numerically against (28c), and whether (28c) <= (28d)."""
    worst, order = 0.0, True
    for g in (0.01, 0.1, 0.25):
        for a in (2.1, 3.0, 6.0):
            top = -math.log(1 - g)

            def log_bound(s: float, g: float = g, a: float = a) -> float:
                return math.log(g) + s - math.log(1 - (1 - g) * math.exp(s)) - s * a / g

            low: Any = minimize_scalar(
                log_bound, bounds=(0, top * (1 - 1e-12)), method="bounded", options={"xatol": 1e-12}
            )
            sharp, loose = (-math.log1p(-p) for p in world.rank_bounds(1, g).probability(a))
            worst = max(worst, abs(float(low.fun) + sharp))
            order = order and sharp >= loose - 1e-12
    return worst, order


def _image(world: BatchNorm, rng: np.random.Generator) -> float:
    """Rank over rows of ReLU(Wx) on many points of the plane."""
    x = rng.normal(size=(2, 2000))
    shares = []
    for rows in (2, 4, 8, 16, 32):
        values = world.relu(rng.normal(size=(rows, 2)) @ x)
        shares.append(np.linalg.matrix_rank(values) / rows)
    return float(min(shares))

"""Section I of seed 004: how ReLU raises the rank of a batch."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from relunorm.papers import words_of
from relunorm.papers.claim import LEVEL, Claim, share_above
from relunorm.papers.exhibit import Exhibit

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]


def theorem3(world: BatchNorm) -> Exhibit:
    """Neurons until full rank, sampled, for 1 to 9 equally spaced points on a circle (odd n) and
    for three batches of four random points of the plane."""
    rows = []
    batches = [("circle", _circle(n)) for n in (1, 3, 5, 7, 9)]
    batches += [("random", X) for X in world.rng.normal(size=(3, 4, 2))]
    for kind, X in batches:
        n = len(X)
        volumes = world.gamma(X)
        counts = world.sample_counts(X, world.size(300, 2000, 100), random_state=world.random_state)
        bounds = world.rank_bounds(n, volumes.gamma)
        upper = counts.mean + 4 * counts.error
        own = (counts.mean, counts.error, bounds.sharper, bounds.printed)
        cells = len(volumes.volumes)
        rows.append((n, volumes.gamma, world.printed_gamma(n), *own, upper, cells, kind))
    several = [row for row in rows if row[0] > 1 and row[9] == "circle"]
    printed = max(max(abs(row[1] - row[2]), abs(row[8] - row[0])) for row in several)
    halved = max(max(abs(row[1] - row[2] / 2), abs(row[8] - 2 * row[0])) for row in several)
    return exhibit(
        world.settings(),
        "theorem3",
        claim("Definition 1, example", printed, halved),
        claim("Theorem 3, item 1", max((row[3] - 4 * row[4]) / row[6] for row in rows)),
        claim("ours: 2 + (n-1)/(2 gamma)", max((row[3] - 4 * row[4]) / row[5] for row in rows)),
        rows=rows,
    )


def rank(world: BatchNorm) -> Exhibit:
    """Layers over five points on a circle and over random ones, neurons added one at a time; three
    collinear centred points; products of random matrices; the steps of the proof of Theorem 3."""
    rng = world.rng
    X = _circle(5)
    smallest = world.gamma(X).gamma
    sharp = min(
        _rises(world, rng, batch, world.size(500, 4000))
        for batch in (X, *rng.normal(size=(2, 5, 2)))
    )
    w, near, far = np.array([1.0, 0.0]), np.array([0.8, 0.6]), np.array([1.1, 10.0])
    moved = world.push(w, near, 1e-3)
    crossed = float(moved @ far) if moved @ near < 0 else math.nan
    short = np.array([0.5, 0.0])
    pushed = float(world.push(w, short, 1e-3) @ short)
    counts = world.sample_counts(X, world.size(400, 2000), random_state=world.random_state)
    bounds = world.rank_bounds(5, smallest)
    trials = len(counts.counts)
    alphas = (2.01, 2.5, 4.0)
    missed = [int((counts.counts > alpha * bounds.printed).sum()) for alpha in alphas]
    promised = [bounds.probability(alpha)[0] for alpha in alphas]
    # a share below the promise refutes it only if it is not chance
    pairs = list(zip(missed, promised, strict=True))
    chance = all(share_above(m, trials, 1 - p) > LEVEL for m, p in pairs)
    luck = f"{max(missed)} of {trials} missed it, by chance" if max(missed) and chance else ""
    waits, printed_waits = _waits(world, X, counts)
    batch = np.array([[0.0, 1], [1, 1], [3, 1]])
    condition = world.rank_condition(batch, recenter=True)
    found = int(np.linalg.matrix_rank(_layer(world, rng, batch, 5000), tol=1e-8))
    dependence, tail = _second_wait(world, rng)
    gap, order = _chernoff(world)
    return exhibit(
        world.settings(),
        "rank",
        claim("(1)-(4) batch norm", _moments(world, rng)),
        _products(world, rng),
        claim("Lemma 2", sharp),
        claim("Lemma 2, proof (18)-(20)", crossed, sharp),
        claim(
            "Lemma 2, proof (19)",
            pushed,
            float(world.push(w, short / np.linalg.norm(short), 1e-3) @ short),
        ),
        claim(
            "Theorem 3, item 2",
            min(1 - m / trials - p for m, p in pairs),
            short=luck,
            trials=trials,
        ),
        claim("(26)-(27) waiting times", printed_waits, waits),
        claim("(27): gamma falls with the points", _rise(world, rng)),
        claim("(28): y_t are independent", dependence, tail),
        claim("(28b)-(28d) Chernoff's bound", gap if order else math.inf),
        claim(
            "Corollary 4",
            found,
            _centred(world) if condition.attainable == 2 else math.inf,
            attainable=condition.attainable,
        ),
        claim("Section I: comparison with Dittmer et al.", _image(world, rng)),
    )


#: Pairs of waiting times that are sampled.
_WAITS = 20_000


def _circle(n: int) -> Array:
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(t), np.sin(t)])


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
    """Random products W X, either of rank 1 to 6: the rank, and what the two bounds allow."""
    beyond_max, beyond_min, raised = [], [], []
    for r, q in product((1, 2, 4), (1, 3, 6)):
        X = rng.normal(size=(6, r)) @ rng.normal(size=(r, 8))
        W = rng.normal(size=(6, q)) @ rng.normal(size=(q, 6))
        ranks = [int(np.linalg.matrix_rank(m)) for m in (W, X, W @ X)]
        beyond_max.append(max(ranks[:2]) - ranks[1])
        beyond_min.append(ranks[2] - min(ranks[:2]))
        raised.append(int(np.linalg.matrix_rank(world.relu(W @ X))) - ranks[1])
    return claim(
        "Section I: rank of a product",
        max(beyond_max),
        max(beyond_min) if max(raised) > 0 else math.inf,
    )


def _rises(world: BatchNorm, rng: np.random.Generator, X: Array, trials: int) -> float:
    """How often one more neuron makes the rank of n points n, where the first n - 1 have rank
    n - 1 already: less gamma, in standard errors, least of ten layers."""
    n, least, gamma = len(X), math.inf, world.gamma(X).gamma
    for k in range(10):
        for _ in range(1000):
            hidden = world.relu(rng.normal(size=(n - 1 + k % 3, 2)) @ X.T)
            if np.linalg.matrix_rank(hidden[:, :-1]) == n - 1:
                break
        more = world.relu(rng.normal(size=(trials, 2)) @ X.T)
        stacked = np.concatenate([np.tile(hidden, (trials, 1, 1)), more[:, None]], axis=1)
        share = float((np.linalg.matrix_rank(stacked) == n).mean())
        least = min(least, (share - gamma) / math.sqrt(gamma * (1 - gamma) / trials))
    return least


def _waits(world: BatchNorm, X: Array, last: Any) -> tuple[float, float]:
    """The largest E[y_t] gamma(X^(t)) and E[y_t] gamma(X^(t+1)), less 4 standard errors of
    E[y_t] = E[r_t] - E[r_(t-1)]; NaN where a gamma is asked for of more points than there are."""
    n = len(X)
    found = [
        world.sample_counts(X[:t], len(last.counts), random_state=world.random_state + t)
        for t in range(1, n)
    ]
    means = np.array([0.0, *(c.mean for c in found), last.mean])
    errors = np.array([0.0, *(c.error for c in found), last.error])
    low = np.diff(means) - 4 * np.hypot(errors[1:], errors[:-1])
    gammas = [world.gamma(X[:t]).gamma if t <= n else math.nan for t in range(1, n + 2)]
    return float(np.max(low * gammas[:-1])), float(np.max(low * gammas[1:]))


def _rise(world: BatchNorm, rng: np.random.Generator) -> float:
    """By how much gamma rises as points join, at most."""
    batches = [_circle(5), *rng.normal(size=(5, 5, 2))]
    found = [[world.gamma(X[:t]).gamma for t in range(1, 6)] for X in batches]
    return float(np.diff(found, axis=1).max())


def _second_wait(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float]:
    """For two points at a right angle: how far P(y_2 = 0) is apart given y_1 = 1 and given y_1 > 1;
    and how far P(y_2 > k), given either, exceeds (1 - gamma)^k; both in standard errors.

    r_1 is the first row with w.x_1 > 0. y_2 = 0 if a row before it has w.x_2 > 0; else the rank is
    2 at the first row after it that is no multiple of it.
    """
    z = world.relu(rng.normal(size=(_WAITS, 60, 2)))
    rows, at = np.arange(60), np.arange(_WAITS)
    first = (z[:, :, 0] > 0).argmax(axis=1)
    ready = ((rows < first[:, None]) & (z[:, :, 1] > 0)).any(axis=1)
    own = z[at, first]
    other = z[:, :, 0] * own[:, None, 1] != z[:, :, 1] * own[:, None, 0]
    after = other & (rows > first[:, None])
    wait = np.where(after.any(axis=1), after.argmax(axis=1) - first, len(rows))
    wait[ready] = 0
    gamma, groups = world.gamma(np.eye(2)).gamma, (wait[first == 0], wait[first > 0])
    one, more = (float((group == 0).mean()) for group in groups)
    dependence = abs(more - one) / math.sqrt(0.25 * sum(1 / len(group) for group in groups))
    tail = max(
        (float((group > k).mean()) - (1 - gamma) ** k) / math.sqrt(0.25 / len(group))
        for group in groups
        for k in range(1, 9)
    )
    return dependence, tail


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

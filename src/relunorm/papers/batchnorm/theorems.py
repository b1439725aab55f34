"""Seed 004's lemmas and theorems, figures 1, 4, 7 and 8, and their errata, as numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm.cells import gamma
from relunorm.batchnorm.gram import gram_step, kernel_gram
from relunorm.batchnorm.invariants import invariant_alpha, invariant_gram, theorem14
from relunorm.batchnorm.measure import odd_points
from relunorm.batchnorm.random_nets import propagate
from relunorm.batchnorm.rank import rank_bounds, rank_condition, sample_neuron_counts
from relunorm.papers.batchnorm.tree import tree
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, Make, Sample, from_claims, shows

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10


@shows(
    "Section I: rank of a product",
    "Lemma 2",
    "Lemma 2, proof (18)-(20)",
    "Theorem 3, item 2",
    "(26)-(27) waiting times",
    "Corollary 4",
)
def rank(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section I: how ReLU raises the rank of a batch."""
    rng = np.random.default_rng(random_state)
    wide, thin = rng.normal(size=(3, 3)), np.outer(rng.normal(size=3), rng.normal(size=4))
    ranks = [int(np.linalg.matrix_rank(m)) for m in (wide, thin)]
    X = _circle(5)
    smallest = gamma(X).gamma
    rises = _rises(rng, X, 4000 if full else 1000)
    w, near, far = np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([1.1, 10.0])
    moved = w - 1.001 * (w @ near) / np.linalg.norm(near) * near
    counts = sample_neuron_counts(X, 2000 if full else 400, random_state=random_state)
    bounds = rank_bounds(5, smallest)
    reached = float((counts.counts <= 2.5 * bounds.printed).mean())
    first = sample_neuron_counts(X[:1], 4000, random_state=random_state)
    defined = sum(t + 1 <= len(X) for t in range(1, len(X) + 1))  # gamma(X^(t+1)) needs t+1 points
    batch = np.array([[0.0, 1], [1, 1], [3, 1]])
    condition = rank_condition(batch, recenter=True)
    found = _normalized_rank(rng, batch)
    return from_claims(
        "rank",
        "Section I: ReLU raises the rank",
        (
            Claim(
                "Section I: rank of a product",
                "rank(AB) <= max(rank A, rank B), so a linear layer cannot raise the rank",
                Check("rank that bound allows for WX, rank X = 1", max(ranks), "<=", ranks[1]),
                "rank(AB) <= min",
                Check("rank that bound allows for WX", min(ranks), "<=", ranks[1]),
            ),
            Claim(
                "Lemma 2",
                "a further neuron raises the rank with probability at least gamma",
                Check("probability over gamma, 5 points on a circle", rises / smallest, ">=", 1),
            ),
            Claim(
                "Lemma 2, proof (18)-(20)",
                "pushing w across the nearest hyperplane keeps the other signs",
                Check(
                    "w.x_2 after the push, x_2 = (1.1, 10)",
                    float(moved @ far),
                    ">",
                    0,
                ),
                "it need not; the lemma itself holds",
                Check("probability of a rise over gamma", rises / smallest, ">=", 1),
            ),
            Claim(
                "Theorem 3, item 2",
                "with alpha n/gamma neurons the rank is full with the probability (7a)",
                Check(
                    "share of full rank less (7a), alpha = 2.5",
                    reached - bounds.probability(2.5)[0],
                    ">=",
                    0,
                ),
            ),
            Claim(
                "(26)-(27) waiting times",
                "E[y_t] <= 1/gamma(X^(t+1)) for t = 1 .. n",
                Check("terms of (27) that are defined, n = 5", defined, "=", 5),
                "1/gamma(X^(t)): E[y_1] = 2",
                Check("E[y_1]", first.mean, "=", 1 / gamma(X[:1]).gamma, 4 * first.error),
            ),
            Claim(
                "Corollary 4",
                "no two columns collinear: full rank after batch norm and ReLU",
                Check("rank of (0,1), (1,1), (3,1) at width 5,000", found, "=", 3),
                "no two centred columns collinear; here the attainable rank is 2",
                Check("rank", found, "=", condition.attainable),
            ),
        ),
        settings={"random_state": random_state},
    )


@shows(
    "Figure 1, IV: rescaling alone",
    "Section II: recentering alone",
    "Remark: the odd point is the largest",
    "derived: sampling in the batch's span",
    cost=3,
)
def parts(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Figure 1: the parts of batch norm one at a time."""
    X = data.subset(10, random_state)
    linear = propagate(X, 600, 1000, "linear", False, True, random_state=random_state)
    cosines = _mean_cosines(linear)
    relu = propagate(X, 600, 1000, "relu", False, True, random_state=random_state)
    kept = _recentering_alone(X, random_state)
    odd, same = _odd_is_largest(data, random_state, 60 if full else 20)
    spread = _same_law(X, 40 if full else 12)
    return from_claims(
        "parts",
        "Figure 1: rescaling, recentering and ReLU apart",
        (
            Claim(
                "Figure 1, IV: rescaling alone",
                "(earlier work) rescaling in a linear network makes a full-rank batch orthogonal",
                Check("mean |cosine| after 600 layers, width 1000", cosines[-1], "<=", 0.1),
            ),
            Claim(
                "Section II: recentering alone",
                "in a linear network recentering acts at the first layer only",
                Check("largest relative change of the Gram matrix", kept, "<=", 1e-8),
            ),
            Claim(
                "Remark: the odd point is the largest",
                "the odd point is typically the input of largest norm",
                Check(f"share of {odd} batches of digits, n = 10", same / max(odd, 1), ">", 0.5),
                "often another one",
                Check("share", same / max(odd, 1), "<", 1),
            ),
            Claim(
                "derived: sampling in the batch's span",
                "(in no paper) Z = randn(width, n) G^(1/2) has the law of a layer with weights",
                Check("difference of mean angles in standard errors", spread, "<=", 4),
            ),
        ),
        figure=_draw_parts(cosines, relu),
        settings={"random_state": random_state, "data": data.source},
    )


@shows(
    "Definition 12 is unstable",
    "Theorem 14, hypothesis",
    "Theorem 14, item 1",
    "Theorem 14, item 2",
    "Theorem 14, item 3",
    "Theorem 14, item 4",
    "(111) arc-cosine kernel",
    "after (111): K exceeds the product",
)
def invariance(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Definition 12, Theorem 14 and the kernel (111)."""
    rng = np.random.default_rng(random_state)
    n = 10
    grown = _growth(n)
    radii = [theorem14(invariant_gram(k)).radius * (k - 1) / k for k in (3, 10, 100, 1000)]
    points = _near_invariant(rng, n)
    exact = theorem14(points @ points.T)
    odd, cluster, product = _simulated(rng, points, exact.alpha, 100_000 if full else 20_000)
    kernel, above, on_ray = _kernel(rng)
    return from_claims(
        "invariance",
        "Definition 12, Theorem 14 and (111)",
        (
            Claim(
                "Definition 12 is unstable",
                "the invariant representation is stable",
                Check("growth of squared distances in the cluster a layer", grown, "<=", 1),
                "they grow by alpha = n^2/(n^2 - 2n + 2)",
                Check("growth a layer", grown, "=", invariant_alpha(n), 1e-3),
            ),
            Claim(
                "Theorem 14, hypothesis",
                "an invariant representation with R > n/(n-1)",
                Check("largest R (n-1)/n of Definition 12", max(radii), ">", 1),
                "empty with Definition 12; drop 'invariant' and it is not",
                Check("R (n-1)/n of a batch that meets the rest",
                      exact.radius * (n - 1) / n if exact.hypothesis else 0.0, ">", 1),
            ),
            Claim(
                "Theorem 14, item 1",
                "E|x_1'| = 1",
                Check("E|x_1'| at width 3", odd[0], "=", 1, 0.01),
                "E|x_1'|^2 = 1",
                Check("E|x_1'|^2", exact.odd_norm, "=", 1, 1e-9),
            ),
            Claim(
                "Theorem 14, item 2",
                "E|nu'| = 1/(n-1)",
                Check("(n-1) E|nu'| at width 3", (n - 1) * cluster[0], "=", 1, 0.01),
                "E|nu'|^2 = 1/(n-1)^2",
                Check("(n-1)^2 E|nu'|^2", (n - 1) ** 2 * exact.cluster_norm, "=", 1, 1e-9),
            ),
            Claim(
                "Theorem 14, item 3",
                "x_1' is orthogonal to nu' for every W",
                Check("largest |product| over random W", product, "<=", ROUNDING),
            ),
            Claim(
                "Theorem 14, item 4",
                "expected squared distances within the cluster shrink",
                Check("largest ratio after over before", exact.contraction, "<", 1),
            ),
            Claim(
                "(111) arc-cosine kernel",
                "E ReLU(w.x) ReLU(w.y) in closed form",
                Check("largest deviation from samples in standard errors", kernel, "<=", 5),
            ),
            Claim(
                "after (111): K exceeds the product",
                "K(x, y) > x.y whenever x differs from y",
                Check("K/(x.y) - 1 at y = 2x", on_ray, ">", 1e-9),
                "for x, y not on one ray",
                Check("smallest K - x.y off one ray", above, ">", 0),
            ),
        ),
        settings={"random_state": random_state},
    )  # fmt: skip


def _circle(n: int) -> Array:
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(t), np.sin(t)])


def _rises(rng: np.random.Generator, X: Array, trials: int) -> float:
    """How often one more neuron raises a rank of n - 1 to n."""
    hidden = np.maximum(rng.normal(size=(len(X) - 1, 2)) @ X.T, 0)
    while np.linalg.matrix_rank(hidden) < len(X) - 1:
        hidden = np.maximum(rng.normal(size=(len(X) - 1, 2)) @ X.T, 0)
    more = np.maximum(rng.normal(size=(trials, 2)) @ X.T, 0)
    ranks = [np.linalg.matrix_rank(np.vstack([hidden, row])) for row in more]
    return float(np.mean(np.array(ranks) == len(X)))


def _normalized_rank(rng: np.random.Generator, X: Array) -> int:
    z = rng.normal(size=(5000, X.shape[1])) @ X.T
    z -= z.mean(axis=1, keepdims=True)
    return int(np.linalg.matrix_rank(np.maximum(z / z.std(axis=1, keepdims=True), 0), tol=1e-8))


def _recentering_alone(X: Array, random_state: int) -> float:
    """Recentering at every linear layer against centring the input once, same weights."""
    options: dict[str, Any] = {"nl": "linear", "rescale": False, "method": "weights"}
    every = propagate(X, 5, 300, recenter=True, random_state=random_state, **options)
    centred = X - X.mean(axis=0)
    once = propagate(centred, 5, 300, recenter=False, random_state=random_state, **options)
    gaps = [
        np.abs(a / np.trace(a) - b / np.trace(b)).max()
        for a, b in zip(every.grams[1:], once.grams[1:], strict=True)
    ]
    return float(max(gaps))


def _odd_is_largest(data: Sample, random_state: int, runs: int) -> tuple[int, int]:
    """(runs with one odd point, those where it is the input of largest norm)."""
    found = same = 0
    for seed in range(random_state, random_state + runs):
        X = data.subset(10, seed)
        run = propagate(X, 400, 200, rescale=False, random_state=seed)
        odd = odd_points(run.grams[-1]).points
        if len(odd) == 1:
            found += 1
            same += bool(odd[0] == np.argmax(np.linalg.norm(X, axis=1)))
    return found, same


def _same_law(X: Array, runs: int) -> float:
    """Mean angle after 10 layers, weights against the batch's span, in standard errors."""
    means = {
        method: np.array(
            [propagate(X, 10, 60, method=method, random_state=s).mean_angles()[-1]
             for s in range(runs)]
        )
        for method in ("weights", "gram")
    }  # fmt: skip
    a, b = means.values()
    return float(abs(a.mean() - b.mean()) / math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / runs))


def _growth(n: int) -> float:
    gram = invariant_gram(n)
    gram[1, 1] += 1e-10
    after = invariant_alpha(n) * gram_step(gram)
    distance = [g[1, 1] + g[2, 2] - 2 * g[1, 2] for g in (gram, after)]
    return float(distance[1] / distance[0])


def _near_invariant(rng: np.random.Generator, n: int) -> Array:
    """A batch that meets Theorem 14's hypotheses but for the word invariant."""
    points = np.zeros((n, 6))
    points[0, 0] = 1.5
    points[1:, 1] = 1 / (n - 1)
    points[1:] += 1e-3 * rng.normal(size=(n - 1, 6))
    return points


def _simulated(
    rng: np.random.Generator, points: Array, alpha: float, trials: int
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """(mean norm, mean squared norm) of x_1' and nu' at width 3, and their largest product."""
    width = 3
    W = rng.normal(0, math.sqrt(2 * alpha / width), (trials, width, points.shape[1]))
    mean = points.mean(axis=0)
    odd = np.maximum(W @ (points[0] - mean), 0)
    cluster = np.maximum(W @ (points[1:].mean(axis=0) - mean), 0)
    norms = [np.linalg.norm(v, axis=1) for v in (odd, cluster)]
    moments = [(float(v.mean()), float((v**2).mean())) for v in norms]
    return moments[0], moments[1], float(np.abs((odd * cluster).sum(axis=1)).max())


def _kernel(rng: np.random.Generator) -> tuple[float, float, float]:
    """(111) against samples, the least K - x.y off one ray, and K/(x.y) - 1 on one."""
    points = rng.normal(size=(6, 3))
    samples = np.maximum(rng.normal(size=(100_000, 3)) @ points.T, 0)
    products = 2 * samples[:, :, None] * samples[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(samples))
    gram = points @ points.T
    kernel = kernel_gram(gram)
    off = ~np.eye(6, dtype=bool)
    double = np.array([points[0], 2 * points[0]])
    ray = kernel_gram(double @ double.T)[0, 1] / (double[0] @ double[1]) - 1
    deviation = (np.abs(products.mean(axis=0) - kernel) / error).max()
    return float(deviation), float((kernel - gram)[off].min()), float(abs(ray))


def _mean_cosines(run: Any) -> list[float]:
    """Mean |cosine| of pairs after layers 1, 2, ... to the last."""
    return [float(np.abs(np.cos(run.angles(k))).mean()) for k in range(1, run.layers + 1)]


def _draw_parts(cosines: list[float], relu: Any) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    ax.semilogx(np.arange(1, len(cosines) + 1), cosines, label="rescaling alone (linear)")
    with_relu = _mean_cosines(relu)
    ax.semilogx(np.arange(1, len(with_relu) + 1), with_relu, label="rescaling and ReLU")
    ax.set(xlabel="layer", ylabel="mean |cosine| of pairs", ylim=(0, 1),
           title="10 digits through a random network of width 1000")  # fmt: skip
    ax.legend()
    return figure


EXHIBITS: dict[str, Make] = {"rank": rank, "parts": parts, "tree": tree, "invariance": invariance}

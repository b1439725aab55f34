"""Definition 12, Theorems 13 and 14 and the kernel (111) of seed 004."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from relunorm.papers.batchnorm.laws import BatchNorm
from relunorm.papers.batchnorm.theory.invariants import check_invariant
from relunorm.papers.checklist import words_of
from relunorm.papers.exhibit import Exhibit

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]


def theorem13(world: BatchNorm) -> Exhibit:
    """The invariant representation of 3, 10 and 100 points through one layer: its expected Gram
    matrix in closed form, its expectation by samples."""
    rng = world.rng
    rows = []
    for n in (3, 10, 100):
        after = world.alpha(n) * world.gram_step(world.invariant(n), recenter=True)
        found = check_invariant(after)
        mean, error = _expected_norm(world, rng, n)
        rows.append(
            (n, world.alpha(n), max(vars(found).values()), mean, error, _coordinates(world, n))
        )
    worst = max(row[2] for row in rows)
    away = max(abs(row[3] - 1 / math.pi) / row[4] for row in rows)
    return exhibit(
        world.settings(),
        "theorem13",
        claim("Definition 12", worst),
        claim(
            "Theorem 13",
            min(abs(row[3] - 1) / row[4] for row in rows),
            away if worst <= 1e-9 else math.inf,
        ),
        claim("(95)-(98) scale of a layer", _scale(world, rng)),
        claim("(99)-(110) recentred points", max(row[5] for row in rows)),
        rows=rows,
    )


def invariance(world: BatchNorm) -> Exhibit:
    """A batch of ten points that meets Theorem 14's hypotheses but for the word invariant, through
    one layer, exactly and by samples at width 3; Definition 12 for 3 to 1,000 points; the kernel
    (111) of six random points against samples, and on a ray."""
    rng = world.rng
    n = 10
    grown = _growth(world, n)
    radii = [_radius(world.invariant(k)) * (k - 1) / k for k in (3, 10, 100, 1000)]
    points = _near_invariant(rng, n)
    closed = world.theorem14(points @ points.T)
    odd, cluster, product, ratio = _simulated(
        world, rng, points, closed.alpha, world.size(20_000, 100_000, 5000)
    )
    kernel, above, on_ray = _kernel(world, rng)
    empty = max(radii)
    return exhibit(
        world.settings(),
        "invariance",
        claim("ours: Definition 12 is unstable", grown, expected=n**2 / (n**2 - 2 * n + 2)),
        claim(
            "Theorem 14, hypothesis",
            empty,
            closed.radius * (n - 1) / n if closed.hypothesis else 0.0,
        ),
        claim("Theorem 14, item 1", odd[0], odd[1]),
        claim("Theorem 14, item 2", cluster[0], cluster[1]),
        claim("Theorem 14, item 3", product),
        claim(
            "Theorem 14, item 4",
            empty,
            ratio if closed.hypothesis and closed.contraction < 1 else math.inf,
            contraction=closed.contraction,
        ),
        claim("(8), (111) arc-cosine kernel", kernel),
        claim("after (111): K exceeds the product", on_ray, above),
    )


def _expected_norm(world: BatchNorm, rng: np.random.Generator, n: int) -> tuple[float, float]:
    """|E x_1'|^2 and its standard error: d entries of one law, variance of W 2 alpha / d, so the
    square of the mean of an entry of variance 2 alpha."""
    moved = _recentred(world, n)[0]
    W = rng.normal(0, math.sqrt(2 * world.alpha(n)), (world.size(200_000, 10**6, 20_000), 2))
    entries = world.relu(W @ moved)
    mean, error = entries.mean(), entries.std() / math.sqrt(len(entries))
    return float(mean**2), float(2 * abs(mean) * error)


def _recentred(world: BatchNorm, n: int) -> Array:
    """Definition 12 in the coordinates of (99)-(104), less its mean."""
    gram = world.invariant(n)
    root = np.zeros((n, 2))
    root[0, 0], root[1:, 1] = math.sqrt(gram[0, 0]), math.sqrt(gram[1, 1])
    return root - root.mean(axis=0)


def _coordinates(world: BatchNorm, n: int) -> float:
    """(101), (104) and the two norms, from the Gram matrix of Definition 12."""
    moved = _recentred(world, n)
    one, other = np.array([(n - 1) / n, -1 / n]), np.array([-1 / n, 1 / (n * (n - 1))])
    total = (n**2 - 2 * n + 2) / n**2
    gaps = [
        np.abs(moved[0] - one).max(),
        np.abs(moved[1] - other).max(),
        abs(moved[0] @ moved[0] - total),
        abs(moved[1] @ moved[1] - total / (n - 1) ** 2),
        abs(world.alpha(n) * total - 1),
    ]
    return float(max(gaps))


def _scale(world: BatchNorm, rng: np.random.Generator) -> float:
    worst = 0.0
    d, sigma = 3, 0.7
    for x in rng.normal(size=(5, 4)):
        W = rng.normal(0, sigma, size=(world.size(20_000, 100_000, 5000), d, 4))
        squares = (world.relu(W @ x) ** 2).sum(axis=1)
        error = squares.std() / math.sqrt(len(squares))
        worst = max(worst, abs(squares.mean() - d * sigma**2 / 2 * (x @ x)) / error)
    return float(worst)


def _radius(gram: Array) -> float:
    """|x_1 - nu_c|."""
    return math.sqrt(gram[0, 0] - 2 * gram[0, 1:].mean() + gram[1:, 1:].mean())


def _growth(world: BatchNorm, n: int) -> float:
    gram = np.array(world.invariant(n))
    gram[1, 1] += 1e-10
    after = world.alpha(n) * world.gram_step(gram)
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
    world: BatchNorm, rng: np.random.Generator, points: Array, alpha: float, trials: int
) -> tuple[tuple[float, float], tuple[float, float], float, float]:
    """Distances of E|v| and E|v|^2 from the printed values, in standard errors, for x_1' and nu'
    at width 3; their largest product; and the largest ratio, plus 4 standard errors, of squared
    distances among the others and nu, after the layer over before."""
    width, n = 3, len(points)
    W = rng.normal(0, math.sqrt(2 * alpha / width), (trials, width, points.shape[1]))
    inputs = np.vstack([points, points[1:].mean(axis=0)])
    after = world.relu(W @ (inputs - points.mean(axis=0)).T)
    odd, cluster = after[:, :, 0], after[:, :, -1]
    found = []
    for values, size in ((odd, 1.0), (cluster, 1 / (n - 1))):
        norms = np.linalg.norm(values, axis=1)
        pairs = ((norms, size), (norms**2, size**2))
        away = [abs(v.mean() - t) / (v.std() / math.sqrt(trials)) for v, t in pairs]
        found.append((float(away[0]), float(away[1])))
    ratios = []
    for i, j in combinations(range(1, n + 1), 2):
        squares = ((after[:, :, i] - after[:, :, j]) ** 2).sum(axis=1)
        squares = squares / ((inputs[i] - inputs[j]) ** 2).sum()
        ratios.append(squares.mean() + 4 * squares.std() / math.sqrt(trials))
    product = float(np.abs((odd * cluster).sum(axis=1)).max())
    return found[0], found[1], product, float(max(ratios))


def _kernel(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, float]:
    """(111) against samples, the least K - x.y off one ray, and K/(x.y) - 1 on one."""
    points = rng.normal(size=(6, 3))
    samples = np.maximum(rng.normal(size=(world.size(100_000, 10**6, 20_000), 3)) @ points.T, 0)
    means = 2 * samples.T @ samples / len(samples)
    squares = 4 * (samples**2).T @ (samples**2) / len(samples)
    error = np.sqrt((squares - means**2) / len(samples))
    gram = points @ points.T
    kernel = world.kernel(gram)
    off = ~np.eye(6, dtype=bool)
    double = np.array([points[0], 2 * points[0]])
    ray = world.kernel(double @ double.T)[0, 1] / (double[0] @ double[1]) - 1
    deviation = (np.abs(means - kernel) / error).max()
    return float(deviation), float((kernel - gram)[off].min()), float(ray)

"""Theorem 11 of seed 004, the tree model in the limit, and its proof in appendix D; appendix
E is in `relunorm.papers.batchnorm.three_clusters`."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.batchnorm.theory.tree_model import cluster_count
from relunorm.papers.batchnorm.tree import brute_force
from relunorm.papers.claim import ROUNDING, share_above
from relunorm.papers.exhibit import Exhibit

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]
#: A depth at which every split but the most unbalanced ones has faded.
DEEP = 20_000


def theorem11(world: BatchNorm) -> Exhibit:
    """Trees of random and of symmetric batches 20,000 layers deep against the printed bounds and
    the steps of their proof; batches of one coordinate, and of three with a largest and a smallest
    point in each, or without; small trees row by row, and equally spaced points."""
    rng = world.rng
    rows = []
    for n in world.size((3, 4, 5, 10, 20, 50), (3, 4, 5, 10, 20, 50, 100), (3, 5, 10)):
        for d in (1, 3):
            for _ in range(world.size(6, 50, 3)):
                rows.append((n, d, *_deep(world, n, _ordered(rng, n, d))))
        half = np.sort(rng.random(n // 2)) + 0.1
        symmetric = np.r_[-half[::-1], np.zeros(n % 2), half][:, None]
        rows.append((n, 1, *_deep(world, n, symmetric)))
    columns = (
        "n", "d", "cosine of the ends", "largest inner angle", "norm ratio", "norm bound",
        "sharp ratio", "deficit of the angle", "angle bound", "(45)-(47) off by", "(48) off by",
        "(49) off by", "(53)-(58) off by", "decay off by",
    )  # fmt: skip
    table = {
        name: np.array([row[k] for row in rows], dtype=float) for k, name in enumerate(columns)
    }
    one = table["d"] == 1

    def worst(name: str, where: NDArray[np.bool_] = one) -> float:
        return float(table[name][where].max())

    def over(name: str, bound: Array, where: NDArray[np.bool_] = one) -> float:
        return float((table[name] / bound)[where].max())

    n = table["n"]
    several = max(
        worst("cosine of the ends", ~one) / ROUNDING,
        worst("largest inner angle", ~one) / 0.01,
        over("norm ratio", table["norm bound"], ~one),
        over("deficit of the angle", table["angle bound"], ~one),
    )
    split, split_inside, together = _small_trees(world, rng)
    first, later = _unbalanced(world, rng)
    below = math.pi / (2 * math.sqrt(2) * (n - 1))
    tight, slack = np.arcsin(1 / (math.sqrt(2) * (n - 1))), 1 / (n.max() - 1) ** 2
    apart, batches = _odd_by_coordinate(world, rng)
    return exhibit(
        world.settings(depth=DEEP),
        "theorem11",
        claim("Theorem 11, item 1", worst("cosine of the ends")),
        claim("Theorem 11, item 2", worst("largest inner angle")),
        claim("Theorem 11, item 3", over("norm ratio", table["norm bound"])),
        claim("Theorem 11, item 4", over("deficit of the angle", table["angle bound"])),
        claim(
            "Section III: coordinates have odd points of their own",
            share_above(apart, batches, 0.5),
            apart=apart,
            batches=batches,
        ),
        claim("Remark: Theorem 11 for d > 1", several),
        claim("ours: sharp limits of the tree", worst("sharp ratio")),
        claim("Appendix D: (39)-(40) a row's contribution", _contribution(world)),
        claim("Appendix D: (41)-(45) the unbalanced rows dominate", worst("decay off by")),
        claim("Appendix D: after (41) the set is not empty", first, later),
        claim("Appendix D: after (41) the points together", together, together),
        claim("Appendix D: (42) one set for all pairs", split, split_inside),
        claim("Appendix D: (46)-(47) norms of the ends", worst("(45)-(47) off by")),
        claim("Appendix D: (48) the ratio", worst("(48) off by"), worst("(49) off by")),
        claim(
            "Appendix D: (49)-(52) the ratio's bound",
            over("norm ratio", np.sqrt(2) / (n - 1)) ** 2,
            slack=slack,
        ),
        claim(
            "Appendix D: (53)-(60) angles",
            over("deficit of the angle", tight)
            if worst("(53)-(58) off by") <= 1e-6 and (tight <= below).all()
            else math.inf,
            slack=slack,
        ),
        columns=columns,
        rows=rows,
    )


def _ordered(rng: np.random.Generator, n: int, d: int) -> Array:
    """A batch whose point 0 is smallest and whose last point is largest in every coordinate."""
    x = rng.normal(size=(n, d))
    x[0], x[-1] = x.min(axis=0) - rng.random(d), x.max(axis=0) + rng.random(d)
    return np.sort(x, axis=0) if d == 1 else x


def _deep(world: BatchNorm, n: int, x: Array) -> tuple[float, ...]:
    """The columns of `theorem11` for one batch."""
    gram = world.tree(x).jump(DEEP).gram(normalize=True)
    early = [world.tree(x).run(t).gram(normalize=True) for t in (1, 2, 3, 4, 5, 6, 12, 40)]
    corner = max(abs(g[0, -1]) / math.sqrt(g[0, 0] * g[-1, -1]) for g in (*early, gram))
    norms = np.sqrt(np.diag(gram))
    cosines = gram / np.outer(norms, norms)
    inner = np.degrees(np.arccos(np.clip(cosines[1:-1, 1:-1], -1, 1))).max()
    end = 0 if norms[0] >= norms[-1] else -1
    ratio = float(norms[1:-1].max() / norms[end])
    deficit = float(np.arcsin(np.clip(cosines[end, 1:-1], -1, 1)).max())
    # the two weights, from the inner products (53) and (54) with the first inner point
    s2, s1 = gram[1, 0], gram[1, -1]
    rest, ends = gram[1, 1], (gram[0, 0], gram[-1, -1])
    scale = gram[1, 1]
    norms_off = max(
        abs(s1 + s2 - rest) / scale,
        abs((n - 1) ** 2 * s1 + s2 - ends[0]) / ends[0],
        abs(s1 + (n - 1) ** 2 * s2 - ends[1]) / ends[1],
    )
    big, low = max(s1, s2), min(s1, s2)
    measured = rest / max(ends)
    weight = (n - 1) ** 2 * big + low
    r = low / big
    sharp = math.sqrt((1 + r) / ((n - 1) ** 2 + r))
    cosine = r / math.sqrt((1 + r) * ((n - 1) ** 2 + r))
    q = (1 + (n - 1) ** 2) / n**2
    decay = _trace_ratio(world, x, n)
    return (
        corner,
        float(inner),
        ratio,
        world.norm_constant(n),
        abs(ratio / sharp - 1),
        deficit,
        world.angle_constant(n),
        norms_off,
        abs(big / weight / measured - 1),
        abs((s1 + s2) / weight / measured - 1),
        abs(float(cosines[end, 1]) - cosine),
        abs(decay / q - 1),
    )


def _small_trees(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, float]:
    """Over the rows split 1 and n-1 of trees of five and six points: how often one parts two of the
    points 2, ..., n, and of 2, ..., n-1; and how many of six points are together in all. NaN
    without such rows."""
    parted, parted_inside, together = [], [], math.nan
    for n in (5, 6):
        rows = brute_force(world, np.sort(rng.normal(size=n))[None], 9)[-1]
        counts = [np.unique(row, return_counts=True)[1] for row in rows]
        rows = rows[[len(sizes) == 2 and 1 in sizes for sizes in counts]]
        if not len(rows):
            return math.nan, math.nan, math.nan
        parted += list(np.ptp(rows[:, 1:], axis=1) > 0)
        parted_inside += list(np.ptp(rows[:, 1:-1], axis=1) > 0)
        together = float((rows == rows[:, [2]]).all(axis=0).sum())
    return float(sum(parted)), float(sum(parted_inside)), together


def split_weights(world: BatchNorm, row: Array, depth: int) -> tuple[Array, int]:
    """Sums of squared positive coordinates of the two-cluster rows that ``row`` leads to, layer by
    layer from its own on and by the number of points of the first cluster, (depth + 1, n); and the
    layer from which on all rows have three clusters at most.

    Rows of three and more clusters are followed one by one, the others by their split: a row is a
    multiple of one of two, whose two children have the same split. NaN if more than n rows have to
    be followed: there are n - 2 at most.
    """
    n, more = len(row), [np.asarray(row, dtype=float)]
    weights, stable = np.zeros((depth + 1, 2, n)), int(cluster_count(row) > 3)
    moves = np.zeros((n, 2, 2))  # squared coordinates of the children: from side, to side
    for m in range(1, n):
        right = np.r_[np.zeros(m), np.ones(n - m)]
        for side, start in enumerate((right, 1 - right)):
            moves[m, side, side] = world.positive(start).max() ** 2
            moves[m, side, 1 - side] = world.negative(start).max() ** 2
    for t in range(1, depth + 1):
        weights[t] = np.einsum("sm,mst->tm", weights[t - 1], moves)
        rows, more = more, []
        for child in (f(row) for row in rows for f in (world.positive, world.negative)):
            count = len(set(child.tolist()))
            if count == 2:
                weights[t, int(child[0] > 0), int((child != child[0]).argmax())] += child.max() ** 2
            elif count > 2:
                more.append(child)
            stable = t + 1 if count > 3 else stable
        if len(more) > n:
            return np.full((depth + 1, n), math.nan), 0
    return weights.sum(axis=1), stable


def _unbalanced(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float]:
    """The least weight of rows split 1 and n-1 at the first stable layer, of several batches; and
    of the rows (1, n-1), or (n-1, 1), 30 layers on, as a share of all."""
    batches = [np.arange(5.0), np.arange(6.0), *np.sort(rng.normal(size=(5, 7)), axis=1)]
    first, later = [], []
    for x in batches:
        weights, stable = split_weights(world, x, 60)
        first.append(weights[stable, [1, -1]].sum())
        share = weights[min(60, stable + 30)]
        later.append(share[[1, -1]].min() / share.sum())
    return float(min(first)), float(min(later))


def _odd_by_coordinate(world: BatchNorm, rng: np.random.Generator) -> tuple[int, int]:
    """Batches of 20 points in three coordinates whose three trees have three odd points."""
    batches, apart = 40, 0
    for x in rng.normal(size=(batches, 3, 20)):
        norms = [np.diag(world.tree(row).jump(1000).gram(normalize=True)) for row in x]
        apart += len({int(np.argmax(part)) for part in norms}) == 3
    return apart, batches


def _trace_ratio(world: BatchNorm, x: Array, n: int) -> float:
    """The factor by which squared norms fall a layer, between two depths that floats hold."""
    low, high = 60 * n, 60 * n + 1
    traces = [np.trace(world.tree(x).jump(t).gram()) for t in (low, high)]
    return float(traces[1] / traces[0])


def _contribution(world: BatchNorm) -> float:
    """(39) and (40) against the rows that a two-cluster row leaves, by points of either cluster."""
    worst = 0.0
    for n in (5, 7):
        for positive in range(1, n):
            row = np.r_[np.zeros(n - positive), np.full(positive, 1.7)]
            for layers, (point, size) in product((1, 2, 5), ((-1, positive), (0, n - positive))):
                found = brute_force(world, row[None], layers)[-1]
                total = float((found[:, point] ** 2).sum())
                rest, own = ((n - size) / n) ** 2, (size / n) ** 2
                sum39 = 1.7**2 * sum(
                    math.comb(layers - 1, k) * rest ** (layers - k) * own**k for k in range(layers)
                )
                closed = 1.7**2 * rest * (rest + own) ** (layers - 1)
                worst = max(worst, abs(sum39 / total - 1), abs(closed / total - 1))
    return worst

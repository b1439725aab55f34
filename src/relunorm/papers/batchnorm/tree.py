"""Section III of seed 004 on the simplified model: the tree, Lemma 7, Theorem 10 and its proof, and
figures 4, 7 and 8."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.batchnorm.theory.tree_model import cluster_count
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]


def tree(world: BatchNorm) -> Exhibit:
    """The tree model by brute force and in closed form; clusters of random vectors, and of vectors
    with a cluster at the mean, under positive and negative transformations."""
    rng = world.rng
    x = np.array([0.0, 1.0, 2.2, 2.9, 5.0])
    depth = world.size(10, 12, 7)
    layers = brute_force(world, x[None], depth)
    gram = layers[depth].T @ layers[depth]
    brute = np.abs(world.tree(x).run(depth).gram() - gram).max() / np.abs(gram).max()
    many, unstable = [], 0
    for n in world.size((5, 10, 20, 50), (5, 10, 20, 50, 100), (5, 10)):
        start = world.tree(np.sort(rng.normal(size=n)))
        counts = start.run(60).clusters()
        many.append(sum(counts.three_or_more[0].values()) - (n - 2) if counts.conserved else np.inf)
        unstable += not start.run(start.stability_layer()).clusters().stable
    change, mean, below, conserved, reuse = _gaps(world, rng)
    others, ties = _three_clusters(world, rng)
    projected, strangers = _projections(world, rng)
    formulas, contraction, equal, between = _contraction(world, rng)
    return exhibit(
        world.settings(),
        "tree",
        claim("(8)-(10) tree model", projected),
        claim("Section III: a neuron depends on its parent only", strangers),
        claim("Figure 4", len(layers[3]) if _born(world, layers[:4]) else math.nan),
        claim(
            "ours: the tree is polynomial",
            max(many) if brute <= ROUNDING else math.inf,
            rows=2**depth,
        ),
        claim("Lemma 7", _cluster_changes(world, rng)),
        claim("Theorem 10", unstable + _unstable(world, rng)),
        claim("Appendix C: (29)-(33) positive transformations", max(change, mean, below)),
        claim("Appendix C: (31) after negative transformations", reuse, conserved),
        claim(
            "Appendix C: (35) the mean contracts",
            formulas if contraction < 1 else math.nan,
            contraction=contraction,
        ),
        claim(
            "Appendix C: (35d) is strict",
            -equal,
            between if contraction < 1 and equal <= ROUNDING else math.nan,
        ),
        claim("Figure 7", _two_clusters(world, rng)),
        claim("Figure 8", others + ties, others if ties == 10 else math.nan),
        figure=None if world.tiny else _draw_tree(brute_force(world, x[None], 3)),
    )


def brute_force(world: BatchNorm, rows: Array, depth: int) -> list[Array]:
    """All rows of (10), layer by layer; the children of row k are rows 2 k and 2 k + 1."""
    layers = [rows]
    for _ in range(depth):
        X = layers[-1]
        after = world.relu(world.weights(len(X)) @ (X - X.mean(axis=1, keepdims=True)))
        halves = np.array_split(after, max(1, len(after) // len(X)))
        layers.append(np.stack(halves, axis=1).reshape(len(after), -1))
    return layers


def _born(world: BatchNorm, layers: list[Array]) -> bool:
    """Whether rows 2 k and 2 k + 1 are the two transformations of row k of the layer before."""
    return all(
        len(after) == 2 * len(before)
        and all(
            np.allclose(after[2 * k + j], f(row), atol=ROUNDING)
            for k, row in enumerate(before)
            for j, f in enumerate((world.positive, world.negative))
        )
        for before, after in pairwise(layers)
    )


def _projections(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float]:
    """(10) against the sum (8) over +-e_k, three coordinates and three layers; and how many rows of
    a layer, but its own two children, change with a row of the layer before (NaN if these do not).
    """
    X, worst = rng.normal(size=(3, 6)), 0.0
    other = X.copy()
    other[1] = rng.normal(size=6)
    changed = (brute_force(world, X, 1)[1] != brute_force(world, other, 1)[1]).any(axis=1)
    for after in brute_force(world, X, 3)[1:]:
        total = np.zeros((6, 6))
        for row in X:
            for part in (row - row.mean(), row.mean() - row):
                total += np.outer(part * (part > 0), part * (part > 0))
        worst = max(worst, float(np.abs(after.T @ after - total).max() / total.max()))
        X = after
    strangers = float(np.delete(changed, [2, 3]).sum()) if changed[2:4].any() else math.nan
    return worst, strangers


def _cluster_changes(world: BatchNorm, rng: np.random.Generator) -> int:
    """Most clusters gained by functions of the entries, the two transformations among them."""
    gains = []
    for _ in range(200):
        x = rng.integers(0, 6, size=8).astype(float)
        lookup = rng.integers(0, 6, size=6)  # an arbitrary function of the six values
        functions = (world.positive, world.negative, np.sin, lambda v, t=lookup: t[v.astype(int)])
        gains += [cluster_count(f(x)) - cluster_count(x) for f in functions]
    return max(gains)


def _unstable(world: BatchNorm, rng: np.random.Generator) -> int:
    """Random vectors that sequences of transformations leave with more than 3 clusters."""
    wrong = 0
    for k in range(world.size(100, 500, 20)):
        x, share = rng.normal(size=(5, 8, 20)[k % 3]), (0.0, 0.1, 0.5, 0.9, 1.0)[k % 5]
        for sign in rng.random(400) < share:
            x = world.positive(x) if sign else world.negative(x)
            size = np.abs(x).max()
            if cluster_count(x) <= 3 or not size > 0:
                break
            x = x / size
        wrong += cluster_count(x) > 3
    return wrong


def _gaps(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, float, float, float]:
    """Over steps that keep four clusters or more: the change of c_3 - c_2 and of the number of
    positive entries under positive transformations (infinite below two), the distance from (33),
    the shortfall of (32), how far the smallest interior gap shrinks under either, and the change of
    c_3 - c_2 under negative ones."""
    change = mean = shrink = reuse = below = 0.0
    starts = [np.array([0.0, 1, 3, 4, 20]), np.array([0.0, 1, 3, 4, 5, 5.5])]
    for k in range(world.size(200, 1000, 50)):  # entries repeat: n_t counts them, not clusters
        entries = np.repeat(3 + 0.2 * rng.random(4), rng.integers(1, 4, size=4))
        starts.append(np.r_[np.zeros(k % 3 + 1), entries])
    for x in starts:
        for f, positive in ((world.positive, True), (world.negative, False)):
            after = f(x)
            before_c, after_c = np.unique(x), np.unique(after)
            if len(after_c) != len(before_c):
                continue
            pair = abs((after_c[2] - after_c[1]) - (before_c[2] - before_c[1]))
            inside = np.diff(before_c)[1:-1].min() - np.diff(after_c)[1:-1].min()
            shrink = max(shrink, inside)
            if not positive:
                reuse = max(reuse, pair)
                continue
            count = world.positive_entries(x)
            moved = float(abs(world.positive_entries(after) - count))
            change = max(change, pair, moved if count >= 2 else math.inf)
            mean = max(mean, abs(after.mean() - (1 - count / len(x)) * x.mean()))
            if not x.mean() > (before_c[2] - before_c[1]) / len(x):
                below = math.inf
    return float(change), float(mean), below, float(shrink), float(reuse)


def _contraction(world: BatchNorm, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Over sequences - + ... + - of vectors that keep four clusters or more: the largest distance
    from (35b), (35c) and (35e), relative; the last mean over (1 - 2/n) of the first; and the
    largest rise of x_max - mean between, relative, over all and over those with a + between. NaN
    if there are none of the last."""
    wrong, worst, rise, risen = 0.0, 0.0, -math.inf, -math.inf
    for _ in range(world.size(3000, 20_000, 600)):
        top, inner, zeros = (int(rng.integers(*ends)) for ends in ((1, 8), (2, 4), (1, 4)))
        middle = 0.3 * rng.random(inner) + rng.random()
        x = np.r_[np.zeros(zeros), middle, np.full(top, 1.3 + 3 * rng.random())]
        n, clusters = len(x), inner + 2
        first = y = world.negative(x)
        for between in range(3):
            y = world.positive(y) if between else y
            last = world.negative(y)
            if len(set(y.tolist())) != clusters:
                break
            if len(set(last.tolist())) != clusters:
                continue
            gap = [v.max() - v.mean() for v in (first, y)]
            equations = (
                ((y.mean() - y)[y < y.max()].sum() / n, last.mean()),  # (35b)
                ((1 - world.positive_entries(last) / n) * gap[1], last.mean()),  # (35c)
                (x.mean() - first.mean(), gap[0]),  # (35e)
            )
            wrong = max(wrong, *(abs(a - b) / b for a, b in equations))
            worst = max(worst, last.mean() / ((1 - 2 / n) * x.mean()))
            rise = max(rise, (gap[1] - gap[0]) / gap[0])
            if between:
                risen = max(risen, (gap[1] - gap[0]) / gap[0])
    if risen == -math.inf:
        return math.nan, math.nan, math.nan, math.nan
    return float(wrong), float(worst), float(rise), float(risen)


def _two_clusters(world: BatchNorm, rng: np.random.Generator) -> float:
    """(36) and (37), and (38) along random transformations, off by at most."""
    worst = 0.0
    for n in (3, 5, 12):
        for zeros in range(1, n):
            start = np.r_[np.zeros(zeros), np.full(n - zeros, 2.0)]
            for signs in ((True,), (False,), *(rng.random((3, 12)) < 0.5)):
                x, expected, empty = start, 2.0, zeros
                for sign in signs:
                    x = world.positive(x) if sign else world.negative(x)
                    empty = empty if sign else n - empty  # points at 0 afterwards
                    expected *= empty / n
                off = abs(x.max() / expected - 1)
                worst = max(worst, off if (x == 0).sum() == empty else math.inf)
    return worst


def _three_clusters(world: BatchNorm, rng: np.random.Generator) -> tuple[int, int]:
    """Random rows whose children have not three and two clusters; and rows with the middle cluster
    at the mean both of whose children have two, of ten."""
    wrong = ties = 0
    for _ in range(1000):
        middle, top = np.sort(rng.random(2))
        x = np.r_[np.zeros(rng.integers(1, 6)), middle, np.full(rng.integers(1, 6), top)]
        children = [cluster_count(f(x)) for f in (world.positive, world.negative)]
        wrong += sorted(children) != [2, 3]
    for k in range(1, 11):
        x = np.r_[np.zeros(k), 1.0, np.full(k, 2.0)]
        ties += [cluster_count(f(x)) for f in (world.positive, world.negative)] == [2, 2]
    return wrong, ties


def _draw_tree(layers: list[Array]) -> Any:
    """Figure 4: each row as points on a line, children below their parent."""
    figure, (ax,) = empty_figure((11, 5.2))
    top = float(layers[0].max())
    for t, rows in enumerate(layers):
        for k, row in enumerate(rows):
            center = (k + 0.5) / len(rows)
            half = 0.42 / 2 ** max(t, 1)
            left = center - half
            if t:
                parent = (k // 2 + 0.5) / len(layers[t - 1])
                ax.plot([parent, center], [-t + 0.78, -t + 0.2], color="0.75", lw=1, zorder=0)
                ax.text(
                    (parent + center) / 2, -t + 0.5, "+-"[k % 2], ha="center", color="0.4",
                    backgroundcolor="white", fontsize=9,
                )  # fmt: skip
            ax.plot([left, center + half], [-t, -t], color="black", lw=0.8)
            ax.plot([left + 2 * half * row.mean() / top] * 2, [-t - 0.1, -t + 0.1], "r-", lw=1.2)
            for i, value in enumerate(row):
                at = left + 2 * half * value / top
                ax.plot(at, -t, "osD^v"[i], color=f"C{i}", ms=6, alpha=0.8)
    ax.set(xlim=(0, 1), ylim=(-len(layers) + 0.6, 0.4), yticks=range(0, -len(layers), -1),
           yticklabels=[f"layer {t}" for t in range(len(layers))], xticks=[])  # fmt: skip
    ax.set_title("The tree of five points: + keeps what is above the mean (red), - what is below")
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return figure

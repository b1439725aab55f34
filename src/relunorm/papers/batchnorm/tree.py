"""Seed 004's Section III on the simplified model: the tree, Lemma 7, Theorems 10 and 11."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm.tree import (
    Tree,
    cluster_count,
    negative_transformation,
    positive_transformation,
)
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, Sample, from_claims, shows

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10


@shows(
    "(8)-(10) tree model",
    "Figure 4",
    "derived: the tree is polynomial",
    "Lemma 7",
    "Theorem 10",
    "Theorem 10, (31)",
    "Theorem 11, item 1",
    "Theorem 11, item 2",
    "Figure 7",
    "Figure 8",
    cost=6,
)
def tree(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section III: the tree model, its clusters and its limit."""
    rng = np.random.default_rng(random_state)
    x = np.array([0.0, 1.0, 2.2, 2.9, 5.0])
    layers = _brute_force(x, 10)
    depth = 10
    gram = layers[depth].T @ layers[depth]
    brute = np.abs(Tree(x).run(depth).gram() - gram).max() / np.abs(gram).max()
    growth = [len(rows) for rows in layers[:4]]
    many, unstable, corner, inner = [], 0, [], []
    for n in (5, 10, 20, 50):
        start = Tree(np.sort(rng.normal(size=n)))
        counts = start.run(60).clusters()
        many.append(sum(counts.three_or_more[0].values()) - (n - 2) if counts.conserved else np.inf)
        layer = start.stability_layer()
        unstable += not start.run(layer).clusters().stable
        for t in (1, 5, 40):
            here = start.run(t).gram(normalize=True)
            corner.append(abs(here[0, -1]) / math.sqrt(here[0, 0] * here[-1, -1]))
        angles = start.jump(20_000).angles()[1:-1, 1:-1]
        inner.append(np.degrees(np.nanmax(angles)))
    gained = _cluster_changes(rng)
    gap, interior = _gaps()
    return from_claims(
        "tree",
        "Section III: the tree model",
        (
            Claim(
                "(8)-(10) tree model",
                "a layer of the model is W = (I; -I), recentering and ReLU",
                Check("relative difference from 1,024 rows by (10)", brute, "<=", ROUNDING),
            ),
            Claim(
                "Figure 4",
                "a binary tree: a layer doubles the rows",
                Check("rows after three layers", growth[3], "=", 8),
            ),
            Claim(
                "derived: the tree is polynomial",
                "(printed: exponential build-up) at most n - 2 rows have three clusters or more",
                Check("rows beyond n - 2 at depth 60", max(many), "<=", 0),
            ),
            Claim(
                "Lemma 7",
                "a function of the entries never adds clusters",
                Check("most clusters gained", gained, "<=", 0),
            ),
            Claim(
                "Theorem 10",
                "after finitely many transformations there are at most three clusters",
                Check("trees with more at their layer t0 (n to 50)", unstable, "=", 0),
            ),
            Claim(
                "Theorem 10, (31)",
                "c_3 - c_2 is constant while the number of clusters is",
                Check("its change for (0, 1, 3, 4, 20)", gap, "=", 0, ROUNDING),
                "the smallest interior gap does not shrink",
                Check("its change", interior, "=", 0, ROUNDING),
            ),
            Claim(
                "Theorem 11, item 1",
                "smallest and largest input are orthogonal at every layer",
                Check("largest |cosine|", max(corner), "<=", ROUNDING),
            ),
            Claim(
                "Theorem 11, item 2",
                "the angles among the others go to 0",
                Check("largest, degrees, at depth 20,000", max(inner), "<=", 0.01),
            ),
            Claim(
                "Figure 7",
                "two clusters: the positive one moves to n_0/n or (n - n_0)/n of itself",
                Check("largest difference from (36)-(37)", _two_clusters(), "<=", ROUNDING),
            ),
            Claim(
                "Figure 8",
                "three clusters: one child has three, the other two",
                Check("rows of 1,000 with other children", _three_clusters(rng), "=", 0),
            ),
        ),
        figure=_draw_tree(layers[:4]),
        settings={"random_state": random_state},
    )


def _brute_force(x: Array, depth: int) -> list[Array]:
    """All 2^t rows of (10), layer by layer."""
    layers = [x[None]]
    for _ in range(depth):
        both = [
            f(row) for row in layers[-1] for f in (positive_transformation, negative_transformation)
        ]
        layers.append(np.array(both))
    return layers


def _cluster_changes(rng: np.random.Generator) -> int:
    gains = []
    for _ in range(500):
        x = rng.integers(0, 6, size=8).astype(float)
        for f in (positive_transformation, negative_transformation):
            gains.append(cluster_count(f(x)) - cluster_count(x))
    return max(gains)


def _gaps() -> tuple[float, float]:
    """Change of c_3 - c_2, and of the smallest interior gap, under a negative transformation."""
    before = np.array([0.0, 1, 3, 4, 20])
    after = np.unique(negative_transformation(before))
    if len(after) != len(before):
        return math.nan, math.nan
    pair = (after[2] - after[1]) - (before[2] - before[1])
    return float(pair), float(np.diff(after)[1:-1].min() - np.diff(before)[1:-1].min())


def _two_clusters() -> float:
    worst = 0.0
    for n in (3, 5, 12):
        for zeros in range(1, n):
            x = np.r_[np.zeros(zeros), np.full(n - zeros, 2.0)]
            kept, flipped = positive_transformation(x).max(), negative_transformation(x).max()
            worst = max(worst, abs(kept - 2 * zeros / n), abs(flipped - 2 * (n - zeros) / n))
    return worst


def _three_clusters(rng: np.random.Generator) -> int:
    wrong = 0
    for _ in range(1000):
        middle, top = np.sort(rng.random(2))
        x = np.r_[np.zeros(rng.integers(1, 6)), middle, np.full(rng.integers(1, 6), top)]
        children = [cluster_count(f(x)) for f in (positive_transformation, negative_transformation)]
        wrong += sorted(children) != [2, 3]
    return wrong


def _draw_tree(layers: list[Array]) -> Any:
    """Figure 4: each row as points on a line, children below their parent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    ax = figure.subplots()
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

"""Tree model, Gram sampler, cells and the layer, against brute force and direct weights.

One thread; CPU seconds, best of three (the layer: median of 50 calls).
"""

from __future__ import annotations

# ruff: noqa: E402 - the threads must be set before numpy loads
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from record import record

from relunorm.batchnorm import Tree, gamma, propagate
from relunorm.batchnorm.random_layer import (
    multiply_by_root,
    normalize_and_respond,
    triangular_root,
)

LAYERS = 100_000
BRUTE_DEPTH = 14


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds of a call, best of ``repeats``."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def brute_force(x: np.ndarray, depth: int) -> np.ndarray:
    """The 2^depth rows of the tree model."""
    rows = x[None, :]
    for _ in range(depth):
        moved = rows - rows.mean(axis=1, keepdims=True)
        rows = np.maximum(np.vstack([moved, -moved]), 0)
    return rows.T @ rows


def tree_rows() -> Iterator[list[object]]:
    rng = np.random.default_rng(0)
    for n, target in ((5, 100_000), (20, 80_000), (100, 15_000)):
        tree = Tree(rng.standard_normal(n))
        tree.run(10)
        tree.limit()  # compile
        rate = LAYERS / seconds(lambda tree=tree: tree.run(LAYERS))
        # before any row has faded: the first 50 layers again and again
        early = 50 / seconds(lambda tree=tree: tree.run(50), 20)
        x = rng.standard_normal(n)
        slow = BRUTE_DEPTH / seconds(lambda x=x: brute_force(x, BRUTE_DEPTH))
        ms = 1000 * seconds(tree.limit)
        yield [f"tree, n = {n}: layers a second", rate, f"brute force {slow:.4g}", rate / slow]
        yield [
            f"tree, n = {n}: first 50 layers, a second",
            early,
            f"target {target}",
            early / target,
        ]
        yield [f"tree, n = {n}: limit, ms", ms, "target 10", 10 / ms]


def layer_cost(X: np.ndarray, layers: int, **options: Any) -> float:
    """Milliseconds a layer of width 1000."""
    return 1000 / layers * seconds(lambda: propagate(X, layers, 1000, **options))


def sampler_rows() -> Iterator[list[object]]:
    rng = np.random.default_rng(0)
    parts: dict[str, dict[str, Any]] = {
        "recentering only": {"rescale": False},
        "full": {},
        "linear, recentering only": {"rescale": False, "nl": "linear"},
    }
    for n in (10, 20, 100):
        X = rng.standard_normal((n, 64))
        propagate(X, 2, 10)  # compile
        for label, options in parts.items():
            weights = layer_cost(X, 30, method="weights", **options)
            own = layer_cost(X, 100 if n == 100 else 400, **options)
            yield [
                f"Gram sampler, width 1000, n = {n}, {label}: ms a layer",
                own,
                f"direct weights {weights:.4g}",
                weights / own,
            ]
        for what, ms in floor(n, 1000).items():
            yield [f"of a layer, n = {n}: {what}, ms", ms, "", ""]


def floor(n: int, width: int) -> dict[str, float]:
    """Milliseconds of what no layer behind a non-linearity can do without, each by itself."""
    rng = np.random.default_rng(0)
    state, other = np.empty((n, width)), np.empty((n, width))
    rng.standard_normal(out=state)
    rng.standard_normal(out=other)
    root = np.asfortranarray(np.tril(rng.standard_normal((n, n))) / n)
    gram, dependent = state @ state.T, np.ones((n, n))
    parts: dict[str, Callable[[], object]] = {
        "root (Cholesky)": lambda: triangular_root(gram, state),
        "root of dependent points (QR)": lambda: triangular_root(dependent, state),
        f"{n * width} normals": lambda: rng.standard_normal(out=other),
        "triangular root times normals": lambda: multiply_by_root(root, other),
        "inner products": lambda: state @ state.T,
        "normalization and ReLU": lambda: normalize_and_respond(
            other, np.ones(n), 0.0, True, True, True
        ),
    }
    return {what: 1000 * seconds(call, 50) for what, call in parts.items()}


def other_rows() -> Iterator[list[object]]:
    X = np.random.default_rng(0).standard_normal((300, 3))
    cells = seconds(lambda: gamma(X[:12]))
    yield ["gamma, 12 points in 3-D (134 cells), s", cells, "target 0.5", 0.5 / cells]
    many = seconds(lambda: gamma(X))
    scaled = cells * 89_702 / 134
    yield [
        "gamma, 300 points in 3-D (89,702 cells), s",
        many,
        f"12 points' time a cell {scaled:.3g}",
        scaled / many,
    ]
    import torch
    from torch import nn

    from relunorm.nn import DecomposedBatchNorm

    torch.set_num_threads(1)
    x = torch.randn(128, 64, 14, 14, requires_grad=True)
    for label, ours in (
        ("both parts", DecomposedBatchNorm(64)),
        ("no recentering", DecomposedBatchNorm(64, recenter=False)),
        ("no rescaling", DecomposedBatchNorm(64, rescale=False)),
    ):
        times = [
            np.median([seconds(lambda m=m: m(x).sum().backward(), 1) for _ in range(50)])
            for m in (ours, nn.BatchNorm2d(64))
        ]
        yield [
            f"layer, {label}, (128, 64, 14, 14) forward + backward, ms",
            1000 * float(times[0]),
            f"torch {1000 * float(times[1]):.4g}",
            float(times[1] / times[0]),
        ]


if __name__ == "__main__":
    tables = []
    for row in itertools.chain(tree_rows(), sampler_rows(), other_rows()):
        print(*(f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row), flush=True)
        tables.append(row)
    busy = os.getloadavg()[0]
    record(
        "batchnorm",
        ["what", "ours", "other", "ratio (higher is better for us)"],
        tables,
        "One thread, CPU seconds, best of 3; layer: median of 50, gradient to the input too. The "
        "sampler draws n x width normals, direct weights width^2, both by "
        "NumPy's generator. Load average of the machine during "
        f"the run: {busy:.0f}.",
    )

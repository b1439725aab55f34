"""Seed 004, "Batch Normalization Decomposed" (Nachum, Bondaschi, Gastpar, Khina), re-run.

The world that its claims rest on, and its exhibits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm.gram import gram_step, kernel_gram
from relunorm.batchnorm.random_nets import propagate
from relunorm.papers.batchnorm.attractor import attractor_angle, onset_width, parts
from relunorm.papers.batchnorm.figures import figure3, figure5, figure6
from relunorm.papers.batchnorm.invariance import (
    invariance,
    invariant_alpha,
    invariant_gram,
    theorem13,
    theorem14,
)
from relunorm.papers.batchnorm.limit import theorem11
from relunorm.papers.batchnorm.rank import rank, theorem3
from relunorm.papers.batchnorm.theory.fixed_points import odd_state, symmetric_state
from relunorm.papers.batchnorm.theory.full_rank import (
    rank_bounds,
    rank_condition,
    sample_neuron_counts,
)
from relunorm.papers.batchnorm.theory.tree_model import (
    Tree,
    negative_transformation,
    positive_transformation,
)
from relunorm.papers.batchnorm.theory.weight_cells import gamma
from relunorm.papers.batchnorm.three_clusters import appendix_e
from relunorm.papers.batchnorm.training import (
    figure2,
    initialization,
    represent,
    train_deep,
    train_shallow,
)
from relunorm.papers.batchnorm.tree import tree
from relunorm.papers.exhibit import Make, World

Array = NDArray[np.float64]


def relu(z: Array) -> Array:
    return np.maximum(z, 0.0)


def batch_norm(z: Array) -> Array:
    """(2)-(3): every row of z (neurons, points) recentered and rescaled."""
    return (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)


def both_signs(rows: int) -> Array:
    """(9): W = (I; -I)."""
    return np.vstack([np.eye(rows), -np.eye(rows)])


def positive_entries(x: Array) -> int:
    """n_t before (30): how many entries are positive."""
    return int((x > 0).sum())


def push(w: Array, x: Array, epsilon: float) -> Array:
    """(19)-(20) as printed: w moved along x across the hyperplane of x."""
    return w - (1 + epsilon) * (w @ x) / np.linalg.norm(x) * x


def printed_gamma(n: int) -> float:
    """The example after Definition 1: n equally spaced points."""
    return 1 / n


def angle_constant(n: int) -> float:
    """(12): how far from orthogonal the cluster may be."""
    return float(np.sqrt(2 * np.pi) / (n - 2))


def norm_constant(n: int) -> float:
    """Theorem 11, item 3."""
    return 3 / (n - 2)


@dataclass(frozen=True)
class BatchNorm(World):
    """Random layers and networks, cells and ranks, the tree model, fixed points, the kernel, the
    constants of the theorems, and training."""

    relu: Callable[[Array], Array] = relu
    batch_norm: Callable[[Array], Array] = batch_norm
    propagate: Callable[..., Any] = propagate
    gamma: Callable[..., Any] = gamma
    printed_gamma: Callable[[int], float] = printed_gamma
    push: Callable[[Array, Array, float], Array] = push
    sample_counts: Callable[..., Any] = sample_neuron_counts
    rank_bounds: Callable[..., Any] = rank_bounds
    rank_condition: Callable[..., Any] = rank_condition
    positive: Callable[[Any], Array] = positive_transformation
    negative: Callable[[Any], Array] = negative_transformation
    positive_entries: Callable[[Array], int] = positive_entries
    weights: Callable[[int], Array] = both_signs
    tree: Callable[..., Any] = Tree
    norm_constant: Callable[[int], float] = norm_constant
    angle_constant: Callable[[int], float] = angle_constant
    odd_state: Callable[..., Any] = odd_state
    symmetric_state: Callable[..., Any] = symmetric_state
    kernel: Callable[[Array], Array] = kernel_gram
    gram_step: Callable[..., Array] = gram_step
    invariant: Callable[[int], Array] = invariant_gram
    alpha: Callable[[int], float] = invariant_alpha
    theorem14: Callable[[Array], Any] = theorem14
    train_deep: Callable[..., tuple[float, float, float]] = train_deep
    train_shallow: Callable[..., tuple[float, float, float]] = train_shallow
    represent: Callable[[Array], Array] = represent


WORLD = BatchNorm
EXHIBITS: dict[str, Make] = {
    make.__name__: make
    for make in (
        figure2, figure3, figure5, figure6, attractor_angle, onset_width, parts, theorem3, rank,
        tree, theorem11, appendix_e, theorem13, invariance, initialization,
    )
}  # fmt: skip

__all__ = ["EXHIBITS", "WORLD", "BatchNorm"]

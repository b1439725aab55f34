"""Seed 003, "Deep Representation with ReLU Neural Networks" (Heinecke, Hwang), re-run.

The world that its claims rest on, and its exhibits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.lipschitz.methods.theorem6 import theorem6
from relunorm.network import Network
from relunorm.papers.exhibit import Make, World, he_network
from relunorm.papers.pieces.examples import background, examples, figures12
from relunorm.papers.pieces.maps import atoms, gradients, theorem6_table
from relunorm.papers.pieces.proposition3 import partition
from relunorm.regions.enumerate import regions
from relunorm.regions.region import region_at

Array = NDArray[np.float64]


def pattern(network: Network, x: Array) -> NDArray[np.bool_]:
    """(6): which units are on at each point, all layers side by side."""
    return network.pattern(x)


def torch_relu(z: Any) -> Any:
    import torch

    return torch.relu(z)


def norm_factor(rows: int, columns: int) -> float:
    """Before (14): |B| is at most this times |B|_max."""
    return float(np.sqrt(rows * columns))


def product(network: Network, thetas: Sequence[Any]) -> tuple[Array, Array]:
    """(10) word by word: M_L diag(theta_(L-1)) ... diag(theta_1) M_1 as a matrix and a constant."""
    weights, biases = (list(map(np.asarray, part)) for part in network.weights())
    A, c = weights[0], biases[0]
    for w, b, theta in zip(weights[1:], biases[1:], thetas, strict=True):
        on = np.diag(np.asarray(theta, dtype=float))
        A, c = w @ on @ A, w @ on @ c + b
    return A, c


def path_sums(weights: Sequence[Array], supports: Sequence[Any]) -> tuple[Array, int]:
    """Theorem 5 word by word: the coefficient of every pair of a last and a first active unit, all
    active paths between them listed; and how many paths a coefficient has."""
    first, last = supports[0], supports[-1]
    if len(supports) == 1:
        return np.eye(len(first)), 1
    paths = list(itertools.product(*supports[1:-1]))
    total = np.zeros((len(last), len(first)))
    for (i, end), (j, start) in itertools.product(enumerate(last), enumerate(first)):
        for path in paths:
            steps = zip(weights[1:-1], itertools.pairwise((start, *path, end)), strict=True)
            total[i, j] += math.prod(float(w[b, a]) for w, (a, b) in steps)
    return total, len(paths)


def count_bound(weight: float, supports: Sequence[int]) -> float:
    """Theorem 6 (i): C^(L-2) prod |spt theta_k|."""
    return float(weight ** (len(supports) - 1) * math.prod(supports))


def constant_bound(weight: float, width: int, layers: int) -> float:
    """Theorem 6 (i), global: (C N)^(L-2) N."""
    return float((weight * width) ** (layers - 2) * width)


def spectral_bound(sigma: float, layers: int) -> float:
    """Theorem 6 (ii): sigma^L."""
    return float(sigma**layers)


def power_bound(width: int, weight: float, power: int) -> float:
    """(14), (15) and the bound in x: a power of N C."""
    return float((width * weight) ** power)


def frobenius(matrix: Array) -> float:
    return float(np.linalg.norm(matrix))


def tight_frame(rng: np.random.Generator, bound: float) -> Array:
    """A synthesis matrix F, 3 x 5, with |F* y| = bound |y|: (1) with equality."""
    return bound * np.linalg.qr(rng.normal(size=(5, 3)))[0].T


def indicator(slope: float) -> Network:
    """Four units that rise from 0 to 1 about x = 0 and fall about x = 1, both with this slope."""
    half, at = 0.5, [0.0, 0.0, slope, slope]
    biases = [half - at[0], -half - at[1], half - at[2], -half - at[3]]
    return Network.from_weights([[[slope]] * 4, [[1.0, -1.0, -1.0, 1.0]]], [biases, [0.0]])


@dataclass(frozen=True)
class Pieces(World):
    """Random networks, their regions, patterns, maps and bounds; a rectifier with its derivative;
    the large weight of the last layer that (14) and (15) overlook; frames and ramps."""

    network: Callable[..., Network] = he_network
    regions: Callable[..., Any] = regions
    region_at: Callable[..., Any] = region_at
    pattern: Callable[[Network, Array], NDArray[np.bool_]] = pattern
    product: Callable[[Network, Sequence[Any]], tuple[Array, Array]] = product
    path_sums: Callable[[Sequence[Array], Sequence[Any]], tuple[Array, int]] = path_sums
    theorem6: Callable[..., Any] = theorem6
    count_bound: Callable[[float, Sequence[int]], float] = count_bound
    global_bound: Callable[[float, int, int], float] = constant_bound
    spectral_bound: Callable[[float, int], float] = spectral_bound
    power_bound: Callable[[int, float, int], float] = power_bound
    frobenius: Callable[[Array], float] = frobenius
    tight_frame: Callable[[np.random.Generator, float], Array] = tight_frame
    indicator: Callable[[float], Network] = indicator
    relu: Callable[[Any], Any] = torch_relu
    norm_factor: Callable[[int, int], float] = norm_factor
    last_weight: float = 50.0


WORLD = Pieces
EXHIBITS: dict[str, Make] = {
    "background": background,
    "figures12": figures12,
    "examples": examples,
    "partition": partition,
    "atoms": atoms,
    "theorem6": theorem6_table,
    "gradients": gradients,
}

__all__ = ["EXHIBITS", "WORLD", "Pieces"]

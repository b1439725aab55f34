"""Seed 001, "Reducing Parameter Space for Neural Network Training" (Qin, Zhou, Xiu), re-run.

The world that its claims rest on, and its exhibits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.forms.normalize import normalize
from relunorm.papers.exhibit import Make, World
from relunorm.papers.reduced.constrained_runs import FIGURES, Experiment, franke
from relunorm.papers.reduced.depth import RELU, STEP, depth, derived
from relunorm.papers.reduced.theorems import density, identities, thresholds, unit_rows

Array = NDArray[np.float64]


def relu(z: Array) -> Array:
    return RELU.apply_(np.array(z, dtype=np.float64))


def step(z: Array) -> Array:
    return STEP.apply_(np.array(z, dtype=np.float64))


def power(z: Array, degree: int) -> Array:
    """Algebraic polynomials, for the other half of Theorem 3.1."""
    return np.asarray(z, dtype=np.float64) ** degree


def waves(x: Array) -> Array:
    """sin(2 pi x) sin(2 pi y), the continuous function of Theorems 3.1 to 3.3."""
    return np.sin(2 * np.pi * x[:, 0]) * np.sin(2 * np.pi * x[:, 1])


def fit(model: Any, label: str, x: Array, y: Array) -> Any:
    """Train the run called ``label``."""
    return model.fit(x, y)


@dataclass(frozen=True)
class Reduced(World):
    """The two activations, polynomial ones, a continuous function to approximate, the normal
    forms, and training."""

    relu: Callable[[Array], Array] = relu
    step: Callable[[Array], Array] = step
    polynomial: Callable[[Array, int], Array] = power
    target: Callable[[Array], Array] = waves
    normalize: Callable[..., Any] = normalize
    fit: Callable[[Any, str, Array, Array], Any] = fit


WORLD = Reduced
EXHIBITS: dict[str, Make] = {
    **FIGURES,
    "density": density,
    "identities": identities,
    "unit_rows": unit_rows,
    "thresholds": thresholds,
    "depth": depth,
    "derived": derived,
}

__all__ = ["EXHIBITS", "WORLD", "Experiment", "Reduced", "franke"]

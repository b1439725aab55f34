"""The ten classification problems: draws of training and held-out rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_circles,
    make_classification,
    make_moons,
)

Rows = tuple[np.ndarray, np.ndarray]
#: Rows that a generated set is measured on.
MEASURED = 2000


def shipped(load: Callable[..., Rows]) -> Callable[[np.random.Generator], Rows]:
    """A data set of scikit-learn in random order."""

    def draw(rng: np.random.Generator) -> Rows:
        x, y = load(return_X_y=True)
        order = rng.permutation(len(x))
        return x[order], y[order]

    return draw


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def moons(rng: np.random.Generator) -> Rows:
    return make_moons(300 + MEASURED, noise=0.3, random_state=seed_of(rng))


def circles(rng: np.random.Generator) -> Rows:
    return make_circles(300 + MEASURED, noise=0.15, factor=0.6, random_state=seed_of(rng))


def spirals(rng: np.random.Generator) -> Rows:
    """Two arms of one and a half turns."""
    n = 400 + MEASURED
    y = rng.integers(0, 2, n)
    turn = 3 * np.pi * np.sqrt(rng.random(n)) + 0.5
    angle = turn + np.pi * y
    x = np.column_stack([turn * np.cos(angle), turn * np.sin(angle)])
    return x + 0.5 * rng.normal(size=x.shape), y


def checkerboard(rng: np.random.Generator) -> Rows:
    """Four by four fields."""
    x = 4 * rng.random((600 + MEASURED, 2))
    return x, (np.floor(x).sum(axis=1) % 2).astype(int)


def noisy_xor(rng: np.random.Generator) -> Rows:
    """The sign of a product of two of ten inputs, one label in ten flipped."""
    x = rng.normal(size=(500 + MEASURED, 10))
    y = x[:, 0] * x[:, 1] > 0
    return x, (y ^ (rng.random(len(x)) < 0.1)).astype(int)


def flipped(rng: np.random.Generator) -> Rows:
    """Three classes of clusters in eight inputs; one label in twenty is another class."""
    x, y = make_classification(
        400 + MEASURED, 8, n_informative=5, n_redundant=1, n_classes=3, n_clusters_per_class=2,
        class_sep=1.5, flip_y=0.0, random_state=seed_of(rng),
    )  # fmt: skip
    wrong = rng.random(len(x)) < 0.05
    return x, np.where(wrong, (y + rng.integers(1, 3, len(x))) % 3, y)


#: Name -> (rows to fit, draw).
PROBLEMS: dict[str, tuple[int, Callable[[np.random.Generator], Rows]]] = {
    "digits": (800, shipped(load_digits)),
    "breast cancer": (340, shipped(load_breast_cancer)),
    "wine": (107, shipped(load_wine)),
    "iris": (90, shipped(load_iris)),
    "moons": (300, moons),
    "circles": (300, circles),
    "spirals": (400, spirals),
    "checkerboard": (600, checkerboard),
    "noisy XOR": (500, noisy_xor),
    "5 % wrong labels": (400, flipped),
}


def draw(problem: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs and labels to fit, then those to measure on."""
    train, make = PROBLEMS[problem]
    x, y = make(np.random.default_rng([seed, 41]))
    return x[:train], y[:train], x[train:], y[train:]

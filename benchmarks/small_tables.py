"""Tables of 15 to 60 rows beside ridge regression: ``python benchmarks/small_tables.py``.

Settings were chosen while looking at draws 0 to 9; a report is made from others (``--draws``).
"""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from record import record
from sklearn.datasets import load_diabetes, load_iris, load_linnerud, load_wine, make_friedman1
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relunorm.train.regressor import ReLURegressor

Rows = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator], Rows]


def linnerud(output: int) -> Draw:
    def draw(rng: np.random.Generator) -> Rows:
        x, y = load_linnerud(return_X_y=True)
        order = rng.permutation(len(x))
        return x[order], y[order, output]

    return draw


def shipped(load: Callable[..., Rows], column: int | None = None) -> Draw:
    """A data set of scikit-learn in random order; with a column, that is what is predicted."""

    def draw(rng: np.random.Generator) -> Rows:
        x, y = load(return_X_y=True)
        if column is not None:
            x, y = np.delete(x, column, axis=1), x[:, column]
        order = rng.permutation(len(x))
        return x[order], y[order]

    return draw


def plane(inputs: int, strength: float) -> Draw:
    """Two slopes and noise of deviation one."""

    def draw(rng: np.random.Generator) -> Rows:
        x = rng.normal(size=(1060, inputs))
        return x, strength * (x[:, 0] - x[:, 1]) + rng.normal(size=len(x))

    return draw


def friedman(rng: np.random.Generator) -> Rows:
    return make_friedman1(1060, noise=1.0, random_state=int(rng.integers(2**31)))


def curve(noise: float) -> Draw:
    def draw(rng: np.random.Generator) -> Rows:
        x = rng.random((1060, 1))
        return x, np.sin(4 * np.pi * x[:, 0]) + noise * rng.normal(size=len(x))

    return draw


#: Name -> (rows to fit, hidden units, draw).
TABLES: dict[str, tuple[int, int, Draw]] = {
    "linnerud weight": (15, 20, linnerud(0)),
    "linnerud waist": (15, 20, linnerud(1)),
    "linnerud pulse": (15, 20, linnerud(2)),
    "diabetes, 30 rows": (30, 20, shipped(load_diabetes)),
    "diabetes, 60 rows": (60, 20, shipped(load_diabetes)),
    "iris petal width, 30 rows": (30, 20, shipped(load_iris, 3)),
    "wine alcohol, 40 rows": (40, 20, shipped(load_wine, 0)),
    "plane 30 x 10": (30, 20, plane(10, 1.0)),
    "weak plane 20 x 3": (20, 20, plane(3, 0.3)),
    "noise 25 x 5": (25, 20, plane(5, 0.0)),
    "friedman1, 60 rows": (60, 20, friedman),
    "noisy sine, 40 rows": (40, 5, curve(0.3)),
    "sine, 30 rows": (30, 5, curve(0.0)),
}


def measure(table: str, seed: int) -> tuple[float, float, float, float]:
    """Held-out squared errors of the network, ridge and the mean, and the network's CPU seconds."""
    rows, hidden, make = TABLES[table]
    x, y = make(np.random.default_rng([seed, 43]))
    x, y, held, target = x[:rows], y[:rows], x[rows:], y[rows:]
    began = time.process_time()
    model = ReLURegressor(hidden=hidden, random_state=seed).fit(x, y)
    seconds = time.process_time() - began
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 29))).fit(x, y)
    ours, theirs = (np.mean((m.predict(held) - target) ** 2) for m in (model, ridge))
    return float(ours), float(theirs), float(np.mean((y.mean() - target) ** 2)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500, help="number of the first draw")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for name in arguments.tables:
        seeds = range(arguments.draws, arguments.draws + arguments.seeds)
        found = np.array([measure(name, seed) for seed in seeds])
        ratio, mean = found[:, 0] / found[:, 1], found[:, 0] / found[:, 2]
        table.append([name, float(np.median(ratio)), float(np.quantile(ratio, 0.9)),
                      float(np.median(mean)), float(np.median(found[:, 3]))])  # fmt: skip
    header = ["table", "ours / ridge, median", "9th decile", "ours / mean, median", "CPU s"]
    note = (
        "Held-out squared errors, medians over the draws "
        f"{arguments.draws} to {arguments.draws + arguments.seeds - 1}, none of which was used to "
        "choose anything (0 to 9 were). Ridge is RidgeCV with 29 penalties on scaled inputs."
    )
    record("training: 15 to 60 rows beside ridge regression", header, table, note)


if __name__ == "__main__":
    main()

"""Coverage and width of prediction intervals on new rows: ``python benchmarks/intervals.py``."""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import time

import numpy as np
import torch
from record import record
from sklearn.datasets import load_diabetes, make_friedman1

from relunorm.train.regressor import ReLURegressor

COVERAGES = (0.8, 0.9)


def draw(name: str, rows: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([seed, 47])
    if name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        order = rng.permutation(len(x))
        x, y = np.asarray(x)[order], np.asarray(y)[order]
    elif name == "friedman1":
        x, y = make_friedman1(rows + 500, noise=1.0, random_state=int(rng.integers(2**31)))
    else:
        x = rng.random((rows + 500, 1))
        y = np.abs(x[:, 0] - 0.5) + 0.3 * x[:, 0] * rng.standard_t(3, len(x))
    return x[:rows], y[:rows], x[rows:], y[rows:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300, help="number of the first draw")
    parser.add_argument("--split", type=int, default=40, help="draws for split")
    parser.add_argument("--jackknife", type=int, default=10, help="draws for jackknife+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for name in ("diabetes", "friedman1", "heavy tails, spread growing"):
        for kind, count in (("split", arguments.split), ("jackknife+", arguments.jackknife)):
            found, began = [], time.process_time()
            for seed in range(arguments.draws, arguments.draws + count):
                x, y, fresh, target = draw(name, 100, seed)
                settings = {"hidden": 5, "alpha": 1e-2, "n_init": 1, "random_state": seed}
                model = ReLURegressor(**settings, interval=kind).fit(x, y)
                for coverage in COVERAGES:
                    low, high = model.predict_interval(fresh, coverage)
                    inside = np.mean((low <= target) & (target <= high))
                    found.append((inside, np.median(high - low) / y.std()))
            seconds = (time.process_time() - began) / count
            values = np.array(found).reshape(count, len(COVERAGES), 2).mean(axis=0)
            table.append(
                [name, kind, *values[:, 0].tolist(), *values[:, 1].tolist(), count, seconds]
            )
    header = ["data, 100 rows", "interval", "share inside, 80 %", "90 %", "width / deviation, 80 %",
              "90 %", "draws", "CPU s"]  # fmt: skip
    note = "Means over draws; nothing was chosen on them. One fit with its intervals, one thread."
    record("training: prediction intervals", header, table, note)


if __name__ == "__main__":
    main()

"""Continuous piecewise-linear regression, certified, beside pwlf and piecewise-regression.

    python benchmarks/pieces.py --peer-python PYTHON

PYTHON has pwlf and piecewise-regression (both MIT); without it their rows say so. Nothing of ours
was chosen on these sets: the solver is `exact` as it was.
"""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from record import record
from sklearn.datasets import load_breast_cancer, load_diabetes

from relunorm.train.regressor import ReLURegressor

METHODS = ("pwlf fitfast", "pwlf fit (differential evolution)", "piecewise-regression")


def sets() -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """Name -> (x, y, pieces)."""
    rng = np.random.default_rng(2024)
    x = np.sort(rng.random(150))
    noise = rng.normal(size=150)
    planted = np.interp(x, [0, 0.2, 0.5, 0.6, 1], [0, 1, 0.3, 1.5, 1])
    kinks = np.interp(x, [0, 0.45, 0.5, 0.55, 1], [0, 0.2, 2, 0.2, 0])
    cancer, (diabetes, progress) = load_breast_cancer().data, load_diabetes(return_X_y=True)
    return {
        "sine": (x, np.sin(4 * np.pi * x), 8),
        "noisy sine": (x, np.sin(4 * np.pi * x) + 0.2 * noise, 5),
        "four planted pieces": (x, planted + 0.1 * noise, 4),
        "narrow peak": (x, kinks + 0.1 * noise, 4),
        "exponential": (x, np.exp(-8 * x) + 0.01 * noise, 4),
        "step": (x, np.tanh(40 * (x - 0.4)) + 0.1 * noise, 3),
        "heavy tails": (x, planted + 0.1 * rng.standard_t(2, 150), 4),
        "random walk": (np.arange(150.0), np.cumsum(rng.normal(size=150)), 6),
        "diabetes, bmi": (diabetes[:150, 2], progress[:150], 3),
        "breast cancer, radius to area": (cancer[:150, 0], cancer[:150, 3], 3),
    }


def certified(x: np.ndarray, y: np.ndarray, pieces: int) -> dict[str, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # spikes between rows: all may have them
        model = ReLURegressor(hidden=pieces - 1, solver="exact", random_state=0).fit(x[:, None], y)
    seconds = time.process_time() - began
    mse = float(np.mean((model.predict(x[:, None]) - y) ** 2))
    return {"mse": mse, "bound": float(model.lower_bound_ or 0.0), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", help="a Python with pwlf and piecewise-regression")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    peer = None
    if arguments.peer_python:
        script = str(Path(__file__).with_name("pieces_peer.py"))
        command, pipe = [arguments.peer_python, script], subprocess.PIPE
        peer = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    rows = []
    certified(*sets()["sine"])  # kernels are compiled once
    for name, (x, y, pieces) in sets().items():
        ours = certified(x, y, pieces)
        gap = ours["mse"] / ours["bound"] - 1 if ours["bound"] > 0 else float("nan")
        rows.append([f"{name}, {pieces} pieces", "relunorm", ours["mse"], f"{100 * gap:.3g} %",
                     1.0, ours["seconds"]])  # fmt: skip
        for method in METHODS:
            answer = {"failed": "not installed", "seconds": float("nan")}
            if peer is not None:
                assert peer.stdin is not None
                assert peer.stdout is not None
                task = {"method": method, "x": x.tolist(), "y": y.tolist(), "pieces": pieces}
                peer.stdin.write(json.dumps(task) + "\n")
                peer.stdin.flush()
                answer = json.loads(peer.stdout.readline())
            found = answer.get("mse")
            shown = answer.get("failed", "") if found is None else found
            ratio = "" if found is None else found / ours["mse"]
            rows.append(["", method, shown, "none", ratio, answer["seconds"]])
    header = ["data", "method", "mean squared error", "proved gap", "x ours", "CPU s"]
    note = (
        "The same rows and number of pieces for all, 150 rows. The gap says by how much any such "
        "fit can be better at most; only ours has one. A fit of a peer is cut at 30 CPU seconds."
    )
    record("training: piecewise-linear regression in one input", header, rows, note)


if __name__ == "__main__":
    main()

"""Classifiers on ten problems, held-out log-loss and CPU seconds: ``python classification.py``.

Settings of ReLUClassifier were chosen while looking at draws 100 to 104; the report is made from
draws 7000 onward, looked at once. Every method tunes itself on the training rows alone; its CPU
seconds include that. With ``--cells FILE`` a run that was stopped goes on where it was.
"""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from classification_data import PROBLEMS, draw
from classification_peers import PEERS, WIDTH
from record import record
from sklearn.metrics import log_loss

#: Two medians closer than this share are a tie.
TIE = 0.02


def measure(problem: str, method: str, seed: int) -> dict[str, float]:
    x, y, held, labels = draw(problem, seed)
    began = time.process_time()
    with warnings.catch_warnings():
        # scikit-learn's perceptron says where its iterations ran out; the loss shows what it costs
        warnings.simplefilter("ignore")
        model = PEERS[method].fit(x, y, seed)
    seconds = time.process_time() - began
    chances = model.predict_proba(held)
    right = np.unique(y)[chances.argmax(axis=1)] == labels
    return {
        "loss": float(log_loss(labels, chances, labels=np.unique(y))),
        "accuracy": float(right.mean()),
        "seconds": seconds,
    }


def collect(draws: range, store: Path | None) -> dict[str, dict[str, float]]:
    cells = json.loads(store.read_text()) if store is not None and store.exists() else {}
    for seed in draws:
        for problem in PROBLEMS:
            for method in PEERS:
                key = f"{problem}|{method}|{seed}"
                if key not in cells:
                    cells[key] = measure(problem, method, seed)
                    if store is not None:
                        store.write_text(json.dumps(cells))
    return cells


def report(cells: dict[str, dict[str, float]], draws: range) -> None:
    rows, best = [], 0
    for problem in PROBLEMS:
        found = {}
        for method in PEERS:
            runs = [cells.get(f"{problem}|{method}|{seed}") for seed in draws]
            kept = [run for run in runs if run is not None]
            found[method] = {key: float(np.median([run[key] for run in kept])) for key in kept[0]}
        networks = {m: found[m]["loss"] for m in PEERS if PEERS[m].network}
        smallest = min(networks.values())
        tied = found["relunorm ReLUClassifier"]["loss"] <= (1 + TIE) * smallest
        best += tied
        for method, peer in PEERS.items():
            cell = found[method]
            mark = ""
            if peer.network:
                mark = "yes" if cell["loss"] <= (1 + TIE) * smallest else "no"
            rows.append([problem, method, cell["loss"], cell["accuracy"], mark, cell["seconds"]])
    header = ["problem", "method", "held-out log-loss", "accuracy", "best or tied network", "CPU s"]
    note = (
        f"Medians over draws {draws.start} to {draws.stop - 1}, none of which was used to choose "
        f"anything (100 to 104 were). Networks have one hidden layer of {WIDTH} units. Tied: "
        f"within {100 * TIE:g} % of the smallest median. CPU seconds include tuning, one thread. "
        f"ReLUClassifier is best or tied among networks on {best} of {len(PROBLEMS)}."
    )
    record("training: classifiers", header, rows, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=7000, help="number of the first draw")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", type=Path, help="keep finished cells here and go on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draws = range(arguments.draws, arguments.draws + arguments.seeds)
    report(collect(draws, arguments.cells), draws)


if __name__ == "__main__":
    main()

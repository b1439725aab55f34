"""A thousand rows of digits certified, and their largest safe radii; CPU seconds, one thread.

    python benchmarks/robustness.py [--rows N] [--eps E] [--radii N] [--record]

The model is scikit-learn's MLPClassifier 64-50-50-10 on its digits, pixels in [0, 1]. Every
adversarial input is shown to the model again. The peer of the radii is what one would write without
`certify`: a bisection by `decide`, one rival class after the other, from the same upper end.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from record import record
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import relunorm as rn
from relunorm.clock import Clock
from relunorm.search.engine import warm_up


def bisected(network: rn.Network, x: np.ndarray, label: int, high: float, share: float) -> float:
    """The largest radius known to be safe, by bisection."""
    low, own = 0.0, np.eye(network.output_size)
    while high - low > share * high:
        middle = (low + high) / 2
        box = rn.Box(np.maximum(x - middle, 0), np.minimum(x + middle, 1))
        safe = all(
            rn.decide(network, own[[label]] - own[[j]], [0.0], box).verdict == "proved"
            for j in range(network.output_size)
            if j != label
        )
        low, high = (middle, high) if safe else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--eps", type=float, default=0.02)
    parser.add_argument("--radii", type=int, default=5, help="rows whose largest radius is asked")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options = parser.parse_args()
    x, y = load_digits(return_X_y=True)
    x = x / 16
    model = MLPClassifier((50, 50), max_iter=300, tol=1e-3, random_state=0).fit(x, y)
    network = rn.load(model)
    warm_up()
    begin = time.process_time()
    found = rn.certify(
        model, x[: options.rows], options.eps, label=y[: options.rows], valid=(0, 1),
        time_limit=Clock(600, time.process_time),
    )  # fmt: skip
    spent = time.process_time() - begin
    shown = [row for row in found.rows if row.verdict == "attacked"]
    fooled = sum(int(model.predict(row.adversarial[None])[0] != row.label) for row in shown)
    rows: list[list[object]] = [
        ["rows", len(found.rows)],
        *([word, number] for word, number in found.counts.items() if number),
        ["adversarial inputs that change scikit-learn's answer", f"{fooled} of {len(shown)}"],
        ["CPU s", spent],
    ]
    right = [row.row for row in found.rows if row.correct][: options.radii]
    if right:
        begin = time.process_time()
        radii = rn.certify(
            model, x[right], label=y[right], valid=(0, 1), time_limit=Clock(600, time.process_time)
        )
        rows.append([f"{len(right)} radii to 1 %, CPU s", time.process_time() - begin])
        begin, off = time.process_time(), 0.0
        for row, at in zip(radii.rows, right, strict=True):
            safe = bisected(network, x[at], int(y[at]), 1.2 * row.radius[1], 0.01)
            off = max(off, abs(safe - row.radius[0]) / row.radius[0])
        rows.append(["the same by bisection with decide, CPU s", time.process_time() - begin])
        rows.append(["largest relative difference of both", off])
    if options.record:
        title = f"robustness: {options.rows} rows of digits at {options.eps:g}"
        record(title, ["what", "number"], rows, "64-50-50-10, one thread.")
    for line in rows:
        print(*line)


if __name__ == "__main__":
    main()

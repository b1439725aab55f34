"""A 20-million-parameter perceptron: load from ONNX and evaluate, beside plain NumPy.

Each side runs in a process of its own, so that peak memory is its own too. Usage:
python benchmarks/large_model.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from record import record

WIDTHS = (1024, 2900, 2900, 2900, 10)
ROWS = 1000


def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(b, a), scale=a**-0.5).astype(np.float32) for a, b in pairwise(WIDTHS)]


def best_of(function, repeats: int = 5) -> float:  # type: ignore[no-untyped-def]
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def child(side: str, path: str) -> None:
    """Load and evaluate on one side and print what it took, or write the model."""
    if side == "write":
        import relunorm as rn

        rn.save(rn.Network.from_weights(weights()), path)
        return
    X = np.random.default_rng(1).random((ROWS, WIDTHS[0]))
    start = time.perf_counter()
    if side == "relunorm":
        import relunorm as rn

        evaluate = rn.load(path)
    else:
        matrices = [w.astype(np.float64) for w in weights()]

        def evaluate(X):  # type: ignore[no-untyped-def]
            for matrix in matrices[:-1]:
                X = np.maximum(X @ matrix.T + 0.0, 0.0)
            return X @ matrices[-1].T + 0.0

    loaded = time.perf_counter() - start
    seconds = best_of(lambda: evaluate(X))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"load": loaded, "evaluate": seconds, "peak": peak}))


def main() -> None:
    # This process stays small: on Linux a child's peak memory starts from its parent's.
    size = sum(a * b for a, b in pairwise(WIDTHS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.onnx"
        results = {}
        subprocess.run([sys.executable, __file__, "write", str(path)], check=True)
        for side in ("numpy", "relunorm"):
            done = subprocess.run(
                [sys.executable, __file__, side, str(path)],
                check=True,
                capture_output=True,
                text=True,
            )
            results[side] = json.loads(done.stdout)
    ours, plain = results["relunorm"], results["numpy"]
    rows = [
        [side, r["load"], r["evaluate"], r["peak"] / 2**20, r["peak"] / (8 * size)]
        for side, r in results.items()
    ]
    speed, memory = (ours[key] / plain[key] for key in ("evaluate", "peak"))
    rows.append(["ratio", "", speed, memory, ""])
    record(
        f"Large model: {size:,} parameters, {ROWS} rows",
        ["side", "load s", "evaluate s", "peak MB", "peak / float64 weights"],
        rows,
        "Wall seconds, evaluation best of 5, whole process's peak resident memory.",
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
    else:
        main()

"""Both ends of max |f - g| for rounded, pruned and tuned copies; a part of compare.py.

    python benchmarks/compare.py --twin 0 --near SECONDS [--workers N] [--only TEXT]

The networks are those of shared/cases: digits classifiers over [0, 1]^64, and ACAS Xu 1_1 over the
boxes of properties 3 and 4 and over its whole input box. The copies: weights rounded to float16, to
8 bits (one scale a matrix), the smallest tenth of the weights of every matrix set to 0, and normal
noise of a thousandth of the standard deviation of every matrix. (These networks are in float32
already, so a float32 copy is equal to them; one of the network with noise stands for it.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import relunorm as rn
from relunorm.clock import Clock
from relunorm.network import Network

CASES = Path(__file__).parents[2] / "shared" / "cases"
ACAS = "acasxu/ACASXU_run2a_1_1_batch_2000.onnx"
#: Boxes of ACAS Xu inputs: properties 3 and 4, and all inputs.
BOXES = {
    "property 3": (
        [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
        [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
    ),
    "property 4": (
        [-0.303531156, -0.009549297, 0.0, 0.318181818, 0.083333333],
        [-0.298552812, 0.009549297, 0.0, 0.5, 0.166666667],
    ),
    "all inputs": ([-0.328422877, -0.5, -0.5, -0.5, -0.5], [0.679857769, 0.5, 0.5, 0.5, 0.5]),
}


def models() -> Iterator[tuple[str, Network, rn.Box]]:
    """Name, network and domain of every case."""
    for path in sorted((CASES / "stability").glob("*.npz")):
        network = rn.load(str(path))
        yield path.stem, network, rn.Box.cube(network.input_size, 0, 1)
    network = rn.load(str(CASES / ACAS)).folded()
    for name, (lo, hi) in BOXES.items():
        yield f"ACAS Xu 1_1, {name}", network, rn.Box(lo, hi)


def copies(network: Network) -> Iterator[tuple[str, Network, Network]]:
    """Name, network and its copy."""
    rng = np.random.default_rng(0)
    weights, biases = ([np.array(v) for v in part] for part in network.weights())
    noise = [w + 1e-3 * w.std() * rng.standard_normal(w.shape) for w in weights]
    shift = [b + 1e-3 * b.std() * rng.standard_normal(b.shape) for b in biases]
    tuned = Network.from_weights(noise, shift)

    def cast(kind: type, weights: list, biases: list) -> Network:
        rounded = [[np.asarray(v, kind).astype(float) for v in p] for p in (weights, biases)]
        return Network.from_weights(*rounded)

    yield "float32", tuned, cast(np.float32, noise, shift)
    yield "float16", network, cast(np.float16, weights, biases)
    scales = [np.abs(w).max() / 127 for w in weights]
    eight = [np.round(w / s) * s for w, s in zip(weights, scales, strict=True)]
    yield "8 bits", network, Network.from_weights(eight, biases)
    least = [np.quantile(np.abs(w[w != 0]), 0.1) for w in weights]
    pruned = [np.where(np.abs(w) <= t, 0.0, w) for w, t in zip(weights, least, strict=True)]
    yield "pruned", network, Network.from_weights(pruned, biases)
    yield "tuned", network, tuned


def table(limit: float, only: str, workers: int | None) -> list[list[object]]:
    """One row a pair: verdict, both ends, their ratio, CPU and wall seconds."""
    rows: list[list[object]] = []
    tick = time.process_time if workers is None else time.perf_counter
    for name, network, domain in models():
        for kind, first, second in copies(network):
            if only not in f"{name} {kind}":
                continue
            begin, began = time.process_time(), time.perf_counter()
            found = rn.compare(
                first, second, domain, time_limit=Clock(limit, tick), workers=workers
            )
            spent, wall = time.process_time() - begin, time.perf_counter() - began
            ratio = found.upper / found.lower if found.lower > 0 else np.inf
            verdict = f"{found.verdict} at {found.tolerance:.2g} ({found.precision})"
            rows.append([name, kind, verdict, found.lower, found.upper, ratio, spent, wall])
            print(*rows[-1], found.method, flush=True)
    return rows

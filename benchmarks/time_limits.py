"""Whether functions return when their time is up: every one that takes a limit, on large networks.

    python benchmarks/time_limits.py [CASES] [--limit SECONDS] [--cpu] [--only FUNCTION]
                                     [--on NETWORK] [--record]

CASES is a folder with ``real`` and ``relusplitter`` in it; networks that are not there are skipped
with a word. Everything is compiled and loaded before the clock starts. On a busy machine the wall
time says little, so the table also has the CPU seconds the process spent after the moment the limit
was reached. With ``--cpu`` the limit itself counts the CPU seconds of the process, which no other
process can slow down: then a call spends what it would take on a quiet machine. (Solvers with
limits of their own and the processes of `report` still count wall seconds.) With ``--record`` the
largest number of each network goes to RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from record import record

import relunorm as rn
from relunorm.clock import Clock
from relunorm.errors import RelunormError
from relunorm.stability import stability

#: What the issue asks of a limit of one second, in seconds after the limit.
ALLOWED = 1.0


def perceptron(sizes: list[int], seed: int, sparsity: float = 0.0) -> rn.Network:
    """He weights; with a sparsity, that share of each matrix is zero and biases lean to death."""
    rng = np.random.default_rng(seed)
    weights, biases = [], []
    for inputs, outputs in pairwise(sizes):
        kept = rng.random((outputs, inputs)) >= sparsity
        scale = np.sqrt(2 / (inputs * (1 - sparsity)))
        weights.append(rng.normal(size=(outputs, inputs)) * scale * kept)
        biases.append(rng.normal(size=outputs) * 0.1 - 0.5 * sparsity)
    return rn.Network.from_weights(weights, biases)


SYNTHETIC = {
    "64-100x5-10": lambda: perceptron([64, *[100] * 5, 10], 0),
    "64-100x5-10 sparse": lambda: perceptron([64, *[100] * 5, 10], 1, 0.9),
    "784-512-512-10": lambda: perceptron([784, 512, 512, 10], 0),
    "784-512-512-10 sparse": lambda: perceptron([784, 512, 512, 10], 1, 0.9),
}
FILES = (
    "real/Convnet_maxpool.onnx",
    "real/resnet_2b.onnx",
    "relusplitter/cifar_deep_kw_split.onnx",
    "relusplitter/mnist-net_256x4_split.onnx",
)


def networks(cases: Path | None) -> Iterator[tuple[str, Callable[[], rn.Network]]]:
    """Names and how to make them."""
    yield from SYNTHETIC.items()
    for name in FILES:
        if cases is not None and (cases / name).exists():
            yield Path(name).stem, lambda name=name: rn.load(cases / name)
        else:
            print(f"{name}: not there, skipped", flush=True)


def functions(network: rn.Network, seconds: float, cpu: bool) -> dict[str, Callable[[], Any]]:
    """Every function that takes a time limit, on a network over the unit box."""

    def limit() -> Any:
        return Clock(seconds, time.process_time) if cpu else seconds

    size, outputs = network.input_size, network.output_size
    box = rn.Box(np.zeros(size), np.ones(size))
    points = np.random.default_rng(0).uniform(0, 1, (64, size))
    shifted = network.replace(
        output=type(network.output)(network.output.terms, network.output.bias + 1e-9)
    )
    region = rn.region_at(network, points[0], box)
    return {
        "regions": lambda: rn.regions(network, box, time_limit=limit()),
        "on_plane": lambda: rn.on_plane(network, *points[:3], time_limit=limit()),
        "along": lambda: rn.along(network, points, time_limit=limit()),
        "reduced_polytope": lambda: region.reduced_polytope(limit()),
        "maximize": lambda: rn.maximize(network, 0, box, limit()),
        "decide": lambda: rn.decide(network, np.eye(outputs)[:1], [-1e6], box, limit()),
        "lipschitz": lambda: rn.lipschitz(network, box, 2, limit()),
        "lipschitz whole space": lambda: rn.lipschitz(network, None, 2, limit()),
        "stability": lambda: stability(network.folded(), box, time_limit=limit()),
        "normalize": lambda: rn.normalize(network, "minimal", box, time_limit=limit()),
        "normalize canonical": lambda: rn.normalize(network, "canonical", box, time_limit=limit()),
        "fingerprint": lambda: rn.fingerprint(network, box, time_limit=limit()),
        "compare": lambda: rn.compare(network, shifted, box, tolerance=1e-10, time_limit=limit()),
        "diagnose": lambda: rn.diagnose(network, points, domain=box, time_limit=limit()),
        "report": lambda: rn.report(network, points, domain=box, time_limit=limit()),
    }


def measured(call: Callable[[], Any], limit: float, cpu: bool) -> tuple[float, float, float, str]:
    """Wall seconds, CPU seconds, CPU seconds after the limit, and what came back."""
    at_limit: list[float] = []
    timer = threading.Timer(limit, lambda: at_limit.append(time.process_time()))
    timer.start()
    wall, began = time.monotonic(), time.process_time()
    try:
        said = repr(call())
    except RelunormError as error:
        said = f"{type(error).__name__}: {error}"
    end = time.process_time()
    wall = time.monotonic() - wall
    timer.cancel()
    after = end - at_limit[0] if at_limit else 0.0
    return wall, end - began, max(end - began - limit, 0.0) if cpu else after, said


def warm_up() -> None:
    """Load every library and compile every kernel."""
    tiny = perceptron([3, 4, 4, 2], 0)
    for call in functions(tiny, 5.0, False).values():
        measured(call, 5.0, False)
    for inputs, method in ((3, "tree"), (3, "cells"), (2, "polygons")):
        box = rn.Box(np.zeros(inputs), np.ones(inputs))
        rn.regions(perceptron([inputs, 4, 2], 0), box, method=method, time_limit=5.0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="?", type=Path)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true", help="limits in CPU seconds")
    parser.add_argument("--only", help="functions whose name contains this")
    parser.add_argument("--on", help="networks whose name contains this")
    parser.add_argument("--record", action="store_true", help="a summary for RESULTS.md")
    given = parser.parse_args()
    warm_up()
    print("| function | network | limit | wall s | CPU s | CPU s after the limit | it said |")
    print("|---|---|---|---|---|---|---|", flush=True)
    late = 0
    worst: list[tuple[str, int, float, str]] = []
    for name, make in networks(given.cases):
        if given.on and given.on not in name:
            continue
        network, over = make(), []
        for function, call in functions(network, given.limit, given.cpu).items():
            if given.only and given.only not in function:
                continue
            wall, cpu, after, said = measured(call, given.limit, given.cpu)
            late += after > ALLOWED
            over.append((after, function))
            said = said.replace("|", "\\|").replace("\n", " ")[:90]
            print(
                f"| {function} | {name} | {given.limit:g} | {wall:.2f} | {cpu:.2f} | {after:.2f} "
                f"| {said} |",
                flush=True,
            )
        if over:
            worst.append((name, len(over), *max(over)))
    if given.record:
        kind = "CPU" if given.cpu else "wall"
        header = ("network", "functions", "CPU s over the limit, at most", "by")
        record("Time limits", header, worst, f"Limit {given.limit:g} s of {kind} time.")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"\n{late} calls spent over {ALLOWED:g} CPU s after the limit; load average {load}")


if __name__ == "__main__":
    main()

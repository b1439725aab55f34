"""What is removed from a planted 16-40-40-5 network: relunorm against two ONNX optimisers.

    python benchmarks/removal.py [--peers PYTHON] [--split CASES]

PYTHON is an interpreter that has onnxsim and onnxoptimizer; without it only our rows are printed.
CASES is the folder with mnistfc/ and relusplitter/: networks that ReLUSplitter rewrote, and our own
splits of the same and of a random network with six layers of 256.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from record import record

import relunorm as rn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "forms"))
from planted import planted_16_40_40_5
from splitting import random_perceptron, split_units

PEER = """
import json, math, sys, time
import onnx
model = onnx.load(sys.argv[1])
def widths(m):
    return [list(t.dims) for t in m.graph.initializer if len(t.dims) == 2]
def stored(m):
    return sum(math.prod(t.dims) for t in m.graph.initializer)
out = {}
import onnxsim
begin = time.process_time(); small, ok = onnxsim.simplify(model); took = time.process_time() - begin
out["onnxsim " + onnxsim.__version__] = [widths(small), stored(small), took]
import onnxoptimizer
passes = onnxoptimizer.get_fuse_and_elimination_passes()
begin = time.process_time(); small = onnxoptimizer.optimize(model, passes)
took = time.process_time() - begin
out["onnxoptimizer " + onnxoptimizer.__version__] = [widths(small), stored(small), took]
print(json.dumps(out))
"""


def hidden(shapes: list[list[int]]) -> list[int]:
    """Widths of the two hidden layers from the shapes of the three weight matrices."""
    first, second, _ = (set(s) for s in shapes)
    return [max(first - {16}, default=16), max(second, default=0)]


def pairs(cases: Path) -> dict[str, tuple[rn.Network, rn.Network]]:
    """Networks and what a splitter made of them."""
    rng = np.random.default_rng(0)
    four = rn.load(cases / "mnistfc" / "mnist-net_256x4.onnx")
    six = random_perceptron([784, *[256] * 6, 10], rng)
    some = sorted(rng.choice(256, 18, replace=False).tolist())
    files = cases / "relusplitter"
    leaky = rn.Activation("leaky", 0.01)
    everything = list(range(256))
    return {
        "256x4, ReLUSplitter": (four, rn.load(files / "mnist-net_256x4_split.onnx")),
        "convolutions, ReLUSplitter": (
            rn.load(files / "cifar_deep_kw.onnx"),
            rn.load(files / "cifar_deep_kw_split.onnx"),
        ),
        "256x4, ours, third layer": (four, split_units(four, 2, some, rng)),
        "random 256x6, ours": (six, split_units(six, 0, some, rng)),
        "random 256x6, all units, leaky": (
            six,
            split_units(six, 1, everything, rng, activation=leaky, shuffle=True),
        ),
    }


def undone(cases: Path) -> None:
    """Widths after `minimal`, without a domain, of networks that were split."""
    rows = []
    for name, (original, split) in pairs(cases).items():
        begin = time.process_time()
        result = rn.normalize(split, "minimal").network
        took = time.process_time() - begin
        widths = [
            " ".join(str(x.width) for x in network.layers) for network in (original, split, result)
        ]
        x = rn.Box.cube(split.input_size, 0, 1).sample(100, 0)
        off = float(np.abs(result(x) - split(x)).max())
        same = "yes" if widths[0] == widths[2] else "NO"
        parameters = f"{original.parameters} / {split.parameters} / {result.parameters}"
        rows.append([name, widths[0], widths[1], same, parameters, off, took])
    record(
        "removal: rewritten networks",
        [
            "network", "widths", "split", "minimal has the widths of the original",
            "parameters: original / split / minimal", "seen difference to the split one", "CPU s",
        ],
        rows,
        "No domain; what is between the original and the split network is its rounding to float32.",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="an interpreter with onnxsim and onnxoptimizer")
    parser.add_argument("--split", type=Path, help="a folder with mnistfc and relusplitter")
    options = parser.parse_args()
    peers = options.peers
    if options.split:
        undone(options.split)
        return
    network = planted_16_40_40_5(np.random.default_rng(0))
    domain = rn.Box.cube(16)
    rows: list[list[object]] = [["given", "40, 40", network.parameters, "", ""]]
    for options in ({}, {"architecture": "keep"}, {"prefer": "units"}):
        begin = time.process_time()
        result = rn.normalize(network, "minimal", domain, **options)
        took = time.process_time() - begin
        sizes = ", ".join(str(x.width) for x in result.network.layers)
        name = "relunorm " + ", ".join(f"{k}={v}" for k, v in options.items())
        rows.append([name, sizes, result.network.parameters, took, result.certificate.bound])
    if peers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            rn.save(network, path)
            run = subprocess.run(
                [peers, "-c", PEER, str(path)], capture_output=True, text=True, check=True
            )
        for name, (shapes, stored, took) in json.loads(run.stdout.splitlines()[-1]).items():
            sizes = ", ".join(map(str, hidden(shapes)))
            rows.append([name, sizes, stored, took, "none"])
    record(
        "removal",
        ["tool", "hidden widths", "parameters", "CPU s", "proved difference"],
        rows,
        "Planted in layer 1: 8 constant, 5 dead, 5 active, 4 collinear, 3 unobserved; in layer 2: "
        "4 constant; over [-1, 1]^16. One run each, one thread.",
    )


if __name__ == "__main__":
    main()

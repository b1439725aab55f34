"""What is removed from a planted 16-40-40-5 network: relunorm against two ONNX optimisers.

    python benchmarks/removal.py [--peers PYTHON]

PYTHON is an interpreter that has onnxsim and onnxoptimizer; without it only our rows are printed.
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="an interpreter with onnxsim and onnxoptimizer")
    peers = parser.parse_args().peers
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

"""Lipschitz constants and decisions: ours, and LipSDP against a general conic solver in one run.

    python benchmarks/lipschitz.py --peer-python /path/to/python-with-cvxpy

The peer (cvxpy with Clarabel or SCS, Apache-2.0 and MIT) runs in a process of its own and is never
imported here. Networks: ../shared/cases where present, else seeded ones of the same shapes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from record import record

import relunorm as rn
from relunorm.lipschitz.methods.sdp import lipsdp

CASES = Path(__file__).resolve().parents[1].parent / "shared" / "cases"

PEER = """
import json, sys, time
import cvxpy as cp, numpy as np
solver, path = sys.argv[1:]
data = np.load(path)
W = [data[f"W{i}"] for i in range(len(data.files) // 2)]
inputs, hidden = W[0].shape[1], [w.shape[0] for w in W[:-1]]
size = inputs + sum(hidden)
A, B = np.zeros((sum(hidden), size)), np.zeros((sum(hidden), size))
columns, row = np.cumsum([0, inputs, *hidden]), 0
for k, w in enumerate(W[:-1]):
    A[row : row + hidden[k], columns[k] : columns[k + 1]] = w
    B[row : row + hidden[k], columns[k + 1] : columns[k + 2]] = np.eye(hidden[k])
    row += hidden[k]
C = np.zeros((W[-1].shape[0], size))
C[:, columns[-2] :] = W[-1]
E = np.zeros((size, size))
E[:inputs, :inputs] = np.eye(inputs)
t, rho = cp.Variable(sum(hidden), nonneg=True), cp.Variable()
T = cp.diag(t)
form = A.T @ T @ B + B.T @ T @ A - 2 * B.T @ T @ B - rho * E + C.T @ C
problem = cp.Problem(cp.Minimize(rho), [form << 0])
begin = time.process_time()
problem.solve(solver=solver)
seconds = time.process_time() - begin
print(json.dumps({"value": float(np.sqrt(rho.value)), "seconds": seconds}))
"""


def best(function, repeats: int = 5):
    """The result and the least CPU seconds of some repeats."""
    seconds, result = np.inf, None
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds = min(seconds, time.process_time() - begin)
    return result, seconds


def seeded(*widths: int) -> rn.Network:
    rng = np.random.default_rng(0)
    sizes = list(pairwise(widths))
    weights = [rng.normal(0, np.sqrt(2 / a), (b, a)) for a, b in sizes]
    return rn.Network.from_weights(weights, [rng.uniform(-1, 1, b) / np.sqrt(a) for a, b in sizes])


def network(name: str, *widths: int) -> rn.Network:
    path = CASES / "lipschitz" / f"{name}.npz"
    return rn.load(path) if path.exists() else seeded(*widths)


def exact_rows() -> list[list[object]]:
    rows: list[list[object]] = []
    for name, widths in (
        ("r2_16_16_1", (2, 16, 16, 1)),
        ("t2_16_16_1", (2, 16, 16, 1)),
        ("r2_8_8_8_1", (2, 8, 8, 8, 1)),
    ):
        net = network(name, *widths)
        result, seconds = best(lambda net=net: rn.lipschitz(net))
        rows.append([name, "whole space, l2", f"{result.lower:.10g}", result.exact, seconds])
    net = network("t10_50_50_1", 10, 50, 50, 1)
    box = rn.Box.cube(10, -0.1, 0.1)
    result, seconds = best(lambda: rn.lipschitz(net, box, norm="inf"))
    rows.append(
        ["t10_50_50_1", "box of radius 0.1, l-inf", f"{result.lower:.10g}", result.exact, seconds]
    )
    reference = CASES / "regions" / "reference.json"
    for name, facts in (json.loads(reference.read_text()) if reference.exists() else {}).items():
        net = rn.load(CASES / "regions" / f"{name}.npz")
        box = rn.Box.cube(net.input_size)
        result, seconds = best(lambda net=net, box=box: rn.lipschitz(net, box), 2)
        off = abs(result.lower / facts["max_grad_l2"] - 1)
        rows.append(
            [
                name,
                "box [-1, 1]^d, l2",
                f"{result.lower:.10g} (off {off:.0e})",
                result.exact,
                seconds,
            ]
        )
    return rows


def sdp_rows(python: str | None, solvers: list[str], folder: Path) -> list[list[object]]:
    rows: list[list[object]] = []
    for name in ("r10_50_50_1", "t10_50_50_1"):
        net = network(name, 10, 50, 50, 1)
        value, seconds = best(lambda net=net: lipsdp(net))
        rows.append([name, "relunorm", f"{value:.8g}", seconds, ""])
        path = folder / f"{name}.npz"
        rn.save(net, path)
        for solver in solvers if python else []:
            done = subprocess.run(
                [str(python), "-c", PEER, solver, str(path)], capture_output=True, text=True
            )
            if done.returncode:
                rows.append([name, solver, "failed: " + done.stderr.strip()[-60:], "", ""])
                continue
            peer = json.loads(done.stdout.splitlines()[-1])
            ratio = f"{peer['seconds'] / seconds:.0f}x"
            rows.append([name, solver, f"{peer['value']:.8g}", peer["seconds"], ratio])
    return rows


def acas_rows() -> list[list[object]]:
    boxes = {
        3: (
            (-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3),
            (-0.298552812, 0.009549297, 0.5, 0.5, 0.5),
        ),
        4: (
            (-0.303531156, -0.009549297, 0, 0.318181818, 0.083333333),
            (-0.298552812, 0.009549297, 0, 0.5, 0.166666667),
        ),
    }
    rows: list[list[object]] = []
    for name in ("1_1", "1_9", "3_3"):
        path = CASES / "real" / f"ACASXU_run2a_{name}_batch_2000.onnx"
        if not path.exists():
            continue
        net = rn.load(path)
        for number, (lo, hi) in boxes.items():
            box = rn.Box(lo, hi)
            decision, seconds = best(lambda net=net, box=box: rn.never_smallest(net, box, 0), 2)
            rows.append([f"ACAS Xu {name}", number, decision.verdict, decision.nodes, seconds])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", help="a Python that has cvxpy; without it no peer runs")
    parser.add_argument("--solvers", default="CLARABEL,SCS")
    options = parser.parse_args()
    note = "CPU seconds, least of five (regions and ACAS: of two), after compilation; one thread."
    record("lipschitz: exact", ["network", "domain", "constant", "exact", "s"], exact_rows(), note)
    with tempfile.TemporaryDirectory() as folder:
        rows = sdp_rows(options.peer_python, options.solvers.split(","), Path(folder))
    record("lipschitz: LipSDP", ["network", "solver", "bound", "s", "ratio"], rows, note)
    rows = acas_rows()
    if rows:
        record("decide: ACAS Xu", ["network", "property", "verdict", "nodes", "s"], rows, note)


if __name__ == "__main__":
    sys.exit(main())

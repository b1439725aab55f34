"""Stability of units: ours against one mixed-integer programme per unit side, on the same networks.

    python benchmarks/stability.py CASES [--peer-limit SECONDS]

The peer is what published tools do (Serra et al., CPAIOR 2020 and NeurIPS 2021): interval bounds,
then for every unit they leave open one MILP a side, layer by layer, each stopped as soon as it is
decided; with the same solver (HiGHS) and one thread. It runs on the 100x100 networks only.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from record import record

import relunorm as rn
from relunorm.bounds.intervals import interval_bounds
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import NO_LIMIT
from relunorm.domain.reach import reach_of
from relunorm.stability import Proofs, replay, stability
from relunorm.stability.milp import decide

CASES = {
    "100x100 5e-4": ("digits_100x100_prox_l1_0.0005", 1.5),
    "100x100 2e-4": ("digits_100x100_prox_l1_0.0002", 0.8),
    "3x100 4e-4": ("digits_100x100x100_prox_l1_0.0004", 4.0),
    "400x400 2e-4": ("digits_400x400_prox_l1_0.0002", 25.0),
    "5x100 2e-4": ("digits_100x100x100x100x100_prox_l1_0.0002", 70.0),
}
PROPERTY_3 = (
    [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
    [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
)


def read(path: Path) -> rn.Network:
    """A network of the stability cases (W0, b0, ... and training notes)."""
    arrays = np.load(path)
    count = sum(key.startswith("W") for key in arrays)
    return rn.Network.from_weights(*([arrays[f"{x}{k}"] for k in range(count)] for x in "Wb"))


def one_milp_per_side(network: rn.Network, domain: rn.Box, limit: float) -> tuple[float, int, int]:
    """CPU seconds, programmes solved, and units left when the limit ended it."""
    began, solved, left = time.process_time(), 0, 0
    problem = Problem(network, reach_of(domain))
    bounds = Bounds(problem)
    for index in range(len(network.layers)):
        lower, upper = interval_bounds(problem, bounds, index)
        bounds.append(lower, upper)
        units = np.flatnonzero((lower < 0) & (upper > 0)) if index else np.empty(0, dtype=np.intp)
        lower, upper = lower.copy(), upper.copy()
        for unit in units:
            if time.process_time() - began > limit:
                left += 1
                continue
            for sign in (1.0, -1.0):
                answer = decide(
                    problem, bounds, index, np.array([unit]), np.array([sign]),
                    clock=NO_LIMIT, workers=1,
                )[0]  # fmt: skip
                solved += 1
                if answer.excluded and sign > 0:
                    upper[unit] = min(upper[unit], 0.0)
                elif answer.excluded:
                    lower[unit] = max(lower[unit], 0.0)
        bounds.replace_last(lower, upper)
    return time.process_time() - began, solved, left


def ours(network: rn.Network, domain: rn.Box, repeats: int) -> tuple[float, float, float, object]:
    """Best CPU and wall seconds of some runs, CPU seconds of the replay, and the result."""
    cpu, wall = [], []
    for _ in range(repeats):
        c, w = time.process_time(), time.perf_counter()
        found = stability(network, domain)
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    text = json.dumps(found.proofs.to_dict())
    c = time.process_time()
    replay(network, domain, Proofs.from_dict(json.loads(text)))
    return min(cpu), min(wall), time.process_time() - c, found


def describe(found: object) -> str:
    """Dead/active/unstable per layer, and how many are undecided."""
    counts = [
        "/".join(str(x.counts[v]) for v in ("dead", "active", "unstable")) for x in found.layers
    ]
    return f"{', '.join(counts)}; {found.counts['undecided']} undecided"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path, help="folder with stability/ and real/")
    parser.add_argument("--peer-limit", type=float, default=300.0, help="seconds for the peer")
    options = parser.parse_args()
    unit_box = rn.Box.cube(64, 0, 1)
    stability(read(options.cases / "stability" / f"{CASES['100x100 5e-4'][0]}.npz"), unit_box)

    rows = []
    for name, (file, target) in CASES.items():
        network = read(options.cases / "stability" / f"{file}.npz")
        cpu, wall, again, found = ours(network, unit_box, 3)
        peer, ratio = "", ""
        if name.startswith("100x100"):
            seconds, solved, left = one_milp_per_side(network, unit_box, options.peer_limit)
            more = f"; {left} units left" if left else ""
            peer = f"{seconds:.1f} ({solved} MILPs{more})"
            ratio = f"{'> ' if left else ''}{seconds / cpu:.0f}x"
        rows.append([name, describe(found), cpu, wall, target, again, peer, ratio])
    header = [
        "network",
        "dead/active/unstable",
        "CPU s",
        "wall s",
        "target s",
        "replay s",
        "peer s",
        "ratio",
    ]
    note = "Best of 3, one process; the domain is [0,1]^64. No verdict rests on a MILP."
    record("stability: digits networks", header, rows, note)

    rows = []
    for name in ("1_1", "1_9", "3_3"):
        network = rn.load(options.cases / "real" / f"ACASXU_run2a_{name}_batch_2000.onnx")
        cpu, wall, again, found = ours(network, rn.Box(*PROPERTY_3), 2)
        rows.append([f"ACAS Xu {name}, property 3", describe(found), cpu, wall, again])
    network = rn.load(options.cases / "real" / "mnist-net_256x2.onnx")
    near = np.clip(np.random.default_rng(0).random(784) - 0.5, 0, 1)
    for name, domain in (
        ("[0,1]^784", rn.Box.cube(784, 0, 1)),
        ("0.02 around an input", rn.Box(np.maximum(near - 0.02, 0), np.minimum(near + 0.02, 1))),
    ):
        cpu, wall, again, found = ours(network, domain, 2)
        rows.append([f"mnist-net_256x2, {name}", describe(found), cpu, wall, again])
    header = ["network, domain", "dead/active/unstable", "CPU s", "wall s", "replay s"]
    record("stability: public networks", header, rows, "Best of 2, one process.")


if __name__ == "__main__":
    main()

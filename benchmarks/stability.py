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
from scipy.optimize import Bounds as Limits
from scipy.optimize import LinearConstraint, milp

import relunorm as rn
from relunorm.kernels import warm_up
from relunorm.stability import Proofs, replay, stability

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


def below(weights: list, biases: list, lows: list, highs: list, box: rn.Box) -> tuple:
    """Columns, integrality and rows of the layers below a unit, relu by big-M, and the last y."""
    d = len(box.lo)
    lower, upper, integral = [box.lo], [box.hi], [np.zeros(d)]
    blocks, ends = [], []
    width, last = d + 2 * sum(len(b) for b in biases), slice(0, d)
    for w, b, low, high in zip(weights, biases, lows, highs, strict=True):
        n, at = len(b), sum(len(x) for x in lower)
        z, y, a = (np.zeros((n, width)) for _ in range(3))
        z[:, last] = w
        y[:, at : at + n] = np.eye(n)
        top, floor = np.maximum(high, 0), np.minimum(low, 0)
        a[:, at + n : at + 2 * n] = np.eye(n)
        blocks += [y - z, y - top[:, None] * a, y - z - floor[:, None] * a]
        none = np.full(n, np.inf)
        ends += [(b, none), (-none, np.zeros(n)), (-none, b - floor)]
        lower += [np.zeros(n), (low > 0).astype(float)]
        upper += [top, (high > 0).astype(float)]
        integral += [np.zeros(n), np.ones(n)]
        last = slice(at, at + n)
    columns = np.concatenate(lower), np.concatenate(upper), np.concatenate(integral)
    low_high = [np.concatenate(side) for side in zip(*ends, strict=True)]
    return columns, np.concatenate(blocks), low_high, last


def one_milp_per_side(network: rn.Network, domain: rn.Box, limit: float) -> tuple[float, int, int]:
    """CPU seconds, programmes solved, and units left when the limit ended it."""
    began, solved, left = time.process_time(), 0, 0
    weights, biases = network.weights()
    lows, highs = [], []
    low, high = np.array(domain.lo), np.array(domain.hi)
    for index in range(len(network.layers)):
        w, b = weights[index], biases[index]
        up, down = np.maximum(w, 0), np.minimum(w, 0)
        lower, upper = up @ low + down @ high + b, up @ high + down @ low + b
        units = np.flatnonzero((lower < 0) & (upper > 0)) if index else []
        if len(units):
            given = below(weights[:index], biases[:index], lows, highs, domain)
            (lo, hi, integral), rows, ends, last = given
        for unit in units:
            if time.process_time() - began > limit:
                left += 1
                continue
            for sign in (1.0, -1.0):
                asked = np.zeros(len(lo))
                asked[last] = sign * w[unit]
                margin = 1e-6 * max(-lower[unit], upper[unit])
                found = milp(
                    np.zeros(len(lo)), integrality=integral, bounds=Limits(lo, hi),
                    constraints=LinearConstraint(
                        np.vstack([rows, asked]),
                        np.append(ends[0], -sign * b[unit] - margin), np.append(ends[1], np.inf),
                    ),
                )  # fmt: skip
                solved += 1
                if found.status == 2 and sign > 0:  # infeasible
                    upper[unit] = min(upper[unit], 0.0)
                elif found.status == 2:
                    lower[unit] = max(lower[unit], 0.0)
        lows.append(lower)
        highs.append(upper)
        low, high = np.maximum(lower, 0), np.maximum(upper, 0)
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
    warm_up()
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
    note = "Best of 3, one process; the domain is [0,1]^64. "
    note += f"The peer begins no unit after {options.peer_limit:g} CPU s."
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

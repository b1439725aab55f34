"""Comparing networks with their reduced, permuted, rescaled copies, against a twin MILP.

    python benchmarks/compare.py [--twin SECONDS] [--near SECONDS] [--workers N]
    [--only TEXT] [--split CASES]

The peer is what one would write without this package: one MILP that maximises f - g for both
networks side by side, big-M from interval bounds, HiGHS. --twin 0 leaves it out. --near asks only
for both ends of the difference of rounded, pruned and tuned copies (near_copies.py), --only for
those pairs whose name holds a text. With --split only networks against what a splitter made of them
(see removal.py).
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from near_copies import table
from record import record
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

import relunorm as rn
from relunorm.clock import Clock
from relunorm.network import Network
from relunorm.stability import stability

CASES = Path(__file__).parents[2] / "shared" / "cases" / "stability"


def read(path: Path) -> Network:
    data = np.load(path)
    count = sum(name.startswith("W") for name in data.files)
    return Network.from_weights(
        [data[f"W{i}"] for i in range(count)], [data[f"b{i}"] for i in range(count)]
    )


def disguised(network: Network, rng: np.random.Generator) -> Network:
    """Hidden units permuted and rescaled by factors that are not powers of two."""
    weights, biases = ([np.array(v) for v in part] for part in network.weights())
    for k in range(len(weights) - 1):
        order = rng.permutation(len(biases[k]))
        scale = np.exp(rng.normal(size=len(order)))
        weights[k] = weights[k][order] * scale[:, None]
        biases[k] = biases[k][order] * scale
        weights[k + 1] = weights[k + 1][:, order] / scale
    return Network.from_weights(weights, biases)


def best(run, repeats: int = 3) -> tuple[float, object]:
    """CPU seconds, best of a few, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = run()
        times.append(time.process_time() - begin)
    return min(times), result


def twin_milp(first: Network, second: Network, domain: rn.Box, seconds: float) -> tuple[float, str]:
    """An upper bound on max (f - g)_0 by one MILP over both networks, and how it ended."""
    d = domain.dimension
    lower, upper, integer = list(domain.lo), list(domain.hi), [0] * d
    rows, low, high = [], [], []

    def add(coefficients: dict[int, float], lo: float, hi: float) -> None:
        rows.append(coefficients)
        low.append(lo)
        high.append(hi)

    ends = []
    for network in (first, second):
        inputs, lo, hi = list(range(d)), np.array(domain.lo), np.array(domain.hi)
        weights, biases = network.weights()
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            zlo = np.maximum(w, 0) @ lo + np.minimum(w, 0) @ hi + b
            zhi = np.maximum(w, 0) @ hi + np.minimum(w, 0) @ lo + b
            start = len(lower)
            n = len(b)
            lower += [0.0] * (2 * n)
            upper += [*np.maximum(zhi, 0), *([1.0] * n)]
            integer += [0] * n + [1] * n
            for i in range(n):
                y, a = start + i, start + n + i
                row = {k: -float(v) for k, v in zip(inputs, w[i], strict=True) if v}
                add({**row, y: 1.0}, b[i], np.inf)  # y >= z
                add({**row, y: 1.0, a: -float(zlo[i])}, -np.inf, b[i] - zlo[i])
                add({y: 1.0, a: -float(max(zhi[i], 0))}, -np.inf, 0.0)
            inputs, lo, hi = list(range(start, start + n)), np.maximum(zlo, 0), np.maximum(zhi, 0)
        ends.append((inputs, weights[-1][0], biases[-1][0]))
    cost = np.zeros(len(lower))
    for sign, (inputs, w, _) in zip((-1, 1), ends, strict=True):
        cost[inputs] += sign * w
    i = [r for r, row in enumerate(rows) for _ in row]
    j = [c for row in rows for c in row]
    v = [x for row in rows for x in row.values()]
    matrix = coo_array((v, (i, j)), shape=(len(rows), len(lower))).tocsr()
    found = milp(
        cost,
        integrality=np.array(integer),
        bounds=Bounds(np.array(lower), np.array(upper)),
        constraints=LinearConstraint(matrix, np.array(low), np.array(high)),
        options={"time_limit": seconds},
    )
    dual = getattr(found, "mip_dual_bound", None)
    bound = np.inf if dual is None else -dual + ends[0][2] - ends[1][2]
    return float(bound), found.message.split(".")[0][:40]


def rewritten(cases: Path) -> None:
    """Networks against what a splitter made of them, over [0, 1]^n."""
    from removal import pairs

    rows = []
    for name, (original, split) in pairs(cases).items():
        domain = rn.Box.cube(original.input_size, 0, 1)
        begin = time.process_time()
        clock = Clock(60, time.process_time)
        found = rn.compare(original, split, domain, tolerance=1e-3, time_limit=clock)
        took = time.process_time() - begin
        rows.append([name, found.verdict, found.lower, found.upper, found.method, took])
    record(
        "compare: rewritten networks",
        ["network", "verdict", "lower", "upper", "method", "CPU s"],
        rows,
        "Tolerance 1e-3, time limit 60 CPU s.",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--twin", type=float, default=20.0, help="seconds for the twin MILP")
    parser.add_argument("--near", type=float, default=0.0, help="CPU seconds for a near copy")
    parser.add_argument("--workers", type=int, help="threads; its seconds are those of the wall")
    parser.add_argument("--only", default="", help="near copies whose names hold this text")
    parser.add_argument("--split", type=Path, help="a folder with mnistfc and relusplitter")
    options = parser.parse_args()
    if options.split:
        rewritten(options.split)
        return
    if options.near:
        told = "CPU s" if options.workers is None else f"wall s on {options.workers} threads"
        record(
            "compare: near copies",
            ["network", "copy", "verdict", "lower", "upper", "ratio", "CPU s", "wall s"],
            table(options.near, options.only, options.workers),
            f"Both ends of max |f - g|, {options.near:g} {told} each, factor 3 asked for. "
            f"Load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        )
        return
    limit = options.twin
    rng = np.random.default_rng(0)
    rows = []
    eye = np.eye(2)
    begin = time.process_time()
    rn.compare(
        Network.from_weights([eye, eye]), Network.from_weights([3 * eye, eye]), rn.Box.cube(2)
    )
    first = time.process_time() - begin
    for path in sorted(CASES.glob("*.npz")):
        network = read(path)
        domain = rn.Box.cube(network.input_size, 0, 1)
        begin = time.process_time()
        analysis = stability(network, domain)
        spent = time.process_time() - begin
        reduced = rn.normalize(
            network, "minimal", domain, architecture="keep", analysis=analysis
        ).network
        copy = disguised(reduced, rng)
        plain, found = best(partial(rn.compare, network, copy, domain), 5)
        with_it, _ = best(partial(rn.compare, network, copy, domain, analysis=(analysis, None)), 5)
        certificate = found.certificate
        replayed, proof = best(partial(rn.verify, certificate, network, copy))
        weights, biases = copy.weights()
        changed = [np.array(w) for w in weights]
        changed[0][np.unravel_index(np.abs(changed[0]).argmax(), changed[0].shape)] += 1e-3
        other = Network.from_weights(changed, biases)
        differ, witness = best(partial(rn.compare, network, other, domain, tolerance=1e-9))
        rows.append(
            [
                path.stem,
                "-".join(map(str, copy.widths)),
                found.verdict,
                found.upper,
                1e3 * plain,
                1e3 * with_it,
                spent,
                f"{'holds' if proof.holds else 'FAILS'}, {1e3 * replayed:.4g}",
                f"{witness.verdict}, {1e3 * differ:.4g}",
            ]
        )
    record(
        "compare",
        [
            "network",
            "reduced copy",
            "verdict",
            "proved difference",
            "CPU ms",
            "CPU ms, stability given",
            "stability CPU s",
            "certificate, replay CPU ms",
            "one weight + 1e-3, CPU ms",
        ],
        rows,
        "Each network against its reduced, permuted, rescaled copy over [0, 1]^64; best of 5. "
        f"The first call of the process, on a 2-2-2 network, takes {first:.2g} s beside imports "
        f"(nothing is compiled). Load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
    )
    if limit:
        widths = [16, 25, 25, 1]
        net = Network.from_weights(
            [rng.normal(0, np.sqrt(2 / a), (b, a)) for a, b in pairwise(widths)],
            [rng.normal(0, 0.1, b) for b in widths[1:]],
        )
        copy, domain = disguised(net, rng), rn.Box.cube(16, 0, 1)
        ours, found = best(partial(rn.compare, net, copy, domain))
        begin = time.process_time()
        bound, message = twin_milp(net, copy, domain, limit)
        record(
            "compare: twin MILP on 16-25-25-1",
            ["method", "proved upper bound", "CPU s", "ended"],
            [
                ["relunorm", found.upper, ours, found.verdict],
                ["twin MILP, HiGHS", bound, time.process_time() - begin, message],
            ],
            f"A permuted, rescaled copy; the MILP has {limit:g} s.",
        )


if __name__ == "__main__":
    main()

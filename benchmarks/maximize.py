"""Exact maxima of regression networks over the box of their data, against HiGHS.

    python benchmarks/maximize.py [FOLDER] [--limit SECONDS] [--repeats N]

The peer is the mixed-integer model one would write: big-M from interval bounds, one thread, gaps of
1e-9. FOLDER holds NAME.npz (W0, b0, ...) and NAME_box.npz (lo, hi); without it networks are trained
here from seeds. CPU seconds; ours is the best of --repeats, after compiling.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from record import record

import relunorm as rn

CASES = Path(__file__).parents[2] / "shared" / "cases" / "maximize"


def trained(hidden: tuple[int, ...], seed: int) -> tuple[rn.Network, rn.Box]:
    """A network fitted to noisy data in ten dimensions, and the box of the data."""
    from sklearn.neural_network import MLPRegressor

    rng = np.random.default_rng(500 + seed)
    x = rng.normal(size=(450, 10))
    x[:, 5:] = 0.5 * x[:, 5:] + 0.5 * x[:, :5]
    y = 2 * np.sin(x[:, 0] * x[:, 1]) + (x[:, 2] - 0.5) ** 2 + x[:, 3] + 0.5 * np.abs(x[:, 4])
    y = y + rng.normal(size=450)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPRegressor(
            hidden_layer_sizes=hidden, max_iter=800, random_state=seed, alpha=1e-3
        ).fit(x, (y - y.mean()) / y.std())
    return rn.load(model), rn.Box.around(x)


def networks(folder: Path | None) -> Iterator[tuple[str, rn.Network, rn.Box]]:
    if folder is not None:
        for path in sorted(folder.glob("*_box.npz")):
            name = path.stem.removesuffix("_box")
            box = np.load(path)
            yield name, rn.load(folder / f"{name}.npz"), rn.Box(box["lo"], box["hi"])
        return
    shapes = [(12, 12), (16, 16), (20, 20), (24, 24), (32,), (40,), (12, 12, 12), (16, 16, 16)]
    for seed, hidden in enumerate(shapes):
        yield "x".join(map(str, hidden)), *trained(hidden, seed)


def big_m(network: rn.Network, box: rn.Box, limit: float) -> tuple[float, float]:
    """HiGHS: (best value, bound). The limit is wall time."""
    import highspy

    solver = highspy.Highs()
    solver.silent()
    for option, value in (
        ("threads", 1),
        ("time_limit", float(limit)),
        ("mip_rel_gap", 1e-9),
        ("mip_abs_gap", 1e-9),
    ):
        solver.setOptionValue(option, value)
    weights, biases = network.weights()
    low, high = box.lo, box.hi
    values = [solver.addVariable(a, b) for a, b in zip(low, high, strict=True)]
    for matrix, bias in zip(weights[:-1], biases[:-1], strict=True):
        up, down = np.maximum(matrix, 0), np.minimum(matrix, 0)
        least, most = up @ low + down @ high + bias, up @ high + down @ low + bias
        after = []
        for i, row in enumerate(np.asarray(matrix)):
            y, on = solver.addVariable(0, max(most[i], 0)), solver.addVariable(0, 1)
            solver.changeColIntegrality(on.index, highspy.HighsVarType.kInteger)
            z = float(bias[i]) + sum(
                float(w) * v for w, v in zip(row, values, strict=True) if abs(w) > 1e-9
            )
            solver.addConstr(y >= z)
            solver.addConstr(y <= z - float(least[i]) * (1 - on))
            solver.addConstr(y <= float(most[i]) * on)
            after.append(y)
        values, low, high = after, np.maximum(least, 0), np.maximum(most, 0)
    goal = float(biases[-1][0]) + sum(
        float(w) * v for w, v in zip(np.asarray(weights[-1])[0], values, strict=True)
    )
    solver.maximize(goal)
    info = solver.getInfo()
    value = info.objective_function_value
    return value if np.isfinite(value) else -np.inf, info.mip_dual_bound  # infinite: no point found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=CASES if CASES.is_dir() else None)
    parser.add_argument("--own", action="store_true", help="networks trained here from seeds")
    parser.add_argument("--limit", type=float, default=60.0, help="wall seconds for each")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    folder = None if arguments.own else arguments.folder
    rn.maximize(rn.load("example:moons"), rn.Box.cube(2), 0)  # compile
    rows = []
    for name, network, box in networks(folder):
        times = []
        for _ in range(arguments.repeats):
            begin = time.process_time()
            found = rn.maximize(network, box, 0, time_limit=arguments.limit)
            times.append(time.process_time() - begin)
        proof, replay, size = found.certificate, "-", "-"
        if proof is not None:
            begin = time.process_time()
            holds = proof.verify(network).holds
            replay, size = time.process_time() - begin if holds else "refused", proof.tape.bytes
        begin = time.process_time()
        value, bound = big_m(network, box, arguments.limit)
        peer = time.process_time() - begin
        closed = bound - value <= 1e-6
        assert found.upper >= value - 1e-6, (name, found, value)
        rows.append(
            (
                name,
                f"{found.lower:.9g}{'' if found.exact else f' to {found.upper:.9g}'}",
                found.nodes,
                min(times),
                replay,
                size,
                f"{peer:.2f}" if closed else f"open after {peer:.1f}",
                f"{'' if closed else '> '}{peer / min(times):.1f}x",
            )
        )
        print(rows[-1], flush=True)
    record(
        "Maxima over data boxes",
        ("network", "maximum", "nodes", "CPU s", "replay s", "proof bytes", "HiGHS s", "ratio"),
        rows,
        f"CPU seconds, one thread, ours best of {arguments.repeats}, HiGHS once, "
        f"{'the given cases' if folder else 'networks trained here'}.",
    )


if __name__ == "__main__":
    main()

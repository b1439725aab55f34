"""Regions a second, against relucent (a separate process), and the other figures of the room.

    python benchmarks/regions.py [--relucent PYTHON] [--real FOLDER] [--only PART]

``--relucent`` is an interpreter that has relucent (AGPL, needs Gurobi's size-limited licence);
``--real`` the folder with the ACAS Xu networks. CPU seconds of one thread, best of the repeats,
with pattern, affine map and interior point of every region; compiled code is warm, and the first
call with an empty cache is reported apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from record import record

import relunorm as rn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from regions.nets import REFERENCE, he_net, random_net  # noqa: E402

TARGET = dict(
    zip(
        REFERENCE,
        (2_000_000, 1_500_000, 800_000, 150_000, 300_000, 150_000, 250_000, 300_000, 300_000),
        strict=True,
    )
)

RELUCENT = """
import sys, json, numpy as np, relucent
if __name__ == "__main__":
    z = np.load(sys.argv[1]); n = len(z.files) // 2
    c = relucent.Complex([(z[f"W{i}"], z[f"b{i}"]) for i in range(n)])
    c.bfs(start=np.zeros((1, z["W0"].shape[1])), nworkers=1, cube_radius=1.0,
          cube_mode="intersect", verbose=0)
    print(json.dumps(len(c)))
"""


def best(call, repeats):  # type: ignore[no-untyped-def]
    """CPU seconds of the fastest of several calls, and its result."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        times.append(time.process_time() - start)
    return min(times), result


def speed() -> dict[str, float]:
    rows, seconds = [], {}
    for name, (count, _) in REFERENCE.items():
        net = he_net(name)
        box = rn.Box.cube(net.input_size)
        # A call of 0.1 ms is over before a shared core has settled: many of them.
        repeats = 1000 if count < 2000 else 50 if count < 5000 else 7
        cpu, found = best(lambda n=net, b=box: rn.regions(n, b), repeats)
        if len(found) != count:
            raise SystemExit(f"{name}: {len(found)} regions, expected {count}")
        seconds[name] = cpu
        rows.append([name, found.method, count, cpu, int(count / cpu), TARGET[name]])
    record(
        "regions: speed",
        ["network", "engine", "regions", "CPU s", "regions / CPU s", "wanted"],
        rows,
        "CPU seconds, one thread, best of 7 (from 5,000 regions on), 50 or 1,000 (below 2,000); "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
    )
    return seconds


def against_relucent(python: str, seconds: dict[str, float]) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "peer.py"
        script.write_text(RELUCENT)
        for name in ("2-16-16", "2-32-32"):
            weights, biases = he_net(name).weights()
            file = Path(folder) / f"{name}.npz"
            arrays = {f"W{i}": w for i, w in enumerate(weights)}
            np.savez(file, **arrays, **{f"b{i}": b for i, b in enumerate(biases)})
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run([python, script, file], capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if run.returncode:
                rows.append([name, "failed: " + run.stderr.strip().splitlines()[-1], "", "", ""])
                continue
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            count = json.loads(run.stdout.strip().splitlines()[-1])
            rows.append([name, count, cpu, seconds[name], f"{cpu / seconds[name]:,.0f}x"])
    record(
        "regions: against relucent 1.0",
        ["network", "regions it finds", "relucent CPU s", "relunorm CPU s", "ratio"],
        rows,
        "relucent in its own process, one worker, cube_mode='intersect', its start-up included.",
    )


def workers() -> None:
    rows = []
    for name in ("2-128-128-128", "3-32-32", "6-10-10"):
        net = he_net(name)
        box = rn.Box.cube(net.input_size)
        times, work = {}, {}
        for count in (1, 2):
            wall, cpu = [], []
            for _ in range(9):
                start, spent = time.perf_counter(), time.process_time()
                rn.regions(net, box, workers=count)
                wall.append(time.perf_counter() - start)
                cpu.append(time.process_time() - spent)
            times[count], work[count] = min(wall), min(cpu)
        rows.append([name, times[1], times[2], times[1] / times[2], work[2] / work[1]])
    load = os.getloadavg()[0]
    record(
        "regions: two workers",
        ["network", "one, s", "two, s", "speed-up", "CPU time, two to one"],
        rows,
        f"Wall seconds, best of 9; load average {load:.1f} on {os.cpu_count()} cores (above zero "
        "other work competes for them, and the speed-up is not to be trusted; CPU time is).",
    )


def others(real: Path | None) -> None:
    rows: list[list[object]] = []
    net = random_net(np.random.default_rng(0), [4, 32, 32, 1])
    cpu, found = best(lambda: rn.regions(net, rn.Box.cube(4)), 2)
    rows.append(["[4, 32, 32, 1], seed 0", f"{len(found):,} regions", f"{cpu:.3g} CPU s"])
    rows.append(["memory, 2-64-64", "peak above base", f"{memory_per_region():.0f} B a region"])
    rows.extend(line_figures())
    if real is not None:
        rows.extend(acas(real))
    record("regions: other figures", ["what", "found", "cost"], rows, "CPU seconds, one thread.")


def memory_per_region() -> float:
    """Peak resident memory above that before the call, in a process of its own (Linux)."""
    code = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from regions.nets import he_net
import relunorm as rn

def kilobytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])

net = he_net("2-64-64")
rn.regions(he_net("2-16-16"), rn.Box.cube(2))
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
found = rn.regions(net, rn.Box.cube(2))
print((kilobytes("VmHWM") - before) * 1024 / len(found))
"""
    command = [sys.executable, "-c", code, str(ROOT / "tests")]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def line_figures() -> list[list[object]]:
    """A line through a wide network against the matrix products it cannot avoid."""
    rng = np.random.default_rng(0)
    net = random_net(rng, [3072, *[2048] * 6, 10])
    a, b = rng.uniform(0, 1, (2, 3072))
    cpu, line = best(lambda: rn.along(net, a, b), 2)
    rows = rows_per_layer(net, line)
    inputs = [
        rng.standard_normal((n, w.shape[1])) for n, w in zip(rows, net.weights()[0], strict=True)
    ]

    def products() -> None:
        for x, w in zip(inputs, net.weights()[0], strict=True):
            x @ w.T

    needed, _ = best(products, 2)
    return [
        [
            "line, [3072, 2048 x 6, 10]",
            f"{len(line):,} regions",
            f"{cpu:.3g} CPU s, {cpu / needed:.2f} x its products",
        ]
    ]


def rows_per_layer(net, line) -> list[int]:  # type: ignore[no-untyped-def]
    """Breakpoints known when each layer's product is taken."""
    cuts = np.cumsum([layer.width for layer in net.layers])
    layer = [int(np.searchsorted(cuts, units.min(), side="right")) for units in line.crossings()]
    counts = np.bincount(layer, minlength=len(cuts))
    return [2, *(2 + np.cumsum(counts)).tolist()]


def acas(folder: Path) -> list[list[object]]:
    """All regions on the boxes of properties 3 and 4, and whether output 0 can be the smallest."""
    lo3 = (-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3)
    hi3 = (-0.298552812, 0.009549297, 0.5, 0.5, 0.5)
    lo4 = (-0.303531156, -0.009549297, 0, 0.318181818, 0.083333333)
    hi4 = (-0.298552812, 0.009549297, 0, 0.5, 0.166666667)
    rows = []
    for name in ("1_1", "1_9", "3_3"):
        file = folder / f"ACASXU_run2a_{name}_batch_2000.onnx"
        net = rn.load(file)
        for prop, box in ((3, rn.Box(lo3, hi3)), (4, rn.Box(lo4, hi4))):
            cpu, found = best(lambda n=net, b=box: rn.regions(n, b), 2)
            answer, second = decide(net, box, file)
            rows.append(
                [
                    f"ACAS Xu {name}, property {prop}",
                    f"{len(found):,} regions, property {answer}",
                    f"{cpu:.3g} CPU s, decided in {second:.3g}",
                ]
            )
    return rows


def decide(net, box, file) -> tuple[str, float]:  # type: ignore[no-untyped-def]
    """Is output 0 the smallest anywhere? The four differences become units of one more layer."""
    import onnxruntime

    minus = np.column_stack([-np.ones(4), np.eye(4)])
    net = net.folded()
    last = net.output
    terms = {
        s: minus @ (m if isinstance(m, np.ndarray) else m.toarray()) for s, m in last.terms.items()
    }
    layer = rn.Layer(rn.Affine(terms, minus @ last.bias))
    end = rn.Affine({len(net.layers) + 1: np.ones((1, 4))}, [0.0])
    start = time.process_time()
    found = rn.regions(net.replace(layers=[*net.layers, layer], output=end, output_shape=()), box)
    bad = np.flatnonzero(found.patterns[:, -4:].all(axis=1))
    seconds = time.process_time() - start
    if not len(bad):
        return "holds (all regions checked)", seconds
    margins = net(found.points[bad]) @ minus.T
    x = found.points[bad[margins.min(axis=1).argmax()]]
    session = onnxruntime.InferenceSession(str(file))
    entry = session.get_inputs()[0]
    y = session.run(None, {entry.name: x.astype(np.float32).reshape(1, 1, 1, 5)})[0].ravel()
    confirmed = "confirmed" if y.argmin() == 0 else "NOT confirmed"
    return f"fails in {len(bad):,} regions (counterexample {confirmed} by onnxruntime)", seconds


def first_call() -> None:
    code = (
        "import sys,time; sys.path.insert(0, sys.argv[1]); import relunorm as rn;"
        "from regions.nets import he_net; t=time.process_time();"
        "n=sys.argv[2]; rn.regions(he_net(n), rn.Box.cube(int(n[0]))); print(time.process_time()-t)"
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RELUNORM_CACHE_DIR": folder}
        for name in ("2-16-16", "3-16-16", "6-10-10"):
            cold, warm = (
                float(
                    subprocess.run(
                        [sys.executable, "-c", code, str(ROOT / "tests"), name],
                        env=env,
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
                for _ in range(2)
            )
            rows.append([name, cold, warm])
    record(
        "regions: first call",
        ["network", "compiling, CPU s", "from the cache, CPU s"],
        rows,
        "A fresh process each; compiling happens once per installation and engine.",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--relucent", help="an interpreter that has relucent")
    parser.add_argument("--real", type=Path, help="the folder with the ACAS Xu networks")
    parts = ("speed", "workers", "others", "first")
    parser.add_argument("--only", choices=parts, help="one part instead of all")
    options = parser.parse_args()
    wanted = [options.only] if options.only else parts
    if "speed" in wanted:
        seconds = speed()
        if options.relucent:
            against_relucent(options.relucent, seconds)
    if "workers" in wanted:
        workers()
    if "others" in wanted:
        others(options.real)
    if "first" in wanted:
        first_call()


if __name__ == "__main__":
    main()

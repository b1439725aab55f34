"""Sweeps: overhead of a run on every backend and of the store, and regions on processes.

    python benchmarks/sweep.py [--parts overhead,store,regions] [--backends loky,ray] [--runs 300]

The peer is joblib itself: ``Parallel`` on the same backend and the same function, one task a batch,
without rows, keys, parcels or a store. Clusters and pools are started and warmed before the clock.
Wall seconds, since the work happens in other processes; best of the repeats.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import psutil
from record import record

import relunorm as rn
from relunorm.sweep.backends import placed
from relunorm.sweep.record import Run

REPEATS = 3


def tiny(i: int) -> dict[str, Any]:
    """A run that takes no time, so that all of it is overhead."""
    return {"y": i * 0.5}


def best(work: Callable[[], Any]) -> float:
    """The shortest of some repeats, in wall seconds."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def overhead(backend: str, runs: int, folder: Path) -> list[object]:
    """Milliseconds a run: plain joblib, a sweep, a sweep with a store."""
    grid = [{"i": i} for i in range(runs)]
    store = folder / f"{backend}.sqlite"

    def plain() -> None:
        # Ray's pool hands results over in one list, as a sweep on Ray does in waves
        options = {} if backend == "ray" else {"return_as": "generator_unordered"}
        parallel = joblib.Parallel(batch_size=1, pre_dispatch="2*n_jobs", **options)
        assert len(list(parallel(joblib.delayed(tiny)(i) for i in range(runs)))) == runs

    def stored() -> None:
        store.unlink(missing_ok=True)
        assert rn.sweep(tiny, grid, store=store).complete

    with ExitStack() as stack:
        stack.enter_context(placed(backend, None, None if backend == "sequential" else 2))
        plain()
        rn.sweep(tiny, grid[:4])
        peer, bare, kept = best(plain), best(lambda: rn.sweep(tiny, grid)), best(stored)
    ms = [1e3 * seconds / runs for seconds in (peer, bare, kept)]
    return [backend, *ms, ms[1] / ms[0], ms[2] / ms[0]]


def inserts(folder: Path, count: int = 200) -> list[list[object]]:
    """Rows a second into a store, on the disk and in memory-backed files."""
    rows: list[list[object]] = []
    places = {"disk": folder}
    if Path("/dev/shm").is_dir():
        places["memory file system"] = Path(tempfile.mkdtemp(dir="/dev/shm"))
    for name, place in places.items():
        path = place / "inserts.sqlite"
        with rn.Store(path) as store:
            began = time.perf_counter()
            for k in range(count):
                store.put(Run(f"{k:064}", "m:f", "1", f'{{"i":{k}}}', "done", '{"y":0.5}'))
            rows.append([f"{name}: one transaction a row", count / (time.perf_counter() - began)])
        path.unlink()
        if place != folder:
            place.rmdir()
    return rows


def regions() -> list[list[object]]:
    """The same search here and on two warm processes: CPU seconds of all processes, and wall."""
    rng = np.random.default_rng(0)
    rows: list[list[object]] = []
    for widths in ((2, 160, 160, 160, 1), (6, 13, 13, 1), (8, 13, 13, 1)):
        pairs = list(itertools.pairwise(widths))
        net = rn.Network.from_weights(
            [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairs],
            [0.3 * rng.normal(size=b) for _, b in pairs],
        )
        box = rn.Box.cube(widths[0])
        found = rn.regions(net, box)
        far = rn.regions(net, box, backend="loky", workers=2)
        assert np.array_equal(found.patterns, far.patterns)
        one = cpu_and_wall(lambda net=net, box=box: rn.regions(net, box))
        two = cpu_and_wall(lambda net=net, box=box: rn.regions(net, box, workers=2, backend="loky"))
        name = "-".join(map(str, widths))
        rows.append([name, found.method, len(found), *one, *two, two[0] / one[0], one[1] / two[1]])
    return rows


def cpu_and_wall(work: Callable[[], Any]) -> tuple[float, float]:
    """The smallest CPU seconds, of this process and its children, and wall seconds."""

    def spent() -> float:
        here = psutil.Process()
        return sum(sum(p.cpu_times()[:2]) for p in (here, *here.children(recursive=True)))

    cpu = []
    wall = best(lambda: (cpu.append(-spent()), work(), cpu.append(spent() + cpu.pop())))
    return min(cpu), wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="overhead,store,regions")
    parser.add_argument("--backends", default="sequential,threading,loky,dask")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    options = parser.parse_args()
    note = f"{REPEATS} repeats, wall seconds, best. {options.note}".strip()
    parts = options.parts.split(",")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        if "overhead" in parts:
            rows = [overhead(b, options.runs, folder) for b in options.backends.split(",")]
            header = ["backend", "joblib, ms a run", "sweep", "sweep + store", "ratio"]
            header += ["ratio + store"]
            record("sweep: overhead of an empty run", header, rows, f"{options.runs} runs. {note}")
        if "store" in parts:
            record("sweep: store", ["where", "rows / s"], inserts(folder), note)
    if "regions" in parts:
        header = ["network", "engine", "regions", "here, CPU s", "wall s", "2 processes, CPU s"]
        header += ["wall s", "CPU, times here", "speedup, wall"]
        record("sweep: regions on processes", header, regions(), note)


if __name__ == "__main__":
    main()

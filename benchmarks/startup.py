"""How long ``import relunorm`` and ``relunorm --help`` take beside ``import numpy``.

    python benchmarks/startup.py [--kernels]

With ``--kernels``: the CPU seconds of compiling every kernel, in a copy of the package that has
none compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import record

REPEATS = 9


def best(command: list[str]) -> float:
    """Best wall time of a few runs: the machine's noise only ever adds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def kernels() -> None:
    """`relunorm warm-up` on a fresh copy."""
    source = Path(__file__).parents[1] / "src"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        environment.pop("RELUNORM_CACHE_DIR", None)
        run = subprocess.run(
            [sys.executable, "-m", "relunorm", "warm-up", "--json"],
            capture_output=True, text=True, check=True, env=environment, cwd=folder,
        )  # fmt: skip
    taken = json.loads(run.stdout)["cpu_seconds"]
    rows = [*taken.items(), ("in all", sum(taken.values()))]
    record("startup: compiling", ["kernels", "CPU s"], rows, "Once, on one thread.")


def main() -> None:
    if "--kernels" in sys.argv[1:]:
        kernels()
        return
    python = sys.executable
    command = str(Path(python).with_name("relunorm"))
    numpy = best([python, "-c", "import numpy"])
    rows = []
    for label, run in {
        "import numpy": [python, "-c", "import numpy"],
        "import relunorm": [python, "-c", "import relunorm"],
        "import relunorm, load a network": [
            python,
            "-c",
            "import relunorm as rn; rn.load('example:moons')",
        ],
        "relunorm --help": [command, "--help"],
    }.items():
        seconds = best(run)
        rows.append([label, seconds, seconds / numpy])
    header = ["command", "seconds", "ratio to import numpy"]
    record("Start-up", header, rows, f"Wall, best of {REPEATS}.")


if __name__ == "__main__":
    main()

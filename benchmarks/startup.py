"""How long ``import relunorm`` and ``relunorm --help`` take beside ``import numpy``."""

from __future__ import annotations

import subprocess
import sys
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


def main() -> None:
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

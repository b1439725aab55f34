"""Ranges of every partial derivative of regression networks over the box of their data.

    python benchmarks/sensitivity.py [FOLDER] [--limit SECONDS]

The networks are those of maximize.py. CPU seconds, one thread, without compiling.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from maximize import CASES, networks
from record import record

import relunorm as rn
from relunorm.clock import Clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=CASES if CASES.exists() else None)
    parser.add_argument("--limit", type=float, default=10.0)
    options = parser.parse_args()
    rows = []
    for name, network, box in networks(options.folder):
        found = rn.sensitivity(network, box, time_limit=Clock(options.limit, time.process_time))
        size = max(np.abs(found.lower).max(), np.abs(found.upper).max())
        gap = max((found.upper - found.most).max(), (found.least - found.lower).max()) / size
        rows.append([name, f"{found.exact.sum()} of {found.exact.size}", gap, found.seconds])
    header = ("network", "exact intervals", "widest gap / largest slope", "CPU s")
    record("sensitivity", header, rows, f"CPU seconds, one thread, limit {options.limit:g} s.")


if __name__ == "__main__":
    main()

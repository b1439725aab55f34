"""Drivers that are killed, run out of disk, or write at once; each in a process of its own.

python survivor.py kill STORE      SIGKILL ten drivers at random moments, then one goes on
python survivor.py two STORE       two drivers at once
python survivor.py full STORE      a driver whose files may not grow beyond 40 kB
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time

from sweep_functions import slow

import relunorm as rn
from relunorm.errors import StoreError

RUNS = [{"i": i, "seconds": 0.001} for i in range(150)]


def forked(store: str, backend: str) -> int:
    """Start a driver; its process id."""
    child = os.fork()
    if child == 0:
        rn.sweep(slow, RUNS, store=store, backend=backend, workers=2)
        os._exit(0)
    return child


def kill(store: str) -> None:
    rng = random.Random(0)
    counts = []
    for attempt in range(10):
        child = forked(store, ("sequential", "threading")[attempt % 2])
        time.sleep(rng.uniform(0.005, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if os.path.exists(store):
            with rn.Store(store) as opened:
                counts.append(len(opened))
    assert counts == sorted(counts), counts
    print("rows after each kill:", counts)
    rn.sweep(slow, RUNS, store=store)


def two(store: str) -> None:
    children = [forked(store, "sequential") for _ in range(2)]
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def full(store: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    try:
        rn.sweep(slow, [{"i": i} for i in range(2_000)], store=store)
    except StoreError as error:
        print("refused:", error)


if __name__ == "__main__":
    {"kill": kill, "two": two, "full": full}[sys.argv[1]](sys.argv[2])

"""Functions the tests sweep over; a module of its own, so that workers can import it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def measure(a: float, b: int = 1, random_state: int = 0) -> dict[str, Any]:
    """Numbers of every kind, some of them random, some from BLAS."""
    if a == 3:
        raise ValueError(f"a is {a}")
    rng = np.random.default_rng(random_state)
    matrix = rng.normal(size=(60, 60))
    return {
        "total": float((matrix @ matrix).sum()) * a,
        "draw": np.float32(rng.random()),
        "limit": float("inf") if a == 1 else float("nan"),
        "list": [int(b), None, True, "ü\n"],
    }


RUNS = [{"a": a, "b": b} for a in (0.1, 1, 2, 3) for b in (1, 2)]


def slow(i: int, seconds: float = 0.0) -> dict[str, Any]:
    """Something that takes a while."""
    time.sleep(seconds)
    return {"square": i * i, "third": i / 3}


def killer(i: int) -> dict[str, Any]:
    """Takes its process down for i = 2."""
    if i == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"i": i}


def once(i: int, folder: str) -> dict[str, Any]:
    """Notes every call; the first run waits until it is told to go on."""
    (Path(folder) / f"called-{i}-{os.getpid()}-{time.time_ns()}").touch()
    deadline = time.monotonic() + 30
    while i == 0 and not (Path(folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"i": i}


def predict(x: list[list[float]], model: Any) -> dict[str, Any]:
    """Values of a torch module, and whether it came without parametrizations."""
    import torch
    from torch.nn.utils import parametrize

    with torch.no_grad():
        values = model(torch.tensor(x, dtype=torch.float64))
    plain = not any(parametrize.is_parametrized(part) for part in model.modules())
    return {"values": values.tolist(), "plain": plain}


def change(items: list[int]) -> dict[str, Any]:
    """Changes its argument, as a function should not."""
    items.append(len(items))
    return {"length": len(items)}

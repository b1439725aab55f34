"""Append one benchmark's table to RESULTS.md with date, commit and machine."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def record(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> str:
    """Print a markdown table, append it to RESULTS.md and return it.

    Args:
        title: what was measured, for example ``regions``.
        header: column names.
        rows: one sequence per row; floats are printed with four significant digits.
        note: how it was measured (CPU or wall seconds, best or median of how many, threads).
    """
    table = [header, ["---"] * len(header), *rows]
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in table]
    date = datetime.date.today().isoformat()
    command = f"python benchmarks/{Path(_caller()).name}"
    text = f"\n## {title}\n\n{date}, commit {_commit()}, {_machine()}. `{command}`. {note}\n\n"
    text += "\n".join(lines) + "\n"
    print(text)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(text)
    return text


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _caller() -> str:
    import __main__

    return getattr(__main__, "__file__", "") or "interactive"


def _commit() -> str:
    folder = Path(__file__).parent
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True
    )
    return run.stdout.strip() or "unknown"


def _machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [ln.split(":", 1)[1].strip() for ln in info.open() if ln.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"

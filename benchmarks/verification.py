"""Property files of VNN-COMP through the command line: verdicts, seconds, counterexamples re-run.

    python benchmarks/verification.py FOLDER [FOLDER ...] [--limit SECONDS] [--only TEXT]
        [--first N] [--record]

Every FOLDER holds instances.csv (network, property, limit_s, a verdict) and the files it names;
networks are also looked for in a folder real/ beside it. Each instance is one run of ``relunorm
check --json`` in a process of its own, whose CPU seconds are counted, start-up included. The limit
is wall time: the smaller one of --limit and the instance's own. A counterexample is run again in
onnxruntime, in float32, and checked against the assertions without any tolerance.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from record import record

from relunorm.questions.vnnlib import Assertions, read_vnnlib

MEANING = {"holds": "unsat", "violated": "sat"}


def instances(folder: Path) -> list[tuple[Path, Path, float, str]]:
    """(network, property, limit, expected verdict) of a folder."""
    found = []
    with (folder / "instances.csv").open() as file:
        for row in csv.DictReader(file):
            network = folder / row["network"]
            if not network.exists():
                network = folder.parent / "real" / row["network"]
            word = next((row[key] for key in row if key.startswith("verdict_2021")), "")
            expected = MEANING.get(word, "?")
            found.append((network, folder / row["property"], float(row["limit_s"]), expected))
    return found


def run(network: Path, prop: Path, limit: float) -> tuple[dict[str, object], float]:
    """What the command says, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "relunorm", "check", str(network), str(prop), "--json"]
    done = subprocess.run(
        [*command, "--time-limit", str(limit)], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    if done.returncode not in (0, 1, 3):
        return {"verdict": "error", "point": None, "error": done.stderr.strip()}, cpu
    return json.loads(done.stdout), cpu


def holds_in_onnxruntime(network: Path, assertions: Assertions, point: list[float]) -> bool:
    """Whether the assertions hold at the point with the outputs of onnxruntime in float32."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    (entry, *_) = session.get_inputs()
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in entry.shape]
    x = np.array(point, dtype=np.float32)
    (outputs, *_) = session.run(None, {entry.name: x.reshape(shape)})
    values = {("X", i): Fraction(float(v)) for i, v in enumerate(x)}
    values |= {("Y", i): Fraction(float(v)) for i, v in enumerate(np.ravel(outputs))}

    def holds(atom) -> bool:  # type: ignore[no-untyped-def]
        total = atom.constant + sum(w * values[name] for name, w in atom.weights.items())
        # bounds on inputs are read as float64, as the search does
        if len(atom.weights) == 1 and next(iter(atom.weights))[0] == "X":
            ((name, weight),) = atom.weights.items()
            end = Fraction(float(-atom.constant / weight))
            return values[name] <= end if weight > 0 else values[name] >= end
        return total < 0 if atom.strict else total <= 0

    return all(map(holds, assertions.common)) and any(
        all(map(holds, part)) for part in assertions.alternatives
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--only", default="", help="instances whose names hold this text")
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options = parser.parse_args()
    rows, table = [], []
    for folder in options.folders:
        chosen = [
            one for one in instances(folder) if options.only in f"{one[0].name} {one[1].name}"
        ][: options.first]
        counts = {"decided": 0, "wrong": 0, "open": 0, "error": 0}
        total, confirmed, sat = 0.0, 0, 0
        for network, prop, own, expected in chosen:
            found, cpu = run(network, prop, min(own, options.limit))
            verdict = str(found["verdict"])
            total += cpu
            again = ""
            if verdict == "sat":
                sat += 1
                good = holds_in_onnxruntime(network, read_vnnlib(prop), found["point"])  # type: ignore[arg-type]
                confirmed += good
                again = "confirmed" if good else "not confirmed"
            if verdict in ("sat", "unsat"):
                counts["wrong" if expected not in (verdict, "?") else "decided"] += 1
            else:
                counts["error" if verdict == "error" else "open"] += 1
            rows.append((network.name, prop.name, verdict, expected, cpu, again))
            print(*rows[-1], found.get("error", ""), flush=True)
        table.append(
            (folder.name, len(chosen), *counts.values(), f"{confirmed} of {sat}", total)
        )  # fmt: skip
    header = (
        "folder", "instances", "decided", "against the majority", "open", "errors",
        "counterexamples confirmed in float32", "CPU s",
    )  # fmt: skip
    if options.record:
        record("property files of VNN-COMP", header, table, f"Limit {options.limit:g} s (wall).")
    else:
        print(header, *table, sep="\n")


if __name__ == "__main__":
    main()

"""Property files of VNN-COMP through the command line: verdicts, seconds, counterexamples re-run.

    python benchmarks/verification.py FOLDER [FOLDER ...] [--limit SECONDS] [--only TEXT]
        [--first N] [--out FOLDER] [--marabou PYTHON] [--record]

Every FOLDER holds instances.csv (network, property, limit_s, a verdict) and the files it names;
networks are also looked for in a folder real/ beside it. Each instance is one run of ``relunorm
check --json`` in a process of its own, whose CPU seconds are counted, start-up included. The limit
is the smaller one of --limit and the instance's own: wall time for us, CPU seconds for Marabou. A
counterexample is run again in onnxruntime, in float32, and checked against the assertions without
any tolerance.

--out keeps what was done: rows.jsonl, from which a run that was broken off goes on; the answers in
the competition's format (results/, one file an instance); and for every tool TOOL.csv with the
competition's columns (category, network, property, seconds to prepare, result, seconds to run).
--marabou names a Python that has maraboupy; it answers the same instances, each in a process of its
own.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from record import record

from relunorm.domain import Box
from relunorm.io import load
from relunorm.questions.cases import make_cases
from relunorm.questions.vnnlib import Assertions, read_vnnlib

MEANING = {"holds": "unsat", "violated": "sat"}
#: Exit codes of a process that ran far past its limit, or out of its CPU seconds.
KILLED = -9
SPENT = (KILLED, -signal.SIGXCPU)
SHOWN = ("verdict", "expected", "cpu", "again", "error")


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


def run(command: list[str], limit: float, text: str = "") -> tuple[int, str, str, float, float]:
    """Exit code, stdout, stderr, wall and CPU seconds of a command; killed well past its limit."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * limit + 120,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = KILLED, "", "killed"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return code, out, err, time.monotonic() - begin, cpu


def ours(network: Path, prop: Path, limit: float, result: Path) -> dict[str, object]:
    """What the command says, also as a file in the competition's format."""
    command = [sys.executable, "-m", "relunorm", "check", str(network), str(prop), "--json"]
    command += ["--time-limit", str(limit), "--result", str(result)]
    code, out, err, wall, cpu = run(command, limit)
    row: dict[str, object] = {"verdict": "error", "wall": wall, "cpu": cpu, "again": ""}
    if code not in (0, 1, 3) or not out.startswith("{"):  # Python itself ends with 1, too
        return {**row, "verdict": "timeout" if code == KILLED else "error", "error": err.strip()}
    found = json.loads(out)
    row["verdict"] = found["verdict"]
    if found["verdict"] == "sat":
        good = holds_in_onnxruntime(network, read_vnnlib(prop), found["point"])
        row["again"] = "confirmed" if good else "not confirmed"
    return row


def marabou(python: str, network: Path, prop: Path, limit: float) -> dict[str, object]:
    """What Marabou says of the same question."""
    _, cases = make_cases(read_vnnlib(prop), load(str(network)))
    parts = []
    for case in cases:
        if not isinstance(case.domain, Box):
            return {"verdict": "error", "wall": 0.0, "cpu": 0.0, "again": "", "error": "no box"}
        ends = {"lo": case.domain.lo.tolist(), "hi": case.domain.hi.tolist()}
        for A, b in case.groups:
            rows = [[r.tolist(), float(end)] for r, end in zip(A, b, strict=True)]
            parts.append({**ends, "rows": rows})
    peer = Path(__file__).with_name("marabou_peer.py")
    command = [python, str(peer), str(network), str(limit)]
    code, out, err, wall, cpu = run(command, 20 * limit, json.dumps(parts))
    words = out.split()
    verdict = words[-1] if code == 0 and words else ("timeout" if code in SPENT else "error")
    error = err.strip()[-300:] if verdict == "error" else ""
    return {"verdict": verdict, "wall": wall, "cpu": cpu, "again": "", "error": error}


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
    parser.add_argument("--out", type=Path, default=None, help="keep results here, and go on")
    parser.add_argument("--marabou", default=None, help="a Python that has maraboupy")
    parser.add_argument("--record", action="store_true", help="keep the table in results/")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    (out / "results").mkdir(parents=True, exist_ok=True)
    store = out / "rows.jsonl"
    lines = store.read_text().splitlines() if store.exists() else []
    done = {tuple(row["key"]): row for row in map(json.loads, lines)}
    tools = ["relunorm", *(["Marabou"] if options.marabou else [])]
    table = []
    for folder in options.folders:
        chosen = [
            one for one in instances(folder) if options.only in f"{one[0].name} {one[1].name}"
        ][: options.first]
        for tool in tools:
            rows = []
            for network, prop, own, expected in chosen:
                key = (tool, folder.name, network.name, prop.name, options.limit)
                if key not in done:
                    limit = min(own, options.limit)
                    if tool == "relunorm":
                        result = out / "results" / f"{network.stem}_{prop.stem}.txt"
                        row = ours(network, prop, limit, result)
                    else:
                        row = marabou(options.marabou, network, prop, limit)
                    done[key] = {"key": key, "expected": expected, **row}
                    with store.open("a") as file:
                        file.write(json.dumps(done[key]) + "\n")
                rows.append(done[key])
                print(*key[:4], *(rows[-1].get(k, "") for k in SHOWN), flush=True)
            table.append((folder.name, tool, *summary(rows)))
            with (out / f"{tool.lower()}.csv").open("w", newline="") as file:
                write = csv.writer(file)
                for row in done.values():
                    name, category, network_name, prop_name, _ = row["key"]
                    if name == tool:
                        answer = row["verdict"], f"{row['wall']:.3f}"
                        write.writerow([category, network_name, prop_name, "0.0", *answer])
    header = (
        "folder", "tool", "instances", "decided", "against the majority", "open", "errors",
        "counterexamples confirmed in float32", "CPU s", "median CPU s",
    )  # fmt: skip
    if options.record:
        record("property files of VNN-COMP", header, table, f"Limit {options.limit:g} s (wall).")
    else:
        print(header, *table, sep="\n")


def summary(rows: list[dict[str, object]]) -> tuple[object, ...]:
    """Counts, counterexamples confirmed, and CPU seconds of one tool on one folder."""
    verdicts = [(str(row["verdict"]), str(row["expected"])) for row in rows]
    decided = [(v, e) for v, e in verdicts if v in ("sat", "unsat")]
    wrong = sum(e not in (v, "?") for v, e in decided)
    errors = sum(v == "error" for v, _ in verdicts)
    sat = sum(v == "sat" for v, _ in verdicts)
    again = sum(row["again"] == "confirmed" for row in rows)
    cpu = [float(row["cpu"]) for row in rows]  # type: ignore[arg-type]
    shown = f"{again} of {sat}" if any(row["again"] for row in rows) else "-"
    left = len(rows) - len(decided) - errors
    middle = float(np.median(cpu)) if cpu else 0.0
    return len(rows), len(decided) - wrong, wrong, left, errors, shown, sum(cpu), middle


if __name__ == "__main__":
    main()

"""Property files of VNN-COMP decided in one process: CPU seconds, proofs and their replay.

    python benchmarks/properties.py FOLDER [--cap SECONDS] [--workers N] [--only TEXT] [--record]

FOLDER holds instances.csv (network, property, a verdict, maybe a peer's CPU seconds) and the files
it names; networks are also looked for in a folder real/ beside it. The limit counts CPU seconds of
this process, one thread, after compiling, and wall seconds with --workers; every ``unsat`` is
replayed from its proof, and every counterexample is run again in onnxruntime, in float32.
`verification.py` asks the same through the command line, a process an instance.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

from record import record
from verification import MEANING, holds_in_onnxruntime

import relunorm as rn
from relunorm.clock import Clock
from relunorm.questions.vnnlib import read_vnnlib
from relunorm.search.engine import warm_up


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cap", type=float, default=116.0, help="seconds for an instance")
    parser.add_argument("--workers", type=int, help="threads; seconds are then those of the wall")
    parser.add_argument("--only", default="", help="instances whose names hold this text")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    tick = time.process_time if options.workers is None else time.perf_counter
    warm_up()
    tiny = rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])
    proof = rn.maximize(tiny, rn.Box.cube(1), [1.0]).certificate
    assert proof is not None
    proof.verify(tiny)  # compiles the replay
    rows, names, hard = [], [], []
    for row in csv.DictReader((options.folder / "instances.csv").open()):
        name = f"{row['network']} {row['property']}"
        if options.only not in name:
            continue
        path, prop = options.folder / row["network"], options.folder / row["property"]
        if not path.exists():
            path = options.folder.parent / "real" / row["network"]
        network = rn.load(path)
        begin = tick()
        found = rn.check(
            network, prop, time_limit=Clock(options.cap, tick), workers=options.workers
        )
        took = tick() - begin
        word = next((row[key] for key in row if key.startswith("verdict_2021")), "")
        decided = found.verdict in ("sat", "unsat")
        wrong = decided and MEANING.get(word, found.verdict) != found.verdict
        begin, good, size = time.process_time(), True, 0
        if found.verdict == "unsat":
            good = found.proof is not None and found.proof.verify(network, prop).holds
            size = sum(part.tape.bytes for part in found.proof.parts) if found.proof else 0
        elif found.verdict == "sat" and found.point is not None:
            good = holds_in_onnxruntime(path, read_vnnlib(prop), found.point.tolist())
        again = time.process_time() - begin
        peer = float(row.get("nnenum_cpu_s") or "nan")
        names.append(row["network"])
        rows.append((decided, wrong, good, found.verdict, took, again, size, peer))
        if took > 2 or wrong or not good or not decided:
            hard.append([name, found.verdict, word, took, peer, good])
            print(*hard[-1], flush=True)
    proofs = [r for r in rows if r[3] == "unsat"]
    unit = "CPU s" if options.workers is None else "wall s"
    table = [
        ["instances", len(rows)],
        ["decided", sum(r[0] for r in rows)],
        *(
            [f"of {name}", f"{sum(decided)} of {len(decided)}"]
            for name in (sorted(set(names)) if len(set(names)) < 10 else [])
            for decided in [[r[0] for r, its in zip(rows, names, strict=True) if its == name]]
        ),
        ["against the table", sum(r[1] for r in rows)],
        [unit, round(sum(r[4] for r in rows), 1)],
        [f"{unit}, each at most 20", round(sum(min(r[4], 20.0) for r in rows), 1)],
        ["nnenum CPU s, each at most 20", round(sum(min(r[7], 20.0) for r in rows), 1)],
        ["proofs that replay", f"{sum(r[2] for r in proofs)} of {len(proofs)}"],
        ["replay CPU s", round(sum(r[5] for r in proofs), 1)],
        ["bytes of proofs", sum(r[6] for r in proofs)],
        ["counterexamples good in float32", sum(r[2] for r in rows if r[3] == "sat")],
        ["counterexamples", sum(r[3] == "sat" for r in rows)],
    ]
    for line in table:
        print(*line)
    if options.record:
        threads = f"{options.workers} threads" if options.workers else "one thread"
        note = f"{threads}, at most {options.cap:g} {unit} for an instance; proofs replayed."
        record(f"properties: {options.folder.name}", ["what", "number"], table, note)


if __name__ == "__main__":
    main()

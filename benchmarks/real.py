"""Public verification networks reduced over a domain, written as ONNX, confirmed by onnxruntime.

    python benchmarks/real.py [CASES]

ACAS Xu over the box of property 3, mnist-net_256x2 over [0, 1]^784 and over an l-inf ball of 0.02
around an input (a stroke, since no data set is at hand). For each: the units that are dead, active,
unstable and undecided; the network with everything removed that can be; the certificate, written to
a file, read back and replayed against the model files; and how far onnxruntime's outputs of the two
model files differ at points of the domain, both files in float64 and both in float32.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from record import record

import relunorm as rn

CASES = Path(__file__).parents[2] / "shared" / "cases" / "real"
PROPERTY_3 = (
    [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
    [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
)


def stroke() -> rn.Box:
    """The l-inf ball of 0.02 around a vertical stroke, inside [0, 1]^784."""
    middle = np.zeros((28, 28))
    middle[4:24, 12:16] = 0.8
    return rn.Box(np.clip(middle - 0.02, 0, 1).ravel(), np.clip(middle + 0.02, 0, 1).ravel())


def jobs() -> list[tuple[str, str, rn.Box]]:
    acas = [
        (f"ACAS Xu {n}, property 3", f"ACASXU_run2a_{n}_batch_2000") for n in ("1_1", "1_9", "3_3")
    ]
    mnist = "mnist-net_256x2"
    return [
        *((title, name, rn.Box(*PROPERTY_3)) for title, name in acas),
        (f"{mnist}, [0, 1]^784", mnist, rn.Box.cube(784, 0, 1)),
        (f"{mnist}, 0.02 around an input", mnist, stroke()),
    ]


def outputs(path: Path, points: np.ndarray) -> np.ndarray:
    """What onnxruntime computes, input by input."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    shape = [n if isinstance(n, int) and n > 0 else 1 for n in entry.shape]
    kind = np.float64 if entry.type == "tensor(double)" else np.float32
    rows = (session.run(None, {entry.name: x.astype(kind).reshape(shape)})[0] for x in points)
    return np.array([row.ravel() for row in rows], dtype=np.float64)


def reduce(source: Path, domain: rn.Box, folder: Path) -> list[object]:
    """Reduce one model and check it in every way; a row of the table."""
    network = rn.load(source)
    began = time.process_time()
    result = rn.normalize(network, "minimal", domain, prefer="units")
    spent = time.process_time() - began
    proof = folder / "proof.json"
    if result.certificate is None or result.stability is None:
        raise SystemExit(f"{source}: no certificate")
    result.certificate.save(proof)
    files = {}
    for kind in ("float64", "float32"):
        files[kind] = folder / f"small-{kind}.onnx", folder / f"given-{kind}.onnx"
        for model, path in zip((result.network, network), files[kind], strict=True):
            rn.save(model, path, dtype=kind)  # type: ignore[arg-type]
    began = time.process_time()
    small, given = (rn.load(path) for path in files["float64"])
    verified = rn.verify(rn.Certificate.load(proof), given, small)
    replayed = time.process_time() - began
    points = np.concatenate([domain.sample(100, 0), domain.center[None]])
    gaps = [np.abs(outputs(a, points) - outputs(b, points)).max() for a, b in files.values()]
    source_gap = np.abs(outputs(files["float32"][0], points) - outputs(source, points)).max()
    counts = result.stability.counts
    return [
        "/".join(str(counts[k]) for k in ("dead", "active", "unstable", "undecided")),
        f"{network.units} -> {result.network.units}",
        f"{network.parameters} -> {result.network.parameters}",
        spent,
        "holds" if verified.holds else f"FAILS: {verified.problems}",
        replayed,
        result.certificate.bound,
        float(gaps[0]),
        float(max(gaps[1], source_gap)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="?", type=Path, default=CASES)
    cases = parser.parse_args().cases
    rows = []
    for title, name, domain in jobs():
        with tempfile.TemporaryDirectory() as folder:
            rows.append([title, *reduce(cases / f"{name}.onnx", domain, Path(folder))])
    record(
        "real",
        [
            "network, domain",
            "dead/active/unstable/undecided",
            "units",
            "parameters",
            "reduce, CPU s",
            "certificate",
            "read and replay, CPU s",
            "proved difference",
            "onnxruntime float64",
            "onnxruntime float32",
        ],
        rows,
        "One run each, imports included in the first. onnxruntime: the largest difference of the "
        "model files' outputs at 101 points, in float32 against the given file too.",
    )


if __name__ == "__main__":
    main()

"""Networks as integer C programs: sizes, both proofs, what search finds, and other tools.

    python benchmarks/embedded.py [--only TEXT] [--million N] [--rows FILE] [--peer-python PYTHON]

For every model of `embedded_models.py` at 8 and 16 bits: bytes of tables and of the whole object
compiled for a Cortex-M4, bytes of buffers, the proved and the largest found error, CPU seconds to
build and certify, and to verify, and accuracy before and after. Then every program is run with
undefined behaviour trapped on a million inputs here, and on thousands under qemu-arm and simavr;
all have to give the integers of the Python model. PYTHON is an environment with emlearn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from embedded_models import MODELS, Case, load_case
from record import record

import relunorm as rn
from relunorm.embedded import Export, verify
from relunorm.embedded.pieces.one_input import Pieces
from relunorm.errors import InvalidInputError
from relunorm.network.head import NO_HEAD

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "embedded"))
from c_programs import DTYPES, compile_host, drawn, on_arm, on_avr, run

#: From so many products on, undefined behaviour is trapped on a tenth of the inputs alone.
LARGE = 50_000
#: Trains the model of `embedded_models.py` again, inputs scaled, and writes emlearn's C.
PEER = """
import sys, warnings
warnings.simplefilter("ignore")
import emlearn
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
folder, what = sys.argv[1:]
if what == "digits":
    x, y = load_digits(return_X_y=True)
    x, hidden, rounds = x / 16, (32, 16), 300
else:
    x, y = load_breast_cancer(return_X_y=True)
    x, hidden, rounds = StandardScaler().fit_transform(x), (16, 8), 500
model = MLPClassifier(hidden_layer_sizes=hidden, max_iter=rounds, random_state=0).fit(x, y)
emlearn.convert(model, method="inline").save(file=folder + "/eml.h", name="peer")
x.astype("<f4").tofile(folder + "/x.bin")
print(emlearn.includedir)
"""
PEER_MAIN = """
#include <stdio.h>
#include "eml.h"
int main(void)
{
    static float x[%d];
    while (fread(x, sizeof x, 1, stdin) == 1)
        printf("%%d\\n", (int)peer_predict(x, %d));
    return 0;
}
"""


def score(case: Case, predict: Any) -> float:
    """Accuracy of a classifier, mean squared error of the rest."""
    _, _, x, y = case
    assert x is not None
    assert y is not None
    out = predict(x.reshape(len(x), -1))
    if y.dtype.kind == "i":
        found = out[:, 0] > 0 if out.shape[1] == 1 else out.argmax(axis=1)
        return float((found == y).mean())
    return float(((out - y.reshape(out.shape)) ** 2).mean())


def object_bytes(source: str, compiler: list[str], size: str) -> str:
    """Bytes of code and tables of the compiled program; empty where the compiler is missing."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.c").write_text(source)
        try:
            subprocess.run([*compiler, "-c", "net.c", "-o", "net.o"], cwd=folder, check=True)
            done = subprocess.run([size, "net.o"], cwd=folder, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
    text, data = done.stdout.split(b"\n")[1].split()[:2]
    return f"{int(text) + int(data):,}"


def row(name: str, case: Case, bits: int, **options: Any) -> tuple[list[object], Export]:
    """One line of the first table."""
    network, box, x, _ = case
    classes = x is not None and case[3].dtype.kind == "i"  # type: ignore[union-attr]
    began = time.process_time()
    made = rn.to_c(network, box, bits=bits, classes=classes, name="net", **options)
    built = time.process_time() - began
    began = time.process_time()
    assert verify(made.certificate, network, made.source).holds
    replayed = time.process_time() - began
    arm = ["arm-none-eabi-gcc", "-ffreestanding", "-Os", "-mcpu=cortex-m4", "-mthumb"]
    margin = made.certificate.margin
    before = after = ""
    if x is not None:
        before, after = (f"{score(case, f):.4g}" for f in (network, made.program.predict))
    found = made.certificate.document["found"]
    return [
        name,
        bits,
        f"{made.flash:,}",
        object_bytes(made.source, arm, "arm-none-eabi-size"),
        f"{made.ram:,}",
        made.epsilon,
        made.found,
        f"{made.epsilon / made.found:.1f}",
        made.certificate.epsilon_on_grid,
        found["on_grid"],
        "" if margin is None else f"{margin:.3g}",
        f"{built:.1f}",
        f"{replayed:.1f}",
        before,
        after,
    ], made


def exactness(name: str, made: Export, million: int) -> list[object]:
    """How many inputs gave the integers of the Python model, on each machine."""
    program: Any = made.program
    kinds = (program.input_type, program.output_type)
    low, high = program.input_low, program.input_high
    cells: list[object] = [name, *kinds]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        trapped = million if program.multiplications < LARGE else million // 10
        same = host_exact(made.source, program, kinds, (low, high), million, folder, trapped)
        told = "" if trapped == million else f", trapped on {trapped:,}"
        cells.append(f"{million:,} {'equal' if same else 'DIFFERENT'}{told}")
        found = on_arm(made.source, kinds, low, high, 5000, folder)
        same = np.array_equal(found, program(drawn(low, high, kinds[0], 5000)))
        cells.append(f"5,000 {'equal' if same else 'DIFFERENT'}")
        try:
            other = rn.to_c(
                made.network,
                _box(made),
                bits=weight_bits(program),
                style="pieces" if isinstance(program, Pieces) else "layers",
                target="avr",
                parts=1,
                samples=10,
            )
        except InvalidInputError as error:
            cells.append(str(error).split(";")[0])
            return cells
        program = other.program
        kinds = (program.input_type, program.output_type)
        low, high = program.input_low, program.input_high
        found = on_avr(other.source, kinds, low, high, 2000, folder)
        want = program(drawn(low, high, kinds[0], 2000))
        cells.append(f"2,000 {'equal' if np.array_equal(found, want) else 'DIFFERENT'}")
    return cells


def host_exact(
    source: str,
    program: Any,
    kinds: tuple[str, str],
    ends: tuple[np.ndarray, np.ndarray],
    count: int,
    folder: Path,
    trapped: int,
) -> bool:
    """Whether the program compiled here gives the model's integers; a tenth are corners.

    Undefined behaviour is trapped on the first inputs, ``trapped`` or a few more.
    """
    rng = np.random.default_rng(0)
    low, high = ends
    trapping = compile_host(source, kinds, folder, sanitize=True)
    if trapped < count:
        trapping = trapping.rename(folder / "trapping")
        fast = compile_host(source, kinds, folder, sanitize=False)
    step = max(1, min(count, 20_000_000 // len(low)))
    same = True
    for begin in range(0, count, step):
        binary = trapping if begin < trapped else fast
        inputs = rng.integers(low, high + 1, (min(step, count - begin), len(low)))
        corners = rng.random((len(inputs) // 10, len(low))) < 0.5
        inputs[: len(corners)] = np.where(corners, low, high)
        raw = run([str(binary)], folder, inputs.astype(DTYPES[kinds[0]]).tobytes())
        found = np.frombuffer(raw, dtype=DTYPES[kinds[1]]).reshape(len(inputs), -1)
        same = same and np.array_equal(found, program(inputs))
    return same


def _box(made: Export) -> rn.Box:
    domain = made.certificate.document["domain"]
    return rn.Box(np.array(domain["lo"]), np.array(domain["hi"]))


def weight_bits(program: Any) -> int:
    """Bits of the weights."""
    held = program if isinstance(program, Pieces) else program.maps[0]
    return int("".join(filter(str.isdigit, held.weight_type)))


def onnxruntime_8(case: Case) -> tuple[float, float]:
    """Largest error and score of onnxruntime's static quantization to 8 bits, over the box."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    network, box, x, _ = case
    rows = box.sample(500, 0) if x is None else x.reshape(len(x), -1)[:500]
    shape = (-1, *network.input_shape)

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rows = iter(rows.astype(np.float32))

        def get_next(self) -> Any:
            one = next(self.rows, None)
            return None if one is None else {"input": one.reshape(1, *network.input_shape)}

    with tempfile.TemporaryDirectory() as folder:
        plain, small = f"{folder}/plain.onnx", f"{folder}/small.onnx"
        rn.save(network.replace(head=NO_HEAD), plain, dtype="float32")
        quantize_static(
            plain, small, Reader(), per_channel=True, weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
        )  # fmt: skip
        session = onnxruntime.InferenceSession(small, providers=["CPUExecutionProvider"])

        def predict(points: np.ndarray) -> np.ndarray:
            batch = points.astype(np.float32).reshape(shape)
            return session.run(None, {"input": batch})[0].reshape(len(points), -1)

        points = box.sample(5000, 1)
        gap = float(np.abs(predict(points) - network(points)).max())
        return gap, (score(case, predict) if x is not None else float("nan"))


def emlearn_rows(python: str, name: str, case: Case, made: Export) -> list[list[object]]:
    """emlearn's C beside ours: bytes compiled here with -Os, and accuracy."""
    floats = rn.to_c(*case[:2], floats=True, shrink=False)
    _, _, x, y = case
    assert x is not None
    size = x.shape[1]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        what = "digits" if name.startswith("digits") else "cancer"
        command = [python, "-c", PEER, text, what]
        done = subprocess.run(command, cwd=text, capture_output=True, text=True, check=True)
        include = f"-I{done.stdout.strip().splitlines()[-1]}"
        theirs = object_bytes(f'#include "{text}/eml.h"\n', ["gcc", "-Os", include], "size")
        (folder / "peer.c").write_text(PEER_MAIN % (size, size))
        subprocess.run(["gcc", "-Os", include, "peer.c", "-lm", "-o", "peer"], cwd=text, check=True)
        classes = run(["./peer"], folder, (folder / "x.bin").read_bytes()).split()
        right = float((np.array(classes, dtype=int) == y).mean())
    here = ["gcc", "-Os"]
    ours = [object_bytes(x.source, here, "size") for x in (made, floats)]
    scores = [
        f"{score(case, made.program.predict):.4g}",
        f"{score(case, floats.program.predict):.4g}",
    ]
    return [
        [name, "emlearn 0.23, float", theirs, "none", f"{right:.4g}"],
        [name, "relunorm, float", ours[1], f"{floats.epsilon:.3g}", scores[1]],
        [name, "relunorm, 16 bits", ours[0], f"{made.epsilon:.3g}", scores[0]],
    ]


class Rows:
    """Rows measured so far, kept in a file if one is named, so that a run can be taken up again."""

    def __init__(self, path: str | None):
        self.path = None if path is None else Path(path)
        self.done: dict[str, dict[str, list[list[object]]]] = {}
        if self.path is not None and self.path.exists():
            for text in self.path.read_text().splitlines():
                self.done.update(json.loads(text))

    def has(self, job: str) -> bool:
        """Whether a job was done."""
        return job in self.done

    def add(self, job: str, found: dict[str, list[list[object]]]) -> None:
        """Keep the rows of a job."""
        self.done[job] = found
        print(job, found, flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({job: found}) + "\n")

    def of(self, table: str) -> list[list[object]]:
        """All rows of one table, in the order of the models."""
        jobs = [f"{name} {bits}" for name in MODELS for bits in (8, 16)]
        return [row for job in jobs if job in self.done for row in self.done[job].get(table, [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--million", type=int, default=1_000_000, help="inputs on the host")
    parser.add_argument("--rows", help="a file of rows measured so far, to go on from")
    parser.add_argument("--peer-python", help="a Python with emlearn")
    options = parser.parse_args()
    rows = Rows(options.rows)
    for name in [n for n in MODELS if options.only in n]:
        jobs = [f"{name} {bits}" for bits in (8, 16)]
        if all(rows.has(job) for job in jobs):
            continue
        case = load_case(name)
        extra = {"samples": 1000} if case[0].parameters > 50_000 else {}
        for bits, job in zip((8, 16), jobs, strict=True):
            if rows.has(job):
                continue
            line, made = row(name, case, bits, **extra)
            found = {
                "first": [line],
                "second": [exactness(f"{name}, {bits} bits", made, options.million)],
            }
            if bits == 8:
                found["third"] = [[name, made.epsilon, made.found, line[-1], *onnxruntime_8(case)]]
            if bits == 16 and name.startswith("sine"):
                title = f"{name}, pieces"
                line, pieces = row(title, case, 16, style="pieces")
                found["first"].append(line)
                found["second"].append(exactness(f"{title}, 16 bits", pieces, options.million))
            if bits == 16 and name.startswith(("digits", "breast")) and options.peer_python:
                found["fourth"] = emlearn_rows(options.peer_python, name, case, made)
            rows.add(job, found)
    first, second, third, fourth = (rows.of(k) for k in ("first", "second", "third", "fourth"))
    header = ["model", "bits", "tables, bytes", "Cortex-M4 object, bytes", "buffers, bytes"]
    header += ["epsilon proved", "found", "ratio", "proved, integer inputs", "found"]
    header += ["class margin", "build and certify, CPU s", "verify, CPU s", "score", "score after"]
    note = "Epsilon includes rounding the input. Score: accuracy, or mean squared error."
    record("embedded: integer programs", header, first, note)
    record(
        "embedded: the integers of the Python model, bit for bit",
        ["program", "input", "output", "host, undefined behaviour trapped", "qemu-arm", "simavr"],
        second,
        "A tenth of the inputs are corners of the domain; on emulators some lie outside it.",
    )
    record(
        "embedded: 8 bits beside onnxruntime's static quantization",
        ["model", "ours, proved", "ours, found", "score after", "theirs, sampled", "their score"],
        third,
        "onnxruntime's error is sampled at 5,000 points of the box, calibrated on 500 inputs.",
    )
    if fourth:
        record(
            "embedded: beside emlearn",
            ["model", "program", "x86-64 object at -Os, bytes", "epsilon proved", "accuracy"],
            fourth,
            "emlearn's file holds the interpreter it includes; its inputs are scaled beforehand.",
        )


if __name__ == "__main__":
    main()

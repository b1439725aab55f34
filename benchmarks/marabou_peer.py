"""One property decided by Marabou, in the Python that has it: prints sat, unsat or another word.

    PYTHON benchmarks/marabou_peer.py NETWORK.onnx SECONDS < ALTERNATIVES.json

Run by verification.py; nothing of relunorm is imported. Alternatives are decided one after the
other: sat as soon as one is, unsat once all are. They come as JSON on stdin: bounds of the inputs,
and rows (weights of the outputs, right-hand side) meaning weights . y <= right-hand side. SECONDS
are CPU seconds, of which the system ends the process: other work on the machine costs it nothing.
"""

from __future__ import annotations

import json
import resource
import sys


def main() -> None:
    from maraboupy import Marabou

    path, seconds = sys.argv[1], round(float(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    answer = "unsat"
    for part in json.load(sys.stdin):
        network = Marabou.read_onnx(path)
        inputs = network.inputVars[0].flatten()
        outputs = network.outputVars[0].flatten()
        for variable, low, high in zip(inputs, part["lo"], part["hi"], strict=True):
            network.setLowerBound(variable, low)
            network.setUpperBound(variable, high)
        for weights, end in part["rows"]:
            used = [(v, w) for v, w in zip(outputs, weights, strict=True) if w]
            network.addInequality([v for v, _ in used], [w for _, w in used], end)
        code, *_ = network.solve(options=Marabou.createOptions(verbosity=0), verbose=False)
        if code == "sat":
            answer = "sat"
            break
        if code != "unsat":
            answer = "unknown"
    print(answer)


if __name__ == "__main__":
    main()

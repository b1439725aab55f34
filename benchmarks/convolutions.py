"""Convolutional networks through relunorm: file size and onnxruntime's time, before and after.

    python benchmarks/convolutions.py [--peers PYTHON]

PYTHON is an interpreter that has onnxsim; without it only our rows are printed. The networks are
made here with random weights: what matters is their shape. The pruned one lost half of the channels
of both convolutions to `torch.nn.utils.prune`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from record import record
from torch import nn
from torch.nn.utils import prune

import relunorm as rn

PEER = """
import sys, onnx, onnxsim
small, ok = onnxsim.simplify(onnx.load(sys.argv[1]))
assert ok
onnx.save(small, sys.argv[2])
print(onnxsim.__version__)
"""


def small() -> nn.Module:
    """About 4,000 weights on 8x8 images."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def medium() -> nn.Module:
    """About 105,000 weights on 28x28 images, two poolings."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def pruned() -> nn.Module:
    """`medium` with half of the channels of both convolutions pruned."""
    model = medium()
    for layer in (model[0], model[3]):
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
        prune.remove(layer, "weight")
    return model


class Standardized(nn.Module):
    """(x - 0.13) / 0.31, as pixels are put on a scale in front of a model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.13) / 0.31


def mobile() -> nn.Module:
    """Depthwise convolutions on standardized 28x28 images, batch norm behind the rectifier."""
    return nn.Sequential(
        Standardized(), nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU6(), nn.BatchNorm2d(16),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1), nn.ReLU6(),
        nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 10),
    )  # fmt: skip


MODELS = {"8x8": (small, (1, 8, 8)), "28x28": (medium, (1, 28, 28))}
MODELS["28x28, pruned"] = (pruned, (1, 28, 28))
MODELS["28x28, depthwise"] = (mobile, (1, 28, 28))


def microseconds(path: Path, shape: tuple[int, ...]) -> tuple[float, np.ndarray]:
    """CPU time of one evaluation on one thread, best of seven rounds, and the output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    x = np.random.default_rng(0).random((1, *shape)).astype(np.float32)
    best, output = np.inf, np.empty(0)
    for _ in range(7):
        begin = time.process_time()
        for _ in range(200):
            output = session.run(None, {name: x})[0]
        best = min(best, (time.process_time() - begin) / 200)
    return 1e6 * best, output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="an interpreter with onnxsim")
    peers = parser.parse_args().peers
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, shape) in MODELS.items():
            torch.manual_seed(0)
            module = make().eval()
            given = Path(folder) / "given.onnx"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(module, (torch.zeros(1, *shape),), str(given), dynamo=False)
            files = {"given": given}
            network = rn.load(given)
            files["relunorm: load, save"] = Path(folder) / "same.onnx"
            rn.save(network, files["relunorm: load, save"])
            begin = time.process_time()
            reduced = rn.normalize(network, "minimal").network
            took = time.process_time() - begin
            files["relunorm: minimal"] = Path(folder) / "minimal.onnx"
            rn.save(reduced, files["relunorm: minimal"])
            if peers:
                path = Path(folder) / "peer.onnx"
                run = subprocess.run(
                    [peers, "-c", PEER, str(given), str(path)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                files["onnxsim " + run.stdout.split()[-1]] = path
            _, expected = microseconds(given, shape)
            for what, path in files.items():
                each, output = microseconds(path, shape)
                off = float(np.abs(output - expected).max())
                seconds: object = took if what == "relunorm: minimal" else ""
                rows.append([name, what, path.stat().st_size, each, off, seconds])
    record(
        "convolutions",
        ["network", "file", "bytes", "onnxruntime CPU us", "largest difference", "CPU s"],
        rows,
        "One thread, batch of one, best of seven rounds of 200.",
    )


if __name__ == "__main__":
    main()

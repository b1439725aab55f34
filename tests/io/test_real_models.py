"""Public verification benchmarks: read, agree with onnxruntime, come back out and agree again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import relunorm as rn

NAMES = (
    "ACASXU_run2a_1_1_batch_2000",
    "ACASXU_run2a_1_9_batch_2000",
    "ACASXU_run2a_3_3_batch_2000",
    "Convnet_maxpool",
    "mnist-net_256x2",
    "resnet_2b",
)
ROWS, STEP = 2_000, 250  # gathered layers take memory in proportion to the batch


def session_with_free_batch(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """The model with its first axis freed, so that many inputs run at once."""
    names = {tensor.name for tensor in proto.graph.initializer}
    for info in (*proto.graph.input, *proto.graph.output):
        if info.name not in names:
            info.type.tensor_type.shape.dim[0].dim_param = "N"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # old files list weights as inputs, which it warns about
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_onnxruntime(name: str, cases: Path, tmp_path: Path) -> None:
    path = cases / "real" / f"{name}.onnx"
    network = rn.load(path)
    rn.save(network, tmp_path / "out.onnx")
    sessions = [
        session_with_free_batch(onnx.load(path)),
        onnxruntime.InferenceSession(tmp_path / "out.onnx"),
    ]
    rng = np.random.default_rng(0)
    for start in range(0, ROWS, STEP):
        X = rng.random((STEP, *network.input_shape)).astype(np.float32)
        ours = network(X)
        for session in sessions:
            theirs = session.run(None, {session.get_inputs()[0].name: X})[0].reshape(len(X), -1)
            assert abs(ours - theirs).max() <= 1e-5 * abs(theirs).max(), f"rows from {start}"

"""Small ONNX models for tests, run by onnxruntime as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Nodes = list[tuple[str, list[str], dict[str, Any]]]


def model(
    nodes: Nodes,
    constants: dict[str, NDArray[Any]],
    shape: list[int | str],
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A chain of nodes: the first result of each is called n0, n1, ..., the last one y."""
    protos = []
    for k, (op, inputs, attributes) in enumerate(nodes):
        name = "y" if k == len(nodes) - 1 else f"n{k}"
        outputs = [name, *attributes.pop("more", [])] if "more" in attributes else [name]
        protos.append(helper.make_node(op, inputs, outputs, name=f"node{k}", **attributes))
    graph = helper.make_graph(
        protos,
        "test",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(proto: onnx.ModelProto, X: NDArray[Any]) -> NDArray[Any]:
    """What onnxruntime computes for a batch, or one by one where the batch size is fixed."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.get_inputs()[0].shape
    if wanted and isinstance(wanted[0], int):
        results = [session.run(None, {"x": x.reshape(wanted)})[0].ravel() for x in X]
        return np.stack(results)
    return np.asarray(session.run(None, {"x": X})[0]).reshape(len(X), -1)

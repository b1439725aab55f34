"""Parts of an ONNX graph that do not depend on the input: evaluated once, while reading.

Exporters write shape arithmetic and functions of weights as operations. They are run by onnx's own
reference implementation, one node at a time, and only those whose result cannot be much larger
than their inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from relunorm.errors import ModelFileError
from relunorm.io.onnx.ops import Node, check_count

#: Entry by entry, with broadcasting.
# fmt: off
_ENTRYWISE = frozenset({
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Greater", "GreaterOrEqual", "HardSigmoid", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max",
    "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "Where",
})
# fmt: on

#: No larger than the input.
# fmt: off
_SHRINKING = frozenset({
    "ArgMax", "ArgMin", "CumSum", "LogSoftmax", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax", "Trilu",
})
# fmt: on


def is_constant(node: Node) -> bool:
    """Whether a node can be evaluated here: constant inputs, and an operation on the list."""
    return (
        node.kind in _ENTRYWISE | _SHRINKING
        and bool(node.inputs)
        and all(value is None or isinstance(value, np.ndarray) for value in node.inputs)
    )


def evaluate(node: Node) -> NDArray[np.generic]:
    """The value of a constant node."""
    given = [value for value in node.inputs if value is not None]
    check_count(np.broadcast_shapes(*(v.shape for v in given)) if node.kind in _ENTRYWISE else ())
    names = [f"x{k}" if value is not None else "" for k, value in enumerate(node.inputs)]
    single = helper.make_node(node.kind, names, ["y"])
    single.attribute.extend(node.proto.attribute)
    graph = helper.make_graph(
        [single],
        "constant",
        [helper.make_value_info(name, helper.make_tensor_type_proto(1, None)) for name in names],
        [helper.make_value_info("y", helper.make_tensor_type_proto(1, None))],
    )
    imports = [helper.make_opsetid("", node.opset)]
    feed = {n: v for n, v in zip(names, node.inputs, strict=True) if n}
    try:
        with np.errstate(all="ignore"):
            runner = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
            result: Any = runner.run(None, feed)
    except Exception as error:
        # The reference implementation raises whatever numpy or its own checks do.
        raise ModelFileError(f"{node.place}: {error}") from error
    return np.asarray(result[0])

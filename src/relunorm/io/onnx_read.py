"""ONNX graphs in: walk the nodes once, lowering each (see `onnx_ops` for the operations)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relunorm.errors import (
    InvalidNetworkError,
    ModelFileError,
    RelunormError,
    UnsupportedOperationError,
)
from relunorm.io import input_shape
from relunorm.io.lower import CannotLower, Lowering, Tensor
from relunorm.io.onnx_file import parse, tensor_array, without_weights
from relunorm.io.onnx_layers import OPERATIONS
from relunorm.io.onnx_ops import Node
from relunorm.network import Network

#: Operations that treat the first axis of their data input as the batch.
_BATCHED = {"Gemm", "Conv", "Flatten", "BatchNormalization", "MaxPool", "AveragePool"}

#: No operation has so many inputs unless it takes any number of them.
MANY_INPUTS = 1000

SUPPORTED = ", ".join(sorted(OPERATIONS)) + " (a final Softmax or Sigmoid: export without it)"


class _Unknown:
    """The value of an operation that could not be lowered; its consumers are passed over."""


_UNKNOWN = _Unknown()
_Value = Tensor | NDArray[Any] | _Unknown


def read_onnx(path: Path, example: Any = None) -> Network:
    """Read a network from an .onnx file, which is not trusted."""
    model = parse(path)
    weights = _weights(model.graph, str(path), path.parent)
    model = without_weights(model)  # rebound, so that the weights are held only once
    return _convert(model, weights, str(path), path.parent, example)


def from_onnx(model: onnx.ModelProto, example: Any = None) -> Network:
    """Read a network from a model in memory, which is not changed."""
    origin = model.graph.name or "ONNX model"
    return _convert(model, _weights(model.graph, origin, None), origin, None, example)


def _convert(
    model: onnx.ModelProto,
    values: dict[str, Any],
    origin: str,
    folder: Path | None,
    example: Any,
) -> Network:
    graph = model.graph
    info = _only_input(graph, values, origin)
    shape, batched = _input_shape(info, graph, values, origin, example)
    lowering = Lowering(shape)
    _define(values, info.name, lowering.input, origin)
    _walk(model, lowering, values, origin, folder)
    output = _only_output(graph, values, origin)
    return lowering.finish(output, input_shape=shape[1:] if batched else shape, origin=origin)


def _weights(graph: onnx.GraphProto, origin: str, folder: Path | None) -> dict[str, Any]:
    if graph.sparse_initializer:
        raise ModelFileError(f"{origin}: sparse initializers are not supported; store them dense")
    values: dict[str, Any] = {}
    for tensor in graph.initializer:
        _define(values, tensor.name, tensor_array(tensor, origin, folder), origin)
    return values


def _walk(
    model: onnx.ModelProto,
    lowering: Lowering,
    values: dict[str, Any],
    origin: str,
    folder: Path | None,
) -> None:
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    used = {name for node in model.graph.node for name in node.input}
    used |= {output.name for output in model.graph.output}
    unsupported: list[tuple[str, str]] = []
    for proto in model.graph.node:
        label = proto.name or (proto.output[0] if proto.output else "unnamed node")
        missing = [name for name in proto.input if name and name not in values]
        if missing:
            raise ModelFileError(
                f"{origin}: node {label!r} ({proto.op_type}) reads {missing[0]!r}, which nothing "
                "before it computes: the graph has a cycle, or its nodes are out of order"
            )
        inputs = [values[name] if name else None for name in proto.input]
        results: Sequence[_Value] = [_UNKNOWN] * len(proto.output)
        if not any(value is _UNKNOWN for value in inputs):
            node = Node(proto, label, inputs, lowering, opset, used, origin, folder)
            try:
                results = _apply(node)
            except CannotLower as reason:
                domain = "" if proto.domain in ("", "ai.onnx") else f"{proto.domain}."
                detail = f" ({reason})" if str(reason) else ""
                unsupported.append((label, f"{domain}{proto.op_type}{detail}"))
        for name, value in zip(proto.output, results, strict=False):
            if name:
                _define(values, name, value, origin)
    if unsupported:
        raise UnsupportedOperationError(origin, unsupported, SUPPORTED)


def _apply(node: Node) -> Sequence[_Value]:
    operation = OPERATIONS.get(node.kind)
    if operation is None or node.proto.domain not in ("", "ai.onnx"):
        raise CannotLower
    _check_signature(node)
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused by the network's own check
            result = operation(node)
    except RelunormError as error:
        raise ModelFileError(f"{node.place}: {error}") from error
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError) as error:
        # Shapes and attributes come from the file: numpy's complaint about them is about the file.
        raise ModelFileError(f"{node.place}: {error}") from error
    return result if isinstance(result, list) else [result]


def _check_signature(node: Node) -> None:
    """Refuse missing inputs and attributes of the wrong type, by the operation's own schema."""
    newest = onnx.defs.onnx_opset_version()
    try:
        schema = onnx.defs.get_schema(node.kind, max(1, min(node.opset, newest)))
    except onnx.defs.SchemaError:
        raise ModelFileError(f"{node.place}: opset {node.opset} has no {node.kind}") from None
    variadic = schema.max_input > MANY_INPUTS
    required = node.inputs if variadic else node.inputs[: schema.min_input]
    if any(value is None for value in required) or not (
        schema.min_input <= len(node.inputs) <= schema.max_input
    ):
        raise ModelFileError(
            f"{node.place}: {len(node.inputs)} inputs, some perhaps left out; "
            f"{schema.min_input} to {schema.max_input} are expected"
        )
    for attribute in node.proto.attribute:
        known = schema.attributes.get(attribute.name)
        if known is not None and int(known.type) != attribute.type:  # type: ignore[call-overload]
            raise ModelFileError(f"{node.place}: attribute {attribute.name!r} has the wrong type")


def _define(values: dict[str, Any], name: str, value: _Value, origin: str) -> None:
    if name in values:
        raise ModelFileError(f"{origin}: the name {name!r} is defined twice")
    values[name] = value


def _only_input(graph: onnx.GraphProto, values: dict[str, Any], origin: str) -> onnx.ValueInfoProto:
    inputs = [info for info in graph.input if info.name not in values]
    if len(inputs) != 1:
        names = ", ".join(repr(info.name) for info in inputs) or "none"
        raise ModelFileError(f"{origin}: {len(inputs)} inputs ({names}), expected exactly one")
    return inputs[0]


def _only_output(graph: onnx.GraphProto, values: dict[str, Any], origin: str) -> Tensor:
    if len(graph.output) != 1:
        names = ", ".join(repr(info.name) for info in graph.output) or "none"
        raise ModelFileError(
            f"{origin}: {len(graph.output)} outputs ({names}), expected exactly one"
        )
    name = graph.output[0].name
    if name not in values:
        raise ModelFileError(f"{origin}: nothing computes the output {name!r}")
    if not isinstance(values[name], Tensor):
        raise InvalidNetworkError(f"{origin}: the output {name!r} does not depend on the input")
    return values[name]


def _input_shape(
    info: onnx.ValueInfoProto,
    graph: onnx.GraphProto,
    values: dict[str, Any],
    origin: str,
    example: Any,
) -> tuple[tuple[int, ...], bool]:
    """The shape to lower for, and whether its first axis is the batch (then of size one)."""
    consumer = next((node for node in graph.node if info.name in node.input), None)
    kind = info.type.tensor_type
    known = kind.HasField("shape")
    dims = [int(d.dim_value) if d.HasField("dim_value") else None for d in kind.shape.dim]
    if any(d is not None and d < 0 for d in dims):
        raise ModelFileError(f"{origin}: input {info.name!r} has a negative dimension: {dims}")
    if example is not None:
        wanted = input_shape(example, origin)
        if known and len(dims) == len(wanted):
            return wanted, False
        return (1, *wanted), True
    if not known or None in dims[1:]:
        features = _features(info.name, consumer, values)
        if features is None or (known and len(dims) != 2):
            shown = ", ".join("?" if d is None else str(d) for d in dims) if known else "unknown"
            raise ModelFileError(
                f"{origin}: the shape of input {info.name!r} is not fixed ({shown}); pass the "
                "shape of one input, for example relunorm.load(path, example=(1, 28, 28))"
            )
        return (1, features), True
    if not dims:
        raise ModelFileError(f"{origin}: input {info.name!r} is a single number without axes")
    first, rest = dims[0], [d or 0 for d in dims[1:]]
    batched = len(dims) > 1 and (first in (None, 1) or _reads_batch(info.name, consumer))
    if first is None and not batched:
        raise ModelFileError(f"{origin}: input {info.name!r} has one axis of unknown length")
    return (1 if batched else int(first or 0), *rest), batched


def _reads_batch(name: str, consumer: onnx.NodeProto | None) -> bool:
    if consumer is None:
        return False
    left = consumer.op_type == "MatMul" and consumer.input[0] == name
    return left or consumer.op_type in _BATCHED


def _features(name: str, consumer: onnx.NodeProto | None, values: dict[str, Any]) -> int | None:
    """How many inputs the first operation fixes, if it is a matrix product with a constant."""
    if consumer is None or consumer.op_type not in ("Gemm", "MatMul") or len(consumer.input) < 2:
        return None
    weight = values.get(consumer.input[1])
    if consumer.input[0] != name or not isinstance(weight, np.ndarray) or weight.ndim != 2:
        return None
    transposed = any(a.name == "transB" and a.i for a in consumer.attribute)
    return int(weight.shape[1 if transposed else 0])

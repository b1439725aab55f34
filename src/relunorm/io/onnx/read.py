"""ONNX graphs in: walk the nodes once, lowering each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relunorm.errors import (
    InvalidNetworkError,
    ModelFileError,
    RelunormError,
)
from relunorm.io import input_shape
from relunorm.io.archive import coarsest
from relunorm.io.graph.heads import Headed, Stuck, finished
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.refusals import refused
from relunorm.io.onnx import affine, moves, units, windowed  # noqa: F401 - fill OPERATIONS
from relunorm.io.onnx.file import parse, tensor_array, without_weights
from relunorm.io.onnx.head import (
    FOLLOWERS,
    OPENERS,
    apply_head,
    choose_output,
    columns_in_metadata,
    labels_in_metadata,
)
from relunorm.io.onnx.site import (
    ENTRYWISE,
    MACHINE_LEARNING,
    OPERATIONS,
    Node,
    check_count,
    reference,
)
from relunorm.network import Network
from relunorm.network.head import Head

#: Operations that treat the first axis of their data input as the batch.
_BATCHED = {"Gemm", "Conv", "Flatten", "BatchNormalization", "MaxPool", "AveragePool"}

#: Operations with constants in front of the first layer: preprocessing, which leaves the shape.
_SCALING = ("Add", "Sub", "Mul", "Div", "Cast", "Identity", "Scaler")

#: No operation has so many inputs unless it takes any number of them.
MANY_INPUTS = 1000

_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class _Unknown:
    """The value of an operation that could not be lowered; its consumers are passed over.

    Attributes:
        head: label and name of the operation that opened a head on it, if one did.
    """

    head: tuple[str, str] | None = None


_UNKNOWN = _Unknown()
_Value = Tensor | Headed | NDArray[Any] | _Unknown


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
    output = _output(graph, values, origin)
    inputs = shape[1:] if batched else shape
    network = finished(lowering, output, input_shape=inputs, origin=origin)
    classes = network.head.classes or labels_in_metadata(model, network.output_size)
    return network.replace(
        head=Head(network.head.steps, classes),
        precision=_precision(model.graph, values),
        columns=columns_in_metadata(model, origin),
        names=(info.name, graph.output[0].name if len(graph.output) == 1 else ""),
    )


def _precision(graph: onnx.GraphProto, values: dict[str, Any]) -> str:
    """Of the file's tensors; weights that are attributes of a node are float32 in every file."""
    arrays = [array for array in values.values() if isinstance(array, np.ndarray)]
    held = {
        array.dtype.name for array in arrays if array.size > 1
    }  # bfloat16 has no kind of its own
    learned = (node for node in graph.node if node.op_type in MACHINE_LEARNING and node.domain)
    if any(a.type == onnx.AttributeProto.FLOATS for node in learned for a in node.attribute):
        held.add("float32")
    return coarsest(held)


def _weights(graph: onnx.GraphProto, origin: str, folder: Path | None) -> dict[str, Any]:
    if graph.sparse_initializer:
        raise ModelFileError(f"{origin}: sparse initializers are not supported; store them dense")
    values: dict[str, Any] = {}
    for tensor in graph.initializer:
        array = tensor_array(tensor, origin, folder, text=True)
        _define(values, tensor.name, array, origin)
    return values


def _walk(
    model: onnx.ModelProto,
    lowering: Lowering,
    values: dict[str, Any],
    origin: str,
    folder: Path | None,
) -> None:
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    used = {name for node in _needed(model.graph) for name in node.input}
    used |= {output.name for output in model.graph.output}
    unsupported: dict[str, str] = {}
    for proto in _needed(model.graph):
        label = _label(proto)
        missing = [name for name in proto.input if name and name not in values]
        if missing:
            raise ModelFileError(
                f"{origin}: node {label!r} ({proto.op_type}) reads {missing[0]!r}, which nothing "
                "before it computes: the graph has a cycle, or its nodes are out of order"
            )
        inputs = [values[name] if name else None for name in proto.input]
        results: Sequence[_Value] = [_UNKNOWN] * len(proto.output)
        if any(isinstance(value, _Unknown) for value in inputs):
            results = [_passed_over(proto, label, inputs, unsupported)] * len(proto.output)
        else:
            node = Node(proto, label, inputs, lowering, opset, used, origin, folder)
            try:
                results = _apply(node)
            except CannotLower as reason:
                domain = "" if proto.domain in _DOMAINS else f"{proto.domain}."
                detail = f" ({reason})" if str(reason) else ""
                unsupported[label] = f"{domain}{proto.op_type}{detail}"
            except Stuck as stuck:
                _refuse_head(unsupported, stuck.value.place, stuck.value.operation)
        for name, value in zip(proto.output, results, strict=False):
            if name:
                _define(values, name, value, origin)
    if unsupported:
        order = [label for label in map(_label, model.graph.node) if label in unsupported]
        found = [(label, unsupported[label]) for label in dict.fromkeys(order)]
        raise refused(origin, found)


def _label(proto: onnx.NodeProto) -> str:
    return proto.name or (proto.output[0] if proto.output else "unnamed node")


def _passed_over(
    proto: onnx.NodeProto, label: str, inputs: list[Any], unsupported: dict[str, str]
) -> _Unknown:
    """Go on after something unknown, so that everything else unknown is named as well."""
    heads = [value.head for value in inputs if isinstance(value, _Unknown) and value.head]
    heads += [(value.place, value.operation) for value in inputs if isinstance(value, Headed)]
    kind = proto.op_type
    if kind in OPENERS or (heads and kind in FOLLOWERS):
        return _Unknown((heads or [(label, kind)])[0])
    for head in heads:
        _refuse_head(unsupported, *head)
    if kind not in OPERATIONS:
        unsupported[label] = kind
    return _UNKNOWN


def _refuse_head(unsupported: dict[str, str], label: str, kind: str) -> None:
    unsupported[label] = f"{kind} (only known at the end of a model)"


def _needed(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes the output depends on, in the graph's order."""
    wanted = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def _apply(node: Node) -> Sequence[_Value]:
    if is_constant(node) and node.proto.domain in _DOMAINS:
        _check_signature(node)
        return [evaluate(node)]
    headed = any(isinstance(value, Headed) for value in node.inputs)
    if headed or (node.kind in OPENERS and node.proto.domain in _DOMAINS):
        operation = apply_head
    else:
        operation = OPERATIONS.get(node.kind)
        home = ("ai.onnx.ml",) if node.kind in MACHINE_LEARNING else _DOMAINS
        if operation is None or node.proto.domain not in home:
            raise CannotLower
    if node.proto.domain in _DOMAINS:
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


def _output(graph: onnx.GraphProto, values: dict[str, Any], origin: str) -> Tensor | Headed:
    names = [info.name for info in graph.output]
    missing = [name for name in names if name not in values]
    if missing:
        raise ModelFileError(f"{origin}: nothing computes the output {missing[0]!r}")
    found = [values[name] for name in names]
    if len(found) == 1 and not isinstance(found[0], Tensor | Headed):
        raise InvalidNetworkError(f"{origin}: the output {names[0]!r} does not depend on the input")
    return choose_output(names, found, origin)


def _input_shape(
    info: onnx.ValueInfoProto,
    graph: onnx.GraphProto,
    values: dict[str, Any],
    origin: str,
    example: Any,
) -> tuple[tuple[int, ...], bool]:
    """The shape to lower for, and whether its first axis is the batch (then of size one)."""
    name, consumer = _behind_scaling(info.name, graph, values)
    kind = info.type.tensor_type
    known = kind.HasField("shape")
    dims = [int(d.dim_value) if d.HasField("dim_value") else None for d in kind.shape.dim]
    if dims and dims[0] == -1:  # not legal, but a common spelling of a free batch
        dims[0] = None
    if any(d is not None and d < 0 for d in dims):
        raise ModelFileError(f"{origin}: input {info.name!r} has a negative dimension: {dims}")
    if example is not None:
        wanted = input_shape(example, origin)
        if known and len(dims) == len(wanted):
            return wanted, False
        return (1, *wanted), True
    if not known or None in dims[1:]:
        features = _features(name, consumer, values)
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
    batched = len(dims) > 1 and (first in (None, 1) or _reads_batch(name, consumer))
    if first is None and not batched:
        raise ModelFileError(f"{origin}: input {info.name!r} has one axis of unknown length")
    return (1 if batched else int(first or 0), *rest), batched


def _reads_batch(name: str, consumer: onnx.NodeProto | None) -> bool:
    if consumer is None:
        return False
    left = consumer.op_type == "MatMul" and consumer.input[0] == name
    return left or consumer.op_type in _BATCHED


def _behind_scaling(
    name: str, graph: onnx.GraphProto, values: dict[str, Any]
) -> tuple[str, onnx.NodeProto | None]:
    """The first operation behind casts and arithmetic with constants, and what it reads."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        readers = [node for node in graph.node if name in node.input]
        node = readers[0] if readers else None
        others = [] if node is None else [n for n in node.input if n != name and n]
        known = all(isinstance(values.get(n), np.ndarray) for n in others)
        if node is None or node.op_type not in _SCALING or not known or len(readers) > 1:
            return name, node
        name = node.output[0]
    return name, None


def _features(name: str, consumer: onnx.NodeProto | None, values: dict[str, Any]) -> int | None:
    """How many inputs the first operation fixes, if it is a matrix product with a constant."""
    if consumer is None or consumer.op_type not in ("Gemm", "MatMul") or len(consumer.input) < 2:
        return None
    weight = values.get(consumer.input[1])
    if consumer.input[0] != name or not isinstance(weight, np.ndarray) or weight.ndim != 2:
        return None
    transposed = any(a.name == "transB" and a.i for a in consumer.attribute)
    return int(weight.shape[1 if transposed else 0])


#: Entry by entry, with broadcasting.
# fmt: off
_ENTRYWISE = ENTRYWISE | {
    "Add", "And", "Ceil", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Mean", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "Reciprocal", "Round", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt", "Sub",
    "Sum", "Tanh", "Where",
}
# fmt: on

#: No larger than the input.
# fmt: off
_SHRINKING = frozenset({
    "ArgMax", "ArgMin", "CumSum", "DequantizeLinear", "LogSoftmax", "QuantizeLinear", "ReduceL1",
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Softmax", "Trilu",
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
    return reference(node, node.inputs)[0]

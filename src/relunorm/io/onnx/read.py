"""ONNX graphs in: walk the nodes once, lowering each."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relunorm.errors import SENSELESS, InvalidNetworkError, ModelFileError, RelunormError
from relunorm.io import input_shape
from relunorm.io.archive import coarsest
from relunorm.io.graph import heads
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed, finished
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.walk import Call, Walk
from relunorm.io.onnx.file import (
    COLUMNS,
    DEFAULT,
    LEARNED,
    Node,
    check_count,
    parse,
    reference,
    tensor_array,
    type_name,
    without_weights,
)
from relunorm.io.onnx.operations import (
    AFTER,
    FOLLOWERS,
    MACHINE_LEARNING,
    OPENERS,
    OPERATIONS,
    UNITS,
)
from relunorm.io.onnx.shapes import MOVES, keeps_batch
from relunorm.network import Network
from relunorm.network.columns import Column, columns_from
from relunorm.network.head import Head, plain_labels

#: Operations that treat the first axis of their data input as the batch.
_BATCHED = {"Gemm", "Conv", "Flatten", "BatchNormalization", "MaxPool", "AveragePool"}

#: Operations with constants in front of the first layer: preprocessing, which leaves the shape.
_SCALING = ("Add", "Sub", "Mul", "Div", "Cast", "Identity", "Scaler")

#: No operation has so many inputs unless it takes any number of them.
MANY_INPUTS = 1000

#: What may put the batch elsewhere, where it is not followed.
_REORDERED = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze")

#: What leaves whole numbers as they are, and what reads them without rounding.
_WHOLE = frozenset({*MOVES, "Identity", "Concat", "ArrayFeatureExtractor", "Imputer"})
_CASTS = MACHINE_LEARNING | {"Cast", "Shape"}

#: Keys of a model's metadata under which people store the labels of its outputs.
_LABEL_KEYS = ("classes", "class_names", "labels", "names")


def read_onnx(path: Path, example: Any = None) -> Network:
    """Read a network from an .onnx file, which is not trusted."""
    reader = _Reader(parse(path), str(path), path.parent)
    reader.model = without_weights(reader.model)  # so that the weights are held only once
    return reader.network(example)


def from_onnx(model: onnx.ModelProto, example: Any = None) -> Network:
    """Read a network from a model in memory, which is not changed."""
    return _Reader(model, model.graph.name or "ONNX model", None).network(example)


class _Reader:
    """A model and what is known of its values by name: constants, and what depends on the input.

    Attributes:
        rows: the values known to hold one input a row, of any number of them.
        whole: the values that depend on the input and are whole numbers.
    """

    def __init__(self, model: onnx.ModelProto, origin: str, folder: Path | None):
        self.model, self.origin, self.folder = model, origin, folder
        self.values: dict[str, Any] = {}
        self.rows: set[str] = set()
        self.whole: set[str] = set()
        if model.graph.sparse_initializer:
            raise self.fault("sparse initializers are not supported; store them dense")
        for tensor in model.graph.initializer:
            self.define(tensor.name, tensor_array(tensor, origin, folder, text=True))

    def fault(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.origin}: {what}")

    def define(self, name: str, value: Any) -> None:
        if name in self.values:
            raise self.fault(f"the name {name!r} is defined twice")
        self.values[name] = value

    def network(self, example: Any) -> Network:
        infos = self.inputs()
        if len(infos) == 1:
            shape, batched = self.input_shape(infos[0], example)
            lowering = Lowering(shape)
            self.define(infos[0].name, lowering.input)
        else:  # the columns of a table
            shape, batched = (1, len(infos)), True
            lowering = Lowering(shape)
            for k, info in enumerate(infos):
                self.define(info.name, lowering.rearrange(lowering.input, np.array([[k]])))
        self.rows = {info.name for info in infos if batched and _is_free(info)}
        self.whole = {info.name for info in infos if _is_whole(info)}
        self.walk(lowering)
        inputs, outputs = shape[1:] if batched else shape, self.model.graph.output
        network = finished(lowering, self.output(), input_shape=inputs, origin=self.origin)
        classes = network.head.classes or _labels(self.model, network.output_size)
        return network.replace(
            head=Head(network.head.steps, classes),
            precision=self.precision(),
            columns=self.columns() or [Column(i.name) for i in infos if len(infos) > 1],
            names=(
                infos[0].name if len(infos) == 1 else "",
                outputs[0].name if len(outputs) == 1 else "",
            ),
        )

    def precision(self) -> str:
        """Of the file's tensors; a node's attributes that are weights are float32 in every file."""
        arrays = [array for array in self.values.values() if isinstance(array, np.ndarray)]
        # bfloat16 has no kind of its own
        held = {array.dtype.name for array in arrays if array.size > 1}
        nodes = self.model.graph.node
        learned = (node for node in nodes if node.op_type in MACHINE_LEARNING and node.domain)
        if any(a.type == onnx.AttributeProto.FLOATS for node in learned for a in node.attribute):
            held.add("float32")
        return coarsest(held)

    def walk(self, lowering: Lowering) -> None:
        """Lower the nodes in order."""
        model, values = self.model, self.values
        opset = max((o.version for o in model.opset_import if o.domain in DEFAULT), default=1)
        needed, walk = _needed(model.graph), Walk(lowering, self.origin)
        used = {name for node in needed for name in node.input}
        used |= {output.name for output in model.graph.output}
        for proto in needed:
            label = proto.name or (proto.output[0] if proto.output else "unnamed node")
            missing = [name for name in proto.input if name and name not in values]
            if missing:
                raise self.fault(
                    f"node {label!r} ({proto.op_type}) reads {missing[0]!r}, which nothing before "
                    "it computes: the graph has a cycle, or its nodes are out of order"
                )
            inputs = [values[name] if name else None for name in proto.input]
            node = Node(proto, label, inputs, lowering, opset, used, self.origin, self.folder)
            met = not self.whole.isdisjoint(proto.input)
            if met and proto.op_type in _WHOLE:
                self.whole.update(proto.output)
            rounds = met and proto.op_type not in _WHOLE | _CASTS
            results = walk.lower(_call(node), inputs, partial(_apply, node, rounds, self.rows))
            if not isinstance(results, list):
                results = [results] * len(proto.output)
            for name, value in zip(proto.output, results, strict=False):
                if name:
                    self.define(name, value)
        walk.check()

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that the output depends on: one, or several that are one number a row each."""
        graph = self.model.graph
        inputs = [info for info in graph.input if info.name not in self.values]
        read = {name for node in _needed(graph) for name in node.input}
        read |= {info.name for info in graph.output}
        used = [info for info in inputs if info.name in read] or inputs
        if len(used) == 1 or (used and all(map(_is_column, used))):
            return used
        names = ", ".join(repr(info.name) for info in used) or "none"
        raise self.fault(
            f"{len(used)} inputs ({names}), expected one, or one number a row in each; export the "
            "model with all columns in one input (skl2onnx: initial_types=[('x', "
            "FloatTensorType([None, columns]))]), or pass the model itself to relunorm"
        )

    def output(self) -> Tensor | Headed:
        names = [info.name for info in self.model.graph.output]
        missing = [name for name in names if name not in self.values]
        if missing:
            raise self.fault(f"nothing computes the output {missing[0]!r}")
        found = [self.values[name] for name in names]
        if len(found) == 1 and not isinstance(found[0], Tensor | Headed):
            raise InvalidNetworkError(
                f"{self.origin}: the output {names[0]!r} does not depend on the input"
            )
        return _choose_output(names, found, self.origin)

    def columns(self) -> tuple[Column, ...]:
        """The columns of the table that a network which relunorm wrote was fitted to."""
        held = self.model.metadata_props
        text = next((entry.value for entry in held if entry.key == COLUMNS), "[]")
        try:
            return columns_from(json.loads(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise self.fault(f"its metadata {COLUMNS!r} is damaged ({error})") from None

    def input_shape(self, info: onnx.ValueInfoProto, example: Any) -> tuple[tuple[int, ...], bool]:
        """The shape to lower for, and whether its first axis is the batch (then of size one)."""
        name, consumer = self.behind_scaling(info.name)
        kind = info.type.tensor_type
        known = kind.HasField("shape")
        dims = [int(d.dim_value) if d.HasField("dim_value") else None for d in kind.shape.dim]
        if dims and dims[0] == -1:  # not legal, but a common spelling of a free batch
            dims[0] = None
        if any(d is not None and d < 0 for d in dims):
            raise self.fault(f"input {info.name!r} has a negative dimension: {dims}")
        if example is not None:
            wanted = input_shape(example, self.origin)
            return (wanted, False) if known and len(dims) == len(wanted) else ((1, *wanted), True)
        if not known or None in dims[1:]:
            features = self.features(name, consumer)
            if features is None or (known and len(dims) != 2):
                shown = (
                    ", ".join("?" if d is None else str(d) for d in dims) if known else "unknown"
                )
                raise self.fault(
                    f"the shape of input {info.name!r} is not fixed ({shown}); pass the shape of "
                    "one input, for example relunorm.load(path, example=(1, 28, 28))"
                )
            return (1, features), True
        if not dims:
            raise self.fault(f"input {info.name!r} is a single number without axes")
        first, rest = dims[0], [d or 0 for d in dims[1:]]
        batched = len(dims) > 1 and (first in (None, 1) or _reads_batch(name, consumer))
        if first is None and not batched:
            raise self.fault(f"input {info.name!r} has one axis of unknown length")
        return (1 if batched else int(first or 0), *rest), batched

    def behind_scaling(self, name: str) -> tuple[str, onnx.NodeProto | None]:
        """The first operation behind casts and arithmetic with constants, and what it reads."""
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            readers = [node for node in self.model.graph.node if name in node.input]
            node = readers[0] if readers else None
            others = [] if node is None else [n for n in node.input if n != name and n]
            known = all(isinstance(self.values.get(n), np.ndarray) for n in others)
            if node is None or node.op_type not in _SCALING or not known or len(readers) > 1:
                return name, node
            name = node.output[0]
        return name, None

    def features(self, name: str, consumer: onnx.NodeProto | None) -> int | None:
        """How many inputs the first operation fixes, a matrix product with a constant."""
        if (
            consumer is None
            or consumer.op_type not in ("Gemm", "MatMul")
            or len(consumer.input) < 2
        ):
            return None
        weight = self.values.get(consumer.input[1])
        if consumer.input[0] != name or not isinstance(weight, np.ndarray) or weight.ndim != 2:
            return None
        transposed = any(a.name == "transB" and a.i for a in consumer.attribute)
        return int(weight.shape[1 if transposed else 0])


def _call(node: Node) -> Call:
    kind, domain = node.kind, node.proto.domain
    plain = domain in (*DEFAULT, LEARNED)
    own = not plain or (domain == LEARNED) == (kind in MACHINE_LEARNING)
    shown = f"{domain}.{kind}" if domain == LEARNED else f"{kind}"  # of a damaged file bytes
    known = own and (kind in OPERATIONS or is_constant(node))
    return Call(node.name, shown, known, own and kind in OPENERS, own and kind in FOLLOWERS)


def _needed(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes the output depends on, in the graph's order."""
    wanted = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def _apply(node: Node, rounds: bool, rows: set[str]) -> list[Any]:
    """The results of one node; what is wrong with its shapes or attributes is about the file.

    Args:
        rounds: whether it computes with whole numbers.
        rows: values with one input a row, in a batch of any size; its own are added.
    """
    if rounds:
        raise CannotLower("computes with whole numbers; cast the input to floats first")
    if node.proto.domain in DEFAULT:
        node = _checked(node)
    if is_constant(node):
        return [evaluate(node)]
    try:
        result = (AFTER.get(node.kind) or OPERATIONS[node.kind])(node)
    except (RelunormError, *SENSELESS) as error:
        raise ModelFileError(f"{node.place}: {error}") from error
    results = result if isinstance(result, list) else [result]
    live = [value.shape for value in results if isinstance(value, Tensor | Headed)]
    if live and not rows.isdisjoint(node.proto.input):
        kept = _keeps_rows(node, live)
        if kept is False:
            raise CannotLower("mixes the inputs of a batch")
        if kept:
            rows.update(node.proto.output)
    return results


def _keeps_rows(node: Node, shapes: Sequence[tuple[int, ...]]) -> bool | None:
    """Whether a node makes rows of rows, one of each; None where the batch becomes another axis."""
    if node.kind in MOVES:
        return keeps_batch(node) or (None if node.kind in _REORDERED else False)
    rank = max(len(value.shape) for value in node.inputs if isinstance(value, Tensor | Headed))
    if any(len(shape) > rank for shape in shapes):
        return None
    return all(shape[:1] == (1,) for shape in shapes)


def _checked(node: Node) -> Node:
    """The node, its inputs and attributes as the operation's own schema wants them."""
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
    given = {attribute.name: attribute.type for attribute in node.proto.attribute}
    for name, kind in given.items():
        known = schema.attributes.get(name)
        if known is None:
            raise ModelFileError(f"{node.place}: opset {node.opset} knows no attribute {name!r}")
        if int(known.type) != kind:  # type: ignore[call-overload]
            raise ModelFileError(f"{node.place}: attribute {name!r} has the wrong type")
    missing = [name for name, a in schema.attributes.items() if a.required and name not in given]
    if missing:
        raise ModelFileError(f"{node.place}: attribute {missing[0]!r} is missing")
    return _aligned(node) if "broadcast" in schema.attributes and node.kind != "Gemm" else node


def _aligned(node: Node) -> Node:
    """The node with its second input put beside the axes of the first that it names: before
    opset 7 a file said so itself."""
    first, second = node.inputs
    wide, narrow = first.shape, second.shape
    at = int(node.attribute("axis", len(wide) - len(narrow)))
    shape = (*narrow, *(1,) * (len(wide) - at - len(narrow)))
    alone = not node.attribute("broadcast", 0) and wide != narrow
    met = wide[len(wide) - len(shape) :] if len(shape) <= len(wide) else ()
    if alone or at < 0 or any(n not in (1, w) for n, w in zip_longest(shape, met)):
        raise ModelFileError(f"{node.place}: {narrow} does not fit {wide} from axis {at} on")
    if isinstance(second, np.ndarray):
        return replace(node, inputs=[first, second.reshape(shape)])
    return replace(node, inputs=[first, meaning.reshaped(node.low, second, shape)])


def _is_whole(info: onnx.ValueInfoProto) -> bool:
    floats = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "UNDEFINED")
    return type_name(info.type.tensor_type.elem_type) not in floats


def _is_free(info: onnx.ValueInfoProto) -> bool:
    """Whether the batch may have any size."""
    dims = info.type.tensor_type.shape.dim
    return not dims or dims[0].dim_value < 1


def _is_column(info: onnx.ValueInfoProto) -> bool:
    """Whether an input is of shape (rows, 1), and no text."""
    kind = info.type.tensor_type
    dims = kind.shape.dim
    numbers = kind.elem_type not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
    return numbers and len(dims) == 2 and dims[0].dim_value <= 1 and dims[1].dim_value == 1


def _reads_batch(name: str, consumer: onnx.NodeProto | None) -> bool:
    if consumer is None:
        return False
    left = consumer.op_type == "MatMul" and consumer.input[0] == name
    return left or consumer.op_type in _BATCHED


def _choose_output(names: Sequence[str], values: Sequence[Any], origin: str) -> Tensor | Headed:
    """The one output that says all the others do: probabilities before labels, before logits.

    scikit-learn's converters write the label and the probabilities; some people the logits too.
    """
    live = [value for value in values if isinstance(value, Tensor | Headed)]
    several = [v for v in live if isinstance(v, Headed) and v.steps[-1].kind == "greater"]
    labels = [v for v in live if isinstance(v, Headed) and v.steps[-1].kind == "argmax"] + several
    others = [v for v in live if v not in labels]
    best = max(others or labels or live, key=lambda v: len(getattr(v, "steps", ())), default=None)
    base = best.tensor.affine if isinstance(best, Headed) else getattr(best, "affine", None)
    same = all((v.tensor if isinstance(v, Headed) else v).affine is base for v in live)
    if best is None or not same or len(live) < len(values):
        shown = ", ".join(map(repr, names)) or "none"
        raise ModelFileError(
            f"{origin}: {len(values)} outputs ({shown}), expected one, or several that all follow "
            "from the same logits; onnx.utils.extract_model cuts out what leads to one of them"
        )
    classes = next((v.classes for v in live if isinstance(v, Headed) and v.classes), ())
    if several and isinstance(best, Headed):  # several labels at once: no output excludes another
        return heads.replace(best, classes=())
    return heads.replace(best, classes=classes) if isinstance(best, Headed) and classes else best


def _labels(model: onnx.ModelProto, outputs: int) -> tuple[Any, ...]:
    """Class labels among a model's metadata, where there are as many as the outputs need."""
    wanted = 2 if outputs == 1 else outputs
    properties = {entry.key: entry.value for entry in model.metadata_props}
    for key in _LABEL_KEYS:
        found = _listed(properties.get(key, ""))
        if len(found) == wanted and len(set(map(str, found))) == wanted:
            return plain_labels(found)
    return ()


def _listed(text: str) -> list[Any]:
    """A list, or a mapping 0, 1, ... to labels, written as JSON or as Python prints it."""
    if len(text) > 1 << 20:
        return []
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(value, dict) and all(str(k).isdecimal() for k in value):
            value = [value[k] for k in sorted(value, key=int)]
        if isinstance(value, list | tuple) and all(isinstance(v, str | int) for v in value):
            return list(value)
    return []


#: Entry by entry, with broadcasting.
# fmt: off
_ENTRYWISE = frozenset(UNITS) | {
    "Add", "And", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Floor", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg",
    "Not", "Or", "PRelu", "Pow", "Reciprocal", "Selu", "Sin", "Softsign", "Sqrt", "Sub", "Sum",
    "Where",
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
        node.proto.domain in DEFAULT
        and node.kind in _ENTRYWISE | _SHRINKING
        and (node.opset >= 13 or not node.kind.endswith("Softmax"))  # over several axes before
        and bool(node.inputs)
        and all(value is None or isinstance(value, np.ndarray) for value in node.inputs)
    )


def evaluate(node: Node) -> NDArray[np.generic]:
    """The value of a constant node."""
    given = [value for value in node.inputs if value is not None]
    check_count(np.broadcast_shapes(*(v.shape for v in given)) if node.kind in _ENTRYWISE else ())
    return reference(node, node.inputs)[0]

"""ONNX from an untrusted file: parsed, weights as arrays, external data in its folder, and one node
of the graph with its inputs lowered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from relunorm.errors import InvalidNetworkError, ModelFileError
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Lowering, Tensor

#: The key of a model's metadata that holds the columns of its table.
COLUMNS = "relunorm.columns"
_FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
_OTHERS = ("INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL")

#: The default domain, and that of machine learning.
DEFAULT, LEARNED = ("", "ai.onnx"), "ai.onnx.ml"


def parse(path: Path) -> onnx.ModelProto:
    """The model in a file, without its external data."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ModelFileError(f"{path}: not an ONNX file, or a truncated one ({error})") from None
    if not model.graph.node and not model.graph.output:
        raise ModelFileError(f"{path}: parses as ONNX but holds no graph")
    return model


def is_whole(path: Path) -> bool:
    """Whether a file holds all its weights, none of them lying in files beside it."""
    weights = parse(path).graph.initializer
    return not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in weights)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without its initializers; the argument is emptied.

    Protobuf keeps all of a message in one arena, so only a new message lets the old weights go.
    """
    model.graph.ClearField("initializer")
    return onnx.ModelProto.FromString(model.SerializeToString())


def tensor_array(
    tensor: onnx.TensorProto, origin: str, folder: Path | None, *, text: bool = False
) -> NDArray[Any]:
    """The numbers of a tensor, checked against its claimed shape before memory is taken.

    Args:
        folder: where external data may lie; None refuses external data.
        text: whether a tensor of class labels is accepted too.
    """
    place = f"{origin}: tensor {tensor.name!r}"
    kind = type_name(tensor.data_type)
    if text and kind == "STRING" and tensor.dims == [len(tensor.string_data)]:
        return np.array([label.decode("utf-8", "replace") for label in tensor.string_data])
    if kind not in (*_FLOATS, *_OTHERS):
        raise ModelFileError(f"{place}: element type {kind}, expected numbers")
    if any(n < 0 for n in tensor.dims):
        raise ModelFileError(f"{place}: negative dimension in {list(tensor.dims)}")
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, place, folder)
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, MemoryError, OverflowError, OSError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"{place}: its data do not fill the shape {list(tensor.dims)} it claims ({error})"
        ) from None


def _external(tensor: onnx.TensorProto, place: str, folder: Path | None) -> NDArray[Any]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelFileError(
            f"{place}: its data lie in the file {location!r}; pass the path of the model instead"
        )
    # Resolve links first: what counts is the file that would be opened.
    root = Path(os.path.realpath(folder))
    target = Path(os.path.realpath(root / location))
    if not location or os.path.isabs(location) or not target.is_relative_to(root):
        raise ModelFileError(
            f"{place}: external data {location!r} leaves the model's folder; refused"
        )
    if not target.is_file():
        raise ModelFileError(f"{place}: external data file {location!r} does not exist")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    offset, size = int(entries.get("offset", 0)), math.prod(tensor.dims) * dtype.itemsize
    length = int(entries.get("length", size))
    if offset < 0 or length != size or offset + length > target.stat().st_size:
        raise ModelFileError(
            f"{place}: shape {list(tensor.dims)} needs {size:,} bytes; {location!r} does not hold "
            f"{length:,} at offset {offset:,}"
        )
    count = math.prod(tensor.dims)
    return np.fromfile(target, dtype=dtype, count=count, offset=offset).reshape(tensor.dims)


def type_name(number: int) -> str:
    """What ONNX calls a type of elements."""
    try:
        return onnx.TensorProto.DataType.Name(number)  # type: ignore[arg-type]
    except ValueError:
        return f"number {number}"


Array = NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One node with its inputs already lowered: arrays are constants, None is left out."""

    proto: onnx.NodeProto
    name: str
    inputs: list[Any]
    low: Lowering
    opset: int
    used: set[str]
    origin: str
    folder: Path | None

    @property
    def kind(self) -> str:
        """The operation's name; in a domain that is not ONNX's own ``com.example.Name``."""
        domain, name = self.proto.domain, self.proto.op_type
        return name if domain in (*DEFAULT, LEARNED) else f"{domain}.{name}"

    @property
    def place(self) -> str:
        return f"{self.origin}: node {self.name!r} ({self.kind})"

    def attribute(self, name: str, default: Any = None) -> Any:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    return tensor_array(attribute.t, self.place, self.folder)
                return onnx.helper.get_attribute_value(attribute)
        return default

    def input(self, position: int) -> Any:
        return self.inputs[position] if position < len(self.inputs) else None

    def tensor(self, position: int = 0) -> Any:
        """An input that must depend on the network's input."""
        value = self.input(position)
        if not isinstance(value, Tensor | Headed):
            raise CannotLower(f"input {position} is a constant")
        return value

    def constant(self, position: int) -> Array:
        """An input that must be known in advance."""
        value = self.input(position)
        if not isinstance(value, np.ndarray):
            raise CannotLower(f"input {position} is not a constant")
        return value

    def integers(self, position: int, name: str) -> list[int] | None:
        """A list of ints: an attribute in old opsets, an input in new ones."""
        if self.input(position) is not None:
            return [int(n) for n in np.atleast_1d(self.constant(position))]
        values = self.attribute(name)
        return None if values is None else [int(n) for n in values]

    def extra_output_used(self) -> bool:
        return any(name in self.used for name in self.proto.output[1:] if name)


#: The doc string of an Identity node that marks a linear stage.
STAGE = "linear stage"

#: What the reference knows from an opset on only, where it means the same, but for attributes
#: that have become inputs.
_LATER: dict[str, tuple[int, tuple[str, ...]]] = {
    "DequantizeLinear": (19, ()),
    "QuantizeLinear": (19, ()),
    "Scatter": (11, ()),
    "Squeeze": (13, ("axes",)),
    "Unsqueeze": (13, ("axes",)),
    "Clip": (13, ("min", "max")),
    "Dropout": (13, ("ratio",)),
}


def reference(node: Node, inputs: Sequence[Array | None]) -> list[Array]:
    """What ONNX's own reference computes for a node of the default domain; None is left out."""
    opset, moved = _LATER.get(node.kind, (0, ()))
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.proto.attribute}
    if given.keys() & set(moved):
        kind = inputs[0].dtype if node.kind == "Clip" and inputs[0] is not None else None
        late = (np.asarray(given[name], kind) if name in given else None for name in moved)
        inputs = [*inputs[:1], *late]
    names = [f"x{k}" if value is not None else "" for k, value in enumerate(inputs)]
    outputs = [f"y{k}" for k in range(len(node.proto.output))]
    kind = "ScatterElements" if node.kind == "Scatter" else node.kind  # its name since opset 11
    single = onnx.helper.make_node(kind, names, outputs)
    single.attribute.extend(a for a in node.proto.attribute if a.name not in moved)
    feed = {name: value for name, value in zip(names, inputs, strict=True) if name}
    opset = max(node.opset, opset)
    try:
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(single, opsets={"": opset}).run(None, feed)
    except Exception as error:
        # The reference implementation raises whatever numpy or its own checks do.
        raise ModelFileError(f"{node.place}: {error}") from error
    return [np.asarray(each) for each in found]


def check_count(shape: Sequence[int]) -> None:
    """Refuse a shape with more entries than a value may have."""
    count = 1
    for n in shape:
        count *= int(n)
    if count > MAX_SIZE or any(n < 0 for n in shape):
        raise InvalidNetworkError(f"a value of shape {list(shape)}; the limit is {MAX_SIZE:,}")

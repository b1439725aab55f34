"""One node of an ONNX graph with its inputs lowered, and what ONNX's own reference makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from relunorm.errors import InvalidNetworkError, ModelFileError
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Lowering, Tensor
from relunorm.io.onnx.file import tensor_array

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
        return self.proto.op_type

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

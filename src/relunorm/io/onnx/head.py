"""The end of an ONNX graph: softmax, sigmoid, argmax and labels, in and out."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from relunorm.errors import ModelFileError
from relunorm.io.graph import heads
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.onnx.affine import linear_model
from relunorm.io.onnx.site import OPERATIONS, Node, operation
from relunorm.network.columns import Column, columns_from
from relunorm.network.head import Head, Step, plain_labels

_ENTRY = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "Exp": "exp",
    "Round": "round",
}
_MOVES = ("Identity", "Dropout", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")
_MOVES += ("Slice", "Gather")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Neg")
#: Operations on piecewise affine values that can only be a step of a head.
OPENERS = (*_ENTRY, "Softmax", "LogSoftmax", "ArgMax", "Greater")
#: Operations that may stand after a step of a head.
FOLLOWERS = (*_MOVES, *_ARITHMETIC, "Clip", "Log", "Concat", "ZipMap", "ArrayFeatureExtractor")
FOLLOWERS += ("Normalizer", "Binarizer")
_ML = "ai.onnx.ml"

#: Keys of a model's metadata under which people store the labels of its outputs.
COLUMNS = "relunorm.columns"
_LABEL_KEYS = ("classes", "class_names", "labels", "names")


def apply_head(node: Node) -> Headed:
    """One node on the values before a head, or after its first steps."""
    kind, value = node.kind, node.inputs[0]
    if kind in _ARITHMETIC:
        return heads.arithmetic(node.lowering, kind.lower(), node.inputs)
    if kind == "Concat":
        return heads.joined(node.lowering, node.inputs, int(node.attribute("axis")))
    if kind == "ArrayFeatureExtractor":
        return _labels(node)
    if not isinstance(value, Tensor | Headed):
        raise CannotLower("its first input is a constant")
    if kind in _ENTRY:
        return heads.entry(value, _ENTRY[kind], node.label, kind)  # type: ignore[arg-type]
    if kind in ("Softmax", "LogSoftmax"):
        step = "softmax" if kind == "Softmax" else "log_softmax"
        return heads.along(value, step, _softmax_axis(node, value), node.label, kind)
    if kind == "ArgMax" and not node.attribute("select_last_index", 0):
        axis = int(node.attribute("axis", 0))
        found = heads.along(value, "argmax", axis, node.label, kind)
        return found if node.attribute("keepdims", 1) else heads.without_axis(found, axis)
    if kind == "Binarizer" and node.proto.domain == _ML:
        level = float(node.attribute("threshold", 0.0))
        return heads.entry(value, "greater", node.label, kind, [level])
    if kind == "Greater" and np.size(node.constant(1)) == 1:
        return heads.entry(value, "greater", node.label, kind, [float(node.constant(1).item())])
    if isinstance(value, Headed):
        return _after(node, value)
    raise CannotLower


def _softmax_axis(node: Node, value: Tensor | Headed) -> int:
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1))
    if node.opset < 13 and axis % len(value.shape) != len(value.shape) - 1:
        raise CannotLower("over several axes at once")
    return axis


def _after(node: Node, value: Headed) -> Headed:
    if node.kind == "Log":
        return heads.logarithm(value)
    if node.kind == "Clip":
        ends = [
            node.attribute(name, default) if node.input(k) is None else node.constant(k).item()
            for k, name, default in ((1, "min", -np.inf), (2, "max", np.inf))
        ]
        return heads.entry(value, "clip", node.label, node.kind, [float(end) for end in ends])
    if node.kind == "ZipMap" and node.proto.domain == _ML:
        labels = node.attribute("classlabels_strings") or node.attribute("classlabels_int64s") or []
        return _named(value, labels)
    if node.kind == "Normalizer" and node.attribute("norm") == b"L1":
        if [step.kind for step in value.steps] == ["softmax"]:
            return value  # probabilities add up to 1 as they are
        raise Stuck(value)
    if node.kind == "Cast" and value.steps[-1].kind in ("argmax", "greater", "round"):
        return value  # whole numbers stay what they are in any type
    if node.kind in _MOVES:
        function: Callable[[Node], Any] = OPERATIONS[node.kind]
        rest = node.inputs[1:]

        def move(tensor: Tensor) -> Tensor:
            return function(_with_inputs(node, [tensor, *rest]))

        return heads.moved(value, move)
    raise Stuck(value)


@operation("LinearClassifier")
def _linear_classifier(node: Node) -> list[Headed | Tensor]:
    """The label and the scores of a linear model with a row of coefficients for each class."""
    names = node.attribute("classlabels_strings") or node.attribute("classlabels_ints") or []
    ends = {b"NONE": "", b"LOGISTIC": "sigmoid", b"SOFTMAX": "softmax"}
    after = node.attribute("post_transform", b"NONE")
    if len(node.attribute("intercepts", [])) != len(names) or after not in ends:
        raise CannotLower("other than with one score for each class")
    logits = linear_model(node, len(names))
    logits.joined = len(names) == 2  # of two classes it holds the rows of both, -w and w
    label = heads.along(logits, "argmax", 1, node.label, node.kind)
    label = _named(heads.without_axis(label, 1), names)
    if not ends[after]:
        return [label, logits]
    if ends[after] == "softmax":
        return [label, heads.along(logits, "softmax", 1, node.label, node.kind)]
    return [label, heads.entry(logits, "sigmoid", node.label, node.kind)]


def _with_inputs(node: Node, inputs: list[Any]) -> Node:
    return Node(
        node.proto,
        node.label,
        inputs,
        node.lowering,
        node.opset,
        node.used,
        node.origin,
        node.folder,
    )


def _labels(node: Node) -> Headed:
    """Labels picked by an argmax: the argmax, with its classes named."""
    labels, chosen = node.inputs
    if isinstance(chosen, Headed) and chosen.steps[-1].kind == "argmax":
        return _named(chosen, np.ravel(labels).tolist())
    raise Stuck(chosen if isinstance(chosen, Headed) else labels)


def _named(value: Headed, labels: Sequence[Any]) -> Headed:
    if len(labels) != value.tensor.size:
        raise ModelFileError(f"{len(labels)} labels for {value.tensor.size} outputs")
    return heads.replace(value, classes=plain_labels(labels))


def choose_output(names: Sequence[str], values: Sequence[Any], origin: str) -> Tensor | Headed:
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


def labels_in_metadata(model: onnx.ModelProto, outputs: int) -> tuple[Any, ...]:
    """Class labels among a model's metadata, where there are as many as the outputs need."""
    wanted = 2 if outputs == 1 else outputs
    properties = {entry.key: entry.value for entry in model.metadata_props}
    for key in _LABEL_KEYS:
        found = _listed(properties.get(key, ""))
        if len(found) == wanted and len(set(map(str, found))) == wanted:
            return plain_labels(found)
    return ()


def columns_in_metadata(model: onnx.ModelProto, origin: str) -> tuple[Column, ...]:
    """The columns of the table that a network which relunorm wrote was fitted to."""
    text = next((entry.value for entry in model.metadata_props if entry.key == COLUMNS), "[]")
    try:
        return columns_from(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"{origin}: its metadata {COLUMNS!r} is damaged ({error})") from None


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


class Writer(Protocol):
    """What the steps of a head need of the graph's writer."""

    dtype: np.dtype[Any]

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str: ...

    def tensor(self, name: str, array: NDArray[Any]) -> str: ...


def write_head(writer: Writer, head: Head, value: str, shape: Sequence[int]) -> str:
    """Emit the steps of a head; returns the name of the result."""
    for number, step in enumerate(head.steps):
        value = _write_step(writer, step, value, f"head{number}_{step.kind}", shape)
    return value


def _write_step(writer: Writer, step: Step, value: str, name: str, shape: Sequence[int]) -> str:
    if step.kind == "pair":
        return writer.node(
            "Concat", [writer.node("Neg", [value], f"{name}_0"), value], name, axis=-1
        )
    kinds = {step: kind for kind, step in _ENTRY.items()}
    if step.kind in kinds:
        return writer.node(kinds[step.kind], [value], name)
    if step.kind in ("softmax", "log_softmax"):
        kind = "Softmax" if step.kind == "softmax" else "LogSoftmax"
        return writer.node(kind, [value], name, axis=step.axis + 1)
    if step.kind == "argmax":
        return writer.node("ArgMax", [value], name, axis=step.axis + 1, keepdims=0)
    if step.kind == "log_sigmoid":
        return writer.node("Log", [writer.node("Sigmoid", [value], f"{name}_p")], name)
    if step.kind == "clip":
        ends = [
            writer.tensor(f"{name}_{end}", np.array(number)) if np.isfinite(number) else ""
            for end, number in zip(("low", "high"), step.numbers, strict=True)
        ]
        return writer.node("Clip", [value, *ends], name)
    if step.kind == "greater":
        level = writer.tensor(f"{name}_level", np.array(step.numbers[0]))
        above = writer.node("Greater", [value, level], f"{name}_test")
        target = onnx.helper.np_dtype_to_tensor_dtype(writer.dtype)
        return writer.node("Cast", [above], name, to=target)
    parts = [step.factors, step.offsets]
    parts = [p.reshape(shape) if p.size > 1 else p.reshape(()) for p in parts]
    factor, offset = (writer.tensor(f"{name}_{k}", p) for k, p in zip("ab", parts, strict=True))
    product = writer.node("Mul", [value, factor], f"{name}_product")
    return writer.node("Add", [product, offset], name)

"""What ONNX operations mean, but for those that move entries or slide windows (`shapes`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from relunorm.errors import InvalidNetworkError, ModelFileError
from relunorm.io.graph import heads
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.products import einsum, matmul
from relunorm.io.onnx.file import Array, Node, reference
from relunorm.io.onnx.shapes import SHAPES
from relunorm.network.head import plain_labels

#: Units, as ONNX spells them.
UNITS: dict[str, meaning.Spelling] = {
    "Relu": ("relu",),
    "LeakyRelu": ("leaky", ("alpha", 0.01)),
    "HardSigmoid": ("hard_sigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "ThresholdedRelu": ("threshold", ("alpha", 1.0), 0.0),
    "Shrink": ("shrink", ("lambd", 0.5), ("bias", 0.0)),
    "Abs": ("absolute",),
    "Sign": ("sign",),
    "Sigmoid": ("sigmoid",),
    "Tanh": ("tanh",),
    "Softplus": ("softplus",),
    "Exp": ("exp",),
    "Round": ("round",),
}
_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceL1": "l1",
}


def _unit(node: Node) -> Any:
    return meaning.unit(node.low, node.tensor(), node.name, UNITS[node.kind], node.attribute)


def _joined(combine: Callable[..., Any], node: Node) -> Any:
    """All inputs two by two; what depends on the network's input goes first."""
    first, *rest = sorted(node.inputs, key=lambda value: not isinstance(value, Tensor | Headed))
    return reduce(partial(combine, node.low), rest, first)


def _extreme(node: Node) -> Any:
    extreme = meaning.maximum if node.kind == "Max" else meaning.minimum
    return _joined(partial(extreme, name=node.name), node)


def _prelu(node: Node) -> Any:
    x, slopes = node.tensor(), node.constant(1)
    if node.opset < 7:  # one for each channel
        slopes = slopes.reshape(-1, *(1,) * (len(x.shape) - 2))
    return meaning.prelu(node.low, x, slopes, node.name)


def _clip(node: Node) -> Any:
    ends = [
        node.attribute(name) if node.input(k) is None else node.constant(k).reshape(())
        for k, name in ((1, "min"), (2, "max"))
    ]
    return meaning.clip(node.low, node.tensor(), node.name, *ends)


def _reduce(node: Node) -> Any:
    x, axes = node.tensor(), node.integers(1, "axes")
    rank = len(x.shape)
    if not axes:  # left out or empty
        axes = [] if node.attribute("noop_with_empty_axes", 0) else range(rank)
    axes = meaning.axes_over(x, axes, rank > 1)
    keep = bool(node.attribute("keepdims", 1))
    return meaning.reduced(node.low, _REDUCTIONS[node.kind], x, axes, keep, node.name)


def _cumsum(node: Node) -> Any:
    x = node.tensor()
    (axis,) = meaning.axes_over(x, [int(node.constant(1).item())], len(x.shape) > 1)

    def run(rows: Array) -> Array:
        return reference(node, [rows, np.array(1)])[0]

    return meaning.along(node.low, x, axis, run)


def _gemm(node: Node) -> Any:
    low, factors = node.low, []
    for k, turned in enumerate(("transA", "transB")):
        factor = node.input(k)
        if len(factor.shape) != 2:
            raise InvalidNetworkError(f"Gemm on an input of shape {factor.shape}, not of two axes")
        if node.attribute(turned, 0):
            factor = (
                factor.T
                if isinstance(factor, np.ndarray)
                else meaning.turned(low, factor, np.transpose)
            )
        factors.append(factor)
    alpha, beta = (np.float64(node.attribute(name, 1.0)) for name in ("alpha", "beta"))
    factors = [f * alpha if alpha != 1 and isinstance(f, np.ndarray) else f for f in factors]
    y, offset = matmul(low, *factors), node.input(2)
    if offset is None:
        return y
    if np.broadcast_shapes(y.shape, offset.shape) != y.shape:
        raise InvalidNetworkError(f"the bias of shape {offset.shape} does not fit {y.shape}")
    return meaning.add(low, y, meaning.multiply(low, offset, np.array(beta)))


def _batch_norm(node: Node) -> Any:
    x = node.tensor(0)
    if node.attribute("training_mode", 0) or node.extra_output_used():
        raise CannotLower("in training mode")
    if len(x.shape) < 2:
        raise InvalidNetworkError(f"batch normalization of shape {x.shape} has no channel axis")
    scale, shift, mean, variance = (
        np.asarray(node.constant(k), dtype=np.float64).reshape(-1) for k in range(1, 5)
    )
    epsilon = node.attribute("epsilon", 1e-5)
    if not len(scale) == len(shift) == len(mean) == len(variance) == x.shape[1]:
        raise InvalidNetworkError(f"statistics do not fit {x.shape[1]} channels")
    return meaning.normalize(node.low, x, 1, (mean, variance), epsilon, scale, shift)


def _softmax(node: Node) -> Headed:
    value = node.tensor()
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1))
    if node.opset < 13 and axis % len(value.shape) != len(value.shape) - 1:
        raise CannotLower("over several axes at once")
    return heads.along(value, "softmax" if node.kind == "Softmax" else "log_softmax", axis)


def _argmax(node: Node) -> Headed:
    if node.attribute("select_last_index", 0):
        raise CannotLower("of equals the last one")
    keep = bool(node.attribute("keepdims", 1))
    return heads.along(node.tensor(), "argmax", int(node.attribute("axis", 0)), keep)


def _greater(node: Node) -> Headed:
    if node.constant(1).size != 1:
        raise CannotLower("with a level for each entry")
    return heads.entry(node.tensor(), "greater", [float(node.constant(1).item())])


def _named(value: Headed, labels: Sequence[Any]) -> Headed:
    """The value with the labels of its outputs."""
    if len(labels) != value.tensor.size:
        raise ModelFileError(f"{len(labels)} labels for {value.tensor.size} outputs")
    return heads.replace(value, classes=plain_labels(labels))


def _scaler(node: Node) -> Any:
    """(x - offset) * scale, as scikit-learn's converters write a StandardScaler."""
    offset, scale = (
        np.asarray(node.attribute(n, [d])) for n, d in (("offset", 0.0), ("scale", 1.0))
    )
    return node.low.scale(node.low.shift(node.tensor(), -offset), scale)


def _imputer(node: Node) -> Any:
    """Complete rows, the only ones a network reads, pass as they are."""
    if not np.isnan(node.attribute("replaced_value_float", 0.0)):
        raise CannotLower("replaces a number, not what is missing")
    return node.tensor()


def _columns(node: Node) -> Any:
    """Some columns of the last axis; or labels picked by an argmax: that, with its classes."""
    values, chosen = node.inputs
    if isinstance(chosen, Headed) and chosen.steps[-1].kind == "argmax":
        return _named(chosen, np.ravel(values).tolist())
    if isinstance(chosen, Headed) or isinstance(values, Headed):
        raise Stuck(chosen if isinstance(chosen, Headed) else values)
    index = np.ravel(node.constant(1)).astype(np.intp)
    return meaning.turned(node.low, node.tensor(), lambda places: places[..., index])


def _linear_regressor(node: Node) -> Tensor:
    if node.attribute("post_transform", b"NONE") != b"NONE":
        raise CannotLower("with a transform of its result")
    return _linear_model(node, int(node.attribute("targets", 1)))


def _linear_classifier(node: Node) -> list[Headed | Tensor]:
    """The label and the scores of a linear model with a row of coefficients for each class."""
    names = node.attribute("classlabels_strings") or node.attribute("classlabels_ints") or []
    ends = {b"NONE": "", b"LOGISTIC": "sigmoid", b"SOFTMAX": "softmax"}
    after = node.attribute("post_transform", b"NONE")
    if len(node.attribute("intercepts", [])) != len(names) or after not in ends:
        raise CannotLower("other than with one score for each class")
    logits = _linear_model(node, len(names))
    logits.joined = len(names) == 2  # of two classes it holds the rows of both, -w and w
    label = _named(heads.along(logits, "argmax", 1, keep=False), names)
    if not ends[after]:
        return [label, logits]
    scores = heads.along(logits, "softmax", 1) if after == b"SOFTMAX" else None
    return [label, scores or heads.entry(logits, "sigmoid")]


def _linear_model(node: Node, outputs: int) -> Tensor:
    """The affine map of a linear model, a row of coefficients for each output."""
    weight = np.asarray(node.attribute("coefficients"), dtype=np.float64).reshape(outputs, -1)
    bias = np.asarray(node.attribute("intercepts", [0.0] * outputs), dtype=np.float64)
    return node.low.linear(node.tensor(), weight, bias.reshape(outputs))


def _zip_map(node: Node) -> Headed:
    labels = node.attribute("classlabels_strings") or node.attribute("classlabels_int64s") or []
    return _named(node.tensor(), labels)


def _normalizer(node: Node) -> Headed:
    """Probabilities add up to 1 as they are."""
    value = node.tensor()
    if node.attribute("norm") != b"L1" or [step.kind for step in value.steps] != ["softmax"]:
        raise Stuck(value)
    return value


#: Operation -> what it gives for a `Node`.
OPERATIONS: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(UNITS, _unit),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("Add", "Sum"), partial(_joined, meaning.add)),
    **dict.fromkeys(("Max", "Min"), _extreme),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **SHAPES,
    "Sub": lambda node: meaning.subtract(node.low, *node.inputs),
    "Mul": lambda node: meaning.multiply(node.low, *node.inputs),
    "Div": lambda node: meaning.divide(node.low, *node.inputs),
    "Neg": lambda node: meaning.negative(node.low, node.tensor()),
    "Mean": lambda n: n.low.scale(_joined(meaning.add, n), np.array(1 / len(n.inputs))),
    "PRelu": _prelu,
    "Einsum": lambda n: einsum(n.low, n.attribute("equation").decode(), n.inputs),
    "Clip": _clip,
    "CumSum": _cumsum,
    "MatMul": lambda node: matmul(node.low, *node.inputs),
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
    "ArgMax": _argmax,
    "Greater": _greater,
    "Scaler": _scaler,
    "Imputer": _imputer,
    "FeatureVectorizer": lambda n: n.low.concatenate(
        [n.tensor(k) for k in range(len(n.inputs))], 1
    ),
    "ArrayFeatureExtractor": _columns,
    "LinearRegressor": _linear_regressor,
    "LinearClassifier": _linear_classifier,
}
#: What is only known behind a step of a head.
AFTER: dict[str, Callable[[Node], Headed]] = {
    "Log": lambda node: heads.logarithm(node.tensor()),
    "ZipMap": _zip_map,
    "Normalizer": _normalizer,
    "Binarizer": lambda n: heads.entry(
        n.tensor(), "greater", [float(n.attribute("threshold", 0.0))]
    ),
}
#: Operations on piecewise affine values that can only be a step of a head.
OPENERS = meaning.curved(UNITS) | {"Softmax", "LogSoftmax", "ArgMax", "Greater"}
#: Operations that may stand after a step of a head.
FOLLOWERS = OPENERS.union(AFTER, {
    "Identity", "Dropout", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose",
    "Slice", "Gather", "Add", "Sub", "Mul", "Div", "Neg", "Clip", "Concat", "ArrayFeatureExtractor",
})  # fmt: skip
#: Operations of the ai.onnx.ml domain, which converters of scikit-learn models use.
MACHINE_LEARNING = frozenset({
    "Scaler", "ArrayFeatureExtractor", "LinearRegressor", "LinearClassifier", "Imputer",
    "FeatureVectorizer", "ZipMap", "Normalizer", "Binarizer",
})  # fmt: skip

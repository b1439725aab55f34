"""Keras 3 models in and out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from relunorm.display.shown import counted
from relunorm.errors import (
    InvalidNetworkError,
    MissingDependencyError,
    RelunormError,
    UnsupportedFormatError,
)
from relunorm.io import one_shape
from relunorm.io.archive import coarsest
from relunorm.io.border import Model, accepts
from relunorm.io.graph.heads import Headed, finished
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.structured import as_steps
from relunorm.io.graph.walk import Call, Unknown, Walk
from relunorm.io.graph.windows import check_entries
from relunorm.io.keras import functions, layers
from relunorm.io.keras.functions import FUNCTIONS, leaves
from relunorm.io.keras.layers import LAYERS, listed_as
from relunorm.io.keras.structured import build, can_build
from relunorm.network import Network
from relunorm.network.head import Step


def from_keras(model: Any, example: Any = None) -> Network:
    """Read a Sequential or functional model as it computes at inference; it is never run."""
    origin = f"Keras model {model.name!r}"
    if not model.built:
        raise UnsupportedFormatError(
            f"{origin} has no weights yet; call it on a batch, or model.build((None, ...))"
        )
    _check_structure(model, origin)
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise UnsupportedFormatError(f"{origin}: {_several(model)}")
    shape = one_shape(tuple(model.inputs[0].shape[1:]), example, origin)
    walk = _Walk(Lowering((1, *shape)), origin)
    output = walk.model(model, [walk.lowering.input], "")
    walk.check()
    network = finished(walk.lowering, output, input_shape=shape, origin=origin)
    return network.replace(precision=coarsest(str(weight.dtype) for weight in model.weights))


def _several(model: Any) -> str:
    """What to do with a model of several inputs, which are joined, or outputs, of which one is."""
    found = (
        f"{counted(len(model.inputs), 'input')} and {counted(len(model.outputs), 'output')}, "
        "expected one of each"
    )
    shapes = [tuple(each.shape[1:]) for each in model.inputs]
    if len(shapes) > 1 and all(len(shape) == 1 and shape[0] for shape in shapes):
        ends = [sum(shape[0] for shape in shapes[:k]) for k in range(len(shapes) + 1)]
        parts = ", ".join(f"x[:, {a}:{b}]" for a, b in pairwise(ends))
        found += (
            f"; join the inputs: x = keras.Input(({ends[-1]},)); keras.Model(x, model([{parts}]))"
        )
    elif len(shapes) > 1:
        found += "; join the inputs: keras.Model(x, model([parts of x])), with x = keras.Input(...)"
    if len(model.outputs) > 1:
        found += "; read one output after the other: keras.Model(model.inputs, model.outputs[0])"
    return found


def _check_structure(model: Any, origin: str) -> None:
    if not hasattr(model, "_run_through_graph") and not hasattr(model, "_functional"):
        raise UnsupportedFormatError(
            f"{origin}: a subclassed model ({type(model).__qualname__}) hides what it computes in "
            "Python code; build it with the Sequential or functional API"
        )


class _Walk(Walk):
    """Lowers the layers and functions of a model, and of models inside it."""

    def model(self, model: Any, inputs: list[Any], path: str) -> Any:
        """A Sequential or functional model, possibly inside another one: what it returns."""
        if hasattr(model, "_run_through_graph"):
            results = model._run_through_graph(inputs, lambda op: self._caller(op, path))
            found = [value for value in _flat(results) if isinstance(value, _VALUES)]
            return found if len(found) > 1 else found[0]
        (x,) = inputs
        for op in model.layers:
            x = self._caller(op, path)(x)
        return x

    def _caller(self, op: Any, path: str) -> Callable[..., Any]:
        place, call = f"{path}{op.name}", _call(op, f"{path}{op.name}")

        def run(*args: Any, **named: Any) -> Any:
            given = [v for v in leaves([*args, *named.values()]) if isinstance(v, _VALUES)]
            inside = hasattr(op, "_run_through_graph") or hasattr(op, "_functional")
            if inside and not named.get("training"):
                inputs = [v for v in _flat([args, named]) if isinstance(v, _VALUES)]
                return self.model(op, inputs, f"{place}/")
            try:
                found = self.lower(call, given, lambda: self._apply(op, given, args, named))
            except RelunormError as error:
                shown = f"{self.origin}: {place} ({call.operation})"
                raise InvalidNetworkError(f"{shown}: {error}") from error
            outputs = len(op._inbound_nodes[0].outputs) if op._inbound_nodes else 1
            return [found] * outputs if isinstance(found, Unknown) and outputs > 1 else found

        return run

    def _apply(self, op: Any, given: list[Any], args: Any, named: dict[str, Any]) -> Any:
        if _is_function(op):
            return FUNCTIONS[type(op).__name__](self.lowering, op, *args, **named)
        if getattr(op, "quantization_mode", None) is not None:
            raise CannotLower(f"is quantized ({op.quantization_mode})")
        if named.get("training") and not _trains_by_default(op):
            raise CannotLower("is called with training=True")
        if named.get("mask") is not None:
            raise CannotLower("with a mask")
        if len(given) < len(leaves([*args])) or not given:
            raise CannotLower("with a constant as argument")
        return LAYERS[listed_as(type(op))](self.lowering, op, given)


def _flat(values: Any) -> list[Any]:
    """What a structure holds in Keras' own order: of a dictionary that of its sorted keys."""
    return _keras().tree.flatten(values)


_VALUES = (Tensor, Headed, Unknown)


def _is_function(op: Any) -> bool:
    return type(op).__module__.startswith("keras.src.ops.") and type(op).__name__ in FUNCTIONS


def _trains_by_default(op: Any) -> bool:
    """Whether a layer is called so unless told otherwise, as those that prepare images are."""
    default = inspect.signature(op.call).parameters.get("training")
    return default is not None and default.default is True


def _call(op: Any, place: str) -> Call:
    """A class goes by its full name unless it is Keras' own: a subclass may compute something
    else."""
    name, shown = listed_as(type(op)), f"{type(op).__module__}.{type(op).__qualname__}"
    activation = getattr(getattr(op, "activation", None), "__name__", "linear")
    shown += "" if activation == "linear" else f" with the activation {activation!r}"
    known = _is_function(op) or name in LAYERS
    of = functions if _is_function(op) else layers
    return Call(place, shown, known, known and name in of.OPENERS, name in of.FOLLOWERS)


@accepts("network")
def to_keras(network: Model, dtype: str = "float64") -> Any:
    """A Keras model that computes the network: Sequential for a chain, else functional.

    A network whose structure is known becomes the convolutions, poolings and dense layers it was
    read from. Otherwise sparse maps become dense ones, since Keras has no others; step activations
    are refused. The weights are stored in ``dtype``, but most backends of Keras multiply in float32
    whatever it is.
    """
    keras = _keras()
    for place, layer in enumerate(network.layers):
        if layer.activation.kind == "step":
            raise UnsupportedFormatError(f"layer {place} ({layer.name}): Keras has no step layer")
    layered = all(step.kind not in _OPERATIONS for step in network.head.steps)
    structure = network.structure
    if structure is None or not can_build(structure):
        for affine in network.maps:
            check_entries(sum(m.shape[0] * m.shape[1] for m in affine.terms.values()))
        structure = as_steps(network)
    inputs, result = build(keras, structure, dtype)
    for step in network.head.steps:
        result = _head_step(keras, step, result, dtype)
    model = keras.Model(inputs, result)
    return keras.Sequential(model.layers) if structure.is_chain and layered else model


#: Steps that Keras has as operations, not as layers.
_OPERATIONS = ("pair", "argmax", "clip", "greater", "round")


def _head_step(keras: Any, step: Step, value: Any, dtype: str) -> Any:
    layers, ops = keras.layers, keras.ops
    if step.kind == "softmax":
        return layers.Softmax(axis=step.axis + 1, dtype=dtype)(value)
    if step.kind == "log_softmax":
        if step.axis + 2 != len(value.shape):
            raise UnsupportedFormatError("Keras' log-softmax runs along the last axis only")
        return layers.Activation("log_softmax", dtype=dtype)(value)
    if step.kind == "scale":
        parts = step.scaling(value.shape[1:])
        scale, offset = (part[None] if part.ndim else part.item() for part in parts)
        return layers.Rescaling(scale, offset, dtype=dtype)(value)
    if step.kind == "pair":
        turned = layers.Rescaling(-1.0, dtype=dtype)(value)
        return layers.Concatenate(dtype=dtype)([turned, value])
    if step.kind == "argmax":
        return ops.argmax(value, axis=step.axis + 1)
    if step.kind == "clip":
        return ops.clip(value, *step.numbers)
    if step.kind == "round":
        return ops.round(value)
    if step.kind == "greater":
        raise UnsupportedFormatError(f"Keras has no layer for the head's {step}")
    name = {"exp": "exponential"}.get(step.kind, step.kind)
    return layers.Activation(name, dtype=dtype)(value)


def _keras() -> Any:
    try:
        import keras
    except ModuleNotFoundError as error:
        how = (
            "pip install 'relunorm[keras]'"
            if error.name == "keras"
            else f"its backend needs {error.name}; set KERAS_BACKEND=torch to use the torch here"
        )
        raise MissingDependencyError(f"Keras cannot be imported: {how}") from None
    return keras

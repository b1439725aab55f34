"""What follows the piecewise affine part of a graph, followed to the graph's end.

An operation such as softmax or sigmoid closes a lowered tensor into a `Headed`. After it only
steps of a head may come, moves that keep the entries apart, and the end; a reader that meets
anything else refuses the operation that opened the head, at its own place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.network import Affine, Network
from relunorm.network.head import ALONG_AXIS, Head, Step, StepKind


class Stuck(Exception):
    """An operation met the result of a head's operation, after which it cannot be lowered."""

    def __init__(self, value: Headed):
        super().__init__(value.operation)
        self.value = value


@dataclass(eq=False)
class Headed:
    """A lowered tensor and the steps of a head taken on it.

    Attributes:
        tensor: the values before the head; axes of the steps are axes of its shape.
        shape: of the result: the tensor's, unless an argmax dropped an axis.
        place, operation: of the first step, for messages.
        classes: labels of the outputs, where the graph names them.
        last: the second of two values that were joined.
    """

    tensor: Tensor
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    place: str
    operation: str
    classes: tuple[Any, ...] = ()
    last: Tensor | None = None

    @property
    def entrywise(self) -> bool:
        """Whether no step so far mixes entries or treats them differently."""
        return not any(
            step.kind in ALONG_AXIS or (step.kind == "scale" and len(step.numbers) > 2)
            for step in self.steps
        )


Value = Tensor | Headed


def along(value: Value, kind: StepKind, axis: int, place: str, operation: str) -> Headed:
    """A softmax, log-softmax or argmax along an axis of the value."""
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise InvalidNetworkError(f"axis {axis} of a tensor of shape {value.shape}")
    axis %= rank
    if axis == 0 and rank > 1 and value.shape[0] == 1:
        raise CannotLower("runs over the batch axis")
    return _then(value, Step(kind, axis), place, operation)


def entry(
    value: Value, kind: StepKind, place: str, operation: str, numbers: Sequence[float] = ()
) -> Headed:
    """A step that acts on each entry."""
    return _then(value, Step(kind, 0, tuple(numbers)), place, operation)


def _then(value: Value, step: Step, place: str, operation: str) -> Headed:
    if isinstance(value, Tensor):
        return Headed(value, (step,), value.shape, place, operation)
    if value.steps[-1].kind == "argmax":
        raise Stuck(value)
    return replace(value, steps=(*value.steps, step))


def without_axis(value: Headed, axis: int) -> Headed:
    """An argmax whose axis is dropped from the result's shape."""
    axis %= len(value.shape)
    return replace(value, shape=value.shape[:axis] + value.shape[axis + 1 :])


def scaled(lowering: Lowering, value: Headed, factor: Any, offset: Any) -> Headed:
    """factor x + offset, with constants that broadcast to the value's shape."""
    factor, offset = (np.asarray(part, dtype=np.float64) for part in (factor, offset))
    if np.broadcast_shapes(value.shape, factor.shape, offset.shape) != value.shape:
        raise Stuck(value)
    if (
        [s.kind for s in value.steps] == ["sigmoid"]
        and (factor == -1).all()
        and (offset == 1).all()
    ):
        return replace(value, tensor=lowering.scale(value.tensor, np.array(-1.0)))
    if factor.size == offset.size == 1:
        numbers = [factor.item(), offset.item()]
    else:
        numbers = [
            float(x) for part in (factor, offset) for x in np.broadcast_to(part, value.shape).flat
        ]
    last = value.steps[-1]
    if last.kind == "argmax":
        raise Stuck(value)
    step = Step("scale", 0, tuple(numbers))
    if last.kind == "scale":
        factors, offsets = step.factors * last.factors, step.factors * last.offsets + step.offsets
        factors, offsets = np.broadcast_arrays(factors, offsets)
        step = Step("scale", 0, (*factors.tolist(), *offsets.tolist()))
        return replace(value, steps=(*value.steps[:-1], step))
    return replace(value, steps=(*value.steps, step))


def arithmetic(lowering: Lowering, kind: str, values: Sequence[Any], alpha: float = 1.0) -> Headed:
    """add, sub (a - alpha b), mul, div or neg of a value after a head's step and a constant."""
    headed = [value for value in values if isinstance(value, Headed)]
    others = [constant(value) for value in values if not isinstance(value, Headed)]
    if len(headed) != 1 or any(other is None for other in others):
        raise Stuck(headed[0])
    value, left = headed[0], isinstance(values[0], Headed)
    if kind == "neg":
        return scaled(lowering, value, -1.0, 0.0)
    other: Any = others[0]
    if kind == "mul":
        return scaled(lowering, value, other, 0.0)
    if kind == "div":
        if not left:
            raise Stuck(value)
        return scaled(lowering, value, 1.0 / other, 0.0)
    factor = alpha if kind == "add" else -alpha
    return (
        scaled(lowering, value, 1.0, factor * other)
        if left
        else scaled(lowering, value, factor, other)
    )


def logarithm(value: Headed) -> Headed:
    """log after softmax or sigmoid, which is one step of its own."""
    renamed = {"softmax": "log_softmax", "sigmoid": "log_sigmoid"}
    last = value.steps[-1]
    if last.kind not in renamed:
        raise Stuck(value)
    step = Step(renamed[last.kind], last.axis)  # type: ignore[arg-type]
    return replace(value, steps=(*value.steps[:-1], step))


def moved(value: Headed, move: Callable[[Tensor], Tensor]) -> Headed:
    """The value with its entries rearranged: any way, or only reshaped where steps mix them."""
    if value.steps[-1].kind == "argmax":
        return _reshaped_argmax(value, move)
    tensor = move(value.tensor)
    if value.entrywise:
        return replace(value, tensor=tensor, shape=tensor.shape)
    same = [n for n in tensor.shape if n != 1] == [n for n in value.tensor.shape if n != 1]
    if tensor.affine is not value.tensor.affine or not same:
        raise Stuck(value)
    steps = tuple(_with_axis(step, value.tensor.shape, tensor.shape) for step in value.steps)
    return replace(value, tensor=tensor, shape=tensor.shape, steps=steps)


def _reshaped_argmax(value: Headed, move: Callable[[Tensor], Tensor]) -> Headed:
    """Reshape the classes themselves: their order must stay."""
    size = math.prod(value.shape)
    stand_in = Lowering((size,)).input
    result = move(Tensor(value.shape, stand_in.affine))
    if result.affine is not stand_in.affine:
        raise Stuck(value)
    return replace(value, shape=result.shape)


def _with_axis(step: Step, old: Sequence[int], new: Sequence[int]) -> Step:
    """The step on a tensor reshaped by axes of size one."""
    if step.kind not in ALONG_AXIS:
        return step
    if old[step.axis] == 1:
        raise CannotLower("along an axis of size one")
    rank = sum(n != 1 for n in old[: step.axis])
    axis = [a for a, n in enumerate(new) if n != 1][rank]
    return replace(step, axis=axis)


def joined(lowering: Lowering, values: Sequence[Any], axis: int) -> Headed:
    """Several values side by side, as exporters write [1 - p, p]: all with the same steps."""
    first = next(value for value in values if isinstance(value, Headed))
    if (
        not all(isinstance(value, Headed) for value in values)
        or not first.entrywise
        or any(value.steps != first.steps for value in values)
    ):
        raise Stuck(first)
    tensor = lowering.concatenate([value.tensor for value in values], axis)
    return replace(first, tensor=tensor, shape=tensor.shape, last=values[-1].tensor)


def finished(
    lowering: Lowering, output: Value, *, input_shape: Sequence[int], origin: str
) -> Network:
    """The network of a graph's output, with its head."""
    if isinstance(output, Tensor):
        return lowering.finish(output, input_shape=input_shape, origin=origin)
    network = lowering.finish(output.tensor, input_shape=input_shape, origin=origin)
    dropped = len(output.tensor.shape) - len(network.output_shape)
    steps = tuple(
        replace(s, axis=s.axis - dropped) if s.kind in ALONG_AXIS else s for s in output.steps
    )
    probable = steps[0].kind in ("sigmoid", "log_sigmoid", "softmax", "log_softmax")
    if probable and output.tensor.joined and _opposite(network):
        network, steps = _one_logit(lowering, network, output), (Step("pair"), *steps)
    return network.replace(head=Head(steps, output.classes))


def _opposite(network: Network) -> bool:
    """Whether the two outputs are -z and z, as a pair of probabilities 1 - p and p has them. Of two
    rows of weights that happen to be opposite nobody asks: those are two outputs."""
    if network.output_shape != (2,):
        return False
    parts = [network.output.bias, *map(mx.dense, network.output.terms.values())]
    return all(bool((part[0] == -part[1]).all()) for part in parts)


def _one_logit(lowering: Lowering, pair: Network, output: Headed) -> Network:
    """The network of z alone, where the outputs are -z and z; its structure is kept if known."""
    terms = {source: mx.dense(matrix)[1:] for source, matrix in pair.output.terms.items()}
    network = pair.replace(output=Affine(terms, pair.output.bias[1:]))
    if output.last is None or output.last.size != 1:
        return network
    alone = lowering.finish(output.last, input_shape=pair.input_shape, origin=pair.origin)
    return alone if alone.digest == network.digest else network


def constant(value: Any) -> NDArray[np.float64] | None:
    """A number or array, or None where the value depends on the input."""
    if isinstance(value, Tensor | Headed):
        return None
    return np.asarray(value, dtype=np.float64)

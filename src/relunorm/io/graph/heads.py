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

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.network import Affine, Network
from relunorm.network.head import ALONG_AXIS, Head, Step, StepKind
from relunorm.network.structure import axes_of


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
        place, operation: of the first step, for messages; the walk fills them in.
        classes: labels of the outputs, where the graph names them.
        last: the second of two values that were joined.
    """

    tensor: Tensor
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    place: str = ""
    operation: str = ""
    classes: tuple[Any, ...] = ()
    last: Tensor | None = None

    @property
    def entrywise(self) -> bool:
        """Whether no step so far mixes entries or treats them differently."""
        return not any(
            step.kind in ALONG_AXIS or (step.kind == "scale" and len(step.numbers) > 2)
            for step in self.steps
        )

    @property
    def jumps(self) -> bool:
        """Whether the last step gives whole numbers, which are the same in any type."""
        return self.steps[-1].kind in ("argmax", "greater", "round")


Value = Tensor | Headed


def along(value: Value, kind: StepKind, axis: int, keep: bool = True) -> Headed:
    """A softmax, log-softmax or argmax along an axis of the value, which is kept or dropped."""
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise InvalidNetworkError(f"axis {axis} of a tensor of shape {value.shape}")
    axis %= rank
    if axis == 0 and rank > 1 and value.shape[0] == 1:
        raise CannotLower("runs over the batch axis")
    found = _then(value, Step(kind, axis))
    return found if keep else replace(found, shape=found.shape[:axis] + found.shape[axis + 1 :])


def entry(value: Value, kind: StepKind, numbers: Sequence[float] = ()) -> Headed:
    """A step that acts on each entry."""
    return _then(value, Step(kind, 0, tuple(numbers)))


def _then(value: Value, step: Step) -> Headed:
    if isinstance(value, Tensor):
        return Headed(value, (step,), value.shape)
    if value.steps[-1].kind == "argmax":
        raise Stuck(value)
    return replace(value, steps=(*value.steps, step))


def scaled(lowering: Lowering, value: Headed, factor: Any, offset: Any) -> Headed:
    """factor x + offset, with constants that broadcast to the value's shape."""
    if any(isinstance(part, Tensor | Headed) for part in (factor, offset)):
        raise Stuck(value)
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
    last, step = value.steps[-1], Step("scale", 0, tuple(numbers))
    if last.kind != "scale":
        return _then(value, step)
    factors, offsets = step.factors * last.factors, step.factors * last.offsets + step.offsets
    factors, offsets = np.broadcast_arrays(factors, offsets)
    step = Step("scale", 0, (*factors.tolist(), *offsets.tolist()))
    return replace(value, steps=(*value.steps[:-1], step))


def logarithm(value: Headed) -> Headed:
    """log after softmax or sigmoid, which is one step of its own."""
    renamed = {"softmax": "log_softmax", "sigmoid": "log_sigmoid"}
    last = value.steps[-1]
    if last.kind not in renamed:
        raise Stuck(value)
    step = Step(renamed[last.kind], last.axis)  # type: ignore[arg-type]
    return replace(value, steps=(*value.steps[:-1], step))


def moved(value: Headed, move: Callable[[Tensor], Tensor]) -> Headed:
    """The value with its entries rearranged: any way, or by whole axes where steps mix them."""
    stand_in = Lowering((math.prod(value.shape),)).input
    places = move(Tensor(value.shape, stand_in.affine))
    same = places.affine is stand_in.affine
    if value.steps[-1].kind == "argmax":  # the order of the classes themselves must stay
        if not same:
            raise Stuck(value)
        return replace(value, shape=places.shape)
    tensor = move(value.tensor)
    if value.entrywise:
        return replace(value, tensor=tensor, shape=tensor.shape)
    index = None if same else mx.csr_parts(places.affine.terms[0])[1]
    if index is not None and len(index) != places.size:  # zeros are put in
        raise Stuck(value)
    axes = _moved_axes(value.shape, places.shape, index)
    steps = []
    for step in value.steps:
        if step.kind in ALONG_AXIS:
            if step.axis not in axes:
                raise Stuck(value)
            step = replace(step, axis=axes[step.axis])
        elif len(step.numbers) > 2 and index is not None:  # a scaling of each entry
            numbers = [*step.factors[index].tolist(), *step.offsets[index].tolist()]
            step = replace(step, numbers=tuple(numbers))
        steps.append(step)
    return replace(value, tensor=tensor, shape=tensor.shape, steps=tuple(steps))


def _moved_axes(old: Sequence[int], new: Sequence[int], index: Any) -> dict[int, int]:
    """Which axis each one has become: where they are put in another order, or read in another
    shape by which only axes of 1 come and go. Nothing elsewhere."""
    if index is not None:
        axes = axes_of(index.reshape(new), old)
        return {} if axes is None else {old: new for new, old in enumerate(axes)}
    before, after = ([a for a, n in enumerate(shape) if n != 1] for shape in (old, new))
    same = [old[a] for a in before] == [new[a] for a in after]
    return dict(zip(before, after, strict=True)) if same else {}


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

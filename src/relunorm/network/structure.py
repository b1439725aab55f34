"""The operations a network was read as: convolutions, poolings, dense maps and what joins them.

A `Network` holds matrices, which is what every question asks about, and a convolution is a large
sparse one. Its `Structure` says which few numbers that matrix was made of, so that a file written
from it is as small, and runs as fast, as the one it was read from. It is a list of steps on tensors
of one input; a step reads earlier ones, the last is the output. A form that rewrites single units
drops it; one that works on whole channels (`forms.removal.channels`) gives a smaller one back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relunorm.network.layer import Activation

StepKind = Literal[
    "input", "conv", "linear", "activation", "clip", "max_pool", "average_pool", "reshape",
    "permute", "add",
]  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a convolution or pooling lie, one entry per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    ceil: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """One operation.

    Attributes:
        inputs: numbers of the steps it reads.
        shape: of its result, without the batch axis; channels first where there are any.
        weight, bias: of ``conv`` (out, in / groups, *kernel) and ``linear`` (out, in).
        geometry, groups: of ``conv`` and the poolings.
        count_padding: whether ``average_pool`` divides by the padded window.
        activation: of ``activation``.
        ends: of ``clip``; None where open.
        axes: of ``permute``, batch axis left out.
        layer: of ``activation``: the layer of the network that holds its units.
    """

    kind: StepKind
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    name: str = ""
    weight: NDArray[np.float64] | None = None
    bias: NDArray[np.float64] | None = None
    geometry: Geometry | None = None
    groups: int = 1
    count_padding: bool = False
    activation: Activation | None = None
    ends: tuple[float | None, float | None] = (None, None)
    axes: tuple[int, ...] = ()
    layer: int = -1

    def __post_init__(self) -> None:
        for array in (self.weight, self.bias):
            if array is not None:
                array.setflags(write=False)

    @property
    def parameters(self) -> int:
        """Stored weights and biases."""
        return sum(0 if a is None else a.size for a in (self.weight, self.bias))


@dataclass(frozen=True, eq=False)
class Structure:
    """The steps of a network, in an order in which they can be computed."""

    steps: tuple[Step, ...]

    @property
    def parameters(self) -> int:
        """Stored weights and biases of all steps."""
        return sum(step.parameters for step in self.steps)

    @property
    def is_chain(self) -> bool:
        """Whether every step reads the one before it and nothing else."""
        return all(step.inputs == (k - 1,) for k, step in enumerate(self.steps) if k)

    @property
    def convolves(self) -> bool:
        """Whether any step is a convolution or a pooling."""
        return any(step.geometry is not None for step in self.steps)

    def readers(self, number: int) -> list[int]:
        """The steps that read a step."""
        return [k for k, step in enumerate(self.steps) if number in step.inputs]


class Recorder:
    """Writes down the steps while a graph is lowered; None stands for what has no step.

    Axis permutations are moved behind what acts entry by entry, so that those around a convolution
    in channels-last format cancel, and factors and shifts per channel go into the map before them.
    """

    def __init__(self, shape: Sequence[int]):
        self.steps: list[Step] = []
        self.input = self._put(Step("input", (), tuple(shape)))

    def finish(self, output: int | None) -> Structure | None:
        """The steps the output needs; None where it has no step."""
        if output is None:
            return None
        needed = {0, output}
        for number in range(output, -1, -1):
            if number in needed:
                needed.update(self.steps[number].inputs)
        order = sorted(needed)
        place = {number: k for k, number in enumerate(order)}
        return Structure(
            tuple(
                replace(self.steps[n], inputs=tuple(place[i] for i in self.steps[n].inputs))
                for n in order
            )
        )

    def affine(
        self, x: int | None, kind: Literal["conv", "linear"], shape: Sequence[int], **details: Any
    ) -> int | None:
        """A convolution or a dense map; a bias that is not given is 0."""
        if x is None:
            return None
        if details.get("bias") is None:
            details["bias"] = np.zeros(len(details["weight"]))
        return self._put(Step(kind, (x,), tuple(shape), **details))

    def pool(
        self,
        x: int | None,
        kind: Literal["max_pool", "average_pool"],
        shape: Sequence[int],
        geometry: Geometry | None,
        name: str = "",
        *,
        count_padding: bool = False,
    ) -> int | None:
        """A pooling whose windows slide."""
        if x is None or geometry is None:
            return None
        if geometry.ceil and _count(self.steps[x].shape[1:], geometry) == tuple(shape[1:]):
            geometry = replace(geometry, ceil=False)  # no window hangs over
        details = {"geometry": geometry, "count_padding": count_padding}
        return self._put(Step(kind, (x,), tuple(shape), name, **details))

    def act(self, x: int | None, activation: Activation, name: str, layer: int) -> int | None:
        """An activation, entry by entry."""
        if x is None or activation.kind not in ("relu", "leaky"):
            return None

        def made(number: int, shape: tuple[int, ...]) -> Step:
            # behind a permutation of axes the units of the layer are in another order
            at = layer if number == x else -1
            return Step("activation", (number,), shape, name, activation=activation, layer=at)

        return self._inside(x, made)

    def clip(self, x: int | None, low: float | None, high: float | None, name: str) -> int | None:
        """Cut off at both ends."""
        if x is None:
            return None
        return self._inside(x, lambda i, shape: Step("clip", (i,), shape, name, ends=(low, high)))

    def reshape(self, x: int | None, shape: Sequence[int]) -> int | None:
        """The same entries in another shape."""
        if x is None:
            return None
        if self.steps[x].shape == tuple(shape):
            return x
        if self.steps[x].kind == "reshape":
            x = self.steps[x].inputs[0]
            return self.reshape(x, shape)
        return self._put(Step("reshape", (x,), tuple(shape)))

    def permute(self, x: int | None, axes: tuple[int, ...]) -> int | None:
        """The axes in another order."""
        if x is None:
            return None
        step = self.steps[x]
        if step.kind == "permute":
            x, axes = step.inputs[0], tuple(step.axes[a] for a in axes)
        if axes == tuple(range(len(axes))):
            return x
        shape = tuple(self.steps[x].shape[a] for a in axes)
        return self._put(Step("permute", (x,), shape, axes=axes))

    def add(self, x: int | None, y: int | None) -> int | None:
        """Entry by entry."""
        if x is None or y is None:
            return None
        a, b = self.steps[x], self.steps[y]
        if a.shape != b.shape:
            return None
        if a.kind == b.kind == "permute" and a.axes == b.axes:
            inner = self.add(a.inputs[0], b.inputs[0])
            return self.permute(inner, a.axes)
        return self._put(Step("add", (x, y), a.shape))

    def scale(self, x: int | None, factors: NDArray[np.float64]) -> int | None:
        """Factors in the shape of x, taken into the convolution or dense map before them."""
        found = self._per_channel(x, factors)
        if found is None:
            return None
        number, values, axes = found
        step = self.steps[number]
        if step.weight is None or step.bias is None:
            return None
        weight = step.weight * values.reshape(-1, *(1,) * (step.weight.ndim - 1))
        return self.permute(self._put(replace(step, weight=weight, bias=step.bias * values)), axes)

    def shift(self, x: int | None, constant: NDArray[np.float64]) -> int | None:
        """The same for a shift."""
        found = self._per_channel(x, constant)
        if found is None:
            return None
        number, values, axes = found
        step = self.steps[number]
        if step.bias is None:
            return None
        return self.permute(self._put(replace(step, bias=step.bias + values)), axes)

    def _per_channel(
        self, x: int | None, values: NDArray[np.float64]
    ) -> tuple[int, NDArray[np.float64], tuple[int, ...]] | None:
        """A map's number, one value per channel of it, and how its axes are permuted later."""
        if x is None:
            return None
        step, axes = self.steps[x], tuple(range(len(self.steps[x].shape)))
        values = values.reshape(step.shape)
        if step.kind == "permute":
            axes, x = step.axes, step.inputs[0]
            values = values.transpose(np.argsort(axes))
        if self.steps[x].kind not in ("conv", "linear"):
            return None
        planes = values.reshape(values.shape[0], -1)
        if not (planes == planes[:, :1]).all():
            return None
        return x, planes[:, 0].copy(), axes

    def _inside(self, x: int, make: Any) -> int | None:
        """A step that acts entry by entry, put before a permutation of the axes."""
        step = self.steps[x]
        if step.kind == "permute":
            inner = step.inputs[0]
            return self.permute(self._put(make(inner, self.steps[inner].shape)), step.axes)
        return self._put(make(x, step.shape))

    def _put(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1


def _count(spatial: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """How many windows fit each axis, none hanging over the end."""
    parts = zip(
        spatial, geometry.kernel, geometry.stride, geometry.pads, geometry.dilation, strict=True
    )
    return tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, k, s, (a, b), d in parts)


def axes_of(index: NDArray[np.intp], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The permutation of axes that turns flat positions in ``shape`` into ``index``, if it is one.

    >>> axes_of(np.arange(6).reshape(2, 3).T, (2, 3))
    (1, 0)
    """
    if index.ndim != len(shape) or sorted(index.shape) != sorted(shape):
        return None
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    left = [a for a, n in enumerate(shape) if n == 1]
    axes = []
    for axis, n in enumerate(index.shape):
        if n == 1:
            axes.append(left.pop(0) if left else -1)
            continue
        step = int(np.take(index, 1, axis=axis).flat[0] - index.flat[0])
        found = [a for a, s in enumerate(strides) if s == step and shape[a] == n]
        axes.append(found[0] if found else -1)
    if sorted(axes) != list(range(len(shape))):
        return None
    expected = np.arange(index.size).reshape(shape).transpose(axes)
    return tuple(axes) if np.array_equal(expected, index) else None

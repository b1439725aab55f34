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
    "permute", "add", "scale", "conv_transpose", "upsample",
]  # fmt: skip


@dataclass(frozen=True, init=False)
class Geometry:
    """Where the windows of a convolution or pooling lie, one entry per spatial axis.

    Args:
        pads: zeros before and after each axis; behind a transposed convolution what is cut off.
        ceil: whether a last window may hang over the end.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    ceil: bool

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilation: Sequence[int],
        ceil: bool = False,
    ):
        for name, given in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
            object.__setattr__(self, name, tuple(int(n) for n in given))
        object.__setattr__(self, "pads", tuple((int(a), int(b)) for a, b in pads))
        object.__setattr__(self, "ceil", bool(ceil))

    @classmethod
    def plain(cls, kernel: Sequence[int], stride: Sequence[int] = ()) -> Geometry:
        """Windows without padding or dilation, a step of 1 apart unless a stride is given."""
        ones = [1] * len(kernel)
        return cls(kernel, stride or ones, [(0, 0)] * len(kernel), ones)

    def padded(self, pads: Sequence[tuple[int, int]]) -> Geometry:
        """The same windows with other padding."""
        return Geometry(self.kernel, self.stride, pads, self.dilation, self.ceil)

    @property
    def axes(self) -> list[tuple[int, int, tuple[int, int], int]]:
        """Kernel, stride, pads and dilation of each axis."""
        return list(zip(self.kernel, self.stride, self.pads, self.dilation, strict=True))


@dataclass(frozen=True, eq=False)
class Step:
    """One operation.

    Attributes:
        inputs: numbers of the steps it reads.
        shape: of its result, without the batch axis; channels first where there are any.
        weight, bias: of ``conv`` and ``conv_transpose`` (out, in / groups, *kernel), ``linear``
            (out, in).
        geometry, groups: of ``conv`` and the poolings; of ``conv_transpose`` the pads are outputs
            cut off, or added where negative; ``upsample`` repeats each position kernel times.
        count_padding: whether ``average_pool`` divides by the padded window.
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
            if isinstance(array, np.ndarray):
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
    Where there is none, as behind an activation or at the input, they are held in a step ``scale``
    for the next map to take; what else reads them gets a convolution of one tap a channel.
    """

    def __init__(self, shape: Sequence[int]):
        self.steps: list[Step] = []
        self.input = self._put(Step("input", (), tuple(shape)))

    def finish(self, output: int | None) -> Structure | None:
        """The steps the output needs; None where it has no step."""
        output = self._settled(output)
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
        self,
        x: int | None,
        kind: Literal["conv", "conv_transpose", "linear"],
        shape: Sequence[int],
        **details: Any,
    ) -> int | None:
        """A convolution or a dense map; a bias that is not given is 0."""
        if x is None:
            return None
        if details.get("bias") is None:
            details["bias"] = np.zeros(len(details["weight"]))
        if self.steps[x].kind == "scale":
            x = self._taken(x, details, kind)
        if x is None:
            return None
        return self._put(Step(kind, (x,), tuple(shape), **details))

    def _taken(self, x: int, details: dict[str, Any], kind: str) -> int | None:
        """What a map reads once it has taken the factors and shifts before it into itself."""
        inner, *arrays = self._held(x)
        weight, geometry = details["weight"], details.get("geometry")
        if geometry is not None:
            found = _planes(arrays)
            padded = any(map(any, geometry.pads)) or kind == "conv_transpose"
            if found is None or (found[1].any() and padded):
                return self._settled(x)  # a shift cannot go where zeros are padded
            group = np.arange(len(weight)) // (len(weight) // details["groups"])
            read = group[:, None] * weight.shape[1] + np.arange(weight.shape[1])
            arrays = [a[read].reshape(*read.shape, *(1,) * (weight.ndim - 2)) for a in found]
        factors, shifts = arrays
        # in the order in which sparse and dense matrices sum, so that no bit differs from theirs
        added = weight @ shifts if geometry is None else _sums(weight * shifts)
        details |= {"weight": weight * factors, "bias": details["bias"] + added}
        return inner

    def _settled(self, x: int | None) -> int | None:
        """x, or where it is a ``scale`` a convolution of one tap a channel that does the same."""
        if x is None or self.steps[x].kind != "scale":
            return x
        inner, *arrays = self._held(x)
        axes, found = tuple(range(arrays[0].ndim)), _planes(arrays)
        if found is None and self.steps[inner].kind == "permute":
            axes, inner = self.steps[inner].axes, self.steps[inner].inputs[0]
            arrays = [a.transpose(np.argsort(axes)) for a in arrays]
            found = _planes(arrays)
        if found is None or len(axes) < 2:
            return None
        ones = (1,) * (len(axes) - 1)
        kernel, count = found[0].reshape(-1, 1, *ones), len(found[0])
        step = Step("conv", (inner,), arrays[0].shape, weight=kernel, bias=found[1],
                    geometry=Geometry.plain(ones), groups=count)  # fmt: skip
        return self.permute(self._put(step), axes)

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
        x = self._settled(x)
        if x is None or geometry is None:
            return None
        if geometry.ceil and _count(self.steps[x].shape[1:], geometry) == tuple(shape[1:]):
            geometry = replace(geometry, ceil=False)  # no window hangs over
        details = {"geometry": geometry, "count_padding": count_padding}
        return self._put(Step(kind, (x,), tuple(shape), name, **details))

    def upsample(self, x: int | None, scales: tuple[int, ...]) -> int | None:
        """Every position as many times along each axis."""
        x = self._settled(x)
        if x is None or len(self.steps[x].shape) != len(scales) + 1:
            return None
        if self.steps[x].kind == "upsample":
            before = self.steps[x].geometry
            assert before is not None
            scales = tuple(a * b for a, b in zip(before.kernel, scales, strict=True))
            x = self.steps[x].inputs[0]
        channels, *spatial = self.steps[x].shape
        shape = (channels, *(n * s for n, s in zip(spatial, scales, strict=True)))
        return self._put(Step("upsample", (x,), shape, geometry=Geometry.plain(scales, scales)))

    def act(self, x: int | None, activation: Activation, name: str, layer: int) -> int | None:
        """An activation, entry by entry."""
        x = self._settled(x)
        if x is None or activation.kind not in ("relu", "leaky"):
            return None

        def made(number: int, shape: tuple[int, ...]) -> Step:
            # behind a permutation of axes the units of the layer are in another order
            at = layer if number == x else -1
            return Step("activation", (number,), shape, name, activation=activation, layer=at)

        return self._inside(x, made)

    def clip(self, x: int | None, low: float | None, high: float | None, name: str) -> int | None:
        """Cut off at both ends."""
        x = self._settled(x)
        if x is None:
            return None
        return self._inside(x, lambda i, shape: Step("clip", (i,), shape, name, ends=(low, high)))

    def reshape(self, x: int | None, shape: Sequence[int]) -> int | None:
        """The same entries in another shape."""
        if x is None:
            return None
        if self.steps[x].shape == tuple(shape):
            return x
        if self.steps[x].kind == "scale":
            inner, weight, bias = self._held(x)
            return self._scaled(
                self.reshape(inner, shape), weight.reshape(shape), bias.reshape(shape)
            )
        if self.steps[x].kind == "reshape":
            x = self.steps[x].inputs[0]
            return self.reshape(x, shape)
        return self._put(Step("reshape", (x,), tuple(shape)))

    def permute(self, x: int | None, axes: tuple[int, ...]) -> int | None:
        """The axes in another order."""
        if x is None:
            return None
        step = self.steps[x]
        if step.kind == "scale":
            inner, weight, bias = self._held(x)
            return self._scaled(
                self.permute(inner, axes), weight.transpose(axes), bias.transpose(axes)
            )
        if step.kind == "permute":
            x, axes = step.inputs[0], tuple(step.axes[a] for a in axes)
        if axes == tuple(range(len(axes))):
            return x
        shape = tuple(self.steps[x].shape[a] for a in axes)
        return self._put(Step("permute", (x,), shape, axes=axes))

    def add(self, x: int | None, y: int | None) -> int | None:
        """Entry by entry."""
        x, y = self._settled(x), self._settled(y)
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
        """Factors in the shape of x, taken into a convolution or dense map if it is before them."""
        return self._entrywise(x, factors, None)

    def shift(self, x: int | None, constant: NDArray[np.float64]) -> int | None:
        """The same for a shift."""
        return self._entrywise(x, None, constant)

    def _entrywise(
        self, x: int | None, factors: NDArray[np.float64] | None, shifts: Any
    ) -> int | None:
        if x is None:
            return None
        step, axes = self.steps[x], tuple(range(len(self.steps[x].shape)))
        a = np.ones(step.shape) if factors is None else factors.reshape(step.shape)
        b = np.zeros(step.shape) if shifts is None else shifts.reshape(step.shape)
        number = x
        if step.kind == "permute":
            axes, number = step.axes, step.inputs[0]
        found = _planes([v.transpose(np.argsort(axes)) for v in (a, b)])
        before = self.steps[number]
        if found is None or before.weight is None or before.bias is None or before.kind == "scale":
            inner, weight, bias = self._held(x)
            return self._scaled(inner, weight * a, bias * a + b)
        rows = found[0].reshape(-1, *(1,) * (before.weight.ndim - 1))
        changed = {"weight": before.weight * rows, "bias": before.bias * found[0] + found[1]}
        return self.permute(self._put(replace(before, **changed)), axes)

    def _held(self, x: int) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
        """The step behind x and the factors and shifts of its entries that were not taken yet."""
        step = self.steps[x]
        if step.kind == "scale" and step.weight is not None and step.bias is not None:
            return step.inputs[0], step.weight, step.bias
        return x, np.ones(step.shape), np.zeros(step.shape)

    def _scaled(
        self, x: int | None, weight: NDArray[np.float64], bias: NDArray[np.float64]
    ) -> int | None:
        if x is None:
            return None
        return self._put(Step("scale", (x,), weight.shape, weight=weight.copy(), bias=bias.copy()))

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


def _planes(arrays: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]] | None:
    """One number for each entry of the first axis, where nothing else matters."""
    flat = [a.reshape(len(a), -1) for a in arrays if a.ndim]
    if not flat or not all((plane == plane[:, :1]).all() for plane in flat):
        return None
    return [plane[:, 0].copy() for plane in flat]


def _sums(products: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.cumsum(products.reshape(len(products), -1), axis=1)[:, -1]


def _count(spatial: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """How many windows fit each axis, none hanging over the end."""
    parts = zip(spatial, geometry.axes, strict=True)
    return tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, (k, s, (a, b), d) in parts)


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

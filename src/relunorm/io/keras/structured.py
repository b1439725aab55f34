"""A network's structure as Keras layers, channels last as Keras has them on every backend.

The shapes of a structure have their channels first. Each value is kept with the order its axes have
in Keras, and axes are permuted only where a layer needs another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.errors import UnsupportedFormatError
from relunorm.io.graph.operations import same_padding
from relunorm.network import Activation
from relunorm.network.structure import Geometry, Step, Structure


def can_build(structure: Structure | None) -> bool:
    """Whether Keras has a layer for every step, and matrices would say it at greater length."""
    if structure is None or not structure.convolves:
        return False
    return all(_has_layer(step, structure) for step in structure.steps)


def build(keras: Any, structure: Structure, dtype: str) -> tuple[Any, Any]:
    """The input and the output of the structure as Keras tensors."""
    writer = _Writer(keras, structure, dtype)
    inputs = keras.Input(structure.steps[0].shape, dtype=dtype)
    values = [(inputs, tuple(range(len(structure.steps[0].shape))))]
    for step in structure.steps[1:]:
        values.append(writer.apply(step, [values[i] for i in step.inputs]))
    value, order = values[-1]
    return inputs, writer.ordered(value, order, tuple(range(len(order))))


def _has_layer(step: Step, structure: Structure) -> bool:
    g = step.geometry
    if step.kind == "clip":
        return step.ends[0] == 0 and step.ends[1] is not None
    if step.kind == "activation" and step.activation is not None:
        return step.activation.slopes[0] >= 0  # LeakyReLU takes no other
    if g is None:
        return True
    if len(g.kernel) > 3:
        return False
    if step.kind == "upsample":
        return True
    if step.kind.startswith("conv"):
        plain = max(g.stride) == 1 or max(g.dilation) == 1
        return plain and (
            step.kind == "conv" or (step.groups == 1 and min(map(min, _cropped(g))) >= 0)
        )
    spatial = structure.steps[step.inputs[0]].shape[1:]
    padded = any(map(any, g.pads))
    # of an average over more padding behind than before, backends of Keras differ
    even = step.kind == "max_pool" or all(before == after for before, after in g.pads)
    return (
        not g.ceil
        and max(g.dilation) == 1
        and (not padded or (even and _same(spatial, g) and not step.count_padding))
    )


def _same(spatial: Sequence[int], g: Geometry) -> bool:
    """Whether the padding is what Keras calls same."""
    return same_padding(spatial, g) == list(g.pads)


def _cropped(g: Geometry) -> list[tuple[int, int]]:
    """What is cut off behind a transposed convolution without padding, as Keras has it."""
    return [(before, after + max(s - d * (k - 1) - 1, 0)) for k, s, (before, after), d in g.axes]


def _cropped_by_same(g: Geometry) -> list[tuple[int, int]]:
    """What Keras cuts off for as many outputs as inputs times strides."""
    found = []
    for k, s, _, d in g.axes:
        wide = d * (k - 1)
        around = s + wide - 1
        left = min(-(-around // 2), wide)
        found.append((wide - left, wide - around + left))
    return found


Ordered = tuple[Any, tuple[int, ...]]


class _Writer:
    """Adds layers; a value is a Keras tensor and, per axis of it, the axis it is in the step."""

    def __init__(self, keras: Any, structure: Structure, dtype: str):
        self.layers, self.structure, self.dtype = keras.layers, structure, dtype

    def ordered(self, value: Any, order: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
        """The value with its axes in the order wanted."""
        if order == wanted:
            return value
        axes = tuple(order.index(axis) + 1 for axis in wanted)
        return self.layers.Permute(axes, dtype=self.dtype)(value)

    def apply(self, step: Step, inputs: list[Ordered]) -> Ordered:
        value, order = inputs[0]
        size, plain = len(order), tuple(range(len(order)))
        last = (*range(1, size), 0)
        if step.kind == "add":
            other = self.ordered(*inputs[1], order)
            return self.layers.Add(dtype=self.dtype)([value, other]), order
        if step.kind == "activation" and step.activation is not None:
            return self._activation(step.activation)(value), order
        if step.kind == "clip":
            return self.layers.ReLU(max_value=step.ends[1], dtype=self.dtype)(value), order
        if step.kind == "permute":
            return value, tuple(step.axes.index(axis) for axis in order)
        if step.kind == "reshape":
            value = self.ordered(value, order, plain)
            shaped = self.layers.Reshape(step.shape, dtype=self.dtype)(value)
            return shaped, tuple(range(len(step.shape)))
        if step.kind == "linear":
            return self._dense(step, value), plain
        value, g = self.ordered(value, order, last), step.geometry
        assert g is not None
        if step.kind == "conv":
            return self._convolution(step, g, value), last
        if step.kind == "conv_transpose":
            return self._transposed(step, g, value), last
        if step.kind == "upsample":
            return self._upsampled(g, value), last
        return self._pooling(step, g, value), last

    def _activation(self, activation: Activation) -> Any:
        if activation.kind == "relu":
            return self.layers.ReLU(dtype=self.dtype)
        if activation.kind == "identity":  # read back as a linear stage
            return self.layers.Identity(dtype=self.dtype)
        if activation.slope < 0:
            raise UnsupportedFormatError(
                f"Keras' LeakyReLU takes no negative slope ({activation.slope})"
            )
        return self.layers.LeakyReLU(negative_slope=activation.slope, dtype=self.dtype)

    def _dense(self, step: Step, value: Any) -> Any:
        biased = step.bias is not None
        # Zero initializers do not draw from the random state.
        dense = self.layers.Dense(
            *step.shape, use_bias=biased, kernel_initializer="zeros", dtype=self.dtype
        )
        result = dense(value)
        dense.kernel.assign(np.ascontiguousarray(mx.dense(step.weight).T))
        if biased:
            dense.bias.assign(step.bias)
        return result

    def _convolution(self, step: Step, g: Geometry, value: Any) -> Any:
        axes, padding = len(g.kernel), "valid"
        if _same(self.structure.steps[step.inputs[0]].shape[1:], g):
            padding = "same"
        elif any(map(any, g.pads)):
            value = self._around("ZeroPadding", g.pads, value)
        return self._filled(f"Conv{axes}D", step, g, value, (-1, -2), padding, groups=step.groups)

    def _transposed(self, step: Step, g: Geometry, value: Any) -> Any:
        same = _cropped_by_same(g) == list(g.pads)
        padding, name = "same" if same else "valid", f"Conv{len(g.kernel)}DTranspose"
        result = self._filled(name, step, g, value, (-2, -1), padding)
        crop = _cropped(g)
        return result if same or not any(map(any, crop)) else self._around("Cropping", crop, result)

    def _filled(
        self,
        name: str,
        step: Step,
        g: Geometry,
        value: Any,
        last: tuple[int, int],
        padding: str,
        **more: Any,
    ) -> Any:
        """A convolution of the value; ``last``: where its kernel has the axes out and in."""
        weight = np.asarray(step.weight)
        more |= {"strides": g.stride, "dilation_rate": g.dilation, "padding": padding}
        more |= {"data_format": "channels_last", "kernel_initializer": "zeros"}
        conv = getattr(self.layers, name)(len(weight), g.kernel, dtype=self.dtype, **more)
        result = conv(value)
        conv.kernel.assign(np.ascontiguousarray(np.moveaxis(weight, (0, 1), last)))
        conv.bias.assign(step.bias)
        return result

    def _around(self, kind: str, ends: Sequence[tuple[int, int]], value: Any) -> Any:
        """Zeros around the value, or its rim cut off."""
        around = getattr(self.layers, f"{kind}{len(ends)}D")
        given = tuple(ends) if len(ends) > 1 else ends[0]
        return around(given, data_format="channels_last", dtype=self.dtype)(value)

    def _upsampled(self, g: Geometry, value: Any) -> Any:
        axes = len(g.kernel)
        more = {} if axes == 1 else {"data_format": "channels_last"}
        size = g.kernel if axes > 1 else g.kernel[0]
        return getattr(self.layers, f"UpSampling{axes}D")(size, dtype=self.dtype, **more)(value)

    def _pooling(self, step: Step, g: Geometry, value: Any) -> Any:
        name = "MaxPooling" if step.kind == "max_pool" else "AveragePooling"
        axes = len(g.kernel)
        pool = getattr(self.layers, f"{name}{axes}D")(
            g.kernel if axes > 1 else int(np.prod(g.kernel)),
            strides=g.stride if axes > 1 else int(np.prod(g.stride)),
            padding="same" if any(map(any, g.pads)) else "valid",
            data_format="channels_last",
            dtype=self.dtype,
        )
        return pool(value)

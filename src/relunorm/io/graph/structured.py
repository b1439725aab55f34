"""A structure back to a network, lowered as if its steps had been read from a file; and any network
as steps, for the writers of torch and Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.operations import along
from relunorm.io.graph.products import convolve_transposed
from relunorm.io.graph.windows import sliding_windows
from relunorm.network import RELU, Network
from relunorm.network.structure import Step, Structure


def lower(structure: Structure, like: Network) -> Network:
    """The network of a structure, with the input's shape, head and origin of another one."""
    return compute(structure, like.input_shape, like.origin).replace(head=like.head)


def faithful(network: Network) -> bool:
    """Whether the network's structure computes the very same numbers.

    It does but for a scaling that no map could take: that is a convolution of one tap a channel in
    the structure, where the network has products, which were rounded.
    """
    structure = network.structure
    if structure is None:
        return False
    kernels = [step.weight for step in structure.steps if step.kind == "conv"]
    if all(weight is None or weight[0].size > 1 for weight in kernels):
        return True
    return lower(structure, network).digest == network.digest


def multiplied_out(structure: Structure, like: Network) -> Network:
    """The network of a structure in which the next map takes a scaling, as when reading a file."""
    made = compute(structure, like.input_shape, like.origin, scalings=True)
    return made.replace(head=like.head)


def compute(
    structure: Structure, input_shape: Sequence[int], origin: str, *, scalings: bool = False
) -> Network:
    """The network of a structure.

    Args:
        scalings: a convolution of one tap a channel is lowered as the factors and shifts it is,
            which the next map takes, not as weights of its own.
    """
    low = Lowering((1, *structure.steps[0].shape))
    values: list[Tensor] = [low.input]
    for step in structure.steps[1:]:
        inputs = [values[i] for i in step.inputs]
        made = _scaled if scalings and _is_scaling(step) else _lowered
        values.append(made(low, step, inputs))
    return low.finish(values[-1], input_shape=input_shape, origin=origin)


def _is_scaling(step: Step) -> bool:
    """Whether a step multiplies every channel by a number, and shifts it."""
    geometry = step.geometry
    if step.kind != "conv" or step.weight is None or geometry is None:
        return False
    alone = step.weight[0].size == 1 and step.groups == len(step.weight)
    return alone and set(geometry.stride) == {1} and not any(map(any, geometry.pads))


def _scaled(low: Lowering, step: Step, inputs: list[Tensor]) -> Tensor:
    assert step.weight is not None
    assert step.bias is not None
    shape = (1, -1, *(1,) * (len(step.shape) - 1))
    scaled = low.scale(inputs[0], step.weight.reshape(shape))
    return low.shift(scaled, step.bias.reshape(shape))


def as_steps(network: Network) -> Structure:
    """Any network as steps, one for each matrix, which may be sparse.

    A map that reads nothing reads the input with weight zero, so that every output depends on it.
    """
    steps = [Step("input", (), network.input_shape)]

    def put(kind: Any, inputs: tuple[int, ...], shape: tuple[int, ...], **more: Any) -> int:
        steps.append(Step(kind, inputs, shape, **more))
        return len(steps) - 1

    values = [0]
    if len(network.input_shape) > 1:
        values = [put("reshape", (0,), (network.input_size,))]
    for number, affine in enumerate(network.maps):
        terms = {source: matrix for source, matrix in affine.terms.items() if mx.nnz(matrix)}
        terms = terms or {0: np.zeros((affine.size, network.input_size))}
        shape, parts = (affine.size,), []
        for source, matrix in terms.items():
            bias = None if parts else affine.bias
            parts.append(put("linear", (values[source],), shape, weight=matrix, bias=bias))
        value = reduce(lambda a, b: put("add", (a, b), shape), parts)
        if number < len(network.layers):
            layer = network.layers[number]
            value = put("activation", (value,), shape, activation=layer.activation)
        values.append(value)
    if len(network.output_shape) > 1:
        put("reshape", (values[-1],), network.output_shape)
    return Structure(tuple(steps))


#: Steps whose geometry says what they do.
_WINDOWS = ("conv", "conv_transpose", "upsample", "max_pool", "average_pool")


def _lowered(low: Lowering, step: Step, inputs: list[Tensor]) -> Tensor:
    x, geometry = inputs[0], step.geometry
    if step.kind == "add":
        return low.add(*inputs)
    if step.kind == "linear" and step.weight is not None:
        return low.linear(x, step.weight, step.bias)
    if step.kind == "activation":
        return low.activate(x, step.activation or RELU, step.name)
    if step.kind == "clip":
        return low.clip(x, *step.ends, step.name)
    if step.kind == "reshape":
        return low.rearrange(x, x.index.reshape(1, *step.shape))
    if step.kind == "permute":
        return low.rearrange(x, x.index.transpose(0, *(a + 1 for a in step.axes)))
    if geometry is None or step.kind not in _WINDOWS:
        raise CannotLower(f"a step of kind {step.kind!r} that is not complete")
    if step.kind == "upsample":
        for axis, times in enumerate(geometry.kernel, start=2):
            x = along(low, x, axis, lambda rows, n=times: rows.repeat(n, axis=1))
        return x
    if step.kind in ("conv", "conv_transpose"):
        if step.weight is None:
            raise CannotLower("a convolution without weights")
        function = low.convolve if step.kind == "conv" else partial(convolve_transposed, low)
        bias = np.zeros(len(step.weight)) if step.bias is None else step.bias
        return function(x, step.weight, bias, geometry, step.groups)
    windows = sliding_windows(x.shape[2:], geometry)
    if step.kind == "max_pool":
        return low.max_pool(x, windows, step.name)
    return low.average(x, windows, step.count_padding)

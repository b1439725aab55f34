"""A network's structure as ONNX nodes: convolutions as Conv, poolings as poolings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.network.structure import Geometry, Step, Structure

#: Emits a node (kind, inputs, name, attributes) and returns the name of its output.
Emit = Callable[..., str]
#: Stores a tensor under a name and returns the name.
Store = Callable[[str, NDArray[Any]], str]


def can_write(structure: Structure | None) -> bool:
    """Whether ONNX has an operator for every step, and matrices would say it at greater length."""
    if structure is None or not structure.convolves:
        return False
    for step in structure.steps:
        # averages over dilated windows came later, and runtimes disagree on ceil mode
        g = step.geometry if step.kind == "average_pool" else None
        if g is not None and (g.ceil or set(g.dilation) != {1}):
            return False
    return True


def write_steps(
    structure: Structure,
    source: str,
    slope: Callable[[float, str, str], str],
    emit: Emit,
    store: Store,
) -> str:
    """Emit all steps; returns the name of the output.

    Args:
        source: the name of the input.
        slope: emits a leaky relu with a slope.
    """
    names = [source]
    for number, step in enumerate(structure.steps[1:], start=1):
        inputs = [names[i] for i in step.inputs]
        names.append(_step(step, f"step{number}", inputs, slope, emit, store))
    return names[-1]


def _step(
    step: Step,
    name: str,
    inputs: list[str],
    slope: Callable[[float, str, str], str],
    emit: Emit,
    store: Store,
) -> str:
    if step.kind in ("conv", "linear") and step.weight is not None:
        inputs = [*inputs, store(f"{name}_weight", step.weight)]
        if step.bias is not None and step.bias.any():
            inputs.append(store(f"{name}_bias", step.bias))
        if step.kind == "linear":
            return emit("Gemm", inputs, name, transB=1)
        return emit("Conv", inputs, name, group=step.groups, **_windows(step.geometry))
    if step.kind == "max_pool" and step.geometry is not None:
        return emit(
            "MaxPool", inputs, name, ceil_mode=int(step.geometry.ceil), **_windows(step.geometry)
        )
    if step.kind == "average_pool":
        found = _windows(step.geometry)
        found.pop("dilations")
        return emit("AveragePool", inputs, name, count_include_pad=int(step.count_padding), **found)
    if step.kind == "activation" and step.activation is not None:
        if step.activation.kind == "relu":
            return emit("Relu", inputs, name)
        return slope(step.activation.slope, inputs[0], name)
    if step.kind == "clip":
        ends = [
            "" if end is None else store(f"{name}_{which}", np.array(end))
            for which, end in zip(("low", "high"), step.ends, strict=True)
        ]
        return emit("Clip", [*inputs, *ends], name)
    if step.kind == "reshape":
        if len(step.shape) == 1:
            return emit("Flatten", inputs, name, axis=1)
        shape = store(f"{name}_shape", np.array([-1, *step.shape]))
        return emit("Reshape", [*inputs, shape], name)
    if step.kind == "permute":
        return emit("Transpose", inputs, name, perm=[0, *(a + 1 for a in step.axes)])
    return emit("Add", inputs, name)


def _windows(geometry: Geometry | None) -> dict[str, Sequence[int]]:
    if geometry is None:
        return {}
    return {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.stride),
        "dilations": list(geometry.dilation),
        "pads": [before for before, _ in geometry.pads] + [after for _, after in geometry.pads],
    }

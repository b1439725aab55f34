"""A network's structure as a torch module; Sequential where every step reads the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from relunorm.io.graph.products import outputs_first
from relunorm.network.structure import Geometry, Step, Structure

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_PAD = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}
_MAX = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_AVERAGE = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


def can_build(structure: Structure | None) -> bool:
    """Whether torch has a module for every step, and matrices would say it at greater length."""
    if structure is None or not structure.convolves:
        return False
    for step in structure.steps:
        geometry = step.geometry
        if geometry is None:
            continue
        if len(geometry.kernel) not in _CONV:
            return False
        even = all(before == after for before, after in geometry.pads)
        halves = all(2 * a <= k for k, (a, _) in zip(geometry.kernel, geometry.pads, strict=True))
        if step.kind == "average_pool" and set(geometry.dilation) != {1}:
            return False
        if step.kind in ("max_pool", "average_pool") and not (even and halves):
            return False
    return True


def build(structure: Structure, dtype: torch.dtype) -> nn.Module:
    """The module, in eval mode; weights are its parameters."""
    modules = [_module(step, dtype) for step in structure.steps[1:]]
    if structure.is_chain:
        flat = [part for module in modules for part in module]
        return nn.Sequential(*flat).eval()
    return StepsModule(structure, modules).eval()


class StepsModule(nn.Module):
    """Steps that read any earlier ones."""

    def __init__(self, structure: Structure, modules: list[list[nn.Module]]):
        super().__init__()
        self.reads = [step.inputs for step in structure.steps[1:]]
        self.steps = nn.ModuleList(nn.Sequential(*parts) for parts in modules)

    def forward(self, inputs: Tensor) -> Tensor:
        values = [inputs]
        for reads, step in zip(self.reads, self.steps, strict=True):
            if len(reads) == 2:
                values.append(values[reads[0]] + values[reads[1]])
            else:
                values.append(step(values[reads[0]]))
        return values[-1]


class Permute(nn.Module):
    """The axes behind the batch axis in another order."""

    def __init__(self, axes: tuple[int, ...]):
        super().__init__()
        self.axes = (0, *(a + 1 for a in axes))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.permute(self.axes)


class Clip(nn.Module):
    """Cut off at two ends; None is open."""

    def __init__(self, low: float | None, high: float | None):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.clamp(self.low, self.high)


def _module(step: Step, dtype: torch.dtype) -> list[nn.Module]:
    """The modules of a step that reads one other; nothing for a sum."""
    if step.kind == "conv" and step.weight is not None and step.geometry is not None:
        return _convolution(step, step.geometry, step.weight, dtype)
    if step.kind == "conv_transpose" and step.weight is not None and step.geometry is not None:
        return _transposed(step, step.geometry, step.weight, dtype)
    if step.kind == "upsample" and step.geometry is not None:
        return [nn.Upsample(scale_factor=tuple(map(float, step.geometry.kernel)))]
    if step.kind == "linear" and step.weight is not None:
        out, inner = step.weight.shape
        # On the meta device, because the usual initialisation would draw from the random state.
        linear = nn.Linear(inner, out, dtype=dtype, device="meta").to_empty(device="cpu")
        return [_filled(linear, step)]
    if step.kind in ("max_pool", "average_pool") and step.geometry is not None:
        return [_pooling(step, step.geometry)]
    if step.kind == "activation" and step.activation is not None:
        kind = step.activation.kind
        return [nn.ReLU() if kind == "relu" else nn.LeakyReLU(step.activation.slope)]
    if step.kind == "clip":
        return [Clip(*step.ends)]
    if step.kind == "reshape":
        flat: list[nn.Module] = [nn.Flatten()]
        return flat if len(step.shape) == 1 else [*flat, nn.Unflatten(1, step.shape)]
    if step.kind == "permute":
        return [Permute(step.axes)]
    return []


def _convolution(
    step: Step, geometry: Geometry, weight: Any, dtype: torch.dtype
) -> list[nn.Module]:
    even = all(before == after for before, after in geometry.pads)
    padding = tuple(before for before, _ in geometry.pads) if even else 0
    conv = _filled(_empty(_CONV, step, geometry, weight, dtype, padding=padding), step)
    return [conv] if even else [_pad(geometry.pads), conv]


def _transposed(step: Step, geometry: Geometry, weight: Any, dtype: torch.dtype) -> list[nn.Module]:
    """Cut off evenly, with outputs added at the end; what is left is cut off behind it."""
    cut = [max(min(before, after + s - 1), 0) for s, (before, after) in
           zip(geometry.stride, geometry.pads, strict=True)]  # fmt: skip
    added = [max(n - after, 0) for n, (_, after) in zip(cut, geometry.pads, strict=True)]
    ends = {"padding": tuple(cut), "output_padding": tuple(added)}
    conv = _empty(_TRANSPOSED, step, geometry, weight, dtype, **ends)
    filled = _filled(conv, replace(step, weight=outputs_first(weight, step.groups)))
    left = tuple((n - before, n - more - after) for n, more, (before, after) in
                 zip(cut, added, geometry.pads, strict=True))  # fmt: skip
    return [filled, _pad(left)] if any(map(any, left)) else [filled]


def _empty(
    kinds: dict[int, Any], step: Step, g: Geometry, weight: Any, dtype: torch.dtype, **ends: Any
) -> nn.Module:
    """A convolution without numbers; on the meta device, or they would be drawn at random."""
    more = {"stride": g.stride, "dilation": g.dilation, "groups": step.groups, "dtype": dtype}
    channels = weight.shape[1] * step.groups, weight.shape[0]
    made = kinds[len(g.kernel)](*channels, g.kernel, device="meta", **more, **ends)
    return made.to_empty(device="cpu")


def _pad(pads: tuple[tuple[int, int], ...]) -> nn.Module:
    """Zeros around the last axes; negative numbers cut off."""
    return _PAD[len(pads)]([n for pair in reversed(pads) for n in pair], 0.0)


def _pooling(step: Step, geometry: Geometry) -> nn.Module:
    axes, padding = len(geometry.kernel), tuple(before for before, _ in geometry.pads)
    if step.kind == "max_pool":
        return _MAX[axes](
            geometry.kernel, geometry.stride, padding, geometry.dilation, ceil_mode=geometry.ceil
        )
    return _AVERAGE[axes](
        geometry.kernel, geometry.stride, padding, geometry.ceil, step.count_padding
    )


def _filled(module: Any, step: Step) -> nn.Module:
    with torch.no_grad():
        module.weight.copy_(torch.tensor(step.weight))
        module.bias.copy_(torch.tensor(step.bias))
    return module

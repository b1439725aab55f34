"""Networks to PyTorch modules and .pt2 files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from relunorm import matrix as mx
from relunorm.atomic import atomic_path
from relunorm.errors import UnsupportedFormatError
from relunorm.io.border import Model, accepts
from relunorm.io.graph.products import outputs_first
from relunorm.io.graph.structured import as_steps, faithful
from relunorm.io.torch.pt2 import BESIDE
from relunorm.matrix import Matrix
from relunorm.network import Activation, Network
from relunorm.network import head as heads
from relunorm.network.structure import Geometry, Structure
from relunorm.network.structure import Step as Operation

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@accepts("network")
def to_torch(network: Model, dtype: str | torch.dtype | None = None) -> nn.Module:
    """A module that computes the network, in eval mode; weights are parameters.

    A network whose structure is known becomes the convolutions, poolings and Linear modules it was
    read from (in float64 where that loses no bit), another one a module for each matrix and each
    activation: an nn.Sequential where each reads the one before it, else a `StepsModule`. float64
    unless ``dtype`` says otherwise, in which the outputs are the network's up to rounding.

    >>> to_torch(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]))
    Sequential(
      (0): Linear(in_features=1, out_features=2, bias=True)
      (1): ReLU()
      (2): Linear(in_features=2, out_features=1, bias=True)
    )
    """
    kind = _dtype(dtype)
    if kind == torch.float32:
        for number, affine in enumerate(network.maps):
            for part in (affine.bias, *map(mx.entries, affine.terms.values())):
                mx.narrowed(part, np.float32, f"layer {number}")  # raises where one overflows
    known = network.structure
    exact = kind == torch.float32 or faithful(network)
    built = build(known if exact and can_build(known) else as_steps(network), kind)
    last = [_head_step(step, network.output_shape, kind) for step in network.head.steps]
    parts = list(built) if isinstance(built, nn.Sequential) else [built]
    return nn.Sequential(*parts, *last).eval() if last else built


def write_pt2(network: Network, path: str | Path, dtype: str | None = None) -> None:
    """Write a program for torch.export.load, with a dynamic batch; float64 by default."""
    module = to_torch(network, dtype)
    batch = torch.zeros((2, *network.input_shape), dtype=_dtype(dtype))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            module, (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
        )
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            torch.export.save(program, file, extra_files=_beside(network))


def _beside(network: Network) -> dict[str, Any] | None:
    """What no program holds: labels, and the columns of the table."""
    facts = {
        "classes": list(network.head.classes),
        "columns": [column.to_dict() for column in network.columns],
    }
    return {BESIDE: json.dumps(facts)} if any(facts.values()) else None


class SparseLinear(nn.Module):
    """A linear map by a fixed sparse pattern, whose entries are the parameter ``weight``."""

    columns: Tensor
    rows: Tensor

    def __init__(self, matrix: Any, bias: Any, dtype: torch.dtype):
        super().__init__()
        self.shape = matrix.shape
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self.register_buffer("rows", torch.tensor(rows, dtype=torch.int64))
        self.register_buffer("columns", torch.tensor(matrix.indices, dtype=torch.int64))
        self.weight = nn.Parameter(torch.tensor(matrix.data, dtype=dtype))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias, dtype=dtype))

    def forward(self, inputs: Tensor) -> Tensor:
        product = self._product(inputs)
        return product if self.bias is None else product + self.bias

    def _product(self, inputs: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # no sparse tensors in exported programs
            taken = inputs.index_select(1, self.columns) * self.weight
            empty = torch.zeros(inputs.shape[0], self.shape[0], dtype=inputs.dtype)
            return empty.index_add(1, self.rows, taken)
        matrix = torch.sparse_coo_tensor(
            torch.stack([self.rows, self.columns]),
            self.weight,
            self.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        return torch.sparse.mm(matrix, inputs.T).T


class Step(nn.Module):
    """1 for z > 0, 0 for z < 0, a stored value at 0."""

    def __init__(self, at_zero: float):
        super().__init__()
        self.at_zero = at_zero

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.heaviside(inputs, torch.full((), self.at_zero, dtype=inputs.dtype))


class LinearStage(nn.Module):
    """The same numbers; tells `load` not to multiply the maps around it together, which rounds."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.clone()


class Scaling(nn.Module):
    """factor x + offset, with fixed numbers."""

    factor: Tensor
    offset: Tensor

    def __init__(self, step: heads.Step, shape: tuple[int, ...], dtype: torch.dtype):
        super().__init__()
        for name, part in zip(("factor", "offset"), step.scaling(shape), strict=True):
            self.register_buffer(name, torch.tensor(part, dtype=dtype))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.factor + self.offset


class HeadStep(nn.Module):
    """A step of a head that torch has no module for."""

    def __init__(self, step: heads.Step):
        super().__init__()
        self.step = step

    def forward(self, inputs: Tensor) -> Tensor:
        if self.step.kind == "pair":
            return torch.cat([-inputs, inputs], -1)
        if self.step.kind == "argmax":
            return inputs.argmax(self.step.axis + 1)
        if self.step.kind == "greater":
            return (inputs > self.step.numbers[0]).to(inputs.dtype)
        return inputs.exp() if self.step.kind == "exp" else inputs.round()


def _head_step(step: heads.Step, shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    if step.kind in ("softmax", "log_softmax"):
        return (nn.Softmax if step.kind == "softmax" else nn.LogSoftmax)(step.axis + 1)
    if step.kind == "scale":
        return Scaling(step, shape, dtype)
    if step.kind == "clip":
        return Clip(*step.numbers)
    simple: dict[str, type[nn.Module]] = {
        "sigmoid": nn.Sigmoid,
        "log_sigmoid": nn.LogSigmoid,
        "tanh": nn.Tanh,
        "softplus": nn.Softplus,
    }
    return simple[step.kind]() if step.kind in simple else HeadStep(step)


def _activation(activation: Activation) -> nn.Module:
    return {
        "relu": nn.ReLU,
        "leaky": lambda: nn.LeakyReLU(activation.slope),
        "step": lambda: Step(activation.at_zero),
        "identity": LinearStage,
    }[activation.kind]()


def _linear(matrix: Matrix, bias: Any, dtype: torch.dtype) -> nn.Module:
    if sp.issparse(matrix):
        return SparseLinear(matrix, bias, dtype)
    rows, columns = matrix.shape
    # On the meta device, because the usual initialisation would draw from the global random state.
    linear = nn.Linear(columns, rows, bias=bias is not None, dtype=dtype, device="meta")
    return _filled(linear.to_empty(device="cpu"), matrix, bias)


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    found = _DTYPES.get(str(dtype or "float64").removeprefix("torch."))
    if found is None:
        raise UnsupportedFormatError(f"dtype {dtype!r}: use float32 or float64")
    return found


_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_PAD: dict[int, Any] = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}
_MAX: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_AVERAGE: dict[int, Any] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


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
        if not any(isinstance(part, SparseLinear) for part in flat):
            flat = [part for part in flat if not isinstance(part, LinearStage)]  # read as they are
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


def _module(step: Operation, dtype: torch.dtype) -> list[nn.Module]:
    """The modules of a step that reads one other; nothing for a sum."""
    if step.kind == "conv" and step.weight is not None and step.geometry is not None:
        return _convolution(step, step.geometry, step.weight, dtype)
    if step.kind == "conv_transpose" and step.weight is not None and step.geometry is not None:
        return _transposed(step, step.geometry, step.weight, dtype)
    if step.kind == "upsample" and step.geometry is not None:
        return [nn.Upsample(scale_factor=tuple(map(float, step.geometry.kernel)))]
    if step.kind == "linear" and step.weight is not None:
        return [_linear(step.weight, step.bias, dtype)]
    if step.kind in ("max_pool", "average_pool") and step.geometry is not None:
        return [_pooling(step, step.geometry)]
    if step.kind == "activation" and step.activation is not None:
        return [_activation(step.activation)]
    if step.kind == "clip":
        return [Clip(*step.ends)]
    if step.kind == "reshape":
        flat: list[nn.Module] = [nn.Flatten()]
        return flat if len(step.shape) == 1 else [*flat, nn.Unflatten(1, step.shape)]
    if step.kind == "permute":
        return [Permute(step.axes)]
    return []


def _convolution(
    step: Operation, geometry: Geometry, weight: Any, dtype: torch.dtype
) -> list[nn.Module]:
    even = all(before == after for before, after in geometry.pads)
    padding = tuple(before for before, _ in geometry.pads) if even else 0
    conv = _empty(_CONV, step, geometry, weight, dtype, padding=padding)
    conv = _filled(conv, weight, step.bias)
    return [conv] if even else [_pad(geometry.pads), conv]


def _transposed(
    step: Operation, geometry: Geometry, weight: Any, dtype: torch.dtype
) -> list[nn.Module]:
    """Cut off evenly, with outputs added at the end; what is left is cut off behind it."""
    cut = [max(min(before, after + s - 1), 0) for _, s, (before, after), _ in geometry.axes]
    added = [max(n - after, 0) for n, (_, after) in zip(cut, geometry.pads, strict=True)]
    ends = {"padding": tuple(cut), "output_padding": tuple(added)}
    conv = _empty(_TRANSPOSED, step, geometry, weight, dtype, **ends)
    filled = _filled(conv, outputs_first(weight, step.groups), step.bias)
    left = tuple((n - before, n - more - after) for n, more, (before, after) in
                 zip(cut, added, geometry.pads, strict=True))  # fmt: skip
    return [filled, _pad(left)] if any(map(any, left)) else [filled]


def _empty(
    kinds: dict[int, Any],
    step: Operation,
    g: Geometry,
    weight: Any,
    dtype: torch.dtype,
    **ends: Any,
) -> nn.Module:
    """A convolution without numbers; on the meta device, or they would be drawn at random."""
    more = {"stride": g.stride, "dilation": g.dilation, "groups": step.groups, "dtype": dtype}
    channels = weight.shape[1] * step.groups, weight.shape[0]
    made = kinds[len(g.kernel)](*channels, g.kernel, device="meta", **more, **ends)
    return made.to_empty(device="cpu")


def _pad(pads: tuple[tuple[int, int], ...]) -> nn.Module:
    """Zeros around the last axes; negative numbers cut off."""
    return _PAD[len(pads)]([n for pair in reversed(pads) for n in pair], 0.0)


def _pooling(step: Operation, geometry: Geometry) -> nn.Module:
    axes, padding = len(geometry.kernel), tuple(before for before, _ in geometry.pads)
    if step.kind == "max_pool":
        return _MAX[axes](
            geometry.kernel, geometry.stride, padding, geometry.dilation, ceil_mode=geometry.ceil
        )
    return _AVERAGE[axes](
        geometry.kernel, geometry.stride, padding, geometry.ceil, step.count_padding
    )


def _filled(module: Any, weight: Any, bias: Any) -> nn.Module:
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weight))
        if bias is not None:
            module.bias.copy_(torch.tensor(bias))
    return module

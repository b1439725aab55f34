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
from relunorm.io.graph.structured import faithful
from relunorm.io.torch.pt2 import BESIDE
from relunorm.io.torch.structured import build, can_build
from relunorm.matrix import Matrix
from relunorm.network import Activation, Affine, Network
from relunorm.network import head as heads

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@accepts("network")
def to_torch(network: Model, dtype: str | torch.dtype | None = None) -> nn.Module:
    """A module that computes the network, in eval mode; weights are parameters.

    A network whose structure is known becomes the convolutions, poolings and Linear modules it was
    read from (in float64 where that loses no bit), a plain chain of dense maps an nn.Sequential of
    Linear and ReLU or LeakyReLU; other networks with skips, sparse maps or steps a `NetworkModule`.
    float64 unless ``dtype`` says otherwise, in which the outputs are the network's up to rounding.

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
    exact = kind == torch.float32 or faithful(network)
    if network.structure is not None and can_build(network.structure) and exact:
        built = build(network.structure, kind)
        last = [_head_step(step, network.output_shape, kind) for step in network.head.steps]
        parts = list(built) if isinstance(built, nn.Sequential) else [built]
        return nn.Sequential(*parts, *last).eval() if last else built
    plain = network.is_chain and not any(
        sp.issparse(matrix) for affine in network.maps for matrix in affine.terms.values()
    )
    if not plain or any(layer.activation.kind == "step" for layer in network.layers):
        return NetworkModule(network, kind).eval()
    modules: list[nn.Module] = [nn.Flatten()] if len(network.input_shape) > 1 else []
    for number, affine in enumerate(network.maps):
        modules.append(_linear(affine.terms[number], affine.bias, kind))
        if number < len(network.layers) and network.layers[number].has_units:
            modules.append(_activation(network.layers[number].activation))
    if len(network.output_shape) > 1:
        modules.append(nn.Unflatten(1, network.output_shape))
    modules += [_head_step(step, network.output_shape, kind) for step in network.head.steps]
    return nn.Sequential(*modules).eval()


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


class NetworkModule(nn.Module):
    """A network with skips, sparse maps or steps: every map reads any earlier values."""

    def __init__(self, network: Network, dtype: torch.dtype = torch.float64):
        super().__init__()
        inputs = network.input_size
        self.maps = nn.ModuleList(AffineMap(affine, inputs, dtype) for affine in network.maps)
        self.activations = nn.ModuleList(_activation(layer.activation) for layer in network.layers)
        self.output_shape = network.output_shape
        self.head = nn.Sequential(
            *(_head_step(step, network.output_shape, dtype) for step in network.head.steps)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        values = [inputs.flatten(1)]
        for affine, activation in zip(self.maps, self.activations, strict=False):
            values.append(activation(affine(values)))
        output = self.maps[-1](values)
        if len(self.output_shape) > 1:
            output = output.unflatten(1, self.output_shape)
        return self.head(output)


class AffineMap(nn.Module):
    """The sum of linear maps of some of the values, and a bias."""

    def __init__(self, affine: Affine, inputs: int, dtype: torch.dtype):
        super().__init__()
        terms = {source: matrix for source, matrix in affine.terms.items() if mx.nnz(matrix)}
        # A constant map reads the input with weight zero, so that every output depends on it.
        terms = terms or {0: np.zeros((affine.size, inputs))}
        self.sources = tuple(terms)
        self.terms = nn.ModuleList(
            SparseLinear(matrix, dtype) if sp.issparse(matrix) else _linear(matrix, None, dtype)
            for matrix in terms.values()
        )
        self.bias = nn.Parameter(torch.tensor(affine.bias, dtype=dtype))

    def forward(self, values: list[Tensor]) -> Tensor:
        total = self.bias
        for source, term in zip(self.sources, self.terms, strict=True):
            total = total + term(values[source])
        return total


class SparseLinear(nn.Module):
    """A linear map by a fixed sparse pattern, whose entries are the parameter ``weight``."""

    columns: Tensor
    rows: Tensor

    def __init__(self, matrix: Any, dtype: torch.dtype):
        super().__init__()
        self.shape = matrix.shape
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self.register_buffer("rows", torch.tensor(rows, dtype=torch.int64))
        self.register_buffer("columns", torch.tensor(matrix.indices, dtype=torch.int64))
        self.weight = nn.Parameter(torch.tensor(matrix.data, dtype=dtype))

    def forward(self, inputs: Tensor) -> Tensor:
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
        for name, part in (("factor", step.factors), ("offset", step.offsets)):
            array = part.reshape(shape) if part.size > 1 else part.reshape(())
            self.register_buffer(name, torch.tensor(array, dtype=dtype))

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
        if self.step.kind == "clip":
            return inputs.clamp(*self.step.numbers)
        return inputs.exp() if self.step.kind == "exp" else inputs.round()


def _head_step(step: heads.Step, shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    if step.kind in ("softmax", "log_softmax"):
        return (nn.Softmax if step.kind == "softmax" else nn.LogSoftmax)(step.axis + 1)
    if step.kind == "scale":
        return Scaling(step, shape, dtype)
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


def _linear(matrix: Matrix, bias: Any, dtype: torch.dtype) -> nn.Linear:
    rows, columns = matrix.shape
    # On the meta device, because the usual initialisation would draw from the global random state.
    linear = nn.Linear(columns, rows, bias=bias is not None, dtype=dtype, device="meta")
    linear = linear.to_empty(device="cpu")
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(matrix))
        if bias is not None:
            linear.bias.copy_(torch.tensor(bias))
    return linear


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    found = _DTYPES.get(str(dtype or "float64").removeprefix("torch."))
    if found is None:
        raise UnsupportedFormatError(f"dtype {dtype!r}: use float32 or float64")
    return found

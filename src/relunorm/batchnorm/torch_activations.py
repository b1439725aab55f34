"""Probing a torch module by hooks: each output is reduced to its Gram matrix and counts at once.

The module is left as it was: hooks removed, buffers (running statistics) restored, mode, device and
the global random state untouched.
It is called with one tensor, several, or several by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from relunorm.arguments import real_numbers
from relunorm.batchnorm.activations import Raw, Settings, chosen, pick_points, raw_of
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.nn.batchnorm import DecomposedBatchNorm

ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.RReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid,
    nn.Tanh, nn.Hardtanh, nn.Softplus,
)  # fmt: skip

#: In training mode these see the batch as a whole.
BY_BATCH = (nn.modules.batchnorm._BatchNorm, DecomposedBatchNorm)

Receive = Callable[[str, Tensor], None]


def stream(
    model: nn.Module,
    batch: Any,
    layers: Sequence[str] | None,
    chunk: int | None,
    settings: Settings,
) -> list[Raw]:
    """Run the batch through the module and reduce the output of each chosen layer."""
    inputs = inputs_of(model, batch)
    n = len(inputs)
    picks = pick_points(n, settings)
    modules = _modules(model, layers)
    if chunk is None or chunk >= n:
        return _whole(model, modules, inputs, picks, layers)
    if any(m.training and isinstance(m, BY_BATCH) for m in model.modules()):
        raise InvalidInputError(
            "the model normalizes by the batch (training mode), so the batch cannot be cut into "
            "chunks; call model.eval() or leave chunk out"
        )
    return _chunked(model, modules, inputs, picks, chunk, layers)


def _whole(
    model: nn.Module,
    modules: dict[str, nn.Module],
    inputs: Inputs,
    picks: NDArray[np.int64],
    layers: Sequence[str] | None,
) -> list[Raw]:
    found: list[Raw] = []

    def receive(name: str, output: Tensor) -> None:
        flat, rounding = _flat(name, output)
        raw = raw_of(name, flat.cpu().numpy(), picks, rounding)
        found.append(replace(raw, shape=tuple(output.shape[1:])))

    _forward(model, modules, inputs, receive, layers)
    return found


def _chunked(
    model: nn.Module,
    modules: dict[str, nn.Module],
    inputs: Inputs,
    picks: NDArray[np.int64],
    chunk: int,
    layers: Sequence[str] | None,
) -> list[Raw]:
    """Counts in one pass over the batch, then the Gram matrix block by block, and beside it the
    triangular factor of layers that are not wider than the points used.
    """
    active: dict[str, Tensor] = {}
    shapes: dict[str, tuple[tuple[int, ...], float]] = {}
    exponents: dict[str, int] = {}

    def count(name: str, output: Tensor) -> None:
        flat, rounding = _flat(name, output)
        positive = (flat > 0).sum(dim=0)
        active[name] = positive + active[name] if name in active else positive
        shapes[name] = (tuple(output.shape[1:]), rounding)
        above = math.frexp(float(flat.abs().max()))[1]  # the power of two above the largest entry
        exponents[name] = max(above, exponents.get(name, -2000))

    def scaled(name: str, output: Tensor) -> Tensor:
        """A copy: modules that work in place may write into the output later."""
        return _scaled(_flat(name, output)[0], exponents[name])

    modules = _following(model, modules, inputs, chunk, layers)
    for start in range(0, len(inputs), chunk):
        _forward(model, modules, inputs.part(slice(start, start + chunk)), count, layers)
    m = len(picks)
    used = inputs.part(torch.from_numpy(picks))
    grams = {name: np.zeros((m, m)) for name in active}
    rows: dict[str, Tensor] = {}
    factors: dict[str, Tensor] = {}
    starts = list(range(0, m, chunk))
    for a in starts:
        rows.clear()
        _forward(
            model,
            modules,
            used.part(slice(a, a + chunk)),
            lambda name, output: rows.__setitem__(name, scaled(name, output)),
            layers,
        )
        for name, own in rows.items():
            if own.shape[1] <= m:
                above = [factors[name], own] if name in factors else [own]
                factors[name] = torch.linalg.qr(torch.cat(above), mode="r").R
        for b in (b for b in starts if b >= a):

            def block(name: str, output: Tensor, a: int = a, b: int = b) -> None:
                part = (rows[name] @ scaled(name, output).T).cpu().numpy()
                grams[name][a : a + len(part), b : b + part.shape[1]] = part
                grams[name][b : b + part.shape[1], a : a + len(part)] = part.T

            if b == a:
                for name, own in rows.items():
                    grams[name][a : a + len(own), a : a + len(own)] = (own @ own.T).cpu().numpy()
            else:
                _forward(model, modules, used.part(slice(b, b + chunk)), block, layers)
    return [
        Raw(
            name,
            shapes[name][0],
            gram,
            values,
            shapes[name][1],
            active[name].cpu().numpy(),
            len(inputs),
            exponents[name],
            resolution,
        )
        for name, gram in grams.items()
        for values, resolution in [_singular_values(gram, active[name].numel(), factors.get(name))]
    ]


def _singular_values(
    gram: NDArray[np.float64], width: int, factor: Tensor | None
) -> tuple[NDArray[np.float64], float]:
    """Of activations that were never held at once, and the share of the largest they resolve."""
    if factor is not None:
        return torch.linalg.svdvals(factor).cpu().numpy(), 0.0
    # inner products of this length, and eigenvalues, are off by about width x 2^-52 of the largest
    values = np.linalg.eigvalsh(gram)[::-1]
    return np.sqrt(np.maximum(values, 0.0)), math.sqrt(width * 2.0**-52)


def _following(
    model: nn.Module,
    modules: dict[str, nn.Module],
    inputs: Inputs,
    chunk: int,
    layers: Sequence[str] | None,
) -> dict[str, nn.Module]:
    """The modules whose outputs have the batch first, not something else that is ``chunk`` long:
    seen by sending another number of points.
    """
    names: set[str] = set()
    few = inputs.part(slice(0, chunk - 1 if chunk > 1 else 2))
    _forward(model, modules, few, lambda name, _: names.add(name.split("#")[0]), layers)
    return {name: module for name, module in modules.items() if name in names}


def _flat(name: str, output: Tensor) -> tuple[Tensor, float]:
    if output.is_complex():
        raise InvalidInputError(
            f"{name}: the activations are complex; the probes measure real ones"
        )
    if not torch.isfinite(output).all():
        raise InvalidInputError(f"{name}: the activations hold NaN or infinite entries")
    rounding = torch.finfo(output.dtype).eps if output.is_floating_point() else 2.0**-52
    return output.detach().reshape(len(output), -1).to(torch.float64), rounding


def _scaled(flat: Tensor, exponent: int) -> Tensor:
    """flat / 2**exponent in new memory; in two factors, each of which floats hold."""
    half = exponent // 2
    return flat * 2.0**-half * 2.0 ** (half - exponent)


def _forward(
    model: nn.Module,
    modules: dict[str, nn.Module],
    inputs: Inputs,
    receive: Receive,
    layers: Sequence[str] | None,
) -> None:
    calls: dict[str, int] = {}

    def hook(name: str) -> Callable[..., None]:
        def run(_module: nn.Module, _inputs: Any, output: Any) -> None:
            usable = (
                isinstance(output, Tensor)
                and output.layout == torch.strided
                and output.dim() >= 2
                and len(output) == len(inputs)
                and output.numel() > 0
            )
            if not usable:
                if layers is None:
                    return
                what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                raise InvalidInputError(
                    f"{name}: its output ({what}) is not one tensor with the batch of "
                    f"{len(inputs)} first"
                )
            calls[name] = calls.get(name, 0) + 1
            receive(name if calls[name] == 1 else f"{name}#{calls[name]}", output)

        return run

    with _untouched(model), torch.no_grad():
        handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
        try:
            inputs.send(model)
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restore buffers and the random state on the way out."""
    # a forward pass may write into a buffer, or put another tensor in its place
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = sorted({b.device.index or 0 for b in model.parameters() if b.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for holder, before in buffers:
                    holder.clear()
                    holder.update(before)
                for buffer, value in saved:
                    buffer.copy_(value)


def _modules(model: nn.Module, layers: Sequence[str] | None) -> dict[str, nn.Module]:
    named = {name or "(model)": module for name, module in model.named_modules()}
    if layers is not None:
        return chosen(named, layers, "module")
    active: dict[str, nn.Module] = {k: m for k, m in named.items() if isinstance(m, ACTIVATIONS)}
    return active or {name: m for name, m in named.items() if not any(m.children())}


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch for a module: positional and named tensors with the points on their first axis."""

    positional: tuple[Tensor, ...]
    named: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter((*self.positional, *self.named.values()))))

    def part(self, index: slice | Tensor) -> Inputs:
        """Some of the points."""
        return Inputs(
            tuple(self._at(x, index) for x in self.positional),
            {name: self._at(x, index) for name, x in self.named.items()},
        )

    @staticmethod
    def _at(x: Tensor, index: slice | Tensor) -> Tensor:
        return x[index.to(x.device) if isinstance(index, Tensor) else index]

    def send(self, model: nn.Module) -> None:
        """Call the module; what it raises on this batch becomes a package error."""
        try:
            model(*self.positional, **self.named)
        except RelunormError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            tensors = (*self.positional, *self.named.values())
            given = ", ".join(f"{tuple(x.shape)} {x.dtype}".replace("torch.", "") for x in tensors)
            raise InvalidInputError(
                f"{type(model).__name__} does not take this batch ({given}): {error}"
            ) from error


def inputs_of(model: nn.Module, batch: Any) -> Inputs:
    """The batch on the model's device, in its float type.

    A mapping is called by name. A tuple that holds tensors or arrays is several inputs; any other
    sequence is one array.
    """
    tensors = (*model.parameters(), *model.buffers())
    if any(is_lazy(x) for x in tensors):
        raise InvalidInputError("the model has lazy layers without weights; run a batch first")
    if any(x.device.type == "meta" for x in tensors):
        raise InvalidInputError("the model is on the meta device: it has no weights to probe")
    if isinstance(batch, Mapping):
        found = Inputs((), {str(k): _tensor(model, v, f"input {k!r}") for k, v in batch.items()})
    elif isinstance(batch, tuple) and any(isinstance(x, (Tensor, np.ndarray)) for x in batch):
        given = enumerate(batch, start=1)
        found = Inputs(tuple(_tensor(model, x, f"input {k}") for k, x in given), {})
    else:
        found = Inputs((_tensor(model, batch, "the batch"),), {})
    lengths = [len(x) for x in (*found.positional, *found.named.values())]
    if not lengths:
        raise InvalidInputError("the batch is empty: it names no input")
    if len(set(lengths)) > 1:
        raise InvalidInputError(
            f"the inputs hold different numbers of points ({lengths}); the first axis is the batch"
        )
    return found


def _tensor(model: nn.Module, batch: Any, name: str) -> Tensor:
    example = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(batch, Tensor):
        batch = torch.from_numpy(np.array(real_numbers(name, batch), dtype=np.float64))
    elif batch.layout != torch.strided or batch.device.type == "meta" or batch.is_complex():
        what = batch.dtype if batch.is_complex() else f"{batch.layout}, {batch.device.type}"
        raise InvalidInputError(f"{name} is a tensor of {what}; expected plain real numbers")
    batch = batch.detach()
    if batch.dim() < 1 or not batch.numel():
        raise InvalidInputError(f"{name} is empty: shape {tuple(batch.shape)}")
    if batch.is_floating_point():
        if not torch.isfinite(batch).all():
            raise InvalidInputError(f"{name} holds NaN or infinite entries")
        batch = batch.to(torch.float32 if example is None else example.dtype)
    return batch if example is None else batch.to(example.device)

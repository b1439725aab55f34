"""Initialisations against units that are born dead, in place on torch models.

All take a ``random_state`` (a seed or a ``torch.Generator``) and touch the weights and biases of
linear and convolution layers only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from relunorm.arguments import whole_number
from relunorm.dying.watch.passes import call, check_batch
from relunorm.errors import InvalidInputError

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
RandomState = int | torch.Generator


def generator(random_state: RandomState) -> torch.Generator:
    """A torch generator from a seed, or the one given."""
    if isinstance(random_state, torch.Generator):
        return random_state
    seed = whole_number("random_state (a seed or a torch.Generator)", random_state, 0)
    return torch.Generator().manual_seed(seed)


def layers(model: nn.Module) -> list[Any]:
    """Linear and convolution layers in the order of their definition."""
    found = [module for module in model.modules() if isinstance(module, LAYERS)]
    if not found:
        raise InvalidInputError(f"{type(model).__name__} has no linear or convolution layer")
    return found


@torch.no_grad()
def he_(model: nn.Module, random_state: RandomState = 0) -> nn.Module:
    """Weights N(0, 2 / fan-in), biases 0 (He et al. 2015)."""
    gen = generator(random_state)
    for layer in layers(model):
        weight = layer.weight
        deviation = math.sqrt(2 / weight[0].numel())
        weight.copy_(torch.randn(weight.shape, generator=gen) * deviation)
        if layer.bias is not None:
            layer.bias.zero_()
    return model


@torch.no_grad()
def randomized_asymmetric_(model: nn.Module, random_state: RandomState = 0) -> nn.Module:
    """Randomised asymmetric initialisation of Lu et al. (2019) against born-dead deep networks.

    In every layer after the first, each unit's weights and bias are N(0, 0.6007^2 / fan-in), but
    one entry, at random, is Beta(2, 1) on [0, 1]. The first layer, whose inputs have no sign, is
    He's with zero bias. Their 0.6007 keeps the second moment of the values constant in depth.
    """
    gen = generator(random_state)
    first, *rest = layers(model)
    he_(nn.ModuleList([first]), gen)
    for layer in rest:
        weight = layer.weight
        units, fan_in = len(weight), weight[0].numel()
        table = torch.randn(units, fan_in + 1, generator=gen) * (0.6007 / math.sqrt(fan_in))
        entries = fan_in + (layer.bias is not None)
        pick = torch.randint(entries, (units,), generator=gen)
        # The distribution function of Beta(2, 1) is x^2.
        table[torch.arange(units), pick] = torch.rand(units, generator=gen).sqrt()
        weight.copy_(table[:, :-1].reshape(weight.shape))
        if layer.bias is not None:
            layer.bias.copy_(table[:, -1])
    return model


@torch.no_grad()
def lsuv_(
    model: nn.Module, batch: Any, random_state: RandomState = 0, tolerance: float = 0.02
) -> nn.Module:
    """Layer-sequential unit variance (Mishkin and Matas 2016): orthonormal, then scaled on data.

    Layers are visited in the order they run; each is divided by its output's deviation on the
    batch until that is 1 within the tolerance, at most 10 times.
    """
    check_batch(batch)
    gen = generator(random_state)
    for layer in layers(model):
        weight = layer.weight
        table = torch.randn(len(weight), weight[0].numel(), generator=gen, dtype=torch.float64)
        tall = table if table.shape[0] >= table.shape[1] else table.mT
        q = torch.linalg.qr(tall)[0]
        weight.copy_((q if table.shape[0] >= table.shape[1] else q.mT).reshape(weight.shape))
        if layer.bias is not None:
            layer.bias.zero_()
    for layer in in_running_order(model, batch):
        for _ in range(10):
            deviation = float(layer_output(model, layer, batch).std())
            if not deviation > 0 or abs(deviation - 1) < tolerance:
                break
            layer.weight.div_(deviation)
    return model


@torch.no_grad()
def live_(
    model: nn.Module,
    batch: Any,
    random_state: RandomState = 0,
    share: tuple[float, float] = (0.1, 0.9),
) -> nn.Module:
    """Weights as He's; biases such that every unit is active on a random share of the batch.

    Layer by layer in running order, the bias of a unit is minus a quantile of its pre-activation
    on the batch, so its boundary passes through the data. The last layer keeps bias 0. A layer
    without bias is left at He's weights.
    """
    check_share(share)
    check_batch(batch)
    gen = generator(random_state)
    he_(model, gen)
    *hidden, _ = in_running_order(model, batch)
    for layer in hidden:
        if layer.bias is not None:
            z = layer_output(model, layer, batch)
            layer.bias.copy_(live_bias(z, gen, share))
    return model


def check_share(share: tuple[float, float]) -> None:
    """Refuse anything but two shares in order."""
    if len(share) != 2 or not 0 <= share[0] <= share[1] <= 1:
        raise InvalidInputError(f"share is {share}, expected two numbers 0 <= low <= high <= 1")


def live_bias(z: Tensor, gen: torch.Generator, share: tuple[float, float] = (0.1, 0.9)) -> Tensor:
    """Biases that make units with zero-bias pre-activations ``z`` (samples, units) live."""
    units = z.shape[1]
    active = share[0] + (share[1] - share[0]) * torch.rand(units, generator=gen)
    ordered = z.sort(dim=0).values
    n = len(z)
    below = ((1 - active.to(z.device)) * (n - 1)).floor().long().clamp(0, max(n - 2, 0))
    at = below[None]
    upper = (at + 1).clamp_max(n - 1)
    bias = -(0.5 * ordered.gather(0, at) + 0.5 * ordered.gather(0, upper))[0]
    # All samples alike (or only one): no boundary separates them, so the unit is put before them.
    return torch.where(ordered[-1] + bias > 0, bias, 1 - ordered[-1])


def in_running_order(model: nn.Module, batch: Any) -> list[Any]:
    """Linear and convolution layers in the order one forward pass calls them, each once."""
    order: list[Any] = []

    def note(module: nn.Module, args: Any) -> None:
        if module not in order:
            order.append(module)

    handles = [layer.register_forward_pre_hook(note) for layer in layers(model)]
    try:
        with torch.no_grad(), evaluating(model):
            call(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return order


class _Reached(Exception):
    """Ends a forward pass once the wanted layer has run."""


def layer_output(model: nn.Module, layer: Any, batch: Any) -> Tensor:
    """A layer's output on the batch, with or without a batch axis, as (samples, units)."""
    caught: list[Tensor] = []

    def catch(module: nn.Module, args: Any, output: Tensor) -> None:
        caught.append(output)
        raise _Reached

    handle = layer.register_forward_hook(catch)
    try:
        with torch.no_grad(), evaluating(model):
            call(model, batch)
    except _Reached:
        pass
    finally:
        handle.remove()
    axis = 1 - layer.weight.ndim  # the last axis for linear layers, before the places for others
    return caught[0].movedim(axis, -1).reshape(-1, caught[0].shape[axis])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, every module's own mode after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def rows_like(layer: Any, units: int, gen: torch.Generator) -> Iterator[Tensor]:
    """New incoming weights and biases for ``units`` units, as torch initialises such a layer."""
    weight = layer.weight
    fan_in = weight[0].numel()
    bound = 1 / math.sqrt(fan_in)
    yield (torch.rand(units, *weight.shape[1:], generator=gen) * 2 - 1) * bound
    yield (torch.rand(units, generator=gen) * 2 - 1) * bound

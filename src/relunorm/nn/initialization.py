"""Initialization from data: one neuron per point, firing for that point alone (seed 004,
Discussion), or every hidden unit live on the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from relunorm.arguments import generator, real_number, real_numbers, whole_number
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.nn.hidden import flat_rows, hidden_linears, unwrapped
from relunorm.train.problem.layered import live_thresholds


@dataclass(frozen=True)
class DatapointInit:
    """What `datapoint_init_` did.

    Attributes:
        points: index of the data point each of the first neurons stands for.
        exclusive: how many of them fire for their own point and no other of the data: on the
            weights as stored and the data in the layer's type, whatever its sums may round to.
        free: neurons left with their previous weights (more neurons than points).
        random_state: the seed used to choose points when there are more of them than neurons.
    """

    points: tuple[int, ...]
    exclusive: int
    free: int
    random_state: int | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.datapoint_init/1",
            **entries(self, "points exclusive free random_state"),
        }


def datapoint_init_(
    layer: nn.Linear,
    data: ArrayLike,
    *,
    threshold: float = 0.5,
    ridge: float = 0.01,
    random_state: int | None = 0,
) -> DatapointInit:
    """Overwrite a linear layer so that neuron i responds to data point i alone.

    w_i = C^-1 (x_i - mean) with C the covariance plus ``ridge`` times its mean eigenvalue: the
    direction in which x_i stands out most from the rest. The bias puts the kink between the point's
    own response and the strongest other one: at other + threshold (own - other), and the scale
    makes the own response 1. Threshold 0 lets the nearest other point just touch, short of it by
    what rounding in the layer's type may add; towards 1 the neuron sees its own point only just. A
    point that does not respond most in its direction (it lies inside the hull of the others) gets
    its kink below its own response by (1 - threshold) standard deviations instead.

    Args:
        layer: its first min(n, out_features) neurons are set; the rest keep their weights.
        data: (n, in_features); with more points than neurons a random subset stands for them.

    Meant for small data sets: the cost is O(n d^2 + n^2 d).

    >>> layer = nn.Linear(2, 3)
    >>> datapoint_init_(layer, [[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]).exclusive
    3
    """
    given, index = _data(layer, data)
    seed = None if random_state is None else whole_number("random_state", random_state, 0)
    if not 0 <= real_number("threshold", threshold) < 1:
        raise InvalidInputError(f"threshold is {threshold}, expected 0 <= threshold < 1")
    if real_number("ridge", ridge) < 0:
        raise InvalidInputError(f"ridge is {ridge}, expected at least 0")
    if layer.bias is None:
        raise InvalidInputError("the layer has no bias, and without one no neuron has a threshold")
    count = min(len(given), layer.out_features)
    chosen = np.arange(len(given))
    if count < len(given):
        chosen = np.sort(generator(seed).choice(len(given), count, replace=False))
    # entries near 1: squares of very large or small ones would leave the range of floats
    exponent = int(np.frexp(np.abs(given).max())[1])
    X = np.ldexp(given, -exponent)
    centred = X - X.mean(axis=0)
    cov = centred.T @ centred / len(X)
    level = np.trace(cov) / len(cov)
    directions = np.linalg.solve(
        cov + max(ridge, 1e-10) * level * np.eye(len(cov)), centred[chosen].T
    ).T
    response = directions @ X.T
    own = response[np.arange(count), chosen]
    others = response.copy()
    others[np.arange(count), chosen] = -np.inf
    rival = others.max(axis=1)
    separate = own > rival
    spread = np.maximum(response.std(axis=1), 1e-12)
    # a point that only touches would fire by rounding: |w||x| (d + 2) units, in any order of sums
    sizes = np.abs(directions) @ np.abs(X).max(axis=0) + np.abs(rival)
    margin = np.minimum(
        (X.shape[1] + 4) * torch.finfo(layer.weight.dtype).eps * sizes, (own - rival) / 2
    )
    clear = rival + np.maximum(threshold * (own - rival), margin)
    kink = np.where(separate, clear, own - (1 - threshold) * spread)
    scale = 1 / (own - kink)
    with np.errstate(over="ignore"):  # refused below, by name
        weight = np.ldexp(directions * scale[:, None], -exponent)
    weight = torch.from_numpy(weight).to(layer.weight)
    bias = torch.from_numpy(-kink * scale).to(layer.bias)
    lost = (weight == 0).all(dim=1) & torch.from_numpy(directions.any(axis=1)).to(weight.device)
    if lost.any() or not (torch.isfinite(weight).all() and torch.isfinite(bias).all()):
        raise InvalidInputError(
            f"data with entries up to 2^{exponent} needs weights that {layer.weight.dtype} does "
            "not hold; rescale the data"
        )
    with torch.no_grad():
        layer.weight[:count] = weight
        layer.bias[:count] = bias
    return DatapointInit(
        tuple(index[chosen].tolist()),
        _exclusive(torch.from_numpy(given).to(weight), layer, chosen),
        layer.out_features - count,
        seed,
    )


@torch.no_grad()
def _exclusive(x: Tensor, layer: nn.Linear, chosen: np.ndarray) -> int:
    """How many neurons fire for their own point alone, as the layer stands and however its sums are
    rounded.

    A sum of d products and a bias in floats is off by at most (d + 1) u (|w||x| + |b|), u half a
    unit in the last place, in any order. Types shorter than float32 are summed in float32.
    """
    count = len(chosen)
    fires = (nn.functional.linear(x, layer.weight, layer.bias) > 0)[:, :count].cpu()
    unit = min(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps) / 2
    x, weight, bias = (t.double().cpu() for t in (x, layer.weight[:count], layer.bias[:count]))
    response = nn.functional.linear(x, weight, bias)
    rounding = (x.shape[1] + 1) * unit * nn.functional.linear(x.abs(), weight.abs(), bias.abs())
    may, must = fires | (response + rounding > 0), fires & (response - rounding > 0)
    own = must[torch.from_numpy(chosen), torch.arange(count)]
    return int((own & (may.sum(dim=0) == 1)).sum())


def _data(layer: nn.Linear, data: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The different points in order, and where each first stands in ``data``."""
    if not isinstance(layer, nn.Linear):
        raise InvalidInputError(f"the layer is a {type(layer).__name__}, expected torch.nn.Linear")
    if is_lazy(layer.weight) or layer.weight.device.type == "meta":
        raise InvalidInputError("the layer has no weights yet (lazy, or on the meta device)")
    if not layer.weight.is_floating_point():
        raise InvalidInputError(f"the layer's weights are {layer.weight.dtype}, expected floats")
    X = real_numbers("data", data).astype(np.float64, copy=False)
    if X.ndim != 2 or X.shape[1] != layer.in_features:
        raise InvalidInputError(
            f"data has shape {X.shape}, expected (n, {layer.in_features}) to match the "
            "layer's inputs"
        )
    if len(X) < 2:
        raise InvalidInputError(f"{len(X)} data points: a point stands out only among at least two")
    if not np.isfinite(X).all():
        raise InvalidInputError("data holds NaN or infinite entries")
    _, first = np.unique(X, axis=0, return_index=True)
    first = np.sort(first)
    if len(first) < 2:
        raise InvalidInputError("all data points are equal: none stands out")
    return X[first], first


def live_init_(module: nn.Module, X: Tensor, generator: torch.Generator | None = None) -> nn.Module:
    """Set every Linear followed by ReLU so that each unit's hyperplane passes through the data.

    w uniform on the unit sphere and -b half way between w . h(x_i), for a random row x_i, and the
    next other value on the data, where h is what the layer receives; layers are set one after the
    other in a single forward pass. Every unit is active on some row and inactive on another, and
    no row lies on a kink, unless the layer receives the same vector from every row: no weights
    could tell such rows apart, and b = -w . h then. Other layers keep their weights. In place;
    returns the module. Works on constrained modules.

    Args:
        X: a batch of inputs.
        generator: for the random choices; a fresh one with seed 0 if omitted.

    >>> net = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 1))
    >>> net = live_init_(net, torch.linspace(0.1, 0.9, 40)[:, None])
    >>> share = (net[0](torch.linspace(0, 1, 400)[:, None]) > 0).float().mean(dim=0)
    >>> bool((share > 0).all() and (share < 1).all())
    True
    """
    layers = hidden_linears(unwrapped(module))
    for layer in layers:
        if layer.linear.bias is None:
            raise InvalidInputError(
                f"layer {layer.name!r} has no bias, so its threshold is fixed at 0"
            )
    _check(module, X)
    stream = generator or torch.Generator().manual_seed(0)

    def set_layer(linear: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        assert isinstance(linear, nn.Linear)
        rows = flat_rows(arguments[0])
        shape = (linear.out_features, linear.in_features)
        w = torch.randn(shape, generator=stream, device=stream.device).to(rows)
        w = w / w.norm(dim=1, keepdim=True).clamp_min(1e-30)
        b = live_thresholds(rows @ w.mT, rows.norm(dim=1).amax(), stream)
        for name, value in (("weight", w), ("bias", b)):
            _assign(linear, name, value)

    hooks = [layer.linear.register_forward_pre_hook(set_layer) for layer in layers]
    try:
        _evaluate(module, X)
    finally:
        for hook in hooks:
            hook.remove()
    return module


@torch.no_grad()
def _evaluate(module: nn.Module, X: Tensor) -> None:
    """One pass in evaluation mode; every part keeps its own."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        unwrapped(module)(X)
    finally:
        for part, training in modes:
            part.training = training


def _check(module: nn.Module, X: Tensor) -> None:
    """Before anything is changed: the module can take the data, and the data is finite."""
    if not isinstance(X, Tensor) or not X.is_floating_point():
        kind = X.dtype if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInputError(f"live_init_ needs a floating-point tensor; found {kind}")
    if not X.numel():
        raise InvalidInputError("live_init_ needs at least one row of data")
    if not bool(X.isfinite().all()):
        raise InvalidInputError("live_init_: the data holds NaN or infinite entries")
    try:
        _evaluate(module, X)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{type(module).__name__} cannot take data of shape {tuple(X.shape)} and {X.dtype}: "
            f"{error}"
        ) from error


def _assign(linear: nn.Linear, name: str, value: Tensor) -> None:
    """Write through a parametrization if there is one, else into the parameter."""
    if nn.utils.parametrize.is_parametrized(linear, name):
        setattr(linear, name, value)
    else:
        getattr(linear, name).data.copy_(value)

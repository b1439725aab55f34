"""Initialization by which every hidden unit is live on the data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relunorm.errors import InvalidInputError
from relunorm.nn.hidden import flat_rows, hidden_linears, unwrapped
from relunorm.train.problem.thresholds import live_thresholds


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

    inner = unwrapped(module)
    hooks = [layer.linear.register_forward_pre_hook(set_layer) for layer in layers]
    training = module.training
    try:
        with torch.no_grad():
            module.eval()
            inner(X)
    finally:
        for hook in hooks:
            hook.remove()
        module.train(training)
    return module


def _check(module: nn.Module, X: Tensor) -> None:
    """Before anything is changed: the module can take the data, and the data is finite."""
    if not isinstance(X, Tensor) or not X.is_floating_point():
        kind = X.dtype if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInputError(f"live_init_ needs a floating-point tensor; found {kind}")
    if not X.numel():
        raise InvalidInputError("live_init_ needs at least one row of data")
    if not bool(X.isfinite().all()):
        raise InvalidInputError("live_init_: the data holds NaN or infinite entries")
    training = module.training
    try:
        with torch.no_grad():
            module.eval()
            unwrapped(module)(X)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{type(module).__name__} cannot take data of shape {tuple(X.shape)} and {X.dtype}: "
            f"{error}"
        ) from error
    finally:
        module.train(training)


def _assign(linear: nn.Linear, name: str, value: Tensor) -> None:
    """Write through a parametrization if there is one, else into the parameter."""
    if nn.utils.parametrize.is_parametrized(linear, name):
        setattr(linear, name, value)
    else:
        getattr(linear, name).data.copy_(value)

"""Making an optimizer forget single units: moments and step count, the rest of a tensor untouched.

Adam divides its moments by 1 - beta^t, with one t per tensor. A unit whose moments are zeroed at a
large t gets steps of up to sqrt((1 - beta1)^2 / (1 - beta2)) = 3.2 learning rates at first, and
setting t to 0 would shrink every other unit's steps for a thousand updates. `FreshUnits` gives the
reset units a step count of their own instead: before each update it rescales their moments so that
Adam's one division comes out as if these units had started at the reset. Exact up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

#: Per-parameter state with one entry per weight, over torch's optimizers.
MOMENTS = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg",
    "exp_inf", "sum", "acc_delta",
)  # fmt: skip


@dataclass
class _Fresh:
    """A block of one parameter that started anew, ``age`` updates ago."""

    index: tuple[Any, ...]
    age: int
    first: Tensor
    second: Tensor
    largest: Tensor


class FreshUnits:
    """Resets parts of an optimizer's state and keeps Adam's bias correction right for them.

    Args:
        optimizer: any torch optimizer. Moments, momentum buffers and averages are zeroed; the step
            count is per unit for Adam and AdamW, amsgrad included. That makes them, SGD without
            dampening and RMSprop exact. Not exact, because one count or product per tensor stays
            as it is: NAdam, RAdam, Adamax, Adadelta's warm-up, SGD's first step with dampening.
            A closure given to ``step`` is run first, as the optimizer would. Fused optimizers under
            a ``GradScaler`` divide by its scale and skip overflows inside their step; so is done
            here.

    Hooks the optimizer only while some unit is young (until beta2^age < 1e-4); `close` removes it.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self._young: dict[Tensor, list[_Fresh]] = {}
        self._handle: Any = None

    def reset(self, parameter: Tensor, index: tuple[Any, ...]) -> None:
        """Forget ``parameter[index]``: zero moments, step count 0."""
        state = self.optimizer.state.get(parameter)
        if not state:
            return
        for name in MOMENTS:
            moment = state.get(name)
            if isinstance(moment, Tensor) and moment.shape == parameter.shape:
                moment[index] = 0
        if isinstance(self.optimizer, torch.optim.Adam):  # AdamW is one
            zero = torch.zeros_like(state["exp_avg"][index])
            entry = _Fresh(index, 0, zero, zero.clone(), zero.clone())
            self._young.setdefault(parameter, []).append(entry)
            if self._handle is None:
                self._handle = self.optimizer.register_step_pre_hook(self._before)

    def close(self) -> None:
        """Stop correcting; units still young keep their moments as they are."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._young = {}

    @property
    def young(self) -> int:
        """How many blocks still have a step count of their own."""
        return sum(len(entries) for entries in self._young.values())

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Correct the moments before an update; with a closure, once it has made the gradients."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._correct(optimizer)
            return None

        def corrected() -> Any:
            loss = closure()
            self._correct(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": corrected}

    @torch.no_grad()
    def _correct(self, optimizer: Optimizer) -> None:
        # A GradScaler sets these two for the length of a fused optimizer's step.
        overflow = getattr(optimizer, "found_inf", None)
        if overflow is not None and bool(overflow):
            return  # this step changes nothing and does not count
        scale = getattr(optimizer, "grad_scale", None)
        for group in optimizer.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                entries = self._young.get(parameter)
                if not entries or parameter.grad is None:
                    continue
                state = optimizer.state[parameter]
                t = float(state["step"]) + 1
                gradient = _effective_gradient(parameter, group, scale)
                for entry in entries:
                    _prepare(entry, state, gradient, t, beta1, beta2)
                self._young[parameter] = [e for e in entries if beta2**e.age >= 1e-4]
                if not self._young[parameter]:
                    del self._young[parameter]
        if not self._young:
            self.close()


def _effective_gradient(parameter: Tensor, group: dict[str, Any], scale: Tensor | None) -> Tensor:
    """What Adam averages: unscaled, and with L2 decay added; AdamW's decay is not."""
    gradient: Any = parameter.grad
    if scale is not None:
        gradient = gradient / scale.to(gradient.device)
    if group.get("maximize"):
        gradient = -gradient
    if group.get("weight_decay") and not group.get("decoupled_weight_decay", False):
        gradient = gradient + group["weight_decay"] * parameter
    return gradient


def _prepare(
    entry: _Fresh, state: dict[str, Any], gradient: Tensor, t: float, beta1: float, beta2: float
) -> None:
    """Set the moments so that after Adam's own update they correct to those of a fresh start."""
    entry.age += 1
    g = gradient[entry.index]
    entry.first.mul_(beta1).add_(g, alpha=1 - beta1)
    entry.second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    grow1 = (1 - beta1**t) / (1 - beta1**entry.age)
    grow2 = (1 - beta2**t) / (1 - beta2**entry.age)
    if beta1 > 0:
        state["exp_avg"][entry.index] = (entry.first * grow1 - (1 - beta1) * g) / beta1
    second = (entry.second * grow2 - (1 - beta2) * g * g) / beta2
    state["exp_avg_sq"][entry.index] = second.clamp_min_(0)
    if "max_exp_avg_sq" in state:
        torch.maximum(entry.largest, entry.second, out=entry.largest)
        state["max_exp_avg_sq"][entry.index] = entry.largest * grow2

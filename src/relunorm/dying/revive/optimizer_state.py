"""Making an optimizer forget single units: moments and step count, the rest of a tensor untouched.

Adam divides its moments by 1 - beta^t, with one t per tensor. A unit whose moments are zeroed at a
large t gets steps of up to sqrt((1 - beta1)^2 / (1 - beta2)) = 3.2 learning rates at first, and
setting t to 0 would shrink every other unit's steps for a thousand updates. `FreshUnits` gives the
reset units an age of their own instead. The moments of an entry that was reset a updates ago are
those of a fresh start, and the optimizer has moved it by

    step(t) m / (sqrt(v) / root(t) + eps),  step(t) = lr / (1 - beta1^t),  root(t)^2 = 1 - beta2^t;

after each update it is moved on to where step(a) and root(a) would have brought it, exact up to
rounding. The optimizer's own step does the rest, so entries that are not young are those of plain
training bit for bit. step and root depend on the age alone, so one number per row and one per
column of a weight say it all.

That reads a parameter and both moments once more. Where many entries of a large parameter are young
the operations of torch's step are called here instead, in its order and with roots and steps by
entry, and the optimizer does not see the gradient: no pass is added, and entries that are not young
still have every operation of plain training. With ``fused=True`` a loop of our own does that, where
it was found to round as torch's does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from relunorm.dying.revive.adam_step import (
    Ages,
    move_on,
    step_fused,
    step_plainly,
    takes_fused_step,
    takes_plain_step,
)

#: Per-parameter state with one entry per weight, over torch's optimizers.
MOMENTS = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg",
    "exp_inf", "sum", "acc_delta",
)  # fmt: skip
#: From so many entries, and this share of them young, a step is made of torch's operations here.
LARGE, MANY = 2**15, 0.25


class FreshUnits:
    """Resets parts of an optimizer's state and keeps Adam's bias correction right for them.

    Args:
        optimizer: any torch optimizer. Moments, momentum buffers and averages are zeroed; the step
            count is per unit for Adam and AdamW, amsgrad included. That makes them, SGD without
            dampening and RMSprop exact. Not exact, because one count or product per tensor stays
            as it is: NAdam, RAdam, Adamax, Adadelta's warm-up, SGD's first step with dampening.

    Hooks the optimizer only while some unit is young (until beta2^age < 1e-4). Its ``state_dict``
    then shows young units with moments that the one count of the tensor corrects rightly, so a run
    that goes on from it needs no ages; `close` leaves the optimizer itself in that state.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self._ages: dict[Tensor, Ages] = {}
        self._handles: list[Any] = []
        self._hidden: list[tuple[Tensor, Tensor]] = []  # parameters and gradients already used
        self._since = 0  # updates since the old were last let go

    @classmethod
    def of(cls, optimizer: Optimizer) -> FreshUnits:
        """The one that hooks this optimizer already, or a new one: no unit may have two ages."""
        for hook in optimizer._optimizer_step_post_hooks.values():
            owner = getattr(hook, "__self__", None)
            if isinstance(owner, FreshUnits):
                return owner
        return cls(optimizer)

    def reset(self, parameter: Tensor, index: tuple[Any, ...]) -> None:
        """Forget rows ``parameter[units]``, or columns ``parameter[:, columns]``.

        Args:
            index: ``(units,)`` or ``(slice(None), columns)``, with a tensor of indices.
        """
        state = self.optimizer.state.get(parameter)
        if not state:
            return
        for name in MOMENTS:
            moment = state.get(name)
            if isinstance(moment, Tensor) and moment.shape == parameter.shape:
                moment[index] = 0
        if isinstance(self.optimizer, torch.optim.Adam):  # AdamW is one
            if parameter not in self._ages:
                self._ages[parameter] = Ages(parameter, float(state["step"]))
            self._ages[parameter].reset(index)
            if not self._handles:
                self._handles = [
                    self.optimizer.register_step_pre_hook(self._before),
                    self.optimizer.register_step_post_hook(self._after),
                    self.optimizer.register_state_dict_post_hook(self._saved),
                    self.optimizer.register_load_state_dict_post_hook(self._loaded),
                ]

    def close(self) -> None:
        """Stop; what the optimizer's one count makes of the moments of young units stays right."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._ages:
                    state = self.optimizer.state[parameter]
                    for name, moment in self._corrected(parameter, state, group).items():
                        state[name].copy_(moment)
        self._leave()

    def _leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._ages = [], {}

    @property
    def young(self) -> int:
        """How many rows and columns of parameters still have an age of their own."""
        return sum(int(ages.young.sum()) for ages in self._ages.values())

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Before an update; with a closure, once it has made the gradients."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._take(optimizer)
            return None

        def taken() -> Any:
            loss = closure()
            self._take(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": taken}

    @torch.no_grad()
    def _take(self, optimizer: Optimizer) -> None:
        self._hidden = []  # not empty only after a step that failed
        if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                ages = self._ages.get(parameter)
                if ages is None or ages.share < MANY or parameter.numel() < LARGE:
                    continue
                if parameter.grad is None:
                    continue
                state = optimizer.state[parameter]
                if group["fused"] and takes_fused_step(parameter, state, group, ages, optimizer):
                    step_fused(parameter, state, group, ages)
                elif not group["fused"] and takes_plain_step(parameter, group):
                    step_plainly(parameter, state, group, ages)
                else:
                    continue
                self._hidden.append((parameter, parameter.grad))
                parameter.grad = None

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                ages = self._ages.get(parameter)
                if ages is None:
                    continue
                state = optimizer.state[parameter]
                steps = float(state["step"])
                if steps != ages.steps:  # no gradient, or one that overflowed, is no update
                    ages.steps = steps
                    move_on(parameter, state, group, ages)
        self._since += 1
        if self._since >= 100:  # looking whether all are old costs as much as a small tensor
            self._since = 0
            self._ages = {p: ages for p, ages in self._ages.items() if not ages.mature()}
            if not self._ages:
                self._leave()

    @torch.no_grad()
    def _corrected(self, parameter: Tensor, state: Any, group: Any) -> dict[str, Tensor]:
        """Moments that, divided by 1 - beta^t, are those of young units divided by 1 - beta^age."""
        ages, found = self._ages[parameter], {}
        for name, at in (("exp_avg", 0), ("exp_avg_sq", 1), ("max_exp_avg_sq", 1)):
            if name in state:
                power = ages.table[at]
                grown = (1 - float(group["betas"][at]) ** ages.steps) / (1 - power)
                grown = torch.where(ages.young & (power < 1), grown, 1.0)  # at age 0 all are 0
                found[name] = state[name] * ages.entries(grown, parameter)
        return found

    def _saved(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        for group, named in zip(optimizer.param_groups, saved["param_groups"], strict=True):
            for parameter, name in zip(group["params"], named["params"], strict=True):
                if parameter in self._ages:
                    state = saved["state"][name]
                    moments = self._corrected(parameter, state, group)
                    saved["state"][name] = {**state, **moments}

    def _loaded(self, optimizer: Optimizer) -> None:
        """Ages belong to the moments that were there before."""
        self._leave()

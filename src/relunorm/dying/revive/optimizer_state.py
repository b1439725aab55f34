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
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

#: Per-parameter state with one entry per weight, over torch's optimizers.
MOMENTS = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg",
    "exp_inf", "sum", "acc_delta",
)  # fmt: skip
#: A unit is young while a beta^age is above this.
YOUNG = 1e-4


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

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
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


class Ages:
    """How young the rows, then the columns, of one parameter are: beta1^age, beta2^age; 0 if old.

    An entry is as old as the younger of its row and its column.
    """

    def __init__(self, parameter: Tensor, steps: float):
        shape = parameter.shape
        self.steps = steps  # of the parameter's own count, those already seen
        self.rows = shape[0] if shape else 1
        self.columns = shape[1] if len(shape) > 1 else 1
        self.inner = math.prod(shape[2:])
        size, device = self.rows + self.columns, parameter.device
        self.table = torch.zeros(2, size, dtype=torch.float64, device=device)
        # Room for the compiled loop.
        self.factors = torch.empty(2, size + 2, dtype=parameter.dtype, device=device)
        self.picked = torch.empty(self.columns, dtype=torch.int64, device=device)
        self.constants = (ctypes.c_double * 6)()

    def reset(self, index: tuple[Any, ...]) -> None:
        """Age 0 for the rows ``(units,)``, or for the columns ``(slice(None), columns)``."""
        of = index[-1] + (self.rows if len(index) > 1 else 0)
        self.table[:, of] = 1.0

    def entries(self, values: Tensor, like: Tensor) -> Tensor:
        """For every entry the larger of its row's and its column's value."""
        values = values.to(like.dtype)
        if like.ndim < 2:
            return values[: self.rows].reshape(like.shape)
        tall, wide = (-1, *[1] * (like.ndim - 1)), (-1, *[1] * (like.ndim - 2))
        rows, columns = values.split((self.rows, self.columns))
        return torch.maximum(rows.reshape(tall), columns.reshape(wide))

    @property
    def young(self) -> Tensor:
        return (self.table > 0).any(0)

    def mature(self) -> bool:
        """Let the old go; whether none is young."""
        old = (self.table < YOUNG).all(0)
        self.table[:, old] = 0.0
        return bool(old.all())


def _packed(*tensors: Any) -> bool:
    """Whether compiled loops can read them."""
    kind = tensors[0].dtype
    return kind in (torch.float32, torch.float64) and all(
        type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided
        and t.is_cpu and t.dtype == kind and t.is_contiguous()
        for t in tensors
    )  # fmt: skip


def move_on(parameter: Tensor, state: Any, group: Any, ages: Ages) -> None:
    """Age by one update; move young entries from where the optimizer left them."""
    first, second = state["exp_avg"], state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    lr, beta1, beta2, eps = map(float, (group["lr"], *group["betas"], group["eps"]))
    step, root = lr / (1 - beta1**ages.steps), math.sqrt(1 - beta2**ages.steps)
    if _packed(parameter, first, second):
        from relunorm.dying.revive.adam_kernel import RENEW

        ages.constants[:] = (beta1, beta2, lr, step, root, eps)
        RENEW[parameter.dtype](
            ages.table.data_ptr(), ages.factors.data_ptr(), ages.picked.data_ptr(),
            ages.rows, ages.columns, ages.inner, ctypes.addressof(ages.constants),
            *(each.data_ptr() for each in (parameter, first, second)),
        )  # fmt: skip
        torch.autograd.graph.increment_version(parameter)
        return
    young = ages.young
    ages.table.mul_(ages.table.new_tensor([[beta1], [beta2]]))
    rates = torch.where(young, lr / (1 - ages.table[0]), step).clamp_min(step)
    roots = torch.where(young, (1 - ages.table[1]).rsqrt(), 1 / root).clamp_min(1 / root)
    size = second.sqrt()
    went = step / (size * (1 / root) + eps)
    goes = ages.entries(rates, size) / (size * ages.entries(roots, size) + eps)
    moves = ages.entries(young, size).bool() & went.isfinite()
    parameter.copy_(torch.where(moves, parameter + first * (went - goes), parameter))

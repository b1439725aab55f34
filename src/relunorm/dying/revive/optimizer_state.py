"""Making an optimizer forget single units: moments and step count, the rest of a tensor untouched.

Adam divides its moments by 1 - beta^t, with one t per tensor. A unit whose moments are zeroed at a
large t gets steps of up to sqrt((1 - beta1)^2 / (1 - beta2)) = 3.2 learning rates at first, and
setting t to 0 would shrink every other unit's steps for a thousand updates. `FreshUnits` gives the
reset units an age of their own instead: before each update it rescales their moments so that
Adam's one division comes out as if these units had started at the reset. Exact up to rounding.

Of an entry of age a the tensor holds m' = c m, with m the moment of a fresh start and
c(t, a) = (1 - beta^t) / (1 - beta^a). Adam's own update beta m' + (1 - beta) g keeps that form if
m' is first replaced by

    m' c(t, a) / c(t - 1, a - 1) + (1 - beta) / beta (c(t, a) - 1) g,

and the same with g^2 for the second moment. Both factors depend on the age alone, so one number
per row and one per column of a weight say it all. Where torch's plain Adam or AdamW trains float32
or float64 parameters on a CPU, one compiled loop does this and the rest of the update, and the
optimizer is not shown these parameters' gradients for the length of its step.
"""

from __future__ import annotations

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
#: A unit is young while beta2^age is above this.
YOUNG = 1e-4


class _Ages:
    """How young the rows, then the columns, of one parameter are: beta1^age, beta2^age; 0 if old.

    An entry is as old as the younger of its row and its column.
    """

    def __init__(self, parameter: Tensor):
        shape = parameter.shape
        self.rows = shape[0] if shape else 1
        self.columns = shape[1] if len(shape) > 1 else 1
        self.inner = math.prod(shape[2:])
        size, device = self.rows + self.columns, parameter.device
        self.table = torch.zeros(2, size, dtype=torch.float64, device=device)
        # Room for the compiled loop, in the type of the parameter.
        self.factors = torch.empty(4, size, dtype=parameter.dtype, device=device)
        self.constants = torch.empty(7, dtype=parameter.dtype, device=device)

    def reset(self, index: tuple[Any, ...]) -> None:
        """Age 0 for the rows ``(units,)``, or for the columns ``(slice(None), columns)``."""
        of = index[-1] + (self.rows if len(index) > 1 else 0)
        self.table[:2, of] = 1.0

    def aged(self, at: int, t: float, beta: float, part: slice) -> tuple[Tensor, Tensor]:
        """c(t, a) / c(t - 1, a - 1), and (1 - beta) / beta (c(t, a) - 1), after one more update."""
        power = self.table[at, part]
        before = power.clone()
        power.mul_(beta)
        ahead, now = (1 - beta**t), (1 - power)
        growth = ahead / (1 - beta ** (t - 1)) if t > 1 else 1.0
        young = before > 0
        ratio = torch.where(young, growth * (1 - before) / now, 1.0)
        weight = torch.where(young, (1 - beta) / beta * (ahead / now - 1), 0.0)
        return ratio, weight.clamp_min_(0.0)

    def mature(self) -> bool:
        """Let the old go; whether none is young."""
        old = self.table[1] < YOUNG
        self.table[:2, old] = 0.0
        return bool(old.all())


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
        self._ages: dict[Tensor, _Ages] = {}
        self._handles: list[Any] = []
        self._hidden: list[tuple[Tensor, Tensor]] = []  # parameters and gradients already used
        self._since = 0  # updates since the old were last let go

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
                self._ages[parameter] = _Ages(parameter)
            self._ages[parameter].reset(index)
            if not self._handles:
                self._handles = [
                    self.optimizer.register_step_pre_hook(self._before),
                    self.optimizer.register_step_post_hook(self._after),
                ]

    def close(self) -> None:
        """Stop correcting; units still young keep their moments as they are."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._ages = [], {}

    @property
    def young(self) -> int:
        """How many rows and columns of parameters still have an age of their own."""
        return sum(int((ages.table[1] > 0).sum()) for ages in self._ages.values())

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Before an update; with a closure, once it has made the gradients."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._correct(optimizer)
            return None

        def corrected() -> Any:
            loss = closure()
            self._correct(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": corrected}

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden = []
        if self._since >= 100:  # looking whether all are old costs as much as a small tensor
            self._since = 0
            self._ages = {p: ages for p, ages in self._ages.items() if not ages.mature()}
            if not self._ages:
                self.close()

    @torch.no_grad()
    def _correct(self, optimizer: Optimizer) -> None:
        # A GradScaler sets these two for the length of a fused optimizer's step.
        overflow = getattr(optimizer, "found_inf", None)
        if overflow is not None and bool(overflow):
            return  # this step changes nothing and does not count
        scale = getattr(optimizer, "grad_scale", None)
        self._hidden = []  # not empty only after a step that failed
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                ages = self._ages.get(parameter)
                if ages is None or parameter.grad is None:
                    continue
                state = optimizer.state[parameter]
                if scale is None and _step(optimizer, group, parameter, state, ages):
                    self._hidden.append((parameter, parameter.grad))
                    parameter.grad = None
                else:
                    gradient = _effective_gradient(parameter, group, scale)
                    _prepare(ages, state, gradient, *group["betas"])
        self._since += 1


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


def _step(
    optimizer: Optimizer, group: dict[str, Any], parameter: Tensor, state: Any, ages: _Ages
) -> bool:
    """Do all of a parameter's update in one compiled pass, if it is one of torch's plain Adam."""
    lr, beta1, beta2 = map(float, (group["lr"], *group["betas"]))
    names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
    tensors = [parameter, parameter.grad, *(state[name] for name in names)]
    kind = parameter.dtype
    if not (
        type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
        and kind in (torch.float32, torch.float64)
        and beta2 > 0
        and not (group["capturable"] or group["differentiable"])
        and all(type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided
                and t.device.type == "cpu" and t.dtype == kind and t.is_contiguous()
                for t in tensors)
    ):  # fmt: skip
        return False
    from relunorm.dying.revive.adam_kernel import AGED_STEP

    state["step"] += 1
    t, decay = float(state["step"]), group["weight_decay"]
    decoupled = group.get("decoupled_weight_decay", False)
    ages.constants[:] = torch.tensor([
        1 - lr * decay if decoupled else 1.0, -1.0 if group["maximize"] else 1.0,
        0.0 if decoupled else decay, lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t),
        group["eps"], 1 / beta2,
    ], dtype=torch.float64)  # fmt: skip
    AGED_STEP[kind](
        ages.table.data_ptr(), ages.factors.data_ptr(), ages.constants.data_ptr(),
        ages.rows, ages.columns, ages.inner, t, beta1, beta2,
        *(t.data_ptr() for t in tensors), *(() if group["amsgrad"] else [tensors[-1].data_ptr()]),
        group["amsgrad"],
    )  # fmt: skip
    torch.autograd.graph.increment_version(parameter)
    return True


def _prepare(
    ages: _Ages, state: dict[str, Any], gradient: Tensor, beta1: float, beta2: float
) -> None:
    """Set the moments so that after Adam's own update they correct to those of a fresh start."""
    t = float(state["step"]) + 1
    if beta1 > 0:
        first = state["exp_avg"]
        ratio, weight = _entries(ages, 0, t, beta1, first)
        first.mul_(ratio).add_(weight * gradient)
    second, largest = state["exp_avg_sq"], state.get("max_exp_avg_sq")
    ratio, weight = _entries(ages, 1, t, beta2, second)
    second.mul_(ratio).add_(weight * gradient * gradient)
    if largest is not None:
        largest.mul_(ratio)


def _entries(ages: _Ages, at: int, t: float, beta: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """The two factors for every entry: the younger of row and column decides."""
    rows = ages.aged(at, t, beta, slice(None, ages.rows))
    columns = ages.aged(at, t, beta, slice(ages.rows, None))
    tall = (-1, *[1] * (like.ndim - 1))
    wide = (1, -1, *[1] * (like.ndim - 2)) if like.ndim > 1 else (-1,)
    ratio = torch.minimum(rows[0].reshape(tall), columns[0].reshape(wide))
    weight = torch.maximum(rows[1].reshape(tall), columns[1].reshape(wide))
    return ratio.to(like.dtype), weight.to(like.dtype)

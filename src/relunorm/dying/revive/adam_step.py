"""Adam's step for entries of any age: in the place of torch's step, or moving on after it.

An entry that is not young gets every operation, and every bit, of torch's own step.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

#: A unit is young while a beta^age is above this.
YOUNG = 1e-4


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
        self.share, self.wide = 0.0, False  # of the entries, those young; any young column

    def count(self) -> None:
        """How many entries are young, when that may have changed."""
        rows, columns = self.young.split((self.rows, self.columns))
        self.share = 1 - float((1 - rows.double().mean()) * (1 - columns.double().mean()))
        self.wide = bool(columns.any())

    def reset(self, index: tuple[Any, ...]) -> None:
        """Age 0 for the rows ``(units,)``, or for the columns ``(slice(None), columns)``."""
        of = index[-1] + (self.rows if len(index) > 1 else 0)
        self.table[:, of] = 1.0
        self.count()

    def entries(self, values: Tensor, like: Tensor, choose: Any = torch.maximum) -> Tensor:
        """For every entry the larger of its row's and its column's value, or the smaller."""
        values = values.to(like.dtype)
        if like.ndim < 2:
            return values[: self.rows].reshape(like.shape)
        tall, wide = (-1, *[1] * (like.ndim - 1)), (-1, *[1] * (like.ndim - 2))
        rows, columns = values.split((self.rows, self.columns))
        return (
            choose(rows.reshape(tall), columns.reshape(wide)) if self.wide else rows.reshape(tall)
        )

    def grow(self, group: Any) -> Tensor:
        """Age by one update; which rows and columns are young."""
        young = self.young
        self.table.mul_(self.table.new_tensor([[float(beta)] for beta in group["betas"]]))
        return young

    @property
    def young(self) -> Tensor:
        return (self.table > 0).any(0)

    def mature(self) -> bool:
        """Let the old go; whether none is young."""
        old = (self.table < YOUNG).all(0)
        self.table[:, old] = 0.0
        self.count()
        return bool(old.all())


def takes_plain_step(parameter: Tensor, group: Any) -> bool:
    """Whether torch takes the operations of `step_plainly` one after another."""
    gradient: Any = parameter.grad
    return (
        parameter.dtype in (torch.float32, torch.float64)
        and parameter.is_cpu
        and all(type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided
                for t in (parameter, gradient))
        and not (group["capturable"] or group["differentiable"])
        and not any(isinstance(value, Tensor) for value in (group["lr"], *group["betas"]))
    )  # fmt: skip


def step_plainly(parameter: Tensor, state: Any, group: Any, ages: Ages) -> None:
    """Adam's update as torch makes it on a CPU, with the root and step of every entry's age."""
    gradient: Any = parameter.grad
    lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
    state["step"] += 1
    ages.steps = t = float(state["step"])
    if group["maximize"]:
        gradient = -gradient
    if decay != 0 and group.get("decoupled_weight_decay", False):
        parameter.mul_(1 - lr * decay)
    elif decay != 0:
        gradient = gradient.add(parameter, alpha=decay)
    first, second = state["exp_avg"], state["exp_avg_sq"]
    first.lerp_(gradient, 1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    if group["amsgrad"]:
        second = torch.maximum(state["max_exp_avg_sq"], second, out=state["max_exp_avg_sq"])
    young, root = ages.grow(group), (1 - beta2**t) ** 0.5
    roots = torch.where(young, (1 - ages.table[1]).sqrt(), root).clamp_max(root)
    size = second.sqrt()
    size.div_(ages.entries(roots, size, torch.minimum)).add_(group["eps"])
    steps = torch.where(young, (1 - ages.table[0]) / (1 - beta1**t), 1.0)
    if bool((steps < 1).any()):
        size.mul_(ages.entries(steps.clamp_max(1.0), size, torch.minimum))
    parameter.addcdiv_(first, size, value=-(lr / (1 - beta1**t)))


@cache
def _loops() -> Any:
    from relunorm.dying.revive import adam_kernel

    return adam_kernel


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
    first = state["exp_avg"]
    second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    lr, beta1, beta2, eps = map(float, (group["lr"], *group["betas"], group["eps"]))
    step, root = lr / (1 - beta1**ages.steps), math.sqrt(1 - beta2**ages.steps)
    if _packed(parameter, first, second):
        ages.constants[:] = (beta1, beta2, lr, step, root, eps)
        read = (each.data_ptr() for each in (parameter, first, second))
        _loops().RENEW[parameter.dtype](
            ages.table.data_ptr(), ages.factors.data_ptr(), ages.picked.data_ptr(),
            ages.rows, ages.columns, ages.inner, ctypes.addressof(ages.constants), *read,
        )  # fmt: skip
        torch.autograd.graph.increment_version(parameter)
        return
    young, root = ages.grow(group), 1 / root
    rates = torch.where(young, lr / (1 - ages.table[0]), step).clamp_min(step)
    roots = torch.where(young, (1 - ages.table[1]).rsqrt(), root).clamp_min(root)
    size = second.sqrt()
    went = step / (size * root + eps)
    goes = ages.entries(rates, size) / (size * ages.entries(roots, size) + eps)
    moves = ages.entries(young, size).bool() & went.isfinite()
    parameter.copy_(torch.where(moves, parameter + first * (went - goes), parameter))

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
        self.constants = (ctypes.c_double * 8)()
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


def takes_fused_step(parameter: Tensor, state: Any, group: Any, ages: Ages, optimizer: Any) -> bool:
    """Whether `step_fused` does as torch's fused kernel does, and as fast."""
    return (
        not (group["amsgrad"] or group["maximize"] or group["capturable"])
        and all(type(value) is float for value in (group["lr"], *group["betas"]))
        and group["betas"][0] > 0.5 and parameter.numel() % 16 == 0 and ages.inner == 1
        and parameter.dtype is state["step"].dtype is torch.float32
        and _packed(*_held(parameter, state, group), parameter.grad)
        and torch.get_num_threads() <= 2  # the loop has one, torch's kernel shares its work out
        and getattr(optimizer, "grad_scale", None) is None
        and getattr(optimizer, "found_inf", None) is None
        and rounds_as_torch(_decay(group)[0])
    )  # fmt: skip


def _decay(group: Any) -> tuple[str, float, float]:
    """The kind of weight decay, what it adds to a gradient, and what it leaves of a parameter."""
    weight = group["weight_decay"]
    if weight == 0:
        return "none", 0.0, 1.0
    if group.get("decoupled_weight_decay", False):
        return "decoupled", 0.0, 1 - group["lr"] * weight
    return "added", weight, 1.0


def step_fused(parameter: Tensor, state: Any, group: Any, ages: Ages) -> None:
    """`step_plainly` as the fused kernel makes it."""
    gradient: Any = parameter.grad
    held = _held(parameter, state, group)
    count = ctypes.c_float.from_address(state["step"].data_ptr())  # torch takes 40 us to add to it
    count.value += 1
    ages.steps = count.value
    ages.constants[6:] = _decay(group)[1:]
    _loops().fused_update()(
        *_prepared(ages, group), ages.rows, ages.columns, ctypes.addressof(ages.constants),
        *(each.data_ptr() for each in (*held, gradient)),
    )  # fmt: skip
    torch.autograd.graph.increment_version(held)


@cache
def rounds_as_torch(decay: str) -> bool:
    """Whether 16,384 entries get the same bits from `step_fused` as from torch's fused kernel.

    Which products are added before they are rounded is the choice of the compiler that built torch.
    """
    start, *gradients = torch.randn(3, 64, 256, generator=torch.Generator().manual_seed(0))
    kind = torch.optim.AdamW if decay == "decoupled" else torch.optim.Adam
    found = []
    for ours in (False, True):
        parameter = start.clone().requires_grad_()
        optimizer = kind([parameter], weight_decay=0.1 * (decay != "none"), fused=True)
        state = optimizer.state[parameter]
        parameter.grad = gradients[0]
        optimizer.step()
        parameter.grad = gradients[1]
        if ours:
            step_fused(parameter, state, optimizer.param_groups[0], Ages(parameter, 1.0))
        else:
            optimizer.step()
        found.append((parameter, *state.values()))
    return all(map(torch.equal, *found))


@cache
def _loops() -> Any:
    from relunorm.dying.revive import adam_kernel

    return adam_kernel


def _held(parameter: Tensor, state: Any, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A parameter, its first moment, and the second that its step divides by."""
    return (
        parameter,
        state["exp_avg"],
        state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"],
    )


def _packed(*tensors: Any) -> bool:
    """Whether compiled loops can read them."""
    kind = tensors[0].dtype
    return kind in (torch.float32, torch.float64) and all(
        type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided
        and t.is_cpu and t.dtype == kind and t.is_contiguous()
        for t in tensors
    )  # fmt: skip


def _prepared(ages: Ages, group: Any) -> tuple[int, int, int]:
    """Addresses of what compiled loops age and write over, with the optimizer's constants set."""
    lr, beta1, beta2, eps = map(float, (group["lr"], *group["betas"], group["eps"]))
    step, root = lr / (1 - beta1**ages.steps), math.sqrt(1 - beta2**ages.steps)
    ages.constants[:6] = (beta1, beta2, lr, step, root, eps)
    return ages.table.data_ptr(), ages.factors.data_ptr(), ages.picked.data_ptr()


def move_on(parameter: Tensor, state: Any, group: Any, ages: Ages) -> None:
    """Age by one update; move young entries from where the optimizer left them."""
    _, first, second = tensors = _held(parameter, state, group)
    if _packed(*tensors):
        _loops().RENEW[parameter.dtype](
            *_prepared(ages, group), ages.rows, ages.columns, ages.inner,
            ctypes.addressof(ages.constants), *(each.data_ptr() for each in tensors),
        )  # fmt: skip
        torch.autograd.graph.increment_version(parameter)
        return
    lr, beta1, beta2, eps = map(float, (group["lr"], *group["betas"], group["eps"]))
    step, root = lr / (1 - beta1**ages.steps), 1 / math.sqrt(1 - beta2**ages.steps)
    young = ages.grow(group)
    rates = torch.where(young, lr / (1 - ages.table[0]), step).clamp_min(step)
    roots = torch.where(young, (1 - ages.table[1]).rsqrt(), root).clamp_min(root)
    size = second.sqrt()
    went = step / (size * root + eps)
    goes = ages.entries(rates, size) / (size * ages.entries(roots, size) + eps)
    moves = ages.entries(young, size).bool() & went.isfinite()
    parameter.copy_(torch.where(moves, parameter + first * (went - goes), parameter))

"""Many small networks trained at once by gradient descent, one tensor for all of them.

Every parameter has a leading member dimension; the forward and backward passes of a network with
one hidden layer are batched matrix products, written out by hand. Each member has its own target
scale, learning rate and decay rates, and no member can disturb another: a member that leaves the
floating-point range is frozen and reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from relunorm.errors import InvalidInputError

Method = Literal["momentum", "adam"]
PerMember = float | Tensor
#: Adam's own.
EPSILON = 1e-8


@dataclass(frozen=True)
class Sizes:
    """How many members, inputs, hidden units and outputs an ensemble has."""

    members: int
    inputs: int
    hidden: int
    outputs: int

    @property
    def parameters(self) -> int:
        """Parameters of one member."""
        return self.hidden * (self.inputs + 1) + self.outputs * (self.hidden + 1)


class Ensemble:
    """``members`` networks f(x) = V relu(W x + b) + c trained side by side on squared error.

    The loss of a member is the mean of (f(x) - t)^2 over rows and outputs, with the member's own
    target t = gamma y + delta (seed 002, eq. 1, for y of mean 0 and deviation 1). Updates are those
    of ``torch.optim.SGD`` and ``torch.optim.Adam`` with default options, to rounding.

    Args:
        method: ``momentum`` (v <- beta1 v + g, p <- p - lr v) or ``adam``.
        lr: learning rate, one number or one per member; likewise ``beta1``, ``beta2``, ``gamma``
            and ``delta``.

    All parameters are 0 at first; `views` are there to be filled.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        method: Method = "adam",
        lr: PerMember = 1e-3,
        beta1: PerMember = 0.9,
        beta2: PerMember = 0.999,
        gamma: PerMember = 1.0,
        delta: PerMember = 0.0,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ):
        self.sizes, self.method = sizes, method
        self._options = {"dtype": dtype, "device": torch.device(device)}
        self.lr = self._vector(lr, "lr")
        self.beta1 = self._vector(beta1, "beta1")
        self.beta2 = self._vector(beta2, "beta2")
        self.gamma = self._vector(gamma, "gamma")
        self.delta = self._vector(delta, "delta")
        self.steps = 0
        self.parameters = torch.zeros(sizes.members, sizes.parameters, **self._options)
        self._gradient = torch.zeros_like(self.parameters)
        self._weights, self._slopes = self.views(), self.views(self._gradient)
        self._first = torch.zeros_like(self.parameters)
        self._second = torch.zeros_like(self.parameters)
        self.failed = torch.zeros(sizes.members, dtype=torch.bool, device=device)
        # beta^steps as tensors, so that a step can be captured in a CUDA graph; in float64,
        # where multiplying step by step stays exact enough for a million updates.
        self._power1 = torch.ones(sizes.members, dtype=torch.float64, device=device)
        self._power2 = torch.ones_like(self._power1)

    def views(self, flat: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W (members, hidden, inputs), b, V (members, outputs, hidden), c: views, not copies."""
        flat = self.parameters if flat is None else flat
        s, parts, at = self.sizes, [], 0
        for shape in ((s.hidden, s.inputs), (s.hidden,), (s.outputs, s.hidden), (s.outputs,)):
            size = math.prod(shape)
            parts.append(flat[:, at : at + size].view(s.members, *shape))
            at += size
        return parts[0], parts[1], parts[2], parts[3]

    def _vector(self, value: PerMember, name: str) -> Tensor:
        vector = torch.as_tensor(value, **self._options)
        if vector.ndim == 0:
            vector = vector.expand(self.sizes.members)
        if vector.shape != (self.sizes.members,):
            raise InvalidInputError(
                f"{name} has shape {tuple(vector.shape)}, expected one number or "
                f"{self.sizes.members} of them"
            )
        return vector.clone()

    def _forward(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, b, v, c = self._weights
        z = torch.baddbmm(b[:, None], rows, w.mT)
        active = z.clamp_min(0)
        return z, active, torch.baddbmm(c[:, None], active, v.mT)

    def _rows(self, x: Tensor) -> Tensor:
        x = x if x.ndim == 3 else x[None]
        return x.to(**self._options).expand(self.sizes.members, -1, -1)

    def _targets(self, y: Tensor, rows: Tensor) -> Tensor:
        y = y.to(**self._options)
        y = y[None] if y.ndim < 3 else y
        y = y if y.ndim == 3 else y[..., None]
        if y.shape[1:] != (rows.shape[1], self.sizes.outputs):
            raise InvalidInputError(
                f"targets have shape {tuple(y.shape)}, expected "
                f"({rows.shape[1]}, {self.sizes.outputs})"
            )
        return self.gamma[:, None, None] * y + self.delta[:, None, None]

    def step(self, x: Tensor, y: Tensor) -> None:
        """One update of every member on the given rows (shared, or one batch per member)."""
        self._backward(self._rows(x), y)
        self.steps += 1
        move = self._direction()
        finite = move.isfinite().all(dim=1)
        self.failed |= ~finite
        self.parameters -= torch.where(self.failed[:, None], 0.0, move)

    def _backward(self, rows: Tensor, y: Tensor) -> None:
        """Fill the gradient of every member's loss, by the chain rule."""
        z, active, output = self._forward(rows)
        g = output.sub_(self._targets(y, rows)).mul_(2.0 / (output.shape[1] * output.shape[2]))
        gw, gb, gv, gc = self._slopes
        gv.copy_(g.mT @ active)
        gc.copy_(g.sum(dim=1))
        # relu's own backward kernel: masking by a boolean costs two more passes.
        gz = torch.ops.aten.threshold_backward(g @ self._weights[2], z, 0)
        gw.copy_((rows.mT @ gz).mT)  # four times faster than gz.mT @ rows on a CPU
        gb.copy_(gz.sum(dim=1))

    def _direction(self) -> Tensor:
        lr, g, beta1 = self.lr[:, None], self._gradient, self.beta1[:, None]
        if self.method == "momentum":
            self._first.mul_(beta1).add_(g)
            return lr * self._first
        beta2 = self.beta2[:, None]
        self._first.mul_(beta1).add_((1 - beta1) * g)
        self._second.mul_(beta2).add_((1 - beta2) * g.square())
        rest1 = 1 - self._power1.mul_(self.beta1)[:, None]
        rest2 = 1 - self._power2.mul_(self.beta2)[:, None]
        spread = (self._second / rest2.to(g.dtype)).sqrt_().add_(EPSILON)
        return lr / rest1.to(g.dtype) * self._first / spread

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on later with bit-equal results: tensors and step."""
        return {**{name: getattr(self, name).clone() for name in _TENSORS}, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, into an ensemble of the same sizes and method."""
        for name in _TENSORS:
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])


_TENSORS = (
    "parameters", "_first", "_second", "failed", "lr", "beta1", "beta2", "gamma", "delta",
    "_power1", "_power2",
)  # fmt: skip

"""Many small networks trained at once by gradient descent, one tensor for all of them.

Every parameter has a leading member dimension; the forward and backward passes of a network with
one hidden layer are batched matrix products, written out by hand. Each member has its own target
scale, learning rate and momentum, and no member can disturb another: a member that leaves the
floating-point range is frozen and reported.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

#: Adam's own.
BETA2, EPSILON = 0.999, 1e-8


class Ensemble:
    """Networks f(x) = V relu(W x + b) + c with one output, side by side on squared error.

    The loss of a member is the mean of (f(x) - t)^2 over its rows, with the member's own target
    t = gamma y + delta (seed 002, eq. 1, for y of mean 0 and deviation 1). Updates are those of
    ``torch.optim.SGD`` and ``torch.optim.Adam`` with default options, to rounding.

    Args:
        method: ``momentum`` (v <- beta1 v + g, p <- p - lr v) or ``adam``.
        lr, beta1, gamma, delta: (members,), of the type and on the device of all that is computed.

    All parameters are 0 at first; `views` are there to be filled.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        method: Literal["momentum", "adam"],
        *,
        lr: Tensor,
        beta1: Tensor,
        gamma: Tensor,
        delta: Tensor,
    ):
        self.shapes = ((hidden, inputs), (hidden,), (1, hidden), (1,))
        self.method, self.lr, self.beta1 = method, lr, beta1
        self.gamma, self.delta = gamma, delta
        self.beta2 = lr.new_tensor(BETA2)
        self.steps = 0
        self.parameters = lr.new_zeros(len(lr), sum(map(math.prod, self.shapes)))
        self._gradient = torch.zeros_like(self.parameters)
        self._weights, self._slopes = self.views(), self.views(self._gradient)
        self._first = torch.zeros_like(self.parameters)
        self._second = torch.zeros_like(self.parameters)
        self.failed = torch.zeros_like(lr, dtype=torch.bool)
        # beta^steps as tensors, so that a step can be captured in a CUDA graph; in float64,
        # where multiplying step by step stays exact enough for a million updates.
        self._power1 = torch.ones_like(lr, dtype=torch.float64)
        self._power2 = torch.ones_like(self._power1)

    def views(self, flat: Tensor | None = None) -> tuple[Tensor, ...]:
        """W (members, hidden, inputs), b, V (members, 1, hidden), c: views, not copies."""
        flat = self.parameters if flat is None else flat
        parts = flat.split(list(map(math.prod, self.shapes)), dim=1)
        return tuple(p.view(-1, *shape) for p, shape in zip(parts, self.shapes, strict=True))

    def step(self, x: Tensor, y: Tensor) -> None:
        """One update of every member on rows (members, rows, inputs) and y (members, rows, 1)."""
        self._backward(x, y)
        self.steps += 1
        move = self._direction()
        finite = move.isfinite().all(dim=1)
        self.failed |= ~finite
        self.parameters -= torch.where(self.failed[:, None], 0.0, move)

    def _backward(self, x: Tensor, y: Tensor) -> None:
        """Fill the gradient of every member's loss, by the chain rule."""
        w, b, v, c = self._weights
        z = torch.baddbmm(b[:, None], x, w.mT)
        active = z.clamp_min(0)
        output = torch.baddbmm(c[:, None], active, v.mT)
        target = self.gamma[:, None, None] * y + self.delta[:, None, None]
        g = output.sub_(target).mul_(2.0 / output.shape[1])
        gw, gb, gv, gc = self._slopes
        gv.copy_(g.mT @ active)
        gc.copy_(g.sum(dim=1))
        # relu's own backward kernel: masking by a boolean costs two more passes.
        gz = torch.ops.aten.threshold_backward(g @ v, z, 0)
        gw.copy_((x.mT @ gz).mT)  # four times faster than gz.mT @ x on a CPU
        gb.copy_(gz.sum(dim=1))

    def _direction(self) -> Tensor:
        lr, g, beta1 = self.lr[:, None], self._gradient, self.beta1[:, None]
        if self.method == "momentum":
            self._first.mul_(beta1).add_(g)
            return lr * self._first
        self._first.mul_(beta1).add_((1 - beta1) * g)
        self._second.mul_(self.beta2).add_((1 - self.beta2) * g.square())
        rest1 = 1 - self._power1.mul_(self.beta1)[:, None]
        rest2 = 1 - self._power2.mul_(self.beta2)[:, None]
        spread = (self._second / rest2.to(g.dtype)).sqrt_().add_(EPSILON)
        return lr / rest1.to(g.dtype) * self._first / spread

    def state_dict(self) -> dict[str, Any]:
        """What changes from step to step: to go on later with bit-equal results."""
        return {**{name: getattr(self, name).clone() for name in _STATE}, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, into an ensemble of the same arguments."""
        for name in _STATE:
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])


_STATE = ("parameters", "_first", "_second", "failed", "_power1", "_power2")

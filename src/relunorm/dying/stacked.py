"""The deeper networks of figure 6, and equal networks that train side by side, every parameter of
them stacked along a first axis.

The loss is the sum of the members' losses, so each member's gradient is its own, and an optimizer
that works entry by entry (SGD, Adam) makes for each the updates it would make alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relunorm.errors import InvalidInputError


def mlp(inputs: int, width: int, depth: int, gen: torch.Generator) -> nn.Module:
    """``depth`` hidden layers, weights and biases uniform within 1/sqrt(fan-in)."""
    sizes = [inputs, *[width] * depth]
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return _uniform(nn.Sequential(*parts, nn.Linear(width, 1)), gen)


class Block(nn.Module):
    """x + W relu(BN(x)): normalisation stands before the rectifier."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.act, self.linear = nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.act(self.norm(x)))


def residual(inputs: int, width: int, depth: int, gen: torch.Generator) -> nn.Module:
    """A linear layer in, ``depth`` residual blocks, a linear layer out."""
    blocks = [Block(width) for _ in range(depth)]
    return _uniform(nn.Sequential(nn.Linear(inputs, width), *blocks, nn.Linear(width, 1)), gen)


@torch.no_grad()
def _uniform(model: nn.Module, gen: torch.Generator) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for parameter in (module.weight, module.bias):
                parameter.copy_((torch.rand(parameter.shape, generator=gen) * 2 - 1) * bound)
    return model


class Stacked(nn.Module):
    """Networks of one architecture, from (members, rows, inputs) to (members, rows, outputs).

    Made of ``nn.Linear``, ``nn.ReLU``, ``nn.BatchNorm1d``, `Block` and ``nn.Sequential``; batch
    norm takes each member's own batch statistics and keeps running ones, as torch does.

    >>> twins = [nn.Sequential(nn.Linear(2, 3), nn.ReLU()) for _ in range(2)]
    >>> x = torch.ones(4, 2)
    >>> out = Stacked(twins)(torch.stack([x, x]))
    >>> bool(torch.allclose(out[1], twins[1](x)))
    True
    """

    def __init__(self, members: Sequence[nn.Module]):
        super().__init__()
        self.members = [member.cpu() for member in members]  # a plain list: no submodules
        states = [member.state_dict() for member in members]
        for name in states[0]:
            values = torch.stack([state[name].detach() for state in states])
            kept = name.replace(".", "/")
            if name in dict(members[0].named_parameters()):
                self.register_parameter(kept, nn.Parameter(values))
            else:
                self.register_buffer(kept, values)

    def forward(self, x: Tensor) -> Tensor:
        """Every member on its own rows, in training mode."""
        return self._through(self.members[0], "", x)

    def _through(self, module: nn.Module, path: str, x: Tensor) -> Tensor:
        if isinstance(module, nn.Sequential):
            for name, part in module.named_children():
                x = self._through(part, f"{path}{name}/", x)
            return x
        if isinstance(module, Block):
            inside = x
            for name in ("norm", "act", "linear"):
                inside = self._through(getattr(module, name), f"{path}{name}/", inside)
            return x + inside
        if isinstance(module, nn.Linear):
            return torch.baddbmm(self._at(path, "bias")[:, None], x, self._at(path, "weight").mT)
        if isinstance(module, nn.ReLU):
            return x.relu()
        if isinstance(module, nn.BatchNorm1d):
            return self._normalized(module, path, x)
        raise InvalidInputError(f"{type(module).__name__} at {path!r} cannot be stacked")

    def _at(self, path: str, name: str) -> Tensor:
        found = self._parameters.get(path + name)
        return self._buffers[path + name] if found is None else found  # type: ignore[return-value]

    def _normalized(self, norm: nn.BatchNorm1d, path: str, x: Tensor) -> Tensor:
        """One batch norm over all members' features side by side."""
        names = ("running_mean", "running_var", "weight", "bias")
        parts = [self._at(path, name).view(-1) for name in names]
        wide = x.transpose(0, 1).flatten(1)
        self._at(path, "num_batches_tracked").add_(1)
        wide = F.batch_norm(
            wide, *parts, training=True, momentum=norm.momentum or 0.0, eps=norm.eps
        )
        return wide.unflatten(1, (x.shape[0], x.shape[2])).transpose(0, 1)

    def unstack(self) -> list[nn.Module]:
        """The networks as they are now, on the host."""
        state = {name.replace("/", "."): value.cpu() for name, value in self.state_dict().items()}
        for k, member in enumerate(self.members):
            member.load_state_dict({name: value[k] for name, value in state.items()})
        return self.members

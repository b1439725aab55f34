"""The deeper networks of figure 6: plain perceptrons and residual ones with batch norm."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn


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

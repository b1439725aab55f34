"""Small PyTorch models of the kinds people really have, for the reader's tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations


def settle(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every BatchNorm statistics and weights that are not trivial."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                for tensor, low, high in (
                    (part.running_mean, -1, 1),
                    (part.running_var, 0.5, 2),
                    (part.weight, 0.5, 1.5),
                    (part.bias, -0.5, 0.5),
                ):
                    tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)
    return module


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(7, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(16, 12),
        nn.LeakyReLU(0.2),
        nn.BatchNorm1d(12),
        nn.Dropout(0.3),
        nn.Linear(12, 4),
    )


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
            nn.Conv2d(4, 6, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, ceil_mode=True),
        )
        self.classifier = nn.Sequential(nn.Linear(6 * 9, 10), nn.ReLU(), nn.Linear(10, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class PreActivationBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(x))
        skip = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(F.relu(self.bn2(self.conv1(y)))) + skip


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(
            PreActivationBlock(4, 4, 1), PreActivationBlock(4, 6, 2), PreActivationBlock(6, 6, 1)
        )
        self.bn = nn.BatchNorm2d(6)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.bn(self.blocks(self.stem(x)))))
        return self.fc(x.view(x.size(0), -1))


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2 + 3 * i, 3, 3, padding=1) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(2 + 3 * i) for i in range(3))
        self.pool = nn.AvgPool2d(2, padding=1)
        self.fc = nn.Linear(11, 2)

    def forward(self, x: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, conv(torch.relu(norm(x)))], dim=1)
        return self.fc(self.pool(x).mean(dim=(2, 3)))


class Reused(nn.Module):
    """One module called three times, a shared weight, relu in all its spellings."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.again = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.again.weight
        self.act = nn.ReLU()
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = self.act(self.again(x))
        x = self.again(x).clamp(min=0)
        x = F.relu_(self.tied(x))
        x = torch.maximum(self.tied(x), torch.zeros(()).to(x))
        x = F.threshold(self.again(x), 0.0, 0.0)
        return self.last(torch.clamp_min(self.tied(x), 0))


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2)
        self.b = nn.Conv2d(8, 8, 4, padding="same", groups=8)
        self.c = nn.Conv2d(8, 4, (1, 3), stride=(2, 1), padding=(0, 1), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.a(x), 0.1)
        x = F.relu6(self.b(x))
        return F.avg_pool2d(self.c(x), 2, ceil_mode=True, count_include_pad=False).flatten(1)


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 5, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm1d(5)
        self.pool = nn.MaxPool1d(2)
        self.head = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 2))
        x = self.pool(F.relu(self.norm(self.conv(x))))
        return self.head(x.transpose(1, 2).reshape(x.shape[0], -1))


class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Linear(4, 6))
        self.b = parametrizations.spectral_norm(nn.Linear(6, 6))
        self.c = parametrizations.orthogonal(nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


class Pieces(nn.Module):
    """Slices, splits, stacks and arithmetic with constants."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.linspace(-1, 1, 8))
        self.weight = nn.Parameter(torch.randn(8, 6))
        self.scale = nn.Parameter(torch.tensor([0.5, -2.0, 1.5]))

    def forward(self, x: Tensor) -> Tensor:
        x = (2 * x - self.offset) / 3 + 1
        a, b = torch.relu(x @ self.weight).chunk(2, dim=-1)
        c, d, e = a.unbind(1)
        stacked = torch.stack([c, d - e, -e], dim=1).unsqueeze(-1).squeeze(2)
        both = torch.cat([torch.abs(stacked), b * self.scale, x[:, 1:7:2]], 1)
        low = torch.minimum(both[:, :3], both[:, 3:6])
        high = F.hardtanh(both[:, -3:], -0.5, 0.75)
        return torch.cat([low.narrow(1, 0, 2), high.flip(1), (1 - both).sum(1, keepdim=True)], 1)


#: name -> (module, shape of one input, whether the shape must be given)
MODELS = {
    "mlp": (mlp, (7,), False),
    "lenet": (LeNet, (1, 14, 14), True),
    "resnet": (ResNet, (3, 8, 8), True),
    "densenet": (DenseNet, (2, 6, 6), True),
    "reused": (Reused, (5,), False),
    "grouped": (Grouped, (4, 7, 7), True),
    "sequence": (Sequence, (3, 14), True),
    "parametrized": (Parametrized, (4,), False),
    "pieces": (Pieces, (8,), False),
}


def model(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The model of that name with reproducible weights, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return settle(MODELS[name][0]()).to(dtype).eval()

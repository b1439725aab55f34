"""Train the network that ships with the package: two moons, two hidden layers, sparse weights.

Proximal L1 during training leaves some units dead or always on, as in real networks, so that every
part of the package has something to show. Run: python scripts/train_example.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

import relunorm as rn

EXAMPLES = Path(__file__).resolve().parents[1] / "src" / "relunorm" / "examples"
TARGET, DATA = EXAMPLES / "moons.npz", EXAMPLES / "data" / "moons.npz"


def train(
    width: int = 24, steps: int = 2000, rate: float = 0.01, shrink: float = 1e-4
) -> nn.Sequential:
    torch.manual_seed(0)
    X, y = make_moons(2000, noise=0.2, random_state=0)
    np.savez_compressed(DATA, x=X, y=y.astype(np.uint8))
    inputs = torch.tensor(X, dtype=torch.float64)
    targets = torch.tensor(y, dtype=torch.float64)[:, None]
    model = nn.Sequential(
        nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    ).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss_of = nn.BCEWithLogitsLoss()
    for _ in range(steps):
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.sign() * (parameter.abs() - shrink).clamp(min=0))
    accuracy = ((model(inputs) > 0) == (targets > 0)).double().mean()
    print(f"loss {loss.item():.4f}, accuracy {accuracy.item():.4f}")
    return model


if __name__ == "__main__":
    module = train()
    linears = [layer for layer in module if isinstance(layer, nn.Linear)]
    network = rn.Network.from_weights(
        [layer.weight.detach().numpy() for layer in linears],
        [layer.bias.detach().numpy() for layer in linears],
    )
    rn.save(network, TARGET)
    zeros = [int((np.asarray(w) == 0).sum()) for w in network.weights()[0]]
    print(network, f"zero weights per layer: {zeros}")

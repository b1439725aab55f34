"""The six networks of `embedded.py`, trained here in seconds: what is put on small boards.

Every entry is (network, domain, inputs, labels); ACAS Xu is read from the case files if they lie
beside the repository.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import relunorm as rn

CASES = Path(__file__).parents[2] / "shared" / "cases" / "real"
Case = tuple[rn.Network, rn.Box, np.ndarray | None, np.ndarray | None]


def sine() -> Case:
    """1-16-16-1, the hello world of TensorFlow Lite Micro: sin on [0, 2 pi]."""
    from sklearn.neural_network import MLPRegressor

    x = np.random.default_rng(0).uniform(0, 2 * np.pi, (1000, 1))
    y = np.sin(x[:, 0])
    model = MLPRegressor(
        hidden_layer_sizes=(16, 16), max_iter=3000, random_state=0, learning_rate_init=0.01
    )
    return rn.load(model.fit(x, y)), rn.Box([0.0], [2 * np.pi]), x, y


def digits() -> Case:
    """64-32-16-10 on the 8 x 8 digits, pixels in [0, 1]."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    model = MLPClassifier(hidden_layer_sizes=(32, 16), max_iter=300, random_state=0)
    return rn.load(model.fit(x / 16, y)), rn.Box.cube(64, 0, 1), x / 16, y


def cancer() -> Case:
    """30-16-8-1 on the Wisconsin breast cancer data, the scaler folded into the first layer."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    x, y = load_breast_cancer(return_X_y=True)
    scaler = StandardScaler().fit(x)
    model = MLPClassifier(hidden_layer_sizes=(16, 8), max_iter=500, random_state=0)
    weights, biases = rn.load(model.fit(scaler.transform(x), y)).weights()
    first = np.asarray(weights[0]) / scaler.scale_
    shift = np.asarray(biases[0]) - first @ scaler.mean_
    net = rn.Network.from_weights([first, *weights[1:]], [shift, *biases[1:]])
    return net, rn.Box.around(x), x, y


def acas() -> Case:
    """ACAS Xu 1_1 over the box of property 3."""
    box = rn.Box(
        [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
        [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
    )
    return rn.load(CASES / "ACASXU_run2a_1_1_batch_2000.onnx"), box, None, None


def convolutional() -> Case:
    """Two convolutions and a pooling on the 8 x 8 digits."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    x, y = load_digits(return_X_y=True)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    _train(model, x.reshape(-1, 1, 8, 8) / 16, y, nn.functional.cross_entropy, 40)
    net = rn.load(model.double(), example=torch.zeros(1, 1, 8, 8, dtype=torch.float64))
    return net, rn.Box.cube(64, 0, 1), x / 16, y


def autoencoder() -> Case:
    """640-128-128-8-128-128-640 with batch norm, as for anomaly detection in machine sounds.

    No recordings are at hand: five frames of 128 bands with a few moving peaks stand for them.
    """
    import torch
    from torch import nn

    rng = np.random.default_rng(0)
    bands = np.linspace(0, 1, 128)
    rows = []
    for _ in range(2000):
        centers, heights = rng.random(3), rng.uniform(0.3, 1, 3)
        frames = [
            sum(
                h * np.exp(-(((bands - c - 0.01 * t) / 0.04) ** 2))
                for c, h in zip(centers, heights, strict=True)
            )
            for t in range(5)
        ]
        rows.append(np.concatenate(frames) + 0.02 * rng.normal(size=640))
    x = np.array(rows)
    torch.manual_seed(0)
    widths = (640, 128, 128, 8, 128, 128)
    blocks: list[Any] = []
    for a, b in itertools.pairwise(widths):
        blocks += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    model = nn.Sequential(*blocks, nn.Linear(128, 640))
    _train(model, x, x, nn.functional.mse_loss, 30)
    net = rn.load(model.double(), example=torch.zeros(1, 640, dtype=torch.float64))
    return net, rn.Box.around(x), x, x


def _train(model: Any, x: np.ndarray, y: np.ndarray, loss: Callable[..., Any], epochs: int) -> None:
    import torch

    torch.set_num_threads(1)
    inputs = torch.tensor(x, dtype=torch.float32)
    kind = torch.float32 if y.ndim > 1 else torch.int64
    targets = torch.tensor(y, dtype=kind)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            loss(model(inputs[part]), targets[part]).backward()
            optimizer.step()
    model.eval()


MODELS: dict[str, Callable[[], Case]] = {
    "sine 1-16-16-1": sine,
    "digits 64-32-16-10": digits,
    "breast cancer 30-16-8-1": cancer,
    "ACAS Xu 1_1, property 3": acas,
    "CNN on 8x8 digits": convolutional,
    "autoencoder 640-128-128-8-128-128-640": autoencoder,
}


def load_case(name: str) -> Case:
    """One of `MODELS`, trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sklearn's limit on iterations
        return MODELS[name]()

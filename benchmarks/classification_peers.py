"""The classifiers that benchmarks/classification.py compares, each tuned on the training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

#: Hidden units of every network.
WIDTH = 32


class TorchNet:
    """One hidden layer by AdamW on mini-batches, the epoch chosen on held-out rows.

    ``fit`` with rows to check on remembers the best epoch; without them it trains that many epochs.
    """

    def __init__(self, lr: float, decay: float, seed: int, epochs: int = 200):
        self.lr, self.decay, self.seed, self.epochs = lr, decay, seed, epochs

    def fit(self, x: np.ndarray, y: np.ndarray, check: tuple | None = None) -> TorchNet:
        self.scale = StandardScaler().fit(x)
        self.classes_ = np.unique(y)
        inputs = torch.from_numpy(self.scale.transform(x)).float()
        labels = torch.from_numpy(np.searchsorted(self.classes_, y))
        torch.manual_seed(self.seed)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(x.shape[1], WIDTH),
            torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, len(self.classes_)),
        )
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=self.lr, weight_decay=self.decay)
        self.best, lowest = self.epochs, float("inf")
        for epoch in range(1, self.epochs + 1):
            for rows in torch.randperm(len(inputs)).split(64):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.net(inputs[rows]), labels[rows]).backward()
                optimizer.step()
            if check is not None:
                loss = log_loss(check[1], self.predict_proba(check[0]), labels=self.classes_)
                if loss < lowest:
                    self.best, lowest = epoch, loss
        self.lowest = lowest
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return (
                self.net(torch.from_numpy(self.scale.transform(x)).float())
                .softmax(1)
                .double()
                .numpy()
            )


def tuned_torch(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Four settings, each with its best epoch on a fifth of the rows; the best on all rows."""
    kept, held, yk, yh = train_test_split(x, y, test_size=0.2, stratify=y, random_state=seed)
    found = []
    for lr, decay in product((3e-3, 1e-2), (1e-4, 1.0)):
        model = TorchNet(lr, decay, seed).fit(kept, yk, (held, yh))
        found.append((model.lowest, lr, decay, model.best))
    _, lr, decay, epochs = min(found)
    return TorchNet(lr, decay, seed, epochs).fit(x, y)


def tuned(make: Callable[..., Any], settings: list[dict[str, Any]]) -> Callable[..., Any]:
    """Every setting on four fifths of the rows; the best one on the rest again on all rows."""

    def fit(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        kept, held, yk, yh = train_test_split(x, y, test_size=0.2, stratify=y, random_state=seed)
        losses = [
            log_loss(yh, make(seed, **s).fit(kept, yk).predict_proba(held), labels=np.unique(y))
            for s in settings
        ]
        return make(seed, **settings[int(np.argmin(losses))]).fit(x, y)

    return fit


def perceptron(seed: int, **settings: Any) -> Any:
    net = MLPClassifier((WIDTH,), max_iter=1000, random_state=seed, **settings)
    return make_pipeline(StandardScaler(), net)


def ours(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    from relunorm.train.classifier import ReLUClassifier

    return ReLUClassifier(hidden=WIDTH, random_state=seed).fit(x, y)


@dataclass(frozen=True)
class Peer:
    """One method: ``fit(x, y, seed)`` gives a model; ``network`` if it has the hidden layer."""

    fit: Callable[[np.ndarray, np.ndarray, int], Any]
    network: bool


PEERS = {
    "relunorm ReLUClassifier": Peer(ours, True),
    "MLPClassifier": Peer(tuned(perceptron, [{}, {"alpha": 0.1}, {"alpha": 1.0}]), True),
    "torch MLP": Peer(tuned_torch, True),
    "logistic regression": Peer(
        tuned(
            lambda seed, **s: make_pipeline(
                StandardScaler(), LogisticRegression(max_iter=2000, **s)
            ),
            [{"C": c} for c in (1.0, 0.01, 0.1, 10.0, 100.0)],
        ),
        False,
    ),
    "gradient boosting": Peer(
        tuned(
            lambda seed, **s: HistGradientBoostingClassifier(random_state=seed, **s),
            [
                {},
                {"learning_rate": 0.03, "max_leaf_nodes": 8},
                {"max_iter": 30, "min_samples_leaf": 5},
            ],
        ),
        False,
    ),
}

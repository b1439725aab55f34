"""The methods that benchmarks/training.py compares: same fit and predict, three settings each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relunorm.train.regressor import ReLURegressor

#: Rows on which a Gaussian process chooses its kernel's parameters; it predicts from all rows.
GP_ROWS = 400


@dataclass(frozen=True)
class Peer:
    """One method.

    Attributes:
        make: (units per hidden layer, seed, setting) -> unfitted model.
        settings: its own main knob at three values, the package's default first.
        network: whether the hidden layers mean anything to it.
        inputs: numbers of inputs it can take.
    """

    make: Callable[[tuple[int, ...], int, dict[str, Any]], Any]
    settings: tuple[dict[str, Any], ...]
    network: bool = True
    inputs: range = range(1, 10**6)


def scaled(model: Any) -> Any:
    """Standardized inputs and targets around a scikit-learn model."""
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), model), transformer=StandardScaler()
    )


class TorchNet:
    """A perceptron trained on all rows in float64 by a torch optimizer, with an L2 penalty."""

    def __init__(self, hidden: tuple[int, ...], seed: int, kind: str, penalty: float):
        self.hidden, self.seed, self.kind, self.penalty = hidden, seed, kind, penalty

    def fit(self, x: np.ndarray, y: np.ndarray) -> TorchNet:
        self.x_scale, self.y_scale = StandardScaler().fit(x), StandardScaler().fit(y[:, None])
        inputs = torch.from_numpy(self.x_scale.transform(x))
        targets = torch.from_numpy(self.y_scale.transform(y[:, None]))
        torch.manual_seed(self.seed)
        sizes = (x.shape[1], *self.hidden)
        parts: list[torch.nn.Module] = []
        for a, b in pairwise(sizes):
            parts += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        self.net = torch.nn.Sequential(*parts, torch.nn.Linear(sizes[-1], 1)).double()
        if self.kind == "geotorch":
            import geotorch

            for layer in self.net[:-1:2]:
                geotorch.sphere(layer, "weight")
        self._descend(inputs, targets) if self.kind != "lbfgs" else self._lbfgs(inputs, targets)
        return self

    def _loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = [p for p in self.net.parameters() if p.ndim == 2]
        size = torch.stack([w.square().sum() for w in weights]).sum()
        return (self.net(x) - y).square().mean() + self.penalty * size

    def _descend(self, x: torch.Tensor, y: torch.Tensor, steps: int = 2000) -> None:
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            optimizer.zero_grad()
            self._loss(x, y).backward()
            optimizer.step()
            schedule.step()

    def _lbfgs(self, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.LBFGS(
            self.net.parameters(), max_iter=1000, line_search_fn="strong_wolfe",
            tolerance_grad=1e-9, tolerance_change=1e-12,
        )  # fmt: skip

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self._loss(x, y)
            loss.backward()
            return loss

        optimizer.step(closure)

    def predict(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            values = self.net(torch.from_numpy(self.x_scale.transform(x))).numpy()
        return self.y_scale.inverse_transform(values)[:, 0]


class Pwlf:
    """pwlf's fast fit with as many inner knots as units; one input."""

    def __init__(self, units: int, seed: int, pop: int):
        self.units, self.seed, self.pop = units, seed, pop

    def fit(self, x: np.ndarray, y: np.ndarray) -> Pwlf:
        import pwlf

        self.model = pwlf.PiecewiseLinFit(x[:, 0], y, seed=self.seed)
        self.model.fitfast(self.units + 1, pop=self.pop)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict(x[:, 0])


class GaussianProcess(RegressorMixin, BaseEstimator):
    """One length a coordinate and a noise term; kernel parameters from at most `GP_ROWS` rows."""

    def __init__(self, kernel: str, seed: int):
        self.kernel, self.seed = kernel, seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> GaussianProcess:
        ones = np.ones(x.shape[1])
        shapes = {"rbf": RBF(ones), "matern 5/2": Matern(ones, nu=2.5)}
        shape = shapes.get(self.kernel, Matern(ones, nu=1.5))
        start = ConstantKernel(1.0) * shape + WhiteKernel(1e-2, (1e-12, 1e1))
        few = np.random.default_rng(self.seed).permutation(len(x))[:GP_ROWS]
        model = GaussianProcessRegressor(start, random_state=self.seed).fit(x[few], y[few])
        if len(few) < len(x):
            model = GaussianProcessRegressor(model.kernel_, optimizer=None).fit(x, y)
        self.model_ = model
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model_.predict(x)


def installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def torch_peer(kind: str, inputs: range = range(1, 10**6)) -> Peer:
    penalties = tuple({"penalty": p} for p in (0.0, 1e-5, 1e-3))
    return Peer(lambda h, s, o: TorchNet(h, s, kind, **o), penalties, inputs=inputs)


PEERS: dict[str, Peer] = {
    "relunorm ReLURegressor": Peer(
        lambda h, s, o: ReLURegressor(hidden=h if len(h) > 1 else h[0], random_state=s, **o),
        ({}, {"alpha": 1e-4}, {"alpha": 1e-2}),
    ),
    "MLPRegressor lbfgs": Peer(
        lambda h, s, o: scaled(
            MLPRegressor(hidden_layer_sizes=h, solver="lbfgs", max_iter=2000, random_state=s, **o)
        ),
        ({}, {"alpha": 1e-2}, {"alpha": 1.0}),
    ),
    "MLPRegressor adam": Peer(
        lambda h, s, o: scaled(
            MLPRegressor(hidden_layer_sizes=h, max_iter=2000, random_state=s, **o)
        ),
        ({}, {"learning_rate_init": 1e-2}, {"learning_rate_init": 1e-2, "alpha": 1.0}),
    ),
    "torch Adam": torch_peer("adam"),
    "torch LBFGS": torch_peer("lbfgs"),
    # the sphere of one dimension is two points
    "geotorch sphere + Adam": torch_peer("geotorch", range(2, 10**6)),
    "pwlf fitfast": Peer(
        lambda h, s, o: Pwlf(h[0], s, **o),
        ({"pop": 2}, {"pop": 4}, {"pop": 6}),
        network=False,
        inputs=range(1, 2),
    ),
    "gradient boosting": Peer(
        lambda h, s, o: HistGradientBoostingRegressor(random_state=s, **o),
        (
            {},
            {"min_samples_leaf": 5},
            {"min_samples_leaf": 5, "learning_rate": 0.05, "max_iter": 300},
        ),
        network=False,
    ),
    "Gaussian process": Peer(
        lambda h, s, o: scaled(GaussianProcess(seed=s, **o)),
        ({"kernel": "rbf"}, {"kernel": "matern 5/2"}, {"kernel": "matern 3/2"}),
        network=False,
    ),
    "linear": Peer(
        lambda h, s, o: scaled(Ridge(**o)),
        ({"alpha": 1e-6}, {"alpha": 1.0}, {"alpha": 100.0}),
        network=False,
    ),
}
#: Packages that are not among this project's requirements.
NEEDS = {"geotorch sphere + Adam": "geotorch", "pwlf fitfast": "pwlf"}

"""The methods that benchmarks/training.py compares, all with the same fit and predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relunorm.train.estimator import ReLURegressor


class NotInstalled(Exception):
    """The peer's package is missing, or it does not apply to the problem."""


def scaled(model: Any) -> Any:
    """Standardized inputs and targets around a scikit-learn model."""
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), model), transformer=StandardScaler()
    )


class TorchNet:
    """One hidden layer trained on all rows in float64 by a torch optimizer."""

    def __init__(self, units: int, seed: int, kind: str):
        self.units, self.seed, self.kind = units, seed, kind

    def fit(self, x: np.ndarray, y: np.ndarray) -> TorchNet:
        self.x_scale, self.y_scale = StandardScaler().fit(x), StandardScaler().fit(y[:, None])
        inputs = torch.from_numpy(self.x_scale.transform(x))
        targets = torch.from_numpy(self.y_scale.transform(y[:, None]))
        torch.manual_seed(self.seed)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(x.shape[1], self.units), torch.nn.ReLU(), torch.nn.Linear(self.units, 1)
        ).double()
        if self.kind == "geotorch":
            import geotorch

            geotorch.sphere(self.net[0], "weight")
        if self.kind == "lbfgs":
            self._lbfgs(inputs, targets)
        else:
            self._adam(inputs, targets)
        return self

    def _adam(self, x: torch.Tensor, y: torch.Tensor, steps: int = 2000) -> None:
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            optimizer.zero_grad()
            (self.net(x) - y).square().mean().backward()
            optimizer.step()
            schedule.step()

    def _lbfgs(self, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.LBFGS(
            self.net.parameters(), max_iter=1000, line_search_fn="strong_wolfe",
            tolerance_grad=1e-9, tolerance_change=1e-12,
        )  # fmt: skip

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (self.net(x) - y).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    def predict(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            scaled = self.net(torch.from_numpy(self.x_scale.transform(x))).numpy()
        return self.y_scale.inverse_transform(scaled)[:, 0]


class Pwlf:
    """pwlf's fast fit with as many inner knots as units; one input."""

    def __init__(self, units: int, seed: int):
        self.units, self.seed = units, seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> Pwlf:
        import pwlf

        self.model = pwlf.PiecewiseLinFit(x[:, 0], y, seed=self.seed)
        self.model.fitfast(self.units + 1, pop=3)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict(x[:, 0])


def _geotorch(units: int, seed: int, inputs: int) -> TorchNet:
    try:
        import geotorch  # noqa: F401
    except ImportError:
        raise NotInstalled("not installed") from None
    if inputs == 1:
        raise NotInstalled("the sphere of one dimension is two points")
    return TorchNet(units, seed, "geotorch")


def _pwlf(units: int, seed: int, inputs: int) -> Pwlf:
    if inputs != 1:
        raise NotInstalled("one input only")
    try:
        import pwlf  # noqa: F401
    except ImportError:
        raise NotInstalled("not installed") from None
    return Pwlf(units, seed)


def _gp(units: int, seed: int, inputs: int) -> Any:
    kernel = ConstantKernel(1.0) * RBF(np.ones(inputs)) + WhiteKernel(1e-2, (1e-12, 1e1))
    return scaled(GaussianProcessRegressor(kernel, random_state=seed))


PEERS: dict[str, Callable[[int, int, int], Any]] = {
    "relunorm ReLURegressor": lambda k, s, d: ReLURegressor(hidden=k, random_state=s),
    "MLPRegressor lbfgs": lambda k, s, d: scaled(
        MLPRegressor(hidden_layer_sizes=(k,), solver="lbfgs", max_iter=2000, random_state=s)
    ),
    "MLPRegressor adam": lambda k, s, d: scaled(
        MLPRegressor(hidden_layer_sizes=(k,), max_iter=2000, random_state=s)
    ),
    "torch Adam": lambda k, s, d: TorchNet(k, s, "adam"),
    "torch LBFGS": lambda k, s, d: TorchNet(k, s, "lbfgs"),
    "geotorch sphere + Adam": _geotorch,
    "pwlf fitfast": _pwlf,
    "gradient boosting": lambda k, s, d: HistGradientBoostingRegressor(random_state=s),
    "Gaussian process": _gp,
    "linear": lambda k, s, d: LinearRegression(),
}

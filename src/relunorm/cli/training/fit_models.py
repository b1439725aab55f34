"""What ``relunorm fit`` compares the network with, and by which numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.io.table import Table
from relunorm.train.scaling import Scaling

Predict = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def regression_baselines(train: Table) -> dict[str, Predict]:
    """A least-squares plane and scikit-learn's histogram boosting with default settings."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.multioutput import MultiOutputRegressor

    assert train.y is not None
    ones = np.ones(len(train.x))
    y = train.y.reshape(len(ones), -1)
    fill = filler(train)
    inputs, targets = Scaling.of(fill(train.x), ones, "x"), Scaling.of(y, ones, "y")

    def design(x):
        return np.column_stack([np.ones(len(x)), inputs.apply(fill(x))])

    plane = np.linalg.lstsq(design(train.x), targets.apply(y), rcond=None)[0]
    trees = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0))
    trees.fit(inputs.apply(fill(train.x)), targets.apply(y))

    def back(values):
        scaled = values * targets.scale + targets.shift
        return scaled[:, 0] if train.y is not None and train.y.ndim == 1 else scaled

    return {
        "linear": lambda x: back(design(x) @ plane),
        "gradient boosting": lambda x: back(trees.predict(inputs.apply(fill(x)))),
    }


def classification_baselines(train: Table) -> dict[str, Predict]:
    """Logistic regression on scaled inputs and histogram boosting, both with default settings.

    Boosting holds rows out where they are many, some of every class; where a class has too few for
    that, it goes without.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    ones, fill, y = np.ones(len(train.x)), filler(train), np.asarray(train.y)
    inputs = Scaling.of(fill(train.x), ones, "x")

    def scaled(x):
        return inputs.apply(fill(x))

    plane = LogisticRegression(max_iter=2000).fit(scaled(train.x), y)
    counts = np.unique(y, return_counts=True)[1]
    early: Any = "auto" if counts.min() > 1 and 10 * len(counts) < len(ones) else False
    trees = HistGradientBoostingClassifier(random_state=0, early_stopping=early)
    trees.fit(scaled(train.x), y)
    return {
        "logistic regression": lambda x: plane.predict_proba(scaled(x)),
        "gradient boosting": lambda x: trees.predict_proba(scaled(x)),
    }


def filler(train: Table) -> Predict:
    """Medians of these rows in place of missing values."""
    middle = np.nanmedian(train.x, axis=0)
    return lambda x: np.where(np.isnan(x), middle, x)


def regression_errors(predict: Predict, train: Table, held: Table | None) -> dict[str, Any]:
    """Root mean squared errors and R^2; of several targets those of each, too, as ``outputs``."""
    result = _regression_errors(predict, train, held)
    if train.y is None or train.y.ndim == 1 or train.y.shape[1] == 1:
        return result
    outputs = []
    for k, name in enumerate(target_names(train)):
        parts = [
            None if part is None or part.y is None else replace(part, y=part.y[:, k])
            for part in (train, held)
        ]
        found = _regression_errors(lambda x, k=k: predict(x)[:, k], *parts)  # type: ignore
        outputs.append({"target": name, **found})
    return {**result, "outputs": outputs}


def target_names(table: Table) -> list[str]:
    """One name for each column of the target; an .npz names them all at once."""
    assert table.y is not None
    count = 1 if table.y.ndim == 1 else table.y.shape[1]
    names = table.target.split(", ")
    return names if len(names) == count else [f"{table.target or 'y'}[{k}]" for k in range(count)]


def _regression_errors(predict: Predict, train: Table, held: Table | None) -> dict[str, float]:
    """Of all outputs together, computed so that huge values do not overflow."""
    result: dict[str, float] = {}
    for name, part in (("train", train), ("holdout", held)):
        if part is None:
            result[f"{name}_rmse"] = result[f"{name}_r2"] = math.nan
            continue
        assert part.y is not None
        unit = float(np.abs(part.y).max()) or 1.0
        residual = (predict(part.x) - part.y) / unit
        centered = (part.y - part.y.mean(axis=0)) / unit
        total = float((centered**2).sum())
        squares = float((residual**2).sum())
        result[f"{name}_rmse"] = unit * math.sqrt(squares / residual.size)
        result[f"{name}_r2"] = 1 - squares / total if total > 0 else math.nan
    return result


def classification_errors(
    chances: Predict, classes: NDArray[Any], train: Table, held: Table | None
) -> dict[str, float]:
    """Mean log-loss and share of right answers; a class that was not fitted counts as impossible.

    Args:
        chances: gives (n, classes) probabilities.
        classes: the values of y that were fitted, sorted.
    """
    result: dict[str, float] = {}
    for name, part in (("train", train), ("holdout", held)):
        if part is None:
            result[f"{name}_log_loss"] = result[f"{name}_accuracy"] = math.nan
            continue
        assert part.y is not None
        found = chances(part.x)
        at = np.searchsorted(classes, part.y).clip(max=len(classes) - 1)
        given = np.where(classes[at] == part.y, found[np.arange(len(at)), at], 0.0)
        result[f"{name}_log_loss"] = float(-np.log(np.maximum(given, 1e-15)).mean())
        right = classes[found.argmax(axis=1)] == part.y
        result[f"{name}_accuracy"] = float(right.mean())
    return result

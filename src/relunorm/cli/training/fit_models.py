"""What ``relunorm fit`` compares the network with, and by which numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.io.table import Table
from relunorm.train.scaling import Scaling

Predict = Callable[[NDArray[np.float64]], NDArray[np.float64]]


#: Rounds of boosting and iterations of logistic regression, where no clock ends them before.
ROUNDS, ITERATIONS = 100, 2000


class Baseline(NamedTuple):
    """A simpler model, named after how far the clock let it come; without a prediction: no time."""

    name: str
    predict: Predict | None
    note: str = ""


def regression_baselines(train: Table, clock: Clock) -> Iterator[Baseline]:
    """A least-squares plane and scikit-learn's histogram boosting with default settings."""
    with clock.pause():  # start-up
        from sklearn.ensemble import HistGradientBoostingRegressor

    assert train.y is not None
    ones = np.ones(len(train.x))
    y = train.y.reshape(len(ones), -1)
    fill = filler(train)
    inputs, targets = Scaling.of(fill(train.x), ones, "x"), Scaling.of(y, ones, "y")

    def design(x):
        return np.column_stack([np.ones(len(x)), inputs.apply(fill(x))])

    def back(values):
        scaled = values * targets.scale + targets.shift
        return scaled[:, 0] if train.y is not None and train.y.ndim == 1 else scaled

    wanted = targets.apply(y)
    plane = np.linalg.lstsq(design(train.x), wanted, rcond=None)[0]
    yield Baseline("linear", lambda x: back(design(x) @ plane))
    trees = []
    for k, column in enumerate(wanted.T):
        share = clock.part(share=1 / (len(wanted.T) - k))
        one = HistGradientBoostingRegressor(random_state=0)
        trees.append(_boosted(one, inputs.apply(fill(train.x)), column, share))

    def boosted(x):
        at = inputs.apply(fill(x))
        return back(np.column_stack([one.predict(at) for one in trees]))

    yield _boosting(trees, boosted)


def classification_baselines(train: Table, clock: Clock) -> Iterator[Baseline]:
    """Logistic regression on scaled inputs and histogram boosting, both with default settings.

    Boosting holds rows out where they are many, some of every class; where a class has too few for
    that, it goes without.
    """
    with clock.pause():  # start-up
        from sklearn.ensemble import HistGradientBoostingClassifier

    ones, fill, y = np.ones(len(train.x)), filler(train), np.asarray(train.y)
    inputs = Scaling.of(fill(train.x), ones, "x")

    def scaled(x):
        return inputs.apply(fill(x))

    plane, name = _logistic(scaled(train.x), y, clock.part(share=0.5))
    yield Baseline(name, lambda x: plane.predict_proba(scaled(x)))
    counts = np.unique(y, return_counts=True)[1]
    early: Any = "auto" if counts.min() > 1 and 10 * len(counts) < len(ones) else False
    trees = HistGradientBoostingClassifier(random_state=0, early_stopping=early)
    trees = _boosted(trees, scaled(train.x), y, clock)
    yield _boosting([trees], lambda x: trees.predict_proba(scaled(x)))


def _boosted(trees: Any, x: NDArray[np.float64], y: NDArray[Any], clock: Clock) -> Any:
    """Boosting until its rounds or the clock end, the rounds doubled each time; None: no time."""
    if clock.expired():
        return None
    trees.set_params(warm_start=True, max_iter=1 if clock.limited else ROUNDS)
    while True:
        before = clock.elapsed()
        trees.fit(x, y)
        rounds = trees.max_iter
        if (
            trees.n_iter_ < rounds
            or rounds == ROUNDS
            or clock.left() < 2 * (clock.elapsed() - before)
        ):
            return trees
        trees.max_iter = min(2 * rounds, ROUNDS)


def _boosting(trees: list[Any], predict: Predict) -> Baseline:
    name = "gradient boosting"
    if any(one is None for one in trees):
        return Baseline(name, None, f"{name} is left out: the time limit left none for it")
    # One that ends before the rounds it was given has rows held out that no longer get better.
    cut = [one.max_iter for one in trees if one.n_iter_ == one.max_iter < ROUNDS]
    return Baseline(f"{name}, {min(cut)} of {ROUNDS} rounds" if cut else name, predict)


def _logistic(x: NDArray[np.float64], y: NDArray[Any], clock: Clock) -> tuple[Any, str]:
    """Logistic regression until it converges or the clock ends, and what to call it."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    plane: Any = LogisticRegression(warm_start=True)
    plane.max_iter, done = 10 if clock.limited else ITERATIONS, 0
    while True:
        before = clock.elapsed()
        with warnings.catch_warnings():
            if clock.limited:
                warnings.simplefilter("ignore", ConvergenceWarning)
            plane.fit(x, y)
        done += plane.max_iter
        if max(plane.n_iter_) < plane.max_iter or done >= ITERATIONS:
            return plane, "logistic regression"
        if clock.left() < 2 * (clock.elapsed() - before):
            return plane, f"logistic regression, {done} steps"
        plane.max_iter = min(2 * plane.max_iter, ITERATIONS - done)


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

    def errors(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
        unit = float(np.abs(y).max()) or 1.0
        residual = (predict(x) - y) / unit
        total = float((((y - y.mean(axis=0)) / unit) ** 2).sum())
        squares = float((residual**2).sum())
        r2 = 1 - squares / total if total > 0 else math.nan
        return unit * math.sqrt(squares / residual.size), r2

    return _of_parts(("rmse", "r2"), errors, train, held)


def _of_parts(
    names: tuple[str, str], errors: Callable[..., Any], train: Table, held: Table | None
) -> dict[str, float]:
    """Two numbers of the rows that were fitted and of those held out; NaN where there are none."""
    result: dict[str, float] = {}
    for name, part in (("train", train), ("holdout", held)):
        found = (math.nan, math.nan) if part is None else errors(part.x, part.y)
        result |= {f"{name}_{key}": value for key, value in zip(names, found, strict=True)}
    return result


def classification_errors(
    chances: Predict, classes: NDArray[Any], train: Table, held: Table | None
) -> dict[str, float]:
    """Mean log-loss and share of right answers; a class that was not fitted is impossible."""

    def errors(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
        found = chances(x)
        at = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        given = np.where(classes[at] == y, found[np.arange(len(at)), at], 0.0)
        right = classes[found.argmax(axis=1)] == y
        return float(-np.log(np.maximum(given, 1e-15)).mean()), float(right.mean())

    return _of_parts(("log_loss", "accuracy"), errors, train, held)

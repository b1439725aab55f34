"""`ReLURegressor` among other tools, in other formats, cut short by a signal or the clock."""

import signal

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relunorm.clock import Progress
from relunorm.train.problem.task import Task
from relunorm.train.regressor import ReLURegressor
from relunorm.train.solve.by_name import SOLVERS, solver

RNG = np.random.default_rng(5)
X = RNG.random((60, 3))
Y = np.abs(X[:, 0] - 0.4) + 2 * X[:, 1] + 0.05 * RNG.normal(size=60)
FRESH = 1.4 * RNG.random((50, 3)) - 0.2
SMALL = ReLURegressor(hidden=3, n_init=1, random_state=0)


def model(name: str, **settings) -> ReLURegressor:
    hidden = (4, 3) if name == "deep" else 6
    options = {"epochs": 5, "max_iter": 15}
    return ReLURegressor(
        hidden=hidden, solver=name, n_init=1, random_state=0, options=options, **settings
    )


def inputs(name: str, x: np.ndarray) -> np.ndarray:
    return x[:, :1] if name == "exact" else x


def test_searches_transformed_targets_and_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    scaler = StandardScaler().set_output(transform="pandas")
    grid = {"reluregressor__hidden": [2, (3, 2)], "reluregressor__alpha": ["auto", 0.1]}
    search = GridSearchCV(make_pipeline(scaler, SMALL), grid, cv=2).fit(frame, Y)
    assert search.best_score_ > 0.9
    assert list(search.best_estimator_[-1].feature_names_in_) == ["a", "b", "c"]
    logs = TransformedTargetRegressor(clone(SMALL), func=np.log1p, inverse_func=np.expm1)
    assert logs.fit(X, Y).score(X, Y) > 0.9
    fitted = clone(SMALL).fit(frame, Y)
    joblib.dump(fitted, tmp_path / "m.joblib")
    again = joblib.load(tmp_path / "m.joblib")
    assert np.array_equal(again.predict(frame), fitted.predict(frame))
    assert clone(again).get_params() == fitted.get_params()


def test_cross_validation_in_two_processes_changes_nothing():
    alone, spread = (cross_val_score(SMALL, X, Y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    assert alone == pytest.approx(spread, abs=1e-9)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", SOLVERS)
def test_other_formats_agree_on_inputs_never_seen(name, skip):
    runtime = pytest.importorskip("onnxruntime")
    y = Y if name == "exact" else np.column_stack([Y, -Y])
    fitted = model(name, skip=skip).fit(inputs(name, X), y)
    fresh = inputs(name, FRESH).astype(np.float32).astype(np.float64)
    expected = fitted.predict(fresh).reshape(50, -1)
    size = np.abs(expected).max()
    with torch.no_grad():
        found = fitted.to_torch()(torch.from_numpy(fresh)).numpy().reshape(50, -1)
    assert np.abs(found - expected).max() <= 1e-12 * size
    session = runtime.InferenceSession(
        fitted.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feed = {session.get_inputs()[0].name: fresh.astype(np.float32)}
    found = session.run(None, feed)[0].reshape(50, -1)
    # float32: terms of the spline may cancel, and exceed their sum a hundredfold
    assert np.abs(found - expected).max() <= 1e-4 * size


@pytest.mark.parametrize("name", [n for n, solver in SOLVERS.items() if not solver.batches])
def test_weights_are_copies(name):
    count = np.random.default_rng(1).integers(0, 4, 60)
    x = inputs(name, X)
    one = model(name).fit(x, Y, sample_weight=count)
    two = model(name).fit(np.repeat(x, count, 0), np.repeat(Y, count))
    assert one.network_.digest == two.network_.digest


@pytest.mark.parametrize("name", SOLVERS)
def test_a_limit_that_is_spent_at_once_is_marked(name):
    fitted = model(name, time_limit=0.01)
    fitted.set_params(options={"epochs": 10**5, "max_iter": 10**6}, n_init=None, alpha=1e-3)
    if name == "exact":
        fitted.set_params(alpha="auto")
    x = inputs(name, X)
    assert fitted.fit(x, Y).stopped_ == "time limit"
    assert np.isfinite(fitted.predict(x)).all()


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("name", SOLVERS)
def test_a_real_signal_leaves_the_best_network_so_far(name, after):
    """SIGINT at the first or third report of the solver, wherever in it that is."""
    seen = []

    def listen(said: Progress) -> None:
        seen.append(said.message)
        if len(seen) == after + 1:
            signal.raise_signal(signal.SIGINT)

    x = inputs(name, (X - X.mean(axis=0)) / X.std(axis=0))
    fit = solver(name)(
        Task(
            x=torch.from_numpy(np.ascontiguousarray(x)),
            y=torch.from_numpy((Y - Y.mean()) / Y.std())[:, None],
            weight=torch.ones(60, dtype=torch.float64),
            hidden=(4, 3) if name == "deep" else (6,),
            alpha=0.0 if name == "exact" else None,
            progress=listen,
            options={"epochs": 50, "max_iter": 50},
        )
    )
    if len(seen) > after:
        assert fit.stopped == "interrupted"
    assert np.isfinite(fit.loss)
    assert all(np.isfinite(part).all() for layer in fit.layers for part in layer)

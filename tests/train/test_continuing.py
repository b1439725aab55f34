"""Early stopping, warm starts and tables with gaps, for every solver that has them."""

import numpy as np
import pandas as pd
import pytest

from relunorm.errors import InvalidInputError
from relunorm.train.problem.task import Fit
from relunorm.train.regressor import ReLURegressor
from relunorm.train.scaling import Scaling, network_of, start_of

RNG = np.random.default_rng(0)
X = RNG.random((90, 2)) * [1.0, 50.0]
Y = np.abs(X[:, 0] - 0.4) + 0.02 * X[:, 1] + 0.2 * RNG.normal(size=90)
SOLVERS = ["greedy", "deep", "adam", "lbfgs"]


def model(solver: str, **settings) -> ReLURegressor:
    options = {"epochs": 200, "max_iter": 200}
    hidden = (8, 4) if solver == "deep" else 12
    settings = {"alpha": 1e-7, "n_init": 2, "random_state": 0, "options": options, **settings}
    return ReLURegressor(hidden=hidden, solver=solver, **settings)


@pytest.mark.parametrize("solver", SOLVERS)
def test_early_stopping_keeps_what_does_best_on_rows_it_did_not_see(solver):
    patient = {"early_stopping": True, "validation_fraction": 0.3, "n_iter_no_change": 4}
    fitted = model(solver, **patient).fit(X, Y)
    curve = fitted.validation_curve_
    assert len(curve) > 4
    best = int(np.argmin(curve))
    assert len(curve) - 1 - best == 4
    endless = model(solver, **{**patient, "n_iter_no_change": 10**6}).fit(X, Y)
    assert endless.validation_curve_[: len(curve)] == pytest.approx(curve)
    assert min(endless.validation_curve_) <= curve[best]


def test_early_stopping_is_refused_where_it_means_nothing():
    with pytest.raises(InvalidInputError, match="nothing to stop early"):
        ReLURegressor(hidden=3, solver="exact", early_stopping=True).fit(X[:, :1], Y)
    with pytest.raises(InvalidInputError, match="too few"):
        ReLURegressor(hidden=3, early_stopping=True).fit(X[:8], Y[:8])
    auto = ReLURegressor(hidden=2, early_stopping=True, random_state=0).fit(X[:, :1], Y)
    assert auto.solver_ == "greedy"


@pytest.mark.parametrize("solver", ["exact", *SOLVERS])
def test_a_warm_start_goes_on_from_the_network(solver):
    x = X[:, :1] if solver == "exact" else X
    settings = {"alpha": 0.0} if solver == "exact" else {}
    first = model(solver, warm_start=True, **settings).fit(x, Y)
    before = np.mean((first.predict(x) - Y) ** 2)
    # a fresh search of another seed would find other units
    again = first.set_params(random_state=7).fit(x, Y)
    allowed = 1.05 if solver == "adam" else 1 + 1e-6
    assert np.mean((again.predict(x) - Y) ** 2) <= allowed * before


def test_a_warm_start_into_another_shape_is_refused():
    fitted = model("deep", warm_start=True).fit(X, Y)
    with pytest.raises(InvalidInputError, match=r"hidden layers \(8, 4\), but hidden=5"):
        fitted.set_params(hidden=5, solver="lbfgs").fit(X, Y)
    wider = model("greedy", warm_start=True).fit(X, Y).set_params(hidden=14).fit(X, Y)
    assert wider.network_.units == 14
    for x, y in ((X[:, :1], Y), (X, np.column_stack([Y, Y]))):
        with pytest.raises(InvalidInputError, match="2 inputs and 1 outputs, the data"):
            wider.fit(x, y)


def test_a_warm_start_may_not_have_seen_what_an_interval_sets_aside():
    again = ReLURegressor(hidden=2, random_state=0, warm_start=True, interval="split").fit(X, Y)
    with pytest.raises(InvalidInputError, match="interval='split' with warm_start"):
        again.fit(X, Y)


def test_a_network_in_normalized_units_is_itself():
    rng = np.random.default_rng(3)
    fit = Fit(
        [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in ((2, 4), (4, 3))],
        rng.normal(size=2), rng.normal(size=(2, 2)), rng.normal(size=(2, 3)), 0.0, [], 1,
    )  # fmt: skip
    y = rng.normal(size=(90, 2)) * [3.0, 100.0] + 7
    inputs, targets = (Scaling.of(part, np.ones(90), "v") for part in (X, y))
    network = network_of(fit, inputs, targets, "")
    start = start_of(network, inputs, targets, np.arange(2))
    h = z = inputs.apply(X)
    for w, b in start.layers:
        assert np.linalg.norm(w, axis=1) == pytest.approx(np.ones(len(w)))
        h = np.maximum(h @ w.T + b, 0)
    found = start.bias + z @ start.skip.T + h @ start.output.T
    assert found * targets.scale + targets.shift == pytest.approx(network(X), rel=1e-9)


def test_gaps_are_refused_by_name_or_filled():
    table = pd.DataFrame(X, columns=["age", "size"])
    table.loc[[2, 5], "size"] = np.nan
    with pytest.raises(
        InvalidInputError, match=r"missing values \(NaN\): size; .*missing='median'"
    ):
        ReLURegressor(hidden=2).fit(table, Y)
    plain = {"hidden": 2, "alpha": 1e-3, "n_init": 1, "random_state": 0}
    filled = table.fillna(table.median())
    fitted = ReLURegressor(**plain, missing="median").fit(table, Y)
    assert fitted.network_.digest == ReLURegressor(**plain).fit(filled, Y).network_.digest
    assert np.array_equal(fitted.predict(table), fitted.predict(filled))
    with pytest.raises(ValueError, match="infinity"):
        fitted.predict(table.replace(table.loc[0, "age"], np.inf))
    with pytest.raises(InvalidInputError, match="without a single value: 1"):
        fitted.fit(table.assign(size=np.nan), Y)

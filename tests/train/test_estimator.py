"""`ReLURegressor`: scikit-learn's contract, exact undoing of the scaling, awkward data."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.network.columns import Column
from relunorm.train.estimator_base import merge_rows
from relunorm.train.problem.task import Fit
from relunorm.train.regressor import ReLURegressor
from relunorm.train.scaling import Scaling, network_of


@parametrize_with_checks([ReLURegressor(hidden=2, n_init=1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def surface(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2)) * [3.0, 1e3] + [10.0, -5e4]
    return x, 1e6 + 40 * np.abs(x[:, 0] - 11) + 0.1 * np.maximum(x[:, 1] + 49_500, 0)


def test_network_is_in_normal_form_and_the_users_units():
    x, y = surface()
    model = rn.ReLURegressor(hidden=6, alpha=0.0, random_state=0).fit(x, y)
    assert model.solver_ == "greedy"
    assert np.abs(model.network_(x)[:, 0] - model.predict(x)).max() == 0
    w = model.network_.layers[0].affine.terms[0]
    assert np.linalg.norm(w, axis=1) == pytest.approx(np.ones(6))
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.02 * y.std()
    assert model.optimality_gap_ is None
    assert len(model.loss_curve_) >= 1
    assert model.n_iter_ >= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_undoing_the_scaling_is_exact(seed, d, m, depth):
    rng = np.random.default_rng(seed)
    sizes = [d, *rng.integers(1, 5, depth + 1)]
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(sizes)]
    fit = Fit(
        layers,
        rng.normal(size=m),
        rng.normal(size=(m, d)),
        rng.normal(size=(m, sizes[-1])),
        0,
        [],
        1,
    )
    x = rng.normal(size=(20, d)) * 10.0 ** rng.integers(-3, 4, d) + 10.0 ** rng.integers(-2, 3)
    y = rng.normal(size=(20, m)) * 10.0 ** rng.integers(-3, 4, m)
    inputs, targets = (Scaling.of(v, np.ones(20), "v") for v in (x, y))
    h = z = inputs.apply(x)
    for w, b in layers:
        h = np.maximum(h @ w.T + b, 0)
    expected = (fit.bias + z @ fit.skip.T + h @ fit.output.T) * targets.scale + targets.shift
    found = network_of(fit, inputs, targets, "")(x)
    # x can be 1e5 deviations from 0, and so many digits are lost in w . x + b
    assert (
        np.abs(found - expected).max() <= 1e-9 * np.abs(expected).max() + 1e-9 * targets.scale.max()
    )


def test_exact_gap_and_bound_are_in_the_targets_units():
    x = np.linspace(0, 1, 200)[:, None]
    y = 1000 * np.sin(4 * np.pi * x[:, 0]) + 7
    model = ReLURegressor(hidden=12, random_state=0).fit(x, y)
    mse = float(np.mean((model.predict(x) - y) ** 2))
    assert model.solver_ == "exact"
    assert model.lower_bound_ <= mse * (1 + 1e-9)
    assert mse == pytest.approx(model.lower_bound_ * (1 + model.optimality_gap_), rel=1e-6)


def test_repeated_rows_are_weights_and_order_does_not_matter():
    x, y = surface(60)
    count = np.random.default_rng(1).integers(0, 4, 60)
    settings = {"hidden": 5, "random_state": 0}
    weighted = ReLURegressor(**settings).fit(x, y, sample_weight=count)
    repeated = ReLURegressor(**settings).fit(np.repeat(x, count, 0), np.repeat(y, count))
    assert weighted.network_.digest == repeated.network_.digest
    order = np.random.default_rng(2).permutation(60)
    shuffled = ReLURegressor(**settings).fit(x[order], y[order], sample_weight=count[order])
    assert shuffled.network_.digest == weighted.network_.digest
    rows, targets, total = merge_rows(x, y[:, None], count.astype(float))
    assert total.sum() == count.sum()
    assert len(rows) == len(targets) == (count > 0).sum()


def test_small_noisy_table_does_not_overfit():
    x, y = load_diabetes(return_X_y=True)
    scores = cross_val_score(ReLURegressor(random_state=0), x, y, cv=3)
    assert scores.mean() > 0.42


def test_multi_output_and_pandas():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.random((80, 3)), columns=["a", "b", "c"])
    y = np.column_stack([np.abs(frame["a"] - 0.5), 100 * frame["b"]])
    model = ReLURegressor(hidden=6, random_state=0).fit(frame, y)
    assert model.predict(frame).shape == (80, 2)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert np.abs(model.predict(frame) - y).max() < 0.2 * np.abs(y).max()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("solver", ["greedy", "deep", "adam", "bfgs"])
@pytest.mark.parametrize("case", ["constant", "one column", "more units than rows", "huge", "tiny"])
def test_awkward_data_gives_a_finite_model(solver, case):
    x, y = surface(40)
    hidden = (6, 4) if solver == "deep" else 6
    if case == "constant":
        y = np.full(40, 3.25)
    elif case == "one column":
        x = x[:, :1] * 0 + 4.0
    elif case == "more units than rows":
        x, y, hidden = x[:3], y[:3], 50
    elif case == "huge":
        x, y = x * 1e150, y * 1e150
    else:
        x, y = x * 1e-150, y * 1e-150
    options = {"epochs": 3} if solver == "adam" else {"max_iter": 20}
    model = ReLURegressor(hidden=hidden, solver=solver, n_init=2, random_state=0, options=options)
    fitted = model.fit(x, y).predict(x)
    assert np.isfinite(fitted).all()
    assert np.abs(fitted - y).max() <= 1.5 * np.abs(y).max()
    if case == "constant" and solver != "bfgs":
        assert fitted == pytest.approx(y, rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": 0}, "positive number of units"),
        ({"hidden": (5, 2.5)}, "positive number of units"),
        ({"solver": "sgd"}, "not known"),
        ({"constraint": "loose"}, "'tight', 'bounded'"),
        ({"alpha": -1.0}, "alpha=-1"),
        ({"alpha": "gcv"}, "alpha='gcv'"),
        ({"time_limit": -1}, "seconds"),
        ({"n_init": -1}, "n_init"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    x, y = surface(20)
    with pytest.raises(InvalidInputError, match=message):
        ReLURegressor(**wrong).fit(x, y)


def test_zero_weights_and_values_beyond_float64_are_refused():
    x, y = surface(20)
    with pytest.raises(ValueError, match=r"[Ww]eight"):
        ReLURegressor().fit(x, y, sample_weight=np.zeros(20))
    with pytest.raises(InvalidInputError, match="too large or too small"):
        ReLURegressor().fit(x * 1e301, y)


def test_pickle_clone_onnx_and_torch():
    x, y = surface(80)
    model = ReLURegressor(hidden=4, random_state=3).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(x), model.predict(x))
    assert clone(model).fit(x, y).network_.digest == model.network_.digest
    pytest.importorskip("onnx")
    assert model.to_onnx().graph.node


def test_to_torch_computes_the_same():
    torch = pytest.importorskip("torch")
    pytest.importorskip("relunorm.io.torch.write")
    x, y = surface(80)
    model = ReLURegressor(hidden=4, random_state=3).fit(x, y)
    with torch.no_grad():
        out = model.to_torch().double()(torch.from_numpy(x)).numpy().reshape(-1)
    assert out == pytest.approx(model.predict(x), rel=1e-9)


@pytest.mark.parametrize(("better", "solver"), [(1.0, "greedy"), (-1.0, "deep")])
def test_auto_takes_what_predicts_rows_held_out(monkeypatch, better, solver):
    """The comparison is forced either way; the answer is that solver's own."""
    x, y = surface(120)
    turns = iter([better, 0.0])
    monkeypatch.setattr("relunorm.train.solve.by_name._error", lambda *_: next(turns))
    model = ReLURegressor(hidden=3, random_state=0).fit(x, y)
    assert model.solver_ == solver
    plain = {"hidden": 3, "solver": solver, "random_state": 0}
    penalty = {} if solver == "greedy" else {"alpha": model.alpha_}
    assert ReLURegressor(**plain, **penalty).fit(x, y).network_.digest == model.network_.digest
    limited = ReLURegressor(hidden=3, random_state=0, n_init=1).fit(x, y)
    assert limited.solver_ == "greedy"


def test_the_network_knows_the_columns_it_was_fitted_to():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [0.0, 1, 2, 3, np.nan, 5], "b": [1.0, 0, 2, 1, 0, 3]})
    model = ReLURegressor(hidden=2, missing="median", random_state=0).fit(
        table, [0.0, 1, 2, 3, 4, 5]
    )
    assert model.network_.columns == (Column("a", fill=2.0), Column("b", fill=1.0))
    assert model.network_.columns == rn.load(model).columns
    plain = ReLURegressor(hidden=2, random_state=0).fit(table[["b"]].to_numpy(), table["b"])
    assert plain.network_.columns == ()

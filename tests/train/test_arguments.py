"""What a stranger passes: every bad argument is named, and Ctrl-C leaves a network behind."""

import numpy as np
import pandas as pd
import pytest

from relunorm.errors import InvalidInputError
from relunorm.train.estimator import ReLURegressor
from relunorm.train.solvers import check_size

X = np.random.default_rng(0).random((40, 2))
Y = np.abs(X[:, 0] - 0.5) + X[:, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": True}, "hidden=True"),
        ({"hidden": 10**9}, "parameters"),
        ({"alpha": True}, "alpha=True"),
        ({"skip": "no"}, "skip='no'"),
        ({"n_init": 1.5}, "n_init=1.5"),
        ({"n_init": "a"}, "n_init='a'"),
        ({"n_jobs": "x"}, "n_jobs='x'"),
        ({"n_jobs": 1.5}, "n_jobs=1.5"),
        ({"time_limit": "a"}, "time_limit='a'"),
        ({"device": "nope"}, "device='nope' cannot be used"),
        ({"options": [1]}, "expected a dict"),
        ({"solver": "adam", "options": {"bacth": 3}}, "option 'bacth'; there are adam: batch"),
        ({"solver": "adam", "options": {"batch": 0}}, "batch=0"),
        ({"solver": "adam", "options": {"lr": float("nan")}}, "lr=nan"),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(InvalidInputError, match=message.replace("[", r"\[")):
        ReLURegressor(random_state=0, **settings).fit(X, Y)


def test_second_order_solvers_say_how_much_memory_they_would_need():
    with pytest.raises(InvalidInputError, match="GiB"):
        check_size("deep", 100, 10, (500, 500))
    check_size("adam", 100, 10, (500, 500))
    check_size("greedy", 100, 10, (10**9,))  # places 50 of them


@pytest.mark.parametrize("column", [["t"] * 40, pd.date_range("2020-01-01", periods=40)])
def test_columns_that_are_not_numbers_are_named(column):
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=column)
    with pytest.raises(InvalidInputError, match="not numbers: kind"):
        ReLURegressor(hidden=2).fit(table, Y)


@pytest.mark.parametrize("solver", ["auto", "exact"])
def test_a_constant_target_of_one_input(solver):
    model = ReLURegressor(hidden=3, solver=solver, random_state=0).fit(X[:, :1], np.full(40, 7.0))
    assert np.abs(model.predict(X[:, :1]) - 7).max() == 0
    assert model.optimality_gap_ == 0


def test_a_bound_beyond_float64_is_not_given():
    model = ReLURegressor(hidden=2, random_state=0, n_init=0).fit(X[:, :1], Y * 1e250)
    assert model.lower_bound_ is None
    assert model.optimality_gap_ is not None


def test_ctrl_c_before_the_bound_is_known_leaves_a_network(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("relunorm.train.exact.spline_bound", interrupt)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = ReLURegressor(hidden=4, solver="exact", random_state=0).fit(X[:, :1], Y)
    assert model.stopped_ == "interrupted"
    assert model.optimality_gap_ is None
    assert np.isfinite(model.predict(X[:, :1])).all()


@pytest.mark.parametrize(("solver", "hidden"), [("greedy", 6), ("deep", (5, 5))])
def test_ctrl_c_while_the_penalty_is_chosen(monkeypatch, solver, hidden):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"relunorm.train.{solver}._predictions", interrupt)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = ReLURegressor(hidden=hidden, solver=solver, random_state=0).fit(X, Y)
    assert model.stopped_ == "interrupted"
    assert model.n_iter_ <= 3
    assert np.mean((model.predict(X) - Y) ** 2) < np.var(Y)

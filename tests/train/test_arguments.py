"""What a stranger passes: every bad argument is named, and Ctrl-C leaves a network behind."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.train.regressor import ReLURegressor
from relunorm.train.solve.by_name import check_size, solver

X = np.random.default_rng(0).random((40, 2))
Y = np.abs(X[:, 0] - 0.5) + X[:, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": True}, "hidden=True"),
        ({"hidden": 10**9}, "parameters"),
        ({"alpha": True}, "alpha=True"),
        ({"skip": "no"}, "skip='no'"),
        ({"n_init": 0}, "n_init=0: expected a whole number >= 1"),
        ({"n_jobs": 0}, "n_jobs=0: expected a whole number other than 0"),
        ({"n_init": 1.5}, "n_init=1.5"),
        ({"n_init": "a"}, "n_init='a'"),
        ({"n_jobs": "x"}, "n_jobs='x'"),
        ({"n_jobs": 1.5}, "n_jobs=1.5"),
        ({"time_limit": "a"}, "time_limit is 'a'"),
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


def test_dates_and_gaps_in_plain_arrays_are_named():
    days = np.arange("2020-01-01", "2020-02-10", dtype="datetime64[D]")
    for dates in (days[:, None], pd.DataFrame({"day": days})):  # else read as nanoseconds
        with pytest.raises(InvalidInputError, match=r"not numbers: (X|day) \(dates"):
            ReLURegressor(hidden=2).fit(dates, Y)
    with pytest.raises(InvalidInputError, match=r"NaN\): 1; .* missing='median'"):
        ReLURegressor(hidden=2).fit(np.where(X > 0.5, X, [[0.0, np.nan]]), Y)


@pytest.mark.parametrize("solver", ["exact", "greedy", "deep", "adam"])
@pytest.mark.parametrize("weight", [1e308, 1e-320])
def test_weights_at_the_ends_of_float64(solver, weight):
    rest = {"options": {"epochs": 3}, "n_init": 1, "random_state": 0}
    hidden = (3, 3) if solver == "deep" else 4
    model, plain = (ReLURegressor(hidden=hidden, solver=solver, **rest) for _ in range(2))
    model.fit(X[:, :1], Y, sample_weight=np.full(40, weight))
    assert model.network_.digest == plain.fit(X[:, :1], Y).network_.digest


def test_two_columns_of_one_name_are_told() -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    table = pd.DataFrame(X, columns=["a", "a"])
    with pytest.raises(InvalidInputError, match="two columns have the same name 'a'"):
        ReLURegressor(hidden=2).fit(table, y)


def test_columns_beyond_float64_are_named():
    table = pd.DataFrame(X * [1.0, 1e300], columns=["a", "far"])
    with pytest.raises(InvalidInputError, match="arithmetic: far;"):
        ReLURegressor(hidden=2).fit(table, Y)


def test_an_infinite_time_limit_is_none():
    models = [
        ReLURegressor(hidden=4, random_state=0, time_limit=limit).fit(X, Y)
        for limit in (None, np.inf)
    ]
    assert models[0].network_.digest == models[1].network_.digest
    assert models[1].stopped_ == ""


@pytest.mark.parametrize("offset", [0.0, 1e9, 1e12])
def test_the_gap_is_that_of_the_network_itself(offset):
    x = np.linspace(0, 1, 60)[:, None]
    y = np.sin(9 * x[:, 0]) + offset
    model = ReLURegressor(hidden=3, solver="exact", random_state=0).fit(x, y)
    # in extended precision, so that the oracle does not round beside the offset itself
    error = float(np.mean((model.predict(x).astype(np.longdouble) - y) ** 2))
    # rounding beside the offset may also end below the bound; the gap is then 0
    reached = model.lower_bound_ * (1 + model.optimality_gap_)
    assert max(error, model.lower_bound_) == pytest.approx(reached, rel=1e-9)
    line = ReLURegressor(hidden=3, solver="exact", random_state=0).fit(x, 2 * x[:, 0] + offset)
    assert np.isfinite(line.optimality_gap_)


def test_onnx_of_a_fit_cut_short_says_so():
    model = ReLURegressor(hidden=3, solver="greedy", time_limit=1e-3, random_state=0).fit(X, Y)
    assert model.stopped_ == "time limit"
    held = {p.key: p.value for p in model.to_onnx().metadata_props}
    assert held == {"relunorm.stopped": "time limit"}
    whole = ReLURegressor(hidden=3, random_state=0).fit(X, Y)
    assert not whole.to_onnx().metadata_props


@pytest.mark.parametrize("solver", ["auto", "exact"])
def test_a_constant_target_of_one_input(solver):
    model = ReLURegressor(hidden=3, solver=solver, random_state=0).fit(X[:, :1], np.full(40, 7.0))
    assert np.abs(model.predict(X[:, :1]) - 7).max() == 0
    assert model.optimality_gap_ == 0


def test_a_bound_beyond_float64_is_not_given():
    model = ReLURegressor(hidden=2, solver="exact", random_state=0, n_init=1).fit(
        X[:, :1], Y * 1e250
    )
    assert model.lower_bound_ is None
    assert model.optimality_gap_ is not None


def test_ctrl_c_before_the_bound_is_known_leaves_a_network(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("relunorm.train.solve.exact.spline_bound", interrupt)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = ReLURegressor(hidden=4, solver="exact", random_state=0).fit(X[:, :1], Y)
    assert model.stopped_ == "interrupted"
    assert model.optimality_gap_ is None
    assert np.isfinite(model.predict(X[:, :1])).all()


@pytest.mark.parametrize(("solver", "hidden"), [("greedy", 6), ("deep", (5, 5))])
def test_ctrl_c_while_the_penalty_is_chosen(monkeypatch, solver, hidden):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"relunorm.train.solve.{solver}._predictions", interrupt)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = ReLURegressor(hidden=hidden, solver=solver, random_state=0).fit(X, Y)
    assert model.stopped_ == "interrupted"
    assert model.n_iter_ <= 3
    assert np.mean((model.predict(X) - Y) ** 2) < np.var(Y)


@pytest.mark.parametrize("bad", [{"time_limit": True}, {"device": "meta"}])
def test_arguments_that_look_right_are_refused(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        ReLURegressor(**bad).fit(X, Y)


def test_widths_may_be_an_array():
    model = ReLURegressor(hidden=np.array([3, 2]), random_state=0, n_init=1).fit(X, Y)  # type: ignore[arg-type]
    assert [layer.width for layer in model.network_.layers] == [3, 2]


def _ticking(limit: float, tick: float) -> Clock:
    """A clock on which every look takes the same time."""
    looks = itertools.count()
    return Clock(limit, read=lambda: tick * next(looks))


@pytest.mark.parametrize(
    ("name", "hidden", "columns", "enough"),
    [("greedy", 4, 2, 2.0), ("deep", (3, 3), 2, 2.0), ("exact", 4, 1, 1.0)],
)
def test_a_time_limit_that_leaves_the_usual_effort_stops_nothing(name, hidden, columns, enough):
    noisy = Y + 0.3 * np.random.default_rng(1).normal(size=len(Y))
    found = [
        ReLURegressor(
            hidden=hidden, solver=name, random_state=0, time_limit=_ticking(limit, 1e-3)
        ).fit(X[:, :columns], noisy)
        for limit in (0.02, enough)
    ]
    assert [model.stopped_ for model in found] == ["time limit", ""]
    assert len(found[0].loss_curve_) < len(found[1].loss_curve_)


def test_where_units_have_no_say_a_time_limit_is_not_used_up():
    given = {"hidden": 4, "solver": "greedy", "alpha": 10.0, "random_state": 0}
    free = ReLURegressor(**given).fit(X, Y)
    limited = ReLURegressor(**given, time_limit=_ticking(1e6, 1e-3)).fit(X, Y)
    assert len(limited.loss_curve_) == len(free.loss_curve_)


def test_restarts_share_the_time_limit(monkeypatch):
    limits = []

    def noted(name):
        def solve(task):
            limits.append(task.clock.limit)
            return solver(name)(replace(task, rounds=1))

        return solve

    monkeypatch.setattr("relunorm.train.regressor.solver", noted)
    model = ReLURegressor(hidden=3, restarts=3, random_state=0, alpha=1e-3, time_limit=60).fit(X, Y)
    assert len(model.restart_losses_) == 3
    assert limits == pytest.approx([20.0] * 3, abs=0.5)

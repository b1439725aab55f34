"""Columns that a careful user would have dropped or mended."""

from fractions import Fraction

import numpy as np
import pytest

import relunorm as rn
from relunorm.train.solve.bound import Pieces


def slopes(model, x):
    """Jacobians by differences across whole units: no weight means no change at all."""
    base = model.predict(x)
    return np.stack([model.predict(x + e) - base for e in np.eye(x.shape[1])])


@pytest.mark.parametrize(
    "settings", [{"hidden": 5}, {"hidden": (4, 3), "n_init": 2}, {"solver": "adam"}]
)
def test_constant_columns_have_no_weight(settings):
    r = np.random.default_rng(0)
    x = np.column_stack([r.normal(size=(60, 2)), np.full((60, 3), 7.0)])[:, [2, 0, 3, 1, 4]]
    y = x[:, 1] ** 2 + x[:, 3]
    settings = {"hidden": 5, **settings}
    model = rn.ReLURegressor(random_state=0, **settings).fit(x, y)
    change = slopes(model, x)
    assert (change[[0, 2, 4]] == 0).all()
    assert (change[[1, 3]] != 0).any(axis=1).all()
    assert (model.network_.layers[0].affine.terms[0][:, [0, 2, 4]] == 0).all()
    assert model.network_.input_size == 5


def test_one_column_beside_constant_ones_is_certified():
    x = np.column_stack([np.full(60, 3.0), np.linspace(0, 1, 60), np.full(60, -1e9)])
    model = rn.ReLURegressor(hidden=3, random_state=0).fit(x, np.abs(x[:, 1] - 0.3))
    alone = rn.ReLURegressor(hidden=3, random_state=0).fit(x[:, 1:2], np.abs(x[:, 1] - 0.3))
    assert model.solver_ == "exact"
    assert model.lower_bound_ == alone.lower_bound_
    # sums over rows that lie elsewhere in memory round otherwise, and the search ends at a squared
    # error of 1e-13 of the variance
    assert np.abs(model.predict(x) - alone.predict(x[:, 1:2])).max() < 1e-6


def test_constant_columns_alone_give_the_mean():
    x, y = np.full((30, 2), 5.0), np.arange(30.0)
    model = rn.ReLURegressor(hidden=3, random_state=0).fit(x, y)
    assert np.abs(model.predict([[5.0, 5.0], [9.0, -5.0]]) - 14.5).max() < 1e-12


def test_one_column_of_rows_without_weight_does_not_count():
    r = np.random.default_rng(1)
    x = np.column_stack([r.normal(size=40), np.ones(40)])
    x[0, 1] = 2.0
    weight = np.r_[0.0, np.ones(39)]
    model = rn.ReLURegressor(hidden=3, random_state=0).fit(x, x[:, 0], sample_weight=weight)
    assert (slopes(model, x)[1] == 0).all()


@pytest.mark.parametrize("far", [1e6, -1e6, 1e9])
def test_one_input_far_away_leaves_the_others_their_knots(far):
    """Equidistant knots among the others and a line out to the last one: an oracle of few lines."""
    x = np.linspace(0, 1, 200)
    x[-1] = far
    y = np.where(np.abs(x) > 1, 0.0, np.sin(4 * np.pi * x))
    model = rn.ReLURegressor(hidden=20, random_state=0, solver="exact").fit(x[:, None], y)
    inner = np.abs(x) <= 1
    hats = np.maximum(x[inner, None] - np.linspace(0, 0.98, 20), 0)
    design = np.column_stack([np.ones(inner.sum()), hats])
    residual = y[inner] - design @ np.linalg.lstsq(design, y[inner], rcond=None)[0]
    error = np.mean(np.square(model.predict(x[:, None]) - y))
    assert error < np.mean(np.square(residual))
    assert model.lower_bound_ is not None
    assert 0 < model.lower_bound_ <= error
    assert model.optimality_gap_ is not None
    assert model.optimality_gap_ < 0.02


def test_one_row_far_away_leaves_the_others_their_units():
    r = np.random.default_rng(0)
    x, fresh = r.normal(size=(200, 2)), r.normal(size=(500, 2))
    y, truth = (np.sin(2 * v[:, 0]) + v[:, 1] for v in (x, fresh))
    x[7, 0] = 1e5
    model = rn.ReLURegressor(hidden=10, random_state=0, n_init=1).fit(x, y)
    assert model.score(fresh, truth) > 0.9


def test_lines_through_groups_are_exact_wherever_they_lie():
    """Rational arithmetic on groups beside inputs and targets with a large offset."""
    r = np.random.default_rng(3)
    x = np.sort(np.r_[-1e9, r.integers(0, 99, 8) / 64.0, 1e5 + r.integers(0, 99, 5) / 64.0, 1e12])
    y, weight = r.integers(-99, 99, len(x)) / 32.0, r.integers(1, 9, len(x)) / 4.0
    pieces = Pieces.of(x, y, weight)
    assert pieces is not None
    edges, cost = pieces.edges, pieces.costs
    for s in range(len(edges) - 1):
        for t in range(s + 1, len(edges)):
            rows = slice(edges[s], edges[t])
            exact = line_error(x[rows], y[rows], weight[rows])
            assert exact * (1 - 1e-9) <= cost[s, t] <= exact or exact - cost[s, t] < 1e-9


def line_error(x, y, weight):
    x, y, weight = ([Fraction(v) for v in part] for part in (x, y, weight))
    total = sum(weight)
    mx, my = (sum(w * v for w, v in zip(weight, part, strict=True)) / total for part in (x, y))
    rows = list(zip(weight, x, y, strict=True))
    xx = sum(w * (a - mx) ** 2 for w, a, _ in rows)
    xy = sum(w * (a - mx) * (b - my) for w, a, b in rows)
    yy = sum(w * (b - my) ** 2 for w, _, b in rows)
    return yy - xy * xy / xx if xx else yy


@pytest.mark.parametrize("size", [1e-198, 1e-60, 1e-12])
def test_a_value_farther_away_than_squares_have_numbers(size):
    x = np.array([[1, 0], [0, -1], [1, -1], [0, -1], [1, -1], [0, 0], [1, 0], [1, 0]]) * size
    x, y = np.vstack([[1e8, 1e8], x]), np.array([0, -1, 0, -1, 1, 1, 0, 1, -1.0])
    found = rn.ReLURegressor(hidden=1, random_state=0, n_init=1).fit(x, y).predict(x)
    assert np.mean((found - y) ** 2) <= np.var(y) * (1 + 1e-9)


def test_a_weight_that_no_sum_feels_is_none():
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 1, 0])
    fits = [
        rn.ReLUClassifier(hidden=2, random_state=0, n_init=1).fit(x, y, [1.0, 1.0, 1.0, last])
        for last in (1e-300, 0.0)
    ]
    assert np.array_equal(fits[0].predict_proba(x), fits[1].predict_proba(x))
    two = rn.ReLUClassifier(hidden=2, random_state=0, n_init=1).fit(x[:2], y[:2], [1.0, 1e-300])
    assert np.isfinite(two.predict_proba(x)).all()

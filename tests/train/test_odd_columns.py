"""Columns that a careful user would have dropped or mended."""

import numpy as np
import pytest

import relunorm as rn


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
    assert model.n_features_in_ == 5


def test_one_column_beside_constant_ones_is_certified():
    x = np.column_stack([np.full(60, 3.0), np.linspace(0, 1, 60), np.full(60, -1e9)])
    model = rn.ReLURegressor(hidden=3, random_state=0).fit(x, np.abs(x[:, 1] - 0.3))
    alone = rn.ReLURegressor(hidden=3, random_state=0).fit(x[:, 1:2], np.abs(x[:, 1] - 0.3))
    assert model.solver_ == "exact"
    assert model.lower_bound_ == alone.lower_bound_
    assert np.abs(model.predict(x) - alone.predict(x[:, 1:2])).max() < 1e-12


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

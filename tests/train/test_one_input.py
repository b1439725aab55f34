"""One input by default: the certificate on clean data, and no spikes on other data."""

import numpy as np
import pytest
import torch

from relunorm.clock import Clock
from relunorm.train.regressor import ReLURegressor
from relunorm.train.solve.bound import Pieces, spline_bound
from relunorm.train.solve.greedy import greedy_units


def integers(seed=0):
    r = np.random.default_rng(seed)

    def draw():
        x = r.normal(size=(300, 1))
        return x, np.round(np.sin(2 * x[:, 0]) + x[:, 0] + 0.1 * r.normal(size=300))

    return *draw(), *draw()


def test_integer_targets_get_no_spikes():
    x, y, fresh, held = integers()
    model = ReLURegressor(random_state=0).fit(x, y)
    assert model.solver_ == "greedy"
    assert model.optimality_gap_ is None
    inside = np.linspace(x.min(), x.max(), 3000)[:, None]
    assert y.min() - 1 < model.predict(inside).min()
    assert model.predict(inside).max() < y.max() + 1
    assert model.score(fresh, held) > 0.9


def test_clean_data_keeps_its_certificate():
    x = np.random.default_rng(0).random((200, 1))
    model = ReLURegressor(random_state=0).fit(x, np.sin(4 * np.pi * x[:, 0]))
    assert model.solver_ == "exact"
    assert model.optimality_gap_ == pytest.approx(0, abs=1e-6)


def test_too_few_knots_for_clean_data_is_no_noise():
    """The residual is large because the function needs more knots: the hold-out says so."""
    x = np.random.default_rng(0).random((400, 1))
    y = np.abs((8 * x[:, 0]) % 2 - 1)
    model = ReLURegressor(hidden=5, random_state=0).fit(x, y)
    assert model.solver_ == "exact"


def test_an_optimum_with_spikes_is_delivered_with_a_warning():
    x, y, _, _ = integers()
    with pytest.warns(RuntimeWarning, match="leaves the targets"):
        model = ReLURegressor(random_state=0, solver="exact", n_init=1).fit(x, y)
    assert model.lower_bound_ is not None


def test_a_time_limit_ends_the_bound_and_the_growth():
    """What took longest did not look at the clock."""
    r = np.random.default_rng(0)
    x, y = np.sort(r.random(200)), r.normal(size=200)
    assert Pieces.of(x, y, np.ones(200), clock=Clock(0)) is None
    late = spline_bound(x, y, np.ones(200), 5, Clock(0), Pieces.of(x, y, np.ones(200)))
    assert (late.value, late.complete) == (0.0, False)
    model = ReLURegressor(hidden=5, solver="exact", time_limit=1e-6, random_state=0)
    model.fit(x[:, None], y)
    assert (model.lower_bound_, model.stopped_) == (None, "time limit")
    assert np.isfinite(model.predict(x[:, None])).all()
    stream, rows = torch.Generator().manual_seed(0), torch.from_numpy(np.column_stack([x, y]))
    w, b = greedy_units(rows, rows[:, :1], rows[:, 0], 4, 30, stream, clock=Clock(0))
    assert (len(w), len(b)) == (4, 4)

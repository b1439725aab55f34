"""Prediction intervals: the ranks of the papers by hand, and the share of new rows they hold."""

import numpy as np
import pytest

from relunorm.errors import InvalidInputError
from relunorm.train import conformal
from relunorm.train.regressor import ReLURegressor

PLAIN = {"hidden": 3, "alpha": 1e-2, "n_init": 1, "random_state": 0}
#: Intervals hold for any network, so where many are fitted a few steps of descent will do.
ROUGH = {"hidden": 3, "solver": "lbfgs", "options": {"max_iter": 20}, "random_state": 0}


def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, 9])
    x = rng.random((n, 2))
    return x, np.abs(x[:, 0] - 0.5) + (0.1 + 0.3 * x[:, 1]) * rng.standard_t(3, n)


def test_split_takes_the_right_rank_of_errors_on_rows_it_did_not_see():
    x, y = draw(0, 100)
    model = ReLURegressor(**PLAIN, interval="split").fit(x, y)
    held = model._conformal
    assert held is not None
    assert len(held.x) == 20
    left = [i for i in range(100) if not (held.x == x[i]).all(axis=1).any()]
    alone = ReLURegressor(**PLAIN).fit(x[left], y[left])
    assert np.array_equal(alone.predict(x), model.predict(x))
    errors = np.sort(np.abs(held.y[:, 0] - alone.predict(held.x)))
    for coverage, rank in ((0.9, 19), (0.5, 11), (0.95, 20)):
        low, high = model.predict_interval(x[:5], coverage)
        assert high - low == pytest.approx(2 * errors[rank - 1])
        assert (high + low) / 2 == pytest.approx(model.predict(x[:5]))


@pytest.mark.parametrize("n", [12, 36])
def test_jackknife_plus_by_hand(n):
    x, y = draw(1, n)
    fresh = draw(2, 4)[0]
    model = ReLURegressor(**ROUGH, interval="jackknife+").fit(x, y)
    folds = model._conformal.fold
    assert len(np.unique(folds)) == (12 if n == 12 else 20)
    kept = {fold: folds != fold for fold in np.unique(folds)}
    fits = {fold: ReLURegressor(**ROUGH).fit(x[k], y[k]) for fold, k in kept.items()}
    lows, highs = [], []
    for i in range(n):
        without = fits[folds[i]]
        error = abs(y[i] - without.predict(x[i : i + 1])[0])
        lows.append(without.predict(fresh) - error)
        highs.append(without.predict(fresh) + error)
    rank = int(np.ceil(0.8 * (n + 1)))
    low, high = model.predict_interval(fresh, 0.8)
    assert high == pytest.approx(np.sort(highs, axis=0)[rank - 1])
    assert low == pytest.approx(np.sort(lows, axis=0)[n - rank])
    assert np.array_equal(model.predict(fresh), ReLURegressor(**ROUGH).fit(x, y).predict(fresh))


@pytest.mark.parametrize(("interval", "draws"), [("split", 40), ("jackknife+", 6)])
def test_new_targets_fall_into_the_intervals(interval, draws):
    share = []
    for seed in range(draws):
        x, y = draw(100 + seed, 60)
        fresh, target = draw(1000 + seed, 300)
        model = ReLURegressor(**ROUGH, interval=interval).fit(x, y)
        low, high = model.predict_interval(fresh, 0.8)
        share.append(np.mean((low <= target) & (target <= high)))
    # split with 12 errors: expected 11/13 = 0.846, deviation of one draw 0.1, of the mean 0.016
    assert 0.79 <= np.mean(share) <= 0.91


def test_several_outputs_have_their_own_intervals():
    x, y = draw(3, 80)
    both = np.column_stack([y, 100 * y])
    low, high = ReLURegressor(**PLAIN, interval="split").fit(x, both).predict_interval(x[:6])
    assert low.shape == high.shape == (6, 2)
    assert (high - low)[:, 1] == pytest.approx(100 * (high - low)[:, 0], rel=1e-6)


def test_what_cannot_be_promised_is_refused():
    x, y = draw(4, 30)
    with pytest.raises(InvalidInputError, match="interval='split'"):
        ReLURegressor(**PLAIN).fit(x, y).predict_interval(x)
    model = ReLURegressor(**PLAIN, interval="split").fit(x, y)
    with pytest.raises(InvalidInputError, match=r"at least 9 rows, but there are 6"):
        model.predict_interval(x, 0.9)
    with pytest.raises(InvalidInputError, match="coverage=1"):
        model.predict_interval(x, 1)
    with pytest.raises(InvalidInputError, match="interval='bootstrap'"):
        ReLURegressor(interval="bootstrap").fit(x, y)


@pytest.mark.parametrize("interval", ["split", "jackknife+"])
def test_the_smallest_coverage_takes_the_smallest_error(interval):
    x, y = draw(3, 30)
    model = ReLURegressor(**ROUGH, interval=interval).fit(x, y)
    low, high = model.predict_interval(x[:3], 1e-12)
    wider = model.predict_interval(x[:3], 0.5)
    assert (high - low <= wider[1] - wider[0]).all()
    if interval == "split":
        assert high - low == pytest.approx(2 * model._conformal.errors.min())


def test_the_networks_of_jackknife_share_the_time_limit(monkeypatch):
    limits = []
    without = conformal._without

    def noted(plain, *rest):
        limits.append(plain.time_limit)
        return without(plain, *rest)

    monkeypatch.setattr(conformal, "_without", noted)
    x, y = draw(4, 12)
    limit = 24.0
    ReLURegressor(**ROUGH, interval="jackknife+", time_limit=limit).fit(x, y)
    assert len(limits) == 12
    assert sum(limits) <= limit


def test_ctrl_c_ends_all_networks_of_jackknife(monkeypatch):
    seen = []

    def interrupted(_, rows, number):
        seen.append(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(conformal, "_without", interrupted)
    x, y = draw(5, 12)
    with pytest.warns(RuntimeWarning, match="no intervals"):
        model = ReLURegressor(**PLAIN, interval="jackknife+").fit(x, y)
    assert (seen, model.stopped_) == ([0], "interrupted")
    assert np.isfinite(model.predict(x)).all()
    with pytest.raises(InvalidInputError, match="fit again"):
        model.predict_interval(x)

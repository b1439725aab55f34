"""The bound that knows that neighbouring lines meet, against scans over knots by least squares."""

from itertools import combinations

import numpy as np
import pytest
import torch

from relunorm.clock import Clock
from relunorm.train.problem.spline import SplineProblem
from relunorm.train.regressor import ReLURegressor
from relunorm.train.solve.bound import spline_bound
from relunorm.train.solve.crossing import crossing_bound


def _squares(x, y, weight, knots):
    """Least squares in the truncated-power basis: an oracle that shares no code."""
    columns = [np.ones_like(x), x, *(np.maximum(x - t, 0) for t in knots)]
    root = np.sqrt(weight)
    design = np.column_stack(columns) * root[:, None]
    weights = np.linalg.lstsq(design, y * root, rcond=None)[0]
    return float(np.square(design @ weights - y * root).sum())


def _data(seed, n, noise=0.5):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(size=n))
    return x, np.sin(2 * x) + noise * rng.normal(size=n), rng.uniform(0.5, 2, size=n)


@pytest.mark.parametrize("seed", range(5))
def test_one_knot_is_bounded_exactly(seed):
    """With one knot there is one pair of groups, nothing is shared: the bound is the optimum."""
    x, y, weight = _data(seed, 12)
    scan = np.concatenate([np.linspace(x[0], x[-1], 801), x])
    best = min(_squares(x, y, weight, [t]) for t in scan)
    bound = crossing_bound(x, y, weight, 1, best * (1 + 1e-9))
    assert bound is not None
    assert bound.value <= best * (1 + 1e-9)
    assert bound.value >= best * (1 - 1e-3)
    assert bound.value >= spline_bound(x, y, weight, 1).value
    assert _squares(x, y, weight, bound.knots) <= best * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_no_two_knots_beat_the_bound(seed):
    x, y, weight = _data(seed, 9)
    inner = np.concatenate([x[1:-1], (x[1:] + x[:-1]) / 2, (2 * x[1:] + x[:-1]) / 3])
    best = min(_squares(x, y, weight, pair) for pair in combinations(inner, 2))
    bound = crossing_bound(x, y, weight, 2, best)
    assert bound is not None
    assert spline_bound(x, y, weight, 2).value <= bound.value <= best


def test_two_knots_in_one_gap_join_any_two_lines():
    """A jump between two neighbouring inputs is fitted perfectly by two knots, not by one."""
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    y = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    two = crossing_bound(x, y, np.ones(6), 2, 1e-9)
    assert two is not None
    assert two.value == 0.0
    assert len(two.knots) == 2
    assert np.all((two.knots >= 2) & (two.knots <= 3))
    assert _squares(x, y, np.ones(6), two.knots) < 1e-20


def test_too_much_work_or_no_time_is_no_bound(monkeypatch):
    x, y, weight = _data(0, 30)
    assert crossing_bound(x, y, weight, 3, 1e9, clock=Clock(0)) is None
    monkeypatch.setattr("relunorm.train.solve.crossing.MOST_WORK", 10)
    assert crossing_bound(x, y, weight, 3, 1e9) is None


def test_narrow_tables_give_the_same_bound(monkeypatch):
    x, y, weight = _data(3, 25)
    whole = crossing_bound(x, y, weight, 3, 1e9)
    monkeypatch.setattr("relunorm.train.solve.crossing.MOST_HELD", 1)
    parts = crossing_bound(x, y, weight, 3, 1e9)
    assert whole is not None
    assert parts is not None
    assert parts.value == whole.value
    assert np.array_equal(parts.knots, whole.knots)


@pytest.mark.parametrize(("draw", "skip"), [(70005, False), (70007, False), (70047, True)])
def test_draws_on_which_the_plain_bound_left_a_gap(draw, skip):
    """The lines of the cheapest division do not meet here: 1.04, 1.12 and 1.02 before."""
    x = np.random.default_rng(draw).random((200, 1))
    y = np.sin(4 * np.pi * x[:, 0])
    units = 20 if skip else 18
    model = ReLURegressor(hidden=units, random_state=draw).fit(x, y)
    assert model.optimality_gap_ is not None
    assert model.optimality_gap_ < 1e-6


def test_knots_beyond_the_data_cannot_look_good():
    """Rounding in prefix sums over empty segments made an error of 4e-4 look like 3e-10."""
    x = np.random.default_rng(500074).random(200)
    x = np.sort((x - x.mean()) / x.std())
    y = np.sin(4 * np.pi * x / (x[-1] - x[0]))
    problem = SplineProblem(torch.from_numpy(x), torch.from_numpy(y))
    gaps = problem.gap * np.array([[5, 2, 1], [40, 2, 1], [1000, 999, 998]])
    knots = np.sort(np.column_stack([np.full(3, 0.1), np.full(3, -0.5), x[-1] - gaps]))
    loss = problem.linearize((torch.from_numpy(knots),)).loss.numpy()
    true = [_squares(x, y, np.ones(200), row) for row in knots]
    assert np.all(loss >= np.array(true) * (1 - 1e-6))
    x = np.random.default_rng(500074).random((200, 1))
    model = ReLURegressor(hidden=20, random_state=500074).fit(x, np.sin(4 * np.pi * x[:, 0]))
    assert model.optimality_gap_ is not None
    assert model.optimality_gap_ < 1e-6

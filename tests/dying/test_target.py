from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from torch import nn

import relunorm.dying as dying
from relunorm.dying import RunningTargetScaler, TargetScaler
from relunorm.dying.target import target_advice
from relunorm.errors import InvalidInputError

numbers = arrays(np.float64, st.integers(2, 30), elements=st.floats(-1e6, 1e6))


@given(numbers, st.floats(1e-4, 1e2), st.floats(-10, 10))
def test_round_trip_mean_and_deviation(y, gamma, delta):
    scaler = TargetScaler(gamma, delta).fit(y)
    scaled = scaler.transform(y)
    back = scaler.inverse_transform(scaled)
    # delta / gamma amplifies rounding of the shift.
    slack = 1e-9 * (np.abs(y).max() + scaler.scale_[0] * (1 + abs(delta) / gamma)) + 1e-9
    np.testing.assert_allclose(back, y, atol=slack)
    if np.ptp(y) > max(1e-6 * np.abs(y).max(), 1e-280):
        assert scaled.std() == pytest.approx(gamma, rel=1e-6)
        assert scaled.mean() == pytest.approx(delta, abs=1e-6 * (gamma + abs(delta)))


def test_constant_targets_are_shifted_not_divided_by_zero():
    scaler = TargetScaler().fit(np.full(5, 0.1))
    np.testing.assert_array_equal(scaler.transform(np.full(3, 0.1)).round(12), 0)
    assert scaler.scale_.tolist() == [1.0]


def test_running_version_equals_one_pass_and_tensors_work():
    y = np.random.default_rng(0).normal(1e6, 1e-3, size=(1000, 2))  # cancels if done naively
    running = RunningTargetScaler(0.5, 1.0)
    for part in np.array_split(y, 37):
        running.update(part)
    whole = TargetScaler(0.5, 1.0).fit(y)
    np.testing.assert_allclose(running.mean_, whole.mean_, rtol=1e-15)
    np.testing.assert_allclose(running.scale_, whole.scale_, rtol=1e-6)
    t = torch.as_tensor(y)
    np.testing.assert_allclose(whole.transform(t).numpy(), whole.transform(y))
    assert whole.transform(t.float()).dtype == torch.float32


def test_popart_keeps_predictions():
    layer = torch.nn.Linear(3, 2).double()
    x = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    running = RunningTargetScaler(0.1, 0.2).update([[1.0, 2.0], [3.0, 5.0]])
    before = running.inverse_transform(layer(x))
    running.preserve(layer, [[10.0, -3.0], [7.0, 1.0]])
    torch.testing.assert_close(running.inverse_transform(layer(x)), before)


def test_scikit_learn_protocol():
    x = np.arange(20.0)[:, None]
    model = TransformedTargetRegressor(LinearRegression(), transformer=TargetScaler(0.01))
    prediction = model.fit(x, 3 * x[:, 0] + 1).predict(x)
    np.testing.assert_allclose(prediction, 3 * x[:, 0] + 1)


@pytest.mark.parametrize("bad", [[np.nan], [], [[[1.0]]], ["a"]])
def test_bad_targets(bad):
    with pytest.raises(InvalidInputError):
        TargetScaler().fit(bad)
    with pytest.raises(InvalidInputError, match="above 0"):
        TargetScaler(gamma=-1)
    with pytest.raises(InvalidInputError, match="no targets yet"):
        TargetScaler().transform(np.ones(3))


def test_whole_numbers_and_lists_are_scaled_as_floats():
    y = [1, 2, 4, 9]
    scaler = dying.TargetScaler().fit(y)
    expected = (np.array(y) - 4) / np.std(y)
    np.testing.assert_allclose(scaler.transform(torch.tensor(y)), expected, rtol=1e-6)
    np.testing.assert_allclose(scaler.transform(y), expected)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1.0])
def test_running_scaler_over_the_whole_range(size):
    y = size * np.random.default_rng(0).normal(1, 1, 60)
    running = dying.RunningTargetScaler()
    for part in np.array_split(y, 7):
        running.update(part)
    np.testing.assert_allclose(running.scale_ / size, [(y / size).std()], rtol=1e-12)


def test_preserve_checks_before_it_changes():
    running = dying.RunningTargetScaler().update([[1.0], [2.0]])
    for layer in (nn.Linear(2, 1, bias=False), nn.Linear(2, 3)):
        with pytest.raises(InvalidInputError):
            running.preserve(layer, [[9.0], [5.0]])
    assert running.count == 2


def test_one_constant_column_of_several():
    y = np.column_stack([np.ones(9), np.arange(9.0)])
    found = target_advice(y)
    assert found.gamma == pytest.approx(np.arange(9.0).std())
    assert "1 of 2 target columns" in " ".join(found.advice)

"""Scalers, optimizer closures, diagnosis, refusals in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import relunorm as rn
import relunorm.dying as dying
from relunorm.dying.diagnosis.target_advice import target_advice
from relunorm.dying.revive.optimizer_state import FreshUnits
from relunorm.errors import InvalidInputError


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


@pytest.mark.parametrize(("closure", "amsgrad"), [(True, False), (False, True), (True, True)])
def test_fresh_units_with_closures_and_amsgrad(closure, amsgrad):
    gen = torch.Generator().manual_seed(0)
    gradients = torch.randn(120, 4, generator=gen, dtype=torch.float64)
    joint = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([joint], lr=0.01, amsgrad=amsgrad)

    def step(each, parameter, g):
        def give():
            parameter.grad = g.clone()

        each.step(give) if closure else (give(), each.step())

    for g in gradients[:40]:
        step(optimizer, joint, g)
    FreshUnits(optimizer).reset(joint, (torch.tensor([3]),))
    new = joint.detach()[3:].clone().requires_grad_()
    newborn = torch.optim.Adam([new], lr=0.01, amsgrad=amsgrad)
    for g in gradients[40:]:
        step(optimizer, joint, g)
        step(newborn, new, g[3:])
        np.testing.assert_allclose(joint.detach()[3:], new.detach(), rtol=1e-9)


def test_leaky_units_are_not_dead_and_maxima_are_no_units():
    x = np.random.default_rng(0).normal(size=(9, 3))
    leaky = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 1))
    leaky[0].bias.data[1] = -1e3
    assert rn.diagnose(leaky, x).dead == 0
    pool = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    pool.append(nn.Linear(12, 2))
    assert rn.diagnose(pool, np.ones((2, 1, 6, 6))).units == 3


def test_one_constant_column_of_several():
    y = np.column_stack([np.ones(9), np.arange(9.0)])
    found = target_advice(y)
    assert found.gamma == pytest.approx(np.arange(9.0).std())
    assert "1 of 2 target columns" in " ".join(found.advice)


def test_covariances_that_rounding_has_touched_are_taken():
    x = np.random.default_rng(0).normal(size=(2, 40)).astype(np.float32)  # of rank 1
    cov = np.cov(x.T)
    found = dying.firing_probability(np.ones(40), 0.5, covariance=cov.astype(np.float32))
    np.testing.assert_allclose(found, dying.firing_probability(np.ones(40), 0.5, covariance=cov),
                               rtol=1e-6)  # fmt: skip
    assert dying.firing_probability([1.0], 0.5, covariance=[[0.0]]) == 1
    huge = dying.firing_probability([1e-150, 0.0], 1.0, covariance=1e300 * np.eye(2))
    np.testing.assert_allclose(huge, dying.firing_probability([1.0, 0.0], 1.0))


def test_refusals_in_words():
    net = rn.Network.from_weights([[[1.0]], [[1.0]]])
    for bad in (
        lambda: rn.diagnose(net, [[1.0]], [1.0], optimizer=object()),  # type: ignore[arg-type]
        lambda: dying.basin(grid=2.5),  # type: ignore[arg-type]
        lambda: dying.basin(grid=3, mode="xx"),
        lambda: dying.basin(grid=3, mode="eager"),
        lambda: dying.firing_probability([1, -1], 0.5, covariance=[[1, 2], [2, 1]]),
        lambda: dying.in_dead_cone([1, -1], 0.5, covariance=[[1.0, 0.5], [0.4, 1.0]]),
        lambda: dying.trajectory([1.0], [0.0], beta=1.5),
        lambda: dying.trajectory([1.0], [0.0], eta=-1.0),
    ):
        with pytest.raises(InvalidInputError):
            bad()

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

import relunorm as rn
from relunorm.dying.target import target_advice
from relunorm.dying.unit_entries import duplicates
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.stability import stability


def network():
    w = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [-1.0, 1.0], [0.0, 1.0], [0.0, 1e-4]])
    b = np.array([0.0, -1.5, 0.0, 0.2, 3.0, 0.0])
    return rn.Network.from_weights([w, np.ones((1, 6))], [b, [0.0]])


def test_every_finding_with_and_without_a_domain():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 2))
    found = rn.diagnose(network(), x)
    layer = found.layers[0]
    assert np.flatnonzero(layer.dead).tolist() == [1]
    assert np.flatnonzero(layer.always_on).tolist() == [4]
    assert layer.duplicate_of.tolist() == [-1, -1, 0, -1, -1, -1]
    assert np.flatnonzero(layer.dormant).tolist() == [5]
    assert layer.provably_dead is None
    assert "Give a domain" in " ".join(found.advice)
    proved = rn.diagnose(network(), x, domain=rn.Box.cube(2, -1.0, 1.0))
    assert np.flatnonzero(proved.layers[0].provably_dead).tolist() == [1]
    assert proved.layers[0].status()[1] == "dead on the domain"
    wider = rn.diagnose(network(), x, domain=rn.Box.cube(2, -2.0, 2.0))
    assert not wider.layers[0].provably_dead.any()
    json.dumps(proved.to_dict(), allow_nan=False)
    z = network().preactivations(x)[0]
    np.testing.assert_allclose(layer.cone, z.mean(0) / z.std(0))


def test_torch_module_and_convolution():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0.0, -1.0
    x = np.random.default_rng(0).normal(size=(10, 1, 4, 4))
    found = rn.diagnose(model, x)
    assert found.layers[0].width == 3
    assert found.layers[0].dead[1]
    assert found.layers[0].dead_positions[1] == 4
    assert found.rows == 10


@pytest.mark.parametrize("sparse", [False, True])
def test_duplicates_against_brute_force(sparse):
    rng = np.random.default_rng(1)
    base = rng.normal(size=(5, 4)) * (rng.random((5, 4)) < 0.7)
    pick, scale = rng.integers(0, 5, 30), rng.uniform(0.1, 10, 30)
    w = base[pick] * scale[:, None]
    b = pick * scale
    w[7], b[7] = 0.0, 0.0
    affine = rn.Affine({0: sp.csr_array(w) if sparse else w}, b)
    rows = np.column_stack([w, b])
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    expected = [
        next(
            (j for j in range(i) if rows[i].any() and np.allclose(unit[i], unit[j], atol=1e-10)), -1
        )
        for i in range(30)
    ]
    assert duplicates(affine)[0].tolist() == expected


def test_many_copies_are_told_from_the_first():
    """Not by comparing every pair: 10^5 copies with noise below the tolerance, and two singles."""
    count = 100_000
    rng = np.random.default_rng(0)
    w = np.tile([[3.0, -1.0]], (count, 1)) * rng.uniform(0.1, 10.0, (count, 1))
    w[40], w[70_000] = [-3.0, 1.0], [3.0, -1.0 + 1e-8]
    expected = np.zeros(count)
    expected[[0, 40, 70_000]] = -1
    assert (duplicates(rn.Affine({0: w}, np.zeros(count)))[0] == expected).all()
    huge = rn.Affine({0: np.array([[1e200, 0.0], [3e200, 0.0], [0.0, 1e-200]])}, np.zeros(3))
    assert duplicates(huge)[0].tolist() == [-1, 0, -1]


def test_an_analysis_at_hand_is_used_and_checked():
    box, x = rn.Box.cube(2, -1.0, 1.0), np.random.default_rng(0).uniform(-1, 1, (50, 2))
    known = stability(network(), box)
    again = rn.diagnose(network(), x, domain=box, analysis=known)
    assert again.to_dict() == rn.diagnose(network(), x, domain=box).to_dict()
    marked = replace(known.layers[0], verdict=np.full(6, "undecided"))
    assert rn.diagnose(network(), x, None, box, analysis=replace(known, layers=(marked,))).undecided
    with pytest.raises(InvalidInputError, match="another domain"):
        rn.diagnose(network(), x, domain=rn.Box.cube(2, -2.0, 2.0), analysis=known)
    other = rn.Network.from_weights([[[1.0, 0.0]], [[1.0]]])
    with pytest.raises(InvalidInputError, match="another network"):
        rn.diagnose(other, x, domain=box, analysis=known)
    with pytest.raises(InvalidDomainError, match="pass the same domain"):
        rn.diagnose(network(), x, analysis=known)


def test_an_analysis_of_the_folded_network_fits_one_with_linear_stages():
    linear = rn.Layer(
        rn.Affine({0: np.array([[2.0, 0.0], [0.0, 1.0]])}, np.zeros(2)), rn.Activation("identity")
    )
    units = rn.Layer(rn.Affine({1: np.array([[1.0, 0.0], [0.0, 1.0]])}, np.array([-9.0, 0.0])))
    net = rn.Network([linear, units], rn.Affine({2: np.ones((1, 2))}, np.zeros(1)), input_shape=2)
    box = rn.Box.cube(2, -1.0, 1.0)
    found = rn.diagnose(net, np.ones((3, 2)), domain=box, analysis=stability(net.folded(), box))
    assert found.layers[0].layer == 1
    assert found.layers[0].provably_dead.tolist() == [True, False]


def test_target_advice():
    rng = np.random.default_rng(0)
    y = rng.normal(size=500)
    assert target_advice(y).risk == "low"
    assert target_advice(1e-4 * y, optimizer="adam").risk == "high"
    assert "TargetScaler" in target_advice(1e-4 * y).advice[0]
    small = target_advice(1e-2 * y, optimizer="sgd", momentum=0.9)
    large = target_advice(y, optimizer="sgd", momentum=0.9)
    assert small.optimum_share < large.optimum_share
    assert any("centre" in line for line in target_advice(y + 50).advice)
    assert target_advice(np.ones(5)).risk == "high"
    with pytest.raises(InvalidInputError, match="optimizer"):
        target_advice(y, optimizer="nope")


def dead_after_sgd(y: torch.Tensor, x: torch.Tensor) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)
    for _ in range(150):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return float((model[:2](x) <= 0).all(0).float().mean())


@pytest.mark.parametrize(("deviation", "mean"), [(100.0, 0.0), (1.0, 40.0)])
def test_large_targets_kill_under_sgd_and_the_advice_says_so(deviation, mean):
    """The oracle: a network trained on the targets as they are, and one on standardised ones."""
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(256, 4, generator=gen)
    unit = torch.sin(x[:, :1] + x[:, 1:2]) + 0.3 * x[:, 2:3]
    unit = (unit - unit.mean()) / unit.std(correction=0)
    raw = deviation * unit + mean
    assert dead_after_sgd(raw, x) > dead_after_sgd(unit, x) + 0.2
    found = target_advice(raw.numpy(), optimizer="sgd", momentum=0.9)
    assert found.risk == "high"
    assert "throw units past the data" in found.advice[0]
    assert "TargetScaler" in found.advice[0]
    assert found.optimum_share is None
    assert target_advice(unit.numpy(), optimizer="sgd").risk == "low"
    adam = target_advice(raw.numpy(), optimizer="adam")
    assert not any("throw" in line for line in adam.advice)


def test_dead_layer_and_bad_input():
    net = rn.Network.from_weights([[[1.0]], [[1.0]]], [[-9.0], [0.0]])
    assert "Every unit" in rn.diagnose(net, [[0.0], [1.0]]).advice[0]
    with pytest.raises(InvalidInputError, match="NaN"):
        rn.diagnose(net, [[np.nan]])
    with pytest.raises(InvalidInputError, match="at least one row"):
        rn.diagnose(net, np.empty((0, 1)))
    with pytest.raises(InvalidInputError, match="not an array of numbers"):
        rn.diagnose(net, [["a"]])
    with pytest.raises(InvalidInputError, match="3 rows"):
        rn.diagnose(net, np.ones((3, 1)), y=[1.0])
    with pytest.raises(InvalidInputError, match="tau"):
        rn.diagnose(net, [[1.0]], tau=np.nan)
    with pytest.raises(InvalidInputError, match="no units"):
        rn.diagnose(rn.Network.from_weights([[[1.0]]]), [[1.0]])


def test_values_at_the_ends_of_the_range():
    x = np.random.default_rng(0).normal(size=(50, 2))
    near, far = rn.diagnose(network(), x), rn.diagnose(network(), 1e300 * x, 1e300 * x[:, 0])
    weights = [0, 2, 5]  # units without bias
    np.testing.assert_allclose(far.layers[0].cone[weights], near.layers[0].cone[weights])
    assert far.target.gamma == pytest.approx(1e300 * x[:, 0].std())
    assert target_advice(np.full(50, 0.1)).gamma == 0  # its computed deviation is not 0


def test_many_equal_units_take_no_time():
    w = np.repeat(np.random.default_rng(0).normal(size=(2, 20)), 1000, axis=0)
    found = duplicates(rn.Affine({0: w}, np.ones(2000)))[0]
    assert found.tolist() == [-1, *[0] * 999, -1, *[1000] * 999]
    assert rn.diagnose(network(), torch.zeros(2, 2, requires_grad=True)).rows == 2


def test_names_of_classes_have_no_scale():
    net, x = rn.Network.from_weights([[[1.0]], [[1.0]]]), [[1.0], [2.0]]
    for y in (["a", "b"], np.array(["a", "b"], dtype=object)):
        assert rn.diagnose(net, x, y).target is None


def test_leaky_units_are_not_dead_and_maxima_are_no_units():
    x = np.random.default_rng(0).normal(size=(9, 3))
    leaky = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 1))
    leaky[0].bias.data[1] = -1e3
    assert rn.diagnose(leaky, x).dead == 0
    pool = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    pool.append(nn.Linear(12, 2))
    assert rn.diagnose(pool, np.ones((2, 1, 6, 6))).units == 3


def test_an_optimizer_is_named_by_a_word():
    net = rn.Network.from_weights([[[1.0]], [[1.0]]])
    with pytest.raises(InvalidInputError):
        rn.diagnose(net, [[1.0]], [1.0], optimizer=object())  # type: ignore[arg-type]

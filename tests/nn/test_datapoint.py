import numpy as np
import pytest
import torch
from torch import nn

from relunorm.errors import InvalidInputError
from relunorm.nn import datapoint_init_


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9])
def test_each_neuron_fires_for_its_own_point(threshold):
    X = np.random.default_rng(0).standard_normal((30, 40))
    layer = nn.Linear(40, 35, dtype=torch.float64)
    before = layer.weight[30:].clone()
    found = datapoint_init_(layer, X, threshold=threshold)
    assert found.exclusive == 30
    assert found.free == 5
    assert torch.equal(layer.weight[30:], before)
    response = torch.relu(layer(torch.from_numpy(X))).detach().numpy()[:, :30]
    np.testing.assert_allclose(np.diag(response), 1, rtol=1e-9)
    off = response - np.diag(np.diag(response))
    assert off.max() < 1e-9


def test_points_inside_the_hull_are_reported():
    X = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [0.05, 0.02]])
    layer = nn.Linear(2, 5)
    found = datapoint_init_(layer, X)
    assert found.exclusive == 4
    assert torch.relu(layer(torch.tensor(X, dtype=torch.float32)))[4, 4] > 0.99


def test_fewer_neurons_than_points_and_duplicates():
    X = np.random.default_rng(0).standard_normal((10, 20))
    X[3] = X[0]
    found = datapoint_init_(nn.Linear(20, 4), X, random_state=1)
    assert len(found.points) == 4
    assert 3 not in found.points
    assert found == datapoint_init_(nn.Linear(20, 4), torch.tensor(X), random_state=1)
    assert found.to_dict()["schema"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((4, 3)), "are equal"),
        (np.zeros((1, 3)), "at least two"),
        (np.zeros((4, 2)), "shape"),
        (np.array([[0, 0, np.nan], [1, 1, 1]]), "NaN"),
    ],
)
def test_bad_data(data, message):
    with pytest.raises(InvalidInputError, match=message):
        datapoint_init_(nn.Linear(3, 4), data)


def test_bad_layer_or_threshold():
    with pytest.raises(InvalidInputError, match="no bias"):
        datapoint_init_(nn.Linear(3, 4, bias=False), np.eye(3))
    with pytest.raises(InvalidInputError, match="threshold"):
        datapoint_init_(nn.Linear(3, 4), np.eye(3), threshold=1.0)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_scale_of_the_data(factor):
    X = np.random.default_rng(0).standard_normal((5, 8)) * factor
    layer = nn.Linear(8, 5).double()
    assert datapoint_init_(layer, X).exclusive == 5
    fired = layer(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(np.diag(fired), 1, rtol=1e-9)
    before = nn.Linear(8, 5)
    kept = before.weight.detach().clone()
    with pytest.raises(InvalidInputError, match="rescale the data"):
        datapoint_init_(before, X)
    assert torch.equal(before.weight, kept)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Conv1d(3, 2, 1), "expected torch.nn.Linear"),
        (nn.LazyLinear(2), "no weights yet"),
        (nn.Linear(3, 2, device="meta"), "no weights yet"),
        (nn.Linear(3, 2, dtype=torch.complex64), "expected floats"),
    ],
)
def test_layers_that_cannot_be_set(layer, message):
    with pytest.raises(InvalidInputError, match=message):
        datapoint_init_(layer, np.eye(3))


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": "a"},
        {"threshold": np.nan},
        {"ridge": -1},
        {"ridge": "b"},
        {"random_state": -1},
    ],
)
def test_bad_options_leave_the_layer_alone(options):
    layer = nn.Linear(3, 2)
    before = layer.weight.clone()
    with pytest.raises(InvalidInputError):
        datapoint_init_(layer, np.eye(3), **options)
    assert torch.equal(layer.weight, before)


def test_tiny_data_needs_weights_beyond_floats():
    for layer in (nn.Linear(3, 2), nn.Linear(3, 2).double()):
        with pytest.raises(InvalidInputError, match="does not hold"):
            datapoint_init_(layer, np.eye(3) * 5e-324)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threshold", [0.0, 1e-9, 0.5])
def test_exclusive_counts_what_fires_in_the_layers_type(dtype, threshold):
    X = np.random.default_rng(0).standard_normal((40, 8))
    layer = nn.Linear(8, 40, dtype=dtype)
    found = datapoint_init_(layer, X, threshold=threshold)
    for batch in (40, 1):  # whatever the order of sums
        fires = torch.cat([layer(x) > 0 for x in torch.from_numpy(X).to(dtype).split(batch)])
        assert found.exclusive == int((fires.diagonal() & (fires.sum(dim=0) == 1)).sum()) == 34


def test_points_that_the_layers_type_merges_are_not_exclusive():
    X = np.array([[1.0, 0], [1 + 1e-12, 0], [0, 1], [-1, -1]])
    assert datapoint_init_(nn.Linear(2, 4, dtype=torch.float64), X).exclusive >= 3
    assert datapoint_init_(nn.Linear(2, 4), X).exclusive == 2


def test_responses_that_are_rounding_are_not_exclusive():
    """An offset of a million spreads in float32: what fires depends on the order of sums."""
    X = 77.1 + 1e-4 * np.random.default_rng(0).standard_normal((27, 3))
    for seed in range(5):
        layer = nn.Linear(3, 11)
        found = datapoint_init_(layer, X, threshold=0.99, random_state=seed)
        x = torch.from_numpy(X).to(layer.weight)
        for fires in (layer(x) > 0, torch.cat([layer(row) > 0 for row in x.split(1)])):
            own = fires[list(found.points), range(11)]
            assert found.exclusive <= int((own & (fires.sum(dim=0) == 1)).sum())
    exact = datapoint_init_(nn.Linear(3, 11, dtype=torch.float64), X, threshold=0.5)
    assert exact.exclusive > 0

"""Removal in whole channels: pruned and rewritten convolutional networks come back smaller."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import relunorm as rn
from relunorm.cli import main
from relunorm.network.structure import Structure

SHAPE = (1, 6, 6)


def seeded(make, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double().eval()


def two_convolutions(pool: type[nn.Module] = nn.MaxPool2d) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        pool(2),
        nn.Conv2d(6, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def points(count: int = 30) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 1, (count, *SHAPE))


def outputs(module: nn.Module) -> np.ndarray:
    return module(torch.tensor(points())).detach().numpy()


def structure_of(network: rn.Network) -> Structure:
    assert network.structure is not None
    return network.structure


def averaging() -> nn.Module:
    """Without the units of a max pooling, whose stability takes long to decide."""
    return two_convolutions(nn.AvgPool2d)


def test_pruned_model_is_physically_smaller() -> None:
    module = seeded(averaging)
    for layer in (module[0], module[3]):
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
        prune.remove(layer, "weight")
    with torch.no_grad():  # of the constant channels one is 0, one is not
        module[0].bias[:] = torch.tensor([0.3, -0.2, 0.1, 0.2, -0.4, 0.25])
    network = rn.load(module, example=SHAPE)
    result = rn.normalize(network, "minimal", rn.Box.cube(36, 0, 1))
    back = rn.to_torch(result.network)
    gone = int((module[0].weight.abs().sum((1, 2, 3)) == 0).sum())
    assert gone == 3
    assert isinstance(back[0], nn.Conv2d)
    assert isinstance(back[3], nn.Conv2d)
    assert back[0].out_channels == 3  # nothing is padded after it, so constants move on
    assert back[3].out_channels == 2
    assert result.network.parameters < 0.5 * network.parameters
    np.testing.assert_allclose(outputs(back), outputs(module), atol=1e-12)
    assert result.certificate is not None
    assert result.certificate.bound < 1e-12
    assert rn.verify(result.certificate, network, result.network).holds
    assert result.counts == {"channel": 3 * 36 + 2 * 4}
    assert len(result.removed) == network.units - result.network.units


def test_one_constant_channel_stays_in_front_of_padding() -> None:
    module = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 5, 3),
            nn.ReLU(),
            nn.Conv2d(5, 2, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32, 1),
        )
    )
    with torch.no_grad():
        module[0].weight[1:] = 0
        module[0].bias[:] = torch.tensor([0.1, 0.5, 0.25, -1.0, 0.125])
    network = rn.load(module, example=SHAPE)
    result = rn.normalize(network, "minimal")
    back = rn.to_torch(result.network)
    assert back[0].out_channels == 2
    np.testing.assert_allclose(outputs(back), outputs(module), atol=1e-12)


def test_dead_and_unread_channels_and_copies() -> None:
    module = seeded(averaging, 1)
    with torch.no_grad():
        module[0].bias[0] = -100.0  # dead over the domain
        module[0].weight[2], module[0].bias[2] = 2 * module[0].weight[1], 2 * module[0].bias[1]
        module[3].weight[:, 4] = 0  # read by nobody
    network = rn.load(module, example=SHAPE)
    assert rn.to_torch(rn.normalize(network, "minimal").network)[0].out_channels == 4
    result = rn.normalize(network, "minimal", rn.Box.cube(36, 0, 1))
    back = rn.to_torch(result.network)
    assert back[0].out_channels == 3
    assert back[3].in_channels == 3
    np.testing.assert_allclose(outputs(back), outputs(module), atol=1e-12)
    assert rn.verify(result.certificate, network, result.network).holds


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.LeakyReLU(0.01)])
def test_split_convolution_comes_back(activation: nn.Module) -> None:
    """Every channel as a pair, in any order, in front of a convolution of size 1."""
    original = seeded(two_convolutions, 2)
    conv, rng = original[0], np.random.default_rng(3)
    wide = nn.Conv2d(1, 12, 3, padding=1).double()
    narrow = nn.Conv2d(12, 6, 1).double()
    slope = 0.01 if isinstance(activation, nn.LeakyReLU) else 0.0
    with torch.no_grad():
        narrow.weight.zero_()
        for place, c in zip(rng.permutation(12), np.repeat(np.arange(6), 2), strict=True):
            scale = 2.0 if not narrow.weight[c].any() else -0.7
            threshold = 0.3 * (c - 2)
            wide.weight[place] = scale * conv.weight[c]
            wide.bias[place] = scale * (conv.bias[c] - threshold)
            narrow.weight[c, place] = 1 / scale / (1 + slope)
            narrow.bias[c] = threshold
    module = nn.Sequential(wide, activation, narrow, *original[1:]).eval()
    np.testing.assert_allclose(outputs(module), outputs(original), atol=1e-12)
    network = rn.load(module, example=SHAPE)
    result = rn.normalize(network, "minimal")
    back = rn.to_torch(result.network)
    assert [type(m).__name__ for m in back] == [type(m).__name__ for m in original]
    assert back[0].out_channels == 6
    assert result.network.parameters == rn.load(original, example=SHAPE).parameters
    np.testing.assert_allclose(outputs(back), outputs(original), atol=1e-12)


def test_channels_of_a_sum_stay() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(1, 3, 1), nn.Conv2d(1, 3, 1)
            self.last = nn.Linear(108, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.one(x)) + torch.relu(self.two(x))
            return self.last(y.flatten(1))

    module = seeded(Sum)
    with torch.no_grad():
        module.one.weight[0], module.one.bias[0] = 0, -1
    network = rn.load(module, example=SHAPE)
    result = rn.normalize(network, "minimal")
    np.testing.assert_allclose(result.network(points()), outputs(module), atol=1e-12)
    assert structure_of(result.network).parameters <= network.parameters


def test_counts_and_lost_convolutions_are_told(capsys, tmp_path) -> None:
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 1)
    network = rn.load(seeded(lambda: nn.Sequential(*layers)), example=SHAPE)
    assert (network.units, network.channels) == (32 + 16 + 8, 2)
    scaled = rn.normalize(network, "unit")
    assert scaled.unfolded
    assert "convolutions as matrices" in repr(scaled)
    rn.save(network, tmp_path / "net.npz")
    for command in (["info"], ["normalize", "-o", str(tmp_path / "o.npz"), "--form", "unit"]):
        with suppress(SystemExit):
            main([command[0], str(tmp_path / "net.npz"), *command[1:]])
        shown = " ".join(capsys.readouterr().out.split())
        assert "with a channel counted once" in shown
    assert "convolutions are written out as matrices" in shown


def test_a_larger_result_is_not_given_back() -> None:
    """Without its structure a convolution is a sparse matrix, and folding units fills it."""
    module = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(8, 2),
        )
    )  # fmt: skip
    network = rn.load(module, example=SHAPE)
    bare = network.replace(output=network.output)
    with torch.no_grad():
        module[0].bias[0] = -100.0
    for given in (network, bare):
        result = rn.normalize(given, "minimal", rn.Box.cube(36, 0, 1))
        assert result.network.parameters <= given.parameters
        if result.kept:
            assert result.network is given
            assert not result.removed


def test_channels_around_what_enlarges_an_image() -> None:
    """A dead channel and a copy go, in front of a transposed convolution and behind it."""
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 3, 3, 2, 1), nn.ReLU()
    further = nn.Upsample(scale_factor=2), nn.Conv2d(3, 1, 1)
    module = seeded(lambda: nn.Sequential(*layers, *further).double().eval(), 4)
    with torch.no_grad():
        for layer, rows in ((module[0], 0), (module[2], 1)):
            weight = layer.weight if rows == 0 else layer.weight.transpose(0, 1)
            weight[1] = 2 * weight[0]
            layer.bias[1] = 2 * layer.bias[0]
        module[0].bias[2] = -100.0
    network = rn.load(module, example=(1, 5, 6))
    found = rn.normalize(network, "minimal", (-1, 1)).network
    assert found.structure is not None
    assert [s.shape[0] for s in found.structure.steps if s.kind == "activation"] == [2, 2]
    points = np.random.default_rng(0).uniform(-1, 1, size=(20, 30))
    wanted = module(torch.from_numpy(points.reshape(-1, 1, 5, 6))).detach().numpy()
    np.testing.assert_allclose(found(points), wanted.reshape(20, -1), atol=1e-12)
    assert rn.compare(network, found, (-1, 1)).upper < 1e-9

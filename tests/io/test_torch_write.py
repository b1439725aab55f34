"""Networks to PyTorch and back; the oracle is the network's own evaluation in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from strategies import networks
from torch import nn
from torch_models import MODELS, model

import relunorm as rn
from relunorm.errors import UnsupportedFormatError
from relunorm.network import Activation, Affine, Layer, Network

RNG = np.random.default_rng(5)


def points(network: Network, count: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *network.input_shape))


def outputs(module: nn.Module, batch: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    with torch.no_grad():
        return module(torch.tensor(batch, dtype=dtype)).double().numpy()


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    found = found.reshape(expected.shape)
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1)


def chain(*widths: int, activation: str = "relu") -> Network:
    pairs = zip(widths[1:], widths[:-1], strict=True)
    weights = [RNG.normal(size=shape) for shape in pairs]
    return Network.from_weights(weights, [RNG.normal(size=len(w)) for w in weights], activation)


def test_chain_is_a_plain_sequential():
    network = chain(3, 5, 4, 2)
    module = rn.to_torch(network)
    kinds = [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert isinstance(module, nn.Sequential)
    assert [type(part) for part in module] == kinds
    assert not module.training
    batch = points(network)
    assert_close(outputs(module, batch, torch.float64), network(batch), 1e-14)


def test_leaky_slopes_and_linear_stages():
    layers = [
        Layer(Affine({0: RNG.normal(size=(4, 3))}, RNG.normal(size=4)), Activation("leaky", 0.3)),
        Layer(Affine({1: RNG.normal(size=(4, 4))}, RNG.normal(size=4)), Activation("identity")),
    ]
    network = Network(layers, Affine({2: RNG.normal(size=(2, 4))}, [1.0, 2.0]), input_shape=3)
    module = rn.to_torch(network)
    assert [type(part) for part in module] == [nn.Linear, nn.LeakyReLU, nn.Linear, nn.Linear]
    batch = points(network)
    assert_close(outputs(module, batch, torch.float64), network(batch), 1e-14)


def test_image_shapes_are_kept():
    network = chain(12, 5, 6).replace(input_shape=(3, 2, 2), output_shape=(2, 3))
    module = rn.to_torch(network)
    result = module(torch.tensor(points(network)))
    assert result.shape == (20, 2, 3)
    assert_close(result.detach().numpy(), network(points(network)), 1e-14)


@given(networks())
def test_any_network(network):
    batch = points(network)
    module = rn.to_torch(network)
    assert_close(outputs(module, batch, torch.float64), network(batch), 1e-12)
    assert all(p.dtype == torch.float64 for p in module.parameters())


@settings(max_examples=15)
@given(networks())
def test_any_network_through_a_module_and_back(network):
    batch = points(network)
    again = rn.load(rn.to_torch(network), example=network.input_shape)
    assert again.digest == network.digest
    assert_close(again(batch), network(batch), 1e-12)


@settings(max_examples=12)
@given(networks())
def test_any_network_through_a_file(tmp_path_factory, network):
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    batch = points(network)
    rn.save(network, path)
    assert rn.load(path).digest == network.digest
    program = torch.export.load(path).module()
    assert_close(outputs(program, batch, torch.float64), network(batch), 1e-12)
    assert_close(outputs(program, batch[:1], torch.float64), network(batch[:1]), 1e-12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float64") for name in MODELS), ("mlp", "float32"), ("densenet", "float32")],
)
def test_trained_architectures_through_a_file(name, dtype, tmp_path):
    network = rn.load(model(name), example=MODELS[name][1])
    rn.save(network, tmp_path / "model.pt2", dtype=dtype)
    again = rn.load(tmp_path / "model.pt2")
    assert again.input_shape == network.input_shape
    assert dtype == "float32" or again.digest == network.digest
    batch = points(network)
    tolerance = {"float32": 1e-6, "float64": 1e-12}[dtype]
    assert_close(again(batch), network(batch), tolerance * np.abs(network(batch)).max())


def test_float32():
    network = chain(3, 6, 2)
    module = rn.to_torch(network, dtype="float32")
    batch = points(network).astype(np.float32)
    assert_close(outputs(module, batch, torch.float32), network(batch), 1e-6)
    assert next(rn.to_torch(network, torch.float32).parameters()).dtype == torch.float32
    with pytest.raises(UnsupportedFormatError, match="float32 or float64"):
        rn.to_torch(network, dtype="int8")


def test_random_state_is_not_used():
    before = torch.get_rng_state()
    rn.to_torch(chain(3, 6, 2))
    assert torch.equal(before, torch.get_rng_state())


def test_module_does_not_share_memory_with_the_network():
    network = chain(2, 3, 1)
    module = rn.to_torch(network)
    expected = network(points(network))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert np.array_equal(network(points(network)), expected)


def test_sparse_maps_can_be_trained():
    matrix = sp.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, -1.0]]))
    network = Network(
        [Layer(Affine({0: matrix}, [0.0, 0.0]))], Affine({1: np.ones((1, 2))}, [0.0]), input_shape=3
    )
    module = rn.to_torch(network)
    module(torch.tensor([[1.0, 1.0, 0.5]], dtype=torch.float64)).sum().backward()
    gradient = module[0].weight.grad
    assert gradient.tolist() == [1.0, 1.0, 0.5]


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.pt2"
    rn.save(chain(2, 3, 1), path)
    old = path.read_bytes()

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.export, "save", broken)
    with pytest.raises(KeyboardInterrupt):
        rn.save(chain(2, 4, 1), path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt2"]

"""Networks out to every format and back: the same bits; torch through onnxruntime: its outputs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from strategies import ACTIVATIONS, ARCHIVES, networks
from torch import nn
from torch_models import MODELS, model

import relunorm as rn
from relunorm import Activation, Affine, Layer, Network, io

FILES = [ending.removeprefix(".") for ending in io.WRITERS]
STEPS = tuple(Activation("step", at_zero=v) for v in (0.3, -0.7, 1.0))


def there_and_back(network: Network, path: Path) -> Network:
    rn.save(network, path, dtype="float64")
    return rn.load(path)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(abs(found - expected).max() / abs(expected).max())


@settings(max_examples=40)
@given(networks(activations=(*ACTIVATIONS, *STEPS)))
def test_the_same_network_comes_back(tmp_path_factory: Any, network: Network) -> None:
    """Skips, sparse maps, linear stages, steps with any value at 0."""
    folder = tmp_path_factory.mktemp("back")
    for ending in (*ARCHIVES, "onnx"):
        assert there_and_back(network, folder / f"net.{ending}").digest == network.digest


def two_stages(at_zero: float) -> Network:
    """Two linear stages before a step; multiplied out they have another threshold."""
    return Network(
        [
            Layer(Affine({0: [[0.67, 0.24]]}, [-1.09]), Activation("identity")),
            Layer(Affine({1: [[0.39]], 0: [[0.1, 0.7]]}, [-0.25]), Activation("identity")),
            Layer(Affine({2: [[1.89], [-1.3]]}, [-0.1, 0.0]), Activation("step", at_zero=at_zero)),
        ],
        Affine({2: [[0.7]], 3: [[1.2, 1.7]]}, [0.0]),
        input_shape=2,
    )


@pytest.mark.parametrize("at_zero", [-1.0, 0.3])
@pytest.mark.parametrize("ending", FILES)
def test_linear_stages_stay_apart(ending: str, at_zero: float, tmp_path: Path) -> None:
    assert Fraction(0.39) * Fraction(0.67) != Fraction(0.39 * 0.67)
    network = two_stages(at_zero)
    assert there_and_back(network, tmp_path / f"net.{ending}").digest == network.digest


@pytest.mark.parametrize("kind", ["relu", "leaky"])
def test_modules_and_keras_models_keep_stages(kind: str) -> None:
    rng = np.random.default_rng(2)
    activation = Activation(kind, slope=0.3 if kind == "leaky" else 0.0)  # type: ignore[arg-type]
    for skip in (False, True):
        first = Layer(
            Affine({0: rng.normal(size=(3, 2))}, rng.normal(size=3)), Activation("identity")
        )
        second = Layer(Affine({1: rng.normal(size=(4, 3))}, rng.normal(size=4)), activation)
        last = {2: rng.normal(size=(1, 4))} | ({1: rng.normal(size=(1, 3))} if skip else {})
        network = Network([first, second], Affine(last, [0.5]), input_shape=2)
        assert rn.load(rn.to_torch(network), example=2).digest == network.digest
        assert rn.load(rn.to_keras(network)).digest == network.digest


def test_weights_of_other_models_are_not_multiplied() -> None:
    """Two maps with nothing between them: stages, with the very numbers of the model."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    parts = [p for p in module if isinstance(p, nn.Linear)]
    maps = [
        Affine({k: p.weight.detach().numpy()}, p.bias.detach().numpy()) for k, p in enumerate(parts)
    ]
    layers = [Layer(maps[0], Activation("identity")), Layer(maps[1])]
    expected = Network(layers, maps[2], input_shape=2)
    assert rn.load(module, example=2).digest == expected.digest
    dense = [keras.layers.Dense(w) for w in (3, 4)]
    model = keras.Sequential([keras.Input((2,)), *dense, keras.layers.ReLU()])
    assert [x.activation.kind for x in rn.load(model).layers] == ["identity", "relu"]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own word on its convolution
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_torch_to_onnxruntime(name: str, dtype: str, tolerance: float, tmp_path: Path) -> None:
    module = model(name, getattr(torch, dtype)).eval()
    shape = MODELS[name][1]
    inputs = torch.randn((16, *shape), generator=torch.Generator().manual_seed(1)).to(
        getattr(torch, dtype)
    )
    expected = module(inputs).detach().numpy().reshape(16, -1)
    network = rn.load(module, example=shape)
    assert relative(network(inputs.numpy()), expected) <= tolerance
    path = tmp_path / "net.onnx"
    rn.save(network, path, dtype=dtype)  # type: ignore[arg-type]
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path)
    ran = session.run(None, {"input": inputs.numpy()})[0].reshape(16, -1)
    assert relative(ran, expected) <= tolerance
    assert relative(rn.load(path)(inputs.numpy()), expected) <= tolerance
    assert dtype == "float32" or rn.load(path).digest == network.digest


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ending", ARCHIVES)
def test_torch_to_own_files(name: str, ending: str, tmp_path: Path) -> None:
    network = rn.load(model(name).eval(), example=MODELS[name][1])
    rn.save(network, tmp_path / f"net.{ending}")
    assert rn.load(tmp_path / f"net.{ending}") == network

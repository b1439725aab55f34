"""A network remembers the operations it was read as, and files written from them stay small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from strategies import ARCHIVES
from torch import nn
from torch_models import MODELS, model

import relunorm as rn
from relunorm.errors import RelunormError
from relunorm.io.graph.structured import faithful, lower, multiplied_out
from relunorm.network.head import Head, Step
from relunorm.network.structure import axes_of


def small_cnn() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0)),
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(12, 3),
        ).eval()


SHAPE = (1, 14, 10)


@pytest.mark.parametrize("name", [n for n in MODELS if n in ("lenet", "grouped", "parametrized")])
def test_structure_lowers_to_the_same_network(name: str) -> None:
    network = rn.load(model(name), example=MODELS[name][1])
    assert network.structure is not None
    assert lower(network.structure, network) == network


def test_kinds_of_steps() -> None:
    network = rn.load(small_cnn(), example=SHAPE)
    assert network.structure is not None
    kinds = [step.kind for step in network.structure.steps]
    assert kinds == [
        "input", "conv", "activation", "max_pool", "conv", "activation", "average_pool",
        "reshape", "linear",
    ]  # fmt: skip
    # batch normalization is part of the convolution before it
    assert network.parameters == 4 * 9 + 4 + 6 * 4 * 9 + 6 + 12 * 3 + 3
    assert lower(network.structure, network) == network


class Scaled(nn.Module):
    """(x - mean) / deviation, a channel at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6])[:, None, None])
        self.register_buffer("deviation", torch.tensor([0.2, 0.3, 0.5])[:, None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.deviation


def _normalized(channels: int) -> nn.Module:
    layer = nn.BatchNorm2d(channels)
    for tensor in (layer.running_mean, layer.weight.data, layer.bias.data):
        tensor.normal_()
    return layer


@pytest.mark.parametrize(
    ("kinds", "layers"),
    [
        (["conv"], lambda: [Scaled(), nn.Conv2d(3, 4, 3), nn.ReLU()]),
        (["conv", "conv"], lambda: [Scaled(), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]),
        (["conv"], lambda: [_normalized(3), nn.Conv2d(3, 6, 3, groups=3), nn.ReLU()]),
        (["conv"], lambda: [nn.Conv2d(3, 4, 1), nn.ReLU(), _normalized(4)]),
        (["conv"] * 2, lambda: [nn.Conv2d(3, 4, 1), nn.ReLU(), _normalized(4), nn.MaxPool2d(2)]),
    ],
)
def test_scalings_are_taken_by_the_maps_around_them(
    kinds: list[str], layers: Any, tmp_path: Path
) -> None:
    """In front of a convolution or behind an activation; a shift cannot pass zero padding."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        body = nn.Sequential(*layers(), nn.Flatten()).eval()
        module = nn.Sequential(*body, nn.Linear(body(torch.zeros(1, 3, 6, 6)).shape[1], 2)).eval()
        x = torch.randn(9, 3, 6, 6)
    network = rn.load(module, example=(3, 6, 6))
    assert network.structure is not None
    assert [s.kind for s in network.structure.steps if s.kind == "conv"] == kinds
    numbers = sum(t.numel() for t in (*module.parameters(), *module.buffers()))
    assert network.parameters <= numbers
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(network(x.numpy()), expected, atol=1e-5)
    np.testing.assert_allclose(lower(network.structure, network)(x.numpy()), expected, atol=1e-5)
    rn.save(network, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (tmp_path / "model.onnx").stat().st_size < 4 * numbers + 2500


def test_a_changed_network_has_no_structure() -> None:
    network = rn.load(small_cnn(), example=SHAPE)
    assert network.replace(origin="elsewhere").structure is network.structure
    assert network.replace(output=network.output).structure is None
    assert rn.normalize(network, "pow2").network.structure is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own exporter
def test_file_is_as_small_as_the_one_that_was_read(tmp_path: Path) -> None:
    module, first, second = small_cnn(), tmp_path / "first.onnx", tmp_path / "second.onnx"
    x = torch.rand((1, *SHAPE), generator=torch.Generator().manual_seed(0))
    torch.onnx.export(module, (x,), str(first), dynamo=False)
    rn.save(rn.load(first), second)
    assert second.stat().st_size < 1.2 * first.stat().st_size
    nodes = [node.op_type for node in onnx.load(second).graph.node]
    assert [n for n in nodes if n != "Identity"] == [
        "Conv", "Relu", "MaxPool", "Conv", "LeakyRelu", "AveragePool", "Flatten", "Gemm",
    ]  # fmt: skip
    name = onnx.load(first).graph.input[0].name
    found = onnxruntime.InferenceSession(second).run(None, {name: x.numpy()})[0]
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=1e-6)


def test_torch_gets_its_modules_back() -> None:
    module = small_cnn()
    back = rn.to_torch(rn.load(module, example=SHAPE), dtype="float32")
    assert [type(m) for m in back] == [
        nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Conv2d, nn.LeakyReLU, nn.AvgPool2d, nn.Flatten,
        nn.Linear,
    ]  # fmt: skip
    x = torch.rand((5, *SHAPE), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(back(x), module(x), atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own word on its convolution
def test_uneven_padding_and_sums(tmp_path: Path) -> None:
    """SAME padding of an even kernel is uneven, and a residual sum is no chain."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Conv2d(2, 2, 3, padding=1)
            self.two = nn.Conv2d(2, 2, (2, 3), padding="same")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.one(x))
            return nn.functional.relu6(y + self.two(y)).flatten(1)

    with torch.random.fork_rng():
        torch.manual_seed(4)
        module = Residual().double().eval()
    x = torch.rand((3, 2, 5, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    network = rn.load(module, example=(2, 5, 4))
    expected = module(x).detach().numpy()
    assert network.structure is not None
    assert not network.structure.is_chain
    assert lower(network.structure, network) == network
    np.testing.assert_allclose(rn.to_torch(network)(x).detach().numpy(), expected, atol=1e-12)
    path = tmp_path / "net.onnx"
    rn.save(network, path)
    found = onnxruntime.InferenceSession(path).run(None, {"input": x.numpy().astype(np.float32)})
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


class Branches(nn.Module):
    """Two branches that meet, cut off, pooled with windows that hang over: every kind of step."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, groups=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.leaky_relu(self.one(x), 0.2)
        y = nn.functional.relu6(y + self.two(y))
        y = nn.functional.max_pool2d(y, 3, 2, ceil_mode=True)
        return nn.functional.avg_pool2d(y, 2, 2, padding=1).permute(0, 2, 3, 1).flatten(1)


def branches() -> rn.Network:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return rn.load(Branches().eval(), example=(1, 6, 7))


@pytest.mark.parametrize("ending", ARCHIVES)
@pytest.mark.parametrize("name", ["small", "branches"])
def test_archives_keep_the_structure(name: str, ending: str, tmp_path: Path) -> None:
    network = branches() if name == "branches" else rn.load(small_cnn(), example=SHAPE)
    network = network.replace(head=Head((Step("softmax"),), ()))
    path = tmp_path / f"net.{ending}"
    rn.save(network, path)
    back = rn.load(path)
    assert back == network
    assert back.input_shape == network.input_shape
    assert network.structure is not None
    assert back.structure is not None
    assert [s.kind for s in back.structure.steps] == [s.kind for s in network.structure.steps]
    for old, new in zip(network.layers, back.layers, strict=True):
        assert (old.name, old.piece, old.shape) == (new.name, new.piece, new.shape)
        assert (old.unit_of is None) == (new.unit_of is None)
        assert old.unit_of is None or np.array_equal(old.unit_of, new.unit_of)
    rn.save(network.replace(output=network.output), tmp_path / f"matrices.{ending}")
    assert path.stat().st_size < (tmp_path / f"matrices.{ending}").stat().st_size / 2


def test_a_structure_that_says_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    rn.save(rn.load(small_cnn(), example=SHAPE), path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    header = json.loads(str(arrays["relunorm"]))
    for change, message in (
        ({"inputs": [7]}, "not computed before it"),
        ({"inputs": []}, "not computed before it"),
        ({"kind": "pool"}, "not complete"),
        ({"geometry": None}, "not complete"),
        ({"weight": "nowhere"}, "damaged"),
        ({"groups": 3}, "does not fit"),
        (
            {"geometry": {"kernel": [3, 3], "stride": [0, 1], "pads": [[0, 0]], "ceil": 0}},
            "damaged",
        ),
    ):
        steps = [dict(step) for step in header["steps"]]
        steps[1] |= change
        text = json.dumps({**header, "steps": steps})
        np.savez(path, **{**arrays, "relunorm": np.array(text)})
        with pytest.raises(RelunormError, match=message):
            rn.load(path)


@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "sigmoid", "argmax"])
def test_heads_behind_convolutions_come_back(kind: Any, tmp_path: Path) -> None:
    network = rn.load(small_cnn(), example=SHAPE).replace(head=Head((Step(kind),), ()))
    x = np.random.default_rng(6).random((4, *SHAPE))
    expected = network.predict(x)
    module = rn.to_torch(network)
    assert rn.load(module, example=SHAPE).head == network.head
    found = module(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    rn.save(network, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    found = session.run(None, {"input": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "Conv" in [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node]
    if kind != "log_softmax":
        keras = pytest.importorskip("keras", reason="Keras is not installed")
        model = rn.to_keras(network)
        assert any(isinstance(layer, keras.layers.Conv2D) for layer in model.layers)
        found = np.asarray(model(x).detach())
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_axes_of_a_permutation() -> None:
    index = np.arange(24).reshape(2, 3, 4)
    assert axes_of(index.transpose(2, 0, 1), (2, 3, 4)) == (2, 0, 1)
    assert axes_of(index[::-1], (2, 3, 4)) is None
    assert axes_of(index.reshape(3, 2, 4), (2, 3, 4)) is None
    square = np.arange(9).reshape(3, 3)
    assert axes_of(square.T, (3, 3)) == (1, 0)


def test_a_structure_that_rounds_elsewhere_is_not_taken_for_the_network() -> None:
    """A scaling behind a sum is multiplied into the network's rows, not into its steps."""
    network = rn.load(model("resnet"), example=MODELS["resnet"][1])
    assert network.structure is not None
    other = lower(network.structure, network)
    assert other.digest != network.digest
    assert faithful(other)
    assert not faithful(network)
    # multiplied out as a reader does, it is the same layers with other last bits at most
    assert network.structure is not None
    again = multiplied_out(network.structure, network)
    assert [x.width for x in again.layers] == [x.width for x in network.layers]
    x = np.random.default_rng(0).normal(size=(4, network.input_size))
    np.testing.assert_allclose(again(x), network(x), rtol=1e-12)


@pytest.mark.parametrize("kind", ["mean", "amax"])
def test_a_reduction_over_all_positions_is_a_pooling(kind: str) -> None:
    class Reduced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 3, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(getattr(torch.relu(self.conv(x)), kind)((-1, -2)))

    module = Reduced().eval()
    network = rn.load(module, example=(1, 5, 6))
    assert network.structure is not None
    kinds = [step.kind for step in network.structure.steps]
    assert kinds[3] == {"mean": "average_pool", "amax": "max_pool"}[kind]
    x = torch.randn(4, 1, 5, 6)
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(network(x.numpy().reshape(4, -1)), expected, atol=1e-5)


def _decoder(kind: str) -> nn.Sequential:
    """A small autoencoder whose second half makes its image larger in one of several ways."""
    up: list[nn.Module] = {
        "even": [nn.ConvTranspose2d(4, 2, 2, 2), nn.ReLU(), nn.ConvTranspose2d(2, 1, 4, 2, 1)],
        "added": [nn.ConvTranspose2d(4, 2, 3, 2, 1, 1, groups=2), nn.ReLU(), nn.Conv2d(2, 1, 3)],
        "odd": [nn.ConvTranspose2d(4, 2, 3, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 1, 1)],
        "repeated": [nn.Upsample(scale_factor=(2, 3)), nn.Conv2d(4, 1, 3, padding=1)],
        "woven": [nn.Conv2d(4, 8, 1), nn.PixelShuffle(2), nn.ReLU(), nn.Conv2d(2, 1, 3)],
    }[kind]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), *up).double().eval()


@pytest.mark.parametrize("ending", ["onnx", "pt2", *ARCHIVES, "torch", "keras"])
@pytest.mark.parametrize("kind", ["even", "added", "odd", "repeated", "woven"])
def test_what_enlarges_an_image_is_written_as_itself(
    kind: str, ending: str, tmp_path: Path
) -> None:
    module = _decoder(kind)
    network = rn.load(module, example=(1, 6, 8))
    assert network.structure is not None
    stored = sum(p.numel() for p in module.parameters())
    if kind == "odd":
        stored -= 4  # batch normalization is part of the map before it
    assert network.parameters == stored
    assert lower(network.structure, network) == network
    x = torch.randn((3, 1, 6, 8), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if ending == "keras":
        pytest.importorskip("keras")
        back = rn.load(rn.to_keras(network))
    elif ending == "torch":
        back = rn.load(rn.to_torch(network), example=(1, 6, 8))
    else:
        rn.save(
            network,
            tmp_path / f"net.{ending}",
            **({} if ending == "onnx" else {"dtype": "float64"}),
        )
        back = rn.load(tmp_path / f"net.{ending}")
    close = 1e-6 if ending == "onnx" else 1e-12  # convolutions are written in float32 there
    given = x.numpy().reshape(3, -1)
    np.testing.assert_allclose(
        network(given), module(x).detach().numpy().reshape(3, -1), atol=1e-12
    )
    np.testing.assert_allclose(back(given), network(given), atol=close)
    if ending != "keras":  # padding is a layer of its own there
        assert back.parameters == network.parameters
    elif kind != "added":  # Keras has no groups there
        assert rn.to_keras(network).count_params() == network.parameters
    if ending == "onnx":
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
        (found,) = session.run(None, {"input": x.numpy()[:1].astype(np.float32)})
        np.testing.assert_allclose(found.ravel(), network(given)[0], atol=1e-6)


@pytest.mark.parametrize("last", ["Conv2DTranspose", "UpSampling2D"])
def test_keras_gets_its_layers_back(last: str) -> None:
    keras = pytest.importorskip("keras")
    options = {"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same"}
    made = getattr(keras.layers, last)(**(options if last == "Conv2DTranspose" else {"size": 2}))
    model = keras.Sequential([keras.Input((4, 5, 2)), keras.layers.Conv2D(2, 3), made])
    back = rn.to_keras(rn.load(model), dtype="float32")
    assert [
        type(layer).__name__ for layer in back.layers if layer.weights or last in str(layer)
    ] == [
        "Conv2D",
        last,
    ]
    points = np.random.default_rng(0).normal(size=(3, 4, 5, 2)).astype(np.float32)
    wanted = model(points).detach().numpy()
    np.testing.assert_allclose(back(points).detach().numpy(), wanted, atol=1e-5)

"""What counts as a unit in a diagnosis: channels, not positions; no helpers of other operations."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import relunorm as rn
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.network.layer import Affine, Layer


class Whole(nn.Module):
    """A function as a module, with some layers."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x).flatten(1)


def conv(inputs, outputs):
    made = nn.Conv2d(inputs, outputs, 3, padding=1)
    assert made.bias is not None
    with torch.no_grad():
        made.weight[0] = 0.0
        made.bias[0], made.bias[-1] = -1.0, -0.6  # dead, and dead at most positions
    return made


def normed():
    norm = nn.BatchNorm2d(4).eval()
    norm.bias.data[2] = -9.0
    return norm


IMAGES, TOKENS = (1, 5, 4), (7, 3)
#: Models whose rectifiers the monitor sees with a known axis of units.
WATCHED = {
    "channels": (lambda m, x: F.relu(m.a(x)), lambda: {"a": conv(1, 4)}, IMAGES),
    "norm": (lambda m, x: F.relu(m.n(m.a(x))), lambda: {"a": conv(1, 4), "n": normed()}, IMAGES),
    "tokens": (lambda m, x: F.relu(m.a(x)), lambda: {"a": nn.Linear(3, 5)}, TOKENS),
    "moved": (lambda m, x: F.relu(m.a(x).permute(2, 3, 0, 1).permute(2, 3, 1, 0)),
              lambda: {"a": conv(1, 4)}, IMAGES),
    "joined": (lambda m, x: F.relu(torch.cat([m.b(x), m.a(x)], 1)),
               lambda: {"a": conv(1, 4), "b": conv(1, 2)}, IMAGES),
    "residual": (lambda m, x: F.relu(m.b(F.relu(m.a(x))) + x),
                 lambda: {"a": conv(1, 4), "b": conv(4, 3)}, IMAGES),
    "pooled": (lambda m, x: F.relu(F.avg_pool2d(F.max_pool2d(m.a(x), 2), (2, 1))),
               lambda: {"a": conv(1, 4)}, IMAGES),
    "line": (lambda m, x: F.relu6(m.a(x)), lambda: {"a": nn.Conv1d(7, 4, 2)}, TOKENS),
    "leaky": (lambda m, x: m.p(m.a(x)), lambda: {"a": conv(1, 4), "p": nn.PReLU()}, IMAGES),
}  # fmt: skip


@pytest.mark.parametrize("name", WATCHED)
def test_units_are_those_of_the_monitor(name):
    function, parts, shape = WATCHED[name]
    torch.manual_seed(0)
    model = Whole(function, **parts()).double().eval()
    x = 0.3 * torch.randn(9, *shape, generator=torch.Generator().manual_seed(0)).double()
    with rn.DeadUnitMonitor(model) as monitor, torch.no_grad():
        model(x)
    found = rn.diagnose(model, x).layers
    sites = monitor.report().sites
    assert len(found) == len(sites)
    for layer, site in zip(found, sites, strict=True):
        assert layer.width == site.units < layer.positions.sum()
        assert layer.dead.tolist() == (site.dead & (not site.leaky)).tolist()
        np.testing.assert_allclose(layer.active_share, site.active_share)
        np.testing.assert_allclose(layer.score, site.score, rtol=1e-9, atol=1e-12)


def test_a_flattened_channel_is_one_unit_and_padding_is_none():
    made = conv(1, 4)
    model = Whole(lambda m, x: F.relu(F.pad(m.a(x), (1, 0)).flatten(1)), a=made)
    x = 0.3 * np.random.default_rng(0).normal(size=(6, *IMAGES))
    found = rn.diagnose(model, x)
    layer = found.layers[0]
    assert layer.positions.tolist() == [20] * 4
    z = made(torch.tensor(x, dtype=torch.float32)).detach().double().flatten(2).numpy()
    expected = z.mean((0, 2))[1:] / z.std((0, 2))[1:]
    np.testing.assert_allclose(layer.cone[1:], expected, rtol=1e-5)
    silent = (z <= 0).all(0).sum(1)
    assert layer.dead_positions.tolist() == silent.tolist()
    assert layer.dead.tolist() == (silent == 20).tolist()
    assert f"silent at {silent.sum()} of 80 positions" in repr(found)


def test_channels_are_proved_and_compared_whole():
    made = nn.Conv2d(1, 3, 3, padding=1, bias=False)
    with torch.no_grad():
        made.weight[1] = -made.weight[0].abs()
        made.weight[2] = 2 * made.weight[0]
    model = Whole(lambda m, x: F.relu(m.a(x)), a=made)
    found = rn.diagnose(model, np.ones((2, 1, 3, 3)), domain=rn.Box.cube(9, 0.0, 1.0))
    layer = found.layers[0]
    assert layer.duplicate_of.tolist() == [-1, -1, 0]
    assert layer.provably_dead is not None
    assert layer.provably_dead.tolist() == [False, True, False]
    assert found.undecided == 0


#: Function, and how many units of 4 it has: an end below is a unit, helpers are none.
OPERATIONS = {
    "relu6": (F.relu6, 4),
    "hardtanh": (F.hardtanh, 4),
    "hardsigmoid": (F.hardsigmoid, 4),
    "clamp": (lambda z: z.clamp(-20.0, 20.0), 4),
    "above": (lambda z: z.clamp(max=20.0), 4),
    "constant": (lambda z: torch.maximum(z, torch.zeros(4)), 4),
    "maximum": (lambda z: torch.maximum(F.relu(z), 0.5 * z - 90.0), 4),
    "minimum": (lambda z: torch.minimum(F.relu(z), 0.5 * z + 90.0), 4),
    "largest": (lambda z: F.relu(z).unflatten(1, (2, 2)).amax(2), 4),
    "absolute": (lambda z: F.relu(z).sub(50.0).abs(), 4),
    "softshrink": (lambda z: F.softshrink(F.relu(z), 90.0), 4),
    "prelu": (lambda z: F.prelu(F.relu(z) - 90.0, torch.tensor([0.1, 0.2, 0.3, 0.4])), 4),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_pieces_of_an_operation_are_no_units(name):
    function, units = OPERATIONS[name]
    torch.manual_seed(0)
    model = Whole(lambda m, x: m.b(function(m.a(x))), a=nn.Linear(3, 4), b=nn.LazyLinear(1))
    x = torch.randn(300, 3)
    model(x)
    found = rn.diagnose(model, x)
    assert (found.units, found.dead) == (units, 0)


def test_only_pieces():
    model = Whole(lambda m, x: m.a(x).abs(), a=nn.Linear(3, 4))
    with pytest.raises(InvalidInputError, match="pieces of maxima"):
        rn.diagnose(model, np.ones((2, 3)))


def onnx_model(nodes, shape, **constants):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    given = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_onnx(tmp_path):
    w = np.random.default_rng(0).normal(size=(4, 1, 3, 3))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Clip", ["c", "low", "high"], ["r"]),
        helper.make_node("Abs", ["r"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Max", ["p", "a0"], ["m"]),
        helper.make_node("Flatten", ["m"], ["y"]),
    ]
    model = onnx_model(nodes, (1, 6, 6), w=w, b=[0, 0, 0, -99.0], low=0.0, high=90.0, a0=0.0)
    onnx.save(model, tmp_path / "clip.onnx")
    network = rn.load(tmp_path / "clip.onnx")
    x = np.random.default_rng(1).normal(size=(50, 1, 6, 6))
    found = rn.diagnose(network, x)
    assert [layer.dead.tolist() for layer in found.layers] == 2 * [[False, False, False, True]]
    rn.save(network, tmp_path / "clip.npz")
    again = rn.diagnose(rn.load(tmp_path / "clip.npz"), x)
    assert again.to_dict() == found.to_dict()
    rn.save(network, tmp_path / "clip.safetensors")
    assert rn.diagnose(rn.load(tmp_path / "clip.safetensors"), x).units == 8


def test_keras():
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed (the extra relunorm[keras])")
    keras = pytest.importorskip("keras", reason="keras has no backend here", exc_type=ImportError)
    L = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 5, 1)),
            L.Conv2D(4, 3, activation="relu6"),
            L.MaxPooling2D(2),
            L.ReLU(max_value=50.0),
            L.PReLU(shared_axes=[1, 2]),
            L.GlobalMaxPooling2D(),
            L.Dense(3, activation="hard_tanh"),
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Keras' conversion of torch tensors
        kernel = np.random.default_rng(0).normal(size=(3, 3, 1, 4))
        model.layers[0].set_weights([kernel, np.array([0.0, -99.0, 0.0, 0.0])])
        found = rn.diagnose(model, np.random.default_rng(1).normal(size=(99, 6, 5, 1)))
    assert [layer.width for layer in found.layers] == [4, 4, 4, 3]
    assert found.layers[0].dead.tolist() == [False, True, False, False]
    assert found.layers[0].positions.tolist() == [12] * 4


def test_a_record_of_units_is_checked():
    affine = Affine({0: np.eye(3)}, np.zeros(3))
    for bad in ([0, 1], [0, 2, 2], [-2, 0, 1], [0, 1, 10**12], [0.0, 1.0, 2.0]):
        with pytest.raises(InvalidNetworkError, match="unit_of"):
            Layer(affine, unit_of=np.array(bad))
    net = rn.Network([Layer(affine, unit_of=np.array([0, 1, 1]))],
                     Affine({1: np.eye(3)}, np.zeros(3)), input_shape=3)  # fmt: skip
    np.testing.assert_array_equal(net.folded().layers[0].unit_of, [0, 1, 1])

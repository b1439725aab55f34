"""PyTorch modules in; the oracle is the module's own forward pass in eval mode."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune
from torch_models import MODELS, LeNet, Parametrized, mlp, model, settle

import relunorm as rn
from relunorm.errors import (
    InvalidNetworkError,
    RelunormError,
    UnsupportedFormatError,
    UnsupportedOperationError,
)


class Lambda(nn.Module):
    """A module around a function of one tensor."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def inputs(shape, count=40, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=generator, dtype=dtype) * 2


def assert_same(network, module, shape, dtype=torch.float64):
    """Outputs agree relative to the largest one: 1e-12 in float64, 1e-6 in float32."""
    batch = inputs(shape, dtype=dtype)
    with torch.no_grad():
        # One at a time: the network is the module on a batch of one.
        expected = torch.cat([module(x[None]).reshape(1, -1) for x in batch]).double().numpy()
    found = network(batch.double().numpy())
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6}[dtype]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-300)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_architecture(name, dtype):
    module = model(name, dtype)
    _, shape, needs_shape = MODELS[name]
    network = rn.load(module, example=shape if needs_shape else None)
    assert network.input_shape == shape
    assert_same(network, module, shape, dtype)


def test_batch_as_example():
    module = model("lenet")
    assert_same(rn.load(module, example=inputs((1, 14, 14))), module, (1, 14, 14))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_read_exactly(dtype):
    module = model("mlp").to(dtype)
    assert_same(rn.load(module), copy.deepcopy(module).double(), (7,))


def test_training_mode_is_read_as_eval():
    module = model("mlp").train()
    assert_same(rn.load(module), copy.deepcopy(module).eval(), (7,))


def test_names_are_module_paths():
    names = [layer.name for layer in rn.load(model("lenet"), example=(1, 14, 14)).layers]
    assert names[0] == "features.1"
    assert names[-1] == "classifier.1"
    assert [layer.name for layer in rn.load(model("reused")).layers][:3] == [
        "act",
        "act#1",
        "clamp",
    ]


@st.composite
def architectures(draw):
    """A random stack of layers on a small image or vector."""
    shape = draw(st.sampled_from([(6,), (2, 9), (2, 6, 6), (1, 7, 5)]))
    axes = len(shape) - 1
    parts, channels = [], shape[0]
    conv = {1: nn.Conv1d, 2: nn.Conv2d}.get(axes)
    for _ in range(draw(st.integers(1, 3))):
        if conv is None:
            width = draw(st.integers(1, 8))
            parts.append(nn.Linear(channels, width, bias=draw(st.booleans())))
            channels = width
        else:
            groups = draw(st.sampled_from([g for g in (1, 2) if channels % g == 0]))
            width = 2 * draw(st.integers(1, 2))
            parts.append(
                conv(
                    channels,
                    width,
                    draw(st.integers(1, 3)),
                    stride=draw(st.integers(1, 2)),
                    padding=draw(st.integers(1, 2)),
                    dilation=draw(st.integers(1, 2)),
                    groups=groups,
                    bias=draw(st.booleans()),
                )
            )
            channels = width
        if draw(st.booleans()):
            parts.append(nn.BatchNorm2d(channels) if axes == 2 else nn.BatchNorm1d(channels))
        activations = [nn.ReLU(), nn.ReLU(inplace=True), nn.LeakyReLU(0.3), nn.ReLU6(), nn.PReLU()]
        parts.append(draw(st.sampled_from(activations)))
        parts.append(nn.Dropout(0.5))
    if axes == 2:
        pools = [nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1, 1), nn.AdaptiveAvgPool2d((2, 3))]
        parts.append(draw(st.sampled_from([*pools, nn.AdaptiveMaxPool2d(2)])))
    parts.append(nn.Flatten())
    module = nn.Sequential(*parts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw(st.integers(0, 1000)))
        for part in module.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    return settle(module).double().eval(), shape


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(architectures())
def test_generated_architectures(case):
    module, shape = case
    try:
        module(inputs(shape, 1))
    except RuntimeError:
        return  # the image shrank below a kernel
    assert_same(rn.load(module, example=shape), module, shape)


A = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

OPERATIONS = {
    "arithmetic": ((4,), lambda x: (3 - x) / 2 + x.neg() * 4 - torch.sub(x, 1, alpha=2)),
    "add alpha": ((4,), lambda x: torch.add(x.relu(), x, alpha=-0.5)),
    "broadcast": ((4, 1), lambda x: x + x.transpose(1, 2)),
    "matmul right": ((3, 4), lambda x: x @ A.T),
    "matmul left": ((4, 3), lambda x: A @ x),
    "matmul vector": ((3, 4), lambda x: x @ A[0]),
    "vector matmul": ((4, 3), lambda x: A[0] @ x),
    "addmm": ((4,), lambda x: torch.addmm(A[:, 0], x, A.T, beta=0.5, alpha=2)),
    "functional linear": ((4,), lambda x: F.linear(x, A, A[:, 1])),
    "mean and sum": ((3, 4), lambda x: x.mean(-1) + x.sum(2) - x.mean((1, 2)).unsqueeze(1)),
    "abs": ((4,), lambda x: torch.abs(x)),
    "clamp both": ((4,), lambda x: x.clamp(-0.5, 0.25)),
    "clamp max": ((4,), lambda x: x.clamp(max=0.5)),
    "clip below": ((4,), lambda x: torch.clip(x, min=-1)),
    "hardsigmoid": ((4,), F.hardsigmoid),
    "softshrink": ((4,), lambda x: F.softshrink(x, 0.7)),
    "rrelu": ((4,), lambda x: F.rrelu(x, 0.1, 0.4)),
    "heaviside": ((4,), lambda x: torch.heaviside(x, torch.tensor(0.25, dtype=x.dtype))),
    "maximum": ((4,), lambda x: torch.maximum(x, x.flip(1)) + torch.max(x, -x)),
    "maximum constant": ((4,), lambda x: torch.maximum(A[0], x)),
    "minimum": ((4,), lambda x: torch.minimum(x, 1 - x)),
    "amax": ((3, 5), lambda x: x.amax(2) + x.amax((1, 2)).unsqueeze(1)),
    "amin": ((3, 5), lambda x: x.amin(1, keepdim=True)),
    "max over axis": ((3, 5), lambda x: x.max(dim=1).values - x.min(dim=1)[0]),
    "view": ((2, 6), lambda x: x.view(x.shape[0], 3, -1).permute(0, 2, 1).contiguous()),
    "unflatten": ((6,), lambda x: x.unflatten(1, (2, 3)).flatten(1).reshape(-1, 3, 2)),
    "squeeze": ((1, 4), lambda x: x.squeeze(1).unsqueeze(0).squeeze(0)),
    "expand": ((1, 4), lambda x: x.expand(-1, 3, -1) + A[:3]),
    "repeat": ((4,), lambda x: x.repeat(1, 2)),
    "slices": ((6,), lambda x: torch.cat([x[:, ::2], x[:, -2:], x[:, 3:4]], 1)),
    "select": ((3, 4), lambda x: x[:, 1] - x[:, -1]),
    "index": ((5,), lambda x: x[:, [3, 0, 3]]),
    "index_select": ((5,), lambda x: x.index_select(1, torch.tensor([4, 1]))),
    "split": ((7,), lambda x: x.split(3, dim=1)[2] - x.split([1, 6], 1)[0]),
    "chunk": ((7,), lambda x: x.chunk(3, dim=1)[1]),
    "stack": ((4,), lambda x: torch.stack([x, x.relu(), A[:1]], dim=2)),
    "cat constant": ((4,), lambda x: torch.cat([A[:1], x], dim=1)),
    "pad": ((2, 3, 3), lambda x: F.pad(x, (1, 0, 2, -1)) + F.pad(x, (0, 1, 0, 1), value=2)),
    "pad modes": ((2, 4), lambda x: F.pad(x, (2, 1), "reflect") - F.pad(x, (1, 2), "replicate")),
    "pad circular": ((2, 4), lambda x: F.pad(x, (2, 1), "circular")),
    "pixel_shuffle": ((8, 2, 3), lambda x: F.pixel_shuffle(x, 2)),
    "avg_pool1d": ((2, 7), lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "avg_pool ceil": ((1, 6, 6), lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
    "avg_pool divisor": ((1, 6, 6), lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5)),
    "adaptive_avg_pool1d": ((2, 7), lambda x: F.adaptive_avg_pool1d(x, 3)),
    "adaptive_avg_pool2d": ((2, 5, 7), lambda x: F.adaptive_avg_pool2d(x, (2, None))),
    "adaptive_max_pool2d": ((2, 5, 7), lambda x: F.adaptive_max_pool2d(x, (3, 2))),
    "max_pool dilated": ((1, 7, 7), lambda x: F.max_pool2d(x, 2, 2, dilation=2)),
    "max_pool3d": ((1, 4, 4, 4), lambda x: F.max_pool3d(x, 2)),
    "conv3d": (
        (1, 3, 4, 3),
        lambda x: F.conv3d(x, A[:2, :1, None, None, None].expand(2, 1, 2, 2, 2)),
    ),
    "tensor constants": ((4,), lambda x: torch.where(A[0] > 0, 1.0, -1.0) * x),
    "conversion": ((4,), lambda x: x.to(torch.float64).type_as(A).double()),
    "zeros_like": ((4,), lambda x: torch.maximum(x, torch.zeros_like(x))),
    "no_grad block": ((4,), lambda x: _without_grad(x) + x),
    "in place": ((4,), lambda x: _in_place(x)),
}


def _without_grad(x):
    with torch.no_grad():
        y = torch.relu(x)
        return y * 2


def _in_place(x):
    y = x * 2
    z = y.relu_()
    z += 1
    w = y.view(-1, 2, 2)
    w.mul_(3)
    return w.flatten(1) - x


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name):
    shape, function = OPERATIONS[name]
    module = Lambda(function).eval()
    # Without parameters the example's type is the default one, here the oracle's.
    module.register_buffer("kind", torch.zeros((), dtype=torch.float64))
    assert_same(rn.load(module, example=shape), module, shape)


def snapshot(module):
    state = {
        name: (tensor.data_ptr(), tensor.clone(), tensor.requires_grad, tensor._version)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    grads = {name: p.grad for name, p in module.named_parameters()}
    modes = {name: (id(part), part.training) for name, part in module.named_modules()}
    hooks = {
        name: {key: list(value) for key, value in vars(part).items() if key.endswith("_hooks")}
        for name, part in module.named_modules()
    }
    keys = {name: sorted(vars(part)) for name, part in module.named_modules()}
    return state, grads, modes, hooks, keys


@pytest.mark.parametrize("name", ["mlp", "parametrized", "lenet", "reused"])
def test_module_is_not_changed(name):
    module = model(name).train()
    shape = MODELS[name][1]
    module(inputs(shape)).sum().backward()
    calls = []
    for part in module.modules():
        part.register_forward_hook(lambda *_: calls.append(1))
        part.register_forward_pre_hook(lambda *_: calls.append(1))
        part.register_full_backward_hook(lambda *_: calls.append(1))
    before, random = snapshot(module), torch.get_rng_state()
    with torch.enable_grad():
        rn.load(module, example=shape)
        assert torch.is_grad_enabled()
    after = snapshot(module)
    assert torch.equal(random, torch.get_rng_state())
    assert not calls
    assert before[2:] == after[2:]
    assert before[1].keys() == after[1].keys()
    assert all(before[1][key] is after[1][key] for key in before[1])
    for key, (pointer, value, needs, version) in before[0].items():
        same = after[0][key]
        assert (pointer, needs, version) == (same[0], same[2], same[3])
        assert torch.equal(value, same[1])


def test_hooks_that_compute_weights_are_respected():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    prune.l1_unstructured(module[0], "weight", 0.5)
    torch.nn.utils.spectral_norm(module[2])
    with torch.no_grad():
        module[0].weight_orig.mul_(2)  # the pruned weight is stale until the next forward pass
    stale = module[0].weight.clone()
    network = rn.load(module)
    assert torch.equal(module[0].weight, stale)
    assert_same(network, module.eval(), (4,))


@pytest.mark.filterwarnings("ignore")
def test_compiled_module_is_read_through():
    module = model("mlp")
    assert_same(rn.load(torch.compile(module)), module, (7,))


def test_module_that_cannot_be_copied():
    class Locked(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("cannot pickle 'lock' object")

    with pytest.raises(UnsupportedFormatError, match=r"cannot be copied.*lock"):
        rn.load(nn.Sequential(Locked(2, 2)))


def test_exported_program_with_dynamic_batch():
    module = model("resnet")
    program = torch.export.export(
        module, (inputs((3, 8, 8), 2),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    assert_same(rn.load(program), module, (3, 8, 8))


def test_exported_program_with_fixed_batch():
    module = model("resnet")
    program = torch.export.export(module, (inputs((3, 8, 8), 8),))
    assert_same(rn.load(program), module, (3, 8, 8))


@pytest.mark.parametrize("name", ["lenet", "densenet", "mlp", "pieces"])
@pytest.mark.filterwarnings("ignore")
def test_decomposed_program(name):
    module, shape = model(name), MODELS[name][1]
    program = torch.export.export(module, (inputs(shape, 1),)).run_decompositions()
    assert_same(rn.load(program), module, shape)


def test_program_with_open_sizes_needs_an_example():
    module = Lambda(lambda x: F.relu(x).mean((1, 2)))
    sizes = dict.fromkeys(range(3), torch.export.Dim.DYNAMIC)
    program = torch.export.export(module, (inputs((4, 5), 3),), dynamic_shapes=(sizes,))
    with pytest.raises(UnsupportedFormatError, match=r"leaves sizes open.*example="):
        rn.load(program)
    assert_same(rn.load(program, example=(6, 2)), module, (6, 2))


def test_example_that_contradicts_the_program():
    program = torch.export.export(model("mlp"), (inputs((7,), 1),))
    with pytest.raises(UnsupportedFormatError, match=r"shape \(8,\).*exported for"):
        rn.load(program, example=8)


def test_fixed_batch_that_is_mixed_is_refused():
    module = Lambda(lambda x: F.relu(x.view(2, 16)))
    program = torch.export.export(module, (inputs((8,), 4),))
    with pytest.raises(InvalidNetworkError, match=r"view.*cannot reshape"):
        rn.load(program)


def test_all_unsupported_operations_are_listed_with_their_paths():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.act = nn.GELU()
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            return self.norm(self.act(self.fc(x))) * torch.sigmoid(x)

    module = nn.Sequential(Block(), nn.ReLU(), Block(), nn.Softmax(dim=1))
    with pytest.raises(UnsupportedOperationError) as caught:
        rn.load(module)
    places = [place for place, _ in caught.value.operations]
    assert places == ["0.act", "0.norm", "0.sigmoid", "2.act", "2.norm", "2.sigmoid"]
    text = str(caught.value)
    assert "aten.gelu.default in GELU" in text
    assert "aten.layer_norm.default in LayerNorm" in text
    assert "Smooth activations" in text
    assert "Batch normalization" in text
    assert "read where a model ends in them" in text
    assert "docs/formats.md" in text


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * x, "both factors"),
        (lambda x: 1 / x, "divisor|reciprocal"),
        (lambda x: x.sum(0), "batch axis"),
        (lambda x: x - x.mean(), "batch axis"),
        (lambda x: x - x.amax(dim=(0, 1)), "batch axis"),
        (lambda x: F.dropout(x, 0.5), "random"),
        (lambda x: x + torch.rand(4), "random"),
        (lambda x: x.to(torch.int64), "int64"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "rounded"),
        (lambda x: F.linear(x[:, :2], x[:, 2:]), "weight depends"),
        (lambda x: _view_written_and_read(x), "in place"),
    ],
)
def test_refused_operations(function, reason):
    with pytest.raises(UnsupportedOperationError, match=reason):
        rn.load(Lambda(function), example=4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(0),
        lambda x: x.roll(1),
        lambda x: x[:1].expand_as(x),
        lambda x: x * x.shape[0],
        lambda x: x + torch.arange(x.shape[0])[:, None],
        lambda x: torch.diagonal(x),
        lambda x: x.amax(1).argmax(0),
        lambda x: torch.einsum("bi->i", x),
    ],
)
def test_what_mixes_a_batch_is_refused(function):
    with pytest.raises(UnsupportedFormatError, match="mixes the inputs of a batch"):
        rn.load(Lambda(function), example=4)
    if function(torch.zeros(3, 4)).shape[:1] == (3,):
        free = {0: torch.export.Dim("batch")}
        program = torch.export.export(Lambda(function), (torch.zeros(3, 4),), dynamic_shapes=[free])
        with pytest.raises(UnsupportedFormatError, match="mixes the inputs of a batch"):
            rn.load(program)


def _view_written_and_read(x):
    y = x * 2
    y[:, 0].mul_(5)
    return y


def test_batch_statistics_are_refused():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))
    with pytest.raises(UnsupportedOperationError, match=r"1: aten.batch_norm.*from the batch"):
        rn.load(module, example=(1, 5, 5))


def test_shapes_written_for_a_larger_batch_must_stay_consistent():
    module = Lambda(lambda x: F.relu(x.view(-1, 4)))
    program = torch.export.export(module, (inputs((8,), 4),))
    with pytest.raises(InvalidNetworkError, match="batch of one"):
        rn.load(program)


def test_buffer_written_in_forward_is_refused():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            self.count.add_(1)
            return self.fc(x) * self.count

    module = Counter()
    with pytest.raises(UnsupportedOperationError, match="buffer in place"):
        rn.load(module)
    assert module.count == 0


def test_convolution_asks_for_the_shape():
    with pytest.raises(
        UnsupportedFormatError, match=r"'features.0' reads 1 channel of.*example=\(1,"
    ):
        rn.load(LeNet())


@pytest.mark.parametrize(
    "function", [lambda x: F.relu(x), lambda x: F.linear(x.mean(-1, keepdim=True), A[:, :1])]
)
def test_shape_that_nothing_fixes(function):
    module = Lambda(function)
    module.spare = nn.Linear(3, 2)
    with pytest.raises(UnsupportedFormatError, match="not fixed by its first operation"):
        rn.load(module)


@pytest.mark.parametrize(
    "unit",
    [
        nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.3), nn.PReLU(), nn.Hardsigmoid(), nn.Hardtanh(),
        nn.Softshrink(), nn.RReLU(), nn.Threshold(0.0, 0.0), Lambda(torch.abs),
        Lambda(lambda x: torch.heaviside(x, torch.zeros(()))), Lambda(lambda x: x.clamp_max(0.5)),
        Lambda(lambda x: torch.maximum(x, -2 * x)), Lambda(lambda x: -x / 2 + 1),
    ],
)  # fmt: skip
def test_shape_that_is_fixed_behind_a_unit(unit):
    torch.manual_seed(0)
    module = nn.Sequential(unit, nn.Linear(3, 2)).eval()
    network = rn.load(module)
    assert network.input_shape == (3,)
    x = torch.linspace(-4, 4, 30).reshape(10, 3)
    np.testing.assert_allclose(network(x.numpy()), module(x).detach().numpy(), atol=1e-6)


def test_two_inputs():
    class Two(nn.Module):
        def forward(self, left, right):
            return left + right

    with pytest.raises(UnsupportedFormatError, match=r"2 inputs \(left, right\)"):
        rn.load(Two(), example=3)


def test_two_outputs():
    with pytest.raises(UnsupportedFormatError, match="2 outputs"):
        rn.load(Lambda(lambda x: (x, x + 1)), example=3)


def test_lazy_module():
    with pytest.raises(UnsupportedFormatError, match=r"0\.weight.*run the module once"):
        rn.load(nn.Sequential(nn.LazyLinear(3), nn.ReLU()), example=3)


def test_meta_device():
    with pytest.raises(UnsupportedFormatError, match="meta device"):
        rn.load(nn.Linear(2, 2, device="meta"))


def test_program_exported_in_training_mode():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    program = torch.export.export(module, (inputs((3,), 4, torch.float32),))
    with pytest.raises(UnsupportedOperationError, match="statistics from the batch"):
        rn.load(program)


def test_program_without_batch_axis():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).double()
    network = rn.load(torch.export.export(module, (torch.zeros(3, dtype=torch.float64),)))
    assert_same(network, module, (3,))


def test_nothing_is_printed(capfd):
    with pytest.raises(UnsupportedFormatError):
        rn.load(LeNet())
    rn.load(model("pieces"))
    assert capfd.readouterr() == ("", "")


def test_data_dependent_control_flow(capfd):
    module = Lambda(lambda x: x if x.sum() > 0 else -x)
    linear = nn.Linear(2, 2)
    guessed = Lambda(lambda x: linear(x) if x.sum() > 0 else x)
    guessed.linear = linear
    for asked, example in ((module, 3), (guessed, None)):
        with pytest.raises(UnsupportedFormatError, match=r"torch.export could not trace") as caught:
            rn.load(asked, example=example)
        assert "chooses by values of its input (test_torch_read.py, line" in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript():
    scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(UnsupportedFormatError, match="TorchScript"):
        rn.load(scripted)


def test_constant_output():
    with pytest.raises(InvalidNetworkError, match="does not depend on the input"):
        rn.load(Lambda(lambda x: torch.ones(1, 2)), example=3)


def test_weights_that_are_not_finite():
    module = mlp()
    with torch.no_grad():
        module[4].weight[0, 0] = torch.nan
    with pytest.raises(InvalidNetworkError, match="NaN"):
        rn.load(module)


def test_shapes_that_do_not_chain():
    with pytest.raises(RelunormError, match=r"mat1 and mat2|could not trace|shape"):
        rn.load(nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1)), example=2)


def test_parametrization_by_an_unusual_computation():
    class Exp(nn.Module):
        def forward(self, weight):
            return torch.linalg.matrix_exp(weight - weight.T).cumsum(0)

    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).double()
    nn.utils.parametrize.register_parametrization(module[0], "weight", Exp())
    assert_same(rn.load(module), module, (3,))


def test_copy_keeps_parametrizations_apart():
    module = Parametrized().double().eval()
    rn.load(module)
    assert nn.utils.parametrize.is_parametrized(module.a)


def test_a_convolution_without_an_example_is_one_sentence() -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        rn.load(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)))
    assert "example=(1, height, width)" in str(caught.value)
    assert "tried" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None

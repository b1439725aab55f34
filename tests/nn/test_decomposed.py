"""DecomposedBatchNorm against torch.nn.BatchNorm, and its single parts against NumPy."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import relunorm as rn
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.nn import DecomposedBatchNorm, decompose

SHAPES = {
    nn.BatchNorm1d: [(7, 3), (2, 1), (5, 3, 4), (2, 3, 1)],
    nn.BatchNorm2d: [(4, 3, 5, 2), (1, 2, 3, 1)],
    nn.BatchNorm3d: [(3, 2, 2, 3, 1), (1, 1, 2, 2, 2)],
}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def pair(kind, features, dtype, **options):
    torch.manual_seed(0)
    reference = kind(features, dtype=dtype, **options)
    if reference.affine:
        nn.init.normal_(reference.weight)
        nn.init.normal_(reference.bias)
    ours = DecomposedBatchNorm(features, dtype=dtype, **options)
    ours.load_state_dict(reference.state_dict())
    return reference, ours


def outcome(layer, x):
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * torch.arange(y.numel(), dtype=y.dtype).view_as(y).sin()).sum().backward()
    grads = [x.grad, *(p.grad for p in layer.parameters())]
    return [y.detach(), *grads, *(b.detach().clone() for b in layer.buffers() if b.dim())][:6]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False}, {"eps": 0.1}])
@pytest.mark.parametrize(("kind", "shape"), [(k, s) for k, v in SHAPES.items() for s in v])
def test_parity_with_torch(kind, shape, dtype, options):
    reference, ours = pair(kind, shape[1], dtype, **options)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        x = torch.randn(shape, generator=generator, dtype=dtype) * 3 + 1
        expected, found = outcome(reference, x), outcome(ours, x)
        for a, b in zip(expected, found, strict=False):
            torch.testing.assert_close(a, b, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    reference.eval()
    ours.eval()
    x = torch.randn(shape, generator=generator, dtype=dtype)
    for a, b in zip(outcome(reference, x), outcome(ours, x), strict=False):
        torch.testing.assert_close(a, b, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_without_running_statistics():
    reference, ours = pair(nn.BatchNorm1d, 3, torch.float64, track_running_stats=False)
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for mode in (True, False):
        assert torch.equal(reference.train(mode)(x), ours.train(mode)(x))


def test_state_dict_loads_both_ways():
    reference, ours = pair(nn.BatchNorm2d, 4, torch.float32)
    assert list(reference.state_dict()) == list(ours.state_dict())
    ours(torch.randn(3, 4, 2, 2))
    reference.load_state_dict(ours.state_dict())
    assert torch.equal(reference.running_var, ours.running_var)
    old = {k: v for k, v in reference.state_dict().items() if k != "num_batches_tracked"}
    ours.load_state_dict(dict(old))  # as written before torch counted batches


@pytest.mark.parametrize("parts", [{}, {"recenter": False}, {"rescale": False}])
def test_batch_of_one_is_torchs_error(parts):
    x = torch.zeros(1, 3)
    with pytest.raises(ValueError) as expected:
        nn.BatchNorm1d(3)(x)
    with pytest.raises(ValueError) as found:
        DecomposedBatchNorm(3, **parts)(x)
    assert str(found.value) == str(expected.value)
    assert DecomposedBatchNorm(3, **parts).eval()(x).shape == (1, 3)
    assert nn.BatchNorm1d(3)(torch.zeros(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(9, 2), (4, 2, 3), (3, 2, 2, 2)])
@pytest.mark.parametrize(
    ("recenter", "rescale", "statistic"),
    [
        (False, True, "auto"),
        (False, True, "std"),
        (True, False, "auto"),
        (False, False, "auto"),
        (True, True, "rms"),
    ],
)
def test_single_parts_against_numpy(shape, recenter, rescale, statistic):
    layer = DecomposedBatchNorm(
        2, recenter, rescale, statistic, eps=1e-3, momentum=0.25, dtype=torch.float64
    )
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, -1.0]))
        layer.bias.copy_(torch.tensor([0.5, 3.0]))
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) * 2 + 1
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes, keepdims=True)
    about = mean if recenter or statistic == "std" else 0.0
    square = ((x - about) ** 2).mean(axes, keepdims=True)
    channel = (1, 2) + (1,) * (x.ndim - 2)
    weight, bias = np.reshape([2.0, -1.0], channel), np.reshape([0.5, 3.0], channel)

    def normalized(mean, square):
        y = x - mean if recenter else x
        y = y / np.sqrt(square + 1e-3) if rescale else y
        return y * weight + bias

    found = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, normalized(mean, square), rtol=1e-12)
    count = x.size // 2
    running_mean = 0.25 * mean
    running_var = 0.75 + 0.25 * x.var(axes, keepdims=True) * count / (count - 1)
    np.testing.assert_allclose(layer.running_mean, running_mean.ravel(), rtol=1e-12)
    np.testing.assert_allclose(layer.running_var, running_var.ravel(), rtol=1e-12)
    fixed = layer.eval()(torch.from_numpy(x)).detach().numpy()
    second = running_var if recenter or statistic == "std" else running_var + running_mean**2
    np.testing.assert_allclose(fixed, normalized(running_mean, second), rtol=1e-12)


def test_gradients_of_single_parts():
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for parts in ({"recenter": False}, {"rescale": False}, {"recenter": False, "statistic": "std"}):
        layer = DecomposedBatchNorm(3, dtype=torch.float64, **parts)
        assert torch.autograd.gradcheck(layer, (x.clone().requires_grad_(),))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2, momentum=0.3)
        self.again = self.norm
        self.list = nn.ModuleList([nn.BatchNorm1d(4, affine=False), nn.ReLU()])

    def forward(self, x):
        return self.list[0](self.again(self.norm(self.conv(x))).flatten(2).flatten(1)[:, :4])


def test_decompose_keeps_the_function_and_the_original():
    model = Shared().double()
    model.norm.weight.requires_grad_(False)
    x = torch.randn(6, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model(x)
    before = copy.deepcopy(model.state_dict())
    changed = decompose(model)
    assert isinstance(model.norm, nn.BatchNorm2d)
    assert changed.norm is changed.again
    assert changed.norm.momentum == 0.3
    assert not changed.norm.weight.requires_grad
    assert changed.norm.bias.requires_grad
    for mode in (True, False):
        torch.testing.assert_close(changed.train(mode)(x), model.train(mode)(x))
    assert list(changed.state_dict()) == list(before)
    bare = decompose(nn.BatchNorm1d(3).eval(), recenter=False)
    assert isinstance(bare, DecomposedBatchNorm)
    assert not bare.training
    assert decompose(model, inplace=True) is model
    assert isinstance(model.norm, DecomposedBatchNorm)


def test_decompose_refuses_a_lazy_layer():
    model = nn.Sequential(nn.LazyBatchNorm1d())
    with pytest.raises(InvalidInputError, match="lazy"):
        decompose(model)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="channels"):
        DecomposedBatchNorm(3)(torch.zeros(2, 4))
    with pytest.raises(InvalidInputError, match="axes"):
        DecomposedBatchNorm(3)(torch.zeros(3))
    with pytest.raises(InvalidInputError, match="features"):
        DecomposedBatchNorm(0)
    with pytest.raises(InvalidInputError, match="statistic"):
        DecomposedBatchNorm(3, statistic="mad")


def test_reset():
    layer = DecomposedBatchNorm(3)
    layer(torch.randn(4, 3))
    layer.reset_parameters()
    assert layer.num_batches_tracked == 0
    assert torch.equal(layer.running_var, torch.ones(3))


@pytest.mark.parametrize(
    "parts", [{}, {"recenter": False}, {"rescale": False}, {"recenter": False, "rescale": False}]
)
def test_eval_mode_folds_into_a_network(parts):
    pytest.importorskip("relunorm.io.torch.read", reason="the torch reader is not in this tree")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 6), DecomposedBatchNorm(6, **parts), nn.ReLU(), nn.Linear(6, 2)
    ).double()
    for _ in range(3):
        model(torch.randn(20, 4, dtype=torch.float64) + 1)
    model.eval()
    network = rn.load(model, example=(4,)).folded()
    x = torch.randn(11, 4, dtype=torch.float64)
    np.testing.assert_allclose(network(x.numpy()), model(x).detach().numpy(), atol=1e-12)
    assert len(network.layers) == 1


def test_images_fold_too():
    pytest.importorskip("relunorm.io.torch.read", reason="the torch reader is not in this tree")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)
    ).double()
    model = decompose(model, recenter=False)
    model(torch.randn(8, 1, 6, 6, dtype=torch.float64))
    model.eval()
    x = torch.randn(5, 1, 6, 6, dtype=torch.float64)
    network = rn.load(model, example=(1, 6, 6))
    np.testing.assert_allclose(network(x.numpy()), model(x).detach().numpy(), atol=1e-12)


VARIANTS = [
    {},
    {"recenter": False},
    {"rescale": False},
    {"recenter": False, "statistic": "std"},
    {"recenter": False, "rescale": False},
]


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None)).double()
    x = torch.randn(4000, 4, dtype=torch.float64) + 2
    for part in x.split(50):
        model(part)
    return model, x


@pytest.mark.parametrize("through", ["decompose", "state dict", "twice"])
def test_a_trained_variance_is_no_second_moment(through):
    model, x = trained()
    if through == "decompose":
        changed = decompose(model, recenter=False)
    elif through == "twice":
        changed = decompose(decompose(model), recenter=False)
    else:
        changed = decompose(
            nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).double(), recenter=False
        )
        changed.load_state_dict(model.state_dict())
    z = model[0](x)
    expected = z / (z**2).mean(0).sqrt()
    torch.testing.assert_close(changed.eval()(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("parts", VARIANTS)
def test_meta_device(parts):
    layer = DecomposedBatchNorm(3, device="meta", **parts).to_empty(device="cpu")
    source = DecomposedBatchNorm(3, **parts)
    source(torch.randn(9, 3))
    layer.load_state_dict(source.state_dict())
    x = torch.randn(5, 3)
    assert torch.equal(layer.eval()(x), source.eval()(x))


@pytest.mark.parametrize("parts", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(parts, dtype):
    x = (torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) * 300 + 500).to(dtype)
    layer, wide = DecomposedBatchNorm(3, **parts), DecomposedBatchNorm(3, **parts)
    expected = wide(x.float())
    found = layer(x)
    assert found.dtype == layer.eval()(x).dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(layer.running_var, wide.running_var, rtol=1e-3, atol=0)
    pure = DecomposedBatchNorm(3, dtype=dtype, **parts)(x)
    torch.testing.assert_close(pure.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("parts", VARIANTS)
def test_autocast(parts):
    model = nn.Sequential(nn.Linear(3, 3), DecomposedBatchNorm(3, **parts))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.randn(4, 3)).dtype == torch.bfloat16


@pytest.mark.parametrize("parts", VARIANTS)
def test_an_empty_batch_changes_nothing(parts):
    layer = DecomposedBatchNorm(3, **parts)
    assert layer(torch.zeros(0, 3)).shape == (0, 3)
    assert torch.equal(layer.running_mean, torch.zeros(3))
    assert torch.equal(layer.running_var, torch.ones(3))


@pytest.mark.parametrize("parts", VARIANTS)
def test_tracking_switched_off_later(parts):
    layer, reference = DecomposedBatchNorm(3, **parts), nn.BatchNorm1d(3)
    for each in (layer, reference):
        each.track_running_stats = False
        each(torch.randn(4, 3))
    for name, value in reference.state_dict().items():
        assert torch.equal(layer.state_dict()[name], value)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("parts", VARIANTS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_script(parts, affine, momentum):
    layer = DecomposedBatchNorm(3, affine=affine, momentum=momentum, **parts)
    scripted = torch.jit.script(copy.deepcopy(layer))
    x = torch.randn(4, 3, 2)
    for mode in (True, False):
        torch.testing.assert_close(scripted.train(mode)(x), layer.train(mode)(x))


@pytest.mark.parametrize("parts", VARIANTS)
def test_symbolic_trace_keeps_the_layer_as_one_node(parts):
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(DecomposedBatchNorm(4, **parts)))
    plain = copy.deepcopy(model)
    traced = torch.fx.symbolic_trace(model)
    assert "1.0" in [node.target for node in traced.graph.nodes if node.op == "call_module"]
    x = torch.randn(6, 3)
    for training in (True, False):  # the mode is not frozen into the graph
        assert torch.equal(traced.train(training)(x), plain.train(training)(x))
    assert torch.equal(traced.get_submodule("1.0").running_var, plain[1][0].running_var)
    with pytest.raises(InvalidInputError, match="trace a model that holds it"):
        torch.fx.symbolic_trace(DecomposedBatchNorm(3, **parts))


def test_decompose_unusual_layers():
    bare = nn.BatchNorm1d(3, bias=False)
    x = torch.randn(5, 3)
    torch.testing.assert_close(decompose(bare)(x), bare(x))
    assert decompose(bare, rescale=False)(x).shape == (5, 3)
    for name in ("running_mean", "running_var"):
        setattr(bare, name, None)
    torch.testing.assert_close(decompose(bare).eval()(x), bare.eval()(x))
    late = nn.BatchNorm1d(3)
    late.track_running_stats = False
    torch.testing.assert_close(decompose(late)(x), late(x))


class Own(nn.BatchNorm1d):
    def forward(self, input):
        return 2 * super().forward(input)


def test_decompose_refuses_what_it_does_not_know():
    with pytest.raises(InvalidInputError, match=r"0 .Own.*forward of its own"):
        decompose(nn.Sequential(Own(3)))
    tied = nn.BatchNorm1d(3)
    nn.utils.parametrize.register_parametrization(tied, "weight", nn.Identity())
    with pytest.raises(InvalidInputError, match="parametrized"):
        decompose(tied)
    with pytest.raises(InvalidInputError, match="statistic"):
        decompose(nn.Linear(2, 2), statistic="q")
    with pytest.raises(InvalidInputError, match="features"):
        DecomposedBatchNorm(True)
    for model in (None, nn.BatchNorm1d, np.eye(2)):
        with pytest.raises(InvalidInputError, match="expected a torch module"):
            decompose(model)
    for bad in ({"eps": "a"}, {"eps": float("nan")}, {"momentum": "a"}):
        with pytest.raises(InvalidInputError, match="finite number"):
            DecomposedBatchNorm(3, **bad)
    with pytest.raises(InvalidInputError, match="eps is -1"):
        DecomposedBatchNorm(3, eps=-1)
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(InvalidInputError, match="real floats"):
            DecomposedBatchNorm(3, recenter=False)(torch.ones(4, 3, dtype=dtype))


def test_decompose_keeps_hooks_ties_and_optimizers():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    seen = []
    handle = model[0].register_forward_hook(lambda *_: seen.append(1))
    before = list(model.parameters())
    copied = decompose(model)
    assert copied[0].weight is copied[1].weight
    decompose(model, inplace=True)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    model(torch.randn(4, 3))
    copied(torch.randn(4, 3))
    assert len(seen) == 2
    handle.remove()
    model(torch.randn(4, 3))
    assert len(seen) == 2


def test_loading_names_layers_that_normalize_by_the_batch():
    """Without running statistics eval mode uses the batch: no function of one input."""
    for norm in (
        nn.BatchNorm1d(4, track_running_stats=False),
        DecomposedBatchNorm(4, rescale=False, track_running_stats=False),
    ):
        model = nn.Sequential(nn.Linear(3, 4), norm, nn.ReLU(), nn.Linear(4, 1)).eval()
        with pytest.raises(RelunormError, match=r": 1 keeps no running statistics"):
            rn.load(model)
        with pytest.raises(RelunormError, match="the batch"):
            rn.load(model, example=(3,))

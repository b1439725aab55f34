"""`constrain` and `live_init_` on shared, read and narrow weights."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from relunorm.errors import InvalidInputError, UnsupportedOperationError
from relunorm.nn import constrain, live_init_, release

X = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def net(*widths, **options):
    parts = []
    for a, b in pairwise(widths[:-1]):
        parts += [nn.Linear(a, b, **options), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(widths[-2], widths[-1])).double()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(2, 2) for _ in range(4))
        self.c.weight = self.b.weight

    def forward(self, x):
        return self.d(self.c(self.b(self.a(x).relu()).relu()).relu())


def test_tied_weights_are_refused_and_left_alone():
    module = Tied().double()
    before = module(X).detach()
    with pytest.raises(UnsupportedOperationError, match="shares its weights"):
        constrain(module, X)
    assert torch.equal(module(X), before)


class ReadsItsWeights(nn.Module):
    """Weights in forward: tied by a transpose, as a penalty, or as a number made of parameters."""

    def __init__(self, what):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.what = what

    def forward(self, x):
        value = self.b(torch.relu(self.a(x)))
        if self.what == "tied":
            return nn.functional.linear(value, self.a.weight.t())
        if self.what == "penalty":
            return self.c(value) + 1e-3 * self.b.weight.pow(2).sum()
        if self.what == "all":
            return self.c(value) + 1e-3 * sum(p.pow(2).sum() for p in self.parameters())
        return self.c(value) * self.c.bias.sum()


@pytest.mark.parametrize("what", ["tied", "penalty", "all"])
def test_weights_read_in_forward_are_refused_and_left_alone(what):
    module = ReadsItsWeights(what).double()
    before = module(X).detach()
    with pytest.raises(UnsupportedOperationError, match="forward reads the weights of"):
        constrain(module, X)
    assert torch.equal(module(X), before)


def test_weights_of_other_layers_may_be_read():
    module = ReadsItsWeights("output").double()
    before = module(X).detach()
    assert torch.allclose(constrain(module, X)(X), before)


@pytest.mark.parametrize("between", [nn.Identity(), nn.Tanh()])
def test_a_layer_behind_anything_else_has_no_known_interval(between):
    """Its width equals the domain's, so only the graph can tell that the domain is not its own."""
    module = nn.Sequential(nn.Linear(2, 2), between, nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(InvalidInputError, match="layer '2' reads neither"):
        constrain(module.double(), X)


def test_reshaping_the_input_is_followed():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    data = torch.rand(10, 2, 2, dtype=torch.float64)
    before = module(data).detach()
    constrain(module, data.flatten(1))
    assert torch.allclose(module(data), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_floats(dtype):
    module, data = net(2, 6, 1).to(dtype), X.to(dtype)
    before = module(data).detach()
    constrain(module, data)
    size = torch.finfo(dtype).eps * (1 + float(before.abs().max()))
    assert bool(((release(module)(data) - before).abs() < 20 * size).all())


def test_weights_that_are_not_numbers_are_refused():
    module = net(2, 4, 1)
    with torch.no_grad():
        module.get_parameter("0.weight")[1] = float("nan")
    with pytest.raises(InvalidInputError, match="layer '0' holds NaN"):
        constrain(module, X)


def test_dropout_no_bias_copies_and_averages():
    module = nn.Sequential(
        nn.Linear(2, 6, bias=False), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1)
    ).double()
    constrain(module, X).eval()
    twin = copy.deepcopy(module)
    mean = torch.optim.swa_utils.AveragedModel(module)
    mean.update_parameters(module)
    assert torch.equal(twin(X), module(X))
    assert torch.allclose(mean(X), module(X))
    with torch.no_grad():
        twin.get_parameter("0.parametrizations.weight.original").mul_(-1)
    assert not torch.equal(twin(X), module(X))


def test_lbfgs_with_a_line_search_trains_a_constrained_module():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = live_init_(constrain(net(2, 8, 8, 1), X), X)
    target = (X[:, :1] - X[:, 1:]).abs()
    optimizer = torch.optim.LBFGS(module.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (module(X) - target).square().mean()
        loss.backward()
        return loss

    first = float(closure().detach())
    for _ in range(3):
        optimizer.step(closure)
    assert float(closure().detach()) < 0.1 * first


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X.numpy(), "found ndarray"),
        (torch.ones(3, 2, dtype=torch.long), "found torch.int64"),
        (X.float(), "cannot take data"),
        (torch.rand(3, 5, dtype=torch.float64), "cannot take data"),
        (X * float("nan"), "NaN or infinite"),
        (X[:0], "at least one row"),
    ],
)
def test_live_init_checks_before_it_changes_anything(data, message):
    module = net(2, 4, 4, 1)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(InvalidInputError, match=message):
        live_init_(module, data)
    assert module.training
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())

"""Constrained modules under torch's own wrappers: compiled, copied, exported, saved, narrow."""

import copy
import io

import pytest
import torch
from torch import nn

from relunorm.errors import InvalidInputError
from relunorm.nn import constrain, live_init_, release

X = torch.rand(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = (X[:, :1] - X[:, 1:]).abs()


def plain(seed: int = 0) -> nn.Sequential:
    stream = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1)
    ).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=stream, dtype=p.dtype))
    return net


def train(net: nn.Module, x=X, y=Y, steps: int = 20, **autocast) -> list[float]:
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.2), []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=bool(autocast), **autocast):
            loss = (net(x).to(y) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def compile_eagerly():
    yield lambda net: torch.compile(net, backend="eager", fullgraph=True)
    torch.compiler.reset()


def test_compiled_training_is_the_same_training(compile_eagerly):
    net = live_init_(constrain(plain(), X), X)
    twin = copy.deepcopy(net)
    compiled = compile_eagerly(net)
    assert train(compiled) == train(twin)
    norms = net[0].weight.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    expected = net(X).detach()
    release(compiled)
    assert type(net[0]) is nn.Linear
    # the compiled program notices that the module has changed
    torch.testing.assert_close(compiled(X), expected)


@pytest.mark.parametrize("wrapper", ["compile", "parallel"])
def test_wrapped_modules_are_constrained_inside(wrapper, compile_eagerly):
    net = plain()
    expected = net(X).detach()
    outer = compile_eagerly(net) if wrapper == "compile" else nn.DataParallel(net)
    outer(X)
    assert constrain(outer, X) is outer
    torch.testing.assert_close(outer(X), expected)
    live_init_(outer, X)
    active = (net[0](X) > 0).sum(dim=0)
    assert bool(((active > 0) & (active < len(X))).all())
    assert train(outer)[-1] < 1.0
    assert type(release(outer)) is type(outer)
    assert type(net[0]) is nn.Linear


@pytest.mark.parametrize("training", [False, True])
def test_export_in_either_mode(training):
    net = constrain(plain(), X).train(training)
    program = torch.export.export(net, (X,))
    torch.testing.assert_close(program.module()(X), net(X))


def test_state_dict_round_trip_through_a_file():
    net = live_init_(constrain(plain(), X), X)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = constrain(plain(1), X)
    assert not torch.equal(other(X), net(X))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(X), net(X))
    unconstrained = plain(2)
    unconstrained.load_state_dict(release(net).state_dict())
    assert torch.equal(unconstrained(X), other(X))


def test_bfloat16_autocast_trains_and_stays_in_the_reduced_space():
    x, y = X.float(), Y.float()
    net = live_init_(constrain(plain().float(), x), x)
    losses = train(net, x, y, 40, dtype=torch.bfloat16)
    assert losses[-1] < losses[0]
    norms = net[0].weight.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_what_has_no_weights_or_two_devices_is_refused():
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(InvalidInputError, match="'0' is on the meta device"):
        constrain(empty, X)
    net = constrain(plain(), X)
    held = net[0].parametrizations.bias[0]
    # what a replica of nn.DataParallel on a second device is given
    with pytest.raises(InvalidInputError, match="use DistributedDataParallel"):
        held(torch.empty(8, device="meta"))

"""constrain, release and live_init_ against the plain module's own outputs."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import relunorm.nn as rnn
from relunorm.domain import Ball, Box, Polytope
from relunorm.errors import InvalidInputError, UnsupportedOperationError


def mlp(widths: tuple[int, ...], seed: int = 0) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        linear = nn.Linear(a, b).double()
        for p in linear.parameters():
            p.data.copy_(torch.randn(p.shape, generator=generator) * 2)
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("widths", [(1, 9, 1), (2, 30, 3), (3, 8, 7, 6, 2), (1, 5, 5, 1)])
def test_function_on_the_domain_is_unchanged(widths):
    net = mlp(widths)
    x = torch.rand(200, widths[0], dtype=torch.float64) * 2 - 1
    before = net(x)
    rnn.constrain(net, Box.cube(widths[0]))
    # deep nets: biases grow to the size of the bounds, so rounding is relative to those
    torch.testing.assert_close(net(x), before, rtol=1e-9, atol=1e-8)
    for layer in list(net)[:-1:2]:
        norms = layer.weight.norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))
    plain = pickle.loads(pickle.dumps(rnn.release(net)))
    assert all(type(part) in (nn.Linear, nn.ReLU) for part in plain)
    torch.testing.assert_close(plain(x), before, rtol=1e-9, atol=1e-8)
    assert sorted(plain.state_dict()) == sorted(mlp(widths).state_dict())


@pytest.mark.parametrize(
    "domain",
    [
        Ball([0.5, 0.0], 1.0),
        Box([0.0, -2.0], [1.0, 3.0]),
        Polytope([[1.0, 0], [0, 1], [-1, -1]], [1.0, 1.0, 1.0]),
    ],
)
def test_every_domain_keeps_the_function(domain):
    net = mlp((2, 40, 2), seed=3)
    x = torch.from_numpy(domain.sample(300, 0))
    before = net(x)
    torch.testing.assert_close(rnn.constrain(net, domain)(x), before, rtol=1e-10, atol=1e-10)
    low, high = domain.bounding_box.support(net[0].weight.detach().numpy())
    b = net[0].bias.detach().numpy()
    assert (b <= -low + 1e-12).all()
    assert (b >= -high - 1e-12).all()


def test_always_active_and_dead_units_meet_their_interval():
    net = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    net[0].weight.data = torch.tensor([[2.0], [-1.0], [0.0]], dtype=torch.float64)
    net[0].bias.data = torch.tensor([10.0, -7.0, 3.0], dtype=torch.float64)
    x = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None]
    before = net(x)
    rnn.constrain(net, Box([0.0], [1.0]))
    torch.testing.assert_close(net(x), before)
    assert net[0].bias.tolist() == [0.0, 0.0, -1.0]


@pytest.mark.parametrize("widths", [(1, 4, 1), (3, 4, 2), (2, 4, 3, 1)])
def test_gradients(widths):
    net = mlp(widths, seed=1)
    for layer in list(net)[::2]:
        layer.bias.data *= 0.02  # thresholds inside their interval: at its ends there is a kink
    rnn.constrain(net, Box.cube(widths[0]))
    x = torch.rand(6, widths[0], dtype=torch.float64)
    names = [name for name, _ in net.named_parameters()]

    def loss(*values):
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(net, given, (x,)).square().sum()

    net.eval()
    values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
    assert torch.autograd.gradcheck(loss, values)


def test_trains_with_any_optimizer_and_stays_inside():
    x = torch.linspace(-1, 1, 64, dtype=torch.float64)[:, None]
    y = (3 * x).sin()
    net = rnn.live_init_(rnn.constrain(mlp((1, 12, 1)), x), x)
    first = (net(x) - y).square().mean().item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for _ in range(300):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * first
    b, w = net[0].bias.detach(), net[0].weight.detach()
    assert bool((w.abs() == 1).all())
    assert bool((b.abs() <= 1 + 1e-12).all())


def test_functional_relu_dropout_and_two_readers():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 6), nn.Linear(6, 1), nn.Linear(6, 2)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            h = self.drop(torch.relu(self.a(x)))
            return torch.cat([self.b(h), self.c(h)], dim=-1)

    net = Two().double().eval()
    x = torch.rand(30, 2, dtype=torch.float64)
    before = net(x)
    torch.testing.assert_close(rnn.constrain(net, x)(x), before)


def test_what_cannot_be_rescaled_is_listed():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.b(x + torch.relu(self.a(x)))

    with pytest.raises(UnsupportedOperationError, match="a: its ReLU feeds"):
        rnn.constrain(Residual(), Box.cube(2))
    with pytest.raises(InvalidInputError, match="no Linear layer followed by ReLU"):
        rnn.constrain(nn.Linear(2, 1), Box.cube(2))
    net = rnn.constrain(mlp((2, 3, 1)), Box.cube(2))
    with pytest.raises(InvalidInputError, match="release first"):
        rnn.constrain(net, Box.cube(2))


@pytest.mark.parametrize("constrained", [False, True])
def test_live_init_leaves_no_dead_unit(constrained):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 3)))
    net = mlp((3, 50, 40, 30, 1))
    if constrained:
        rnn.constrain(net, x)
    net[2].eval()
    rnn.live_init_(net, x, torch.Generator().manual_seed(4))
    assert [part.training for part in net[:4]] == [True, True, False, True]
    h = x
    for part in net:
        h = part(h)
        if isinstance(part, nn.ReLU):
            active = (h > 0).sum(dim=0)
            assert bool(((active > 0) & (active < len(x))).all())
    assert net.training


@pytest.mark.parametrize("rows", [2, 3, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_live_init_on_few_rows(rows, dtype):
    for seed in range(25):
        stream = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, 1, generator=stream, dtype=dtype) + 100.0 * (seed % 2)
        net = mlp((1, 4, 3, 2), seed).to(dtype)
        rnn.live_init_(rnn.constrain(net, x), x, stream)
        h = x
        for part in net[:4]:
            h = part(h)
            if isinstance(part, nn.ReLU):
                active = (h > 0).sum(dim=0)
                assert bool(((active > 0) & (active < rows)).all())


def test_live_init_passes_over_ties_and_copes_with_equal_rows():
    x = torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    net = rnn.live_init_(mlp((1, 30, 1)), x)
    assert set((net[0](x) > 0).sum(dim=0).tolist()) == {2, 3}
    net = rnn.live_init_(mlp((1, 5, 1)), torch.ones(4, 1, dtype=torch.float64))
    assert bool(net[0](torch.ones(1, 1, dtype=torch.float64)).abs().max() < 1e-12)


def test_gradients_straight_after_live_init():
    x = torch.from_numpy(np.random.default_rng(3).normal(size=(7, 1)))
    net = rnn.live_init_(rnn.constrain(mlp((1, 4, 3, 2)), x), x).eval()
    names = [name for name, _ in net.named_parameters()]

    def loss(*values):
        held = dict(zip(names, values, strict=True))
        return torch.func.functional_call(net, held, (x,)).square().sum()

    values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
    assert torch.autograd.gradcheck(loss, values)


@pytest.mark.parametrize("first", ["copy", "original"])
def test_release_leaves_copies_alone(first):
    net = mlp((2, 6, 5, 1))
    x = torch.rand(30, 2, dtype=torch.float64)
    rnn.constrain(net, x)
    before, snapshot = net(x).detach(), copy.deepcopy(net)
    one, other = (snapshot, net) if first == "copy" else (net, snapshot)
    rnn.release(one)
    torch.testing.assert_close(other(x), before)
    torch.testing.assert_close(one(x), before)
    assert isinstance(one[0].weight, nn.Parameter)
    # the other is still constrained, and can be released too
    norms = other[0].weight.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    torch.testing.assert_close(rnn.release(other)(x), before)
    assert type(one[0]) is type(other[0]) is nn.Linear


@pytest.mark.parametrize("domain", ["box", None, [["a", "b"]], object()])
def test_a_domain_that_is_none_is_named(domain):
    with pytest.raises(InvalidInputError, match=r"expected a Domain or data of shape \(n, d\)"):
        rnn.constrain(mlp((2, 3, 1)), domain)


def test_deep_threshold_that_the_printed_bound_forbids():
    # docs/errata, seed 001: on the unit ball (4.5) asks for |b| <= 2, but this network needs -2.1
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1), nn.ReLU(), nn.Linear(1, 1))
    net = net.double()
    for part, weight, bias in (
        (net[0], torch.eye(6), 0.9),
        (net[2], torch.ones(1, 6) / 6**0.5, -2.1),
        (net[4], torch.ones(1, 1), 0.0),
    ):
        part.weight.data = weight.double()
        part.bias.data = torch.full_like(part.bias.data, bias)
    x = torch.full((1, 6), 6**-0.5, dtype=torch.float64)
    before = net(x)
    rnn.constrain(net, Ball(np.zeros(6), 1.0))
    torch.testing.assert_close(net(x), before)
    assert net[2].bias.item() == pytest.approx(-2.1)
    assert before.item() == pytest.approx(6**0.5 * (6**-0.5 + 0.9) - 2.1)

"""Revival callbacks on models that are wrapped, compiled, tied or changed while they train."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from relunorm.dying import ContinualBackprop, Reviver, redo_
from relunorm.errors import InvalidInputError

X = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))


def net() -> nn.Sequential:
    gen = torch.Generator().manual_seed(1)
    model = nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1)
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen) * 0.5)
    return model


def continual(model, steps=6, change=None, call=None, rate=0.2):
    """Train with continual backprop; ``change`` happens half way. Revived units per site."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found: dict[str, int] = {}
    with ContinualBackprop(model, X, optimizer, rate=rate, maturity=1) as revival:
        for step in range(steps):
            optimizer.zero_grad()
            (call or model)(X).square().mean().backward()
            optimizer.step()
            for name, units in revival.step().units.items():
                found[name] = found.get(name, 0) + len(units)
            if change is not None and step == steps // 2:
                change(model, optimizer)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return found


def test_data_parallel_revives_what_the_module_alone_does():
    expected = continual(net())
    assert sum(expected.values()) > 3
    assert continual(nn.DataParallel(net())) == expected
    inner = net()
    assert continual(inner, call=nn.DataParallel(inner)) == expected


def test_replicas_that_read_with_weights_of_their_own():
    model = net()

    def call(x):  # what torch.nn.parallel.replicate does, without a second device
        replica = model._replicate_for_data_parallel()
        for key, child in model._modules.items():
            copied = child._replicate_for_data_parallel()
            for name, parameter in child.named_parameters(recurse=False):
                setattr(copied, name, parameter.clone())
            replica._modules[key] = copied
        made = []
        thread = threading.Thread(target=lambda: made.append(replica(x)))
        thread.start()
        thread.join()
        return made[0]

    assert sum(continual(model, call=call).values()) > 3


def test_a_compiled_copy_is_not_seen_and_that_is_said():
    model = net()
    with pytest.raises(InvalidInputError, match="no forward pass"):
        continual(model, call=torch.compile(model, backend="eager"))
    model = net()
    compiled = torch.compile(model, backend="eager")
    with (
        Reviver(model, X, every=2) as reviver,
        pytest.raises(InvalidInputError, match="no forward pass"),
    ):
        for _ in range(2):
            compiled(X)
            reviver.step()
    with pytest.raises(InvalidInputError, match="compiled"):
        ContinualBackprop(compiled, X)


def test_tied_weights_are_refused_with_the_reason():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.c(self.b(self.a(x).relu()).relu())

    with pytest.raises(InvalidInputError, match="can have its units replaced"):
        ContinualBackprop(Tied(), X)


def test_a_weight_replaced_while_training_is_followed():
    def change(model, optimizer):
        model[2].weight = nn.Parameter(model[2].weight.detach().clone())
        optimizer.add_param_group({"params": [model[2].weight]})

    assert continual(net(), change=change) == continual(net())


@pytest.mark.parametrize("width", [6, 5])
def test_a_layer_replaced_while_training_is_followed(width):
    seen = []

    def change(model, optimizer):
        seen.append(model[2])
        seen.append(model[2].weight.detach().clone())
        model[2], model[4] = nn.Linear(8, width), nn.Linear(width, 1)

    model = net()
    revived = continual(model, steps=12, change=change, rate=0.3)
    assert revived["3"] > 0
    assert torch.equal(seen[0].weight, seen[1])  # the old layer is left alone
    assert (model[4].weight == 0).any()  # the new reader of replaced units is not


def test_a_silent_site_after_one_that_was_not_is_replaced_too():
    """The outputs move with the dormant units of the first; the second must not pay for it."""
    model = net()
    with torch.no_grad():
        model[0].weight[2:] *= 1e-2
        model[0].bias[2:] = 1e-2
        model[2].bias[3] = -1e3
    found = redo_(model, X, tau=0.3)
    assert set(found.units) == {"1", "3"}
    assert 3 in found.units["3"]
    assert not found.skipped

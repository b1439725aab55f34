"""Revival beside other tools: gradient scalers, open monitors, arguments that do not fit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from relunorm.dying import (
    ContinualBackprop,
    DeadUnitMonitor,
    Reviver,
    lsuv_,
    redo_,
    revive_live_,
    wiring,
)
from relunorm.dying.revive.optimizer_state import FreshUnits
from relunorm.errors import InvalidInputError


def half_dead() -> nn.Sequential:
    gen = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen) * 0.5)
        model[0].bias[:5] = -50.0
    return model


def rows(width: int = 4) -> torch.Tensor:
    return torch.randn(64, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("overflow", [False, True])
def test_a_fused_optimizer_under_a_scaler_does_as_a_plain_one_without(kind, overflow):
    """The oracle: no scaler, no fused kernel, and no step at all where a gradient overflows."""
    x, start = rows(), half_dead()
    plain, fused = copy.deepcopy(start), copy.deepcopy(start)
    simple = kind(plain.parameters(), lr=0.01, fused=False)
    quick = kind(fused.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(40):
        if step == 20:
            assert revive_live_(plain, x, simple).count == revive_live_(fused, x, quick).count == 5
        broken = overflow and step in (20, 25)
        for model, optimizer in ((plain, simple), (fused, quick)):
            optimizer.zero_grad()
            loss = ((model(x) - 1) ** 2).mean()
            if model is fused:
                scaler.scale(loss).backward()
                if broken:
                    fused[0].weight.grad[0, 0] = torch.inf
                scaler.step(quick)
                scaler.update()
            elif not broken:
                loss.backward()
                simple.step()
    for one, two in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-5)


def test_the_packages_own_passes_are_seen_by_no_open_monitor():
    model, x = half_dead(), rows()
    optimizer = torch.optim.Adam(model.parameters())
    with DeadUnitMonitor(model) as monitor, DeadUnitMonitor(model[1]) as inner:
        model(x)
        wiring(model, x)
        assert revive_live_(model, x, optimizer).count == 5
        redo_(model, x, optimizer, tau=0.5)
        with ContinualBackprop(model, x, optimizer, rate=0.5, maturity=0) as continual:
            continual._means = {"1": torch.ones(16)}  # as if a replica had run: means are missing
            assert continual.step().count == 8
        lsuv_(model, x)
        with pytest.raises(InvalidInputError):
            redo_(model, rows(5))
        assert (monitor.batches, inner.batches) == (1, 1)
        model(x)
    assert (monitor.batches, inner.batches) == (2, 2)
    assert monitor.report()["1"].ran == 2


@pytest.mark.parametrize("revive", [redo_, revive_live_])
def test_arguments_that_do_not_fit_are_named(revive):
    model, x = half_dead(), rows()
    before = copy.deepcopy(model.state_dict())
    for match, batch, options in (
        ("ndarray", x.numpy(), {}),
        (r"\(64, 5\)", rows(5), {}),
        ("report", x, {"report": 5}),
        ("random_state", x, {"random_state": "a"}),
    ):
        with pytest.raises(InvalidInputError, match=match):
            revive(model, batch, **options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("bad", ["a", -1.0, float("nan")])
def test_tau(bad):
    with pytest.raises(InvalidInputError, match="tau"):
        redo_(half_dead(), rows(), tau=bad)


@pytest.mark.parametrize("call", [redo_, revive_live_, Reviver, ContinualBackprop, wiring, lsuv_])
def test_what_is_no_batch_is_refused_before_anything_is_changed(call):
    model = half_dead()
    before = copy.deepcopy(model.state_dict())
    loader = torch.utils.data.DataLoader([1, 2])
    for wrong in (torch.optim.Adam(model.parameters()), model, None, "x", 3, (), loader):
        with pytest.raises(InvalidInputError, match=r"batch is .*expected an input of the model"):
            call(model, wrong)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_schedules_check_their_arguments():
    model, x = half_dead(), rows()
    options: dict[str, Any]
    for options in ({"every": 1.5}, {"every": "a"}, {"window": "a"}, {"until": 2.5}):
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            Reviver(model, x, **options)
    for options in ({"rate": "a"}, {"maturity": 1.5}, {"decay": None}):
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            ContinualBackprop(model, x, **options)
    for other in (torch.optim.Adam(half_dead().parameters()), 3):
        for schedule in (Reviver, ContinualBackprop):
            with pytest.raises(InvalidInputError, match="optimizer"):
                schedule(model, x, other)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("closure", "amsgrad"), [(True, False), (False, True), (True, True)])
def test_fresh_units_with_closures_and_amsgrad(closure, amsgrad):
    gen = torch.Generator().manual_seed(0)
    gradients = torch.randn(120, 4, generator=gen, dtype=torch.float64)
    joint = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([joint], lr=0.01, amsgrad=amsgrad)

    def step(each, parameter, g):
        def give():
            parameter.grad = g.clone()

        each.step(give) if closure else (give(), each.step())

    for g in gradients[:40]:
        step(optimizer, joint, g)
    FreshUnits(optimizer).reset(joint, (torch.tensor([3]),))
    new = joint.detach()[3:].clone().requires_grad_()
    newborn = torch.optim.Adam([new], lr=0.01, amsgrad=amsgrad)
    for g in gradients[40:]:
        step(optimizer, joint, g)
        step(newborn, new, g[3:])
        np.testing.assert_allclose(joint.detach()[3:], new.detach(), rtol=1e-9)

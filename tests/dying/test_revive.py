"""Revival: wiring, the right axes, the function kept, optimizer state per unit."""

from __future__ import annotations

import copy
import itertools
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import relunorm.dying as dying
from relunorm.dying.revive.optimizer_state import FreshUnits
from relunorm.dying.revive.replace import replace_
from relunorm.errors import InvalidInputError


def seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen, dtype=p.dtype) * 0.5)
    return model


def data(*shape: int, seed: int = 1) -> torch.Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=gen, dtype=torch.float64)


def dense() -> nn.Module:
    layers = (
        nn.Linear(3, 6),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(6, 5),
        nn.ReLU(),
        nn.Linear(5, 2),
    )
    return seeded(nn.Sequential(*layers).double())


def conv() -> nn.Module:
    return seeded(
        nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4 * 9, 3),
        ).double()
    )  # fmt: skip


def test_wiring_of_awkward_modules():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            h = F.relu(self.a(x))
            return self.c(F.relu(self.b(h)) + h)

    first, second = dying.wiring(Mixed(), torch.zeros(2, 3))
    assert "mixes units" in first.problem
    assert "mixes units" in second.problem
    one, two = dying.wiring(dense(), data(2, 3))
    assert (one.source[0], one.readers[0].name, two.source[0]) == ("0", "3", "3")
    (site,) = dying.wiring(conv(), data(1, 2, 8, 8))
    assert (site.source[0], site.norm[0], site.readers[0].spread) == ("0", "1", 9)
    shared = nn.Linear(3, 3)
    a, b = dying.wiring(
        nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(3, 1)), torch.zeros(1, 3)
    )
    assert "several rectifiers" in a.problem
    assert "several rectifiers" in b.problem


@pytest.mark.parametrize("share", [None, (0.2, 0.8)])
def test_dead_units_are_replaced_and_the_function_is_kept(share):
    model = dense().eval()
    model[0].bias.data[[1, 4]] = -1e3
    x = data(200, 3)
    before = model(x)
    kept = copy.deepcopy(model)
    call = dying.redo_ if share is None else dying.revive_live_
    found = call(model, x, tau=0.0) if share is None else call(model, x, share=share)
    assert found.units["1"] == (1, 4)
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-14)
    assert (model[3].weight[:, [1, 4]] == 0).all()
    others = [0, 2, 3, 5]
    assert torch.equal(model[0].weight[others], kept[0].weight[others])
    assert torch.equal(model[3].weight[:, others], kept[3].weight[:, others])
    active = (model[0](x)[:, [1, 4]] > 0).double().mean(0)
    if share is not None:
        assert ((active >= 0.19) & (active <= 0.81)).all()


def test_nearly_dead_units_are_replaced_when_asked():
    model, x = dense().eval(), data(200, 3)
    share = (model[0](x) > 0).double().mean(0)
    least = float(share.sort().values[1])
    found = dying.revive_live_(model, x, least=least)
    assert set(found.units["1"]) == set((share <= least).nonzero()[:, 0].tolist())
    with pytest.raises(InvalidInputError, match="least"):
        dying.revive_live_(model, x, least=1.0)


def test_flattened_channels_own_several_columns():
    model = conv().eval()
    x = data(20, 2, 8, 8)
    model[1].weight.data[2], model[1].bias.data[2] = 0.0, -1.0
    before = model(x)
    found = dying.redo_(model, x, tau=0.0)
    assert found.units["2"] == (2,)
    zero = (model[5].weight == 0).all(0).nonzero()[:, 0].tolist()
    assert zero == list(range(18, 27))
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-14)
    assert model[1].weight[2] == 1
    assert model[1].bias[2] == 0


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.99)),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_of_replaced_units_are_zero_and_others_untouched(name):
    model = dense().eval()
    optimizer = OPTIMIZERS[name](model.parameters())
    x, y = data(64, 3), data(64, 2, seed=2)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    before = copy.deepcopy(optimizer.state_dict()["state"])
    replace_(model, x, {"1": [2]}, optimizer)
    after = optimizer.state_dict()["state"]
    touched = {0: np.s_[2], 1: np.s_[2], 2: np.s_[:, 2]}
    for index, state in after.items():
        for key, value in state.items():
            if not torch.is_tensor(value) or value.ndim == 0:
                continue
            expected = before[index][key].clone()
            if index in touched:
                expected[touched[index]] = 0
            assert torch.equal(value, expected), (index, key)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kind", "kwargs", "wide"),
    [("Adam", {}, 11), ("Adam", {"weight_decay": 0.1}, 11), ("AdamW", {"betas": (0.8, 0.99)}, 11),
     ("Adam", {"betas": (0.0, 0.999)}, 11), ("Adam", {"foreach": False, "maximize": True}, 11),
     ("AdamW", {"fused": True, "amsgrad": True}, 11), ("AdamW", {"fused": True}, 16),
     *[("Adam", {"fused": True, "weight_decay": 0.1}, wide) for wide in (11, 16)]],
)  # fmt: skip
def test_reset_units_follow_a_fresh_adam_and_the_rest_go_on(kind, kwargs, wide, dtype):
    """The oracle: the same optimizer without resets for the rest, a new one for the new units."""
    make = partial(getattr(torch.optim, kind), lr=0.01, **kwargs)
    gen = torch.Generator().manual_seed(0)
    gradients = torch.randn(250, 9, wide, generator=gen, dtype=dtype)
    joint = torch.randn(9, wide, generator=gen, dtype=dtype).requires_grad_()
    plain = joint.detach().clone().requires_grad_()
    optimizer, oracle = make([joint]), make([plain])
    for g in gradients[:50]:
        joint.grad, plain.grad = g.clone(), g.clone()
        optimizer.step()
        oracle.step()
    fresh, rows, columns = FreshUnits(optimizer), [4, 5], [0, 7, 10]
    fresh.reset(joint, (torch.tensor(rows),))
    fresh.reset(joint, (slice(None), torch.tensor(columns)))
    is_new = torch.zeros(9, wide, dtype=torch.bool)
    is_new[rows], is_new[:, columns] = True, True
    new = joint.detach().clone().requires_grad_()
    newborn = make([new])
    loose = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 0, "atol": 3e-5}
    for g in gradients[50:]:
        joint.grad, plain.grad, new.grad = g.clone(), g.clone(), g.clone()
        for each in (optimizer, oracle, newborn):
            each.step()
        np.testing.assert_array_equal(joint.detach()[~is_new], plain.detach()[~is_new])
        np.testing.assert_allclose(joint.detach()[is_new], new.detach()[is_new], **loose)
    assert fresh.young == 5
    fresh.close()
    assert not optimizer._optimizer_step_post_hooks
    assert torch.equal(joint.grad, gradients[-1])
    assert float(optimizer.state[joint]["step"]) == 250


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("way", ["closed", "saved", "loaded back"])
def test_young_units_go_on_from_a_saved_state_and_after_closing(way, amsgrad):
    """Divided by 1 - beta^t their moments are those of a fresh optimizer, so no step is large."""
    joint = data(5, 3).requires_grad_()
    make = partial(torch.optim.Adam, lr=0.01, amsgrad=amsgrad)
    optimizer = make([joint])
    fresh, gradients = FreshUnits(optimizer), data(60, 5, 3, seed=3)
    for step, g in enumerate(gradients):
        if step == 50:
            fresh.reset(joint, (torch.tensor([1, 3]),))
            new = joint.detach()[[1, 3]].clone().requires_grad_()
            newborn = make([new])
        joint.grad = g.clone()
        optimizer.step()
        if step >= 50:
            new.grad = g[[1, 3]].clone()
            newborn.step()
    own = copy.deepcopy(optimizer.state[joint])
    saved = optimizer.state_dict()
    for name, value in optimizer.state[joint].items():
        assert torch.equal(value, own[name])  # saving changes nothing
    if way == "closed":
        fresh.close()
    if way == "loaded back":
        optimizer.load_state_dict(saved)
    state = saved["state"][0] if way == "saved" else optimizer.state[joint]
    for beta, name in ((0.9, "exp_avg"), (0.999, "max_exp_avg_sq" if amsgrad else "exp_avg_sq")):
        found, expected = state[name] / (1 - beta**60), newborn.state[new][name] / (1 - beta**10)
        np.testing.assert_allclose(found[[1, 3]], expected, rtol=1e-12)
        assert torch.equal(state[name][[0, 2, 4]], own[name][[0, 2, 4]])
    assert bool(fresh.young) == (way == "saved")


@pytest.mark.parametrize("transposed", [False, True], ids=["compiled", "torch"])
def test_entries_whose_second_moment_overflows_stay_where_the_optimizer_left_them(transposed):
    start = torch.ones(6, 5).t() if transposed else torch.ones(5, 6)
    joint, plain = (start.clone().requires_grad_() for _ in range(2))
    optimizer, oracle = torch.optim.Adam([joint]), torch.optim.Adam([plain])
    fresh = FreshUnits(optimizer)
    for step in range(4):
        g = data(5, 6, seed=step).float()
        g[1, 2] = g[3, 3] = 1e25  # its square is beyond float32
        joint.grad, plain.grad = g.clone(), g.clone()
        optimizer.step()
        oracle.step()
        if step == 1:
            fresh.reset(joint, (torch.tensor([3]),))
            fresh.reset(joint, (slice(None), torch.tensor([0])))
    assert joint.isfinite().all()
    old = torch.ones(5, 6, dtype=torch.bool)
    old[3], old[:, 0] = False, False
    assert torch.equal(joint[old], plain[old])
    assert not torch.equal(joint[3], plain[3])


def test_a_unit_that_is_revived_again_has_one_age():
    model, x = dense().eval(), data(64, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).square().mean().backward()
    for _ in range(3):
        optimizer.step()
        replace_(model, x, {"1": [2]}, optimizer)
    assert len(optimizer._optimizer_step_post_hooks) == 1


@pytest.mark.parametrize("transposed", [False, True], ids=["compiled", "torch"])
@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [("Adam", {}), ("AdamW", {"amsgrad": True}), ("Adam", {"betas": (0.0, 0.99)})],
)
def test_rows_and_columns_of_any_age_follow_optimizers_of_their_own(kind, kwargs, transposed):
    """The oracle: one optimizer per entry, made anew when its row or column is reset."""
    make = partial(getattr(torch.optim, kind), lr=0.01, **kwargs)
    start = data(6, 5, 2).transpose(0, 1) if transposed else data(5, 6, 2)
    joint = start.clone(memory_format=torch.preserve_format).requires_grad_()
    assert joint.is_contiguous() != transposed
    places = list(np.ndindex(5, 6))
    alone = {at: start[at].clone().requires_grad_() for at in places}
    own = {at: make([alone[at]]) for at in places}
    optimizer = make([joint])
    fresh = FreshUnits(optimizer)
    rows, columns = {3: [1, 4], 20: [0], 21: [0, 1]}, {9: [2], 20: [0, 2, 5], 40: [1, 2, 3, 4]}
    for step, g in enumerate(data(60, 5, 6, 2, seed=5)):
        for index, new in (((), rows.get(step, [])), ((slice(None),), columns.get(step, []))):
            if new:
                fresh.reset(joint, (*index, torch.tensor(new)))
                own.update({at: make([alone[at]]) for at in places if at[len(index)] in new})
        joint.grad = torch.empty_like(joint).copy_(g)
        optimizer.step()
        for at in places:
            alone[at].grad = g[at].clone()
            own[at].step()
        expected = torch.stack([alone[at].detach() for at in places]).reshape(5, 6, 2)
        np.testing.assert_allclose(joint.detach(), expected, rtol=1e-9, atol=1e-12)
    assert fresh.young == 3 + 6


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_a_fused_step_gives_the_old_every_bit_and_the_young_their_age(kind, decay):
    """The oracles: torch's fused kernel without resets, and Adam written out in float64."""
    way = "none" if not decay else "added" if kind is torch.optim.Adam else "decoupled"
    start, gradients = data(40, 48).float(), data(60, 40, 48, seed=5).float()
    joint, plain = (start.clone().requires_grad_() for _ in range(2))
    optimizer, oracle = (kind([p], 0.01, weight_decay=decay, fused=True) for p in (joint, plain))
    p, (m, v, age) = start.double().numpy(), np.zeros((3, 40, 48))
    fresh, old = FreshUnits(optimizer), np.ones((40, 48), dtype=bool)
    rows, columns = {10: [1, 4, 7, *range(20, 40)], 30: [4, 9]}, {20: [2, 30], 40: [2]}
    for step, gradient in enumerate(gradients):
        for index, new in (((), rows.get(step)), ((slice(None),), columns.get(step))):
            if new:
                fresh.reset(joint, (*index, torch.tensor(new)))
                for each in (m, v, age, old):
                    each[(*index, new)] = 0
        joint.grad, plain.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        oracle.step()
        g = gradient.double().numpy() + (decay * p if way == "added" else 0)
        m, v, age = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2, age + 1
        p = p * (1 - 0.01 * decay) if way == "decoupled" else p
        p = p - 0.01 * m / (1 - 0.9**age) / (np.sqrt(v / (1 - 0.999**age)) + 1e-8)
        # sixty roundings of numbers below 8; a step is 0.01
        np.testing.assert_allclose(joint.detach(), p, rtol=0, atol=60 * 2**-22)
        assert torch.equal(joint[old], plain[old])
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[joint][name][old], oracle.state[plain][name][old])
        assert torch.equal(joint.grad, gradient)


def test_old_units_are_let_go():
    model = dense()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.5, 0.9))
    x, fresh = data(8, 3), FreshUnits(optimizer)
    for step in range(120):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if step == 3:
            fresh.reset(model[0].weight, (torch.tensor([0]),))
    assert not fresh.young
    assert not optimizer._optimizer_step_post_hooks


def test_the_pull_takes_back_a_share_of_the_way_and_leaves_what_rests():
    """By hand: rows begin at w, go to w + a, are pulled, go on to + b, and rest."""
    model = dense()
    first = copy.deepcopy(model.state_dict())
    x, ways = data(64, 3), [0.01 * data(6, 3, seed=9), 0.003 * data(6, 3, seed=10), 0.0]
    expected = first["0.weight"]
    with dying.Reviver(model, x, tau=0.0, every=2, pull=0.25) as reviver:
        for way in ways:
            with torch.no_grad():
                model[0].weight.add_(way)
                model[5].weight.add_(0.01)
            for _ in range(2):
                model(x)
                found = reviver.step()
            assert found is not None
            assert not found.count
            expected = expected + way
            if isinstance(way, torch.Tensor):
                home = first["0.weight"] - expected
                length = home.norm(dim=1, keepdim=True)
                expected = expected + 0.25 * way.norm(dim=1, keepdim=True) / length * home
            torch.testing.assert_close(model[0].weight.detach(), expected, rtol=1e-12, atol=1e-14)
    for name, value in model.state_dict().items():  # no biases, not the last layer
        if name != "0.weight":
            moved = 0.03 if name == "5.weight" else 0.0
            torch.testing.assert_close(value, first[name] + moved, rtol=1e-12, atol=1e-14)


def test_the_pull_leaves_the_optimum_of_a_fixed_table_where_it_is():
    """Full-batch descent on a fixed table comes to rest where its gradient is 0, pull or not."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    y = x.abs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.5], [-0.5]]))
        model[0].bias.fill_(0.1)
        model[2].weight.copy_(torch.tensor([[0.5, 0.6]]))
        model[2].bias.fill_(0.0)
    with dying.Reviver(model, x, optimizer, tau=0.0, every=5) as reviver:
        for _ in range(400):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            reviver.step()
    assert reviver.pull > 0
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-7


def test_the_rule_that_keeps_the_function_takes_no_pull():
    with pytest.raises(InvalidInputError, match="keeps the function"):
        dying.Reviver(dense(), data(4, 3), rule="live", pull=0.1)


def test_reviver_on_a_schedule():
    model = dense()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = data(64, 3), data(64, 2, seed=2)
    with dying.Reviver(model, x, optimizer, rule="live", every=4, until=8, window=2) as reviver:
        for step in range(12):
            if step in (2, 9):
                model[0].bias.data[3] = -1e3
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            reviver.step()
    assert [(at, r.count) for at, r in reviver.history] == [(4, 1), (8, 0)]
    assert not any(m._forward_hooks for m in model.modules())


def test_continual_backprop_replaces_the_least_useful_mature_unit():
    model = dense().eval()
    with torch.no_grad():
        model[3].weight[:, 2] = 1e-6  # hardly read
    x = data(64, 3)
    with dying.ContinualBackprop(model, x, rate=0.05, maturity=3, random_state=0) as rule:
        first = None
        for _ in range(10):
            model(x)
            revival = rule.step()
            if "1" in revival.units and first is None:
                first = revival.units["1"]
    assert first == (2,)
    assert set(rule.utilities()) == {"1", "4"}


def test_continual_backprop_moves_the_mean_into_the_bias():
    model = dense().eval()
    x = data(500, 3)
    hidden = model[1](model[0](x)).mean(0)
    expected = model[3].bias + model[3].weight[:, 1] * hidden[1]
    rule = dying.ContinualBackprop(model, x)
    model(x)
    rule.step()
    with torch.no_grad():
        rule._move_mean(rule.sites[0], torch.tensor([1]))
    torch.testing.assert_close(model[3].bias, expected, atol=1e-6, rtol=1e-6)
    rule.close()


def test_initialisations_are_reproducible_and_do_what_they_say():
    x = data(300, 3).float()

    def deep():
        sizes = (3, *[10] * 6, 1)
        parts = []
        for a, b in itertools.pairwise(sizes):
            parts += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*parts[:-1])

    for make in (
        lambda s: dying.he_(deep(), s),
        lambda s: dying.randomized_asymmetric_(deep(), s),
        lambda s: dying.lsuv_(deep(), x, s),
        lambda s: dying.live_(deep(), x, s),
    ):
        a, b, c = make(0), make(0), make(1)
        assert torch.equal(a[0].weight, b[0].weight)
        assert not torch.equal(a[0].weight, c[0].weight)
    lsuv = dying.lsuv_(deep(), x)
    value = x
    for layer in lsuv:
        value = layer(value)
        if isinstance(layer, nn.Linear):
            assert float(value.detach().std()) == pytest.approx(1, abs=0.05)
    live = dying.live_(deep(), x)
    with dying.DeadUnitMonitor(live) as monitor:
        live(x)
    assert monitor.report().dead == 0
    he_dead = [born_dead(lambda s: dying.he_(deep(), s), x, s) for s in range(10)]
    rai_dead = [
        born_dead(lambda s: dying.randomized_asymmetric_(deep(), s), x, s) for s in range(10)
    ]
    assert np.mean(rai_dead) < np.mean(he_dead)


def born_dead(make, x, seed):
    model = make(seed)
    with dying.DeadUnitMonitor(model) as monitor:
        model(x)
    return monitor.report().dead


def test_balancing_keeps_the_function():
    for model, x in ((dense().eval(), data(50, 3)), (conv().eval(), data(5, 2, 8, 8))):
        with torch.no_grad():
            model[0].weight *= 1e-3
        before = model(x)
        sites = dying.balance_(model, x)
        torch.testing.assert_close(model(x), before, rtol=1e-11, atol=1e-12)
        if sites:
            inner = model[3].weight.square().sum(1) + model[3].bias.square()
            torch.testing.assert_close(inner, model[5].weight.square().sum(0))
    assert sites == []  # a batch norm stands in between


class Shared(nn.Module):
    """Ways in which a unit's parameters or values also serve something else."""

    def __init__(self, kind: str):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))
        self.kind = kind
        if kind == "tied":
            self.c.weight = self.b.weight

    def forward(self, x):
        z = self.a(x)
        y = self.b(F.relu(z))
        if self.kind == "tied":
            return y + self.c(x)
        if self.kind == "reader called twice":
            return y + self.b(x)
        if self.kind == "source called twice":
            return y + self.a(x - 1)
        if self.kind == "before and after":
            return y + z
        if self.kind == "returned":
            return {"y": y, "more": [F.relu(z)]}
        h = F.relu(self.a(x), inplace=True)
        left, _ = h.chunk(2, -1)
        return self.b(h)[:, :2] + left


@pytest.mark.parametrize(
    "kind",
    ["tied", "reader called twice", "source called twice", "before and after", "returned", "chunk"],
)
def test_shared_parameters_and_values_are_left_alone(kind):
    model = seeded(Shared(kind).double())
    model.a.bias.data[1] = -1e3
    x = data(20, 4)
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(RuntimeWarning, match="no unit was revived: every rectifier"):
        found = dying.revive_live_(model, x)
    assert not found.count
    assert found.skipped
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_convolution_in_one_dimension_revives_the_channel():
    layers = (nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    model = seeded(nn.Sequential(*layers).double())
    model[0].weight.data[1], model[0].bias.data[1] = 0.0, -1.0
    x = data(8, 2, 4)  # as long as there are channels
    before = model(x)
    assert dying.revive_live_(model, x).units == {"1": (1,)}
    assert (model[3].weight == 0).all(0).nonzero()[:, 0].tolist() == [4, 5, 6, 7]
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-14)


def test_leaky_and_frozen_units_are_left_alone():
    leaky = seeded(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 1)).double())
    leaky[0].bias.data[1] = -1e3
    before = leaky(data(9, 3))
    assert dying.revive_live_(leaky, data(9, 3)).count == 0
    assert torch.equal(leaky(data(9, 3)), before)
    frozen = dense()
    frozen[0].bias.data[1] = -1e3
    frozen[0].weight.requires_grad_(False)
    assert "frozen" in dying.revive_live_(frozen, data(9, 3)).skipped["1"]


def test_models_of_several_arguments():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x, scale):
            return self.b(F.relu(self.a(x * scale)))

    model = seeded(Two().double())
    model.a.bias.data[2] = -1e3
    x = data(9, 3)
    assert dying.revive_live_(model, (x, 2.0)).units == {"relu": (2,)}
    model.a.bias.data[2] = -1e3
    assert dying.revive_live_(model, {"x": x, "scale": 2.0}).units == {"relu": (2,)}


def test_samples_that_are_all_alike_still_make_units_live():
    for x in (data(1, 3), data(1, 3).expand(7, 3)):
        model = dense().eval()
        model[0].bias.data[:] = -1e3
        dying.revive_live_(model, x)
        assert (model[0](x) > 0).all()


def test_bad_batches_change_nothing():
    model = dense().eval()
    model[0].bias.data[1] = -1e3
    before = copy.deepcopy(model.state_dict())
    x = data(9, 3)
    for bad, what in ((x * torch.nan, "NaN"), (x[:0], "empty")):
        with pytest.raises(InvalidInputError, match=what):
            dying.revive_live_(model, bad)
    with pytest.raises(InvalidInputError, match="expected a torch"):
        dying.revive_live_(model, x, "adam")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="none of this model"):
        dying.revive_live_(model, x, torch.optim.SGD(dense().parameters(), lr=0.1))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    model[3].bias.data[:] = -1e3
    model[0].weight.data[0, 0] = torch.nan
    kept = model[3].weight.clone()
    with pytest.raises(InvalidInputError, match="layers before it"):
        replace_(model, x, {"4": [0]}, share=(0.1, 0.9))
    assert torch.equal(model[3].weight, kept)


def test_clear_refusals():
    model = dense()
    with pytest.raises(InvalidInputError, match="no rectifier"):
        replace_(model, data(2, 3), {"nope": [0]})
    with pytest.raises(InvalidInputError, match="redo or live"):
        dying.Reviver(model, data(2, 3), rule="other")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="rate"):
        dying.ContinualBackprop(model, data(2, 3), rate=0)
    with pytest.raises(InvalidInputError, match="no linear"):
        dying.he_(nn.ReLU())


def test_a_batch_in_the_place_of_a_seed_is_named_by_its_shape():
    with pytest.raises(
        InvalidInputError, match=r"is a Tensor of shape \(40, 3\), expected a whole"
    ):
        dying.he_(nn.Sequential(nn.Linear(3, 2)), torch.zeros(40, 3))  # type: ignore[arg-type]

"""The monitor against a plain recomputation of every activation, on awkward modules."""

from __future__ import annotations

import copy
import io
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import relunorm as rn
from relunorm.dying import DeadUnitMonitor
from relunorm.dying.watch.monitor import _Tally
from relunorm.errors import InvalidInputError


def seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen) * 0.5)
    return model


def batches(*shape: int, count: int = 3, seed: int = 1) -> list[torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=gen) for _ in range(count)]


class Spellings(nn.Module):
    """One rectifier in each spelling, with a unit that is dead in all of them."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.act = nn.ReLU()
        self.slope = nn.LeakyReLU(0.1)

    def forward(self, x):
        z = self.fc(x)
        outputs = [
            self.act(z), F.relu(z), torch.relu(z), z.relu(), z.clamp(min=0), torch.clamp_min(z, 0),
            F.relu6(z), self.slope(z), F.relu(z.clone(), inplace=True), z.clone().relu_(),
            self.act(z + 1), F.threshold(z, 0.0, 0.0), F.hardtanh(z, 0.0, 9.0),
        ]  # fmt: skip
        torch.clamp(z, min=-1)  # not a rectifier
        z.clamp(max=1)
        return sum(outputs)


class Nested(nn.Module):
    """Functions and modules, in a block that is called twice."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act_1 = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

        def forward(self, x):
            return x + torch.relu_(self.b(self.act_1(F.relu(self.a(x)) - 1)))

    def __init__(self):
        super().__init__()
        self.block, self.out = self.Block(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.block(self.block(F.relu6(x)))
        return torch.relu(self.out(torch.relu(x)))


def test_sites_have_the_names_of_the_layers_that_are_read():
    model, x = seeded(Nested()), torch.randn(6, 4)
    with DeadUnitMonitor(model) as monitor:
        model(x)
    seen = [site.name for site in monitor.report().sites]
    assert seen == [layer.name for layer in rn.diagnose(model, x).layers]
    assert seen == [
        "relu6", "block.relu", "block.act_1", "block.relu#1", "block.relu#2", "block.act_1#1",
        "block.relu#3", "relu", "relu#1",
    ]  # fmt: skip


def test_every_spelling_is_seen_once_and_counted_exactly():
    model = seeded(Spellings())
    model.fc.bias.data[2] = -1e3
    data = batches(16, 4)
    with DeadUnitMonitor(model) as monitor:
        for x in data:
            model(x)
    report = monitor.report()
    assert len(report.sites) == 13
    z = torch.cat([model.fc(x) for x in data]).detach()
    again = ["relu", *(f"relu#{k}" for k in range(1, 5))]
    names = {
        "act",
        "slope",
        "act#1",
        *again,
        "clamp",
        "clamp_min",
        "relu6",
        "threshold",
        "hardtanh",
    }
    assert {site.name for site in report.sites} == names
    for site in report.sites:
        shift = 1.0 if site.name == "act#1" else 0.0
        share = (z + shift > 0).double().mean(0).numpy()
        np.testing.assert_allclose(site.active_share, share)
        assert site.dead.tolist() == (share == 0).tolist()
        assert site.leaky == (site.name == "slope")
    assert report["act"].dead[2]


def test_reused_relu_keeps_its_calls_apart():
    class Reused(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(3, 5), nn.Linear(5, 7), nn.ReLU(inplace=True)

        def forward(self, x):
            return self.act(self.b(self.act(self.a(x))))

    model = seeded(Reused())
    with DeadUnitMonitor(model) as monitor:
        for x in batches(8, 3):
            model(x)
    assert [(s.name, s.units) for s in monitor.report().sites] == [("act", 5), ("act#1", 7)]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 3)

    def block(self, x):
        return self.act(x + self.conv(x))

    def forward(self, x):
        x = self.act(self.norm(self.stem(x)))
        return self.head(self.block(x).mean((2, 3)))


def test_convolution_channels_with_batch_norm_and_residual():
    model = seeded(Residual())
    model.norm.weight.data[1], model.norm.bias.data[1] = 0.0, -1.0
    data = batches(4, 2, 5, 5)
    with DeadUnitMonitor(model) as monitor:
        for x in data:
            model(x)
    report = monitor.report()
    assert [(s.name, s.units) for s in report.sites] == [("act", 6), ("act#1", 6)]
    assert np.flatnonzero(report["act"].dead).tolist() == [1]
    shares = []
    for x in data:
        with torch.no_grad():
            z = F.batch_norm(
                model.stem(x), None, None, model.norm.weight, model.norm.bias, training=True
            )
        shares.append((z > 0).double().mean((0, 2, 3)).numpy())
    np.testing.assert_allclose(report["act"].active_share, np.mean(shares, axis=0), atol=1e-12)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_counts_each_pass_once(reentrant):
    class Checkpointed(Residual):
        def forward(self, x):
            x = self.act(self.norm(self.stem(x)))
            x = checkpoint(self.block, x, use_reentrant=reentrant)
            return self.head(x.mean((2, 3)))

    model = seeded(Checkpointed())
    with DeadUnitMonitor(model) as monitor:
        model(batches(4, 2, 5, 5)[0]).sum().backward()
    report = monitor.report()
    assert report.batches == 1
    assert [s.name for s in report.sites] == ["act", "act#1"]
    assert all(monitor._tallies[name].samples[0] == 4 * 25 for name in ("act", "act#1"))


def test_several_passes_a_step_are_several_batches():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    a, b = batches(8, 3, count=2)
    with DeadUnitMonitor(model) as monitor:
        (model(a).sum() + model(b).sum()).backward()
    z = torch.cat([model[0](a), model[0](b)])
    np.testing.assert_allclose(monitor.report()["1"].active_share, (z > 0).double().mean(0))
    assert monitor.batches == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision(dtype):
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    x = batches(600, 3, count=1)[0]
    with DeadUnitMonitor(model) as monitor, torch.autocast("cpu", dtype=dtype):
        model(x)
        z = model[0](x)
    assert z.dtype == dtype
    np.testing.assert_allclose(monitor.report()["1"].active_share, (z > 0).double().mean(0))


def test_exceptions_inside_forward_leave_nothing_behind():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act, self.fail = nn.Linear(3, 4), nn.ReLU(), False

        def forward(self, x):
            h = self.act(self.fc(x))
            if self.fail:
                raise RuntimeError("broken")
            return h

    model = seeded(nn.Sequential(Breaks(), nn.ReLU()))
    with DeadUnitMonitor(model) as monitor:
        x = batches(5, 3)[0]
        model[0].fail = True
        with pytest.raises(RuntimeError, match="broken"):
            model(x)
        assert torch.overrides._get_current_function_mode() is None
        model[0].fail = False
        model(x)
    report = monitor.report()
    assert [s.name for s in report.sites] == ["0.act", "1"]
    assert report.batches == 2


def test_removed_without_a_trace():
    model = seeded(Residual())
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    state = {k: v.clone() for k, v in model.state_dict().items()}
    random = torch.get_rng_state()
    monitor = DeadUnitMonitor(model)
    model.eval()(batches(2, 2, 5, 5)[0])
    model.train()
    monitor.close()
    for name, module in model.named_modules():
        hooks = (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._forward_hooks_always_called,
        )
        assert not any(hooks)
        assert vars(module).keys() == before[name].keys()
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_copies_and_pickles_of_a_watched_model_are_not_watched():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    with DeadUnitMonitor(model) as monitor:
        twin = copy.deepcopy(model)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        x = batches(5, 3)[0]
        twin(x)
        loaded(x)
        assert monitor.batches == 0
        model(x)
    assert monitor.batches == 1


def test_replicas_in_threads_share_one_tally():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()))
    parts = batches(50, 3, count=4)
    with DeadUnitMonitor(nn.DataParallel(model)) as monitor:
        replicas = []
        for _ in parts:  # what torch.nn.parallel.replicate does, without a second device
            replica = model._replicate_for_data_parallel()
            for key, child in model._modules.items():
                copied = child._replicate_for_data_parallel()
                for name, parameter in child.named_parameters(recurse=False):
                    setattr(copied, name, parameter.detach())
                replica._modules[key] = copied
            replicas.append(replica)
        threads = [
            threading.Thread(target=r, args=(x,)) for r, x in zip(replicas, parts, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    share = (model[0](torch.cat(parts)) > 0).double().mean(0)
    np.testing.assert_allclose(monitor.report()["1"].active_share, share)


def test_when_units_died_and_whether_they_were_born_dead():
    model = nn.Sequential(nn.Linear(1, 3), nn.ReLU())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([1.0, 1.0, -1.0]))
    with DeadUnitMonitor(model, window=4) as monitor:
        for step in range(20):
            if step == 7:
                model[0].bias.data[1] = -1.0
            model(torch.zeros(2, 1))
            if step == 8:  # silent for two batches only: not dead yet
                assert monitor.report()["1"].dead.tolist() == [False, False, True]
        site = monitor.report()["1"]
        assert site.dead.tolist() == [False, True, True]
        assert site.born_dead.tolist() == [False, False, True]
        assert site.died_at.tolist() == [-1, 7, 0]
        model[0].bias.data[1] = 1.0  # comes back, but the first death stays on record
        model(torch.zeros(2, 1))
        site = monitor.report()["1"]
        assert site.dead.tolist() == [False, False, True]
        assert site.first_death.tolist() == [-1, 7, 0]


def test_dormant_and_linear_are_kept_apart_from_dead():
    model = nn.Sequential(nn.Linear(1, 4), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [1e-3], [0.0], [0.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 0.0, 5.0, -5.0]))
    with DeadUnitMonitor(model, tau=0.025) as monitor:
        model(batches(400, 1)[0])
    site = monitor.report()["1"]
    assert site.dead.tolist() == [False, False, False, True]
    assert site.dormant.tolist() == [False, True, False, False]
    assert site.linear.tolist() == [False, False, True, False]


def test_first_pass_in_inference_mode_then_training():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    x = batches(5, 3)[0]
    with DeadUnitMonitor(model) as monitor:
        with torch.inference_mode():
            model(x)
        model(x).sum().backward()
    assert monitor.batches == 2


def test_every_window_and_logging():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    seen = []
    with DeadUnitMonitor(model, every=2, log=lambda *row: seen.append(row), log_every=2) as monitor:
        for x in batches(5, 3, count=8):
            model(x)
    assert monitor.batches == 4
    assert {name for name, _, _ in seen} == {
        "relu/dead",
        "relu/dormant",
        "relu/linear",
        "relu/nan",
        "relu/infinite",
        "relu/dead/1",
    }


def test_close_inside_a_forward_pass_takes_effect_at_its_end():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU()))
    monitor = DeadUnitMonitor(model)
    handle = model[1].register_forward_hook(lambda *args: monitor.close())
    model(batches(5, 3)[0])
    handle.remove()
    assert torch.overrides._get_current_function_mode() is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert len(monitor.report().sites) == 2  # the pass that was under way is counted to its end
    model(batches(5, 3)[0])
    assert monitor.batches == 1


def test_monitors_nest_and_close_in_any_order():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    x = batches(5, 3)[0]
    first, second = DeadUnitMonitor(model), DeadUnitMonitor(model)
    model(x)
    first.close()
    model(x)
    second.close()
    assert (first.batches, second.batches) == (1, 2)
    assert torch.overrides._get_current_function_mode() is None


def test_convolution_in_one_dimension_counts_channels_and_sequences_count_features():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv1d(2, 5, 3, padding=1), nn.BatchNorm1d(5)
            self.back, self.fc = nn.Conv1d(5, 5, 1), nn.Linear(5, 4)

        def forward(self, x):
            h = F.relu(self.norm(self.conv(x)))
            h = F.relu(h + self.back(h), inplace=True)
            return F.relu(self.fc(h.transpose(1, 2)))

    model = seeded(Mixed())
    model.norm.weight.data[3], model.norm.bias.data[3] = 0.0, -1.0
    x = batches(6, 2, 5)[0]  # as long as there are channels: shapes do not tell
    with DeadUnitMonitor(model) as monitor:
        model(x)
    h = F.relu(model.norm(model.conv(x)))
    h2 = F.relu(h + model.back(h))
    last = F.relu(model.fc(h2.transpose(1, 2)))
    oracles = [
        (v > 0).double().mean(axis) for v, axis in ((h, (0, 2)), (h2, (0, 2)), (last, (0, 1)))
    ]
    for site, share in zip(monitor.report().sites, oracles, strict=True):
        np.testing.assert_allclose(site.active_share, share)
    assert monitor.report()["relu"].dead[3]


def test_modules_replaced_while_watched():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = batches(5, 3)[0]
    with DeadUnitMonitor(model) as monitor:
        model(x)
        model[0], model[2] = nn.Linear(3, 6), nn.Linear(6, 2)  # wider
        model(x)
        model[1] = nn.LeakyReLU()
        model(x)
    report = monitor.report()
    assert [(s.name, s.units, s.leaky) for s in report.sites] == [("1", 6, False), ("", 6, True)]
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_and_scripted_models_are_refused_and_recorded_passes_not_counted():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    x = batches(5, 3)[0]
    with pytest.raises(InvalidInputError, match="compiled"):
        DeadUnitMonitor(torch.compile(model, backend="eager"))
    scripted = nn.Sequential(torch.jit.freeze(torch.jit.trace(model.eval(), x)), nn.ReLU())
    with pytest.raises(InvalidInputError, match="scripted"):
        DeadUnitMonitor(scripted[0])
    with DeadUnitMonitor(scripted) as monitor:
        scripted(x)
    assert [site.name for site in monitor.report().sites] == ["1"]
    with DeadUnitMonitor(model) as monitor:
        traced = torch.jit.trace(model, x, check_trace=False)
        torch.func.grad(lambda z: model(z).sum())(x)
    assert torch.equal(traced(x), model(x))
    assert "no rectifier was seen" in repr(monitor.report())


def test_passes_of_a_compiled_copy_do_not_break():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    with DeadUnitMonitor(model) as monitor:
        torch.compile(model, backend="eager")(batches(5, 3)[0])
    assert monitor.batches == 0


def test_empty_batches_and_bad_values():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    x = batches(50, 3)[0]
    with DeadUnitMonitor(model) as monitor:
        model(torch.zeros(0, 3))
        assert not monitor.report().sites
        model(x)
        good = monitor.report()["1"]
        bad = x.clone()
        bad[0], bad[1] = torch.nan, torch.inf
        model(bad)
        site = monitor.report()["1"]
    np.testing.assert_allclose(site.score, good.score)  # the bad batch says nothing about sizes
    share = (model[0](torch.cat([x, bad])) > 0).double().mean(0)
    np.testing.assert_allclose(site.active_share, share)


@pytest.mark.parametrize("shape", [(5, 3), (600, 3)])
def test_nan_and_infinity_are_told_as_such_and_are_not_dead(shape, monkeypatch):
    if shape[0] > 5:
        monkeypatch.setattr("relunorm.dying.watch.monitor.ONE_THREAD", 1)  # the sums by torch
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    model[0].bias.data[:] = torch.tensor([-1e3, torch.nan, torch.inf, 5.0])
    with DeadUnitMonitor(model, window=3) as monitor:
        for x in batches(*shape, count=5):
            model(x)
        report = monitor.report()
        site = report["1"]
        assert site.dead.tolist() == [True, False, False, False]
        assert site.born_dead.tolist() == [True, False, False, False]
        assert site.nan.tolist() == [False, True, False, False]
        assert site.infinite.tolist() == [False, False, True, False]
        assert site.active_share[1] == 0
        assert np.isnan(site.score[1])
        assert "not finite: 1 NaN, 1 infinite" in repr(report)
        assert (report.dead, report.nan, report.infinite) == (0.25, 0.25, 0.25)
        assert report.to_dict()["sites"][0]["nan"] == [1]
        assert report.to_dict()["sites"][0]["score"][1] is None
        model[0].bias.data[:] = -1e3
        for x in batches(*shape, count=3):
            model(x)
    assert monitor.report()["1"].dead.all()  # mended, and silent since
    assert not monitor.report()["1"].nan.any()
    assert monitor.report()["1"].died_at.tolist() == [0, 5, 5, 5]


class Small(nn.Module):
    """Two relus, one functional, in a block; a residual sum."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.b, self.c = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, x, bent=False):
        h = self.a(x)
        h = F.relu(self.b(h) + h).mean((2, 3))
        return self.c(h * 2 if bent else h)


def plain_hooks(model, data):
    """Counts by hooks on modules alone: the inputs of the two layers after the relus."""
    seen = {"a.2": [], "relu": []}
    with torch.no_grad():
        for x in data:
            h = model.a(x)
            seen["a.2"].append(h)
            seen["relu"].append(F.relu(model.b(h) + h))
    return {k: (torch.cat(v) > 0).double().mean((0, 2, 3)).numpy() for k, v in seen.items()}


@pytest.mark.parametrize("inference", [0, 4])
def test_training_passes_read_off_the_graph_count_as_watched_ones(inference):
    """From the ninth training pass on no call is watched; the counts must not show it."""
    model = seeded(Small())
    model.b.bias.data[1] = -1e3
    model.a[1].bias.data[:] = torch.tensor([-1e3, 0.0, 0.0, 0.0])
    model.eval()
    data = batches(6, 1, 5, 5, count=30)
    watched = []
    handle = model.b.register_forward_hook(
        lambda *args: watched.append(torch.overrides._get_current_function_mode() is not None)
    )
    with DeadUnitMonitor(model) as monitor:
        for k, x in enumerate(data):
            with torch.set_grad_enabled(not (inference and k % inference == 0)):
                model(x)
    handle.remove()
    report = monitor.report()
    assert monitor.batches == len(data)
    assert not all(watched[10:])
    if not inference:
        assert watched == [True] * 8 + [False] * 22
    expected = plain_hooks(model, data)
    for name, share in expected.items():
        np.testing.assert_allclose(report[name].active_share, share, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(report[name].dead, share == 0)
        assert (report[name].ran, report[name].axis, report[name].axis_known) == (30, 1, True)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_pass_of_a_new_form_is_watched_from_its_second_time_on():
    model = seeded(Small()).eval()
    with DeadUnitMonitor(model) as monitor:
        for k, x in enumerate(batches(6, 1, 5, 5, count=30)):
            model(x, bent=k % 3 == 2)
    assert monitor.batches == 29  # all but the first bent one after the eighth pass
    assert monitor.report()["a.2"].ran == 29


def test_rectifiers_that_leave_no_result_in_the_graph_are_watched_for_good():
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 4), nn.ReLU()))
    with DeadUnitMonitor(model) as monitor:
        for x in batches(5, 3, count=60):
            model(x)
    report = monitor.report()
    assert [site.ran for site in report.sites] == [60, 60]


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match=r"torch\.nn\.Module"):
        DeadUnitMonitor(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="window"):
        DeadUnitMonitor(nn.ReLU(), window=0)


def test_report_is_json_safe():
    import json

    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    with DeadUnitMonitor(model) as monitor:
        model(batches(5, 3)[0])
    document = json.loads(json.dumps(monitor.report().to_dict(), allow_nan=False))
    assert document["schema"] == "relunorm.dying.monitor/1"
    assert "4 units" in repr(monitor.report())


@pytest.mark.parametrize("window", [1, 2, 5, 6, 20])
def test_first_death_against_the_definition(window):
    """The oracle reads the pattern; runs end before, at and after windows and held stretches."""
    rng = np.random.default_rng(window)
    active = rng.random((70, 40)) < rng.uniform(0.02, 0.9, 40)
    active[:, 0], active[:, 1] = True, False
    active[:16, 2] = [c == "1" for c in "1110000000101010"]
    model = nn.Sequential(nn.ReLU())
    monitor = DeadUnitMonitor(model, window=window)
    for step, row in enumerate(active):
        model(torch.as_tensor(np.where(row, 1.0, -1.0))[None])
        if step in (0, 15, 16, 40, 69):  # looking changes nothing
            found = monitor.report().sites[0].first_death
            text = ["".join("01"[int(v)] for v in unit) for unit in active[: step + 1].T]
            assert found.tolist() == [unit.find("0" * window) for unit in text]
    monitor.close()


class Axes(nn.Module):
    def __init__(self, layer, before=lambda h: h):
        super().__init__()
        self.layer, self.before = layer, before

    def forward(self, x):
        return F.relu(self.before(self.layer(x)))


@pytest.mark.parametrize(
    ("layer", "before", "shape", "known"),
    [
        (nn.Linear(8, 16), lambda h: h, (4, 7, 7, 8), True),
        (nn.Linear(8, 16), lambda h: h, (2, 3, 4, 5, 8), True),
        (nn.Linear(8, 16), lambda h: h + 0 * h, (4, 16, 16, 8), True),
        (nn.Linear(8, 16), lambda h: h.movedim(-1, 1), (4, 16, 16, 8), True),
        (nn.Conv2d(8, 16, 3), lambda h: h.flatten(2), (4, 8, 6, 6), True),
        (nn.Conv2d(8, 16, 3), lambda h: h.permute(0, 2, 3, 1), (4, 8, 18, 18), True),
        (nn.Conv2d(8, 16, 3), lambda h: h.flatten(2).mT, (4, 8, 6, 6), True),
        (nn.Conv2d(8, 16, 3), lambda h: h, (8, 18, 18), True),
        (nn.Conv1d(8, 16, 3), lambda h: h, (8, 18), True),
        (nn.Conv3d(8, 16, 1), lambda h: F.dropout(h * 2, 0.0), (2, 8, 2, 3, 4), True),
        (nn.Linear(8, 16), lambda h: torch.einsum("bhwc->bchw", h), (4, 7, 7, 8), False),
    ],
)  # fmt: skip
def test_the_axis_of_the_units_comes_from_the_layer(layer, before, shape, known):
    model = Axes(copy.deepcopy(layer), before)
    with torch.no_grad():
        model.layer.weight.mul_(0.0)
        model.layer.bias.fill_(1.0)[[1, 5]] = -1.0
    with DeadUnitMonitor(model) as monitor:
        model(torch.ones(shape))
    (site,) = monitor.report().sites
    assert np.flatnonzero(site.dead).tolist() == [1, 5]
    assert (site.units, site.axis_known) == (16, known)
    assert ("guess" in repr(site)) is not known


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 5), (8, 16), (131, 33), (3, 4, 5), (2, 6, 7, 3)])
@pytest.mark.parametrize("axis", [1, -1])
def test_compiled_sums_against_torch(kind, shape, axis):
    gen = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=gen, dtype=torch.float64).to(kind)
    axis %= values.ndim
    values.select(axis, 0).fill_(-1.0)
    units = shape[axis]
    tally = _Tally(units, True, values.device, window=5)
    tally.add(values, axis, 0)
    strided = torch.stack([values, values], -1)[..., 0]  # the same by torch
    assert not strided.is_contiguous()
    tally.add(strided, axis, 1)
    rows = values.double().movedim(axis, 0).reshape(units, -1)
    expected = torch.stack([(rows > 0).double().sum(1), rows.abs().sum(1)])
    for found in tally.held[:2]:
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=0)


def test_compiled_sums_keep_nan_and_infinities():
    values = torch.tensor([[torch.nan, 1.0], [2.0, torch.inf], [-torch.inf, 0.0], [1.0, 1.0]])
    tally = _Tally(2, True, values.device, window=5)
    tally.add(values, 1, 0)
    assert tally.held[0, 0].tolist() == [2.0, 3.0]
    assert tally.held[0, 1].isnan().tolist() == [True, False]
    assert tally.held[0, 1, 1] == torch.inf


def test_large_and_channels_last_activations(monkeypatch):
    model = seeded(nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU()))
    x = batches(4, 2, 9, 9)[0]
    share = (model[0](x) > 0).double().mean((0, 2, 3))
    for limit, layout in ((1 << 18, torch.channels_last), (100, torch.contiguous_format)):
        monkeypatch.setattr("relunorm.dying.watch.monitor.ONE_THREAD", limit)
        with DeadUnitMonitor(model) as monitor:
            model(x.to(memory_format=layout))
        np.testing.assert_allclose(monitor.report()["1"].active_share, share, atol=1e-12)


def test_modules_are_named_under_several_monitors_and_after_a_caught_error():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.LeakyReLU())

        def forward(self, x):
            try:
                self.parts[0][1]("no tensor")
            except TypeError:
                x = F.relu(x)
            return self.parts(x)

    model = seeded(Careful())
    with DeadUnitMonitor(model) as first, DeadUnitMonitor(model) as second:
        model(batches(5, 3)[0])
    for monitor in (first, second):
        assert [s.name for s in monitor.report().sites] == ["relu", "parts.0.1", "parts.1"]

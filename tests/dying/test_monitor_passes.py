"""Which forward passes and which calls a monitor counts: found wrong by use, one test each."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from relunorm.dying import DeadUnitMonitor
from relunorm.errors import InvalidInputError


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


class Calls(nn.Module):
    """A forward given as a function of the module and its input."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.call = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.call(self, x)


def names(monitor: DeadUnitMonitor) -> list[str]:
    return [site.name for site in monitor.report().sites]


class Interrupted(nn.Module):
    def __init__(self, error=KeyboardInterrupt):
        super().__init__()
        self.fc, self.act, self.error, self.fails = nn.Linear(3, 4), nn.ReLU(), error, True

    def forward(self, x):
        h = self.act(self.fc(x))
        if self.fails:
            raise self.error
        return h


@pytest.mark.parametrize("outer", [False, True])
def test_an_interrupt_leaves_no_mode_and_no_hook(outer):
    model, x = Interrupted(), torch.randn(5, 3)
    whole = nn.Sequential(model, nn.ReLU())
    with pytest.raises(KeyboardInterrupt), DeadUnitMonitor(whole), DeadUnitMonitor(model):
        whole(x) if outer else model(x)
    assert not _get_current_function_mode_stack()
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    assert not any(getattr(m, name) for m in whole.modules() for name in hooks)


def test_after_an_interrupt_only_the_model_is_counted_and_under_its_names():
    class Other(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model, x = Interrupted(), torch.randn(5, 3)
    first, second = DeadUnitMonitor(model), DeadUnitMonitor(model)
    with pytest.raises(KeyboardInterrupt):
        model(x)
    nn.Sequential(nn.Linear(3, 9), nn.ReLU())(x)  # another model's
    assert names(first) == names(second) == ["act"]
    model.fails = False
    with Other() as other:
        for _ in range(3):
            model(x)
        assert _get_current_function_mode_stack() == [other]
    for monitor in (first, second):
        assert (names(monitor), monitor.batches) == (["act"], 4)
        monitor.close()
    assert not _get_current_function_mode_stack()


def test_a_thread_that_was_ended_in_forward_does_not_hold_the_hooks():
    model = Interrupted(SystemExit)

    def work():
        with pytest.raises(SystemExit):
            model(torch.randn(5, 3))

    with DeadUnitMonitor(model):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not model._forward_hooks


def test_an_interrupted_pass_inside_another():
    """The inner one is given up, the outer one goes on under its own names."""

    def forward(module, x):
        if module.depth:
            raise KeyboardInterrupt
        module.depth = 1
        h = module.act(module.fc(x))
        with pytest.raises(KeyboardInterrupt):
            module(x)
        return module.act(h)

    model = Calls(forward, fc=nn.Linear(3, 4), act=nn.ReLU(), depth=0)
    with DeadUnitMonitor(model) as monitor:
        model(torch.randn(5, 3))
        assert not _get_current_function_mode_stack()
    assert names(monitor) == ["act", "act#1"]
    assert [site.ran for site in monitor.report().sites] == [1, 1]


def test_logged_shares_include_the_batch_they_are_logged_at():
    model = nn.Sequential(nn.ReLU())
    rows = []
    with DeadUnitMonitor(
        model, window=2, log=lambda *row: rows.append(row), log_every=2
    ) as monitor:
        for value in (1.0, -1.0, -1.0, -1.0, -1.0, 1.0):
            model(torch.full((2, 3), value))
    shares = [(value, step) for name, value, step in rows if name == "relu/dead"]
    assert shares == [(0.0, 2), (1.0, 4), (0.0, 6)]
    assert monitor.batches == 6


def test_a_log_that_fails_leaves_no_mode():
    def log(name, value, step):
        raise OSError("disk full")

    model = mlp()
    with DeadUnitMonitor(model, log=log, log_every=1) as monitor:
        for _ in range(2):
            with pytest.raises(OSError, match="disk full"):
                model(torch.randn(5, 3))
        assert not _get_current_function_mode_stack()
    assert monitor.report()["1"].ran == 2


def _vmap(module, x):
    return torch.func.vmap(lambda row: F.relu(module.fc(row[None])))(x)[:, 0]


def _grad(module, x):
    return torch.func.grad(lambda rows: F.relu(module.fc(rows)).sum())(x)


def _ensemble(module, x):
    state = {name: torch.stack([p, p + 1]) for name, p in module.fc.named_parameters()}

    def one(parameters):
        h = torch.func.functional_call(module.fc, parameters, (x[None],))
        return F.relu(h.transpose(0, 1))

    return torch.func.vmap(one)(state)


@pytest.mark.parametrize("inside", [_vmap, _grad, _ensemble])
def test_transforms_inside_forward_run_as_without_a_monitor(inside):
    model = Calls(lambda module, x: inside(module, x) + module.act(x).sum(), fc=nn.Linear(3, 3))
    model.act = nn.ReLU()
    x = torch.randn(5, 3)
    expected = model(x)
    with DeadUnitMonitor(model) as monitor:
        assert torch.equal(model(x), expected)
    assert names(monitor) == ["act"]  # what runs outside the transform is seen


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # sparse and nested tensors are in beta
def test_tensors_without_plain_storage_are_not_seen():
    model = Calls(lambda module, x: torch.relu(x))
    x = torch.randn(4, 3)
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    with DeadUnitMonitor(model) as monitor:
        for given in (x.to_mkldnn(), x.to_sparse(), x.to_sparse_csr(), nested):
            model(given)
        assert not monitor.report().sites
        model(x)
    assert names(monitor) == ["relu"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_of_the_whole_model_is_no_batch(reentrant):
    model, x = mlp(), torch.randn(5, 3, requires_grad=True)
    with DeadUnitMonitor(model) as monitor:
        for _ in range(3):
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert monitor.batches == 3
    assert names(monitor) == ["1"]


def test_recomputation_within_forward_is_not_seen():
    """A force model: it differentiates its own checkpointed energy."""

    def forward(module, x):
        x = x.requires_grad_()
        energy = checkpoint(module.net, x, use_reentrant=False).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    model = Calls(forward, net=mlp())
    with DeadUnitMonitor(model) as monitor:
        model(torch.randn(5, 3))
    assert names(monitor) == ["net.1"]


def test_a_branch_that_is_not_taken_is_not_silent():
    def forward(module, x):
        return module.branch(x) + module.act(x) if module.taken else module.act(x)

    model = Calls(forward, branch=nn.ReLU(), act=nn.ReLU(), taken=False)
    with DeadUnitMonitor(model, window=10) as monitor:
        for batch in range(60):
            model.taken = 25 <= batch < 30
            model(torch.ones(2, 4))
    site = monitor.report()["branch"]
    assert site.ran == 5
    assert not site.dead.any()
    assert site.active_share.tolist() == [1.0] * 4
    assert site.first_death.tolist() == site.died_at.tolist() == [-1] * 4


@pytest.mark.parametrize("window", [1, 3, 150])
def test_silences_count_runs_and_are_told_in_batches(window):
    """The oracle reads the pattern of the runs, and the batches they were in."""
    rng = np.random.default_rng(window)
    batches = np.flatnonzero(rng.random(400) < 0.5)
    runs = rng.random((len(batches), 30)) < rng.uniform(0.0, 0.6, 30)
    runs[:, 0] = False
    model = Calls(lambda module, x: F.relu(x) if x is not None else None)
    with DeadUnitMonitor(model, window=window) as monitor:
        for batch in range(400):
            at = np.searchsorted(batches, batch)
            ran = at < len(batches) and batches[at] == batch
            model(torch.as_tensor(np.where(runs[at], 1.0, -1.0))[None] if ran else None)
    site = monitor.report()["relu"]
    for unit, active in enumerate(runs.T):
        text = "".join("01"[int(v)] for v in active)
        start, last = text.find("0" * window), text.rfind("1")
        before = batches[0] if start == 0 else batches[start - 1] + 1
        assert site.first_death[unit] == (-1 if start < 0 else before)
        dead = "1" not in text[-window:]
        assert site.dead[unit] == dead
        since = batches[0] if last < 0 else batches[last] + 1
        assert site.died_at[unit] == (since if dead else -1)
        assert site.born_dead[unit] == (last < 0)


def test_a_rectified_weight_is_no_site():
    def forward(module, x):
        scale = (2 * module.w).exp().clamp(min=0)
        h = F.relu(F.linear(x, F.relu(module.w) * scale))
        return F.relu(module.fc(module.queries)).sum() + h

    model = Calls(forward, fc=nn.Linear(3, 5))
    model.w, model.queries = (nn.Parameter(torch.randn(4, 3)) for _ in range(2))
    with DeadUnitMonitor(model) as monitor:
        model(torch.randn(6, 3))
    # What a layer makes of learned queries is an activation.
    assert [(site.name, site.units) for site in monitor.report().sites] == [
        ("relu", 4),
        ("relu#1", 5),
    ]


@pytest.mark.parametrize(
    "move",
    [lambda h: h.transpose(1, 2), lambda h: h.permute(2, 0, 1), lambda h: h.reshape(5, 1, 4)],
)
def test_one_unit_stays_one_unit(move):
    model = Calls(lambda module, x: F.relu(move(module.fc(x))), fc=nn.Linear(3, 1))
    x = torch.randn(5, 4, 3)
    with DeadUnitMonitor(model) as monitor:
        model(x)
    (site,) = monitor.report().sites
    assert (site.units, site.axis_known) == (1, True)
    np.testing.assert_allclose(site.active_share, (model.fc(x) > 0).double().mean())


def test_names_under_many_monitors():
    model = mlp()
    monitors = [DeadUnitMonitor(model) for _ in range(7)]
    model(torch.randn(5, 3))
    assert [names(monitor) for monitor in monitors] == [["1"]] * 7
    for monitor in monitors:
        monitor.close()


@pytest.mark.parametrize(
    ("rectify", "leaky"),
    [
        (lambda z: F.threshold_(z.clone(), 0.0, 0.0), False),
        (lambda z: F.threshold(z, 0.0, 0.0, inplace=False), False),
        (lambda z: z.clamp(min=np.float32(0)), False),
        (torch.ops.aten.relu, False),
        (torch.ops.aten.relu.default, False),
        (lambda z: torch.ops.aten.clamp_min(z, 0), False),
        (lambda z: torch.ops.aten.leaky_relu.default(z, 0.1), True),
        (lambda z: z.prelu(torch.full((1,), 0.1)), True),
    ],
)
def test_rarer_spellings_are_seen(rectify, leaky):
    model = Calls(lambda module, x: rectify(module.fc(x)), fc=nn.Linear(3, 4))
    x = torch.randn(6, 3)
    with DeadUnitMonitor(model) as monitor:
        model(x)
    (site,) = monitor.report().sites
    assert site.leaky == leaky
    np.testing.assert_allclose(site.active_share, (model.fc(x) > 0).double().mean(0))


def test_a_recorded_graph_holds_no_tally_and_fake_tensors_no_numbers():
    model, x = mlp(), torch.randn(5, 3)

    def record():
        return [node.name for node in make_fx(lambda rows: model(rows))(x).graph.nodes]

    expected = record()
    with DeadUnitMonitor(model) as monitor:
        assert record() == expected
        with FakeTensorMode(allow_non_fake_inputs=True):
            model(x)
    assert not monitor.report().sites


def test_sums_of_huge_activations():
    model = nn.Sequential(nn.ReLU())
    x = torch.full((9, 3), 2e38)
    x[:, 1], x[0, 2] = 1.0, torch.inf
    with DeadUnitMonitor(model) as monitor:
        model(x)
    score = monitor.report()["0"].score
    np.testing.assert_allclose(score, [2.0, 1e-38, np.nan], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_clear_refusals():
    model = mlp()
    for bad in ({"window": "a"}, {"window": 2.5}, {"every": True}, {"tau": "a"}, {"log": 3}):
        with pytest.raises(InvalidInputError, match=next(iter(bad))):
            DeadUnitMonitor(model, **bad)
    with DeadUnitMonitor(model) as monitor:
        with pytest.raises(InvalidInputError, match="close the monitor first"):
            torch.jit.script(model)
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(InvalidInputError, match="report"):
                copied(monitor)
    assert not hasattr(monitor, "__name__")


def test_a_pass_that_has_shapes_only_is_no_batch():
    """Keras makes one before it first fits a model."""
    model = Calls(lambda self, pair: self.part(pair["x"]), part=mlp())
    with DeadUnitMonitor(model) as monitor:
        with torch.no_grad():
            real = torch.ones(2, 3)
            model({"x": real})
            abstract = copy.deepcopy(dict(model.named_parameters()))
            abstract = {name: weight.to("meta") for name, weight in abstract.items()}
            torch.func.functional_call(model, abstract, ({"x": real.to("meta")},))
            model({"x": real})
        assert monitor.batches == 2

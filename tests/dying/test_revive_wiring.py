"""Revival and balancing where shapes mislead or dead units still send something."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import relunorm.dying as dying
from relunorm.errors import InvalidInputError


class Around(nn.Module):
    """b(between(rectifier(a(x))))."""

    def __init__(self, a, b, between=lambda h: h, rectifier=F.relu, norm=None):
        super().__init__()
        self.a, self.b, self.norm = a, b, norm or nn.Identity()
        self.between, self.rectifier = between, rectifier

    def forward(self, x):
        return self.b(self.norm(self.between(self.rectifier(self.a(x)))))


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def prepared(model, dead=True):
    model = model.double().eval()
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(normal(*p.shape, seed=k))
        for k, p in enumerate(model.buffers()):
            if p.is_floating_point():
                p.copy_(normal(*p.shape, seed=k).abs() + 0.5)
        if dead:
            model.a.weight[1], model.a.bias[1] = 0.0, -9.0
    return model


def norm(units, kind=nn.BatchNorm1d):
    return kind(units)


line = nn.Linear
KEPT = {
    "flattened sequence as long as wide": (lambda: Around(line(3, 5), line(25, 2), nn.Flatten()),
                                           (16, 5, 3)),
    "shift by padding": (lambda: Around(line(4, 6), line(6, 2), lambda h: F.pad(h, (1, -1))),
                         (16, 4)),
    "mean over places": (lambda: Around(nn.Conv1d(3, 6, 3, padding=1), line(6, 2),
                                        lambda h: h.mean(2)), (16, 3, 6)),
    "padded means": (lambda: Around(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3), nn.AvgPool2d(3, 1, 1)),
                     (4, 3, 7, 7)),
    "features last": (lambda: Around(nn.Conv2d(3, 5, 3, padding=1), line(5, 2),
                                     lambda h: h.permute(0, 2, 3, 1)), (4, 3, 5, 5)),
    "normalised after": (lambda: Around(line(3, 6), line(6, 2), norm=norm(6)), (64, 3)),
    "normalised channels": (lambda: Around(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3),
                                           norm=norm(4, nn.BatchNorm2d)), (8, 3, 7, 7)),
}  # fmt: skip
SKIPPED = {
    "reads along the length": (lambda: Around(nn.Conv1d(3, 6, 3, padding=1), line(6, 2)),
                               (16, 3, 6)),
    "reads along the width": (lambda: Around(nn.Conv2d(3, 6, 3, padding=1), line(6, 2)),
                              (8, 3, 6, 6)),
    "mean over channels": (lambda: Around(nn.Conv1d(3, 6, 3, padding=1), line(6, 2),
                                          lambda h: h.mean(1)), (16, 3, 6)),
    "mean over units": (lambda: Around(line(3, 6), line(6, 2), lambda h: h.mean(-1)), (16, 6, 3)),
    "maximum over units": (lambda: Around(line(3, 8), line(8, 2), nn.MaxPool1d(3, 1, 1)),
                           (16, 5, 3)),
    "padded by 3": (lambda: Around(nn.Conv2d(3, 6, 3), nn.Conv2d(6, 2, 3),
                                   lambda h: F.pad(h, (1, 1, 1, 1), value=3.0)), (8, 3, 6, 6)),
    "constant into a padded layer": (lambda: Around(nn.Conv2d(3, 4, 3),
                                                    nn.Conv2d(4, 2, 3, padding=1),
                                                    norm=norm(4, nn.BatchNorm2d)), (8, 3, 7, 7)),
    "constant and no bias": (lambda: Around(line(3, 6), line(6, 2, bias=False), norm=norm(6)),
                             (64, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_the_function_is_kept_whatever_the_shapes(name):
    make, shape = KEPT[name]
    model, x = prepared(make()), normal(*shape)
    before = model(x)
    found = dying.revive_live_(model, x)
    assert 1 in found.units["relu"]
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)
    with dying.DeadUnitMonitor(model) as monitor:
        model(x)
    assert not monitor.report().dead


@pytest.mark.parametrize("name", SKIPPED)
def test_what_cannot_be_kept_is_left_alone_with_a_reason(name):
    make, shape = SKIPPED[name]
    model, x = prepared(make()), normal(*shape)
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(RuntimeWarning, match="no unit was revived"):
        found = dying.revive_live_(model, x)
    assert not found.count
    assert found.skipped["relu"]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def log_mean(module, args, output):
    module.seen = output.abs().mean().item()


def log_more(module, args, output):
    module.seen = torch.relu(output - 1).sum().item(), (output > 0).float().mean(0).tolist()


def keep_copy(module, args, output):
    module.seen = output.detach().clone().cumsum(-1)


def note_size(module, args, output):
    module.seen = torch.linalg.norm(output), module.weight.square().sum()


@pytest.mark.parametrize("where", ["rectifier", "source", "reader"])
@pytest.mark.parametrize("hook", [log_mean, log_more, keep_copy])
@pytest.mark.parametrize("inplace", [False, True])
def test_what_a_hook_looks_at_does_not_stop_revival(where, hook, inplace):
    model = nn.Sequential(line(3, 6), nn.ReLU(inplace=inplace), line(6, 2)).double()
    with torch.no_grad():
        model[0].weight.copy_(normal(6, 3))
        model[0].bias.zero_()
        model[0].bias[1] = -1e3
    x = normal(20, 3)
    before = model(x)
    index = {"source": 0, "rectifier": 1, "reader": 2}[where]
    model[index].register_forward_hook(hook)
    found = dying.revive_live_(model, x)
    assert found.units["1"] == (1,)
    assert "1" not in found.skipped
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)


def test_a_look_at_the_weights_does_not_count_as_a_use():
    model = nn.Sequential(line(3, 6), nn.ReLU(), line(6, 2)).double()
    for layer in (model[0], model[2]):
        layer.register_forward_hook(note_size)
    assert dying.wiring(model, normal(9, 3))[0].revivable


class Residual(nn.Module):
    """A second path from the rectifier to the output, through ``aside``."""

    def __init__(self, aside):
        super().__init__()
        self.a, self.b, self.aside = line(3, 4), line(4, 4), aside

    def forward(self, x):
        h = F.relu(self.a(x))
        return self.b(h) + self.aside(h)


def written(h):
    out = torch.zeros_like(h)
    out[:, 0] = h.mean(1)
    return out


@pytest.mark.parametrize("aside", [torch.abs, torch.detach, lambda h: h.abs().detach(), written])
def test_a_side_path_that_reaches_the_output_still_counts(aside):
    [site] = dying.wiring(Residual(aside).double(), normal(9, 3))
    assert "its output goes through" in site.problem


def test_where_a_tensor_comes_from_nowhere_every_path_counts():
    """What NumPy carries past the trace may hold the units."""

    def unseen(h):
        return torch.from_numpy(h.abs().numpy().copy())

    [site] = dying.wiring(Residual(unseen).double(), normal(9, 3))
    assert "abs" in site.problem


def test_a_threshold_with_another_value_below_is_no_rectifier():
    model = prepared(Around(line(3, 6), line(6, 2), rectifier=lambda z: F.threshold(z, 0, -1)))
    assert dying.wiring(model, normal(9, 3)) == []
    plain = prepared(Around(line(3, 6), line(6, 2), rectifier=lambda z: F.threshold(z, 0, 0)))
    assert len(dying.wiring(plain, normal(9, 3))) == 1


def test_outputs_that_move_are_noticed_and_put_back():
    """The weights are read once more through NumPy, where no trace can see it."""

    class Hidden(Around):
        def forward(self, x):
            return super().forward(x) + float(self.seen.sum())

    model, x = prepared(Hidden(line(3, 6), line(6, 2))), normal(20, 3)
    model.seen = model.a.weight.detach().numpy()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.warns(RuntimeWarning, match="undone"):
        found = dying.revive_live_(model, x, optimizer)
    assert "undone" in found.skipped["relu"]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("rectifier", "after", "shape", "balanced"),
    [
        (F.relu6, None, (20, 3), False),
        (lambda z: z.clamp(0, 1), None, (20, 3), False),
        (F.relu, norm(6), (20, 3), False),
        (F.leaky_relu, None, (20, 3), True),
        (lambda z: torch.clamp(z, min=0), None, (20, 3), True),
    ],
)
def test_balancing_needs_a_homogeneous_path(rectifier, after, shape, balanced):
    model = Around(line(3, 6), line(6, 2), rectifier=rectifier, norm=after)
    model, x = prepared(model, dead=False), normal(*shape)
    before = model(x)
    assert len(dying.balance_(model, x)) == balanced
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)


def test_balancing_a_flattened_sequence_as_long_as_wide():
    model, x = prepared(Around(line(3, 5), line(25, 2), nn.Flatten()), False), normal(16, 5, 3)
    before = model(x)
    assert dying.balance_(model, x) == ["relu"]
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("affine", [True, False])
def test_units_behind_a_batch_norm_are_live_in_evaluation(affine):
    bn = nn.BatchNorm1d(6, affine=affine)
    model = nn.Sequential(nn.Linear(3, 6), bn, nn.ReLU(), nn.Linear(6, 2)).double().eval()
    x = normal(100, 3) + 5
    bn.running_mean[:] = 0
    bn.running_mean[[1, 4]] = 1e4
    before = model(x)
    found = dying.revive_live_(model, x)
    assert {1, 4} <= set(found.units["2"])
    torch.testing.assert_close(model(x), before)
    active = (model[1](model[0](x))[:, [1, 4]] > 0).double().mean(0)
    assert ((active > 0.05) & (active < 0.95)).all()


def test_continual_backprop_leaves_frozen_sites_alone():
    model, x = prepared(Around(line(3, 6), line(6, 2)), False), normal(50, 3)
    model.a.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    with dying.ContinualBackprop(model, x, rate=1.0, maturity=0) as rule:
        model(x)
        found = rule.step()
    assert "frozen" in found.skipped["relu"]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize(("between", "after"), [(lambda h: h * 0.1, None), (lambda h: h, norm(6))])
def test_continual_backprop_moves_the_mean_that_is_read(between, after):
    model = prepared(Around(line(3, 6), line(6, 2), between, norm=after), False)
    x = normal(200, 3)
    mean = model(x).mean(0)
    with dying.ContinualBackprop(model, x, rate=1.0, maturity=0) as rule:
        model(x)
        assert rule.step().count == 6
    torch.testing.assert_close(model(x).mean(0), mean, rtol=1e-5, atol=1e-5)


def test_continual_backprop_utilities_are_means_from_the_first_update_on():
    model, x = prepared(Around(line(3, 6), line(6, 2)), False), normal(50, 3)
    expected = F.relu(model.a(x)).abs().mean(0) * model.b.weight.abs().sum(0)
    with dying.ContinualBackprop(model, x, rate=1e-6) as rule:
        for _ in range(3):
            model(x)
            rule.step()
            torch.testing.assert_close(
                torch.as_tensor(rule.utilities()["relu"]).double(), expected.detach(),
                rtol=1e-5, atol=1e-6,
            )  # fmt: skip


def test_reports_and_shares_that_do_not_fit_are_refused():
    wide, model, x = (
        prepared(Around(line(3, 9), line(9, 2))),
        prepared(Around(line(3, 6), line(6, 2))),
        normal(20, 3),
    )
    wide.a.bias.data[8] = -1e3
    with dying.DeadUnitMonitor(wide) as monitor:
        wide(x)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InvalidInputError, match="another model"):
        dying.revive_live_(model, x, report=monitor.report())
    for share in ((2.0, 3.0), (0.9, 0.1)):
        with pytest.raises(InvalidInputError, match="share"):
            dying.revive_live_(model, x, share=share)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())

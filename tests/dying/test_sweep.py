"""The sweep: against torch one by one, resumed after kills, and figure 1's measured shares."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from relunorm.dying.scale_sweep import RULES, STRETCH, Plan, Rule, Sweep, by_name
from relunorm.errors import InvalidInputError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def tables():
    rng = np.random.default_rng(0)
    made = {}
    for name, n, d in (("a", 90, 3), ("b", 70, 5)):
        x = rng.standard_normal((n, d))
        made[name] = (x, np.sin(x).sum(1) + 0.1 * rng.standard_normal(n))
    return made


def plan(**changes) -> Plan:
    options = {
        "data": ("a", "b"), "gammas": (1e-2, 1.0), "deltas": (0.0, 0.5),
        "seeds": (0, 1), "hidden": 12, "batch": 16, "updates": 350,
    }  # fmt: skip
    return Plan(**{**options, **changes})


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_members_follow_torch_one_by_one(rule: Rule):
    whole = plan(rules=(rule,), updates=120)
    sweep = Sweep(whole, tables())
    before = [part.ensemble.parameters.clone() for part in sweep.parts]
    picks = [sweep._picks(0), sweep._picks(1)]
    sweep.run()
    for part, start in zip(sweep.parts, before, strict=True):
        for i in (0, len(part.members) - 1):
            name, gamma, delta, _, _ = part.members[i]
            model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
            shapes = [p.shape for p in model.parameters()]
            with torch.no_grad():
                at = 0
                for p, shape in zip(model.parameters(), shapes, strict=True):
                    p.copy_(start[i, at : at + p.numel()].reshape(shape))
                    at += p.numel()
            if rule.method == "adam":
                optimizer = torch.optim.Adam(model.parameters(), rule.lr, (rule.beta1, 0.999))
            else:
                lr = rule.lr * (1 - rule.beta1)
                optimizer = torch.optim.SGD(model.parameters(), lr, momentum=rule.beta1)
            for step in range(120):
                rows = picks[step // STRETCH][step % STRETCH, part.group[i]]
                optimizer.zero_grad()
                goal = gamma * sweep.y[rows] + delta
                (model(sweep.x[rows]) - goal).square().mean().backward()
                optimizer.step()
            found = part.ensemble.parameters[i]
            expected = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
            # float32 and 120 steps: Adam turns rounding of tiny gradients into steps.
            torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-3)
            if sweep.widths[name] < 5:
                assert (part.ensemble.views()[0][i, :, 3:] == 0).all()  # padding stays zero


def test_result_is_the_same_whatever_else_is_in_the_sweep():
    alone = Sweep(plan(data=("a",), deltas=(0.0,), rules=by_name(["adam"])), tables()).run()
    both = Sweep(plan(data=("a",), rules=by_name(["adam", "sgd"])), tables()).run()
    for row in alone.rows:
        assert any(row[:5] == other[:5] and abs(row[5] - other[5]) < 1e-3 for other in both.rows)


def test_evaluation_against_a_plain_loop():
    sweep = Sweep(plan(updates=100), tables())
    found = sweep.run()
    part = sweep.parts[0]
    name, gamma, delta, rule, seed = part.members[3]
    start, count = sweep.rows[name]
    x, y = sweep.x[start : start + count].double(), sweep.y[start : start + count].double()
    w, b, v, c = (p[3].double() for p in part.ensemble.views())
    z = x @ w.T + b
    error = ((z.clamp_min(0) @ v.T + c) - delta) / gamma - y
    row = next(r for r in found.rows if r[:5] == (name, gamma, delta, rule.name, seed))
    assert row[5] == pytest.approx(float(error.square().mean()), rel=1e-4)
    assert row[6] == pytest.approx(float((~(z > 0).any(0)).double().mean()))


def _run(path: str, whole: Plan) -> None:
    torch.set_num_threads(1)
    Sweep(whole, tables(), checkpoint=path, every=STRETCH).run()


def test_killed_ten_times_it_ends_with_the_same_table(tmp_path):
    """SIGKILL at random moments; every start resumes from the last whole checkpoint."""
    torch.set_num_threads(1)
    whole = plan(updates=6000, deltas=(0.0,), rules=by_name(["adam", "sgd momentum 0.9"]))
    unbroken = Sweep(whole, tables()).run()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["relunorm.dying.scale_sweep", "torch"])
    path, rng, kills = str(tmp_path / "sweep.pt"), np.random.default_rng(0), 0
    while kills < 10:
        process = context.Process(target=_run, args=(path, whole))
        process.start()
        assert process.pid is not None
        # Let it write at least one checkpoint the first time, then kill at any moment.
        while kills == 0 and not Path(path).exists() and process.is_alive():
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0.02, 0.25)))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
        if process.exitcode == 0:  # finished before it could be killed: start over
            os.unlink(path)
    resumed = Sweep(whole, tables(), checkpoint=path)
    assert 0 < resumed.done < whole.updates
    assert resumed.run().rows == unbroken.rows


def test_checkpoint_of_another_sweep_is_refused(tmp_path):
    path = tmp_path / "sweep.pt"
    Sweep(plan(updates=100), tables(), checkpoint=path).run()
    with pytest.raises(InvalidInputError, match="another sweep"):
        Sweep(plan(updates=100, hidden=13), tables(), checkpoint=path)


def test_interrupt_and_time_limit_keep_what_was_done():
    def stop(said) -> None:
        assert said.left >= 0
        raise KeyboardInterrupt

    found = Sweep(plan(), tables()).run(stop)
    assert found.updates == STRETCH
    assert Sweep(plan(), tables()).run(time_limit=0.0).updates == STRETCH


@pytest.mark.parametrize(
    "bad", [{"gammas": (0.0,)}, {"seeds": ()}, {"hidden": 0}, {"data": ("missing",)}]
)
def test_bad_plans(bad):
    with pytest.raises(InvalidInputError):
        Sweep(plan(**bad), tables())
    with pytest.raises(InvalidInputError, match="no optimizer"):
        by_name(["nope"])


@pytest.mark.long
def test_figure_1_on_concrete():
    """30,000 updates, 2 seeds: Adam kills 15-35% at gamma = 1e-4, without beta1 over 80%, SGD 0."""
    file = SHARED / "concrete.npz"
    if not file.exists():
        pytest.skip(f"the concrete data is not at {file}")
    with np.load(file) as arrays:
        table = {"concrete": (arrays["x"], arrays["y"])}
    rules = by_name(["adam", "adam beta1=0", "sgd"])
    torch.set_num_threads(1)
    found = Sweep(Plan(("concrete",), (1e-4,), (0.0,), rules, (0, 1), updates=30_000), table).run()
    assert 0.15 <= found.mean("dead", optimizer="adam") <= 0.35
    assert found.mean("dead", optimizer="adam beta1=0") > 0.8
    assert found.mean("dead", optimizer="sgd") == 0

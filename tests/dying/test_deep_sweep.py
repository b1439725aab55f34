"""Stacked training against the same networks trained one by one by torch, and resuming."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from relunorm.clock import Progress
from relunorm.dying.deep_sweep import STRETCH, DeepPlan, DeepSweep, _Training
from relunorm.dying.stacked import Stacked
from relunorm.errors import InvalidInputError


def data(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    return x, x[:, 0] + np.sin(x[:, 1])


@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_stack_trains_each_member_as_torch_would_alone(kind, optimizer):
    plan = DeepPlan((kind,), (optimizer,), (2,), (0, 1, 2), width=5, batch=7, updates=10, gamma=1.0)
    sweep = DeepSweep(plan, *data())
    training = _Training(sweep, plan.settings[0])
    alone = copy.deepcopy(training.stack.unstack())
    training.advance(0)
    picks = sweep.picks(0)
    for k, (model, stacked) in enumerate(zip(alone, training.stack.unstack(), strict=True)):
        model.train()
        rule = (
            torch.optim.Adam(model.parameters(), lr=1e-3)
            if optimizer == "adam"
            else torch.optim.SGD(model.parameters(), lr=1e-2)
        )
        for rows in picks[:10, k]:
            rule.zero_grad()
            (model(sweep.x[rows]) - sweep.y[rows]).square().mean().backward()
            rule.step()
        for name, value in model.state_dict().items():
            # float32; Adam divides by gradients that may be rounding themselves
            torch.testing.assert_close(stacked.state_dict()[name], value, rtol=1e-4, atol=2e-5)


def test_a_broken_off_run_resumes_to_the_same_table(tmp_path):
    plan = DeepPlan(("mlp",), ("adam", "sgd"), (2,), (0, 1), width=4, batch=8, updates=3 * STRETCH)
    whole = DeepSweep(plan, *data()).run()
    for stop in (1, 2, 4, 5):  # stretches, within the first setting and the second
        path = tmp_path / f"{stop}.checkpoint"
        sweep = DeepSweep(plan, *data(), checkpoint=path, every=STRETCH)

        def interrupt(progress: Progress, stop: int = stop) -> None:
            if progress.done == stop * STRETCH:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sweep.run(interrupt)
        again = DeepSweep(plan, *data(), checkpoint=path, every=STRETCH)
        assert (len(again.found), again.done) == (stop // 3, stop % 3 * STRETCH)
        assert again.run() == whole


def test_checkpoints_of_other_runs_and_broken_files_are_refused(tmp_path):
    path = tmp_path / "deep.checkpoint"
    path.write_bytes(b"no checkpoint")
    plan = DeepPlan(("mlp",), ("sgd",), (1,), (0,), width=4, updates=STRETCH)
    with pytest.raises(InvalidInputError, match="can be read"):
        DeepSweep(plan, *data(), checkpoint=path)
    path.unlink()
    DeepSweep(plan, *data(), checkpoint=path, every=STRETCH).run()
    with pytest.raises(InvalidInputError, match="another plan or data"):
        DeepSweep(plan, *data(39), checkpoint=path)
    with pytest.raises(InvalidInputError, match="seeds not empty"):
        DeepSweep(DeepPlan(seeds=()), *data())


def test_what_cannot_be_stacked_is_named():
    with pytest.raises(InvalidInputError, match="Tanh"):
        Stacked([nn.Sequential(nn.Tanh())])(torch.zeros(1, 2, 3))

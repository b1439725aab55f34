"""The stacked training of figure 6 against the same networks trained one by one by torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from relunorm.papers.dying.deep_training import DeepPlan, Training, batches, train_deep


def data(rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    y = x[:, :1] + np.sin(x[:, 1:2])
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_stack_trains_each_member_as_torch_would_alone(kind, optimizer):
    plan = DeepPlan((kind,), (optimizer,), (2,), (0, 1, 2), width=5, batch=7, updates=10)
    x, y = data()
    training = Training(plan, plan.settings[0], x, y)
    alone = copy.deepcopy(training.networks())
    training.advance(0, 4)
    training.advance(4, 10)
    picks = batches(plan, len(x), 0)
    for k, (model, stacked) in enumerate(zip(alone, training.networks(), strict=True)):
        rule = (
            torch.optim.Adam(model.parameters(), lr=1e-3)
            if optimizer == "adam"
            else torch.optim.SGD(model.parameters(), lr=1e-2)
        )
        for rows in picks[:10, k]:
            rule.zero_grad()
            (model(x[rows]) - y[rows]).square().mean().backward()
            rule.step()
        for name, value in model.state_dict().items():
            # float32; Adam divides by gradients that may be rounding themselves
            torch.testing.assert_close(stacked.state_dict()[name], value, rtol=1e-4, atol=2e-5)


def test_the_start_and_the_end_have_one_measure():
    """Without updates worth the name nobody dies, whatever the network and its batch norm."""
    plan = DeepPlan(depths=(1, 4), seeds=(0, 1), width=6, batch=8, updates=3, gamma=1.0)
    x, y = (part.numpy().astype(float) for part in data())
    for born, early, dead in train_deep(plan, x, y[:, 0]).values():
        assert born == early == dead

"""The hand-written ensemble against torch.autograd and torch.optim, member by member."""

from __future__ import annotations

import pytest
import torch

from relunorm.errors import InvalidInputError
from relunorm.train.problem.ensemble import Ensemble, Sizes

SIZES = Sizes(members=4, inputs=3, hidden=7, outputs=2)


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(20, 2, generator=generator, dtype=torch.float64)


def started(seed: int = 0, **settings) -> Ensemble:
    """An ensemble whose members begin with random weights."""
    ensemble = Ensemble(SIZES, **settings)
    ensemble.parameters.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(seed))
    return ensemble


def fit(ensemble: Ensemble, steps: int) -> None:
    for _ in range(steps):
        ensemble.step(*data())


@pytest.mark.parametrize("method", ["momentum", "adam"])
def test_equals_torch_optim_member_by_member(method):
    lr, beta1 = torch.tensor([0.1, 0.03, 0.01, 0.2]), torch.tensor([0.0, 0.5, 0.9, 0.99])
    gamma, delta = torch.tensor([1.0, 0.1, 2.0, 1.0]), torch.tensor([0.0, 1.0, -1.0, 0.5])
    beta2 = torch.tensor([0.9, 0.99, 0.999, 0.95])
    ensemble = started(method=method, lr=lr, beta1=beta1, beta2=beta2, gamma=gamma, delta=delta)
    x, y = data()
    twins = [[part[i].clone().requires_grad_() for part in ensemble.views()] for i in range(4)]
    fit(ensemble, 25)
    for i, (w, b, v, c) in enumerate(twins):
        rate, first, second = float(lr[i]), float(beta1[i]), float(beta2[i])
        if method == "adam":
            optimizer = torch.optim.Adam([w, b, v, c], lr=rate, betas=(first, second))
        else:
            optimizer = torch.optim.SGD([w, b, v, c], lr=rate, momentum=first)
        target = gamma[i].double() * y + delta[i].double()
        for _ in range(25):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(torch.relu(x @ w.T + b) @ v.T + c, target)
            loss.backward()
            optimizer.step()
        for ours, theirs in zip(ensemble.views(), (w, b, v, c), strict=True):
            # 25 steps of float64 rounding, amplified by Adam's division; float32 rates are exact
            torch.testing.assert_close(ours[i], theirs.detach(), rtol=1e-7, atol=1e-9)


def test_a_failing_member_never_spoils_the_rest():
    rates = torch.tensor([0.01, 1e308, 0.01, 0.01], dtype=torch.float64)
    broken = started(method="momentum", lr=rates, beta1=0.0)
    sound = started(method="momentum", lr=0.01, beta1=0.0)
    fit(broken, 10)
    fit(sound, 10)
    assert broken.failed.tolist() == [False, True, False, False]
    keep = [0, 2, 3]
    assert torch.equal(broken.parameters[keep], sound.parameters[keep])


def test_checkpoint_continues_bit_for_bit():
    whole, first, second = started(lr=0.01), started(lr=0.01), started(99, lr=0.5)
    fit(whole, 12)
    fit(first, 5)
    second.load_state_dict(first.state_dict())
    fit(second, 7)
    assert torch.equal(whole.parameters, second.parameters)


def test_batches_may_differ_between_members():
    x, y = data()
    ensemble, alone = started(lr=0.1), started(lr=0.1)
    ensemble.step(torch.stack([x, x + 1, x - 1, 2 * x]), torch.stack([y] * 4))
    alone.step(x, y)
    assert torch.equal(ensemble.parameters[0], alone.parameters[0])
    assert not torch.equal(ensemble.parameters[1], alone.parameters[1])


def test_wrong_arguments_are_named():
    with pytest.raises(InvalidInputError, match="lr has shape"):
        Ensemble(SIZES, lr=torch.ones(3))
    x, y = data()
    with pytest.raises(InvalidInputError, match="targets have shape"):
        Ensemble(SIZES).step(x, y[:, :1])

"""The hand-written ensemble against torch.autograd and torch.optim, member by member."""

from __future__ import annotations

import pytest
import torch

from relunorm.dying.ensemble import Ensemble


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The same rows for all four members."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(20, 1, generator=generator, dtype=torch.float64)
    return x.expand(4, -1, -1), y.expand(4, -1, -1)


def started(method: str = "adam", seed: int = 0, **settings) -> Ensemble:
    """An ensemble of four whose members begin with random weights."""
    plain = {"lr": [0.01] * 4, "beta1": [0.9] * 4, "gamma": [1.0] * 4, "delta": [0.0] * 4}
    own = {k: torch.tensor(v, dtype=torch.float64) for k, v in (plain | settings).items()}
    ensemble = Ensemble(3, 7, method, **own)
    ensemble.parameters.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(seed))
    return ensemble


def fit(ensemble: Ensemble, steps: int) -> None:
    for _ in range(steps):
        ensemble.step(*data())


@pytest.mark.parametrize("method", ["momentum", "adam"])
def test_equals_torch_optim_member_by_member(method):
    lr, beta1 = [0.1, 0.03, 0.01, 0.2], [0.0, 0.5, 0.9, 0.99]
    gamma, delta = [1.0, 0.1, 2.0, 1.0], [0.0, 1.0, -1.0, 0.5]
    ensemble = started(method, lr=lr, beta1=beta1, gamma=gamma, delta=delta)
    x, y = (part[0] for part in data())
    twins = [[part[i].clone().requires_grad_() for part in ensemble.views()] for i in range(4)]
    fit(ensemble, 25)
    for i, (w, b, v, c) in enumerate(twins):
        if method == "adam":
            optimizer = torch.optim.Adam([w, b, v, c], lr=lr[i], betas=(beta1[i], 0.999))
        else:
            optimizer = torch.optim.SGD([w, b, v, c], lr=lr[i], momentum=beta1[i])
        target = gamma[i] * y + delta[i]
        for _ in range(25):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(torch.relu(x @ w.T + b) @ v.T + c, target)
            loss.backward()
            optimizer.step()
        for ours, theirs in zip(ensemble.views(), (w, b, v, c), strict=True):
            # 25 steps of float64 rounding, amplified by Adam's division
            torch.testing.assert_close(ours[i], theirs.detach(), rtol=1e-7, atol=1e-9)


def test_a_failing_member_never_spoils_the_rest():
    broken = started("momentum", lr=[0.01, 1e308, 0.01, 0.01], beta1=[0.0] * 4)
    sound = started("momentum", beta1=[0.0] * 4)
    fit(broken, 10)
    fit(sound, 10)
    assert broken.failed.tolist() == [False, True, False, False]
    keep = [0, 2, 3]
    assert torch.equal(broken.parameters[keep], sound.parameters[keep])


def test_checkpoint_continues_bit_for_bit():
    whole, first, second = started(), started(), started(seed=99)
    fit(whole, 12)
    fit(first, 5)
    second.load_state_dict(first.state_dict())
    fit(second, 7)
    assert torch.equal(whole.parameters, second.parameters)


def test_batches_may_differ_between_members():
    x, y = data()
    ensemble, alone = started(lr=[0.1] * 4), started(lr=[0.1] * 4)
    ensemble.step(torch.stack([x[0], x[0] + 1, x[0] - 1, 2 * x[0]]), y)
    alone.step(x, y)
    assert torch.equal(ensemble.parameters[0], alone.parameters[0])
    assert not torch.equal(ensemble.parameters[1], alone.parameters[1])

"""No unit of a fitted network is dead on the rows it was fitted to."""

import numpy as np
import pytest
import torch

from relunorm.train.problem.layered import revived_layers
from relunorm.train.regressor import ReLURegressor


@pytest.mark.parametrize(("solver", "seed"), [("deep", 2), ("adam", 0)])
def test_every_unit_is_active_on_some_row(solver, seed):
    r = np.random.default_rng(0)
    x = r.random((100, 3)) * 10 + 5
    y = np.sin(x[:, 0]) + 0.1 * r.normal(size=100)
    model = ReLURegressor(hidden=(5, 4), solver=solver, random_state=seed, n_init=4)
    network = model.fit(x, y).network_
    h = x
    for index, layer in enumerate(network.layers):
        h = np.maximum(h @ layer.affine.terms[index].T + layer.affine.bias, 0)
        assert (h.max(axis=0) > 0).all()


def test_revival_changes_no_value_of_other_units():
    stream = torch.Generator().manual_seed(0)
    x = torch.rand(50, 2, generator=stream, dtype=torch.float64)
    first, second = (torch.randn(4, k, generator=stream, dtype=torch.float64) for k in (2, 4))
    b = torch.tensor([0.1, -9.0, 0.2, 0.0], dtype=torch.float64)
    pairs = [(first, b), (second, torch.zeros(4, dtype=torch.float64))]
    before = ((x @ first.mT + b).clamp_min(0) @ second.mT).clamp_min(0)
    (w, live), (following, _) = revived_layers(pairs, x, stream, 1e-13)
    h = (x @ w.mT + live).clamp_min(0)
    assert bool((h.amax(dim=0) > 0).all())
    after = (h @ following.mT + revived_layers(pairs, x, stream, 1e-13)[1][1]).clamp_min(0)
    alive = before.amax(dim=0) > 0
    assert torch.allclose(after[:, alive], before[:, alive])

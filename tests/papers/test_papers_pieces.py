"""Errata of seed 003 that no room of the library is about: density and frames."""

from __future__ import annotations

import numpy as np
import pytest

from relunorm.network import Network


@pytest.mark.parametrize("slope", [1.0, 1e3, 1e9])
def test_a_continuous_function_stays_half_a_jump_away(slope):
    """Printed: networks approximate every function in L^infinity. Not the step at 0, whatever the
    network does there: here the ramp relu(s x + t) - relu(s x + t - 1), shifted by t."""
    for t in (0.0, 0.3, 0.5, 1.0):
        ramp = Network.from_weights([[[slope]] * 2, [[1.0, -1.0]]], [[t, t - 1], [0.0]])
        left, right = ramp(np.array([[-1e-15], [1e-15]]))[:, 0]
        assert max(abs(left - 0.0), abs(right - 1.0)) >= 0.5 - 1e-5
        # in L^1 it comes as near as one likes
        x = np.linspace(-1, 1, 4001) / slope
        error = np.abs(ramp(x[:, None])[:, 0] - (x > 0))
        assert np.trapezoid(error, x) <= 1 / slope


@pytest.mark.parametrize("bound", [0.5, 1.0, 2.0])
def test_a_tight_frame_is_its_own_dual_up_to_its_bound(bound):
    """Printed: if A |y| = |F* y| one may take G = F."""
    rng = np.random.default_rng(0)
    F = bound * np.linalg.qr(rng.normal(size=(6, 4)))[0].T
    y = rng.normal(size=4)
    assert np.linalg.norm(F.T @ y) == pytest.approx(bound * np.linalg.norm(y))
    np.testing.assert_allclose(F @ F.T @ y / bound**2, y)
    assert np.allclose(F @ F.T @ y, y) is (bound == 1.0)  # as printed

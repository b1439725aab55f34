"""Folding stable units keeps the function."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm import Box
from relunorm.extrema.localize import localize


@given(networks(), st.integers(0, 99), st.sampled_from([0.01, 0.3, 2.0]))
def test_localized_network_is_the_same_function(network, seed, width):
    rng = np.random.default_rng(seed)
    lo = rng.normal(size=network.input_size)
    hi = lo + width * (rng.random(network.input_size) < 0.7)
    box = Box(lo, hi)
    local = localize(network, box)
    assert local.network.units <= network.units
    x = box.sample(50, seed)
    inner = x[:, local.free]
    size = 1 + np.abs(network(x)).max()
    assert np.abs(local.network(inner) - network(x)).max() <= 1e-10 * size
    assert (local.lift(inner[0]) == x[0]).all()

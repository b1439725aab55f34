"""Unit bounds hold at every sampled point; folding stable units keeps the function."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm import Activation, Box
from relunorm.extrema.localize import localize
from relunorm.extrema.relaxation import unit_bounds

KINDS = (
    Activation("relu"),
    Activation("leaky", 0.1),
    Activation("leaky", 2.0),
    Activation("leaky", -0.5),
)


@given(networks(activations=KINDS), st.integers(0, 99), st.sampled_from([0.01, 0.3, 2.0]))
def test_bounds_hold_on_samples(network, seed, width):
    network = network.folded()
    rng = np.random.default_rng(seed)
    center = rng.normal(size=(3, network.input_size))
    lo, hi = center - width, center + width * rng.random((3, 1))
    bounds = unit_bounds(network, lo, hi)
    plain = unit_bounds(network, lo, hi, linear=False)
    for k in range(3):
        x = Box(lo[k], hi[k]).sample(100, seed)
        for z, low, high in zip(network.preactivations(x), bounds.lows, bounds.highs, strict=True):
            assert (z >= low[k] - 1e-9).all()
            assert (z <= high[k] + 1e-9).all()
    for tight, loose in zip(bounds.highs, plain.highs, strict=True):
        assert (tight <= loose + 1e-12).all()


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

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


@given(networks(), st.integers(0, 99), st.sampled_from([0.01, 0.3, 2.0]))
def test_a_part_knows_what_the_whole_knew_and_is_the_same_function(network, seed, width):
    rng = np.random.default_rng(seed)
    lo = rng.normal(size=network.input_size)
    hi = lo + width * (rng.random(network.input_size) < 0.7)
    whole = localize(network, Box(lo, hi))
    first, last = np.sort(rng.random((2, network.input_size)), axis=0)
    box = Box(lo + first * (hi - lo), lo + last * (hi - lo))
    part = whole.part(box)
    x = box.sample(50, seed)
    size = 1 + np.abs(network(x)).max()
    assert np.abs(part.network(x[:, part.free]) - network(x)).max() <= 1e-10 * size
    assert (part.lift(x[0, part.free]) == x[0]).all()
    for (low, high), (least, most) in zip(whole.bounds, part.bounds, strict=True):
        slack = 1e-12 * (1 + np.abs(least) + np.abs(most))
        assert (least >= low - slack).all()
        assert (most <= high + slack).all()
    for kept, before in zip(part.kept, whole.kept, strict=True):
        assert {*kept.tolist()} <= {*before.tolist()}

"""Verdicts and bounds against the exact ranges of tiny networks."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from cell_oracle import box_rows, exact_ranges
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import networks

from relunorm import Ball, Box, Network, Polytope
from relunorm.network import Activation
from relunorm.stability import Proofs, engine, replay, stability

PIECEWISE = (
    Activation("relu"),
    Activation("relu"),
    Activation("relu"),
    Activation("leaky", slope=0.1),
    Activation("leaky", slope=-0.5),
    Activation("leaky", slope=1.5),
    Activation("identity"),
)


def check(network: Network, domain, ranges, tolerance: float = 1e-8, **options) -> None:
    found = stability(network, domain, **options)
    for layer in found.layers:
        low, high = ranges[layer.layer]
        assert (layer.lower <= low + tolerance).all()
        assert (layer.upper >= high - tolerance).all()
        for unit, verdict in enumerate(layer.verdict.tolist()):
            at = (layer.layer, unit, low[unit], high[unit], layer.method[unit])
            if verdict == "dead":
                assert high[unit] <= tolerance, at
            elif verdict == "active":
                assert low[unit] >= -tolerance, at
            elif verdict == "unstable":
                assert low[unit] < tolerance, at
                assert high[unit] > -tolerance, at
            else:
                assert min(abs(low[unit]), abs(high[unit])) < 1e-5, at
    again = replay(
        network, domain, Proofs.from_dict(json.loads(json.dumps(found.proofs.to_dict())))
    )
    for layer in found.layers:
        assert np.array_equal(again.lower[layer.layer], layer.lower)
        assert np.array_equal(again.upper[layer.layer], layer.upper)


@settings(max_examples=40)
@given(networks(activations=PIECEWISE), st.integers(0, 2**20))
def test_random_networks_over_a_box(network: Network, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lo = rng.normal(size=network.input_size)
    hi = lo + rng.random(network.input_size) * (rng.random() < 0.9)
    if network.units > 14:
        return
    check(network, Box(lo, hi), exact_ranges(network, *box_rows(lo, hi)))


@settings(max_examples=15)
@given(networks(activations=PIECEWISE), st.integers(0, 2**20))
def test_random_networks_over_a_polytope(network: Network, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = network.input_size
    A = np.vstack([np.eye(d), -np.eye(d), rng.normal(size=(3, d))])
    b = np.concatenate([np.ones(2 * d), 0.2 + rng.random(3)])
    if network.units > 12:
        return
    check(network, Polytope(A, b), exact_ranges(network, A, b))


@settings(max_examples=20)
@given(st.integers(0, 2**20))
def test_grid_weights_with_ties_and_zero_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [2, *rng.integers(1, 5, 3).tolist(), 1]
    weights = [rng.integers(-2, 3, (b, a)) / 2 for a, b in pairwise(sizes)]
    biases = [rng.integers(-2, 3, b) / 2 for b in sizes[1:]]
    network = Network.from_weights(weights, biases)
    lo, hi = np.zeros(2), np.ones(2)
    check(network, Box(lo, hi), exact_ranges(network, *box_rows(lo, hi)))


@lru_cache
def barely_stable(seed: int) -> tuple[Network, np.ndarray]:
    """A 3-5-5-4 network whose last hidden units miss a change of sign by 1/1000 of their range."""
    rng = np.random.default_rng(seed)
    sizes = [3, 5, 5, 4, 1]
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=b) for b in sizes[1:]]
    ranges = exact_ranges(Network.from_weights(weights, biases), *box_rows(-np.ones(3), np.ones(3)))
    low, high = ranges[2]
    margin = 1e-3 * (high - low)
    dead = rng.random(4) < 0.5
    biases[2] = biases[2] + np.where(dead, -high - margin, -low + margin)
    return Network.from_weights(weights, biases), np.where(dead, "dead", "active")


STAGES = {"lp": "_solve", "split": "_split", "branch": "_branch", "milp": "_decide"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", range(3))
def test_each_method_alone_is_right(stage: str, seed: int, monkeypatch) -> None:
    """With every other exact method switched off, one of them still decides (an LP need not)."""
    network, wanted = barely_stable(seed)
    for name, method in STAGES.items():
        if name != stage:
            monkeypatch.setattr(engine._Search, method, lambda *_: None)
    found = stability(network, Box.cube(3))
    decided = found.layers[2].verdict != "undecided"
    assert (found.layers[2].verdict[decided] == wanted[decided]).all()
    assert stage == "lp" or decided.all()
    trusted = {unit for layer, unit in found.proofs.trusted if layer == 2}
    assert trusted == set(np.flatnonzero(found.layers[2].method == "milp").tolist())
    replay(network, Box.cube(3), found.proofs)


@settings(max_examples=30)
@given(networks(), st.integers(0, 2**20))
def test_no_sample_contradicts_a_verdict(network: Network, seed: int) -> None:
    """Any activation, steps included, over a box and over a ball."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=network.input_size)
    for domain in (Box(middle - 0.5, middle + 0.5), Ball(middle, 0.7)):
        found = stability(network, domain, time_limit=2.0)
        samples = network.preactivations(domain.sample(2000, seed))
        for layer, z in zip(found.layers, samples, strict=True):
            assert (z >= layer.lower - 1e-12).all()
            assert (z <= layer.upper + 1e-12).all()
            assert (z[:, layer.verdict == "dead"] <= 1e-12).all()
            assert (z[:, layer.verdict == "active"] >= -1e-12).all()
        for order, layer in enumerate(found.layers):
            shown = layer.verdict == "unstable"
            for points, sign in ((layer.witness_active, 1), (layer.witness_inactive, -1)):
                assert domain.contains(points[shown], 1e-12).all()
                if shown.any():
                    values = network.preactivations(points[shown])[order][:, shown]
                    assert (sign * np.diagonal(values) > 0).all()
        replay(network, domain, found.proofs)

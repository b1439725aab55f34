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

from relunorm import Affine, Ball, Box, Layer, Network, Polytope
from relunorm.network import Activation
from relunorm.stability import Proofs, replay, stability
from relunorm.stability.bound_proofs import SearchedProof

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


@pytest.mark.parametrize("seed", range(3))
def test_units_that_barely_keep_their_sign(seed: int) -> None:
    """Every one is decided, by a search where bounds do not suffice, and the proofs replay."""
    network, wanted = barely_stable(seed)
    found = stability(network, Box.cube(3))
    assert found.layers[2].verdict.tolist() == wanted.tolist()
    assert "search" in found.layers[2].method
    again = replay(network, Box.cube(3), found.proofs)
    assert np.array_equal(again.upper[2], found.layers[2].upper)
    assert np.array_equal(again.lower[2], found.layers[2].lower)


def step_ranges(network: Network, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The extreme pre-activations of the second layer on a grid: all values steps can take."""
    z = network.preactivations(grid)[1]
    return z.min(axis=0), z.max(axis=0)


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_units_behind_steps_are_decided(seed: int, at_zero: float) -> None:
    """Steps cut an interval into pieces; a grid that holds all of them and every threshold."""
    rng = np.random.default_rng(seed)
    thresholds = rng.permutation(np.arange(-6, 7, 2))[:5] / 8.0
    first = np.where(rng.random(5) < 0.5, 1.0, -1.0)
    weights = rng.integers(-4, 5, (6, 5)) * 1.0
    biases = [-first * thresholds, np.zeros(6), np.zeros(1)]
    kinds = (Activation("step", at_zero=at_zero), Activation("relu"))
    box, grid = Box([-1.0], [1.0]), np.arange(-16, 17)[:, None] / 16.0

    def made() -> Network:
        layers = [
            Layer(Affine({0: first[:, None]}, biases[0]), kinds[0]),
            Layer(Affine({1: weights}, biases[1]), kinds[1]),
        ]
        return Network(layers, Affine({2: np.ones((1, 6))}, biases[2]), input_shape=1)

    low, high = step_ranges(made(), grid)
    dead = rng.random(6) < 0.5
    biases[1] = np.where(dead, -high - 0.25, -low + 0.25)
    network = made()
    found = stability(network, box)
    assert found.layers[1].verdict.tolist() == np.where(dead, "dead", "active").tolist()
    replay(network, box, found.proofs)


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


@pytest.mark.parametrize("seed", [0, 10, 33])
def test_sides_of_networks_that_fit_only_when_folded(monkeypatch, seed):
    """The search of a side begins with the units whose sign is open; nothing else changes."""
    rng = np.random.default_rng(seed)
    sizes = [4, 12, 12, 12, 1]
    weights = [1.5 * rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    network = Network.from_weights(weights, [0.7 * rng.normal(size=b) for b in sizes[1:]])
    box = Box(np.full(4, -0.6), np.full(4, 0.6))
    whole = stability(network, box)
    only_folded = lambda network, bounds=None: bounds is not None  # noqa: E731
    monkeypatch.setattr("relunorm.stability.sides.fits", only_folded)
    folded = stability(network, box)
    assert any(isinstance(item, SearchedProof) for item in folded.proofs.items)
    assert folded.complete
    for a, b in zip(whole.layers, folded.layers, strict=True):
        assert (a.verdict == b.verdict).all()
    again = replay(network, box, folded.proofs)
    for layer in folded.layers:
        assert np.array_equal(again.lower[layer.layer], layer.lower)
        assert np.array_equal(again.upper[layer.layer], layer.upper)
    monkeypatch.setattr("relunorm.stability.sides.fits", lambda network, bounds=None: False)
    assert not stability(network, box).complete

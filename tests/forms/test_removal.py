"""Removal: what is planted is found, counted by reason, and proved; the eps budget is kept."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import networks, planted_16_40_40_5

import relunorm as rn
from relunorm.domain.reach import reach_of
from relunorm.forms.outward import Range
from relunorm.forms.removal.dependence import carriers, proportional
from relunorm.network import Activation, Affine, Network


@pytest.mark.parametrize("architecture", ["any", "keep"])
def test_planted_network_shrinks(architecture: str) -> None:
    network = planted_16_40_40_5(np.random.default_rng(0))
    domain = rn.Box.cube(16)
    result = rn.normalize(network, "minimal", domain, architecture=architecture)
    sizes = [layer.width for layer in result.network.layers]
    assert sizes[0] <= 20
    assert sizes[1] <= 36
    found = Counter((r.layer, r.reason) for r in result.removed)
    assert found[0, "constant"] == 8
    assert found[0, "dead"] == 5
    assert found[0, "unobserved"] == 3
    assert found[0, "collinear"] + found[0, "duplicate"] + found[0, "opposite"] == 4
    assert found[1, "constant"] == 4
    assert rn.verify(result.certificate, network, result.network).holds
    x = domain.sample(500, 1)
    np.testing.assert_allclose(result.network(x), network(x), atol=1e-12 * np.abs(network(x)).max())
    dead = next(r for r in result.removed if r.reason == "dead")
    assert dead.bound is not None
    assert dead.bound < 0
    assert dead.margin > 0


def test_units_are_preferred_on_request() -> None:
    network = planted_16_40_40_5(np.random.default_rng(0))
    domain = rn.Box.cube(16)
    fewest = rn.normalize(network, "minimal", domain, prefer="units")
    assert fewest.network.layers[0].width == 15
    assert fewest.counts["active"] >= 5
    assert not fewest.network.is_chain
    assert rn.verify(fewest.certificate, network, fewest.network).holds


def test_opposite_units_merge_into_a_skip() -> None:
    rng = np.random.default_rng(2)
    w = rng.normal(size=(4, 3))
    network = Network.from_weights(
        [np.vstack([w, -2 * w[:2]]), rng.normal(size=(1, 6))], [np.zeros(6), [0.0]]
    )
    domain = rn.Box.cube(3)
    result = rn.normalize(network, "minimal", domain, prefer="units")
    assert result.counts == {"opposite": 2}
    assert result.network.widths == (3, 4, 1)
    kept = rn.normalize(network, "minimal", domain, architecture="keep")
    assert kept.network.widths == (3, 6, 1)
    leaky = Network.from_weights(*network.weights(), Activation("leaky", slope=0.1))
    turned = rn.normalize(leaky, "minimal", domain, prefer="units")
    assert turned.counts == {"opposite": 2}
    x = domain.sample(100, 0)
    np.testing.assert_allclose(turned.network(x), leaky(x), atol=1e-13)


def test_fixed_point_reaches_through_layers() -> None:
    """A unit that only feeds dead units goes, and so do the units that only feed it."""
    network = Network.from_weights(
        [
            np.array([[1.0, 0.0], [0.0, 1.0]]),
            np.array([[1.0, 0.0], [0.0, 1.0]]),
            np.array([[1.0, 0.0], [0.0, -1.0]]),
            np.array([[1.0, 1.0]]),
        ],
        [np.zeros(2), np.zeros(2), np.array([0.0, -5.0]), np.zeros(1)],
    )
    result = rn.normalize(network, "minimal", rn.Box.cube(2), architecture="keep")
    assert result.network.widths == (2, 1, 1, 1, 1)
    assert result.counts == {"unobserved": 2, "dead": 1}


def test_cancelling_units_vanish() -> None:
    network = Network.from_weights(
        [[[1.0, 2.0], [1.0, 2.0], [0.5, 1.0]], [[1.0, -0.5, -1.0]]], [[1.0, 1.0, 0.5], [3.0]]
    )
    result = rn.normalize(network, "minimal", rn.Box.cube(2))
    assert result.network.units == 0
    np.testing.assert_array_equal(result.network(np.ones((4, 2))), np.full((4, 1), 3.0))


@settings(max_examples=20)
@given(networks(max_depth=3), st.floats(1e-4, 0.3))
def test_eps_budget(network: Network, eps: float) -> None:
    domain = rn.Box.cube(network.input_size)
    result = rn.normalize(network, "minimal", domain, eps=eps)
    x = domain.sample(300, 0)
    gap = np.abs(network(x) - result.network(x)).max()
    assert gap <= eps * (1 + 1e-9) + 1e-9
    assert result.certificate.bound <= eps * (1 + 1e-6) + 1e-9
    assert sum(r.cost for r in result.removed) <= eps * network.output_size * (1 + 1e-6)
    assert rn.verify(result.certificate, network, result.network).holds
    exact = rn.normalize(network, "minimal", domain)
    assert result.network.units <= exact.network.units


def test_eps_removes_what_hardly_matters() -> None:
    rng = np.random.default_rng(0)
    v = np.concatenate([rng.normal(size=(1, 5)), 1e-7 * rng.normal(size=(1, 5))], axis=1)
    network = Network.from_weights([rng.normal(size=(10, 2)), v], [np.zeros(10), [0.0]])
    result = rn.normalize(network, "minimal", rn.Box.cube(2), eps=1e-5)
    assert result.counts == {"small": 5}
    assert 0 < result.certificate.bound < 1e-5


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_carriers_carry(seed: int, count: int, rank: int, by_readers: bool) -> None:
    """As many carriers as the rank, and the readers get what they got before."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 4))
    readers = rng.normal(size=(3, count))
    if by_readers:
        readers = rng.normal(size=(3, min(rank, 3))) @ rng.normal(size=(min(rank, 3), count))
    else:
        rows = rng.normal(size=(count, rank)) @ rng.normal(size=(rank, 4))
    linear = Affine({0: rows}, rng.normal(size=count) + 20)
    reach = reach_of(rn.Box.cube(4))
    slope = rng.choice([1.0, 0.25], count)
    made = carriers(
        linear, slope, [readers], [Range(reach.lo, reach.hi)], reach, np.zeros(count, dtype=bool)
    )
    assert made.affine.size == min(np.linalg.matrix_rank(rows), np.linalg.matrix_rank(readers))
    x = rn.Box.cube(4).sample(50, 0)
    before = slope * (x @ rows.T + linear.bias)
    z = x @ made.affine.terms[0].T + made.affine.bias
    own = np.where(made.survivors >= 0, slope[made.survivors], 1.0)
    after = (z * own) @ made.spread.T + made.constant
    np.testing.assert_allclose(after @ readers.T, before @ readers.T, atol=1e-9)
    assert (z[:, made.survivors < 0] >= -1e-12).all()


def test_groups_find_multiples_of_either_sign() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(6, 5))
    rows = np.vstack([base, 3.7 * base[2], -0.2 * base[2], base[4]])
    affine = Affine({0: rows[:, :4]}, rows[:, 4])
    both = proportional(affine, opposite=True)
    assert len(np.unique(both.leader)) == 6
    np.testing.assert_allclose(both.factor[:, None] * rows[both.leader], rows, rtol=1e-13)
    same = proportional(affine, opposite=False)
    assert len(np.unique(same.leader)) == 7
    assert (same.factor > 0).all()
    exact = proportional(Affine({0: np.array([[1.0], [1.0 + 1e-9]])}, np.ones(2)), opposite=True)
    assert exact.leader.tolist() == [0, 1]

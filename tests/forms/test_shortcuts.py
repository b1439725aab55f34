"""Units carried through a layer by opposite pairs: rewritten networks come back to their widths."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import exact_value
from splitting import random_perceptron, split_units

import relunorm as rn
from relunorm.network import Network
from relunorm.network.layer import Activation

LEAKY = Activation("leaky", 0.125)


def widths(network: Network) -> list[int]:
    return [layer.width for layer in network.layers]


def apart(first: Network, second: Network, points: np.ndarray) -> float:
    """The largest difference of two networks at points, without rounding."""
    pairs = ((exact_value(first, x), exact_value(second, x)) for x in points)
    return max(float(abs(a - b)) for left, right in pairs for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("layer", "units", "options"),
    [
        (0, [1, 4], {}),
        (1, [0, 2, 6], {}),
        (0, range(7), {"shuffle": True}),
        (0, [3, 5], {"scales": (2.0, -0.5), "shuffle": True}),
        (1, range(7), {"scales": (4.0, -4.0)}),
        (0, range(7), {"activation": LEAKY, "scales": (1.0, -2.0)}),
    ],
)
@pytest.mark.parametrize("architecture", ["any", "keep"])
def test_split_networks_come_back(layer, units, options, architecture) -> None:
    rng = np.random.default_rng(5)
    original = random_perceptron([4, 7, 7, 3], rng)
    network = split_units(original, layer, list(units), rng, **options)
    domain = rn.Box.cube(4)
    result = rn.normalize(network, "minimal", domain, architecture=architecture)
    if architecture == "any" or len(units) == 7:
        assert widths(result.network) == widths(original)
        assert result.network.is_chain
        assert result.network.parameters == original.parameters
        assert result.counts["carrier"] == 2 * len(units)
    assert result.network.parameters <= network.parameters
    assert result.certificate is not None
    assert result.certificate.bound < 1e-11
    assert rn.verify(result.certificate, network, result.network).holds
    points = domain.sample(5, 1)
    assert apart(network, result.network, points) <= result.certificate.bound
    # the splitter rounds to float32, so that much is between the result and the original
    assert apart(original, result.network, points) < 1e-4


def test_without_a_domain_what_is_not_negative_decides() -> None:
    rng = np.random.default_rng(6)
    original = random_perceptron([4, 7, 7, 3], rng)
    network = split_units(original, 0, [1, 4, 5], rng)
    result = rn.normalize(network, "minimal")
    assert widths(result.network) == [7, 7]
    assert apart(network, result.network, rng.normal(size=(4, 4)) * 10) < 1e-12


@pytest.mark.parametrize("options", [{"scales": (0.7, -1.3)}, {"share": True}])
def test_float32_rounding_of_scaled_splits_is_proved(options) -> None:
    rng = np.random.default_rng(7)
    original = random_perceptron([4, 7, 7, 3], rng)
    network = split_units(original, 0, [1, 4], rng, **options)
    domain = rn.Box.cube(4)
    result = rn.normalize(network, "minimal", domain)
    assert widths(result.network) == widths(original)
    assert result.certificate is not None
    assert 1e-12 < result.certificate.bound < 1e-4
    seen = apart(network, result.network, domain.sample(20, 2))
    assert 0 < seen <= result.certificate.bound
    # nobody states a bound without a domain, so nothing is rounded away there
    plain = rn.normalize(network, "minimal").network
    assert widths(plain)[0] == 9
    assert apart(network, plain, domain.sample(5, 3)) < 1e-12


def test_a_pair_that_is_not_only_carried_stays() -> None:
    """relu(z) + relu(-z) = |z| bends."""
    rng = np.random.default_rng(8)
    network = split_units(random_perceptron([3, 5, 4, 2], rng), 0, [2], rng)
    merge = network.layers[1].affine.terms[1].copy()
    merge[2] = np.abs(merge[2])
    layers = list(network.layers)
    old = layers[1]
    layers[1] = type(old)(type(old.affine)({1: merge}, old.affine.bias), old.activation)
    bent = network.replace(layers=layers)
    result = rn.normalize(bent, "minimal", rn.Box.cube(3), architecture="keep")
    assert "carrier" not in result.counts
    points = rn.Box.cube(3).sample(5, 1)
    assert apart(bent, result.network, points) < 1e-12


def test_the_output_is_computed_past_a_split_layer() -> None:
    rng = np.random.default_rng(9)
    w = rng.normal(size=(3, 4))
    sides = np.hstack([np.eye(3), -np.eye(3)])
    network = Network.from_weights([np.vstack([w, -w]), sides], [np.zeros(6), np.ones(3)])
    result = rn.normalize(network, "minimal")
    assert not result.network.layers
    np.testing.assert_allclose(result.network(np.eye(4)), w.T + 1, atol=1e-15)


@pytest.mark.parametrize("options", [{}, {"scales": (0.7, -1.3), "shuffle": True}])
def test_compare_sees_through_a_split(options) -> None:
    rng = np.random.default_rng(10)
    original = random_perceptron([6, 12, 12, 12, 2], rng)
    network = split_units(original, 0, [0, 3, 8, 9], rng, **options)
    domain = rn.Box.cube(6)
    found = rn.compare(original, network, domain, tolerance=1e-3)
    assert found.verdict == "within"
    assert apart(original, network, domain.sample(5, 1)) <= found.upper
    assert rn.verify(found.certificate, original, network).holds


@pytest.mark.parametrize("size", [1e4, 1e8, 1e12])
def test_pairs_of_unequal_size_that_bend_are_not_carriers(size: float) -> None:
    weights = [np.array([[size], [-1 / size]]), np.array([[1 / size, size]])]  # |x|
    network = Network.from_weights(weights, [np.zeros(2), np.zeros(1)])
    found = rn.normalize(network, "minimal", rn.Box.cube(1))
    assert found.certificate.bound < 1e-10
    assert found.network(np.array([[-0.5], [0.5]])).ravel() == pytest.approx([0.5, 0.5])

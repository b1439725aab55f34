"""What a first user broke: each test failed before it was mended."""

from __future__ import annotations

import numpy as np
import pytest

import relunorm as rn
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.forms.rational import exact_output

LINE = rn.Box([-1.0], [1.0])
build = rn.Network.from_weights


def test_eps_is_kept_by_deep_step_networks() -> None:
    """Half a unit of change below a jump can move the output by the whole jump."""
    weights, biases = [[[1.0]], [[0.001]], [[5.0]]], [[0.0], [-0.0005], [0.0]]
    deep = build(weights, biases, "step")
    points = np.linspace(-1, 1, 41)[:, None]
    small = rn.normalize(deep, "minimal", LINE, eps=0.01).network
    assert np.abs(small(points) - deep(points)).max() <= 0.01
    top = rn.normalize(deep, "minimal", LINE, eps=3.0).network  # the last step may go: 2.5
    assert top.units == 0
    assert np.abs(top(points) - deep(points)).max() <= 3.0


@pytest.mark.parametrize("seed", range(20))
def test_eps_is_kept_by_random_step_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [2, 4, 4, 2]
    weights = [rng.normal(size=(b, a)) * 0.1 for a, b in zip(sizes, sizes[1:], strict=False)]
    network = build(weights, [0.05 * rng.normal(size=b) for b in sizes[1:]], "step")
    points = rng.uniform(-1, 1, (500, 2))
    small = rn.normalize(network, "minimal", rn.Box.cube(2, -1, 1), eps=0.1)
    assert np.abs(small.network(points) - network(points)).max() <= 0.1 + 1e-12


def test_rounded_fingerprint_sees_powers_of_ten() -> None:
    first, second = (build([[[1.0], [-1.0]], [[s, 2 * s]]]) for s in (1.0, 10.0))
    for digits in (1, 3, 15):
        assert rn.fingerprint(first, LINE, digits) != rn.fingerprint(second, LINE, digits)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e300, 1e-310])
def test_rounded_fingerprint_at_a_power_of_ten(size: float) -> None:
    """The largest entry just below and just above 10^k rounds to the same number."""
    below, above = (build([[[1.0]], [[size * s]]]) for s in (1 - 1e-9, 1 + 1e-9))
    assert rn.fingerprint(below, LINE, 3) == rn.fingerprint(above, LINE, 3)
    other = build([[[1.0]], [[size * 1.01]]])
    assert rn.fingerprint(below, LINE, 3) != rn.fingerprint(other, LINE, 3)

"""The search for the largest slope along one input, against every region of the list."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import relunorm as rn
from relunorm import Activation, Box, Layer, Network
from relunorm.clock import NO_LIMIT, Clock
from relunorm.lipschitz.slope import Slope
from relunorm.lipschitz.windows import bounded

SHAPES = [(5, 6, 5, 1), (3, 4, 4, 4, 2)]


def random_net(seed: int, widths: tuple[int, ...], below: float = 0.0) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    network = Network.from_weights(weights, [rng.normal(size=b) for b in widths[1:]])
    if below:
        layers = [Layer(x.affine, Activation("leaky", below)) for x in network.layers]
        network = network.replace(layers=layers)
    return network


@pytest.mark.parametrize("below", [0.0, 0.2])
@pytest.mark.parametrize("widths", SHAPES)
def test_the_largest_slope_is_that_of_the_steepest_region(widths, below):
    network, box = random_net(len(widths), widths, below), Box.cube(widths[0], -1, 2)
    listed = rn.regions(network, box)
    assert listed.complete
    slopes = listed.affine()[0] / bounded(network, box).rates  # per coordinate of the window
    size = np.abs(slopes).max()
    for (output, axis), sign in zip(
        np.ndindex(*slopes.shape[1:]), np.resize([1.0, -1.0], slopes[0].size), strict=True
    ):
        search = Slope(bounded(network, box), output, axis, sign, 10 * size, 100 * size)
        points = search.run(-np.inf, NO_LIMIT)
        assert search.finished
        assert not search.in_doubt
        top = (sign * slopes[:, output, axis]).max()
        assert top <= search.bound <= top + 1e-8 * size
        rate = bounded(network, box).rates[axis]
        assert sign * network.jacobian(points[-1])[output, axis] == pytest.approx(
            top * rate, abs=1e-9 * size
        )


def test_a_search_broken_off_goes_on():
    network, box = random_net(0, (4, 10, 10, 1)), Box.cube(4)
    window = bounded(network, box)
    whole = Slope(window, 0, 1, 1.0, 100.0, 1000.0)
    whole.run(-np.inf, NO_LIMIT)
    parts = Slope(window, 0, 1, 1.0, 100.0, 1000.0)
    assert parts.run(-np.inf, Clock(0.0)) == []
    assert not parts.finished
    assert parts.bound >= whole.bound
    parts.run(-np.inf, NO_LIMIT)
    assert parts.finished
    assert parts.bound == whole.bound


def test_a_region_that_may_be_too_thin_is_left_to_the_tree():
    """relu(x) + relu(-x - 1e-12): both are zero on a sliver, which no float64 search can enter."""
    network = Network.from_weights([[[1.0], [-1.0]], [[-1.0, 1.0]]], [[0.0, -1e-12], [0.0]])
    search = Slope(bounded(network, Box([-1.0], [1.0])), 0, 0, 1.0, 1.0, 1.0)
    search.run(-np.inf, NO_LIMIT)
    assert search.in_doubt
    assert search.bound >= 0.0

"""Bounds on rounding against rational arithmetic, over networks that cancel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from relunorm import Activation, Affine, Box, Layer, Network
from relunorm.arithmetic import rounding
from relunorm.arithmetic.floats import at_least, at_most
from relunorm.extrema.localize import localize

#: A step that crosses no kink.
TINY = Fraction(1, 2**200)


def exact_values(network: Network, point: list[Fraction]) -> list[Fraction]:
    """The outputs at a point, by the definition."""
    values = [point]
    for affine, layer in zip(network.maps, [*network.layers, None], strict=True):
        z = []
        for i, b in enumerate(affine.bias):
            total = Fraction(float(b))
            for source, matrix in affine.terms.items():
                row = np.asarray(matrix)[i]
                total += sum(
                    (Fraction(float(w)) * v for w, v in zip(row, values[source], strict=True)),
                    Fraction(0),
                )
            z.append(total)
        if layer is None:
            return z
        below = Fraction(float(layer.activation.slopes[0]))
        values.append([v if v > 0 else below * v for v in z])
    raise AssertionError


def cancelling(rng: np.random.Generator, d: int, active: bool) -> Network:
    """scale * (f - a rewritten copy of f) with two hidden layers and a linear stage."""
    scale = 10.0 ** rng.uniform(0, 13)
    width = int(rng.integers(2, 5))
    first, second = rng.normal(size=(width, d)), rng.normal(size=(width, width))
    bias = rng.normal(size=width) + (20.0 if active else 0.0)
    factor = rng.choice([0.1, 0.3, 0.7, 3.0], width)
    none = np.zeros((width, width))
    layers = [
        Layer(
            Affine(
                {0: np.vstack([first, first * factor[:, None]])},
                np.concatenate([bias, bias * factor]),
            ),
            Activation("leaky", 0.1),
        ),
        Layer(
            Affine({1: np.block([[second, none], [none, second / factor]])}, np.zeros(2 * width)),
            Activation("identity"),
        ),
        Layer(Affine({2: np.eye(2 * width)}, np.tile(bias, 2))),
    ]
    out = rng.normal(size=(1, width))
    output = Affine({3: scale * np.hstack([out, -out])}, np.zeros(1))
    return Network(layers, output, input_shape=d)


@pytest.mark.parametrize("seed", range(40))
def test_folded_networks_are_within_their_error(seed):
    rng = np.random.default_rng(seed)
    network = cancelling(rng, 2, bool(seed % 2))
    local = localize(network, Box.cube(2))
    if seed % 2:
        assert local.network.units < network.units
    for point in Box.cube(2).sample(5, rng):
        x = [Fraction(float(v)) for v in point]
        for k in range(2):
            step = [v + Fraction(i == k) * TINY for i, v in enumerate(x)]
            ours, theirs = (
                (exact_values(net, step)[0] - exact_values(net, x)[0]) / TINY
                for net in (local.network, network)
            )
            assert abs(ours - theirs) <= Fraction(float(local.jacobian_error[0, k]))


def test_errors_follow_the_active_paths():
    # The paths of the first unit add up to 1e20, but it is off on the domain.
    network = Network.from_weights([[[1e10], [1.0]], [[1e10, 1.0]]], [[-2e10, 3.0], [0.0]])
    local = localize(network, Box.cube(1))
    assert local.jacobian_error.max() < 1e-11


def test_integers_leave_jacobians_exact():
    network = Network.from_weights([[[3.0], [-3.0]], [[1.0, 2.0]]])
    assert rounding.jacobians_are_exact(network, np.ones(1))
    assert not rounding.jacobians_are_exact(
        Network.from_weights([[[0.1], [0.2]], [[0.3, 0.7]]]), np.ones(1)
    )


def test_printed_bounds_hold():
    rng = np.random.default_rng(5)
    values = [*rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200), 0.0, 9.996, 1e22, -0.5]
    for value in map(float, values):
        for digits in (2, 3, 9):
            low, high = (Fraction(show(value, digits)) for show in (at_least, at_most))
            assert low <= Fraction(value) <= high
            assert high - low <= abs(Fraction(value)) * Fraction(10) ** (1 - digits)
    assert at_most(9.996, 3) == "10"
    assert (at_least(float("-inf")), at_most(float("inf"))) == ("-inf", "inf")

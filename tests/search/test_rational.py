"""Maxima without rounding, against an oracle in integers that shares no code with the package."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from exact_answers import inside, largest_margin, maximum, output_at
from exact_oracle import box_cell, pieces, polytope_cell, read
from hypothesis import given, settings
from hypothesis import strategies as st

import relunorm as rn
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.network.layer import Activation, Affine, Layer


def random_net(seed, slope=0.0, outputs=1, scale=1.0):
    rng = np.random.default_rng(seed)
    sizes = (2, 4, 4, outputs)
    weights = [scale * rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.integers(-2, 3, size=b) / 4 for b in sizes[1:]]
    kind = Activation("leaky", slope) if slope else Activation("relu")
    return rn.Network.from_weights(weights, biases, kind)


@settings(max_examples=12)
@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 3.0, -0.5]), st.sampled_from([1.0, 1e-5, 1e5])
)
def test_the_maximum_is_the_maximum(seed, slope, scale):
    network = random_net(seed, slope, scale=scale)
    found = rn.maximize(network, rn.Box.cube(2), [1.0], rational=True)
    truth = maximum(pieces(read(network), box_cell([-1.0, -1.0], [1.0, 1.0])), [1.0])
    assert found.value == truth
    assert output_at(read(network), found.fractions) == [truth]
    assert all(-1 <= x <= 1 for x in found.fractions)
    assert Fraction(found.lower) <= truth <= Fraction(found.upper)
    assert found.upper <= math.nextafter(found.lower, math.inf)


def test_flat_polytopes_have_their_maximum():
    """x + y = 1/3 holds for no floats beside most points; fractions find the vertex."""
    third = 1.0 / 3.0
    A = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
    plane = rn.Polytope(A, [third, -third, 1.0, 1.0])
    for seed in range(6):
        network = random_net(seed)
        found = rn.maximize(network, plane, [1.0], rational=True)
        truth = maximum(pieces(read(network), polytope_cell(plane.A, plane.b)), [1.0])
        assert found.value == truth
        assert sum(found.fractions) == Fraction(third)
        assert np.isnan(found.point).all() or inside(plane, found.point)


@pytest.mark.parametrize("seed", range(6))
def test_ties_are_decided(seed):
    """A threshold that the network reaches exactly, and one that it misses by 2^-60."""
    network = random_net(seed, outputs=2)
    A, b = np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([0.25, 0.5])
    margin = largest_margin(pieces(read(network), box_cell([-1.0, -1.0], [1.0, 1.0])), A, b)
    box = rn.Box.cube(2)
    found = rn.decide(network, box, A, b, rational=True)
    assert found.verdict == ("counterexample" if margin >= 0 else "proved")
    top = rn.maximize(network, box, [1.0, 0.0], rational=True).value
    if Fraction(float(top)) != top:
        return
    tie = rn.decide(network, box, [[-1.0, 0.0]], [-float(top)], rational=True)
    assert tie.verdict == "counterexample"


def test_a_tie_at_a_point_that_is_no_float():
    """min(|3 x - 1|) is 0 at 1/3 alone: floats leave it open, fractions find it."""
    network = rn.Network.from_weights([[[3.0], [-3.0]], [[1.0, 1.0]]], [[-1.0, 1.0], [0.0]])
    box = rn.Box([0.0], [1.0])
    assert rn.decide(network, box, [[1.0]], [0.0]).verdict == "unknown"
    found = rn.decide(network, box, [[1.0]], [0.0], rational=True)
    assert found.verdict == "counterexample"
    assert found.fractions == (Fraction(1, 3),)
    assert rn.decide(network, box, [[1.0]], [-(2.0**-60)], rational=True).verdict == "proved"


def test_skips_and_linear_stages():
    first = Layer(Affine({0: [[1.0, -2.0], [0.5, 1.0]]}, [0.1, -0.2]))
    stage = Layer(Affine({1: [[1.0, 1.0]], 0: [[0.3, 0.0]]}, [0.0]), Activation("identity"))
    last = Layer(Affine({2: [[1.0], [-1.0]], 1: [[0.0, 1.0], [1.0, 0.0]]}, [-0.5, 0.25]))
    output = Affine({3: [[1.0, -0.7]], 0: [[0.2, -0.1]], 2: [[-0.4]]}, [0.0])
    network = rn.Network([first, stage, last], output, input_shape=2)
    for sign in (1.0, -1.0):
        found = rn.maximize(network, rn.Box.cube(2), [sign], rational=True)
        truth = maximum(pieces(read(network), box_cell([-1.0, -1.0], [1.0, 1.0])), [sign])
        assert found.value == truth


def test_what_fractions_do_not_serve():
    network = random_net(0)
    with pytest.raises(InvalidDomainError, match="curved sides"):
        rn.maximize(network, rn.Ball([0.0, 0.0], 1.0), [1.0], rational=True)
    steps = rn.Network.from_weights(
        [[[1.0]], [[1.0]]], [[0.0], [0.0]], Activation("step", at_zero=0.0)
    )
    with pytest.raises(InvalidInputError, match="step"):
        rn.maximize(steps, rn.Box.cube(1), [1.0], rational=True)
    rest = rn.maximize(network, rn.Box.cube(2), [1.0], time_limit=0, rational=True)
    assert rest.value is None

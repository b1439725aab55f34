"""Very small and very large numbers: the answers of the same network at ordinary size.

The oracle is the plain network or domain: a positive factor on a unit that its readers divide by,
or on the inputs and all biases, changes no pattern.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from relunorm import (
    Activation,
    Affine,
    Ball,
    Box,
    Layer,
    Network,
    Polytope,
    along,
    region_at,
    regions,
)
from relunorm.errors import InvalidInputError
from relunorm.regions.balance import balanced
from relunorm.regions.geometry.boundaries import level_set

from .nets import he_net, random_net

SQUARE = Polytope(np.concatenate([np.eye(2), -np.eye(2)]), np.ones(4))


def rescaled(net: Network, exponents: tuple[int, ...], sparse: bool = False) -> Network:
    """The units of layer k, one in two of them, multiplied by 2^exponents[k]; readers divide."""
    weights, biases = (list(x) for x in net.weights())
    for k, exponent in enumerate(exponents):
        factor = np.where(np.arange(len(biases[k])) % 2, 2.0**exponent, 2.0 ** (exponent // 2))
        weights[k] = weights[k] * factor[:, None]
        biases[k] = biases[k] * factor
        weights[k + 1] = weights[k + 1] / factor
    return Network.from_weights([sp.csr_array(w) if sparse else w for w in weights], biases)


@pytest.mark.parametrize("exponents", [(-560, 400), (700, -300), (900, 0), (-900, 30)])
def test_regions_do_not_depend_on_the_size_of_units(exponents):
    net = he_net("2-16-16")
    other = rescaled(net, exponents, sparse=exponents[1] == 0)
    for domain, method in ((Box.cube(2), "auto"), (SQUARE, "tree"), (None, "auto")):
        mine, same = regions(other, domain, method=method), regions(net, domain, method=method)
        np.testing.assert_array_equal(mine.packed, same.packed)
        assert (mine.hidden, mine.complete) == (same.hidden, same.complete)
        for a, b in zip(mine.affine(), same.affine(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    mine, same = regions(other, Box.cube(2)), regions(net, Box.cube(2))
    assert (mine.adjacency() != same.adjacency()).nnz == 0
    np.testing.assert_array_equal(mine.locate(mine.points), np.arange(len(mine)))
    assert len(level_set(mine, 0.1).pieces) == len(level_set(same, 0.1).pieces)
    ends = [-1.0, -0.7], [0.9, 1.0]
    np.testing.assert_allclose(along(other, *ends).breakpoints, along(net, *ends).breakpoints)


@pytest.mark.parametrize("method", ["tree", "cells", "polygons"])
@pytest.mark.parametrize("size", [1e-100, 1e-170, 1e-250])
def test_faint_units_beside_large_weights(size, method):
    """relu(size relu(x) + relu(0 x)) is on where x > 0: half of the box, however small the size."""
    net = Network.from_weights(
        [[[1.0, 0.0], [0.0, 0.0]], [[size, 1.0]], [[1.0]]], [[0.0, 0.0], [0.0], [0.0]]
    )
    found = regions(net, Box.cube(2), method=method)
    assert sorted(found.patterns.tolist()) == [[False, False, False], [True, False, True]]
    assert found.volume().tolist() == [2.0, 2.0]
    assert found.hidden == 0


def test_maps_of_constant_units_keep_their_digits():
    net = Network.from_weights([[[0.0], [1.0]], [[-1e-200, 0.0]]], [[1.0, 0.0], [0.0]])
    for gradient, constant in zip(*regions(net, Box.cube(1)).affine(), strict=True):
        assert gradient.tolist() == [[0.0]]
        assert constant.tolist() == [-1e-200]
    assert set(along(net, [-1.0], [1.0]).values.ravel().tolist()) == {-1e-200}


def test_three_inputs_and_cells():
    net = random_net(np.random.default_rng(3), [3, 5, 4, 1])
    other = rescaled(net, (-560, 400))
    np.testing.assert_array_equal(
        regions(other, Box.cube(3)).packed, regions(net, Box.cube(3)).packed
    )
    x = np.array([0.3, -0.2, 0.4])
    mine, same = region_at(other, x), region_at(net, x)
    np.testing.assert_array_equal(mine.pattern, same.pattern)
    assert mine.inradius == pytest.approx(same.inradius)
    assert [str(w) for w in mine.polytope.walls] == [str(w) for w in same.polytope.walls]
    np.testing.assert_allclose(mine.affine[0], same.affine[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("exponent", [-900, -664, 300])
def test_regions_do_not_depend_on_the_size_of_the_domain(exponent):
    net, size = he_net("2-16-16"), 2.0**exponent
    weights, biases = net.weights()
    factors = [size] * 3  # f(size x) / size, biases included
    small = Network.from_weights(weights, [b * f for b, f in zip(biases, factors, strict=True)])
    rows = np.concatenate([np.eye(2), -np.eye(2)])
    pairs = (
        (Box.cube(2), Box.cube(2, -size, size)),
        (Ball([0.1, 0.0], 1.0), Ball([0.1 * size, 0.0], size)),
        (SQUARE, Polytope(rows, np.full(4, size))),
    )
    for plain, domain in pairs:
        mine, same = regions(small, domain), regions(net, plain)
        np.testing.assert_array_equal(mine.packed, same.packed)
        np.testing.assert_allclose(mine.affine()[0], same.affine()[0], rtol=1e-9, atol=1e-12)
    mine, same = regions(small, pairs[0][1]), regions(net, pairs[0][0])
    np.testing.assert_allclose(mine.points / size, same.points, rtol=1e-12, atol=1e-12)
    assert (mine.adjacency() != same.adjacency()).nnz == 0
    assert len(level_set(mine, 0.1 * size).pieces) == len(level_set(same, 0.1).pieces)
    ends = np.array([[-1.0, -0.7], [0.9, 1.0]])
    np.testing.assert_allclose(
        along(small, ends * size).breakpoints, along(net, ends).breakpoints, atol=1e-12
    )


def test_the_origin_of_a_tiny_box():
    net = Network.from_weights([np.eye(2), np.ones((1, 2))])
    assert len(regions(net, Box.cube(2, -1e-200, 1e-200))) == 4


def test_ordinary_networks_are_left_alone_and_hopeless_ones_refused():
    net = he_net("2-16-16")
    assert balanced(net) is net
    wide = Network.from_weights([np.eye(2), [[1e-300, 1.0]], [[1.0]]])
    tall = rescaled(wide, (900, 0))
    with pytest.raises(InvalidInputError, match="too far apart"):
        regions(Network.from_weights([[[1e200, 1e-200]], [[1.0]]]), Box.cube(2))
    assert len(regions(tall, Box.cube(2))) == len(regions(wide, Box.cube(2)))
    with pytest.raises(InvalidInputError, match="beyond float64"):
        regions(Network.from_weights([[[1e200]], [[1e200]]]), Box.cube(1))


def test_a_path_that_is_off_adds_nothing_however_large_it_is():
    """x + 1e105 leaky(-1e200 relu(x - 2)), of slope 1e6 below 0: 1e311 where the relu is on."""
    layers = [
        Layer(Affine({0: [[1.0]]}, [-2.0])),
        Layer(Affine({1: [[-1e200]]}, [0.0]), Activation("leaky", slope=1e6)),
    ]
    net = Network(layers, Affine({2: [[1e105]], 0: [[1.0]]}, [0.0]), input_shape=1)
    A, c = regions(net, Box([-1.0], [1.0])).affine(0)
    assert (A.tolist(), c.tolist()) == ([[1.0]], [0.0])


def test_a_faint_bias_decides_where_all_that_a_unit_reads_is_off():
    """relu(1e200 relu(1e200 x) + 1e-138): scaled by 2^-1300 the bias alone would be 0."""
    net = Network.from_weights([[[1e200]], [[1e200]], [[1e-138]]], [[0.0], [1e-138], [0.0]])
    found = regions(net, Box([-1.0], [1.0]))
    assert sorted(found.patterns.tolist()) == [[False, True], [True, True]]
    off = found.patterns.tolist().index([False, True])
    A, c = found.affine(off)
    np.testing.assert_allclose([A[0, 0], c[0]], [0.0, 1e-276], rtol=1e-12)


def test_linear_stages_of_large_and_small_weights_are_multiplied_out_at_size():
    stage = Activation("identity")
    for first, second in ((1e-200, 1e-200), (1e200, 1e200)):
        layers = [
            Layer(Affine({0: [[first], [-first]]}, [0.0, first / 2]), stage),
            Layer(Affine({1: second * np.eye(2)}, [0.0, 0.0])),
        ]
        back = 1 / first / 4
        net = Network(layers, Affine({2: [[back, back]]}, [0.0]), input_shape=1)
        if first > 1:
            net = net.replace(output=Affine({2: [[back * 1e-10, back * 1e-10]]}, [0.0]))
        found = regions(net, Box([-1.0], [1.0]))
        on = sorted(map(tuple, found.patterns.tolist()))
        assert on == [(False, True), (True, False), (True, True)]
        exact = second / 4 * (1e-10 if first > 1 else 1.0)
        steep = found.affine(found.patterns.tolist().index([True, False]))[0]
        np.testing.assert_allclose(steep, [[exact]], rtol=1e-12)

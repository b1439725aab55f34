"""The region at a point, its polytope, neighbours and atoms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relunorm import Ball, Box, Network, region_at, regions
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError, InvalidNetworkError

from .nets import he_net, random_net, skip_net


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["relu", "leaky"]))
def test_map_and_configuration(seed, kind):
    from relunorm import Activation

    rng = np.random.default_rng(seed)
    slope = 0.1 if kind == "leaky" else 0.0
    net = random_net(rng, [3, 6, 5, 2], Activation(kind, slope))
    x = rng.standard_normal(3)
    region = region_at(net, x)
    assert (region.pattern == net.pattern(x)).all()
    A, c = region.affine
    np.testing.assert_allclose(A, net.jacobian(x), atol=1e-12)
    np.testing.assert_allclose(A @ x + c, net(x), atol=1e-12)
    assert region.polytope.contains(x[None])[0]
    assert (net.pattern(region.interior_point) == region.pattern).all()


def test_example_2_of_seed_003():
    """The regions as they are, not as printed: (1,0) is {(M1 x)_1 > 0, (M1 x)_2 <= 0}."""
    net = Network.from_weights([np.eye(2), [[1.0, 1.0]], [[1.0]]], [[0, 0], [-0.5], [0]])
    assert region_at(net, [1.0, -1.0]).configuration[0].tolist() == [True, False]
    assert region_at(net, [-1.0, 1.0]).configuration[0].tolist() == [False, True]
    # M2 diag(0) M1 is b2, not 0: with b2 > 0 the configuration is [0, 0, 1].
    lifted = Network.from_weights([np.eye(2), [[1.0, 1.0]], [[1.0]]], [[0, 0], [0.5], [0]])
    assert region_at(lifted, [-1.0, -1.0]).pattern.tolist() == [False, False, True]
    assert [len(s) for s in region_at(lifted, [-1.0, -1.0]).supports] == [0, 1]


def test_a_zero_first_map_leaves_the_biases_of_later_layers():
    """Seed 003 prints: if M1 = 0 every theta_k is zero. There is one configuration, [0, 0, 1]."""
    net = Network.from_weights([np.zeros((2, 2)), [[1.0, 1.0]], [[1.0]]], [[0, 0], [0.5], [0]])
    found = np.unique(net.pattern(np.random.default_rng(0).normal(size=(50, 2))), axis=0)
    assert found.tolist() == [[False, False, True]]


def test_the_map_of_a_difference_is_not_the_difference_of_the_maps():
    """Seed 003 bounds |M(x - x')| by the norms of the weights; that is true of |Mx - Mx'|."""
    net = he_net("2-16-16")
    A, c = region_at(net, [0.3, -0.2]).affine
    step = np.array([1e-6, 0.0])
    bound = np.prod([np.linalg.norm(np.asarray(w), 2) for w in net.weights()[0]]) * 1e-6
    assert np.linalg.norm(A @ step + c) > bound
    assert np.linalg.norm(A @ step) <= bound


def test_neighbors_match_the_list():
    net = he_net("2-16-16")
    found = regions(net, Box.cube(2))
    graph = found.adjacency()
    for i in range(0, len(found), 17):
        region = region_at(net, found.points[i], Box.cube(2))
        near = {int(found.find(other.pattern)[0]) for _, other in region.neighbors()}
        assert near == set(graph[[i]].nonzero()[1].tolist())


@pytest.mark.parametrize("seed", range(8))
def test_no_region_is_its_own_neighbor(seed):
    """Small integer weights without biases: many walls coincide and many units vanish."""
    rng = np.random.default_rng(seed)
    sizes = [5, 4, 4, 1]
    net = Network.from_weights([rng.integers(-1, 2, (b, a)) for a, b in itertools.pairwise(sizes)])
    box = Box.cube(5, -2, 2)
    found = regions(net, box)
    graph = found.adjacency()
    for i in range(len(found)):
        region = region_at(net, found.points[i], box)
        near = [int(found.find(other.pattern)[0]) for _, other in region.neighbors()]
        assert min(near, default=0) >= 0
        assert i not in near
        assert set(near) == set(graph[[i]].nonzero()[1].tolist())


def test_on_a_wall_the_region_has_interior():
    net = Network.from_weights([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 1.0]]])
    region = region_at(net, [0.0, 0.3])
    assert region.pattern.sum() == 1
    assert region.inradius == np.inf
    assert not region.is_bounded
    inside = region_at(net, [1.0, 0.3], Box.cube(2))  # on the box's corner side
    assert inside.pattern.tolist() == [True, False]


def test_many_inputs_use_the_general_solver():
    rng = np.random.default_rng(0)
    net = random_net(rng, [30, 12, 40, 3])
    box = Box.cube(30)
    x = rng.uniform(-0.5, 0.5, 30)
    region = region_at(net, x, box)
    cell = region.polytope
    assert cell.contains(x[None])[0]
    assert region.inradius > 0
    pre = net.preactivations(cell.facet_points)
    for k, wall in enumerate(cell.walls):
        assert abs(cell.A[k] @ cell.facet_points[k] - cell.b[k]) < 1e-7
        if not wall.is_domain:
            assert abs(pre[wall.layer][k, wall.index]) < 1e-7
    # Independent rows: every one is a facet.
    few = region_at(random_net(rng, [30, 12, 3]), x)
    assert len(few.polytope.walls) == 12
    assert not few.is_bounded


def paths_by_listing(weights, slopes):
    """Coefficients of Theorem 5 by listing every path."""
    hidden = weights[1:-1]
    sizes = [len(s) for s in slopes]
    c = np.zeros((sizes[-1], sizes[0]))
    for path in itertools.product(*[range(n) for n in sizes]):
        product = slopes[-1][path[-1]] if len(sizes) > 1 else 1.0
        for k, w in enumerate(hidden):
            product *= w[path[k + 1], path[k]]
            if k > 0:
                product *= slopes[k][path[k]]
        c[path[-1], path[0]] += product
    return c


@pytest.mark.parametrize("widths", [[3, 4, 2], [3, 4, 3, 2], [3, 4, 3, 4, 2], [2, 3, 3, 3, 3, 1]])
def test_atoms_against_listed_paths(widths):
    rng = np.random.default_rng(len(widths))
    net = random_net(rng, widths)
    for _ in range(5):
        x = rng.standard_normal(widths[0])
        region = region_at(net, x)
        atoms = region.atoms()
        assert atoms.error < 1e-12
        np.testing.assert_allclose(atoms.linear, region.affine[0], atol=1e-12)
        np.testing.assert_allclose(atoms.outer @ atoms.alpha(x) + atoms.bias, net(x), atol=1e-12)
        np.testing.assert_allclose(atoms.bias, region.affine[1], atol=1e-15)
        slopes = [theta.astype(float) for theta in region.configuration]
        if len(widths) > 3:
            listed = paths_by_listing(net.weights()[0], slopes)
            np.testing.assert_allclose(
                listed[np.ix_(atoms.last, atoms.first)], atoms.coefficients, atol=1e-12
            )
            expected = np.prod([s.sum() for s in slopes[1:-1]]) if len(slopes) > 2 else 1
            assert (atoms.paths == expected).all()
        else:
            assert len(atoms) == slopes[0].sum()
        total = sum(
            atoms.coefficients[i, j] * atoms.atom(i, j)
            for i in range(len(atoms.last))
            for j in range(len(atoms.first))
        )
        np.testing.assert_allclose(total + 0 * region.affine[0], region.affine[0], atol=1e-12)


def test_atoms_refuse_skips():
    with pytest.raises(InvalidNetworkError, match="plain"):
        region_at(skip_net(np.random.default_rng(0)), [0.1, 0.2]).atoms()


def test_bad_points():
    net = he_net("2-16-16")
    with pytest.raises(InvalidInputError, match="shape"):
        region_at(net, [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="NaN"):
        region_at(net, [np.nan, 0.0])
    with pytest.raises(InvalidInputError, match="outside"):
        region_at(net, [3.0, 0.0], Box.cube(2))


@pytest.mark.parametrize("d", [1, 2, 3, 30])
def test_a_ball_cuts_the_region(d):
    """A polytope around the ball cuts, and the interior point lies in the ball (dense sampling)."""
    net = random_net(np.random.default_rng(d), [d, 6, 5, 2])
    ball = Ball(np.full(d, 0.1), 0.5)
    for x in ball.sample(8, 1):
        region = region_at(net, x, ball)
        inside = region.interior_point
        assert ball.contains(inside)[0]
        assert (net.pattern(inside) == region.pattern).all()
        cell = region.polytope
        assert cell.bounded
        assert (cell.contains(x, 1e-9)).all()
        nearby = ball.sample(2000, 2)
        same = (net.pattern(nearby) == region.pattern).all(axis=1)
        assert cell.contains(nearby[same], 1e-9).all()
        if d <= 3:
            assert any(wall.is_domain for wall in cell.walls) or len(region.vertices()) > d
            assert regions(net, ball).find(region.pattern)[0] >= 0
    edge = ball.middle + np.eye(d)[0] * ball.reach
    assert ball.contains(region_at(net, edge, ball).interior_point)[0]
    with pytest.raises(InvalidInputError, match="outside"):
        region_at(net, ball.middle + 1.0, ball)


def test_a_large_polytope_under_a_time_limit_is_the_same_set():
    rng = np.random.default_rng(0)
    net = random_net(rng, [26, 40, 1])
    region = region_at(net, rng.uniform(-1, 1, 26))
    seen: list[Progress] = []
    whole = region.reduced_polytope(progress=seen.append)
    part = region.reduced_polytope(time_limit=1e-9)
    assert whole.complete
    assert not part.complete
    assert len(seen) == 40
    assert len(part.b) == 40 >= len(whole.b)
    steps = rng.standard_normal((2000, 26)) * 10.0 ** rng.uniform(-3, 1, (2000, 1))
    points = region.interior_point + steps
    inside = part.contains(points)
    np.testing.assert_array_equal(inside, whole.contains(points))
    assert 0 < inside.sum() < 2000
    with pytest.raises(InvalidInputError, match="time_limit"):
        region.reduced_polytope(time_limit=-1)

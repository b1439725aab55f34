"""Boundaries that lie on the walls between regions, against the network along random lines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from relunorm import Affine, Box, Layer, Network, Polytope, along, region_at, regions
from relunorm.errors import InvalidInputError
from relunorm.regions.geometry.boundaries import decision_cells, level_set
from relunorm.regions.views.mesh import mesh

from .oracle import rim


def ridge(d, outer):
    """outer[0] relu(x0) + outer[1] relu(-x0): every level set at 0 lies on the wall x0 = 0."""
    first = np.zeros((2, d))
    first[0, 0], first[1, 0] = 1.0, -1.0
    return Network.from_weights([first, [outer]])


def grid_net(seed, d):
    """Small integer weights: many walls on which an output is 0."""
    rng = np.random.default_rng(seed)
    sizes = (d, 4, 3, 1)
    weights = [rng.integers(-2, 3, (b, a)) for a, b in itertools.pairwise(sizes)]
    return Network.from_weights(weights, [rng.integers(-1, 2, b) / 2 for b in sizes[1:]])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("outer", [(1, 1), (-1, -1), (2, -1), (1, 0), (0, -1)])
def test_a_level_set_on_a_wall_is_listed_once(d, outer):
    for scale in (1.0, 1e-13, 1e8):
        found = regions(ridge(d, np.multiply(outer, scale)), Box.cube(d))
        surface = level_set(found)
        assert len(surface) == 1
        assert surface.size == pytest.approx(2.0 ** (d - 1), abs=1e-12)
        np.testing.assert_allclose(surface.pieces[0][:, 0], 0.0, atol=1e-15)


def test_plateaus_are_no_boundary_and_faces_of_the_domain_are():
    assert len(level_set(regions(ridge(2, (0, 0)), Box.cube(2)))) == 0
    edge = level_set(regions(ridge(2, (1, 1)), Box(np.array([0.0, 0.0]), np.ones(2))))
    assert edge.size == pytest.approx(1.0)
    face = level_set(regions(ridge(3, (1, 1)), Box(np.zeros(3), np.ones(3))))
    assert face.size == pytest.approx(1.0)


def zeros(line):
    """Inner points of a line where the network is 0, without the inside of plateaus."""
    v = np.where(np.abs(line.values[:, 0]) < 1e-11, 0.0, line.values[:, 0])
    found = []
    for k in range(len(v) - 1):
        if v[k] * v[k + 1] < 0:
            found.append(
                line.breakpoints[k] + v[k] / (v[k] - v[k + 1]) * np.diff(line.breakpoints)[k]
            )
        if k and v[k] == 0 and (v[k - 1] != 0 or v[k + 1] != 0):
            found.append(line.breakpoints[k])
    return np.sort(found)


def hits(piece, a, b):
    """Where the segment from a to b (t from 0 to 1) meets a flat piece, or None."""
    d = len(a)
    if d == 2:
        normal = np.array([piece[1, 1] - piece[0, 1], piece[0, 0] - piece[1, 0]])
    else:
        middle = piece.mean(axis=0)
        normal = sum(
            np.cross(p - middle, q - middle)
            for p, q in zip(piece, np.roll(piece, -1, 0), strict=True)
        )
    t = normal @ (piece[0] - a) / (normal @ (b - a))
    x = a + t * (b - a)
    if not 0 < t < 1:
        return None
    if d == 2:
        return t if (piece[0] - x) @ (piece[1] - x) < 0 else None
    turns = [
        np.cross(q - p, x - p) @ normal for p, q in zip(piece, np.roll(piece, -1, 0), strict=True)
    ]
    return t if min(turns) > 0 or max(turns) < 0 else None


@pytest.mark.parametrize("d", [2, 3])
def test_random_lines_meet_the_pieces_where_the_network_vanishes(d):
    rng, met = np.random.default_rng(5), 0
    for seed in range(12):
        net = grid_net(seed, d)
        surface = level_set(regions(net, Box.cube(d)))
        for _ in range(8):
            a, b = rng.uniform(-1, 1, (2, d))
            expected = zeros(along(net, a, b))
            places = np.sort([t for p in surface.pieces if (t := hits(p, a, b)) is not None])
            np.testing.assert_allclose(places, expected, atol=1e-9)
            met += len(places)
    assert met > 30


def test_a_closed_surface_with_a_face_on_a_wall_has_no_hole():
    """max(h(x), |y| - 1/2, |z| - 1/2, -x - 1/2) with h = 3 relu(x) - relu(-x): its face x = 0."""
    y, z = np.array([[0, 0, 1.0, 1, 0, 0]]), np.array([[0, 0, 0, 0, 1.0, 1]])
    h, x, one = (
        np.array([[3.0, -1, 0, 0, 0, 0]]),
        np.array([[1.0, -1, 0, 0, 0, 0]]),
        np.ones((1, 1)),
    )
    eye = np.repeat(np.eye(3), 2, axis=0) * np.array([1, -1] * 3)[:, None]
    layers = [
        Layer(Affine({0: eye}, np.zeros(6))),
        Layer(Affine({1: y - z}, np.zeros(1))),
        Layer(Affine({1: h - z, 2: -one}, np.array([0.5]))),
        Layer(Affine({1: -x - z, 2: -one, 3: -one}, np.zeros(1))),
    ]
    net = Network(layers, Affine({1: z, 2: one, 3: one, 4: one}, np.array([-0.5])), input_shape=3)
    surface = level_set(regions(net, Box.cube(3)))
    assert surface.size == pytest.approx(4.0, abs=1e-12)
    assert rim(mesh(surface)) == 0


def test_decision_boundary_on_a_wall():
    first = [[1.0, 0.0], [-1.0, 0.0]]
    cells = decision_cells(regions(Network.from_weights([first, np.eye(2)]), Box.cube(2)))
    assert len(cells.segments) == 1
    assert cells.pairs.tolist() == [[0, 1]]
    assert np.linalg.norm(np.diff(cells.segments[0], axis=0)) == pytest.approx(2.0)
    # Class 1 only touches class 0 here: a tie, but no boundary.
    touching = Network.from_weights([first, [[0.0, 0.0], [-1.0, -1.0]]])
    assert len(decision_cells(regions(touching, Box.cube(2))).segments) == 0


def test_decision_boundaries_meet_random_lines_where_the_class_changes():
    rng, met = np.random.default_rng(2), 0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        net = Network.from_weights(
            [draw.integers(-2, 3, (5, 2)), draw.integers(-2, 3, (3, 5))], [np.zeros(5), np.zeros(3)]
        )
        cells = decision_cells(regions(net, Box.cube(2)))
        for _ in range(10):
            a, b = rng.uniform(-1, 1, (2, 2))
            t = np.linspace(0, 1, 4001)[:, None]
            best = net(a + t * (b - a)).round(9).argmax(axis=1)
            expected = t[1:, 0][best[1:] != best[:-1]]
            places = np.sort([s for p in cells.segments if (s := hits(p, a, b)) is not None])
            np.testing.assert_allclose(places, expected, atol=1e-3)
            met += len(places)
    assert met > 20


def test_a_polyline_that_turns_inside_a_region_breaks_there():
    net = Network.from_weights([[[1.0, 0.0]], [[1.0]]], [[10.0], [0.0]])
    line = along(net, [0, 0], [5, 0], [0, 0])
    assert line.breakpoints.tolist() == [0, 1, 2]
    assert line.values.ravel().tolist() == [10, 15, 10]
    assert line([0.5, 1.5]).ravel().tolist() == [12.5, 12.5]
    assert [c.tolist() for c in line.crossings()] == [[]]


def test_flat_domains_and_levels_that_are_no_numbers_are_refused():
    net = ridge(2, (1, 1))
    flat = regions(net, Box(np.array([-1, 0.2]), np.array([1, 0.2])))
    with pytest.raises(InvalidInputError, match=r"coordinates \[1\]"):
        level_set(flat)
    with pytest.raises(InvalidInputError, match="interior"):
        decision_cells(
            regions(
                Network.from_weights([np.eye(2), np.eye(2)]), Box(np.zeros(2), np.array([1.0, 0.0]))
            )
        )
    for level in (math.nan, math.inf, "a"):
        with pytest.raises(InvalidInputError, match="finite number"):
            level_set(regions(net, Box.cube(2)), level)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e-11, 1e-15, 1e9])
def test_level_sets_do_not_depend_on_the_scale_of_the_network(scale):
    net = grid_net(4, 2)
    small = Network.from_weights(
        [net.layers[0].affine.terms[0], net.layers[1].affine.terms[1], net.output.terms[2] * scale],
        [net.layers[0].affine.bias, net.layers[1].affine.bias, net.output.bias * scale],
    )
    one, other = level_set(regions(net, Box.cube(2))), level_set(regions(small, Box.cube(2)))
    assert len(one) == len(other) > 0
    assert one.size == pytest.approx(other.size)
    tiny = Box.cube(2, -1e-13, 1e-13)
    assert level_set(regions(ridge(2, (1, -1)), tiny)).size == pytest.approx(2e-13)
    assert (
        len(
            level_set(
                regions(
                    Network.from_weights([[[1.0], [1.0]], [[1.0, -2.0]]], [[0, -1e-15], [-5e-16]]),
                    Box.cube(1, -4e-15, 4e-15),
                )
            )
        )
        == 2
    )


def test_nothing_lies_across_a_wall_of_the_domain_that_is_a_kink_too():
    net = Network.from_weights([[[0.0, -1.0]], [[1.0]]], [[-1.0], [0.0]])
    domain = Polytope([[1, 0], [0, -1], [-3, 3], [0, 3]], [3, 1, -3.75, -1.25])
    found = regions(net, domain)
    region = region_at(net, found.interior_point(0), domain)
    assert len(found) == 1
    assert region.neighbors() == []
    assert all(wall.is_domain for wall in region.polytope.walls)
    assert all(wall.is_domain for wall in found.polytope(0).walls)


@pytest.mark.parametrize("d", [2, 3, 26])
@pytest.mark.parametrize("seed", range(4))
def test_kinks_in_the_faces_of_a_polytope(seed, d):
    """A turned box whose faces are kinks of units: its one region has no neighbours."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows, rhs = np.concatenate([turn, -turn]), rng.uniform(0.1, 2.0, 2 * d)
    factors = rng.uniform(0.1, 9.0, 2 * d)
    net = Network.from_weights(
        [-rows * factors[:, None], np.ones((1, 2 * d))], [rhs * factors, [0.0]]
    )
    region = region_at(net, np.zeros(d), Polytope(rows, rhs))
    assert region.neighbors() == []
    assert [str(wall) for wall in region.polytope.walls] == [f"domain {i}" for i in range(2 * d)]

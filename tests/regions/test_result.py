"""What can be asked of a list of regions."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from relunorm import (
    Activation,
    Affine,
    Ball,
    Box,
    Layer,
    Network,
    NormBall,
    Polytope,
    load_regions,
    on_plane,
    regions,
)
from relunorm.domain import KINDS
from relunorm.errors import InvalidInputError

from .nets import degenerate_nets, he_net, random_net, skip_net
from .oracle import exact_map, exact_polygon


@pytest.fixture(scope="module")
def flat():
    return regions(he_net("2-16-16"), Box.cube(2))


@pytest.fixture(scope="module")
def solid():
    return regions(random_net(np.random.default_rng(4), [3, 8, 6, 2]), Box.cube(3))


def test_euler_characteristic_in_the_plane():
    """V - E + F = 1 for a subdivided disc, with corners joined at 1e-9."""
    for name in ("2-16-16", "2-32-32"):
        found = regions(he_net(name), Box.cube(2))
        vertices, edges = set(), set()
        for i in range(len(found)):
            ring = [tuple(p) for p in np.round(found.vertices(i), 9) + 0.0]
            vertices.update(ring)
            edges.update(frozenset(pair) for pair in zip(ring, ring[1:] + ring[:1], strict=True))
        assert len(vertices) - len(edges) + len(found) == 1


def shape_of(corners) -> tuple[float, np.ndarray]:
    """The area inside a ring of corners, and the ring without repeated ones in a fixed order."""
    ring = np.array(corners, dtype=float).reshape(-1, 2)
    x, y = (ring - ring[0]).T
    area = abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
    return area, np.unique(np.round(ring, 8) + 0.0, axis=0)


@pytest.mark.parametrize("method", ["tree", "polygons"])
def test_corners_of_all_regions_against_fractions(method):
    """Lists with corners of the search and without: those of the cells in rational arithmetic."""
    nets = {
        **degenerate_nets(2),
        "skips": skip_net(np.random.default_rng(3), slope=0.25),
        "leaky": random_net(np.random.default_rng(5), [2, 6, 5, 4, 1], Activation("leaky", -0.5)),
    }
    box = Box([-1.0, -0.5], [1.0, 1.5])
    for name, net in nets.items():
        found = regions(net, box, method=method)
        corners, ptr = found.polygons
        assert len(ptr) == len(found) + 1, name
        for i, bits in enumerate(found.patterns):
            area, ring = shape_of(exact_polygon(net, bits.tolist(), box.lo, box.hi))
            ours, own = shape_of(corners[ptr[i] : ptr[i + 1]])
            assert abs(ours - area) < 1e-9, (name, i)
            # Walls that rounding alone tells apart leave the exact ring corners within an edge.
            assert np.abs(own[:, None] - ring[None]).max(axis=2).min(axis=1).max() < 1e-7, (name, i)
            assert np.array_equal(found.vertices(i), corners[ptr[i] : ptr[i + 1]])
        assert abs(found.volume().sum() - 4) < 1e-9, name


def test_corners_of_a_list_in_any_order(flat):
    """Each polygon is its own region's, whatever stands beside it and whoever listed it."""
    rng = np.random.default_rng(0)
    some = regions(flat.network, flat.domain, method="tree").select(rng.permutation(len(flat))[:99])
    corners, ptr = some.polygons
    whole, places = flat.polygons
    for i, k in enumerate(flat.find(some.patterns)):
        ring = shape_of(corners[ptr[i] : ptr[i + 1]])[1]
        assert np.allclose(ring, shape_of(whole[places[k] : places[k + 1]])[1], atol=1e-7)


def test_volumes_fill_the_domain(flat, solid):
    assert abs(flat.volume().sum() - 4) < 1e-9
    assert abs(solid.volume().sum() - 8) < 1e-9
    four = regions(random_net(np.random.default_rng(1), [4, 5, 4, 1]), Box.cube(4, -0.5, 1.5))
    assert abs(four.volume().sum() - 16) < 1e-9
    one = regions(random_net(np.random.default_rng(1), [1, 5, 4, 1]), Box.cube(1))
    assert abs(one.volume().sum() - 2) < 1e-9


@pytest.mark.parametrize("d", [3, 4])
def test_volumes_in_boxes_of_very_different_sides(d):
    """The same network in other units of its inputs: every volume is multiplied by theirs."""
    units = 2.0 ** np.array([-32.0, 14.0, 30.0, 26.0])[:d]
    net = random_net(np.random.default_rng(2), [d, 5, 3, 1])
    weights, biases = net.weights()
    other = Network.from_weights([weights[0] / units, *weights[1:]], biases)
    mine, same = regions(other, Box(-units, units)), regions(net, Box.cube(d))
    np.testing.assert_array_equal(mine.packed, same.packed)
    assert same.volume().min() > 0
    np.testing.assert_allclose(mine.volume(), same.volume() * np.prod(units), rtol=1e-9)


def test_polytopes_have_only_facets_and_name_them(solid):
    net = solid.network
    for i in range(0, len(solid), 7):
        cell = solid.polytope(i)
        corners = solid.vertices(i)
        assert (cell.b[:, None] + 1e-9 >= cell.A @ corners.T).all()
        # A facet of a 3-polytope holds at least three corners.
        on = np.abs(cell.A @ corners.T - cell.b[:, None]) < 1e-9
        assert (on.sum(axis=1) >= 3).all()
        assert np.allclose(
            np.abs(np.einsum("kd,kd->k", cell.A, cell.facet_points) - cell.b), 0, atol=1e-9
        )
        pre = net.preactivations(cell.facet_points)
        for k, wall in enumerate(cell.walls):
            if not wall.is_domain:
                assert abs(pre[wall.layer][k, wall.index]) < 1e-9


def test_inradius_against_scipy(solid):
    from scipy.optimize import linprog

    for i in range(0, len(solid), 11):
        cell = solid.polytope(i)
        best = linprog(
            [0, 0, 0, -1],
            A_ub=np.column_stack([cell.A, np.ones(len(cell.b))]),
            b_ub=cell.b,
            bounds=[(None, None)] * 3 + [(0, None)],
        )
        assert abs(solid.inradius(i) - best.x[-1]) < 1e-9


def test_inradius_is_euclidean_in_a_stretched_box():
    net = Network.from_weights([[[1.0, 0.0]], [[1.0]]])
    found = regions(net, Box([-4, -1], [4, 1]))
    assert np.allclose([found.inradius(i) for i in range(2)], 1.0)


def test_locate(flat, solid):
    for found in (flat, solid):
        d = found.network.input_size
        x = Box.cube(d).sample(5000, 2)
        where = found.locate(x)
        assert (found.patterns[where] == found.network.pattern(x)).all()
        assert (found.locate(found.points) == np.arange(len(found))).all()
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
        assert (found.locate(corners) >= 0).all()
        assert found.locate(np.full((1, d), 1.5)).tolist() == [-1]
    # Points on walls lie in the closure of the region they are sent to.
    cell = solid.polytope(3)
    for at in cell.facet_points:
        other = solid.polytope(int(solid.locate(at[None])[0]))
        assert other.contains(at[None], 1e-9)[0]


def test_locate_where_units_vanish_identically():
    for name, net in degenerate_nets(2).items():
        found = regions(net, Box.cube(2))
        assert (found.locate(Box.cube(2).sample(2000, 3)) >= 0).all(), name


def test_adjacency_is_by_shared_facets(flat):
    graph = flat.adjacency()
    assert (graph != graph.T).nnz == 0
    # Oracle: polygons that share two corners (an edge), corners joined at 1e-9.
    rings = [{tuple(p) for p in np.round(flat.vertices(i), 8) + 0.0} for i in range(len(flat))]
    expected = {
        (i, j)
        for i, j in itertools.combinations(range(len(flat)), 2)
        if len(rings[i] & rings[j]) >= 2
    }
    rows, columns = graph.nonzero()
    assert {
        (i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if i < j
    } == expected


def test_adjacency_in_a_box_much_larger_than_the_kinks():
    """Three intervals in a row, two edges; a polygon net has the same graph whatever the box."""
    steps = Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0]]], [[-0.1, -0.3], [0.0]])
    found = regions(steps, Box([-1e6], [2e6]))
    assert len(found) == 3
    assert found.adjacency().nnz == 2 * 2
    net = random_net(np.random.default_rng(0), [2, 8, 6, 2])
    for h in (1e3, 1e4, 1e5, 1e6):
        found = regions(net, Box([-h, -h], [2 * h, 2 * h]))
        graph = found.adjacency()
        # Oracle: polygons that share an edge, corners joined at 1e-9 of the box.
        rings = [
            {tuple(p) for p in np.round(found.vertices(i) / h, 9) + 0.0} for i in range(len(found))
        ]
        edges = sum(len(a & b) >= 2 for a, b in itertools.combinations(rings, 2))
        assert graph.nnz == 2 * edges


def test_adjacency_of_degenerate_networks_is_connected():
    """Every facet inside the domain leads to another region of the list."""
    from relunorm.regions.geometry.locate import facets

    for d in (1, 2, 3):
        for name, net in degenerate_nets(d).items():
            found = regions(net, Box.cube(d))
            part = facets(found)
            beyond = found.find(part.beyond)
            # A kink on the box's own face leads outside.
            inside = (np.abs(part.at) < 1 - 1e-9).all(axis=1)
            assert (beyond[inside] >= 0).all(), name
            assert (beyond != part.owner).all(), name
            sides = set(zip(part.owner[inside].tolist(), beyond[inside].tolist(), strict=True))
            assert {(j, i) for i, j in sides} == sides, name


def test_one_bit_apart_is_not_adjacent():
    """Later layers fold: patterns that differ in one bit need not touch (docs/errata.md)."""
    found_one = False
    for seed in range(6):
        found = regions(random_net(np.random.default_rng(seed), [2, 8, 8, 1]), Box.cube(2))
        bits = found.patterns
        close = (bits[:, None] != bits[None]).sum(axis=2) == 1
        touching = found.adjacency().toarray()
        assert (touching <= close).all()  # generic networks: neighbours differ in one bit
        found_one |= bool((close & ~touching).any())
    assert found_one


def test_mean_degree_is_below_twice_the_dimension(flat, solid):
    assert flat.adjacency().sum() / len(flat) < 4
    assert solid.adjacency().sum() / len(solid) < 6


def test_affine_maps_are_continuous_across_facets(solid):
    from relunorm.regions.geometry.locate import facets, pattern_beyond

    owner, _, at, outward, across = facets(solid)
    beyond = solid.find(across)
    assert (across == pattern_beyond(solid.network, at, outward)).all()
    A, c = solid.affine()
    inside = beyond >= 0
    one = np.einsum("nod,nd->no", A[owner], at) + c[owner]
    other = np.einsum("nod,nd->no", A[beyond], at) + c[beyond]
    assert inside.all()
    assert np.abs(one - other)[inside].max() < 1e-9


def test_layers_refine(flat):
    """Prop. 3 with Theta_k the configurations of M_{k+1}: its map is affine on its regions."""
    net = flat.network
    coarse, parents = flat.layer(1)
    assert (coarse.patterns[parents] == flat.patterns[:, :16]).all()
    assert abs(coarse.volume().sum() - 4) < 1e-9
    sums = np.bincount(parents, weights=flat.volume())
    np.testing.assert_allclose(sums, coarse.volume(), atol=1e-9)
    # Not M_k: the pre-activations of the NEXT layer are what a region of layer k makes affine.
    x = flat.points
    A, c = coarse.affine()
    np.testing.assert_allclose(
        np.einsum("nod,nd->no", A[parents], x) + c[parents], net.preactivations(x)[1], atol=1e-12
    )
    whole, _ = flat.layer(0)
    assert len(whole) == 1
    assert len(flat.layer(2)[0]) == len(flat)
    with pytest.raises(InvalidInputError):
        flat.layer(3)


def test_merge_equal():
    # relu(x) + relu(-x) twice, once negated: the bends cancel, one affine piece is left.
    cancel = Network.from_weights([[[1.0], [1.0], [1.0]], [[1.0, -1.0, 0.0]]], [[0, 0, 0.5], [0]])
    found = regions(cancel, Box.cube(1))
    assert len(found) == 3
    assert found.merge_equal().max() == 0
    dead = he_net("2-16-16")
    labels = regions(dead, Box.cube(2)).merge_equal()
    assert len(set(labels.tolist())) <= 248


@pytest.mark.parametrize(
    "domain", [Box.cube(2), Polytope([[-1, 0], [0, -1], [1, 1]], [0, 0, 1]), None]
)
def test_save_and_load(tmp_path, domain):
    found = regions(skip_net(np.random.default_rng(0)), domain)
    found.save(tmp_path / "regions.npz")
    back = load_regions(tmp_path / "regions.npz")
    assert (back.packed == found.packed).all()
    assert (back.points == found.points).all()
    assert back.network == found.network
    assert repr(back.domain) == repr(found.domain)
    assert back.to_dict() == found.to_dict()
    np.testing.assert_array_equal(back.affine()[0], found.affine()[0])
    with pytest.raises(InvalidInputError, match="not a file of regions"):
        np.savez(tmp_path / "other.npz", a=1)
        load_regions(tmp_path / "other.npz")


def test_files_know_every_domain(tmp_path, flat):
    square = Box.cube(2)
    places = (Ball([0.1, 0.2], 0.3), NormBall([0.1, 0.2], 1 / 3, 1, square), square)
    assert {place.kind for place in places} | {"polytope"} == set(KINDS)
    for domain in places:
        replace(flat, domain=domain).save(tmp_path / "regions.npz")
        assert load_regions(tmp_path / "regions.npz").domain.digest == domain.digest


def test_memory_per_region():
    """Kept and peak memory stay below 2 KB a region (peak resident memory, Linux only)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not os.access(reset, os.W_OK):
        pytest.skip("peak memory can be reset on Linux only")

    def kilobytes(name):
        lines = status.read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])

    net = he_net("2-128-128-128")
    regions(net, Box.cube(2), max_regions=10)
    reset.write_text("5")
    before = kilobytes("VmRSS")
    found = regions(net, Box.cube(2))
    assert (kilobytes("VmHWM") - before) * 1024 / len(found) < 2048


QUESTIONS = (
    "pattern",
    "affine",
    "interior_point",
    "polytope",
    "vertices",
    "volume",
    "inradius",
    "is_bounded",
)


def test_numbers_of_regions(flat, solid):
    """Negative numbers count from the end, others outside are refused by every question."""
    line = regions(random_net(np.random.default_rng(1), [1, 5, 4, 1]), None)
    for found in (flat, solid, line):
        last = len(found) - 1
        assert found.volume(-1) == found.volume(last)
        assert (found.vertices(-1) == found.vertices(last)).all()
        assert (found.affine(-1)[0] == found.affine(last)[0]).all()
        assert (found.polytope(-1).b == found.polytope(last).b).all()
        assert found.inradius(np.int64(-1)) == found.inradius(last)
        for ask in QUESTIONS:
            for wrong in (last + 1, -last - 2, 1.5):
                with pytest.raises(InvalidInputError, match="region"):
                    getattr(found, ask)(wrong)


def test_cells_with_many_walls():
    """The polytope around a five-dimensional ball has 82 walls; a cell may keep most of them."""
    net = random_net(np.random.default_rng(0), [5, 4, 4, 2])
    found = regions(net, Ball(np.zeros(5), 1.0))
    assert max(len(found.polytope(i).walls) for i in range(len(found))) > 54
    total = 0.0
    for i in range(len(found)):
        cell, corners = found.polytope(i), found.vertices(i)
        gap = cell.b - corners @ cell.A.T
        assert gap.min() > -1e-9
        assert ((gap < 1e-9).sum(axis=1) >= 5).all()  # a vertex lies on d walls at least
        total += found.volume(i)
    # Oracle: the share of the bounding box's points that the tangent planes leave.
    x = Box.cube(5).sample(200_000, 0)
    rows, rhs = found.geometry.window.rows, found.geometry.window.rhs
    share = (x @ rows.T <= rhs).all(axis=1)
    assert total == pytest.approx(32 * share.mean(), rel=0.02)


@pytest.mark.parametrize("constant", [1e3, 1e9, 1e12, 1e15])
@pytest.mark.parametrize(("d", "method"), [(1, "tree"), (2, "polygons"), (3, "cells"), (5, "tree")])
def test_maps_keep_gradients_beside_large_constants(d, method, constant):
    # relu(constant + x0 / 1000) + relu(x_last): the rounding of a constant is not the gradient's.
    rows = np.zeros((2, d))
    rows[0, 0], rows[1, -1] = 1e-3, 1.0
    network = Network.from_weights([rows, [[1.0, 1.0]]], [[constant, 0.0], [0.0]])
    found = regions(network, Box.cube(d), method=method)
    assert len(found) == 2
    for i in range(2):
        A, _ = found.affine(i)
        np.testing.assert_array_equal(A, network.jacobian(found.interior_point(i)))
        assert A[0, 0] != 0.0


def assert_maps_are_exact(found):
    """Every entry up to the rounding of the terms on the region's own active paths."""
    A, c = found.affine()
    for i in range(len(found)):
        for one, all_ in zip(found.affine(i), (A[i], c[i]), strict=True):
            np.testing.assert_array_equal(one, all_)
        gradient, constant, gradient_size, constant_size = exact_map(
            found.network, found.pattern(i)
        )
        for got, exact, size in ((A[i], gradient, gradient_size), (c[i], constant, constant_size)):
            exact, size = np.array(exact, dtype=object), np.array(size, dtype=object)
            gap = np.abs(np.vectorize(Fraction, otypes=[object])(got) - exact)
            assert (gap <= size * Fraction(2.0**-47)).all()


@pytest.mark.parametrize("method", ["polygons", "cells", "tree"])
@pytest.mark.parametrize("slope", [1e6, 1e-6])
def test_maps_beside_steep_and_shallow_leaky_units(method, slope):
    # relu(s x0) and what a neighbour's 1e6 x0 would leave of x0.
    leaky = Activation("leaky", slope=slope)
    network = Network(
        [Layer(Affine({0: [[1.0, 0.0]]}, [0.0]), leaky)], Affine({1: [[1.0]]}, [0.0]), input_shape=2
    )
    found = regions(network, Box([-0.7, -0.7], [1.0, 1.0]), method=method)
    slopes = {bool(found.pattern(i)[0]): found.affine(i) for i in range(len(found))}
    assert slopes[True][0].tolist() == [[1.0, 0.0]]
    assert slopes[False][0].tolist() == [[slope, 0.0]]
    assert slopes[True][1].tolist() == slopes[False][1].tolist() == [0.0]
    rng = np.random.default_rng(3)
    deep = [rng.standard_normal(shape) for shape in ((6, 2), (5, 6), (2, 5))]
    first, second, last = (Affine({k: w}, rng.standard_normal(len(w))) for k, w in enumerate(deep))
    network = Network([Layer(first, leaky), Layer(second, leaky)], last, input_shape=2)
    assert_maps_are_exact(regions(network, Box([-3.0, -1.0], [2.0, 5.0]), method=method))


def test_maps_on_a_plane_beside_steep_leaky_units():
    network = Network(
        [Layer(Affine({0: [[0.0, -1.0]]}, [0.0]), Activation("leaky", slope=1e6))],
        Affine({1: [[0.03]]}, [0.0]),
        input_shape=2,
    )
    found = on_plane(network, [1.0, 0.0], [-1.0, 0.5], [0.5, -1.0]).regions
    assert_maps_are_exact(found)
    active = int(np.flatnonzero(found.patterns[:, 0])[0])
    assert found.affine(active)[0].tolist() == [[-0.015, 0.03]]


@pytest.mark.parametrize("method", ["cells", "tree"])
def test_maps_hold_nothing_of_a_neighbour_with_larger_terms(method):
    """1e12 (f - f written otherwise): a leaky side scales terms of one input by 1e-6, not others.

    Updating the map across the kink would leave the rounding of the larger terms.
    """
    rng = np.random.default_rng(0)
    leaky = Activation("leaky", slope=1e-6)
    first = np.array([[0.0, 0.0, -0.2, 0.0], [-0.56, 1.25, 0.019, -0.23]])
    second, last = rng.standard_normal((2, 2)), rng.standard_normal((1, 2)) * 1e12
    scale = np.array([2.53, 4.2])  # the same units in other sizes
    bias = np.array([1.29, -1.39])
    network = Network(
        [
            Layer(Affine({0: first}, bias), leaky),
            Layer(Affine({1: second}, np.zeros(2))),
            Layer(Affine({0: first * scale[:, None]}, bias * scale), leaky),
            Layer(Affine({3: second / scale}, np.zeros(2))),
        ],
        Affine({2: last, 4: -last}, np.zeros(1)),
        input_shape=4,
    )
    box = Box([-8.7, -13.0, -9.9, -54.4], [75.7, 57.3, 33.1, 46.0])
    found = regions(network, box, method=method)
    assert len(found) >= 4
    assert_maps_are_exact(found)


@pytest.mark.parametrize("harm", [lambda b: b[: len(b) // 2], lambda b: b[:200] + b"x" * 400])
def test_a_damaged_file_is_one_sentence(tmp_path, harm):
    net = Network.from_weights([[[1.0, 0.5], [0.5, -1.0]], [[1.0, 1.0]]])
    regions(net, Box.cube(2)).save(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(harm((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(InvalidInputError, match="not a file of regions"):
        load_regions(tmp_path / "b.npz")


@pytest.mark.parametrize("slim", [1e-2, 1e-5, 1e-7])
def test_slim_cells_are_bounded_where_they_end(slim):
    weights = [[[1.0, slim], [-1.0, slim], [0.0, -1.0]], [[1.0, 1.0, 1.0]]]
    found = regions(Network.from_weights(weights, [[0, 0, -1.0], [0.0]]), None)
    bounded = {tuple(found.pattern(i)): found.is_bounded(i) for i in range(len(found))}
    assert [pattern for pattern, ends in bounded.items() if ends] == [(False, False, False)]
    assert len(bounded) == 7

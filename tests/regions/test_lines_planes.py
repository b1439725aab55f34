"""Regions along lines and on planes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from exact_oracle import Rows, box_cell, pieces, read
from hypothesis import given, settings
from hypothesis import strategies as st

from relunorm import (
    Activation,
    Affine,
    Ball,
    Box,
    Layer,
    Network,
    Polytope,
    along,
    on_plane,
    regions,
)
from relunorm.errors import InvalidDomainError, InvalidInputError

from .nets import degenerate_nets, he_net, random_net, skip_net


def dense_patterns(net, line, count=20_001):
    t = (np.arange(count) + 0.5) / count * (len(line.vertices) - 1)
    piece = np.clip(np.searchsorted(line.breakpoints, t) - 1, 0, len(line) - 1)
    far = np.abs(line.breakpoints[:, None] - t).min(axis=0) > 1e-9
    return t[far], piece[far]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_lines_against_dense_sampling(seed):
    rng = np.random.default_rng(seed)
    net = (
        skip_net(rng, d=3, slope=[0.0, 0.2][seed % 2])
        if seed % 3
        else random_net(rng, [3, 8, 8, 2])
    )
    line = along(net, rng.standard_normal(3), rng.standard_normal(3) * 3)
    t, piece = dense_patterns(net, line, 2001)
    values = net.preactivations(line.points(t))
    bits = np.concatenate([z > 1e-12 for z in values], axis=1)
    assert (line.patterns[piece] == bits).all()
    np.testing.assert_allclose(line(t), net(line.points(t)), atol=1e-11)
    assert (line.patterns[1:] != line.patterns[:-1]).any(axis=1).all()


def test_line_equals_one_dimensional_list():
    net = random_net(np.random.default_rng(5), [1, 12, 12, 1])
    line = along(net, [-1.0], [1.0])
    found = regions(net, Box.cube(1))
    assert {tuple(p) for p in line.patterns} == {tuple(p) for p in found.patterns}
    ends = np.unique(np.round(np.concatenate([found.vertices(i) for i in range(len(found))]), 10))
    np.testing.assert_allclose(line.points()[:, 0], ends, atol=1e-9)


@pytest.mark.parametrize("name", list(degenerate_nets(2)))
def test_degenerate_lines(name):
    net = degenerate_nets(2)[name]
    for a, b in (([-1, -1], [1, 1]), ([-1, 0.3], [1, 0.3]), ([0, 0], [1, 1]), ([1, -1], [1, 1])):
        line = along(net, a, b)
        t, piece = dense_patterns(net, line, 4001)
        values, bits = [line.points(t)], []
        for layer in net.layers:
            z = layer.affine(values)
            z[np.abs(z) < 1e-12] = 0.0
            bits.append(z > 0)
            values.append(layer.activation.apply_(z))
        if bits:
            assert (line.patterns[piece] == np.concatenate(bits, axis=1)).all()


def test_a_polyline_breaks_at_its_vertices_and_at_units():
    net = Network.from_weights([[[1.0, 0.0]], [[1.0]]])
    line = along(net, [[-1, 0], [-2, 1], [-1, 2], [1, 2], [-1, 3]])
    assert len(line) == 6
    assert line.distinct == 2
    np.testing.assert_allclose(line.breakpoints, [0, 1, 2, 2.5, 3, 3.5, 4])
    np.testing.assert_allclose(line([2.75]), [[0.5]])
    assert [c.tolist() for c in line.crossings()] == [[], [], [0], [], [0]]


def test_sparse_and_linear_stages():
    rng = np.random.default_rng(2)
    conv = sp.random_array((60, 40), density=0.1, rng=rng, format="csr")
    stage = Layer(Affine({1: sp.csr_array(np.eye(60) * 3)}, np.ones(60)), Activation("identity"))
    layers = [
        Layer(Affine({0: conv}, rng.standard_normal(60) / 4)),
        stage,
        Layer(Affine({2: conv.T.tocsr(), 0: np.eye(40)}, rng.standard_normal(40))),
    ]
    net = Network(layers, Affine({3: np.ones((1, 40)), 1: np.ones((1, 60))}, [0.0]), input_shape=40)
    line = along(net, rng.standard_normal(40), rng.standard_normal(40))
    folded = along(net.folded(), line.vertices)
    assert len(line) == len(folded) > 10
    np.testing.assert_allclose(line.breakpoints, folded.breakpoints, atol=1e-9)
    t = np.linspace(0, 1, 500)
    np.testing.assert_allclose(line(t), net(line.points(t)), atol=1e-10)


def test_networks_without_units_and_bad_lines():
    net = Network.from_weights([[[2.0]]], [[1.0]])
    line = along(net, [0.0], [1.0])
    assert len(line) == 1
    np.testing.assert_allclose(line.values.ravel(), [1, 3])
    with pytest.raises(InvalidInputError, match="two points"):
        along(net, [0.0])
    with pytest.raises(InvalidInputError, match="NaN"):
        along(net, [np.nan], [1.0])
    with pytest.raises(InvalidInputError, match="shapes"):
        along(he_net("2-16-16"), [0.0], [1.0])


def test_planes():
    rng = np.random.default_rng(7)
    net = random_net(rng, [6, 10, 8, 3])
    origin, u, v = rng.standard_normal((3, 6))
    cut = on_plane(net, origin, u, v, (-0.5, 1.0, -1.0, 1.0))
    assert abs(cut.regions.volume().sum() - 3) < 1e-9
    x = cut.embed(cut.regions.points)
    assert (net.pattern(x) == cut.regions.patterns).all()
    A, c = cut.regions.affine()
    value = np.einsum("nod,nd->no", A, cut.regions.points) + c
    np.testing.assert_allclose(value, net(x), atol=1e-11)
    samples = Box([-0.5, -1], [1, 1]).sample(20_000, 0)
    assert (cut.regions.find(net.pattern(cut.embed(samples))) >= 0).all()
    with pytest.raises(InvalidInputError, match="parallel"):
        on_plane(net, origin, u, 2 * u)


def test_the_part_of_a_plane_in_a_domain():
    """Against the domain's own word on points of the plane, u and v of any length and angle."""
    rng = np.random.default_rng(3)
    net = random_net(rng, [4, 10, 8, 3])
    origin, u, v = rng.standard_normal((3, 4)) * np.array([[0.3], [1.0], [2.0]])
    A = rng.standard_normal((6, 4))
    window = (-2.0, 2.0, -1.5, 1.0)
    whole = on_plane(net, origin, u, v, window)
    st = whole.regions.domain.sample(4000, 0)
    for domain in (
        Box.cube(4, -1.5, 1.0),
        Polytope(np.concatenate([A, -A]), np.full(12, 1.5)),
        Ball(np.full(4, 0.2), 1.5),
    ):
        part = on_plane(net, origin, u, v, window, domain=domain).regions
        # A circle is drawn as 64 of its tangents, which reach 1.2e-3 of the radius beyond it.
        inside, near = (domain.contains(whole.embed(st), slack) for slack in (0.0, 2e-3))
        found = part.locate(st) >= 0
        assert 0 < inside.mean() < 1
        assert found[inside].all()
        assert not found[~near].any()
        assert set(map(bytes, part.packed)) <= set(map(bytes, whole.regions.packed))
    assert repr(
        on_plane(net, origin, u, v, window, domain=Box.cube(4, -99, 99)).regions.domain
    ) == (repr(whole.regions.domain))
    for missed in (Box.cube(4, 50, 60), Ball(np.full(4, 50.0), 1.0)):
        with pytest.raises(InvalidDomainError, match="no part with an area"):
            on_plane(net, origin, u, v, window, domain=missed)


def test_marks_of_a_plane_are_drawn_where_they_are():
    rng = np.random.default_rng(4)
    net = random_net(rng, [5, 8, 2])
    origin, u, v = rng.standard_normal((3, 5))
    beside = np.linalg.svd(np.stack([u, v]))[2][-1]
    marks = {"here": origin + 0.5 * u - 0.25 * v, "beside": origin + u + beside}
    cut = on_plane(net, origin, u, v, marks=marks)
    np.testing.assert_allclose(
        cut.coordinates(list(marks.values())), [[0.5, -0.25], [1, 0]], atol=1e-12
    )
    axes = cut.plot().axes[0]
    assert [text.get_text() for text in axes.texts] == ["here", "beside"]
    np.testing.assert_allclose(axes.texts[0].xy, [0.5, -0.25], atol=1e-12)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("s", "t")
    with pytest.raises(InvalidInputError, match="here is not one finite input of 5 numbers"):
        on_plane(net, origin, u, v, marks={"here": [1.0, 2.0]})


def test_bounds_of_a_plane():
    net = Network.from_weights([np.eye(3), np.ones((1, 3))])
    plane = net, np.zeros(3), np.eye(3)[0], np.eye(3)[1]
    pairs = on_plane(*plane, bounds=((-1, 2), (-3, 4)))
    flat = on_plane(*plane, bounds=(-1, 2, -3, 4))
    assert repr(pairs.regions.domain) == repr(flat.regions.domain) == "Box([-1, -3], [2, 4])"
    for bounds in (2.0, (1, 2, 3), "abcd", None, ((1, 2), (3,))):
        with pytest.raises(InvalidInputError, match="bounds are"):
            on_plane(*plane, bounds=bounds)


def test_regions_of_the_whole_space_by_default():
    net = Network.from_weights([np.eye(2), np.ones((1, 2))])
    assert regions(net).domain is None
    assert len(regions(net)) == 4


def test_a_unit_on_a_line_that_is_constant_where_another_is_off():
    # 1000 relu(1e-3 - 1e6 relu(1e6 x)): at 1 its terms are 1e12, for x <= 0 only 1e-3.
    network = Network.from_weights([[[1e6]], [[-1e6]], [[1e3]]], [[0.0], [1e-3], [0.0]])
    line = along(network, [-1.0], [1.0])
    # The fall of 1 on 1e-15 is a piece, or half of the line would be wrong.
    np.testing.assert_allclose(line.breakpoints, [0.0, 0.5, 0.5 + 5e-16, 1.0], rtol=2e-16)
    assert line.patterns.tolist() == [[False, True], [True, True], [True, False]]
    assert line.values.ravel().tolist() == [1.0, 1.0, 0.0, 0.0]


#: A segment whose crossing of 0 is no float: interpolation leaves 1e-20 there.
ENDS = [0.0005761512210246003], [-0.0005722040808604277]


def test_a_unit_on_a_line_vanishes_where_all_that_it_reads_is_off():
    chain = Network.from_weights([[[1.0]], [[1.0]], [[0.0]]], [[0.0], [0.0], [0.0]])
    assert along(chain, *ENDS).patterns.tolist() == [[True, True], [False, False]]
    assert along(chain, *ENDS[::-1]).patterns.tolist() == [[False, False], [True, True]]


def test_a_unit_on_a_line_vanishes_where_a_skip_cancels():
    # relu(x + relu(-x)) is 0 for x <= 0 and x above.
    layers = [Layer(Affine({0: [[-1.0]]}, [0.0])), Layer(Affine({0: [[1.0]], 1: [[1.0]]}, [0.0]))]
    network = Network(layers, Affine({2: [[1.0]]}, [0.0]), input_shape=1)
    assert along(network, *ENDS).patterns.tolist() == [[False, True], [True, False]]


def test_crossings_that_share_a_breakpoint_leave_nothing_behind():
    # Kinks at 0 and 1e-12, and on top of each a unit that is on where the first one is.
    first, second = Affine({0: [[1.0], [3.0]]}, [0.0, -3e-12]), Affine({1: np.eye(2)}, [0.0, 0.0])
    network = Network(
        [Layer(first), Layer(second)], Affine({2: [[1.0, 1.0]]}, [0.0]), input_shape=1
    )
    line = along(network, [1.0], [-1.0])
    assert line.patterns.tolist() == [[True] * 4, [False] * 4]
    np.testing.assert_allclose(line.values, network(line.points()), rtol=1e-12, atol=1e-15)


def test_outputs_at_the_ends_of_a_line_with_a_kink_beside_them():
    # On 1e-11 of the segment both units are on: too short to be a piece, but f is not 0 there, so
    # that the other end of the segment would have the wrong slope.
    network = Network.from_weights([[[1.0]], [[1.0]], [[1e6]]], [[0.0], [0.0], [0.0]])
    for ends, way in (([1e-11], [-1.0]), 1), (([-1.0], [1e-11]), -1):
        line = along(network, *ends)
        assert line.patterns[::way].tolist() == [[True, True], [False, False]]
        np.testing.assert_allclose(line.values.ravel()[::way], [1e-5, 0.0, 0.0])


def test_a_unit_on_a_line_is_not_hidden_by_a_large_value_that_it_does_not_read():
    # relu(2e-7 - 1e5 relu(0)) beside relu(x) of a thousand.
    network = Network.from_weights(
        [[[0.0], [1.0]], [[-1e5, 0.0]], [[1.0]]], [[0.0, 0.0], [2e-7], [0.0]]
    )
    line = along(network, [-450.0], [2700.0])
    assert line.patterns.tolist() == [[False, False, True], [False, True, True]]
    assert line.values.ravel().tolist() == [2e-7] * 3


def test_kinks_that_nearly_meet_do_not_hide_a_piece_behind_them():
    # the last unit is negative on t in (0.333333, 1/3): by 5e-13, where its terms are 1e-12
    layers = [
        Layer(Affine({0: [[1.0]]}, [-1.0]), Activation("leaky", slope=1e-6)),
        Layer(Affine({1: [[-1.0], [-1.0]]}, [1e-12, 0.0])),
        Layer(Affine({2: [[-0.5, 1.0]]}, [0.0])),
    ]
    line = along(Network(layers, Affine({3: [[1.0]]}, [0.0]), input_shape=1), [0.0], [3.0])
    middle = np.searchsorted(line.breakpoints, 0.3333332) - 1
    assert line.breakpoints[middle] == pytest.approx(0.333333, abs=1e-9)
    assert not line.patterns[middle, -1]
    assert line.patterns[middle - 1, -1]


def test_a_layer_that_reads_nothing_lies_on_every_piece():
    """relu(x), then two units that are constants, then relu(relu(x) - 1)."""
    net = Network(
        [
            Layer(Affine({0: [[1.0]]}, [0.0])),
            Layer(Affine({}, [2.0, -3.0])),
            Layer(Affine({1: [[1.0]]}, [-1.0])),
        ],
        Affine({2: [[1.0, 1.0]], 3: [[1.0]]}, [0.0]),
        input_shape=1,
    )
    line = along(net, [-2.0], [2.0])
    assert line.breakpoints.tolist() == [0.0, 0.5, 0.75, 1.0]
    assert line.patterns.tolist() == [[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1]]
    assert line.values.ravel().tolist() == [2.0, 2.0, 2.0, 3.0]


def test_no_polygon_is_as_thin_as_the_rounding_of_its_corners():
    """Two kinks along one line, equal but for rounding, cut again near where a third meets them."""
    leaky = Activation("leaky", slope=0.1)
    net = Network(
        [
            Layer(Affine({0: [[-7e7, 0.0], [0.0, 2e4]]}, [0.0, 0.0]), leaky),
            Layer(Affine({1: [[8e5, 1.0]]}, [0.0])),
            Layer(Affine({0: [[0.0, 0.0], [0.0, 7e3]]}, [-1.0, 0.0]), leaky),
            Layer(Affine({3: [[1.0, 5e3]]}, [0.0])),
        ],
        Affine({2: [[1.0]], 4: [[1.0]]}, [0.0]),
        input_shape=2,
    )
    origin, u = [1.0, -2.0], [2.0308803044376766, -0.1779788713071776]
    found = on_plane(net, origin, u, [0.5, 3.0]).regions
    assert found.complete
    assert found.volume().min() > 1e-10
    points = np.array(origin) + found.points @ np.array([u, [0.5, 3.0]])
    assert (net.pattern(points) == found.patterns).all()


def along_exactly(net, a, b):
    """Breakpoints and patterns of a segment, in fractions."""
    way = Rows([[*map(int, row)] for row in np.column_stack([np.subtract(b, a), a])], 0)
    found = [
        (min(ends), max(ends), piece.pattern)
        for piece in pieces(read(net), box_cell([0.0], [1.0]), way)
        for ends in [[point[0] for point in piece.cell.points()]]
    ]
    return sorted(found)


@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_unit_does_not_see_is_not_in_its_rounding(sparse):
    """Large weights on inputs and units that are 0, large values behind small weights."""
    matrix = sp.csr_array if sparse else np.array
    nets = [
        Network(
            [
                Layer(Affine({0: matrix([[0.0], [1.0]])}, [2e10, 0.0])),
                Layer(Affine({1: matrix([[-0.001, 3e7]])}, [0.0]), Activation("leaky", slope=1.5)),
                Layer(Affine({1: matrix([[-0.001, 3e11]])}, [0.0])),
            ],
            Affine({2: [[1.0]], 3: [[1.0]]}, [0.0]),
            input_shape=1,
        ),
        Network(
            [Layer(Affine({0: matrix([[-1e-12, 0.0, 1e12], [0.0, 1.0, 0.0]])}, [0.0, 0.0]))],
            Affine({1: [[1.0, 1.0]]}, [0.0]),
            input_shape=3,
        ),
    ]
    for net, a, b in ((nets[0], [3], [-1]), (nets[1], [-1, -2, 0], [2, 1, 0])):
        line, exact = along(net, a, b), along_exactly(net, a, b)
        assert line.patterns.tolist() == [[*pattern] for _, _, pattern in exact]
        ends = [0.0, *(float(end) for _, end, _ in exact)]
        np.testing.assert_allclose(line.breakpoints, ends, rtol=1e-12)
        np.testing.assert_allclose(line.values, net(line.points(line.breakpoints)), atol=1e-4)


def cliff(steep, top=None):
    """relu(w x) - relu(w x - 1): 0 for x <= 0, 1 from 1/w on; with a unit relu(it - 1/2) on top."""
    maps = [[[steep], [steep]], [[1.0, -1.0]]], [[0.0, -1.0], [0.0]]
    return (
        Network.from_weights(*maps)
        if top is None
        else Network.from_weights([*maps[0], [[top]]], [[0.0, -1.0], [-0.5], [0.0]])
    )


@pytest.mark.parametrize("steep", [1e6, 1e11, 1e14, 1e60, 1e200, 1e300])
def test_both_sides_of_a_cliff_are_right(steep):
    line = along(cliff(steep), [-1.0], [1.0])
    assert line.patterns.tolist() == [[False, False], [True, False], [True, True]]
    assert (np.diff(line.breakpoints) > 0).all()
    np.testing.assert_allclose(line.breakpoints[1:3], [0.5, 0.5 + 0.5 / steep], rtol=2.0**-52)
    np.testing.assert_allclose(line.values.ravel(), [0.0, 0.0, 1.0, 1.0], rtol=1e-9, atol=1e-9)
    assert (line.merged, line.certain) == (0, True)


@pytest.mark.parametrize("steep", [1e6, 1e14, 1e60, 1e200])
def test_a_unit_behind_a_cliff_is_on_on_one_side(steep):
    line = along(cliff(steep, top=2.0), [-1.0], [1.0])
    assert line.patterns[0].tolist() == [False, False, False]
    assert line.patterns[-1].tolist() == [True, True, True]
    np.testing.assert_allclose(line([0.25, 0.75, 1.0]).ravel(), [0.0, 1.0, 1.0], rtol=1e-9)


def test_cliffs_at_the_vertices_of_a_polyline():
    """Breakpoints there are floats in a row, and vertices stay where they are."""
    line = along(cliff(1e60), [-1.0], [1e-61], [0.0], [1.0], [0.0], [-1.0])
    assert (np.diff(line.breakpoints) > 0).all()
    assert set(range(6)) <= set(line.breakpoints.tolist())
    np.testing.assert_allclose(
        line([0.5, 2.0, 2.5, 3.0, 3.5, 4.5]).ravel(), [0, 0, 1, 1, 1, 0], atol=1e-12
    )


def test_shorter_pieces_that_are_not_listed_are_counted():
    """A hat of height 1e-3 on 3e-13 of the line, between two pieces that meet."""
    rows, tops = [[1.0]] * 3, [[1e10, -2e10, 1e10]]
    net = Network.from_weights([rows, tops], [[0.0, -1e-13, -2e-13], [0.0]])
    line = along(net, [-1.0], [1.0])
    assert line.patterns.tolist() == [[False] * 3, [True] * 3]
    assert (len(line), line.merged, line.certain) == (2, 2, True)
    assert repr(line) == "Line(2 pieces, 2 shorter ones merged, 2 vertices)"
    assert line.to_dict()["merged"] == 2


def test_kinks_that_meet_exactly_are_one_breakpoint_and_others_are_not():
    """Equal rows whose biases differ by nothing, or by less than any float can hold on the line."""
    for gap, pieces_ in (0.0, 2), (1e-300, 3):
        net = Network.from_weights([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, gap], [0.0]])
        line = along(net, [-1.0], [1.0])
        assert len(line) + line.merged == pieces_
        assert line.certain


def test_a_large_network_says_that_rounding_may_have_decided():
    rng = np.random.default_rng(0)
    net = random_net(rng, [2, 600, 500, 1])
    assert not along(net, [-1.0, 0.5], [1.0, 0.2]).certain
    assert along(random_net(rng, [2, 60, 50, 1]), [-1.0, 0.5], [1.0, 0.2]).certain

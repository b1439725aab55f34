"""Every region, none twice: reference networks, brute force, degenerate networks, limits."""

from __future__ import annotations

import hashlib
import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
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
    load_regions,
    regions,
)
from relunorm.errors import InvalidDomainError, InvalidInputError

from .nets import REFERENCE, degenerate_nets, he_net, random_net, skip_net, special_net
from .oracle import regions_by_brute_force

#: Pre-activations this small are zero: sampling shows rounding as patterns otherwise.
NOISE = 1e-12


def sampled_patterns(net: Network, x: np.ndarray) -> np.ndarray:
    """Patterns at points, where values below NOISE count as 0, forward layer by layer."""
    values, bits = [x], []
    for layer in net.layers:
        z = layer.affine(values)
        z[np.abs(z) < NOISE] = 0.0
        bits.append(z > 0)
        values.append(layer.activation.apply_(z))
    return np.concatenate(bits, axis=1) if bits else np.zeros((len(x), 0), bool)


def distinct(patterns: np.ndarray) -> np.ndarray:
    """Each pattern once, by a set of bytes: sorting so many rows takes far longer."""
    packed = np.packbits(patterns, axis=1)
    rows = {row.tobytes(): k for k, row in enumerate(packed)}
    return patterns[list(rows.values())]


def as_set(patterns) -> set[tuple[int, ...]]:
    return {tuple(map(int, row)) for row in patterns}


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_counts_and_patterns(name):
    net = he_net(name)
    found = regions(net, Box.cube(net.input_size))
    count, digest = REFERENCE[name]
    assert len(found) == count
    assert hashlib.sha256(np.unique(found.packed, axis=0).tobytes()).hexdigest() == digest
    assert found.complete
    assert (net.pattern(found.points) == found.patterns).all()
    A, c = found.affine()
    value = np.einsum("nod,nd->no", A, found.points) + c
    # Both sides sum a few hundred terms of size one.
    np.testing.assert_allclose(value, net(found.points), atol=1e-12)
    np.testing.assert_allclose(A, net.jacobian(found.points), atol=1e-12)


@pytest.mark.parametrize("name", ["2-32-32", "3-16-16", "4-16-16"])
def test_engines_agree(name):
    net = he_net(name)
    box = Box(np.full(net.input_size, -0.3), np.linspace(0.5, 1.5, net.input_size))
    first = regions(net, box)
    other = regions(net, box, method="tree")
    assert other.method != first.method
    assert as_set(first.patterns) == as_set(other.patterns)


@pytest.mark.parametrize("name", ["2-64-64", "3-16-16", "6-10-10"])
def test_400_000_samples_lie_in_the_list(name):
    net = he_net(name)
    found = regions(net, Box.cube(net.input_size))
    for seed in range(4):
        x = Box.cube(net.input_size).sample(100_000, seed)
        assert (found.find(net.pattern(x)) >= 0).all()


def test_engines_agree_on_degenerate_networks():
    """Coarse weights, zero biases, copies: the engines share no geometry, and must agree."""
    rng = np.random.default_rng(0)
    for _ in range(250):
        d = int(rng.integers(2, 5))
        most = {2: 12, 3: 8, 4: 6}[d]
        widths = [d, *rng.integers(1, most, rng.integers(1, 4)).tolist(), 2]
        unit = rng.choice([1.0, 0.5, 0.1, 1 / 3])
        weights = [rng.integers(-3, 4, (b, a)) * unit for a, b in itertools.pairwise(widths)]
        biases = [rng.integers(-2, 3, b) * unit * rng.integers(0, 2) for b in widths[1:]]
        weights[0][-1] = -weights[0][0]
        net = Network.from_weights(weights, biases)
        first, second = regions(net, Box.cube(d)), regions(net, Box.cube(d), method="tree")
        assert as_set(first.patterns) == as_set(second.patterns)
        assert len(first) == len(second) == len(as_set(first.patterns))


def small_nets(max_units):
    """Networks with weights on a coarse grid: most of them degenerate somewhere."""

    @st.composite
    def build(draw):
        d = draw(st.integers(1, 3))
        widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        while sum(widths) > max_units:
            widths.pop()
        number = st.integers(-3, 3).map(lambda k: k / 2)
        sizes = [d, *widths, 1]
        weights = [
            np.array(draw(st.lists(number, min_size=a * b, max_size=a * b))).reshape(b, a)
            for a, b in itertools.pairwise(sizes)
        ]
        biases = [np.array(draw(st.lists(number, min_size=b, max_size=b))) for b in sizes[1:]]
        slope = draw(st.sampled_from([0.0, 0.25, -0.5]))
        activation = Activation("leaky", slope) if slope else Activation("relu")
        return Network.from_weights(weights, biases, activation)

    return build()


@settings(max_examples=40, deadline=None)
@given(small_nets(6))
def test_brute_force_in_rational_arithmetic(net):
    lo, hi = -np.ones(net.input_size), np.full(net.input_size, 1.5)
    expected = regions_by_brute_force(net, lo, hi)
    methods = {1: ["tree"], 2: ["tree", "polygons", "cells"], 3: ["tree", "cells"]}
    for method in methods[net.input_size]:
        found = regions(net, Box(lo, hi), method=method)
        assert as_set(found.patterns) == expected
        assert len(found) == len(expected)


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_skips_against_brute_force(slope):
    for seed in range(2):
        net = skip_net(np.random.default_rng(seed), width=2, slope=slope)
        expected = regions_by_brute_force(net, [-1, -1], [1, 1])
        for method in ("tree", "polygons", "cells"):
            found = regions(net, Box.cube(2), method=method)
            assert as_set(found.patterns) == expected
            A, c = found.affine()
            value = np.einsum("nod,nd->no", A, found.points) + c
            np.testing.assert_allclose(value, net(found.points), atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_degenerate_networks_against_dense_sampling(d):
    box = Box.cube(d)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, {1: 4001, 2: 201, 3: 31, 4: 13}[d])] * d))
    # Slightly off the grid, so that no point sits on a wall by construction.
    x = grid.reshape(d, -1).T * 0.99973 + 1e-4 * np.sqrt([2, 3, 5, 7])[:d]
    x = np.concatenate([x, box.sample(20_000, 5)])
    for name, net in degenerate_nets(d).items():
        seen = as_set(distinct(sampled_patterns(net, x)))
        methods = ["auto", "tree"] if d > 1 else ["auto"]
        for method in methods:
            found = regions(net, box, method=method)
            patterns = as_set(found.patterns)
            assert len(patterns) == len(found), (name, method)
            assert seen <= patterns, (name, method)
            assert (sampled_patterns(net, found.points) == found.patterns).all(), (name, method)
            if d <= 3:
                total = sum(found.volume(i) for i in range(len(found)))
                assert abs(total - 2.0**d) < 1e-9, (name, method)
                assert min(found.inradius(i) for i in range(len(found))) > 1e-8, (name, method)


@pytest.mark.parametrize("seed", range(39))
def test_special_networks_against_brute_force(seed):
    net, lo, hi = special_net(seed)
    expected = regions_by_brute_force(net, lo, hi)
    methods = {1: ["tree"], 2: ["tree", "polygons", "cells"]}
    for method in methods.get(net.input_size, ["tree", "cells"]):
        found = regions(net, Box(lo, hi), method=method)
        assert as_set(found.patterns) == expected, method
        assert len(found) == len(expected), method
        A, c = found.affine()
        value = np.einsum("nod,nd->no", A, found.points) + c
        # Biases of 2^30 cancel: what is left of them is rounded at their size.
        size = max(1.0, *(np.abs(z).max() for z in net.preactivations(found.points)))
        np.testing.assert_allclose(value, net(found.points), atol=1e-13 * size, rtol=1e-12)


def test_thousands_of_concurrent_lines():
    """All lines a x + b y = 0 with small integers, and shifted by integers: cells by Euler."""
    pairs = [(a, b) for a in range(-6, 7) for b in range(7) if (a, b) > (0, 0) or b > 0]
    normals = {(a // np.gcd(a, b), b // np.gcd(a, b)) for a, b in pairs}
    W = np.array(sorted(normals), dtype=float)
    net = Network.from_weights([W, np.ones((1, len(W)))])
    assert len(regions(net, Box.cube(2))) == 2 * len(W)
    shifted = np.concatenate([W, W])
    net = Network.from_weights(
        [shifted, np.ones((1, len(shifted)))], [np.repeat([0.0, 0.5], len(W)), [0.0]]
    )
    found = regions(net, Box.cube(2))
    assert as_set(found.patterns) == as_set(regions(net, Box.cube(2), method="tree").patterns)
    assert abs(found.volume().sum() - 4) < 1e-9


def test_a_hyperplane_on_the_boundary_is_no_wall():
    net = Network.from_weights([np.eye(2), np.ones((1, 2))], [-np.ones(2), np.zeros(1)])
    assert len(regions(net, Box.cube(2))) == 1


def test_polytope_domain():
    net = he_net("2-16-16")
    triangle = Polytope([[-1, 0], [0, -1], [1, 1]], [0, 0, 1])
    found = regions(net, triangle)
    assert abs(found.volume().sum() - 0.5) < 1e-12
    assert as_set(regions(net, triangle, method="tree").patterns) == as_set(found.patterns)
    whole = regions(net, Box([0, 0], [1, 1]))
    assert as_set(found.patterns) < as_set(whole.patterns)
    in3 = regions(
        he_net("3-16-16"), Polytope(np.vstack([-np.eye(3), np.ones((1, 3))]), [0, 0, 0, 1])
    )
    assert abs(sum(in3.volume(i) for i in range(len(in3))) - 1 / 6) < 1e-12


@pytest.mark.parametrize("d", [2, 3])
def test_ball_keeps_what_meets_it(d):
    net = he_net(f"{d}-16-16")
    ball = Ball(np.full(d, 0.2), 0.4)
    found = regions(net, ball)
    x = ball.sample(200_000, 1)
    assert (found.find(net.pattern(x)) >= 0).all()
    # Each region holds a point of the ball: the polytope's nearest point to the centre.
    box = regions(net, ball.bounding_box)
    assert as_set(found.patterns) <= as_set(box.patterns)
    assert len(found) < len(box)
    from scipy.optimize import minimize

    for i in range(0, len(found), 9):
        cell = found.polytope(i)
        nearest = minimize(
            lambda x: ((x - ball.middle) ** 2).sum(),
            cell.interior_point,
            constraints={"type": "ineq", "fun": lambda x, c=cell: c.b - c.A @ x},
        )
        assert np.sqrt(nearest.fun) < ball.reach * (1 + 1e-6)


def test_all_of_space():
    net = he_net("2-16-16")
    found = regions(net, None)
    large = regions(net, Box.cube(2, -1e4, 1e4))
    assert as_set(found.patterns) == as_set(large.patterns)
    assert (net.pattern(found.points) == found.patterns).all()
    bounded = np.array([found.is_bounded(i) for i in range(len(found))])
    touches = np.array(
        [np.abs(large.vertices(int(i))).max() > 9e3 for i in large.find(found.patterns)]
    )
    assert (bounded == ~touches).all()
    cell = found.polytope(int(np.flatnonzero(~bounded)[0]))
    assert not cell.bounded
    one = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[-1.0, -1.0], [0.0]])
    assert as_set(regions(one, None).patterns) == {(1, 0), (0, 0), (0, 1)}


def test_zero_biases_have_conic_regions_with_interior():
    """With (9) of seed 003 the tip {0} is a polytope of its own if no cone is all off, and closed
    polytopes would admit all 2^N patterns there (docs/errata.md)."""
    rng = np.random.default_rng(3)
    around = [[1.0, 0.2], [-0.8, 1.0], [-0.5, -1.1]]  # one of them is positive at every x but 0
    net = Network.from_weights([around, rng.standard_normal((2, 3)), [[1.0, 1.0]]])
    found = regions(net, None)
    x = rng.standard_normal((200_000, 2))
    assert as_set(found.patterns) == as_set(np.unique(net.pattern(x), axis=0))
    # Corollary 4 (i) counts patterns whose polytope is not empty
    z = net.preactivations(np.zeros((1, 2)))
    assert all((values == 0).all() for values in z[:-1])
    assert not as_set(net.pattern(np.zeros((1, 2)))) & as_set(found.patterns)
    assert len(found) < 2**net.units
    assert not any(found.is_bounded(i) for i in range(len(found)))


def test_flat_box_drops_a_coordinate():
    net = he_net("3-16-16")
    flat = Box([-1, 0.25, -1], [1, 0.25, 1])
    found = regions(net, flat)
    W, b = net.weights()
    sliced = Network.from_weights([W[0][:, [0, 2]], *W[1:]], [b[0] + W[0][:, 1] * 0.25, *b[1:]])
    assert as_set(found.patterns) == as_set(regions(sliced, Box.cube(2)).patterns)
    np.testing.assert_allclose(found.affine(0)[0], net.jacobian(found.points[0]), atol=1e-12)
    assert abs(found.volume().sum() - 4) < 1e-9


def test_off_centre_boxes_of_any_size():
    net = he_net("2-16-16")
    W, b = net.weights()
    for scale, shift in ((1e-6, 0.3), (1e3, -200.0)):
        moved = Network.from_weights(
            [W[0] / scale, *W[1:]], [b[0] - W[0].sum(1) * shift / scale, *b[1:]]
        )
        found = regions(moved, Box.cube(2, shift - scale, shift + scale))
        assert len(found) == 248
        assert (moved.pattern(found.points) == found.patterns).all()


def test_workers_change_nothing():
    for name in ("2-64-64", "3-16-16", "8-8-8"):
        net = he_net(name)
        one = regions(net, Box.cube(net.input_size))
        two = regions(net, Box.cube(net.input_size), workers=2)
        assert (one.packed == two.packed).all()


def test_limits_give_partial_results():
    net = he_net("3-32-32")
    few = regions(net, Box.cube(3), max_regions=100)
    assert len(few) == 100
    assert not few.complete
    assert "max_regions" in few.reason
    assert "partial" in repr(few)
    late = regions(net, Box.cube(3), time_limit=1e-9)
    assert not late.complete
    assert len(late) < 24611
    for wrong in ({"max_regions": 0}, {"time_limit": -1.0}, {"time_limit": np.nan}):
        with pytest.raises(InvalidInputError, match="expected a"):
            regions(net, Box.cube(3), **wrong)
    whole = regions(he_net("2-16-16"), Box.cube(2), max_regions=248)
    assert whole.complete
    for method in ("tree", "polygons"):
        part = regions(he_net("2-32-32"), Box.cube(2), max_regions=7, method=method)
        assert len(part) == 7
        assert not part.complete


@pytest.mark.parametrize(("name", "method"), [("2-16-16", "polygons"), ("2-16-16", "tree")])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_limit_that_cut_nothing_off_leaves_a_complete_result(name, method, workers):
    net = he_net(name)
    found = regions(net, Box.cube(2), time_limit=600, method=method, workers=workers)
    assert len(found) == REFERENCE[name][0]
    assert found.complete
    assert found.reason == ""


def test_limits_on_several_workers():
    net = he_net("3-32-32")
    few = regions(net, Box.cube(3), max_regions=5000, workers=3)
    assert len(few) == 5000
    assert not few.complete
    assert len(np.unique(few.packed, axis=0)) == 5000
    late = regions(net, Box.cube(3), time_limit=1e-9, workers=2)
    assert not late.complete
    assert late.reason == "time limit"


def test_workers_report_progress_and_stop():
    told = []

    def note(progress):
        if "found" not in progress.facts:
            return  # compiling is announced
        told.append((progress.facts["found"], progress.share))
        if len(told) == 3:
            raise KeyboardInterrupt

    net = random_net(np.random.default_rng(0), [8, 40, 40, 1])
    part = regions(net, Box.cube(8), progress=note, workers=2)
    assert part.reason == "interrupted"
    assert len(part) >= told[-1][0] > 0
    assert all(0.0 <= done <= 1.0 for _, done in told)


def test_progress_and_interrupt():
    # Far more regions than could be listed before the first call of progress, on any machine.
    net = random_net(np.random.default_rng(0), [8, 40, 40, 1])

    def stop(progress):
        if progress.facts:
            raise KeyboardInterrupt

    part = regions(net, Box.cube(8), progress=stop, method="tree")
    assert not part.complete
    assert part.reason == "interrupted"
    assert len(part) > 0


def test_linear_stages_and_sparse_matrices():
    net = he_net("2-16-16")
    layers = list(net.layers)
    stage = Layer(Affine({1: sp.csr_array(2 * np.eye(16))}, np.zeros(16)), Activation("identity"))
    second = Layer(Affine({2: layers[1].affine.terms[1] / 2}, layers[1].affine.bias))
    output = Affine({3: net.output.terms[2]}, net.output.bias)
    staged = Network([layers[0], stage, second], output, input_shape=2)
    assert as_set(regions(staged, Box.cube(2)).patterns) == as_set(
        regions(net, Box.cube(2)).patterns
    )


def test_several_outputs():
    net = random_net(np.random.default_rng(0), [3, 8, 6, 4])
    found = regions(net, Box.cube(3))
    A, c = found.affine()
    assert A.shape == (len(found), 4, 3)
    np.testing.assert_allclose(
        np.einsum("nod,nd->no", A, found.points) + c, net(found.points), atol=1e-12
    )


def test_refusals():
    net = he_net("2-16-16")
    with pytest.raises(InvalidDomainError):
        regions(net, Box.cube(3))
    with pytest.raises(InvalidDomainError, match="single point"):
        regions(net, Box([0, 0], [0, 0]))
    with pytest.raises(InvalidDomainError, match="no interior"):
        regions(
            net, Polytope([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]], [1, 1, 1, 1, 0, 0])
        )
    with pytest.raises(InvalidInputError, match="workers"):
        regions(net, Box.cube(2), workers=0)
    with pytest.raises(InvalidInputError, match="method"):
        regions(he_net("3-16-16"), Box.cube(3), method="polygons")
    step = Network.from_weights([[[1.0]], [[1.0]]], activation="step")
    with pytest.raises(InvalidInputError, match="step"):
        regions(step, Box.cube(1))


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_points_of_a_ball_lie_in_the_ball(d, seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng, [d, 5, 4, 1])
    ball = Ball(rng.uniform(-0.2, 0.2, d), 0.8)
    found = regions(net, ball)
    assert ball.contains(found.points).all()
    assert (net.pattern(found.points) == found.patterns).all()
    seen = found.find(net.pattern(ball.sample(20_000, seed)))
    assert (seen >= 0).all()


@pytest.mark.parametrize("method", ["polygons", "cells", "tree"])
def test_a_result_says_when_thin_regions_were_left_out(method, tmp_path):
    net = random_net(np.random.default_rng(1), [2, 10, 10, 1])
    near = regions(net, Box.cube(2, -1e4, 1e4), method=method)
    far = regions(net, Box.cube(2, -1e12, 1e12), method=method)
    assert near.hidden == 0
    assert len(far) < len(near)
    assert far.hidden > 0
    assert "left out" in repr(far)
    assert far.to_dict()["hidden"] == far.hidden
    far.save(tmp_path / "far.npz")
    assert load_regions(tmp_path / "far.npz").hidden == far.hidden
    shared = regions(net, Box.cube(2, -1e12, 1e12), method=method, workers=2)
    assert shared.hidden == far.hidden


def test_rounding_at_concurrent_and_repeated_walls_hides_nothing():
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 5):
        first = rng.normal(size=(6, d))
        first = np.concatenate([first, -first, 3 * first])
        weights = [first, rng.normal(size=(4, 18)), rng.normal(size=(1, 4))]
        for bias in (np.zeros(18), np.concatenate([[0.3] * 6, [-0.3] * 6, [0.9] * 6])):
            net = Network.from_weights(weights, [bias, np.zeros(4), np.zeros(1)])
            assert regions(net, Box.cube(d)).hidden == 0


def test_limits_that_are_no_numbers_and_paths_that_do_not_exist_are_package_errors(tmp_path):
    net, box = he_net("2-16-16"), Box.cube(2)
    wrong = [{"max_regions": x} for x in (2.5, "5", True)]
    wrong += [{"time_limit": "5"}, {"time_limit": True}, {"workers": 1.5}, {"workers": True}]
    for options in wrong:
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            regions(net, box, **options)
    with pytest.raises(InvalidDomainError, match="domain"):
        regions(net, {"lo": -1, "hi": 1})
    with pytest.raises(InvalidInputError, match="cannot be written"):
        regions(net, box).save(tmp_path / "none" / "x.npz")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_regions(tmp_path / "nope.npz")


def test_batches_are_small_where_a_region_costs_much():
    from relunorm.clock import Clock
    from relunorm.regions.search.work import Budget

    budget = Budget(Clock())
    assert next(budget.sizes(shared=False)) == 512
    budget.weights = 2**24
    assert next(budget.sizes(shared=False)) == 4


@pytest.mark.parametrize("by_columns", [False, True])
def test_sparse_matrices_are_packed_like_dense_ones(by_columns):
    from relunorm.regions.kernels.pack import pack

    rng = np.random.default_rng(0)
    thin = sp.random_array((7, 5), density=0.3, rng=rng, format="csr")
    rest = rng.normal(size=(5, 3)), rng.normal(size=(2, 7))

    def packed(middle):
        layers = [
            Layer(Affine({0: rest[0]}, np.ones(5))),
            Layer(Affine({0: np.eye(7, 3), 1: middle}, np.ones(7))),
        ]
        net = Network(layers, Affine({2: rest[1]}, np.zeros(2)), input_shape=3)
        return pack(net, np.array([1.0, 2.0, 3.0]), np.ones(3), by_columns, sparse=True)

    for a, b in zip(packed(thin), packed(thin.toarray()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("weight", "bias"), [(1e6, 1e-3), (1e7, 0.1), (1e4, 1e-7), (1.0, 1e-12), (1.0, 1e-15)]
)
@pytest.mark.parametrize(
    ("d", "method"),
    [(1, "tree"), (2, "polygons"), (2, "cells"), (2, "tree"), (3, "cells"), (3, "tree")],
)
def test_a_unit_that_is_constant_where_another_is_off(d, method, weight, bias):
    # relu(bias - weight relu(weight x0)) / bias is 1 for x0 <= 0: however large the terms of the
    # unit that is off there, they are no part of this sum.
    network = Network.from_weights(
        [weight * np.eye(1, d), [[-weight]], [[1 / bias]]], [[0.0], [bias], [0.0]]
    )
    found = regions(network, Box.cube(d), method=method)
    point = np.full(d, -0.5)
    i = int(found.locate(point)[0])
    assert found.pattern(i).tolist() == [False, True]
    A, c = found.affine(i)
    np.testing.assert_array_equal(A, np.zeros((1, d)))
    np.testing.assert_allclose(c, network(point[None])[0], rtol=1e-15)


def test_a_polytope_flat_up_to_rounding_has_no_interior():
    """x + 20 y = const within a box of side 2e-14: what is left is rounding of the sides."""
    rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.1, 2.0], [-0.1, -2.0]]
    right = [
        *(0.16389317104156026, -0.25979179176162975, -0.16389317104154028, 0.25979179176164974),
        *(-0.5031942664191245, 0.5031942664191245),
    ]
    net = Network.from_weights([np.eye(2), np.ones((1, 2))])
    with pytest.raises(InvalidDomainError, match="no interior"):
        regions(net, Polytope(rows, right))


def test_a_thin_cell_is_not_taken_for_its_neighbour() -> None:
    row = [-0.14698761398124738, 1.1880274512217714]
    weights = [np.array([row] * 3), np.ones((1, 3))]
    biases = [np.array([-0.1, -0.10000000000780118, -0.10000000001560234]), np.zeros(1)]
    found = regions(Network.from_weights(weights, biases), None)
    assert found.hidden > 0
    for pattern, point in zip(found.patterns, found.points, strict=True):
        exact = [
            sum(Fraction(float(w)) * Fraction(float(x)) for w, x in zip(row, point, strict=True))
            + Fraction(float(b))
            for b in biases[0]
        ]
        assert [z > 0 for z in exact] == pattern.tolist()


@pytest.mark.parametrize("thin", [1e-6, 1e-7, 1e-8, 1e-9])
def test_no_slim_cone_is_listed_that_is_not_there(thin: float) -> None:
    net = Network.from_weights(
        [[[1.0, thin], [-1.0, thin], [0.0, -1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]]
    )
    there = regions_by_brute_force(net, [-1e40] * 2, [1e40] * 2)
    assert {tuple(row) for row in regions(net).patterns.astype(int).tolist()} == there


def test_what_is_listed_without_a_domain_is_there() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        d, width = int(rng.integers(1, 4)), int(rng.integers(2, 5))
        first = rng.integers(-2, 3, (width, d)).astype(float)
        first[rng.random((width, d)) < 0.4] *= 10.0 ** -int(rng.integers(5, 13))
        net = Network.from_weights(
            [first, np.ones((1, width))], [rng.integers(-1, 2, width).astype(float), [0.0]]
        )
        found = regions(net)
        listed = {tuple(row) for row in found.patterns.astype(int).tolist()}
        there = regions_by_brute_force(net, [-1e40] * d, [1e40] * d)
        assert listed <= there
        assert listed == there or found.hidden


@pytest.mark.parametrize("d", [2, 3])
def test_caps_at_the_edge_of_a_ball_are_listed_or_counted(d):
    """Half spaces that reach so far into a ball, judged in fractions, as are points of the caps."""
    for seed, height in itertools.product(range(6), (1e-3, 2e-9, 1.3e-10, 3e-11, -3e-11, -1e-9)):
        rng = np.random.default_rng([d, seed])
        normal = rng.normal(size=d) if seed % 3 else np.eye(d)[-1]
        radius, middle = 10.0 ** rng.integers(-3, 4), rng.normal(size=d) * (seed % 2)
        bias = -(normal @ middle + np.linalg.norm(normal) * radius * (1 - height))
        net = Network.from_weights([[normal.tolist()], [[1.0]]], [[bias], [0.0]])
        found = regions(net, Ball(middle, radius))
        on = found.patterns[:, 0].tolist()
        assert (True in on) == (height > 1e-10)
        assert (found.hidden > 0) == (0 < height < 1e-10)
        if True in on:
            w, m, x = ([*map(Fraction, v)] for v in (normal, middle, found.points[on.index(True)]))
            assert sum((a - b) ** 2 for a, b in zip(x, m, strict=True)) < Fraction(radius) ** 2
            assert sum(a * b for a, b in zip(w, x, strict=True)) + Fraction(float(bias)) > 0

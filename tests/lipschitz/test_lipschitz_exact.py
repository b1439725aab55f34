"""Exact constants: brute force over sign vectors, the reference networks, and bad input."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from brute_force import pieces
from hypothesis import given, settings
from hypothesis import strategies as st

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope
from relunorm.clock import Progress
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.lipschitz.methods.branch import branch_and_bound, enumeration
from relunorm.lipschitz.methods.points import at_point, search
from relunorm.lipschitz.norms import operator_norms
from relunorm.lipschitz.search.setting import Setting
from relunorm.lipschitz.search.steepest import largest_singular_value

#: Networks of the regions cases, regenerated: exact l2 constants on [-1, 1]^d by several programs.
REFERENCE = {
    0: ((2, 16, 16, 1), 3.0345826355774497),
    4: ((3, 16, 16, 1), 3.8245357315177158),
    6: ((4, 16, 16, 1), 2.971186015801372),
    7: ((6, 10, 10, 1), 3.2465033956519385),
    8: ((8, 8, 8, 1), 2.911011600890104),
}


def seeded(index: int) -> Network:
    rng = np.random.default_rng(1000 + index)
    weights, biases = [], []
    widths = REFERENCE[index][0]
    for a, b in pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / a), (b, a)))
        biases.append(rng.uniform(-1 / np.sqrt(a), 1 / np.sqrt(a), b))
    return Network.from_weights(weights, biases)


def small(seed: int, d: int, outputs: int, slope: float, skip: bool, grid: bool) -> Network:
    """Six units in two layers; ``grid`` weights make degenerate arrangements."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        drawn = rng.normal(size=shape)
        return np.round(drawn) if grid else drawn

    kind = Activation("leaky", slope) if slope else Activation("relu")
    first = Layer(Affine({0: numbers(3, d)}, numbers(3)), kind)
    terms = {1: numbers(3, 3)} | ({0: numbers(3, d)} if skip else {})
    second = Layer(Affine(terms, numbers(3)), kind)
    final = {2: numbers(outputs, 3)} | ({1: numbers(outputs, 3)} if skip else {})
    return Network([first, second], Affine(final, numbers(outputs)), input_shape=d)


def brute(network: Network, norm: float, lo=None, hi=None) -> float:
    return max(float(np.linalg.norm(A, norm)) for A, *_ in pieces(network, lo, hi))


@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([0.0, 0.25, -0.5]),
    st.booleans(),
    st.sampled_from([1.0, 2.0, np.inf]),
)
def test_exact_equals_brute_force(seed, d, outputs, slope, skip, norm):
    network = small(seed, d, outputs, slope, skip, grid=False)
    box = Box.cube(d, -1.0, 1.5)
    for domain, lo, hi in ((box, box.lo, box.hi), (None, None, None)):
        expected = brute(network, norm, lo, hi)
        for method in (branch_and_bound, enumeration):
            found = method(Setting.of(network, domain), norm)
            assert found.finished
            # A cell thinner than the oracle's 1e-7 may be seen by one side only.
            assert found.upper >= expected * (1 - 1e-9)
            assert found.lower == pytest.approx(expected, rel=1e-8)
            assert at_point(network, found.witness, norm) == pytest.approx(found.lower, rel=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_exact_on_degenerate_networks(seed, skip):
    network = small(seed, 2, 1, 0.0, skip, grid=True)
    expected = brute(network, 2.0, [-1, -1], [1, 1]) if network.units else 0.0
    result = rn.lipschitz(network, Box.cube(2), time_limit=None)
    assert result.exact
    assert result.lower == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("index", REFERENCE)
def test_reference_constants(index):
    widths, expected = REFERENCE[index]
    result = rn.lipschitz(seeded(index), Box.cube(widths[0]), time_limit=None)
    assert result.exact
    assert result.lower == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("r2_16_16_1", 0.827546), ("t2_16_16_1", 3.239259), ("r2_8_8_8_1", 1.876607)],
)
def test_global_constants_of_the_cases(cases, name, expected):
    network = rn.load(cases / "lipschitz" / f"{name}.npz")
    result = rn.lipschitz(network)
    assert result.exact
    assert result.lower == pytest.approx(expected, abs=5.1e-7)
    listed = rn.lipschitz(network, method="enumeration", time_limit=None)
    assert listed.lower == pytest.approx(result.lower, rel=1e-10)
    # A huge box meets every region here: the projective windows missed none.
    boxed = rn.lipschitz(network, Box.cube(2, -1e4, 1e4), method="enumeration", time_limit=None)
    assert boxed.lower == pytest.approx(result.lower, rel=1e-9)


@pytest.mark.parametrize(("name", "upper"), [("r10_50_50_1", 4.52), ("t10_50_50_1", 27.4)])
def test_upper_bounds_of_the_cases(cases, name, upper):
    network = rn.load(cases / "lipschitz" / f"{name}.npz")
    result = rn.lipschitz(network, method="sdp", time_limit=None)
    assert result.lower <= result.upper <= upper


def test_local_constant_of_the_case(cases):
    network = rn.load(cases / "lipschitz" / "t10_50_50_1.npz")
    box = Box.cube(10, -0.1, 0.1)
    result = rn.lipschitz(network, box, norm="inf", time_limit=None)
    assert result.exact
    # 19.2734; independent: the largest of 40,000 sampled gradients, which attains it.
    sampled = np.abs(network.jacobian(box.sample(40_000, 1))[:, 0]).sum(axis=1).max()
    assert result.lower == pytest.approx(sampled, rel=1e-9)


def test_zero_width_sides_only_count_differences_within_the_box():
    network = Network.from_weights([np.eye(2), [[3.0, 100.0]]], [[5.0, 5.0], [0.0]])
    result = rn.lipschitz(network, Box([-1, 0.5], [1, 0.5]))
    assert result.exact
    assert result.lower == pytest.approx(3.0)
    assert result.witness[1] == 0.5
    point = rn.lipschitz(network, Box([1, 1], [1, 1]))
    assert (point.lower, point.upper, point.exact) == (0.0, 0.0, True)


def test_ball_and_polytope():
    network = seeded(0)
    ball = rn.lipschitz(network, Ball([0.0, 0.0], 0.5), time_limit=None)
    inner = rn.lipschitz(network, Box.cube(2, -0.35, 0.35), time_limit=None)
    outer = rn.lipschitz(network, Box.cube(2, -0.5, 0.5), time_limit=None)
    assert inner.lower <= ball.lower * (1 + 1e-9) <= outer.upper * (1 + 1e-9)
    square = Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [0.5] * 4)
    same = rn.lipschitz(network, square, time_limit=None)
    assert same.exact
    assert same.lower == pytest.approx(outer.lower, rel=1e-9)
    triangle = Polytope([[-1.0, 0.0, 0], [0, -1.0, 0], [1, 1, 1], [0, 0, -1]], [0.5, 0.5, 0.5, 0.5])
    solid = rn.lipschitz(seeded(4), triangle, time_limit=None)
    points = triangle.sample(3000, 0)
    assert solid.exact
    assert operator_norms(seeded(4).jacobian(points), 2.0).max() <= solid.upper


def test_flat_polytope_is_refused():
    flat = Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [1.0, 1.0, 0.0, 0.0])
    with pytest.raises(InvalidDomainError, match="no interior"):
        rn.lipschitz(seeded(0), flat)


def test_convolutions_and_residuals_get_sound_bounds(cases):
    network = rn.load(cases / "real" / "resnet_2b.onnx")
    result = rn.lipschitz(network, norm="inf", time_limit=2)
    assert 0 < result.lower <= result.upper < np.inf
    assert any(b.method == "Theorem 6" and np.isnan(b.value) and b.note for b in result.bounds)
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 20, 3072))
    change = np.abs(network(x) - network(y)).max(axis=1)
    assert (change <= result.upper * np.abs(x - y).max(axis=1)).all()


@pytest.mark.parametrize("method", ["auto", "enumeration", "branch"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_cliff_thinner_than_rounding_is_never_bounded_away(method, dimension):
    # relu(b - w relu(w x)) falls from b to 0 over x in [0, b / w^2] = [0, 1e-15]
    first = np.zeros((2, dimension))
    first[0, 0], first[1, -1] = 1e6, 1.0
    weights = [first, [[-1e6, 0.0], [0.0, 1.0]], [[1e-2, 1.0]]]
    network = Network.from_weights(weights, [[0.0, 0.0], [1e-3, 0.0], [0.0]])
    result = rn.lipschitz(network, Box.cube(dimension), method=method)
    assert result.lower <= 1e10 <= result.upper


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (3, 1), (5, 4), (4, 9)])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_norm_of_a_leaf_is_that_of_numpy(shape, scale):
    rng = np.random.default_rng(shape)
    for copies in (False, True):
        matrix = scale * rng.normal(size=shape)
        if copies:
            matrix[-1] = matrix[0] * (1 + 1e-9)
        expected = np.linalg.norm(matrix, 2)
        with np.errstate(over="ignore"):
            found = largest_singular_value.py_func(matrix.copy())
        assert expected * (1 - 4e-15) <= found <= expected * (1 + 1e-12)


def test_search_witness_is_a_derivative():
    network = seeded(0)
    value, point = search(network, Box.cube(2))
    step = 1e-7 * network.jacobian(point)[0] / value
    change = network(point + step) - network(point - step)
    assert float(np.abs(change[0])) / 2e-7 == pytest.approx(value, rel=1e-5)


def test_a_time_limit_leaves_a_sound_interval(cases):
    network = rn.load(cases / "lipschitz" / "r10_50_50_1.npz")
    result = rn.lipschitz(network, Box.cube(10), time_limit=0.3)
    assert not result.exact
    jacobians = network.jacobian(Box.cube(10).sample(2000, 5))
    assert operator_norms(jacobians, 2.0).max() <= result.upper
    assert result.to_dict()["schema"] == "relunorm.lipschitz/1"


def test_interrupt_keeps_what_was_found():
    def stop(said: Progress) -> None:
        if np.isfinite(said.facts.get("upper", np.inf)):
            raise KeyboardInterrupt

    result = rn.lipschitz(seeded(0), progress=stop)
    assert not result.complete
    assert result.upper < np.inf


def test_bad_arguments():
    network = seeded(0)
    with pytest.raises(InvalidInputError, match="method 'magic'"):
        rn.lipschitz(network, method="magic")
    with pytest.raises(InvalidInputError, match="time_limit"):
        rn.lipschitz(network, time_limit=-1)
    with pytest.raises(InvalidDomainError, match="coordinates"):
        rn.lipschitz(network, Box.cube(3))
    with pytest.raises(InvalidInputError, match="step units"):
        rn.lipschitz(Network.from_weights([[[1.0]], [[1.0]]], activation="step"))


def test_the_name_is_callable_after_importing_a_module_of_the_package():
    import relunorm.lipschitz.methods.sdp  # noqa: F401

    assert rn.lipschitz(Network.from_weights([[[2.0]]])).lower == pytest.approx(2.0)


@pytest.mark.parametrize("seed", [0, 5, 13])
def test_the_witness_of_a_ball_lies_in_the_ball(seed):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in ((5, 4), (4, 4), (4, 1))]
    network = Network.from_weights(weights, [rng.normal(size=w.shape[0]) for w in weights])
    ball = Ball(np.zeros(5), 0.8)
    found = rn.lipschitz(network, ball)
    assert found.exact
    assert ball.contains(found.witness)[0]
    slope = np.linalg.norm(network.jacobian(found.witness), 2)
    assert found.lower == pytest.approx(slope, rel=1e-9)
    sampled = np.linalg.norm(network.jacobian(ball.sample(4000, seed)), axis=2)
    assert sampled.max() <= found.upper


def test_enumeration_without_time_left_is_unfinished():
    from relunorm.lipschitz.methods.branch import enumeration

    found = enumeration(Setting.of(seeded(0), Box.cube(2)), time_limit=0.0)
    assert (found.lower, found.upper, found.finished) == (0.0, np.inf, False)


@pytest.mark.parametrize("method", ["auto", "enumeration", "branch"])
def test_a_larger_domain_has_no_smaller_constant(method):
    """Its regions are thin: a list leaves them out and says so, the search finds the steepest."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise((2, 10, 10, 1))]
    net = Network.from_weights(weights, [0.3 * rng.normal(size=b) for b in (10, 10, 1)])
    inner = rn.lipschitz(net, Box.cube(2), method=method)
    assert inner.exact
    for reach in (1e9, 1e12):
        outer = rn.lipschitz(net, Box.cube(2, -reach, reach), method=method)
        assert outer.upper >= inner.lower
        if method == "enumeration":
            assert not outer.exact
            assert any("thinner" in bound.note for bound in outer.bounds)
        elif outer.exact:
            assert outer.lower == pytest.approx(rn.lipschitz(net).lower, rel=1e-8)


@pytest.mark.parametrize("width", [1e-9, 1e-11, 1e-13, 1e-15])
def test_a_thin_hat_is_not_flat(width):
    hat = Network.from_weights([np.ones((3, 1)), [[1.0, -2.0, 1.0]]], [[width, 0, -width], [0]])
    for method in ("auto", "enumeration", "branch"):
        assert rn.lipschitz(hat, Box.cube(1), method=method).upper >= 1.0


HALF = Network(  # x / 2, written with kinks at 0
    [Layer(Affine({0: [[1.0, 0], [0, 1.0], [-1, 0], [0, -1]]}, np.zeros(4)))],
    Affine({0: np.eye(2), 1: [[-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]]}, np.zeros(2)),
    input_shape=2,
)
TEN = Network.from_weights([[[1.0], [1.0], [-1.0]], [[1.0, -1.0, 1.0]]], [[10.0, 0, 0], [0]])
SQUARE = Polytope(np.concatenate([np.eye(2), -np.eye(2)]), np.ones(4))


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize("domain", [None, Box.cube(2), Ball([0.0, 0.0], 1.0), SQUARE])
def test_a_witness_on_a_kink_is_no_witness(domain, norm):
    """At 0 the slopes from below make 1 of the constant 1/2; 0 is a likely point, a centre."""
    found = rn.lipschitz(HALF, domain, norm)
    assert found.exact
    assert found.lower == pytest.approx(0.5, rel=1e-9)
    for scale in (1.0, 1e-150, 1e150):  # products of a small weight and 0 vanish, too
        first = HALF.layers[0].affine.terms[0] * scale
        layer = Layer(Affine({0: first}, np.zeros(4)))
        terms = {0: np.eye(2), 1: HALF.output.terms[1] / scale}
        same = HALF.replace(layers=[layer], output=Affine(terms, np.zeros(2)))
        assert at_point(same, np.zeros(2), norm, domain) == 0.0
        assert at_point(same, np.array([0.25, -0.5]), norm, domain) == pytest.approx(0.5)


def test_a_constant_has_constant_zero():
    for domain in (Box.cube(1), Ball([0.0], 1.0)):
        assert rn.lipschitz(TEN, domain).upper == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_kinks_through_likely_points(seed):
    """Bias-free integer networks: every kink goes through 0, and many through the axes."""
    rng = np.random.default_rng(seed)
    shapes = ((5, 2), (4, 5), (2, 4))
    slope = 0.25 * (seed % 2)
    act = Activation("leaky", slope) if slope else Activation("relu")
    net = Network.from_weights([rng.integers(-2, 3, s).astype(float) for s in shapes], None, act)
    points = np.random.default_rng(1).uniform(-1, 1, (4000, 2))
    seen = operator_norms(net.jacobian(points), np.inf).max()  # generic: all cones, no kinks
    for domain in (None, Box.cube(2), SQUARE):
        found = rn.lipschitz(net, domain, np.inf)
        assert found.exact
        assert found.lower == pytest.approx(seen, rel=1e-9)


def test_cancelled_slopes_are_rounded_down():
    """0.1 + 0.2 - 0.3 is 2^-55 in the given numbers, 2^-54 in float64."""
    net = Network.from_weights([np.ones((3, 1)), [[0.1, 0.2, -0.3]]], [[5.0, 5.0, 5.0], [0.0]])
    assert at_point(net, np.zeros(1), 2.0) <= 2.0**-55


def test_ends_that_contradict_each_other_are_refused(monkeypatch):
    from relunorm.errors import RelunormError
    from relunorm.lipschitz.methods import points as module

    monkeypatch.setattr(module, "at_point", lambda *_: 7.0)
    with pytest.raises(RelunormError, match="neither"):
        rn.lipschitz(HALF, Box.cube(2), method="product")


@pytest.mark.parametrize("norm", [1, 2, np.inf])
@pytest.mark.parametrize("scale", [1e6, 1e12, 1e20])
def test_the_interval_holds_under_cancellation(scale, norm):
    # scale (relu(0.1 h + 0.2 h + 5) - relu(0.3 h + 5)) with h = relu(x)
    layers = [
        Layer(Affine({0: np.ones((3, 1))}, np.zeros(3))),
        Layer(Affine({1: np.array([[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]])}, np.full(2, 5.0))),
        Layer(Affine({0: np.ones((1, 1))}, np.array([-1.5]))),
    ]
    output = Affine({2: np.array([[scale, -scale]]), 3: np.zeros((1, 1))}, np.zeros(1))
    found = rn.lipschitz(Network(layers, output, input_shape=1), Box([1.0], [2.0]), norm)
    true = Fraction(scale) * (Fraction(0.1) + Fraction(0.2) - Fraction(0.3))
    assert Fraction(found.lower) <= true <= Fraction(found.upper)
    assert not found.exact


@pytest.mark.parametrize("factor", [0.1, 0.3, 3.0])
def test_kinks_apart_by_rounding_leave_the_constant_open(factor):
    # Between the kink of a unit and that of its rescaled copy one of them is on alone: a region of
    # length 1e-17 with a slope of 1e9 that no search of regions sees.
    rows, bias = np.array([[1.7]]), np.array([-0.3])
    network = Network.from_weights(
        [np.vstack([rows, rows * factor]), 1e9 * np.array([[1.0, -1.0 / factor]])],
        [np.concatenate([bias, bias * factor]), [0.0]],
    )
    kinks = [
        Fraction(float(-b)) / Fraction(float(w))
        for w, b in zip(
            network.layers[0].affine.terms[0][:, 0], network.layers[0].affine.bias, strict=True
        )
    ]
    slopes = [
        Fraction(float(w)) * Fraction(float(v))
        for w, v in zip(
            network.layers[0].affine.terms[0][:, 0], network.output.terms[1][0], strict=True
        )
    ]
    first = int(kinks[1] < kinks[0])
    true = max(abs(sum(slopes)), abs(slopes[first]) if kinks[0] != kinks[1] else Fraction(0))
    found = rn.lipschitz(network, Box.cube(1))
    assert Fraction(found.lower) <= true <= Fraction(found.upper)


def test_copies_of_units_leave_the_constant_exact():
    rng = np.random.default_rng(3)
    rows, bias = rng.normal(size=(3, 2)), rng.normal(size=3) / 4
    network = Network.from_weights(
        [np.vstack([rows, -2 * rows]), rng.normal(size=(1, 6))],
        [np.concatenate([bias, -2 * bias]), [0.0]],
    )
    assert rn.lipschitz(network, Box.cube(2)).exact


def _gated_copies() -> Network:
    """h = relu(1 - x), then relu(h - 0.3) - 10 relu(0.1 h - 0.03): slope 1 on a length of 1e-17."""
    return Network(
        [
            Layer(Affine({0: [[-1.0]]}, [1.0])),
            Layer(Affine({1: [[1.0], [0.1]]}, [-0.3, -0.03])),
        ],
        Affine({2: [[1.0, -10.0]]}, [0.0]),
        input_shape=1,
    )


@pytest.mark.parametrize("method", ["auto", "branch", "enumeration"])
@pytest.mark.parametrize("length", [1.0, 1e4])
def test_kinks_apart_by_rounding_anywhere_on_the_domain(length, method):
    # on [0, 1e4] hardly a random point lies where the first unit is on
    assert Fraction(0.03) / Fraction(0.1) != Fraction(0.3)
    found = rn.lipschitz(_gated_copies(), Box([0.0], [length]), method=method)
    assert found.upper >= 1.0
    assert not found.exact


@pytest.mark.parametrize("method", ["auto", "branch", "enumeration"])
@pytest.mark.parametrize("size", [1e-17, 1e-15, 1e-12])
def test_a_triangle_thinner_than_rounding_is_not_left_out(size, method):
    # relu(x) + relu(y) - relu(x + y - size): only on the triangle between the kinks it is (1, 1)
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    network = Network.from_weights([rows, [[1.0, 1.0, -1.0]]], [[0.0, 0.0, -size], [0.0]])
    found = rn.lipschitz(network, Box.cube(2), method=method)
    assert found.lower <= np.sqrt(2) <= found.upper * (1 + 1e-15)
    if found.exact:  # the search has a point of the triangle
        assert network.jacobian(found.witness).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("method", ["branch", "enumeration"])
@pytest.mark.parametrize(
    ("rows", "bias", "readers", "true"),
    [
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 0.0], [1.0, 1.0, -1.0], 1.0),
        ([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]], [0.5, -0.5, 1.5], [1.0, 1.0, 1.0], 4.0),
        ([[0.1, 0.3], [-0.2, -0.6], [0.7, -0.1]], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], np.sqrt(0.4)),
    ],
    ids=["through one point", "multiples", "rounded multiples"],
)
def test_kinks_that_meet_exactly_leave_the_constant_exact(rows, bias, readers, true, method):
    network = Network.from_weights([rows, [readers]], [bias, [0.0]])
    found = rn.lipschitz(network, Box.cube(2), method=method)
    assert found.exact
    assert found.lower == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("ball", [Ball([1.0, 1.0], 1e-17), Ball([25.7643], 1e-20)])
def test_a_ball_smaller_than_the_distance_of_floats_is_no_point(ball):
    d = ball.dimension
    network = Network.from_weights([np.ones((1, d)), [[-3.0]]], [[0.0], [0.0]])
    found = rn.lipschitz(network, ball, norm=np.inf)
    assert found.lower <= 3.0 * d <= found.upper

"""No false proof: thresholds just below and just above the maximum, over many kinds of networks."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope


def drawn(rng: np.random.Generator, widths: list[int], grid: bool, activation: str) -> Network:
    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(-2, 3, shape).astype(float) if grid else rng.normal(size=shape)

    kind = Activation("leaky", 0.1) if activation == "leaky" else Activation("relu")
    weights = [numbers(b, a) for a, b in itertools.pairwise(widths)]
    return Network.from_weights(weights, [numbers(b) for b in widths[1:]], kind)


def with_skips(rng: np.random.Generator, d: int) -> Network:
    first = Layer(Affine({0: rng.normal(size=(6, d))}, rng.normal(size=6)))
    second = Layer(
        Affine({1: rng.normal(size=(6, 6)), 0: rng.normal(size=(6, d))}, rng.normal(size=6))
    )
    output = Affine({2: rng.normal(size=(2, 6)), 1: rng.normal(size=(2, 6))}, np.zeros(2))
    return Network([first, second], output, input_shape=d)


def problem(kind: str, seed: int) -> tuple[Network, rn.Domain]:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    network = drawn(rng, [d, 6, 6, 2], kind == "integer", "leaky" if kind == "leaky" else "relu")
    if kind == "skip":
        network = with_skips(rng, d)
    if kind == "deep":
        network = drawn(rng, [d, 5, 5, 4, 4, 2], False, "relu")
    if kind == "flat":
        hi = np.where(np.arange(d) % 2, 1.0, 0.25)
        return network, Box(np.where(np.arange(d) % 2, -1.0, 0.25), hi)
    if kind == "polytope":
        rows = np.concatenate([np.eye(d), -np.eye(d), rng.normal(size=(3, d))])
        return network, Polytope(rows, np.concatenate([np.ones(2 * d), np.full(3, 0.7)]))
    return network, Box.cube(d)


@pytest.mark.parametrize("kind", ["plain", "skip", "leaky", "deep", "integer", "flat", "polytope"])
@pytest.mark.parametrize("threshold", [16, 1 << 30])
def test_thresholds_around_the_maximum(monkeypatch, kind, threshold):
    monkeypatch.setattr("relunorm.search.engine.threshold", lambda inputs: threshold)
    for seed in range(6):
        network, domain = problem(kind, seed)
        best = rn.maximize(network, domain, 0)
        assert best.exact, (seed, best)
        top = float(network(best.point)[0])
        assert network(domain.sample(2000, seed))[:, 0].max() <= best.upper
        for gap in (1e-7, 1e-3, 1e-2, 0.1):
            below = rn.decide(network, domain, [[-1.0, 0.0]], [gap - top])
            assert below.verdict == "counterexample", (seed, gap, below)
            assert network(below.point)[0] >= top - gap
            above = rn.decide(network, domain, [[-1.0, 0.0]], [-gap - top])
            assert above.verdict == "proved", (seed, gap, above)
            assert above.margin[1] >= -gap - 1e-9


def test_a_better_point_does_not_prove_what_it_refutes():
    # The best value used to raise the value below which cells were given up beyond the target.
    r = np.random.default_rng(3)
    weights = [r.normal(size=(6, 5)), r.normal(size=(6, 6)), r.normal(size=(1, 6))]
    network = Network.from_weights(weights, [r.normal(size=6), r.normal(size=6), np.zeros(1)])
    assert network(rn.maximize(network, Box.cube(5), [1.0]).point)[0] > 0.297
    assert rn.decide(network, Box.cube(5), [[-1.0]], [-0.29]).verdict == "counterexample"


@pytest.mark.parametrize("ball", [False, True])
def test_never_smallest_against_samples(ball):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        network = drawn(rng, [3, 6, 6, 3], False, "relu")
        domain = Ball(np.zeros(3), 0.3) if ball else Box.cube(3, -0.3, 0.3)
        decision = rn.never_smallest(network, domain, 0, time_limit=1.0)
        outputs = network(domain.sample(5000, seed))
        if decision:
            assert (outputs[:, 0] > outputs.min(axis=1)).all()
        elif decision.verdict == "counterexample":
            assert network(decision.point)[0] == network(decision.point).min()


@pytest.mark.parametrize("width", [1e-9, 1e-11, 1e-13])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_a_spike_thinner_than_the_tolerance_is_not_proved_away(width, shift):
    """A hat of height one on two cells of this width: the sign tree drops them, the bound not."""
    slopes = np.array([1.0, -2.0, 1.0]) / width
    at = shift + width * np.arange(3)
    network = Network.from_weights(
        [np.ones((3, 1)), slopes[None], [[1.0]]], [-at, np.zeros(1), np.zeros(1)]
    )
    for rows in (1, 2):
        weights, biases = network.weights()
        first = np.repeat(weights[0], rows, axis=1) / rows
        wide = Network.from_weights([first, *weights[1:]], biases)
        assert rn.decide(wide, Box.cube(rows), [[-1.0]], [-0.5]).verdict != "proved"
        assert rn.maximize(wide, Box.cube(rows), [1.0]).upper >= 1.0 - 1e-3
    # A threshold the hat cannot reach, whatever is dropped and rounded, is still proved.
    assert rn.decide(network, Box.cube(1), [[-1.0]], [-1e3]).verdict == "proved"


def test_values_of_any_size_are_proved_with_a_margin_for_rounding():
    """With weights of 1e9 a margin of 1e-9 is far below the rounding of one evaluation."""
    rng = np.random.default_rng(5)
    network = drawn(rng, [3, 6, 6, 1], False, "relu")
    weights, biases = network.weights()
    large = Network.from_weights([*weights[:-1], 1e9 * weights[-1]], [*biases[:-1], 0 * biases[-1]])
    best = rn.maximize(large, Box.cube(3), [1.0])
    top = float(large(best.point)[0])
    assert rn.decide(large, Box.cube(3), [[-1.0]], [-top + 1e-3]).verdict == "counterexample"
    assert rn.decide(large, Box.cube(3), [[-1.0]], [-top - 1.0]).verdict == "proved"


def test_a_counterexample_holds_in_real_arithmetic():
    """relu(x + 1e-17) at x = 1 is 1 in float64 and more than 1 in truth."""
    network = Network.from_weights([[[1.0]], [[1.0]]], [[1e-17], [0.0]])
    point = Box([1.0], [1.0])
    assert network([[1.0]])[0, 0] == 1.0
    found = rn.decide(network, point, [[1.0]], [1.0])
    assert (found.verdict, "rounding" in found.stopped) == ("unknown", True)
    assert rn.decide(network, point, [[-1.0]], [-1.0]).verdict == "counterexample"


@pytest.mark.parametrize("size", [1.0, 1e17])
def test_a_counterexample_lies_in_a_flat_polytope(size):
    """On the piece of x + y = 1/2 the network is 0; a rounding error beside it, it is not."""
    rows = [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, -1.0]]
    plane = Polytope(rows, [0.24, 0.37, -0.13, -0.26, 0.5, -0.5])
    first = Layer(Affine({0: np.eye(2)}, [-0.125, -0.25]))
    second = Layer(Affine({1: [[1.0, 1.0]]}, [-0.125]))
    network = Network([first, second], Affine({2: [[size]]}, [0.0]), input_shape=2)
    found = rn.decide(network, plane, [[-1.0]], [-1e-20], 5)  # can it be 1e-20?
    assert found.verdict != "counterexample"
    found = rn.decide(network, plane, [[-1.0]], [0.0], 5)  # can it be 0?
    assert found.verdict == "counterexample"
    assert plane.holds(found.point).all()


def test_a_counterexample_lies_in_a_ball():
    """The largest value of x + y on a ball is taken at its edge, where floats miss it."""
    network = Network.from_weights([[[1.0, 1.0]], [[1.0]]], [[10.0], [0.0]])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        ball = Ball(rng.normal(size=2), float(rng.random() * 10.0 ** rng.integers(-9, 1)))
        top = network(ball.middle)[0] + np.sqrt(2) * ball.reach
        found = rn.decide(network, ball, [[-1.0]], [-top + 1e-7 * ball.reach], 5)
        assert found.verdict in ("counterexample", "unknown")
        if found.verdict == "counterexample":
            x = [Fraction(v) for v in found.point.tolist()]
            apart = zip(x, ball.middle.tolist(), strict=True)
            assert sum((v - Fraction(m)) ** 2 for v, m in apart) <= Fraction(ball.reach) ** 2


@pytest.mark.parametrize("domain", [Box([0.09], [0.11]), Box([0.2], [0.3])])
def test_deep_networks_with_large_weights_are_decided(domain):
    # x -> clip(10 x, 0, 1), and 15 times y -> clip(10 y - 5, 0, 1): absolute paths add up to 20^16.
    weights = [np.full((2, 1), 10.0)] + 15 * [np.array([[10.0, -10.0]] * 2)] + [[[1.0, -1.0]]]
    biases = [np.array([0.0, -1.0])] + 15 * [np.array([-5.0, -6.0])] + [[0.0]]
    network = Network.from_weights(weights, biases)
    assert rn.decide(network, domain, [[-1.0]], [-1.0]).verdict == "counterexample"
    assert rn.decide(network, domain, [[-1.0]], [-1.001]).verdict == "proved"


def test_constraints_beyond_float64_have_no_upper_end():
    """f = (g, -g) with g = 1e150 relu(1e100 x): g >= 1 and -g <= 0 are met by far at x = 1e99."""
    top = Affine({1: [[1e150], [-1e150]]}, [0.0, 0.0])
    net = Network([Layer(Affine({0: [[1e100]]}, [0.0]))], top, input_shape=1)
    A, b = [[-1.0, 0.0], [0.0, 1.0]], [-1.0, 0.0]
    found = rn.decide(net, Box([-1e99], [1e99]), A, b, time_limit=0.3)
    assert found.margin[1] == np.inf

"""Boundaries, ties, degenerate domains and bad arguments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from relunorm import Activation, Affine, Ball, Box, Layer, Network, NormBall, Polytope
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.stability import replay, stability


def verdicts(weights, biases, domain, **options) -> list[list[str]]:
    network = Network.from_weights(weights, biases)
    return [x.verdict.tolist() for x in stability(network, domain, **options).layers]


UNIT = Box([0.0], [1.0])


def test_a_maximum_of_exactly_zero_is_dead_and_a_minimum_active() -> None:
    """One unit in the last place above 0 no evaluation in floats can show: that stays undecided."""
    weights = [[[1.0], [-1.0], [0.1], [0.1], [-0.0]], [[1.0] * 5]]
    biases = [[-1.0, 0.0, -0.1, np.nextafter(-0.1, 0), 0.0], [0.0]]
    assert verdicts(weights, biases, UNIT)[0] == ["dead", "dead", "dead", "undecided", "dead"]
    weights[0], biases[0] = np.negative(weights[0]), np.negative(biases[0])
    found = verdicts(weights, biases, UNIT)[0]
    assert found == ["active", "active", "active", "undecided", "dead"]


def test_exact_zero_in_a_deeper_layer() -> None:
    """relu(x) - x vanishes for x >= 0, and 0.1 (relu(x) - 1) <= 0: seen in rational arithmetic."""
    layers = [
        Layer(Affine({0: [[1.0]]}, [0.0])),
        Layer(Affine({0: [[-1.0], [0.0]], 1: [[1.0], [0.1]]}, [0.0, -0.1])),
    ]
    network = Network(layers, Affine({2: [[1.0, 1.0]]}, [0.0]), input_shape=1)
    assert stability(network, UNIT).layers[1].verdict.tolist() == ["dead", "dead"]


def test_margins_of_a_billionth() -> None:
    weights = [[[1.0]] * 4, [[1.0] * 4]]
    biases = [[-1 - 1e-9, -1 + 1e-9, 1e-9, -1e-9], [0.0]]
    found = stability(Network.from_weights(weights, biases), UNIT).layers[0]
    assert found.verdict.tolist() == ["dead", "unstable", "active", "unstable"]
    assert np.allclose(found.margin[[0, 2]], 1e-9, rtol=1e-4)


def test_tiny_margins_behind_a_hidden_layer_are_right_or_undecided() -> None:
    """|x| = relu(x) + relu(-x) <= 1: a bias of -1 -+ 1e-9 decides, one of -1 may stay open."""
    first = [[1.0], [-1.0]]
    second = [[1.0, 1.0]] * 3
    biases = [[0.0, 0.0], [-1 - 1e-9, -1 + 1e-9, -1.0], [0.0]]
    found = verdicts([first, second, [[1.0] * 3]], biases, Box([-1.0], [1.0]))[1]
    assert found[:2] == ["dead", "unstable"]
    assert found[2] in ("dead", "undecided")


def test_a_single_point() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_weights(
        [rng.normal(size=(6, 3)), rng.normal(size=(5, 6)), np.ones((1, 5))]
    )
    point = rng.normal(size=3)
    for domain in (Box(point, point), Ball(point, 0.0)):
        for layer, z in zip(
            stability(network, domain).layers, network.preactivations(point), strict=True
        ):
            assert (layer.verdict == np.where(z[0] > 0, "active", "dead")).all()
            assert np.allclose(layer.lower, z[0], atol=1e-12)


def test_duplicates_and_zero_rows() -> None:
    weights = [[[1.0, 0.0]] * 3 + [[0.0, 0.0]] * 2, [[1.0, -1.0, 0.0, 0.0, 0.0]], [[1.0]]]
    biases = [[-0.5] * 3 + [1.0, -1.0], [0.0], [0.0]]
    found = verdicts(weights, biases, Box.cube(2, 0, 1))
    assert found[0] == ["unstable"] * 3 + ["active", "dead"]
    # A difference of two equal units is 0 everywhere; nothing may call it unstable.
    assert found[1][0] in ("dead", "undecided")


def test_a_ball_is_not_its_box() -> None:
    """3 x + 4 y <= 5 on the unit disc: the box would allow 7, and 5 is met exactly."""
    weights = [[[3.0, 4.0]] * 3, [[1.0] * 3]]
    biases = [[-5.0, -5.001, -4.999], [0.0]]
    assert verdicts(weights, biases, Ball([0.0, 0.0], 1.0))[0] == ["dead", "dead", "unstable"]


def test_a_polytope_is_not_its_box() -> None:
    """x + y <= 1 on the simplex."""
    simplex = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    weights = [[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 0.0]], [[1.0]]]
    biases = [[-1.001, -0.999, 0.5], [-0.0011], [0.0]]
    found = stability(Network.from_weights(weights, biases), simplex)
    assert found.layers[0].verdict.tolist() == ["dead", "unstable", "active"]
    assert found.layers[1].verdict.tolist() == ["dead"]
    replay(Network.from_weights(weights, biases), simplex, found.proofs)


def test_step_units_are_constant_only_with_the_value_at_zero() -> None:
    for at_zero, expected in (
        (0.5, ["undecided", "undecided", "unstable"]),
        (0.0, ["dead", "undecided", "unstable"]),
    ):
        network = Network.from_weights(
            [[[-1.0], [1.0], [1.0]], [[1.0] * 3]], [[0.0, 0.0, -0.5], [0.0]],
            Activation("step", at_zero=at_zero),
        )  # fmt: skip
        assert stability(network, UNIT).layers[0].verdict.tolist() == expected


def test_sparse_layers_and_linear_stages() -> None:
    rng = np.random.default_rng(1)
    W = [
        sp.csr_array(rng.normal(size=(8, 5)) * (rng.random((8, 5)) < 0.5)),
        rng.normal(size=(4, 8)),
    ]
    layers = [
        Layer(Affine({0: W[0]}, rng.normal(size=8))),
        Layer(Affine({1: W[1]}, rng.normal(size=4)), Activation("identity")),
        Layer(
            Affine(
                {0: rng.normal(size=(6, 5)), 2: sp.csr_array(rng.normal(size=(6, 4)))}, np.ones(6)
            )
        ),
    ]
    network = Network(layers, Affine({3: np.ones((1, 6))}, [0.0]), input_shape=5)
    found = stability(network, Box.cube(5))
    folded = stability(network.folded(), Box.cube(5))
    assert [x.layer for x in found.layers] == [0, 2]
    for one, two in zip(found.layers, folded.layers, strict=True):
        assert one.verdict.tolist() == two.verdict.tolist()


def test_wide_numbers() -> None:
    """Weights of 1e150 and 1e-150 neither overflow into a verdict nor underflow into one."""
    weights = [[[1e150], [1e-150], [-1e-150]], [[1.0, 1.0, 1.0]]]
    found = verdicts(weights, [[0.0, -1e-160, 1e-170], [0.0]], Box([-1e100], [1e100]))
    assert found == [["unstable"] * 3]


def test_overflow_leaves_units_open() -> None:
    weights = [[[1e300], [-1e300]], [[1e300, -1e300]], [[1.0]]]
    found = verdicts(weights, [[0.0, 1.0], [0.0], [0.0]], Box([-1e100], [1e100]), time_limit=1.0)
    assert found[0][0] in ("unstable", "undecided")
    assert found[1][0] in ("unstable", "undecided")


@pytest.mark.parametrize("sparse", [False, True])
def test_ball_bounds_do_not_underflow(sparse: bool) -> None:
    """The squares of 1e-170 are 0, but over a ball of radius 1e100 the unit reaches 1e-70."""
    first = np.array([[1e-170, 0.0]])
    weights = [sp.csr_array(first) if sparse else first, [[1e-160]], [[1.0]]]
    found = stability(Network.from_weights(weights), Ball([0.0, 0.0], 1e100))
    assert found.layers[0].upper[0] >= 1e-70
    assert found.layers[1].upper[0] >= 1e-230


def test_no_units() -> None:
    network = Network.from_weights([[[1.0]]])
    found = stability(network, UNIT)
    assert found.layers == ()
    assert found.complete
    assert repr(found).startswith("Stability(no units")


def test_reports() -> None:
    network = Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0]]], [[1.0, -0.5], [0.0]])
    found = stability(network, UNIT)
    assert found.counts == {"dead": 0, "active": 1, "unstable": 1, "undecided": 0}
    assert found.undecided == []
    assert found.to_dict()["schema"] == "relunorm.stability/1"
    assert found.table().splitlines()[1].split() == ["0", "2", "0", "1", "1", "0"]
    assert np.isnan(found.layers[0].witness_inactive[0]).all()


def hard(seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    sizes = [20, 30, 30, 1]
    return Network.from_weights(
        [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(sizes)],
        [np.zeros(30), np.full(30, -2.6), np.zeros(1)],
    )


def test_a_time_limit_leaves_units_undecided() -> None:
    found = stability(hard(), Box.cube(20), time_limit=0.0)
    assert not found.complete
    assert found.undecided
    replay(hard(), Box.cube(20), found.proofs)


def test_an_interruption_keeps_what_was_found() -> None:
    calls = []

    def stop(said) -> None:
        calls.append(said)
        raise KeyboardInterrupt

    found = stability(hard(), Box.cube(20), progress=stop)
    assert len(calls) == 1
    assert found.undecided
    assert found.layers[0].counts["undecided"] == 0


def test_bad_arguments() -> None:
    with pytest.raises(InvalidDomainError, match="2 coordinates"):
        stability(hard(), Box.cube(2))
    with pytest.raises(InvalidInputError, match="time_limit"):
        stability(hard(), Box.cube(20), time_limit=float("nan"))


@pytest.mark.parametrize("norm", [1, 2])
def test_neighbourhoods_within_a_box(norm):
    """Units just inside and just outside of what a clipped ball reaches, and one across it."""
    box = Box([-0.5, -0.5], [0.5, 0.5])
    ball = NormBall([0.0, 0.0], 0.75, norm, box)
    rows = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    top = np.array([0.5, 0.75, 0.75, 1.25] if norm == 1 else [0.5, 1.0, 1.0, 1.5])
    bias = -top + np.array([-1e-6, -1e-6, 1e-6, 1.0])
    net = Network.from_weights([rows, np.ones((1, 4))], [bias, [0.0]])
    found = stability(net, ball)
    verdict = found.layers[0].verdict.tolist()
    assert verdict[0] == "dead"
    assert verdict[1] in ("dead", "undecided")  # bounded over the box, which norm 1 cuts more of
    assert verdict[2:] == ["unstable", "unstable"]
    for points in (found.layers[0].witness_active[2:], found.layers[0].witness_inactive[2:]):
        assert ball.holds(points).all()

"""Where seeds 000 and 001 are wrong: each test fails on the printed statement (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import pytest

import relunorm as rn
from relunorm.errors import InvalidDomainError
from relunorm.network import Activation, Network


def relu(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0.0)


@pytest.fixture
def scalar_net():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=4), rng.normal(size=(50, 3))


def test_000_the_printed_construction_divides_where_it_must_multiply(scalar_net) -> None:
    w, b, v, x = scalar_net
    y = relu(x @ w.T + b) @ v
    size = np.abs(v)
    printed = relu(x @ (w / size[:, None]).T + b / size) @ np.sign(v)
    assert np.abs(printed - y).max() > 0.1
    result = rn.normalize(Network.from_weights([w, v[None]], [b, [0.0]]), "signed").network
    np.testing.assert_allclose(result(x)[:, 0], y, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(result.layers[0].affine.terms[0], w * size[:, None])
    assert np.isin(result.output.terms[1], (-1.0, 1.0)).all()


def test_000_activations_are_equal_up_to_the_factor(scalar_net) -> None:
    """The proof says relu(Wx + b)_i = relu(W'x + b')_i for its W' = W/|v|; |v_i| is lost."""
    w, b, v, x = scalar_net
    size = np.abs(v)
    before, after = relu(x @ w.T + b), relu(x @ (w / size[:, None]).T + b / size)
    assert np.abs(before - after).max() > 0.1
    np.testing.assert_allclose(before, size * after, rtol=0, atol=1e-14)


def test_000_the_last_line_says_every_contribution_is_zero(scalar_net) -> None:
    w, b, v, x = scalar_net
    assert np.abs(relu(x @ w.T + b) * v).max() > 0.1


def test_000_not_unique() -> None:
    """A hidden symmetry with nothing parallel: both have v in {-1, 0, 1}, neither permutes."""
    w = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    first, second = (Network.from_weights([s * w, np.ones((1, 3))]) for s in (1, -1))
    x = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(first(x), second(x), atol=1e-15)
    for network in (first, second):
        assert rn.normalize(network, "signed").network == network


def test_000_several_outputs() -> None:
    """One scaling cannot make two outputs' weights signs; max-norm 1 or copies can."""
    network = Network.from_weights([[[1.0]], [[2.0], [3.0]]], [[0.0], [0.0, 0.0]])
    normal = rn.normalize(network, "signed").network
    assert np.abs(normal.output.terms[1]).max() == 1.0
    split = rn.normalize(network, "signed", split=True).network
    assert split.widths == (1, 2, 2)
    assert np.isin(split.output.terms[1], (-1.0, 0.0, 1.0)).all()
    x = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_allclose(split(x), network(x), atol=1e-15)


def test_001_2_4_fails_for_the_step_at_alpha_0() -> None:
    """sigma(0 y) = 1/2 for every y, but gamma(0) sigma(y) is 0 or gamma(0): no gamma(0) fits."""
    step = Activation("step", at_zero=0.5)
    at = {y: step.apply_(np.array([float(y)]))[0] for y in (-1, 0, 1)}
    assert at[-1] == 0.0
    assert step.apply_(np.array([0.0 * -1.0]))[0] == 0.5
    network = Network.from_weights([np.zeros((1, 2)), [[6.0]]], [[0.0], [0.0]], step)
    result = rn.normalize(network, "unit").network
    np.testing.assert_array_equal(
        result(np.ones((3, 2))), 3.0
    )  # c / 2, not c as printed for b >= 0
    other = Network.from_weights(*network.weights(), Activation("step", at_zero=1.0))
    np.testing.assert_array_equal(rn.normalize(other, "unit").network(np.ones((3, 2))), 6.0)


def test_001_prop_2_3_fails_for_the_domain_0() -> None:
    """With X_B = 0 every threshold is 0 and every unit is 0 at 0: the constant 1 has no form."""
    network = Network.from_weights([[[0.0]], [[1.0]]], [[1.0], [0.0]])
    with pytest.raises(InvalidDomainError, match=r"Prop\. 2\.3"):
        rn.normalize(network, "bounded", rn.Box([0.0], [0.0]), pure=True)
    assert rn.normalize(network, "bounded", rn.Box([0.0], [0.0])).network([0.0])[0] == 1.0


def test_001_2_10_needs_two_extra_units_not_six() -> None:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(7, 3))
    b = np.array([9.0, 8.0, 7.0, 0.1, -0.1, 0.0, -9.0])  # three always active, one dead
    network = Network.from_weights([w, rng.normal(size=(1, 7))], [b, [0.0]])
    domain = rn.Ball(np.zeros(3), 1.0)
    result = rn.normalize(network, "bounded", domain, pure=True).network
    assert result.units == 3 + 2
    assert not result.output.bias.any()
    assert np.abs(result.layers[0].affine.bias).max() <= domain.radius
    x = domain.sample(200, 0)
    np.testing.assert_allclose(result(x), network(x), atol=1e-12)


def test_001_clipping_needs_no_extra_unit() -> None:
    network = Network.from_weights([[[1.0], [1.0]], [[2.0, 1.0]]], [[5.0, 0.2], [0.0]])
    result = rn.normalize(network, "bounded", rn.Box([-1.0], [1.0]), architecture="keep").network
    assert result.units == 2
    assert np.abs(result.layers[0].affine.bias).max() <= 1
    x = np.linspace(-1, 1, 11)[:, None]
    np.testing.assert_allclose(result(x), network(x), atol=1e-14)


def test_001_the_support_interval_is_tighter_than_the_radius() -> None:
    """On [0, 1]^2 the row (1, -1)/sqrt 2 reaches 1/sqrt 2 only, while X_B = sqrt 2: a unit with
    b = -1 is inside [-X_B, X_B], and dead."""
    w = np.array([[1.0, -1.0]]) / np.sqrt(2)
    network = Network.from_weights([w, [[1.0]]], [[-1.0], [0.0]])
    domain = rn.Box.cube(2, 0, 1)
    assert domain.radius > 1
    assert rn.normalize(network, "bounded", domain).network.units == 0


def test_001_4_4_holds_up_to_the_last_hidden_layer() -> None:
    """Printed for m = 2, ..., M; (4.3) constrains no weight of the output M."""
    network = Network.from_weights([[[1.0]], [[3.0]]], [[0.0], [0.0]])
    x = np.array([[1.0]])
    assert rn.normalize(network, "unit").network == network  # unit rows already
    hidden, output = network.values(x)[1], network(x)
    assert np.abs(hidden).max() <= np.linalg.norm(x)
    assert np.abs(output).max() > np.linalg.norm(hidden)


def test_001_4_5_is_too_small() -> None:
    """{6, 6, 1, 1} on the unit ball: the second layer needs b = -2.1, outside [-2, 2]."""
    d = 6
    network = Network.from_weights(
        [np.eye(d), np.full((1, d), 1 / np.sqrt(d)), [[1.0]]],
        [np.full(d, 0.9), [-2.1], [0.0]],
    )
    domain = rn.Ball(np.zeros(d), 1.0)
    top = np.full((1, d), 1 / np.sqrt(d))  # a point of the ball where the unit is on
    assert network(top)[0, 0] > 0.1
    assert network(np.zeros((1, d)))[0, 0] > 0 or network(-top)[0, 0] == 0
    result = rn.normalize(network, "bounded", domain).network
    bias = result.layers[1].affine.bias[0]
    assert abs(bias) > 2  # 2^{m-2} X_B with m = 3
    assert abs(bias) <= 2 * np.sqrt(d)  # Y_2 <= 2 sqrt(J_2) X_B, the corrected bound
    x = domain.sample(300, 0)
    np.testing.assert_allclose(result(x), network(x), atol=1e-14)


def test_001_4_7_holds_with_sqrt_j() -> None:
    """Four step units that are all 1: a unit row reaches 2 = sqrt 4, so b = -1.5 matters."""
    network = Network.from_weights(
        [np.ones((4, 1)), np.full((1, 4), 0.5), [[1.0]]],
        [np.array([0.0, 0.1, 0.2, 0.3]), [-1.5], [0.0]],
        Activation("step"),
    )
    result = rn.normalize(network, "bounded", rn.Box([-1.0], [1.0])).network
    assert result.layers[1].affine.bias[0] == pytest.approx(-1.5)
    assert result([1.0])[0] == 1.0
    assert result([-1.0])[0] == 0.0


def test_001_padding_makes_the_constraint_vacuous() -> None:
    """One dead unit with a large weight lets any bias through, so forms are minimal first."""
    network = Network.from_weights(
        [[[1.0], [1.0]], [[1.0, 1e6]], [[1.0]]], [[0.0, -5.0], [-0.5], [0.0]]
    )
    domain = rn.Box([-1.0], [1.0])
    padded = rn.normalize(network, "bounded", domain, remove=False).network
    minimal = rn.normalize(network, "bounded", domain).network
    assert abs(padded.layers[1].affine.bias[0]) < 1e-5
    assert abs(minimal.layers[-1].affine.bias[0]) == pytest.approx(0.5)

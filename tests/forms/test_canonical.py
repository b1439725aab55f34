"""Canonical form and fingerprint: the same for every disguise, different for the least change."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import exact_value
from planted import disguised, networks
from strategies import networks as any_networks

import relunorm as rn
from relunorm import matrix as mx
from relunorm.errors import InvalidDomainError, InvalidInputError, InvalidNetworkError
from relunorm.forms.comparison.shallow import shallow_form
from relunorm.forms.rewrite import dense_rows
from relunorm.forms.shapes.canonical import product
from relunorm.network import Activation, Affine, Layer, Network

build = rn.Network.from_weights


@settings(max_examples=25)
@given(networks(max_depth=4), st.integers(0, 2**32 - 1))
def test_disguised_copies_are_identical(network: Network, seed: int) -> None:
    domain = rn.Box.cube(network.input_size)
    copy = disguised(network, np.random.default_rng(seed))
    first = rn.normalize(network, "canonical", domain)
    second = rn.normalize(copy, "canonical", domain)
    assert first.network == second.network
    assert rn.fingerprint(network, domain) == rn.fingerprint(copy, domain)
    again = rn.normalize(first.network, "canonical", domain).network
    assert again == first.network


@settings(max_examples=15)
@given(networks(max_depth=3), st.integers(0, 2**32 - 1))
def test_floating_point_copies_agree_to_digits(network: Network, seed: int) -> None:
    domain = rn.Box.cube(network.input_size)
    copy = disguised(network, np.random.default_rng(seed), exact=False)
    first = rn.normalize(network, "canonical", domain).network
    second = rn.normalize(copy, "canonical", domain).network
    assert first.widths == second.widths
    if rn.fingerprint(network, domain, digits=6) != rn.fingerprint(copy, domain, digits=6):
        # rounding boundaries can separate copies; compare must then decide
        assert rn.compare(network, copy, domain).verdict in ("equal", "within")


def test_rows_are_sorted_and_of_norm_one() -> None:
    rng = np.random.default_rng(1)
    network = Network.from_weights(
        [rng.normal(size=(9, 3)), rng.normal(size=(7, 9)), rng.normal(size=(2, 7))],
        [rng.normal(size=9), rng.normal(size=7), rng.normal(size=2)],
    )
    result = rn.normalize(network, "canonical", rn.Box.cube(3)).network
    for layer in result.layers:
        table = dense_rows(layer.affine)
        np.testing.assert_allclose(np.abs(table).sum(axis=1), 1.0, rtol=1e-14)
        assert table.tolist() == sorted(table.tolist())


def dyadic(rng: np.random.Generator, shape) -> np.ndarray:
    return rng.integers(-64, 65, shape) / 64


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["box", "ball", "none"]), st.booleans())
def test_shallow_rational_form_is_complete(seed: int, kind: str, leaky: bool) -> None:
    """Equal functions have equal forms: opposite units rewritten by relu(z) = z + relu(-z)."""
    rng = np.random.default_rng(seed)
    d, n, m = 2, 5, 2
    w, b, v, c = dyadic(rng, (n, d)), dyadic(rng, n), dyadic(rng, (m, n)), dyadic(rng, m)
    slope = 0.25 if leaky else 0.0
    act = Activation("leaky", slope=slope) if leaky else Activation("relu")
    network = Network.from_weights([w, v], [b, c], act)
    domain = {"box": rn.Box.cube(d), "ball": rn.Ball([0.25, 0.0], 0.75), "none": None}[kind]
    # z = relu(z) - relu(-z) for leaky: act(z) = (1 + a) z + act(-z); write (1+a) z by two units:
    # act(z) - act(-z) = (1 + a) z, so act(z0) = [act(z0) - act(-z0)] + act(-z0) needs more copies
    turned_w = np.vstack([w, w[:1], -w[:1]])
    turned_b = np.concatenate([b, b[:1], -b[:1]])
    share = v[:, :1] * 0.5
    turned_v = np.hstack([v[:, :1] * 0.5, v[:, 1:], share, np.zeros((m, 1))])
    copy = Network.from_weights([turned_w, turned_v], [turned_b, c], act)
    form, other = shallow_form(network, domain), shallow_form(copy, domain)
    assert form == other
    assert form.digest == other.digest
    changed = w.copy()
    live = [
        i
        for i in range(n)
        if any(unit[2][k] for unit in form.units for k in range(m)) and v[:, i].any() and w[i].any()
    ]
    if live and form.units:
        normals = {unit[0] for unit in form.units}
        i = next((i for i in live if _direction(w[i]) in normals), None)
        if i is not None:
            changed[i, np.flatnonzero(w[i])[0]] += 2.0**-40
            moved = Network.from_weights([changed, v], [b, c], act)
            assert shallow_form(moved, domain).digest != form.digest
            assert rn.fingerprint(moved, domain) != rn.fingerprint(network, domain)


def _direction(row: np.ndarray) -> tuple[Fraction, ...]:
    exact = [Fraction(float(x)) for x in row]
    size = sum(map(abs, exact))
    first = next(x for x in exact if x)
    return tuple(x / (size if first > 0 else -size) for x in exact)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_rational_form_is_the_same_function(seed: int) -> None:
    """Checked in rational arithmetic: not one bit is lost."""
    rng = np.random.default_rng(seed)
    network = Network.from_weights(
        [dyadic(rng, (6, 3)), dyadic(rng, (2, 6))], [dyadic(rng, 6), dyadic(rng, 2)]
    )
    form = shallow_form(network, rn.Box.cube(3))
    for _ in range(5):
        x = dyadic(rng, 3)
        exact = [Fraction(float(t)) for t in x]
        value = []
        for k in range(2):
            total = form.constant[k] + sum(
                a * t for a, t in zip(form.linear[k], exact, strict=True)
            )
            for normal, offset, gamma in form.units:
                z = offset + sum(a * t for a, t in zip(normal, exact, strict=True))
                total += gamma[k] * max(z, Fraction(0))
            value.append(total)
        assert value == exact_value(network, x)


def test_hidden_symmetry_is_seen() -> None:
    """sum relu(z_i) = sum relu(-z_i) when sum z_i = 0: nothing parallel, yet the same function."""
    w = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    first = Network.from_weights([w, np.ones((1, 3))])
    second = Network.from_weights([-w, np.ones((1, 3))])
    domain = rn.Box.cube(2)
    assert shallow_form(first, domain) == shallow_form(second, domain)
    assert rn.fingerprint(first, domain) == rn.fingerprint(second, domain)
    assert rn.normalize(first, "canonical", domain).network == (
        rn.normalize(second, "canonical", domain).network
    )
    assert rn.compare(first, second, domain).verdict == "equal"


def test_fixed_coordinates_carry_no_weight() -> None:
    first = Network.from_weights([[[1.0, 2.0]], [[1.0]]], [[0.0], [0.0]])
    second = Network.from_weights([[[1.0, 0.0]], [[1.0]]], [[1.0], [0.0]])
    domain = rn.Box([-3.0, 0.5], [3.0, 0.5])
    assert rn.fingerprint(first, domain) == rn.fingerprint(second, domain)
    assert rn.fingerprint(first, rn.Box.cube(2)) != rn.fingerprint(second, rn.Box.cube(2))


def test_exact_option() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_weights([dyadic(rng, (8, 3)), dyadic(rng, (2, 8))])
    domain = rn.Box.cube(3)
    result = rn.normalize(network, "canonical", domain, exact=True)
    assert result.exact == shallow_form(network, domain)
    assert rn.verify(result.certificate, network, result.network).holds
    assert result.certificate.bound < 1e-13
    deep = Network.from_weights([np.eye(2), np.eye(2), np.eye(2)])
    with pytest.raises(InvalidNetworkError, match="at most one"):
        rn.normalize(deep, "canonical", rn.Box.cube(2), exact=True)
    triangle = rn.Polytope([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]], [1, 1, 1, 1])
    with pytest.raises(InvalidDomainError, match="computed in floats"):
        rn.normalize(network, "canonical", triangle, exact=True)
    with pytest.raises(InvalidInputError, match="digits"):
        rn.fingerprint(network, domain, digits=0)


def test_accurate_product_against_fractions() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 30)) * 10.0 ** rng.integers(-8, 8, (4, 30))
    b = rng.normal(size=(30, 3)) * 10.0 ** rng.integers(-8, 8, (30, 3))
    b[:, 0] = -b[::-1, 0] + 1e-9
    result = product(a, b)
    for i in range(4):
        for j in range(3):
            exact = sum(Fraction(float(a[i, k])) * Fraction(float(b[k, j])) for k in range(30))
            assert result[i, j] == float(exact)


def _shuffled(network: Network, rng: np.random.Generator) -> Network:
    """Every layer, linear stages included, permuted and rescaled by powers of two."""
    order, scale, layers = [np.arange(network.input_size)], [np.ones(network.input_size)], []

    def read(affine: Affine) -> dict[int, np.ndarray]:
        return {k: mx.dense(m)[:, order[k]] * scale[k][order[k]] for k, m in affine.terms.items()}

    for layer in network.layers:
        p, s = rng.permutation(layer.width), 2.0 ** rng.integers(-3, 4, layer.width)
        terms = {k: (m / s[:, None])[p] for k, m in read(layer.affine).items()}
        layers.append(Layer(Affine(terms, (layer.affine.bias / s)[p]), layer.activation))
        order.append(p)
        scale.append(np.ones(len(s)) if layer.activation.kind == "step" else s)
    return network.replace(layers=layers, output=Affine(read(network.output), network.output.bias))


@settings(max_examples=40)
@given(any_networks(), st.integers(0, 2**32 - 1))
def test_linear_stages_do_not_change_a_fingerprint(network: Network, seed: int) -> None:
    """Multiplied out in float64, a permuted stage gives other bits."""
    copy = _shuffled(network, np.random.default_rng(seed))
    assert rn.fingerprint(copy) == rn.fingerprint(network)
    assert rn.compare(network, copy, rn.Box.cube(network.input_size), tolerance=0).lower == 0


def test_shallow_forms_multiply_stages_out_exactly() -> None:
    """(0.1 * 3) x is not 0.30000000000000004 x, though float64 says so."""
    stage = Layer(Affine({0: [[3.0]]}, [0.0]), Activation("identity"))
    staged = Network(
        [stage, Layer(Affine({1: [[0.1]]}, [0.0]))], Affine({2: [[1.0]]}, [0.0]), input_shape=1
    )
    rounded = Network.from_weights([[[0.1 * 3.0]], [[1.0]]])
    assert staged.folded() == rounded
    assert rn.fingerprint(staged) != rn.fingerprint(rounded)
    assert shallow_form(staged).units[0][2][0] == 3 * Fraction(0.1)
    box = rn.Box([0.5], [1.0])
    assert rn.compare(staged, rounded, box, tolerance=0).verdict == "different"
    assert rn.compare(staged, rounded, box).verdict == "within"


def test_networks_without_units_left_are_the_same_whatever_they_were() -> None:
    box = rn.Box([1.0], [2.0])
    step = Network.from_weights([[[1.0]], [[2.0]]], activation="step")  # 2 on the box
    relu = Network.from_weights([[[-1.0]], [[2.0]]], [[0.0], [2.0]])
    assert rn.fingerprint(step, box) == rn.fingerprint(relu, box)


@pytest.mark.parametrize("scales", [(3.0, 7.0), (0.1, 0.3), (1e5, 1 / 3)])
def test_rounded_fingerprint_of_a_function_that_is_zero(scales: tuple[float, float]) -> None:
    """What is left of 0 by rounding was scaled up and hashed."""
    row, bias, out = np.array([0.1, 0.2]), 0.05, 0.7
    first = build([[row, row], [[out, -out]]], [[bias, bias], [0.5]])
    rows, ends = [row * s for s in scales], [out / scales[0], -out / scales[1]]
    second = build([rows, [ends]], [[bias * s for s in scales], [0.5]])
    square = rn.Box.cube(2, -1, 1)
    assert rn.fingerprint(first, square, 9) == rn.fingerprint(second, square, 9)
    other = build([rows, [[ends[0], ends[1] * (1 + 1e-6)]]], second.weights()[1])
    assert rn.fingerprint(first, square, 9) != rn.fingerprint(other, square, 9)

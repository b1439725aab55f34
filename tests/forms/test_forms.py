"""Every form on random planted networks: same function, its constraints, idempotent."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planted import networks
from strategies import networks as any_networks
from typer.testing import CliRunner

import relunorm as rn
from relunorm import matrix as mx
from relunorm.cli import app
from relunorm.errors import InvalidDomainError, InvalidInputError, InvalidNetworkError
from relunorm.forms.certificate.certificate import seal
from relunorm.forms.rewrite import row_norms
from relunorm.forms.shapes import FORMS
from relunorm.forms.shaping import Job
from relunorm.network import Activation, Affine, Layer, Network

build = rn.Network.from_weights


def same_function(first: Network, second: Network, domain: rn.Domain, seed: int = 0) -> None:
    """Outputs agree to 1e-12 of the largest: float64 rounding through at most six layers."""
    x = np.concatenate([domain.sample(200, seed), domain.center[None]])
    y = first(x)
    np.testing.assert_allclose(second(x), y, rtol=0, atol=1e-12 * max(1.0, np.abs(y).max()))


def norms(network: Network, order: int) -> np.ndarray:
    return np.concatenate([row_norms(x.affine, order) for x in network.layers] or [np.ones(1)])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20)
@given(network=networks(), keep=st.booleans())
def test_same_function_and_certified(form: str, network: Network, keep: bool) -> None:
    domain = rn.Box.cube(network.input_size)
    try:
        result = rn.normalize(network, form, domain, architecture="keep" if keep else "any")
    except InvalidNetworkError:
        assert form == "atoms"
        return
    same_function(network, result.network, domain)
    if keep and network.is_chain and result.network.layers:
        assert result.network.is_chain
    assert result.certificate is not None
    assert result.certificate.bound < 1e-7
    assert rn.verify(result.certificate, network, result.network).holds


@settings(max_examples=20)
@given(networks())
def test_unit_rows(network: Network) -> None:
    result = rn.normalize(network, "unit").network
    np.testing.assert_allclose(norms(result, 2), 1.0, rtol=4e-15)
    again = rn.normalize(result, "unit").network
    assert again == result
    same_function(network, result, rn.Box.cube(network.input_size))


@settings(max_examples=20)
@given(networks())
def test_unit_pure_has_no_output_bias(network: Network) -> None:
    result = rn.normalize(network, "unit", pure=True).network
    assert not result.output.bias.any()
    np.testing.assert_allclose(norms(result, 2), 1.0, rtol=4e-15)
    same_function(network, result, rn.Box.cube(network.input_size))


@settings(max_examples=20)
@given(networks(max_depth=4))
def test_bounded_thresholds(network: Network) -> None:
    domain = rn.Box.cube(network.input_size)
    result = rn.normalize(network, "bounded", domain).network
    np.testing.assert_allclose(norms(result, 2), 1.0, rtol=4e-15)
    values = [domain.radius]
    for layer in result.layers:
        reach = np.sqrt(sum(values[s] ** 2 for s in layer.affine.terms))
        assert np.abs(layer.affine.bias).max() <= reach * (1 + 1e-12)
        top = np.maximum(reach + layer.affine.bias, 0.0)
        values.append(float(np.linalg.norm(top)))
    if result.layers and 0 in result.layers[0].affine.terms:
        w, b = result.layers[0].affine.terms[0], result.layers[0].affine.bias
        lo, hi = domain.support(mx.dense(w))
        assert (-b >= lo - 1e-12).all()
        assert (-b <= hi + 1e-12).all()


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 6))
def test_bounded_pure_is_2_10(seed: int, inputs: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    network = Network.from_weights(
        [rng.normal(size=(width, inputs)), rng.normal(size=(1, width))],
        [rng.normal(0, 2, width), rng.normal(size=1)],
    )
    domain = rn.Box.cube(inputs)
    result = rn.normalize(network, "bounded", domain, pure=True).network
    assert not result.output.bias.any()
    assert result.is_chain
    assert result.units <= width + 2
    assert np.abs(result.layers[0].affine.bias).max() <= domain.radius * (1 + 1e-12)
    np.testing.assert_allclose(norms(result, 2), 1.0, rtol=4e-15)
    same_function(network, result, domain)


@settings(max_examples=25)
@given(networks(leaky=False), st.booleans())
def test_l1_theorem(network: Network, positive: bool) -> None:
    size = 1.5
    domain = rn.Box.cube(network.input_size, 0.0 if positive else -size, size)
    found = rn.normalize(network, "l1", domain)
    result, limit = found.network, size if positive else 2 * size
    assert np.abs(norms(result, 1) - 1).max() < 1e-14
    for k, layer in enumerate(result.layers):
        assert max(np.abs(mx.entries(m)).max() for m in layer.affine.terms.values()) <= 1 + 1e-15
        assert np.abs(layer.affine.bias).max() <= (size if k == 0 else limit) * (1 + 1e-12)
    for value in result.values(domain.sample(200, 0))[1:]:
        assert value.max() <= limit * (1 + 1e-12)
    assert found.facts["positive"] == positive
    same_function(network, result, domain)


@settings(max_examples=20)
@given(networks())
def test_pow2_changes_no_bit(network: Network) -> None:
    result = rn.normalize(network, "pow2").network
    x = np.random.default_rng(0).normal(size=(50, network.input_size))
    assert np.array_equal(network(x), result(x))
    assert result.widths == network.widths
    assert rn.normalize(result, "pow2").network == result


@given(any_networks())
def test_pow2_changes_no_bit_of_any_network(network: Network) -> None:
    """Sparse and dense matrices sum in another order, so each has to stay what it is."""
    result = rn.normalize(network, "pow2").network
    x = np.random.default_rng(0).normal(size=(20, network.input_size))
    assert np.array_equal(network(x), result(x))
    for old, new in zip(network.maps, result.maps, strict=True):
        assert old.sources == new.sources
        for source, matrix in old.terms.items():
            assert type(new.terms[source]) is type(matrix)


def test_pow2_float32_bits() -> None:
    """0 of 100,000 float32 outputs differ in any bit."""
    rng = np.random.default_rng(7)
    widths = [10, 30, 30, 5]
    weights = [rng.normal(size=(b, a)).astype(np.float32) for a, b in pairwise(widths)]
    biases = [rng.normal(size=b).astype(np.float32) for b in widths[1:]]
    result = rn.normalize(Network.from_weights(weights, biases), "pow2").network
    scaled_w, scaled_b = result.weights()
    assert not np.array_equal(scaled_w[0], weights[0])
    x = rng.normal(size=(100_000, 10)).astype(np.float32)

    def run(ws: list, bs: list) -> np.ndarray:
        y = x
        for i, (w, b) in enumerate(zip(ws, bs, strict=True)):
            y = y @ np.asarray(w, dtype=np.float32).T + np.asarray(b, dtype=np.float32)
            y = np.maximum(y, 0) if i + 1 < len(ws) else y
        return y

    assert run(weights, biases).tobytes() == run(scaled_w, scaled_b).tobytes()


@settings(max_examples=20)
@given(networks(), st.booleans())
def test_signed_weights(network: Network, split: bool) -> None:
    result = rn.normalize(network, "signed", split=split).network
    columns = result.output.terms.get(len(result.layers))
    if columns is not None:
        columns = mx.dense(columns)
        size = np.abs(columns).max(axis=0)
        assert np.isin(size, (0.0, 1.0)).all()
        if split or network.output_size == 1:
            assert np.isin(columns, (-1.0, 0.0, 1.0)).all()
    assert rn.normalize(result, "signed", split=split).network == result
    same_function(network, result, rn.Box.cube(network.input_size))


@settings(max_examples=20)
@given(networks())
def test_atoms(network: Network) -> None:
    try:
        result = rn.normalize(network, "atoms").network
    except InvalidNetworkError:
        assume(False)
        return
    np.testing.assert_allclose(row_norms(result.layers[0].affine, 2), 1.0, rtol=4e-15)
    columns = mx.dense(result.output.terms[len(result.layers)])
    np.testing.assert_allclose(np.linalg.norm(columns, axis=0), 1.0, rtol=4e-15)
    same_function(network, result, rn.Box.cube(network.input_size))


@pytest.mark.parametrize("form", ["minimal", "bounded", "l1"])
@settings(max_examples=10)
@given(network=networks(max_depth=3))
def test_idempotent(form: str, network: Network) -> None:
    domain = rn.Box.cube(network.input_size)
    once = rn.normalize(network, form, domain).network
    twice = rn.normalize(once, form, domain)
    assert twice.network.widths == once.widths
    same_function(once, twice.network, domain)


@settings(max_examples=10)
@given(network=networks(max_depth=3), seed=st.integers(0, 999))
def test_equivariant_to_permutation(network: Network, seed: int) -> None:
    """Permuting the first layer permutes its unit form."""
    order = np.random.default_rng(seed).permutation(network.layers[0].width)
    first = network.layers[0]
    moved = Affine({k: m[order] for k, m in first.affine.terms.items()}, first.affine.bias[order])

    def reread(affine: Affine) -> Affine:
        return Affine(
            {k: m[:, order] if k == 1 else m for k, m in affine.terms.items()}, affine.bias
        )

    layers = [Layer(moved, first.activation)]
    layers += [Layer(reread(x.affine), x.activation) for x in network.layers[1:]]
    other = network.replace(layers=layers, output=reread(network.output))
    a, b = rn.normalize(network, "unit").network, rn.normalize(other, "unit").network
    rows = [n.layers[0].affine.terms[0] for n in (a, b)]
    assert sorted(map(tuple, rows[0])) == sorted(map(tuple, rows[1]))


def test_sparse_layers_stay_correct() -> None:
    rng = np.random.default_rng(3)
    first = sp.random_array((30, 20), density=0.1, rng=rng, format="csr")
    second = sp.random_array((25, 30), density=0.1, rng=rng, format="csr")
    network = Network.from_weights(
        [first, second, rng.normal(size=(3, 25))],
        [rng.normal(0, 0.2, 30), rng.normal(0, 0.2, 25), rng.normal(size=3)],
    )
    domain = rn.Box.cube(20)
    for form in FORMS:
        result = rn.normalize(network, form, domain)
        same_function(network, result.network, domain)
        assert rn.verify(result.certificate, network, result.network).holds


def _check_away_from_thresholds(network: Network, result: rn.Normalized, domain: rn.Box) -> None:
    """The certificate replays; its bound holds wherever no step is within its margin."""
    proof = result.certificate
    assert proof is not None
    assert rn.verify(proof, network, result.network).holds
    pair = network, result.network
    x = domain.sample(2000, 1)
    near = np.zeros(len(x), dtype=bool)
    for entry in proof.exceptions:
        z = pair[entry["network"]].preactivations(x)[entry["layer"]][:, entry["unit"]]
        near |= np.abs(z) <= entry["margin"] + 1e-14
    assert near.mean() < 0.01
    gap = np.abs(network(x) - result.network(x))[~near]
    assert gap.max() <= proof.bound + 1e-13
    wider = json.loads(json.dumps(proof.to_dict()))
    wider["exceptions"][0]["margin"] /= 2
    wider["digest"] = seal(wider)
    assert not rn.verify(rn.Certificate(wider), network, result.network).holds


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_step_networks(at_zero: float) -> None:
    rng = np.random.default_rng(5)
    rows = np.vstack([rng.normal(size=(4, 2)), np.zeros((2, 2)), [[1.0, 0.0]]])
    bias = np.array([0.1, -0.2, 9.0, -9.0, 0.0, 1.0, 1.0])  # the last touches the boundary
    network = Network.from_weights(
        [rows, rng.normal(size=(2, 7))], [bias, [1.0, 2.0]], Activation("step", at_zero=at_zero)
    )
    domain = rn.Box.cube(2)
    x = np.vstack([domain.sample(200, 0), [[-1.0, 0.3], [0.0, 0.0]]])
    for form in ("minimal", "unit", "bounded", "canonical"):
        result = rn.normalize(network, form, domain)
        np.testing.assert_allclose(result.network(x), network(x), atol=1e-12)
        _check_away_from_thresholds(network, result, domain)
    if at_zero == 0.5:
        pure = rn.normalize(network, "bounded", domain, pure=True).network
        assert not pure.output.bias.any()
        np.testing.assert_allclose(pure(x), network(x), atol=1e-12)
    else:
        with pytest.raises(InvalidNetworkError, match="value"):
            rn.normalize(network, "unit", pure=True)


def test_domains_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_weights(
        [rng.normal(size=(12, 3)), rng.normal(size=(8, 12)), rng.normal(size=(2, 8))],
        [rng.normal(0, 1.5, 12), rng.normal(0, 3, 8), rng.normal(size=2)],
    )
    corner = np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3))])
    for domain in (
        rn.Ball([0.2, 0.0, -0.1], 0.7),
        rn.Polytope(corner, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.5]),
        rn.Box([0.0, 0.5, -1.0], [1.0, 0.5, 1.0]),
    ):
        for form in FORMS:
            result = rn.normalize(network, form, domain)
            same_function(network, result.network, domain)
            assert result.certificate.bound < 1e-9, (form, domain)
            assert rn.verify(result.certificate, network, result.network).holds


def test_clear_refusals() -> None:
    network = Network.from_weights([np.ones((2, 2)), np.ones((1, 2))])
    with pytest.raises(InvalidInputError, match="not known"):
        rn.normalize(network, "smallest")
    with pytest.raises(InvalidDomainError, match="needs a bounded domain"):
        rn.normalize(network, "bounded")
    with pytest.raises(InvalidDomainError, match="3 coordinates"):
        rn.normalize(network, "l1", rn.Box.cube(3))
    with pytest.raises(InvalidInputError, match="eps"):
        rn.normalize(network, "minimal", rn.Box.cube(2), eps=float("nan"))
    with pytest.raises(InvalidInputError, match="belongs to"):
        rn.normalize(network, "unit", split=True)
    constant = Network.from_weights([np.zeros((2, 2)), np.ones((1, 2))], [np.ones(2), [0.0]])
    with pytest.raises(InvalidDomainError, match="single point"):
        rn.normalize(constant, "bounded", rn.Box.cube(2, 0, 0), pure=True)
    with pytest.raises(InvalidNetworkError, match="two hidden layers"):
        rn.normalize(network, "atoms")


def test_constant_and_affine_networks() -> None:
    domain = rn.Box.cube(2)
    constant = Network.from_weights(
        [np.zeros((3, 2)), np.ones((2, 3))], [[1.0, -1.0, 0.0], [0.5, 0.0]]
    )
    affine = Network([], Affine({0: np.ones((1, 2))}, np.ones(1)), input_shape=2)
    for network in (constant, affine):
        for form in ("minimal", "unit", "bounded", "l1", "canonical", "signed"):
            result = rn.normalize(network, form, domain)
            same_function(network, result.network, domain)
            assert result.certificate.bound < 1e-14
        pure = rn.normalize(network, "unit", pure=True).network
        assert not pure.output.bias.any()
        same_function(network, pure, domain)


def test_forms_are_named_where_they_are_asked_for() -> None:
    *most, last = FORMS
    result = CliRunner().invoke(app, ["normalize", "--help"], env={"COLUMNS": "300"})
    assert f"{', '.join(most)} or {last} " in result.output
    text = " ".join((rn.normalize.__doc__ or "").split())
    assert (
        f"form: {', '.join(most)} or {last};".replace("minimal", "minimal (removal only)") in text
    )
    *most, last = (name for name, shape in FORMS.items() if shape.minimal_first)
    assert f"by default for {', '.join(most)} and {last}." in text
    *most, last = (name for name, shape in FORMS.items() if shape.needs_domain)
    assert f"Needed by {', '.join(most)} and {last}." in text


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_normalization_keeps_what_is_proved(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while units are looked at, or while the result is being certified."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(30, 3)), rng.normal(size=(20, 30)) / 5, rng.normal(size=(1, 20))]
    biases = [np.r_[np.full(10, -9.0), rng.normal(size=20)], rng.normal(size=20), np.zeros(1)]
    network, box = Network.from_weights(weights, biases), rn.Box.cube(3)
    done = Job._certificate
    hit = iter([True])

    def pressed(*arguments: Any) -> Any:
        if next(hit, False):
            signal.raise_signal(signal.SIGINT)
        return done(*arguments) if late else None

    monkeypatch.setattr("relunorm.forms.normalize.LAST_MOMENT", 60.0)
    if late:
        monkeypatch.setattr(Job, "_certificate", pressed)
    found = rn.normalize(network, "minimal", box, progress=None if late else pressed)
    assert found.stopped == "interrupted"
    assert found.counts["dead"] >= 10
    x = box.sample(100, 0)
    np.testing.assert_allclose(found.network(x), network(x), atol=1e-9)
    assert found.certificate is not None
    assert rn.verify(found.certificate, network, found.network).holds


def test_pure_adds_no_skip() -> None:
    network = build([[[1.0, 2]], [[1.0], [-1.0]], [[1.0, 1.0]]], [[0.1], [0.2, 0.3], [1.0]])
    disk = rn.Ball([0.0, 0.0], 1.0)
    found = rn.normalize(network, "bounded", disk, architecture="keep", pure=True)
    assert all(set(a.terms) <= {k} for k, a in enumerate(found.network.maps))
    assert not found.network.output.bias.any()
    points = disk.sample(200, 0)
    assert np.abs(found.network(points) - network(points)).max() < 1e-12
    assert found.certificate is not None
    assert rn.verify(found.certificate, network, found.network).holds

"""The network type against a scalar evaluator that shares no code with it."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import ACTIVATIONS, networks

import relunorm as rn
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.network import network as network_module
from relunorm.network.encoding import HEADER, encoding
from relunorm.network.patterns import forms_under
from relunorm.stability import stability

KINKS = tuple(a for a in ACTIVATIONS if a.kind != "step")


def scalar_forward(network: rn.Network, x: list[float]) -> tuple[list[float], list[list[float]]]:
    """Outputs and all pre-activations, by plain Python arithmetic."""

    def affine(part: rn.Affine, values: list[list[float]]) -> list[float]:
        out = [float(b) for b in part.bias]
        for source, matrix in part.terms.items():
            rows = matrix.toarray().tolist() if sp.issparse(matrix) else matrix.tolist()
            for i, row in enumerate(rows):
                out[i] += sum(w * v for w, v in zip(row, values[source], strict=True))
        return out

    def activate(kind: rn.Activation, z: float) -> float:
        if kind.kind == "relu":
            return z if z > 0 else 0.0
        if kind.kind == "leaky":
            return z if z > 0 else kind.slope * z
        if kind.kind == "step":
            return 1.0 if z > 0 else (0.0 if z < 0 else kind.at_zero)
        return z

    values, pre = [x], []
    for layer in network.layers:
        z = affine(layer.affine, values)
        pre.append(z)
        values.append([activate(layer.activation, v) for v in z])
    return affine(network.output, values), pre


@given(networks(), st.integers(0, 2**32 - 1))
def test_evaluation_matches_scalar_arithmetic(network: rn.Network, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(5, network.input_size))
    outputs = network(X)
    pre = network.preactivations(X)
    pattern = network.pattern(X)
    for row, x in enumerate(X):
        expected, expected_pre = scalar_forward(network, x.tolist())
        np.testing.assert_allclose(outputs[row], expected, rtol=1e-12, atol=1e-12)
        hidden = [expected_pre[i] for i in network.hidden]
        for got, want in zip(pre, hidden, strict=True):
            np.testing.assert_allclose(got[row], want, rtol=1e-12, atol=1e-12)
        flat = [z > 0 for layer in hidden for z in layer]
        assert pattern[row].tolist() == flat
        np.testing.assert_allclose(network(x), outputs[row], rtol=1e-12, atol=1e-12)


def test_the_derivative_at_a_kink_is_that_of_the_left() -> None:
    """Seed 003 takes 0 at 0 in (6) and 1 in (13); here it is 0, as in torch."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    torch.relu(zero).sum().backward()
    assert zero.grad is not None
    assert rn.Activation("relu").derivative(np.zeros(1)) == zero.grad.numpy() == 0.0
    net = rn.Network.from_weights([[[1.0]], [[1.0]]])
    assert net.jacobian([0.0]) == 0.0


@given(networks(activations=KINKS), st.integers(0, 2**32 - 1))
def test_jacobian_is_the_slope_of_the_function(network: rn.Network, seed: int) -> None:
    """Piecewise affine: a difference quotient inside one region is exact up to rounding."""
    X = np.random.default_rng(seed).normal(size=(4, network.input_size))
    J = network.jacobian(X)
    assert J.shape == (4, network.output_size, network.input_size)
    for row, x in enumerate(X):
        np.testing.assert_allclose(network.jacobian(x), J[row], rtol=1e-12, atol=1e-12)
        margin = min((abs(z).min() for z in network.preactivations(x)), default=1.0)
        if margin < 1e-4:
            continue
        for axis in range(network.input_size):
            step = np.zeros(network.input_size)
            step[axis] = 1e-7
            quotient = (network(x + step) - network(x - step)) / 2e-7
            np.testing.assert_allclose(J[row, :, axis], quotient, rtol=1e-5, atol=1e-5)


@given(networks(activations=KINKS), st.integers(0, 2**32 - 1))
def test_under_its_pattern_every_map_is_an_affine_form(network: rn.Network, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=network.input_size)
    outputs, pre = scalar_forward(network, x.tolist())
    forms = list(forms_under(network, network.pattern(x)))
    for form, expected in zip(forms, [*pre, outputs], strict=True):
        np.testing.assert_allclose(form @ [*x, 1.0], expected, rtol=1e-12, atol=1e-12)


@given(networks())
def test_folding_keeps_the_function_and_leaves_only_units(network: rn.Network) -> None:
    folded = network.folded()
    assert all(layer.has_units for layer in folded.layers)
    assert folded.units == network.units
    X = np.random.default_rng(0).normal(size=(20, network.input_size))
    safe = np.ones(len(X), dtype=bool)
    for z in network.preactivations(X):  # a step can jump where folding rounds a pre-activation
        safe &= (abs(z) > 1e-9).all(axis=1)
    np.testing.assert_allclose(folded(X)[safe], network(X)[safe], rtol=1e-10, atol=1e-10)


@given(networks())
def test_pickle_and_equality(network: rn.Network) -> None:
    copy = pickle.loads(pickle.dumps(network))
    assert copy == network
    assert hash(copy) == hash(network)
    shifted = network.replace(
        output=rn.Affine(dict(network.output.terms), network.output.bias + 2.0**-40)
    )
    assert shifted != network


def test_storage_does_not_change_identity() -> None:
    W = np.array([[1.0, 0.0], [0.0, 2.0]])
    a = rn.Network.from_weights([W, [[1.0, 1.0]]])
    b = rn.Network.from_weights([sp.csr_array(W), [[1.0, 1.0]]])
    assert a == b


def test_nothing_can_be_changed() -> None:
    W, b = np.ones((2, 2)), np.zeros(2)
    net = rn.Network.from_weights([W, np.ones((1, 2))], [b, np.zeros(1)])
    W[0, 0] = b[0] = 99.0
    assert net([1.0, 1.0])[0] == 4.0
    with pytest.raises(AttributeError, match="immutable"):
        net.layers = ()  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        net.output.bias[0] = 1.0
    with pytest.raises(TypeError):
        net.output.terms[0] = W  # type: ignore[index]
    X = np.array([[1.0, 1.0]])
    net(X)
    assert X.tolist() == [[1.0, 1.0]]


def test_long_batches_are_cut_without_changing_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(8, 3)), rng.normal(size=(2, 8))])
    X = rng.normal(size=(101, 3))
    whole = net(X)
    monkeypatch.setattr(network_module, "CHUNK_DOUBLES", 80)
    np.testing.assert_allclose(net(X), whole, rtol=1e-14)


def test_input_shapes() -> None:
    net = rn.Network.from_weights([np.eye(6)]).replace(input_shape=(1, 2, 3))
    image = np.arange(6.0).reshape(1, 2, 3)
    assert net(image).shape == (6,)
    assert net(image[None]).shape == (1, 6)
    assert net(np.zeros((4, 6))).shape == (4, 6)
    assert net(np.zeros((0, 6))).shape == (0, 6)
    assert net.jacobian(np.zeros((0, 6))).shape == (0, 6, 6)
    with pytest.raises(InvalidInputError, match=r"shape \(5,\)"):
        net(np.zeros(5))
    row = rn.Network.from_weights([np.eye(2)]).replace(input_shape=(1, 2))
    assert row(np.zeros((1, 2))).shape == (1, 2)  # a matrix with d columns is a batch


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rn.Network.from_weights([]), "at least one"),
        (lambda: rn.Network.from_weights([np.ones(3)]), "1 axes"),
        (lambda: rn.Network.from_weights([np.ones((2, 3)), np.ones((1, 4))]), "expected"),
        (lambda: rn.Network.from_weights([[[np.nan]]]), "NaN"),
        (lambda: rn.Network.from_weights([[[1.0]]], [[np.inf]]), "NaN or infinite"),
        (lambda: rn.Network.from_weights([np.ones((0, 3)), np.ones((1, 0))]), "width 0"),
        (lambda: rn.Network.from_weights([np.ones((1, 1))], [[1.0], [2.0]]), "1 weights but 2"),
        (lambda: rn.Network([], rn.Affine({3: np.ones((1, 1))}, [0.0]), input_shape=1), "value 3"),
        (lambda: rn.Network([], rn.Affine({}, [0.0]), input_shape=0), "no entries"),
        (lambda: rn.Activation("tanh"), "not known"),  # type: ignore[arg-type]
        (lambda: rn.Activation("leaky", float("nan")), "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(build: object, message: str) -> None:
    with pytest.raises(InvalidNetworkError, match=message):
        build()  # type: ignore[operator]


def test_facts() -> None:
    net = rn.Network.from_weights([np.ones((4, 3)), np.ones((2, 4))])
    assert net.widths == (3, 4, 2)
    assert net.parameters == 12 + 4 + 8 + 2
    assert net.units == 4
    assert repr(net) == "Network(3 -> 4 relu -> 2, 26 parameters)"
    assert net.to_dict()["layers"][0]["reads"] == [0]
    constant = rn.Network([], rn.Affine({}, [1.0, 2.0]), input_shape=3)
    assert constant(np.zeros((2, 3))).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert constant.jacobian(np.zeros(3)).tolist() == [[0.0] * 3] * 2


def decoded(data: bytes) -> tuple:
    """The structure an encoding spells, by a reader of its grammar; nothing may be left over."""
    place = 0

    def take(count: int) -> bytes:
        nonlocal place
        part = data[place : place + count]
        assert len(part) == count
        place += count
        return part

    def ints() -> tuple[int, ...]:
        return tuple(np.frombuffer(take(8 * int.from_bytes(take(8), "little")), "<i8").tolist())

    def floats() -> tuple[float, ...]:
        return tuple(np.frombuffer(take(8 * int.from_bytes(take(8), "little")), "<f8").tolist())

    def affine() -> tuple:
        bias, (count,) = floats(), ints()
        return bias, tuple((ints(), ints(), ints(), floats()) for _ in range(count))

    header = take(len(HEADER))
    shapes, (count,) = (ints(), ints()), ints()
    layers = tuple((bytes(ints()), floats(), affine()) for _ in range(count))
    output = affine()
    assert header == HEADER
    assert place == len(data)
    return shapes, layers, output


def structure(network: rn.Network) -> tuple:
    """The same, from the network itself."""

    def affine(part: rn.Affine) -> tuple:
        terms = []
        for source, matrix in part.terms.items():
            sparse = sp.csr_array(matrix, copy=True)
            sparse.eliminate_zeros()
            if sparse.nnz:
                parts = (sparse.indptr, sparse.indices, sparse.data)
                terms.append(((source, *matrix.shape), *(tuple(p.tolist()) for p in parts)))
        return tuple(part.bias.tolist()), tuple(terms)

    kinds = {"leaky": lambda a: (a.slope,), "step": lambda a: (a.at_zero,)}
    layers = tuple(
        (
            x.activation.kind.encode(),
            kinds.get(x.activation.kind, lambda a: ())(x.activation),
            affine(x.affine),
        )
        for x in network.layers
    )
    return (network.input_shape, network.output_shape), layers, affine(network.output)


@given(networks())
def test_the_encoding_can_be_read_back(network: rn.Network) -> None:
    """So networks of different structure or numbers have different encodings."""
    assert decoded(b"".join(map(bytes, encoding(network)))) == structure(network)


@given(networks(), networks())
def test_different_structure_different_encoding(first: rn.Network, second: rn.Network) -> None:
    same = structure(first) == structure(second)
    assert same == (b"".join(encoding(first)) == b"".join(encoding(second)))
    assert same == (first.digest == second.digest)


def test_numbers_that_look_like_structure_change_the_digest() -> None:
    """The bits of four biases spell a matrix: constant 1 and relu(x) had the same digest."""

    def number(data: bytes) -> float:
        return struct.unpack("<d", data)[0]

    zero, one = struct.pack("<q", 0), struct.pack("<q", 1)
    words = [zero, one, zero, struct.pack("<d", 1.0), bytes(7) + b"0", zero, one, zero]
    words.append(struct.pack("<d", 1.0))
    output = rn.Affine({3: [[1.0]]}, [0.0])
    constant = rn.Network(
        [
            rn.Layer(rn.Affine({0: [[1.0]]}, [0.0])),
            rn.Layer(rn.Affine({}, [number(w) for w in words[4:8]])),
            rn.Layer(rn.Affine({}, [number(words[8])])),
        ],
        output,
        input_shape=1,
    )
    text = b"0" + b"".join(words)
    bias = [number(text[8 * k : 8 * k + 8]) for k in range(5)]
    ramp = rn.Network(
        [
            rn.Layer(rn.Affine({}, [0.0])),
            rn.Layer(rn.Affine({}, bias[:4])),
            rn.Layer(rn.Affine({0: [[1.0]]}, [bias[4]])),
        ],
        output,
        input_shape=1,
    )
    x = np.array([[-1.0], [0.25], [2.0]])
    assert constant(x).ravel().tolist() == [1.0, 1.0, 1.0]
    assert ramp(x).ravel().tolist() == [0.0, 0.25, 2.0]
    assert constant.digest != ramp.digest
    box = rn.Box([-1.0], [2.0])
    assert rn.compare(constant, ramp, box).verdict == "different"
    with pytest.raises(InvalidInputError, match="another network"):
        rn.normalize(ramp, "minimal", box, analysis=stability(constant, box))


def test_unused_parameters_of_an_activation_are_no_part_of_the_digest() -> None:
    def net(activation: rn.Activation) -> str:
        return rn.Network.from_weights([[[1.0]], [[1.0]]], activation=activation).digest

    assert net(rn.Activation("relu")) == net(rn.Activation("relu", slope=0.5))
    assert net(rn.Activation("leaky", slope=0.0)) != net(rn.Activation("relu"))
    assert net(rn.Activation("step")) != net(rn.Activation("step", at_zero=0.0))


@pytest.mark.parametrize("sparse", [False, True])
def test_complex_numbers_and_text_are_refused(sparse) -> None:
    given = np.ones((3, 2)) + 2j
    with pytest.raises(InvalidNetworkError, match="complex"):
        rn.Network.from_weights([sp.csr_array(given) if sparse else given])
    with pytest.raises(InvalidNetworkError, match="the biases hold complex"):
        rn.Network.from_weights([np.ones((3, 2))], [np.zeros(3) + 1j])
    for rows in ([["a", "b"]], [[1.0, 2.0], [3.0]]):
        with pytest.raises(InvalidNetworkError, match="no array of numbers"):
            rn.Network.from_weights([rows])
    net = rn.Network.from_weights([np.ones((3, 2))])
    for inputs in (np.zeros((1, 2)) + 1j, np.array([["0", "1"]], dtype=object)):
        with pytest.raises(InvalidInputError, match="not an array of numbers"):
            net(inputs)


def test_a_sparse_matrix_of_the_caller_may_be_written_to_afterwards():
    own = sp.csr_array((np.array([1.0, -2.0]), np.array([0, 30]), np.array([0, 2])), (1, 40))
    rn.Affine({0: own}, np.zeros(1))
    own.indices[:] = 5
    layer = rn.Layer(rn.Affine({0: own}, np.array([0.5])))
    net = rn.Network([layer], rn.Affine({1: np.ones((1, 1))}, np.zeros(1)), input_shape=40)
    assert rn.lipschitz(net, rn.Box.cube(40)).upper == pytest.approx(1.0)
    assert net(np.full((1, 40), -1.0)) == 1.5

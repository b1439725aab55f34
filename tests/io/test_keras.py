"""Keras 3 models in and out; the oracle is the model's own prediction."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from onnx_models import model as onnx_model
from strategies import networks

import relunorm as rn
from relunorm.errors import UnsupportedFormatError, UnsupportedOperationError
from relunorm.network import Activation

if importlib.util.find_spec("keras") is None:
    pytest.skip("keras is not installed (the extra relunorm[keras])", allow_module_level=True)
keras = pytest.importorskip("keras", reason="keras has no backend here", exc_type=ImportError)
L = keras.layers
# Keras' own conversions of torch tensors, in the oracle.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def settle(model, seed=0):
    """Random weights and statistics everywhere, reproducibly."""
    rng = np.random.default_rng(seed)
    for layer in model.layers:
        if hasattr(layer, "layers"):
            settle(layer, seed + 1)
            continue
        for variable in layer.weights:
            shape = tuple(variable.shape)
            positive = "variance" in variable.path or "gamma" in variable.path
            variable.assign(rng.uniform(0.5, 2, shape) if positive else rng.normal(size=shape))
    return model


def points(network):
    return np.random.default_rng(1).normal(size=(25, *network.input_shape)).astype(np.float32)


def assert_same(network, model):
    """Within 1e-6: Keras multiplies matrices in float32, even those of float64 layers."""
    expected = keras.ops.convert_to_numpy(model(points(network), training=False)).reshape(25, -1)
    difference = np.abs(network(points(network)) - expected).max()
    assert difference <= 1e-6 * max(np.abs(expected).max(), 1)


def mlp():
    return keras.Sequential(
        [
            keras.Input((6,)),
            L.Dense(8, activation="relu"),
            L.BatchNormalization(),
            L.Dropout(0.5),
            L.Dense(7, activation="leaky_relu", use_bias=False),
            L.Dense(5),
            L.ReLU(max_value=1.5, negative_slope=0.1),
            L.Dense(4, activation=L.LeakyReLU(negative_slope=0.3)),
            L.Activation("relu"),
            L.Activation("linear"),
            L.PReLU(),
            L.Dense(5, activation="hard_sigmoid"),
            L.Dense(3),
        ]
    )


def residual():
    inputs = keras.Input((4, 3))
    flat = L.Flatten()(inputs)
    left = L.Dense(5, activation="relu")(flat)
    right = L.LeakyReLU()(L.Dense(5)(flat))
    merged = [L.Add()([left, right]), L.Subtract()([left, right]), L.Average()([left, right])]
    both = L.Concatenate()([*merged, L.Maximum()([left, right]), L.Minimum()([right, left])])
    shared = L.Dense(25, activation="relu")
    twice = shared(shared(both)) + both
    return keras.Model(inputs, L.Reshape((5, -1))(twice))


def cnn():
    return keras.Sequential(
        [
            keras.Input((9, 8, 2)),
            L.Rescaling(0.5, offset=-1.0),
            L.Conv2D(4, 3, padding="same", strides=2, activation="relu"),
            L.BatchNormalization(),
            L.MaxPooling2D(2, padding="same"),
            L.ZeroPadding2D(((1, 0), (0, 2))),
            L.DepthwiseConv2D(2, depth_multiplier=2),
            L.AveragePooling2D((2, 1), strides=1, padding="same"),
            L.Conv2D(6, 2, groups=2, dilation_rate=1, use_bias=False),
            L.ReLU(),
            L.GlobalAveragePooling2D(),
            L.Dense(3),
        ]
    )


def sequence():
    inner = keras.Sequential([keras.Input((10, 4)), L.Conv1D(4, 2, padding="causal"), L.ReLU()])
    return keras.Sequential(
        [
            keras.Input((10, 3)),
            L.Conv1D(4, 3, padding="same"),
            inner,
            L.MaxPooling1D(3),
            L.Permute((2, 1)),
            L.GlobalMaxPooling1D(keepdims=True),
            L.Flatten(),
        ]
    )


def mobile():
    return keras.Sequential(
        [
            keras.Input((8, 7, 3)),
            L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0]),
            L.SeparableConv2D(5, 3, padding="same", strides=2, depth_multiplier=2),
            L.ReLU(max_value=6),
            L.BatchNormalization(),
            L.Reshape((-1, 5)),
            L.SeparableConv1D(4, 3, dilation_rate=2, use_bias=False, activation="relu6"),
            L.GlobalMaxPooling1D(),
            L.Dense(3),
        ]
    )


@pytest.mark.parametrize("build", [mlp, residual, cnn, sequence, mobile])
def test_architecture(build):
    model = settle(build())
    before = [w.copy() for w in model.get_weights()]
    network = rn.load(model)
    assert network.input_shape == tuple(model.input_shape[1:])
    assert_same(network, model)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_layers_come_back_as_small_as_they_were():
    model = settle(mobile())
    network = rn.load(model)
    biases = 6 + 5  # of depthwise convolutions, which have none in Keras
    assert network.parameters <= model.count_params() + biases
    back = rn.to_keras(network)
    assert back.count_params() <= model.count_params() + biases
    assert_same(network, back)


def test_float64_weights_are_read_exactly():
    layers = [
        L.Dense(5, "relu", dtype="float64"),
        L.BatchNormalization(dtype="float64"),
        L.Dense(2, dtype="float64"),
    ]
    model = settle(keras.Sequential([keras.Input((4,)), *layers]))
    network = rn.load(model)
    w0, b0, gamma, beta, mean, variance, w1, b1 = map(np.asarray, model.get_weights())
    x = points(network).astype(np.float64)
    hidden = np.maximum(x @ w0 + b0, 0)
    hidden = (hidden - mean) / np.sqrt(variance + layers[1].epsilon) * gamma + beta
    expected = hidden @ w1 + b1
    assert np.abs(network(x) - expected).max() <= 1e-12 * np.abs(expected).max()


def test_names_are_layer_names():
    model = keras.Sequential([keras.Input((2,)), L.Dense(3, "relu", name="hidden"), L.Dense(1)])
    assert [layer.name for layer in rn.load(model).layers] == ["hidden"]


def test_open_sizes():
    model = settle(
        keras.Sequential([keras.Input((None, 2)), L.Conv1D(3, 2), L.GlobalAveragePooling1D()])
    )
    with pytest.raises(UnsupportedFormatError, match=r"shape \(\?, 2\).*example="):
        rn.load(model)
    assert_same(rn.load(model, example=(7, 2)), model)
    with pytest.raises(UnsupportedFormatError, match="example says"):
        rn.load(model, example=(7, 3))


def test_all_unsupported_layers_are_listed():
    model = keras.Sequential(
        [keras.Input((4,)), L.Dense(3, "tanh", name="a"), L.ReLU(), L.LayerNormalization(name="b")]
    )
    with pytest.raises(UnsupportedOperationError, match="'tanh'") as caught:
        rn.load(model)
    assert [place for place, _ in caught.value.operations] == ["a", "b"]


def test_subclassed_layers_and_models_are_refused():
    class Odd(L.Dense):
        def call(self, inputs, training=None):
            return -super().call(inputs)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(2)

        def call(self, inputs):
            return self.dense(inputs)

    with pytest.raises(UnsupportedOperationError, match="Odd"):
        rn.load(keras.Sequential([keras.Input((2,)), Odd(2)]))
    model = Model()
    model(np.zeros((1, 2)))
    with pytest.raises(UnsupportedFormatError, match="subclassed"):
        rn.load(model)
    with pytest.raises(UnsupportedFormatError, match="no weights yet"):
        rn.load(keras.Sequential([L.Dense(2)]))


def test_several_inputs_or_outputs():
    first, second = keras.Input((2,)), keras.Input((2,))
    two = keras.Model(first, [L.Dense(1)(first), L.Dense(3)(first)])
    with pytest.raises(UnsupportedFormatError, match=r"2 outputs.*model\.outputs\[0\]"):
        rn.load(two)
    assert rn.load(keras.Model(two.inputs[0], two.outputs[1])).output_size == 3
    with pytest.raises(UnsupportedFormatError, match="2 inputs"):
        rn.load(keras.Model([first, second], L.Add()([first, second])))


SMOOTH = (Activation("relu"), Activation("leaky", slope=0.125), Activation("identity"))


@settings(max_examples=15)
@given(networks(activations=SMOOTH))
def test_out_and_back(network):
    model = rn.to_keras(network)
    assert_same(network, model)
    x, again = points(network), rn.load(model)
    assert np.abs(again(x) - network(x)).max() <= 1e-12 * max(np.abs(network(x)).max(), 1)


def test_chain_is_sequential_with_shapes():
    weights = [np.ones((3, 4)), np.ones((6, 3))]
    network = rn.Network.from_weights(weights).replace(input_shape=(2, 2), output_shape=(3, 2))
    model = rn.to_keras(network, dtype="float32")
    assert isinstance(model, keras.Sequential)
    assert model.output_shape == (None, 3, 2)
    assert_same(rn.load(model), model)


def test_step_is_refused():
    network = rn.Network.from_weights([[[1.0]], [[1.0]]], activation="step")
    with pytest.raises(UnsupportedFormatError, match="step"):
        rn.to_keras(network)


def functional(build, shape=(4,)):
    into = keras.Input(shape)
    return keras.Model(into, build(into))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: keras.ops.average(x, axis=1),
        lambda x: keras.ops.max(x, axis=1, initial=0.25),
        lambda x: keras.ops.min(x, axis=1, keepdims=True, initial=-0.25),
        lambda x: keras.ops.roll(x, 1, axis=1),
    ],
)
def test_functions_mean_what_keras_computes(build):
    model = functional(build)
    network = rn.load(model)
    x = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_allclose(
        np.ravel(network(x)), np.ravel(keras.ops.convert_to_numpy(model(x))), atol=1e-6
    )


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda x: keras.ops.average(x, axis=1, weights=np.ones(4, "float32")), "with weights"),
        (lambda x: keras.ops.flip(x, axis=0), "batch"),
        (lambda x: keras.ops.take(x, [0, 0], axis=0), "batch"),
        (lambda x: keras.ops.repeat(x, 2, axis=0), "batch"),
        (lambda x: keras.ops.transpose(x), "batch"),
        (lambda x: keras.ops.einsum("bi->i", x), "batch"),
        (lambda x: keras.ops.split(keras.ops.square(x), 2, axis=1)[1], "Square"),
        (lambda x: keras.ops.relu(keras.ops.sigmoid(x)), "at the end"),
        (lambda x: keras.layers.BatchNormalization()(x, training=True), "training=True"),
        (lambda x: keras.layers.Dropout(0.5)(x, training=True), "training=True"),
    ],
)
def test_what_depends_on_the_batch_or_on_chance_is_refused(build, why):
    with pytest.raises(UnsupportedOperationError, match=why):
        rn.load(functional(build))


def test_quantized_layers_are_refused():
    model = settle(keras.Sequential([keras.Input((4,)), L.Dense(3)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras' own
        model.quantize("int8")
    with pytest.raises(UnsupportedOperationError, match=r"is quantized \(int8\)"):
        rn.load(model)


def test_an_average_with_more_padding_behind_is_written_as_it_is():
    """Of such an AveragePooling the backends of Keras differ."""
    nodes = [
        ("Conv", ["x", "w"], {}),
        ("AveragePool", ["n0"], {"kernel_shape": [2], "pads": [0, 1]}),
    ]
    weight = np.random.default_rng(3).normal(size=(3, 2, 2)).astype(np.float32)
    network = rn.load(onnx_model(nodes, {"w": weight}, [1, 2, 6]))
    assert network.structure is not None
    assert_same(network, rn.to_keras(network))


def test_an_output_may_have_a_name():
    into = keras.Input((4,))
    model = settle(keras.Model(into, {"y": L.Dense(2)(into)}))
    x = points(network := rn.load(model))
    np.testing.assert_allclose(network(x), model(x)["y"].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_random_layers_do_nothing_behind_training():
    model = functional(lambda x: keras.layers.RandomFlip()(x), (4, 4, 1))
    x = np.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(rn.load(model)(x.reshape(1, -1)).ravel(), x.ravel())


def two_inputs() -> Any:
    a, b = keras.Input((2,), name="b"), keras.Input((3,), name="a")  # not in sorted order
    both = [keras.layers.Dense(4, "relu")(a), keras.layers.Dense(5, "relu")(b)]
    joined = keras.layers.Concatenate()(both)
    return keras.Model([a, b], keras.layers.Dense(3, "softmax")(joined))


def test_what_several_inputs_are_told_works() -> None:
    model = two_inputs()
    with pytest.raises(UnsupportedFormatError, match="2 inputs and 1 output, expected") as caught:
        rn.load(model)
    first, second = str(caught.value).split("join the inputs: ")[1].split("; ")
    names: dict[str, Any] = {"keras": keras, "model": model}
    exec(first, names)
    network = rn.load(eval(second, names))
    x = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    expected = np.asarray(model.predict([x[:, :2], x[:, 2:]], verbose=0))
    np.testing.assert_allclose(network.predict(x), expected, atol=1e-5)


@pytest.mark.parametrize("named", [False, True])
def test_a_model_inside_may_have_several_inputs_and_outputs(named: bool) -> None:
    a, b = keras.Input((2,), name="b"), keras.Input((3,), name="a")
    left, right = keras.layers.Dense(4, "relu")(a), keras.layers.Dense(4)(b)
    inputs: Any = {"b": a, "a": b} if named else [a, b]
    inner = keras.Model(inputs, [left, keras.layers.Subtract()([left, right])])
    x = keras.Input((5,))
    parts: Any = {"b": x[:, :2], "a": x[:, 2:]} if named else [x[:, :2], x[:, 2:]]
    first, second = inner(parts)
    outer = keras.Model(x, keras.layers.Dense(2)(keras.layers.Concatenate()([second, first])))
    rows = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    expected = np.asarray(outer.predict(rows, verbose=0))
    np.testing.assert_allclose(rn.load(outer)(rows), expected, atol=1e-5)

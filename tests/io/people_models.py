"""Models as people have them, tiny and made from seeds: the model, rows of inputs, its answers.

Each entry of `MODELS` makes a `Given`. Entries of `REFUSED` cannot be a piecewise affine network,
and say with which sentence that is told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: Rows of four features in units as people have them.
X = np.random.default_rng(0).normal(size=(24, 4)) * [1.0, 3.0, 0.2, 10.0] + [0.0, 5.0, 1.0, -20.0]
X = X.astype(np.float32).astype(np.float64)
IMAGES = np.random.default_rng(1).random((6, 1, 6, 6)).astype(np.float32).astype(np.float64)
LABELS = np.array(["ash", "elm", "oak"])[np.arange(24) % 3]


@dataclass
class Given:
    """A model, inputs, and what the model's own framework computes on them.

    Attributes:
        head: what the model ends in, in words.
        classes: the labels it names.
        example: the shape of one input, where the model leaves it open.
        scale: how far rounding in float32 may move the answers.
    """

    model: Any
    inputs: np.ndarray
    answers: np.ndarray
    head: str = ""
    classes: tuple[Any, ...] = ()
    example: Any = None
    scale: float = 1.0


MODELS: dict[str, Callable[[Path], Given]] = {}
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {}


def model(function: Callable[[Path], Given]) -> Callable[[Path], Given]:
    MODELS[function.__name__] = function
    return function


def refused(message: str) -> Callable[[Any], Any]:
    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        REFUSED[function.__name__] = (function, message)
        return function

    return register


def _torch() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    return torch


def _of_torch(module: Any, inputs: np.ndarray = X, dtype: Any = None, **said: Any) -> Given:
    import torch

    module.eval()
    with torch.no_grad():
        batch = torch.tensor(inputs, dtype=dtype or torch.float32)
        answers = module(batch).to(torch.float64).numpy()
    return Given(module, inputs, answers, **said)


def _mlp(outputs: int = 3, *after: Any) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, outputs), *after
    )


@model
def torch_sequential(folder: Path) -> Given:
    _torch()
    return _of_torch(_mlp())


@model
def torch_softmax(folder: Path) -> Given:
    torch = _torch()
    return _of_torch(_mlp(3, torch.nn.Softmax(dim=1)), head="softmax")


@model
def torch_functional_log_softmax(folder: Path) -> Given:
    torch = _torch()

    class Functional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return torch.log_softmax(self.b(torch.nn.functional.relu(self.a(x))), dim=-1)

    return _of_torch(Functional(), head="log-softmax")


@model
def torch_binary_sigmoid(folder: Path) -> Given:
    torch = _torch()

    class Binary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp(1)

        def forward(self, x: Any) -> Any:
            return torch.sigmoid(self.body(x)).squeeze(-1)

    return _of_torch(Binary(), head="sigmoid")


@model
def torch_thresholded(folder: Path) -> Given:
    torch = _torch()

    class Thresholded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp(1)

        def forward(self, x: Any) -> Any:
            return (torch.sigmoid(self.body(x)) > 0.5).float()

    return _of_torch(Thresholded(), head="sigmoid, then test for > 0.5")


@model
def torch_argmax(folder: Path) -> Given:
    torch = _torch()

    class Chooses(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp(3)

        def forward(self, x: Any) -> Any:
            return self.body(x).argmax(dim=1)

    return _of_torch(Chooses(), head="argmax")


@model
def torch_bounded_actions(folder: Path) -> Given:
    torch = _torch()

    class Actor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp(2)

        def forward(self, x: Any) -> Any:
            return 2.0 * torch.tanh(self.body(x)) + 1.0

    return _of_torch(Actor(), head="tanh, then scaling (2 x + 1)")


@model
def torch_clipped_regressor(folder: Path) -> Given:
    torch = _torch()
    return _of_torch(_mlp(1, torch.nn.Hardtanh(-0.2, 0.3)))


@model
def torch_batch_norm_and_dropout(folder: Path) -> Given:
    torch = _torch()
    nn = torch.nn
    module = nn.Sequential(
        nn.BatchNorm1d(4), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(6, 3),
    )  # fmt: skip
    module(torch.tensor(X, dtype=torch.float32))  # running statistics
    return _of_torch(module)


@model
def torch_normalizing_buffers(folder: Path) -> Given:
    torch = _torch()

    class Normalized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor(X.mean(axis=0), dtype=torch.float32))
            self.register_buffer("std", torch.tensor(X.std(axis=0), dtype=torch.float32))
            self.body = _mlp(3, torch.nn.Softmax(-1))

        def forward(self, x: Any) -> Any:
            return self.body((x - self.mean) / self.std)

    return _of_torch(Normalized(), head="softmax")


@model
def torch_residual(folder: Path) -> Given:
    torch = _torch()

    class Residual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.last = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(x + self.b(torch.relu(self.a(x)))))

    return _of_torch(Residual(), scale=10.0)


@model
def torch_compiled(folder: Path) -> Given:
    torch = _torch()
    given = _of_torch(_mlp(3, torch.nn.Softmax(1)), head="softmax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch about itself
        given.model = torch.compile(given.model)  # compiles on its first call, which never comes
    return given


@model
def torch_pruned(folder: Path) -> Given:
    torch = _torch()
    from torch.nn.utils import prune

    module = _mlp()
    for part in module:
        if isinstance(part, torch.nn.Linear):
            prune.l1_unstructured(part, "weight", amount=0.5)
    return _of_torch(module)


@model
def torch_weight_norm(folder: Path) -> Given:
    torch = _torch()
    module = _mlp()
    torch.nn.utils.parametrizations.weight_norm(module[0])
    return _of_torch(module)


@model
def torch_half_precision(folder: Path) -> Given:
    torch = _torch()
    return _of_torch(_mlp().to(torch.bfloat16), dtype=torch.bfloat16, scale=3e5)


@model
def torch_lenet(folder: Path) -> Given:
    torch = _torch()
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 6), nn.ReLU(), nn.Linear(6, 3), nn.LogSoftmax(dim=1),
    )  # fmt: skip
    return _of_torch(module, IMAGES, head="log-softmax", example=(1, 6, 6))


@model
def torch_resnet_block(folder: Path) -> Given:
    torch = _torch()
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(1, 2, 3, stride=2, padding=1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
            self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)
            self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.bn1(self.stem(x)))
            x = torch.relu(x + self.bn2(self.conv(x)))
            return self.last(torch.flatten(self.pool(x), 1))

    return _of_torch(Block(), IMAGES, example=IMAGES)


@model
def torch_mobile_block(folder: Path) -> Given:
    torch = _torch()
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU6(),
        nn.Conv2d(2, 2, 3, groups=2, stride=2, padding=1), nn.ReLU6(),
        nn.AvgPool2d(3), nn.Flatten(), nn.Dropout(), nn.Linear(2, 2), nn.Softmax(1),
    )  # fmt: skip
    return _of_torch(module, IMAGES, head="softmax", example=(1, 6, 6))


@model
def torch_autoencoder(folder: Path) -> Given:
    torch = _torch()
    nn = torch.nn
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 36), nn.Sigmoid(),
        nn.Unflatten(1, (1, 6, 6)),
    )  # fmt: skip
    return _of_torch(module, IMAGES, head="sigmoid", example=(1, 6, 6))


@model
def torch_exported_program(folder: Path) -> Given:
    torch = _torch()
    given = _of_torch(_mlp(3, torch.nn.Softmax(1)), head="softmax")
    given.model = torch.export.export(given.model, (torch.zeros(1, 4),))
    return given


@model
def torch_pt2_file(folder: Path) -> Given:
    torch = _torch()
    given = torch_exported_program(folder)
    torch.export.save(given.model, folder / "model.pt2")
    given.model = folder / "model.pt2"
    return given


def _keras() -> Any:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    keras.utils.set_random_seed(0)
    return keras


def _of_keras(model: Any, inputs: np.ndarray = X, **said: Any) -> Given:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras converts tensors in a way that numpy 2 warns about
        answers = np.asarray(model.predict(inputs.astype(np.float32), verbose=0), np.float64)
    return Given(model, inputs, answers, **said)


@model
def keras_sequential_softmax(folder: Path) -> Given:
    keras = _keras()
    L = keras.layers
    layers = [keras.Input((4,)), L.Dense(6, "relu"), L.Dropout(0.3), L.Dense(3, "softmax")]
    return _of_keras(keras.Sequential(layers), head="softmax")


@model
def keras_functional_skip(folder: Path) -> Given:
    keras = _keras()
    L = keras.layers
    inputs = keras.Input((4,))
    hidden = L.Dense(4, "relu")(inputs)
    joined = L.Concatenate()([inputs, L.Add()([hidden, inputs])])
    return _of_keras(keras.Model(inputs, L.Softmax()(L.Dense(3)(joined))), head="softmax")


@model
def keras_normalization_sigmoid(folder: Path) -> Given:
    keras = _keras()
    L = keras.layers
    normalize = L.Normalization()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        normalize.adapt(X)
    layers = [keras.Input((4,)), normalize, L.Dense(5, "relu"), L.Dense(1, "sigmoid")]
    return _of_keras(keras.Sequential(layers), head="sigmoid")


@model
def keras_cnn(folder: Path) -> Given:
    keras = _keras()
    L = keras.layers
    layers = [
        keras.Input((6, 6, 1)), L.Rescaling(2.0, -1.0), L.Conv2D(2, 3, activation="relu"),
        L.MaxPooling2D(2), L.Flatten(), L.Dense(3, "softmax"),
    ]  # fmt: skip
    return _of_keras(keras.Sequential(layers), IMAGES.transpose(0, 2, 3, 1), head="softmax")


@model
def keras_regressor(folder: Path) -> Given:
    keras = _keras()
    L = keras.layers
    layers = [keras.Input((4,)), L.Dense(5), L.BatchNormalization(), L.LeakyReLU(), L.Dense(1)]
    return _of_keras(keras.Sequential(layers))


def _fitted(estimator: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations do not converge
        return estimator.fit(X, y)


def _perceptron(kind: str = "Classifier", **options: Any) -> Any:
    from sklearn import neural_network

    estimator = getattr(neural_network, f"MLP{kind}")
    return estimator(hidden_layer_sizes=(5,), max_iter=5, random_state=0, **options)


def _classifier(estimator: Any, head: str = "softmax") -> Given:
    answers = estimator.predict_proba(X)
    answers = answers[:, 1:] if answers.shape[1] == 2 else answers
    return Given(estimator, X, answers, head, tuple(estimator.classes_.tolist()))


def _regressor(estimator: Any, head: str = "") -> Given:
    return Given(estimator, X, estimator.predict(X).reshape(len(X), -1), head, scale=10.0)


@model
def sklearn_classifier(folder: Path) -> Given:
    return _classifier(_fitted(_perceptron(), LABELS))


@model
def sklearn_binary_classifier(folder: Path) -> Given:
    return _classifier(_fitted(_perceptron(), np.arange(24) % 2 + 5), "sigmoid")


@model
def sklearn_regressor(folder: Path) -> Given:
    return _regressor(_fitted(_perceptron("Regressor"), X[:, 0]))


@model
def sklearn_pipeline(folder: Path) -> Given:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _classifier(_fitted(make_pipeline(StandardScaler(), _perceptron()), LABELS))


@model
def sklearn_clipping_pipeline(folder: Path) -> Given:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    pipeline = make_pipeline(MinMaxScaler(clip=True), _perceptron("Regressor"))
    given = _regressor(_fitted(pipeline, X[:, 0]))
    given.inputs = np.vstack([X, 3 * X])  # outside of the range it was fitted on
    given.answers = pipeline.predict(given.inputs)[:, None]
    return given


@model
def sklearn_columns(folder: Path) -> Given:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

    columns = ColumnTransformer(
        [("a", StandardScaler(), [2, 0]), ("b", make_pipeline(RobustScaler(), MinMaxScaler()), [3])]
    )
    return _regressor(_fitted(make_pipeline(columns, _perceptron("Regressor")), X[:, 1]))


@model
def sklearn_projected(folder: Path) -> Given:
    from sklearn.decomposition import PCA
    from sklearn.feature_selection import SelectKBest
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = (StandardScaler(), SelectKBest(k=3), PCA(2, whiten=True), _perceptron())
    return _classifier(_fitted(make_pipeline(*steps), LABELS))


@model
def sklearn_scaled_target(folder: Path) -> Given:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import StandardScaler

    inner = _perceptron("Regressor")
    return _regressor(
        _fitted(TransformedTargetRegressor(inner, transformer=StandardScaler()), X[:, 3])
    )


@model
def sklearn_grid_search(folder: Path) -> Given:
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(_perceptron(), {"alpha": [1e-4, 1e-2]}, cv=2)
    return _classifier(_fitted(search, LABELS))


@model
def sklearn_logistic_regression(folder: Path) -> Given:
    from sklearn.linear_model import LogisticRegression

    return _classifier(_fitted(LogisticRegression(max_iter=20), LABELS))


@model
def sklearn_poisson(folder: Path) -> Given:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    perceptron = _perceptron("Regressor", loss="poisson")
    return _regressor(_fitted(make_pipeline(StandardScaler(), perceptron), abs(X[:, 0])), "exp")


def _run_onnx(proto: Any, inputs: np.ndarray, output: int = -1) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(proto.SerializeToString())
    name = session.get_inputs()[0].name
    return session.run(None, {name: inputs.astype(np.float32)})[output]


@model
def onnx_from_torch(folder: Path) -> Given:
    torch = _torch()
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    given = _of_torch(_mlp(3, torch.nn.Softmax(1)), head="softmax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            given.model, (torch.zeros(1, 4),), folder / "new.onnx", dynamo=True, verbose=False
        )
    given.model = folder / "new.onnx"
    given.answers = np.vstack([_run_onnx(onnx.load(given.model), row[None]) for row in X])
    return given


@model
def onnx_from_torch_legacy(folder: Path) -> Given:
    torch = _torch()
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    given = _of_torch(_mlp(1, torch.nn.Sigmoid()), head="sigmoid")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            given.model, (torch.zeros(1, 4),), folder / "old.onnx", dynamo=False,
            dynamic_axes={"x": {0: "n"}}, input_names=["x"],
        )  # fmt: skip
    given.model = folder / "old.onnx"
    given.answers = _run_onnx(onnx.load(given.model), X)
    return given


def _of_skl2onnx(estimator: Any, **options: Any) -> Any:
    convert = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    return convert.to_onnx(estimator, X[:1].astype(np.float32), **options)


@model
def onnx_from_sklearn(folder: Path) -> Given:
    given = sklearn_pipeline(folder)
    given.model = _of_skl2onnx(given.model)
    rows = _run_onnx(given.model, X)
    given.answers = np.array([[row[name] for name in given.classes] for row in rows])
    return given


@model
def onnx_from_sklearn_binary(folder: Path) -> Given:
    given = sklearn_binary_classifier(folder)
    given.model = _of_skl2onnx(given.model, options={"zipmap": False})
    given.answers = _run_onnx(given.model, X)
    given.head = "sigmoid of both classes"
    return given


@model
def onnx_from_sklearn_regressor(folder: Path) -> Given:
    given = sklearn_columns(folder)
    given.model = _of_skl2onnx(given.model)
    given.answers = _run_onnx(given.model, X)
    return given


def _graph(
    nodes: list[tuple[str, list[str], dict[str, Any]]], arrays: dict[str, Any], shape: Any
) -> Any:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper = onnx.helper
    made = [
        helper.make_node(kind, inputs, [f"n{k}"], **attributes)
        for k, (kind, inputs, attributes) in enumerate(nodes)
    ]
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info(f"n{len(nodes) - 1}", 1, None)],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


@model
def onnx_tensorflow_style(folder: Path) -> Given:
    """Images with the channels last, as converters from TensorFlow write them."""
    rng = np.random.default_rng(2)
    arrays = {
        "w": rng.normal(size=(2, 1, 3, 3)).astype(np.float32),
        "shape": np.array([-1, 32]),
        "m": rng.normal(size=(32, 3)).astype(np.float32),
        "b": rng.normal(size=3).astype(np.float32),
    }
    proto = _graph(
        [
            ("Transpose", ["x"], {"perm": [0, 3, 1, 2]}),
            ("Conv", ["n0", "w"], {}),
            ("Relu", ["n1"], {}),
            ("Transpose", ["n2"], {"perm": [0, 2, 3, 1]}),
            ("Reshape", ["n3", "shape"], {}),
            ("MatMul", ["n4", "m"], {}),
            ("Add", ["n5", "b"], {}),
            ("Softmax", ["n6"], {"axis": -1}),
        ],
        arrays,
        ["n", 6, 6, 1],
    )
    inputs = IMAGES.transpose(0, 2, 3, 1)
    return Given(proto, inputs, _run_onnx(proto, inputs), "softmax")


@model
def onnx_with_preprocessing(folder: Path) -> Given:
    """Sub and Div in front, an open batch and open features, a sigmoid at the end."""
    rng = np.random.default_rng(3)
    arrays = {
        "mean": X.mean(axis=0).astype(np.float32),
        "std": X.std(axis=0).astype(np.float32),
        "a": rng.normal(size=(4, 5)).astype(np.float32),
        "b": rng.normal(size=(5, 1)).astype(np.float32),
    }
    nodes = [
        ("Sub", ["x", "mean"], {}),
        ("Div", ["n0", "std"], {}),
        ("MatMul", ["n1", "a"], {}),
        ("Relu", ["n2"], {}),
        ("MatMul", ["n3", "b"], {}),
        ("Sigmoid", ["n4"], {}),
    ]
    proto = _graph(nodes, arrays, ["n", "d"])
    return Given(proto, X, _run_onnx(proto, X), "sigmoid")


@refused("Subclassed.*hides what it computes")
def keras_subclassed(folder: Path) -> Any:
    keras = _keras()

    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3, "softmax")

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    made = Subclassed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made(X.astype(np.float32))
    return made


@refused("RandomForestRegressor")
def sklearn_forest(folder: Path) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=2).fit(X, X[:, 0])


@refused("rescale.curve: PowerTransformer\n.*pipeline\\[1:\\]")
def sklearn_curve(folder: Path) -> Any:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import PowerTransformer

    scaling = Pipeline([("curve", PowerTransformer())])
    return _fitted(Pipeline([("rescale", scaling), ("last", _perceptron())]), LABELS)


@refused("not fitted")
def sklearn_not_fitted(folder: Path) -> Any:
    return _perceptron()


@refused("gelu")
def torch_gelu(folder: Path) -> Any:
    torch = _torch()
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.Linear(3, 1))


@refused("softmax.*only known at the end")
def torch_attention(folder: Path) -> Any:
    torch = _torch()

    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.b(torch.softmax(self.a(x), dim=1) * x)

    return Gate()


@refused("fake_quant|round|FakeQuant")
def torch_quantization_aware(folder: Path) -> Any:
    """Weights and activations rounded on the way: no piecewise affine function."""
    torch = _torch()

    class Rounded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            x = torch.fake_quantize_per_tensor_affine(torch.relu(self.a(x)), 0.1, 0, 0, 255)
            return self.b(x)

    return Rounded()


def _prepared(rounds: bool) -> Any:
    """As torch.ao.quantization prepares a model for training with rounding."""
    torch = _torch()
    quantization = torch.ao.quantization
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own word on where this is going
        module = _mlp()
        module.qconfig = quantization.get_default_qat_qconfig("x86")
        quantization.prepare_qat(module.train(), inplace=True)
        module(torch.tensor(X, dtype=torch.float32))
        if not rounds:
            module.apply(quantization.disable_fake_quant)
            module.apply(quantization.disable_observer)
    return module.eval()


@model
def torch_prepared_for_quantization(folder: Path) -> Given:
    return _of_torch(_prepared(rounds=False))


@refused("FakeQuantize rounds the outputs of 0, 2, 4")
def torch_rounding_in_hooks(folder: Path) -> Any:
    return _prepared(rounds=True)


@refused("computes with integers")
def torch_dynamically_quantized(folder: Path) -> Any:
    torch = _torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(_mlp(), {torch.nn.Linear})


@refused("TorchScript cannot be exported again")
def torch_script(folder: Path) -> Any:
    torch = _torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(_mlp(), torch.zeros(1, 4))


@refused("channel of any size")
def torch_cnn_without_a_shape(folder: Path) -> Any:
    torch = _torch()
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten())


@refused("pickle can run code")
def joblib_file(folder: Path) -> Any:
    return folder / "model.joblib"

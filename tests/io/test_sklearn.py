"""scikit-learn perceptrons in and out, against their own predictions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_digits, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from strategies import ARCHIVES

import relunorm as rn
from relunorm.errors import InvalidNetworkError, UnsupportedOperationError
from relunorm.io.border import as_domain
from relunorm.io.table import read_table


def fitted(estimator, X, y):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations do not converge
        return estimator.fit(X, y)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16, y[:400]


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_regressor_round_trip(activation: str, outputs: int) -> None:
    X, y = make_regression(80, 5, n_targets=outputs, random_state=0)
    model = fitted(
        MLPRegressor(hidden_layer_sizes=(7, 4), activation=activation, max_iter=5, random_state=0),
        X,
        y,
    )
    network = rn.load(model)
    expected = model.predict(X).reshape(len(X), -1)
    np.testing.assert_allclose(network(X), expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    back = rn.to_sklearn(network, like=model)
    np.testing.assert_allclose(
        back.predict(X), model.predict(X), rtol=1e-12, atol=1e-12 * abs(expected).max()
    )
    assert rn.load(back) == network


@pytest.mark.parametrize("kind", ["many", "two", "labels"])
def test_classifier_round_trip(kind: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    target = {"many": y, "two": y > 4, "labels": np.stack([y > 4, y % 2 == 0], axis=1)}[kind]
    model = fitted(MLPClassifier(hidden_layer_sizes=(12, 6), max_iter=4, random_state=0), X, target)
    back = rn.to_sklearn(rn.load(model), like=model)
    np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_classes_without_a_template(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    model = fitted(MLPClassifier(hidden_layer_sizes=(6,), max_iter=3, random_state=0), X, y)
    back = rn.to_sklearn(rn.load(model), classes=model.classes_)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    with pytest.raises(InvalidNetworkError, match="3 classes need 3 outputs"):
        rn.to_sklearn(rn.load(model), classes=[0, 1, 2])


def test_what_scikit_learn_cannot_hold() -> None:
    leaky = rn.Network.from_weights([[[1.0]], [[1.0]]], activation=rn.Activation("leaky", 0.1))
    with pytest.raises(InvalidNetworkError, match="plain relu perceptron"):
        rn.to_sklearn(leaky)
    with pytest.raises(InvalidNetworkError, match="not fitted"):
        rn.load(MLPRegressor())
    with pytest.raises(UnsupportedOperationError, match="tanh"):
        rn.load(MLPRegressor(activation="tanh"))


@pytest.mark.parametrize("ending", ["", "onnx", *ARCHIVES])
def test_the_columns_of_a_dataframe_are_found_by_name(ending: str, tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    names = ["height", "weight", "age"]
    frame = pandas.DataFrame(rng.normal(size=(60, 3)) * [1.0, 20.0, 0.1], columns=names)
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    pipeline.fit(frame, frame["height"] - frame["age"])
    network = rn.load(pipeline)
    if ending:
        rn.save(network, tmp_path / f"m.{ending}", dtype="float64")
        network = rn.load(tmp_path / f"m.{ending}")
    assert [column.name for column in network.columns] == names
    assert rn.load(pipeline.fit(frame.to_numpy(), frame["age"])).columns == ()
    turned = frame[names[::-1]].assign(more=1.0)
    np.testing.assert_array_equal(network(turned), network(frame.to_numpy()))
    asked = [rn.certify(network, rows[:1], delta=0.1).rows[0].radius for rows in (turned, frame)]
    assert asked[0] == asked[1]
    assert repr(as_domain(turned, network)) == repr(rn.Box.around(frame.to_numpy()))
    with pytest.raises(rn.errors.InvalidInputError, match="no weight; it has height, wieght, age"):
        rn.certify(network, frame.rename(columns={"weight": "wieght"}), delta=0.1)
    words = turned.assign(
        patient="p7", seen="2024-01-01"
    )  # columns that nobody reads hold anything
    words.to_csv(tmp_path / "turned.csv", index=False)
    frame.rename(columns={"weight": "wieght"}).to_csv(tmp_path / "typo.csv", index=False)
    table = read_table(tmp_path / "turned.csv", columns=network.columns)
    np.testing.assert_allclose(table.x, frame.to_numpy(), rtol=1e-12)
    with pytest.raises(rn.errors.InvalidInputError, match="Did you mean 'wieght'"):
        read_table(tmp_path / "typo.csv", columns=network.columns)


@pytest.mark.parametrize("kind", ["perceptron", "logistic", "three classes", "regression"])
def test_a_pipeline_is_comparable_with_its_own_onnx(kind: str) -> None:
    convert = pytest.importorskip("skl2onnx").to_onnx
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 3)) * [1.0, 20.0, 0.1] + [0.0, 5.0, 0.0]
    y: Any = np.where(x[:, 0] + x[:, 1] / 20 > 0, "yes", "no")
    last: Any = LogisticRegression()
    if kind == "perceptron":
        last = MLPClassifier((4,), max_iter=20, random_state=0)
    elif kind == "three classes":
        y = np.digitize(x[:, 0], [-0.5, 0.5])
    elif kind == "regression":
        last, y = LinearRegression(), x[:, 0] - x[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(StandardScaler(), last).fit(x, y)
        exported = convert(pipeline, x[:1].astype(np.float32))
    read = rn.load(exported)
    assert read.precision == "float32"
    if kind != "regression":
        assert read.head.classes == tuple(pipeline.classes_.tolist())
        given = read.predict(x)
        np.testing.assert_allclose(given, pipeline.predict_proba(x), rtol=1e-4, atol=1e-6)
    found = rn.compare(pipeline, exported, x)
    assert found.verdict == "within"
    assert found.precision == "float32"
    if kind == "perceptron":  # the others keep their weights in attributes, which are float32
        assert rn.load(convert(pipeline, x[:1])).precision == "float64"


def test_a_column_of_words_that_is_dropped_is_no_input(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(30, 3)), columns=["age", "income", "visits"])
    X.insert(1, "city", ["Oslo", "Rome", "Bonn"] * 10)
    scaled = ColumnTransformer([("num", StandardScaler(), ["visits", "age", "income"])])
    model = make_pipeline(scaled, LogisticRegression()).fit(X, np.arange(30) % 3)
    network = rn.load(model)
    assert [column.name for column in network.columns] == ["age", "income", "visits"]
    np.testing.assert_allclose(network.predict(X), model.predict_proba(X), atol=1e-9)
    assert rn.certify(model, X[:2], radius=1e-6).rows[0].verdict == "robust"
    X.assign(kind=np.arange(30) % 3).to_csv(tmp_path / "people.csv", index=False)
    table = read_table(tmp_path / "people.csv", "kind", 3, columns=network.columns)
    np.testing.assert_allclose(table.x, X[["age", "income", "visits"]])


@pytest.mark.parametrize(("function", "inverse"), [(np.log, np.exp), (np.log1p, np.expm1)])
def test_a_target_that_was_fitted_as_its_logarithm(function: Any, inverse: Any) -> None:
    X, y = make_regression(60, 4, random_state=0)
    model = TransformedTargetRegressor(LinearRegression(), func=function, inverse_func=inverse)
    model.fit(X, np.exp(y / 100))
    network = rn.load(model)
    np.testing.assert_allclose(network.predict(X).ravel(), model.predict(X), rtol=1e-9)


def test_refusals_name_what_is_refused_and_say_what_to_do() -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    encoded = ColumnTransformer([("num", "passthrough", [0]), ("cat", OneHotEncoder(), [1])])
    cases = [
        (make_pipeline(encoded, LinearRegression()), "its part 'cat', OneHotEncoder"),
        (make_pipeline(encoded, LinearRegression()), r"Encode the table first.*pipeline\[1:\]"),
        (
            TransformedTargetRegressor(
                LinearRegression(), func=np.cbrt, inverse_func=np.square, check_inverse=False
            ),
            "inverse function .* of its target(.|\n)*regressor_",
        ),
    ]
    for model, text in cases:
        with pytest.raises(UnsupportedOperationError, match=text):
            rn.load(model.fit(X, y))
    scaled = make_pipeline(QuantileTransformer(n_quantiles=3), LinearRegression()).fit(X, y)
    with pytest.raises(UnsupportedOperationError) as caught:
        rn.load(scaled)
    assert "quantized" not in str(caught.value)
